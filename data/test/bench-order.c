/* SPDX-License-Identifier: Apache-2.0 */
/* bench-order.c - measures the time of order_at() in an order of 1e9 samples, and the time of a resume at position 1e9.
 *
 *     bench-order FOLDER
 *
 * Writes a compact index of 1e9 samples (testing-huge-index.h) into FOLDER (270 MB, removed at the end). Prints one
 * line of JSON per figure, with the median. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "data/index-open.h"
#include "data/order.h"
#include "data/test/testing-huge-index.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW = 262144,
    GRAIN = 64,
    CALLS = 2000000,
    RUNS = 9,
};

static const uint64_t n_samples = HUGE_SAMPLES;

static _noreturn_ void refuse(const char *what, const char *text)
{
    (void)fprintf(stderr, "bench-order: %s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

/* ---- measuring ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *figure, const char *unit, double *values)
{
    qsort(values, RUNS, sizeof(*values), compare);
    printf("{\"figure\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"runs\":%d,\"min\":%.4g,"
           "\"max\":%.4g}\n",
           figure, values[RUNS / 2], unit, RUNS, values[0], values[RUNS - 1]);
}

static Order make_order(size_t n_streams, uint64_t n_valid)
{
    const OrderStream streams[3] = {{.n_samples = (int64_t)n_valid, .unit = 404, .proportion = 0.7},
                                    {.n_samples = 8121, .unit = 128, .proportion = 0.2},
                                    {.n_samples = 65537, .unit = 512, .proportion = 0.1}};
    Order order;
    int r = order_init(streams, n_streams, 17, WINDOW, &order);
    if (r < 0)
        refuse("order", strerror(-r));
    return order;
}

/* Measures nanoseconds per call, at positions from 1e9 on, or at random positions below 1e9. */
static void bench_calls(const char *figure, size_t n_streams, bool random)
{
    Order order = make_order(n_streams, n_samples);
    double ns[RUNS];
    volatile int64_t sink = 0; /* keeps the compiler from removing the calls */
    for (int run = 0; run < RUNS; run++) {
        int64_t sum = 0;
        uint64_t x = (uint64_t)run + 1, begin = clock_boottime_usec();
        for (int64_t i = 0; i < CALLS; i++) {
            x = x * UINT64_C(6364136223846793005) + 1;
            int64_t position = random ? (int64_t)((x >> 32) * n_samples >> 32)
                                      : (int64_t)n_samples + run * CALLS + i;
            sum += order_at(&order, position).sample;
        }
        sink = sum;
        ns[run] = (double)(clock_boottime_usec() - begin) * 1e3 / CALLS;
    }
    (void)sink;
    print(figure, "ns", ns);
}

static double msec_since(uint64_t usec) { return (double)(clock_boottime_usec() - usec) * 1e-3; }

/* Measures the time to map the index, and to find the samples of the first grain from position 1e9 on. cold: no part of
 * the file is in memory. */
static void resume(const char *path, bool cold, double *ret_map, double *ret_first, double *ret_all)
{
    Error err = ERROR_INIT;
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (cold && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0))
        refuse(path, "cannot be dropped from memory");
    _cleanup_(index_freep) Index *index = NULL;
    uint64_t begin = clock_boottime_usec();
    if (index_map(path, NULL, &index, &err) < 0)
        refuse("index", err.text);
    *ret_map = msec_since(begin);

    begin = clock_boottime_usec();
    Order order = make_order(1, index_n_valid(index, 0));
    for (int64_t i = 0; i < GRAIN; i++) {
        IndexPlace place;
        OrderSample sample = order_at(&order, (int64_t)n_samples + i);
        if (index_locate(index, 0, (uint64_t)sample.sample, &place, &err) < 0)
            refuse("index", err.text);
        if (i == 0)
            *ret_first = msec_since(begin);
    }
    *ret_all = msec_since(begin);
}

static void bench_resume(const char *path)
{
    double map[2][RUNS], first[2][RUNS], all[2][RUNS];
    for (int run = 0; run < RUNS; run++)
        for (int cold = 0; cold < 2; cold++)
            resume(path, cold, &map[cold][run], &first[cold][run], &all[cold][run]);
    print("map", "ms", map[0]);
    print("map_cold", "ms", map[1]);
    print("resume_first_sample", "ms", first[0]);
    print("resume_first_sample_cold", "ms", first[1]);
    print("resume_grain_of_64", "ms", all[0]);
    print("resume_grain_of_64_cold", "ms", all[1]);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: bench-order FOLDER\n");
        return 2;
    }
    bench_calls("order_sequential", 1, false);
    bench_calls("order_sequential_3_streams", 3, false);
    bench_calls("order_random", 1, true);
    bench_calls("order_random_3_streams", 3, true);

    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", argv[1], INDEX_NAME);
    Error err = ERROR_INIT;
    if (huge_index_write(path, &(HugeIndex){.raw_bytes = UINT64_C(64) << 20}, &err) < 0)
        refuse("index", err.text);
    bench_resume(path);
    if (unlink(path) < 0)
        refuse(path, strerror(errno));
    return 0;
}
