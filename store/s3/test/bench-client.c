/* SPDX-License-Identifier: Apache-2.0 */
/* bench-client.c - measures only the S3 client: throughput and processor time of large puts and ranged gets.
 *
 *   bench-client BUCKET [MiB [PART-KiB [SECONDS]]]     endpoint and credentials from the environment
 *
 * It puts objects of one part each, then gets ranges of one object, with as many requests at a time as there are
 * connections, for SECONDS each. */
#include "base/clock.h"
#include "store/s3/client/client.h"
#include "store/s3/test/testing-counts.h"

#include <semaphore.h>
#include <string.h>
#include <sys/resource.h>

typedef struct Bench {
    S3Client *client;
    const char *bucket;
    size_t n_bytes, n_part;
    uint64_t until_usec;
    uint8_t *memory;
    atomic_uint_least64_t moved, failed, left;
    sem_t over;
} Bench;

typedef struct Lane {
    Bench *bench;
    S3Request request;
    char key[32];
    struct iovec body;
    uint64_t turn;
} Lane;

static double cpu_sec(void)
{
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use); /* cannot fail */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void lane_on(S3Request *request)
{
    Lane *lane = request->context;
    Bench *bench = lane->bench;
    if (request->result < 0) {
        atomic_fetch_add(&bench->failed, 1);
        (void)fprintf(stderr, "%s\n", request->error.text);
    } else {
        atomic_fetch_add(&bench->moved, bench->n_part);
    }
    free(request->text);
    if (clock_boottime_usec() >= bench->until_usec || request->result < 0) {
        if (atomic_fetch_sub(&bench->left, 1) == 1)
            (void)sem_post(&bench->over);
        return;
    }
    size_t pieces = bench->n_bytes / bench->n_part;
    request->offset = lane->turn++ * 7 % pieces * bench->n_part;
    request->deadline_usec = 0;
    s3_begin(bench->client, request);
}

static void run(Bench *bench, const char *what, S3Method method, int seconds)
{
    size_t n = (size_t)s3_client_options(bench->client)->connections;
    Lane *lanes = calloc(n, sizeof(*lanes));
    if (!lanes)
        abort();
    uint64_t begun = clock_boottime_usec();
    double before = cpu_sec();
    bench->until_usec = begun + (uint64_t)seconds * USEC_PER_SEC;
    atomic_store(&bench->moved, 0);
    atomic_store(&bench->left, n);
    for (size_t i = 0; i < n; i++) {
        Lane *lane = &lanes[i];
        lane->bench = bench;
        lane->turn = i;
        (void)snprintf(lane->key, sizeof(lane->key), "part-%zu", i);
        lane->body = (struct iovec){bench->memory + i * bench->n_part, bench->n_part};
        lane->request = (S3Request){.method = method,
                                    .bucket = bench->bucket,
                                    .key = method == S3_GET ? "whole" : lane->key,
                                    .repeatable = true,
                                    .done = lane_on,
                                    .context = lane};
        if (method == S3_GET) {
            lane->request.buffer = lane->body.iov_base;
            lane->request.ranged = true;
            lane->request.n_bytes = bench->n_part;
        } else {
            lane->request.body = &lane->body;
            lane->request.n_body = 1;
        }
        s3_begin(bench->client, &lane->request);
    }
    (void)sem_wait(&bench->over);
    double took = (double)(clock_boottime_usec() - begun) / 1e6, cpu = cpu_sec() - before;
    double gib = (double)atomic_load(&bench->moved) / (double)(1 << 30);
    printf("%-4s %8.1f MiB/s  %.3f core-seconds/GiB  (%.2f GiB in %.2f s, %llu failed)\n", what,
           gib * 1024 / took, gib > 0 ? cpu / gib : 0, gib, took,
           (unsigned long long)atomic_load(&bench->failed));
    free(lanes);
}

int main(int argc, char *argv[])
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: bench-client BUCKET [MiB [PART-KiB [SECONDS]]]\n");
        return 2;
    }
    Error err = ERROR_INIT;
    S3Options options = {0};
    Bench bench = {.bucket = argv[1],
                   .n_bytes = (size_t)atoi(argc > 2 ? argv[2] : "256") << 20,
                   .n_part = (size_t)atoi(argc > 3 ? argv[3] : "8192") << 10};
    int seconds = atoi(argc > 4 ? argv[4] : "5");
    if (s3_options_load(&options, &err) < 0 || s3_client_open(&options, &bench.client, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    size_t n_memory = MAX(bench.n_bytes, (size_t)options.connections * bench.n_part);
    bench.memory = malloc(n_memory);
    if (!bench.memory)
        return 1;
    memset(bench.memory, 0x5a, n_memory);
    (void)sem_init(&bench.over, 0, 0);
    struct iovec all = {bench.memory, bench.n_bytes};
    S3Request whole = {.method = S3_PUT,
                       .bucket = bench.bucket,
                       .key = "whole",
                       .body = &all,
                       .n_body = 1,
                       .repeatable = true};
    if (s3_do(bench.client, &whole, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    run(&bench, "put", S3_PUT, seconds);
    run(&bench, "get", S3_GET, seconds);
    S3Counts counts;
    s3_client_counts(bench.client, &counts);
    printf("%llu requests, %llu tried again, %llu hedged, of which %llu won\n",
           (unsigned long long)counts.requests, (unsigned long long)counts.retries,
           (unsigned long long)counts.hedges, (unsigned long long)counts.hedges_won);
    s3_client_close(bench.client);
    s3_options_clear(&options);
    free(bench.memory);
    return atomic_load(&bench.failed) > 0;
}
