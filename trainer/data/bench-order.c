/* bench-order.c - what the order costs at 1e9 samples, and a resume there.
 *
 *     bench-order FOLDER
 *
 * Writes a compact index of 1e9 samples into FOLDER (270 MB, removed at the end): shards of 404
 * samples, one sample of 64 without latents. Prints one line of JSON a figure; medians. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "trainer/data/index.h"
#include "trainer/data/index_format.h"
#include "trainer/data/order.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    SHARD_SAMPLES = 404,
    NAME_BYTES = sizeof("shard.0000000.mds") + sizeof(""),
    WINDOW = 262144,
    GRAIN = 64,
    CALLS = 2000000,
    RUNS = 9,
};

static const uint64_t n_samples = 1000000000;
static const char config[] =
    "{\"column_encodings\":[\"bytes\",\"bytes\"],\"column_names\":[\"latents\",\"text\"],"
    "\"column_sizes\":[null,null],\"compression\":\"\",\"hashes\":[]}";

static _noreturn_ void refuse(const char *what, const char *text)
{
    (void)fprintf(stderr, "bench-order: %s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

/* ---- the index ---- */

static IndexHeader plan_index(uint64_t n_shards, uint64_t n_groups, uint64_t *ret_bits)
{
    IndexHeader h = {.version = INDEX_VERSION,
                     .n_columns = 2,
                     .n_shards = n_shards,
                     .n_samples = n_samples,
                     .config_bytes = sizeof(config) - 1,
                     .record_bytes = sizeof(IndexRecord),
                     .names_bytes = n_shards * NAME_BYTES};
    memcpy(h.magic, INDEX_MAGIC, sizeof(h.magic));
    const struct {
        uint64_t *offset, n_bytes;
    } sections[] = {{&h.config, h.config_bytes},
                    {&h.columns, 2 * sizeof(IndexColumn)},
                    {&h.first, 8 * (n_shards + 1)},
                    {&h.records, n_shards * sizeof(IndexRecord)},
                    {&h.names, h.names_bytes},
                    {ret_bits, n_groups * (8 + INDEX_RANK_BITS / 8)}};
    for (size_t i = 0; i < ELEMENTSOF(sections); i++) {
        *sections[i].offset = ROUND_UP(h.core_bytes, (uint64_t)64);
        h.core_bytes = *sections[i].offset + sections[i].n_bytes;
    }
    h.core_bytes = h.body_bytes = ROUND_UP(h.core_bytes, (uint64_t)INDEX_BLOCK_BYTES);
    return h;
}

static void fill_shards(const IndexHeader *h, uint8_t *body)
{
    for (uint64_t i = 0; i <= h->n_shards; i++) {
        uint64_t first = MIN(i * SHARD_SAMPLES, n_samples);
        memcpy(body + h->first + 8 * i, &first, sizeof(first));
    }
    for (uint64_t i = 0; i < h->n_shards; i++) {
        IndexRecord record = {.raw_bytes = UINT64_C(64) << 20, .name = i * NAME_BYTES};
        memcpy(body + h->records + i * sizeof(record), &record, sizeof(record));
        (void)snprintf((char *)body + h->names + i * NAME_BYTES, NAME_BYTES, "shard.%07u.mds",
                       (unsigned)i % 10000000);
    }
}

/* One sample of each 64 is empty, somewhere. Ranks first, then the bits. */
static uint64_t fill_column(uint8_t *section, uint64_t n_groups)
{
    uint64_t *ranks = (uint64_t *)(void *)section, *bits = ranks + n_groups, valid = 0;
    for (uint64_t w = 0; w < n_groups * (INDEX_RANK_BITS / 64); w++) {
        if (w % (INDEX_RANK_BITS / 64) == 0)
            ranks[w / (INDEX_RANK_BITS / 64)] = valid;
        if (64 * w < n_samples) /* 1e9 is a multiple of 64 */
            bits[w] = ~(UINT64_C(1) << hash64_bytes(&w, sizeof(w), 0) % 64);
        valid += (unsigned)__builtin_popcountll(bits[w]);
    }
    return valid;
}

static void write_index(const char *path)
{
    uint64_t n_shards = DIV_ROUND_UP(n_samples, (uint64_t)SHARD_SAMPLES), bits;
    uint64_t n_groups = DIV_ROUND_UP(n_samples, (uint64_t)INDEX_RANK_BITS);
    IndexHeader h = plan_index(n_shards, n_groups, &bits);
    size_t n_blocks = h.body_bytes / INDEX_BLOCK_BYTES;
    size_t start = ROUND_UP(sizeof(h) + 8 * n_blocks, (size_t)INDEX_BLOCK_BYTES);
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)(start + h.body_bytes)) < 0)
        refuse(path, strerror(errno));
    uint8_t *map = mmap(NULL, start + h.body_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        refuse(path, strerror(errno));

    uint8_t *body = map + start;
    memcpy(body + h.config, config, h.config_bytes);
    fill_shards(&h, body);
    IndexColumn columns[2] = {{.ranks = bits, .bits = bits + 8 * n_groups}, {.n_valid = n_samples}};
    columns[0].n_valid = fill_column(body + bits, n_groups);
    memcpy(body + h.columns, columns, sizeof(columns));

    uint64_t *blocks = (uint64_t *)(void *)(map + sizeof(h));
    for (size_t i = 0; i < n_blocks; i++)
        blocks[i] = hash64_bytes(body + i * INDEX_BLOCK_BYTES, INDEX_BLOCK_BYTES, 0);
    h.core = index_core_hash(&h, blocks);
    h.header = index_header_hash(&h, blocks, n_blocks);
    memcpy(map, &h, sizeof(h));
    if (munmap(map, start + h.body_bytes) < 0 || fsync(fd) < 0)
        refuse(path, strerror(errno));
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

/* Nanoseconds a call, from position 1e9 on or at positions all over the first 1e9. */
static void bench_calls(const char *figure, size_t n_streams, bool random)
{
    Order order = make_order(n_streams, n_samples);
    double ns[RUNS];
    volatile int64_t sink = 0; /* keeps the calls */
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

/* Where the first grain from position 1e9 on lies. cold: nothing of the file is in memory. */
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
    write_index(path);
    bench_resume(path);
    if (unlink(path) < 0)
        refuse(path, strerror(errno));
    return 0;
}
