/* bench-stream.c - what it costs to train from a store: samples a second, CPU a sample, the start.
 *
 *     bench-stream make URI SAMPLES       a dataset of samples of 165,888 bytes, 404 a shard, with
 *                                         its index and hashes of samples
 *     bench-stream read URI SECONDS [CACHE [READ_AHEAD]]
 *                                         one rank that owns everything, as fast as its loader goes
 *     bench-stream start-make URI CACHE   1e9 samples of which only those have bytes that a start at
 *                                         position 500,000,000 touches; the compact index in CACHE
 *     bench-stream start URI CACHE        that start, nothing of the index in memory, no shard in the
 *                                         cache
 *
 * Prints one line of JSON a figure. */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "trainer/data/half.h"
#include "trainer/data/index_format.h"
#include "trainer/data/loader.h"
#include "trainer/data/mds_writer.h"
#include "trainer/data/shard.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum {
    LATENTS = 4 * 32 * 32,
    TEXT = 77 * 1024,
    SAMPLE_BYTES = 2 * (LATENTS + TEXT),
    SHARD_SAMPLES = 404,
    GRAIN = 64,
    BATCH = 1600, /* of the start, which is at a multiple of it */
    READ_BATCH = 256,
    RING_BYTES = 256 << 20, /* as the trainer's */
    WINDOW = 262144,
    SEED = 17,
    NAME_BYTES = sizeof("shard.0000000.mds") + sizeof(""),
    FIRST_SAMPLES = 32, /* that every start looks at */
};

static const uint64_t n_start = 1000000000;
static const int64_t start_position = 500000000;

static _noreturn_ void refuse(const char *what, const char *text)
{
    (void)fprintf(stderr, "bench-stream: %s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

static void must(int r, const Error *err)
{
    if (r < 0)
        refuse("failed", err->text);
}

static void print(const char *figure, double value, const char *unit)
{
    printf("{\"figure\":\"%s\",\"value\":%.5g,\"unit\":\"%s\"}\n", figure, value, unit);
}

/* Numbers with a standard deviation near 1, another sequence for each seed. */
static void fill(uint16_t *values, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        values[i] = half_from_float(((float)(seed >> 40) / (float)(1 << 24) - 0.5F) * 3.4F);
    }
}

static Job make_job(const char *uri, const char *cache, int64_t read_ahead, int64_t batch)
{
    Job job = {0};
    job.data.streams[0] = (JobStream){.uri = (char *)(uintptr_t)uri, .proportion = 1};
    job.data.n_streams = 1;
    job.data.latents = (char *)(uintptr_t) "latents";
    job.data.text = (char *)(uintptr_t) "text";
    job.data.latent_scale = 1;
    job.data.shuffle_window = WINDOW;
    job.data.cache_dir = (char *)(uintptr_t)cache;
    job.data.cache_bytes = INT64_C(64) << 30;
    job.data.read_ahead = read_ahead;
    job.data.read_ahead_bytes = INT64_C(64) << 20;
    job.train.global_batch = batch;
    job.train.grain = GRAIN;
    job.train.n_grains = batch / GRAIN;
    job.train.steps = 1 << 30;
    job.train.seed = SEED;
    return job;
}

/* ---- make ---- */

static void make(const char *uri, int64_t n_samples)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(mds_writer_freep) MdsWriter *writer = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    MdsColumn columns[2];
    MdsSchema schema;
    must(mds_column_init("latents", "ndarray:float16:4,32,32", &columns[0], &err), &err);
    must(mds_column_init("text", "ndarray:float16:77,1024", &columns[1], &err), &err);
    must(mds_schema_init(columns, 2, &schema, &err), &err);
    must(store_open(uri, &store, &err), &err);
    MdsWriterOptions options = {.size_limit = (uint64_t)(SAMPLE_BYTES + 4) * SHARD_SAMPLES + 1024};
    must(mds_writer_new(store, &schema, &options, &writer, &err), &err);
    uint16_t *latents = malloc(2 * LATENTS), *text = malloc(2 * TEXT);
    if (!latents || !text)
        refuse("make", "out of memory");
    for (int64_t i = 0; i < n_samples; i++) {
        fill(latents, LATENTS, (uint64_t)i);
        fill(text, TEXT, (uint64_t)~i);
        MdsField fields[] = {{latents, 2 * LATENTS}, {text, 2 * TEXT}};
        must(mds_writer_add(writer, fields, &err), &err);
    }
    must(mds_writer_finish(writer, &err), &err);
    must(index_make(store, true, NULL, NULL, &index, &err), &err);
    print("samples", (double)index_n_samples(index), "samples");
    print("shards", (double)index_n_shards(index), "shards");
    free(latents);
    free(text);
}

/* ---- read ---- */

static double cpu_sec(void)
{
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use); /* fails on a bad pointer alone */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static void read_along(const char *uri, double seconds, const char *cache, int64_t read_ahead)
{
    Error err = ERROR_INIT;
    Job job = make_job(uri, cache, read_ahead, READ_BATCH);
    _cleanup_(dataset_freep) Dataset *dataset = NULL;
    _cleanup_(loader_freep) Loader *loader = NULL;
    LoaderGrain grain;
    must(dataset_open(&job, &dataset, &err), &err);
    must(loader_new(dataset, &job, 0, 0, job.train.n_grains, RING_BYTES, &loader, &err), &err);
    must(loader_get(loader, 0, 0, 60 * USEC_PER_SEC, &grain, &err), &err);

    double cpu = cpu_sec();
    uint64_t begun = clock_monotonic_usec(), n = 0, took = 0;
    for (int64_t step = 0, g = 1; (double)took < seconds * 1e6;) {
        if (g == job.train.n_grains) {
            loader_release(loader, step++);
            g = 0;
        }
        must(loader_get(loader, step, g++, 60 * USEC_PER_SEC, &grain, &err), &err);
        n += GRAIN;
        took = clock_monotonic_usec() - begun;
    }
    cpu = cpu_sec() - cpu;
    print("samples_per_s", (double)n * 1e6 / (double)took, "samples/s");
    print("samples_MB_per_s", (double)n * SAMPLE_BYTES / (double)took, "MB/s");
    print("cpu_per_sample", cpu * 1e6 / (double)n, "us");
    print("cores", cpu * 1e6 / (double)took, "cores");
}

/* ---- a start in the middle of 1e9 samples ---- */

static const char config[] =
    "{\"column_encodings\":[\"ndarray:float16:4,32,32\",\"ndarray:float16:77,1024\"],"
    "\"column_names\":[\"latents\",\"text\"],"
    "\"column_sizes\":[8192,157696],\"compression\":\"\",\"hashes\":[]}";

/* The start's samples: those that it looks at, and those of its first grains and of the reads that
 * run ahead of them. */
enum { TOUCHED = FIRST_SAMPLES + GRAIN + 1024 };

typedef struct Start {
    uint64_t touched[TOUCHED]; /* samples, ascending, each once */
    size_t n_touched;
    uint64_t n_shards, hash;
    char sample[SAMPLE_BYTES]; /* all touched ones are alike */
    char *map;
    IndexHeader header;
    uint8_t *body;
} Start;

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void choose_touched(Start *s)
{
    const OrderStream stream = {.n_samples = (int64_t)n_start,
                                .unit = SHARD_SAMPLES,
                                .proportion = 1};
    Order order;
    if (order_init(&stream, 1, SEED, WINDOW, &order) < 0)
        refuse("order", "cannot be made");
    size_t n = 0;
    for (; n < FIRST_SAMPLES; n++)
        s->touched[n] = n;
    for (int64_t p = start_position; n < TOUCHED; p++, n++)
        s->touched[n] = (uint64_t)order_at(&order, p).sample;
    qsort(s->touched, n, sizeof(s->touched[0]), compare_u64);
    for (size_t i = 0; i < n; i++)
        if (s->n_touched == 0 || s->touched[s->n_touched - 1] != s->touched[i])
            s->touched[s->n_touched++] = s->touched[i];
}

static void plan_index(Start *s)
{
    IndexHeader *h = &s->header;
    *h = (IndexHeader){.version = INDEX_VERSION,
                       .n_columns = 2,
                       .n_shards = s->n_shards,
                       .n_samples = n_start,
                       .config_bytes = sizeof(config) - 1,
                       .record_bytes = sizeof(IndexRecord),
                       .names_bytes = s->n_shards * NAME_BYTES};
    memcpy(h->magic, INDEX_MAGIC, sizeof(h->magic));
    const struct {
        uint64_t *offset, n_bytes;
    } sections[] = {{&h->config, h->config_bytes},
                    {&h->columns, 2 * sizeof(IndexColumn)},
                    {&h->first, 8 * (s->n_shards + 1)},
                    {&h->records, s->n_shards * sizeof(IndexRecord)},
                    {&h->names, h->names_bytes}};
    for (size_t i = 0; i < ELEMENTSOF(sections); i++) {
        *sections[i].offset = ROUND_UP(h->core_bytes, (uint64_t)64);
        h->core_bytes = *sections[i].offset + sections[i].n_bytes;
    }
    h->core_bytes = ROUND_UP(h->core_bytes, (uint64_t)INDEX_BLOCK_BYTES);
    h->hashes = h->core_bytes;
    h->body_bytes = h->hashes + 8 * n_start;
}

/* A file of 8 GB that takes 150 MB: hashes of samples that nobody touches are a hole. */
static size_t map_index(Start *s, int fd, size_t *ret_blocks)
{
    size_t n_blocks = DIV_ROUND_UP(s->header.body_bytes, (uint64_t)INDEX_BLOCK_BYTES);
    size_t start = ROUND_UP(sizeof(IndexHeader) + 8 * n_blocks, (size_t)INDEX_BLOCK_BYTES);
    size_t n_bytes = start + s->header.body_bytes;
    if (ftruncate(fd, (off_t)n_bytes) < 0)
        refuse("index", strerror(errno));
    s->map = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (s->map == MAP_FAILED)
        refuse("index", strerror(errno));
    s->body = (uint8_t *)s->map + start;
    *ret_blocks = n_blocks;
    return n_bytes;
}

static uint64_t shard_head(void) { return shard_table_bytes(SHARD_SAMPLES); }

/* The touched shards: a table in which untouched samples have no bytes, and the touched ones. */
static void put_shards(Start *s, Store *store)
{
    Error err = ERROR_INIT;
    char *object = malloc(shard_head() + (size_t)SHARD_SAMPLES * SAMPLE_BYTES);
    if (!object)
        refuse("shards", "out of memory");
    for (size_t i = 0; i < s->n_touched;) {
        uint64_t shard = s->touched[i] / SHARD_SAMPLES, at = shard_head();
        uint32_t *table = (uint32_t *)(void *)object;
        table[0] = (uint32_t)MIN((uint64_t)SHARD_SAMPLES, n_start - shard * SHARD_SAMPLES);
        for (uint32_t k = 0; k < SHARD_SAMPLES; k++) {
            table[1 + k] = (uint32_t)at;
            if (i < s->n_touched && s->touched[i] == shard * SHARD_SAMPLES + k) {
                memcpy(object + at, s->sample, SAMPLE_BYTES);
                at += SAMPLE_BYTES;
                i++;
            }
        }
        table[1 + SHARD_SAMPLES] = (uint32_t)at;
        IndexRecord record = {.raw_bytes = at, .name = shard * NAME_BYTES};
        memcpy(s->body + s->header.records + shard * sizeof(record), &record, sizeof(record));
        struct iovec part = {object, at};
        must(store_put(store, (char *)s->body + s->header.names + shard * NAME_BYTES, &part, 1, 0,
                       &err),
             &err);
    }
    free(object);
}

static void fill_index(Start *s)
{
    const IndexHeader *h = &s->header;
    IndexColumn columns[2] = {{.n_valid = n_start}, {.n_valid = n_start}};
    memcpy(s->body + h->config, config, h->config_bytes);
    memcpy(s->body + h->columns, columns, sizeof(columns));
    for (uint64_t i = 0; i <= s->n_shards; i++) {
        uint64_t first = MIN(i * SHARD_SAMPLES, n_start);
        memcpy(s->body + h->first + 8 * i, &first, sizeof(first));
    }
    for (uint64_t i = 0; i < s->n_shards; i++) {
        IndexRecord record = {.raw_bytes = UINT64_C(64) << 20, .name = i * NAME_BYTES};
        memcpy(s->body + h->records + i * sizeof(record), &record, sizeof(record));
        (void)snprintf((char *)s->body + h->names + i * NAME_BYTES, NAME_BYTES, "shard.%07u.mds",
                       (unsigned)i % 10000000);
    }
    for (size_t i = 0; i < s->n_touched; i++)
        memcpy(s->body + h->hashes + 8 * s->touched[i], &s->hash, sizeof(s->hash));
}

static void hash_index(Start *s, size_t n_blocks)
{
    static const char zeros[INDEX_BLOCK_BYTES];
    IndexHeader *h = &s->header;
    uint64_t *blocks = (uint64_t *)(void *)(s->map + sizeof(*h)), n_core = h->core_bytes / 4096;
    uint64_t zero = hash64_bytes(zeros, sizeof(zeros), 0), last_bytes = h->body_bytes % 4096;
    for (size_t i = 0; i < n_blocks; i++)
        blocks[i] = zero;
    for (size_t i = 0; i < n_core; i++)
        blocks[i] = hash64_bytes(s->body + i * 4096, 4096, 0);
    if (last_bytes)
        blocks[n_blocks - 1] = hash64_bytes(zeros, last_bytes, 0);
    for (size_t i = 0; i < s->n_touched; i++) {
        size_t b = n_core + s->touched[i] * 8 / 4096;
        blocks[b] = hash64_bytes(s->body + b * 4096, MIN(4096, h->body_bytes - b * 4096), 0);
    }
    h->core = index_core_hash(h, blocks);
    h->header = index_header_hash(h, blocks, n_blocks);
    memcpy(s->map, h, sizeof(*h));
}

static void start_make(const char *uri, const char *cache)
{
    static const char json[] = "{\"shards\": \"too many to be written\"}";
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    char path[PATH_MAX], hash[HASH_TEXT_BYTES], source[HASH_TEXT_BYTES], text[1024];
    char version[STORE_VERSION_MAX];
    Start *s = calloc(1, sizeof(*s));
    if (!s)
        refuse("start-make", "out of memory");
    s->n_shards = DIV_ROUND_UP(n_start, (uint64_t)SHARD_SAMPLES);
    fill((uint16_t *)(void *)s->sample, SAMPLE_BYTES / 2, 1);
    s->hash = hash64_bytes(s->sample, SAMPLE_BYTES, 0);
    choose_touched(s);
    plan_index(s);
    must(store_open(uri, &store, &err), &err);
    must(folder_make(cache, &err), &err);

    /* As index_open() keeps them. */
    (void)hash_format(hash_bytes(store_uri(store), strlen(store_uri(store))), hash);
    (void)snprintf(path, sizeof(path), "%s/%s.index", cache, hash);
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        refuse(path, strerror(errno));
    size_t n_blocks, n_bytes = map_index(s, fd, &n_blocks);
    struct iovec part = {(void *)(uintptr_t)json, sizeof(json) - 1};
    must(store_put(store, "index.json", &part, 1, 0, &err), &err);
    must(store_version(store, "index.json", version, &err), &err);
    s->header.source = hash_bytes(json, sizeof(json) - 1);
    fill_index(s);
    put_shards(s, store);
    hash_index(s, n_blocks);
    if (munmap(s->map, n_bytes) < 0 || fsync(fd) < 0)
        refuse(path, strerror(errno));
    (void)snprintf(path, sizeof(path), "%s/%s.index.origin", cache, hash);
    int n = snprintf(text, sizeof(text), "{\"v\":1,\"version\":\"%s\",\"source\":\"%s\"}", version,
                     hash_format(s->header.source, source));
    must(file_write(path, text, (size_t)n, 0, &err), &err);
    free(s);
}

static void drop_from_memory(const char *uri, const char *cache)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    char path[PATH_MAX], hash[HASH_TEXT_BYTES];
    must(store_open(uri, &store, &err), &err);
    (void)hash_format(hash_bytes(store_uri(store), strlen(store_uri(store))), hash);
    (void)snprintf(path, sizeof(path), "%s/%s.index", cache, hash);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
        refuse(path, "cannot be dropped from memory; start-make makes it");
}

static double msec_since(uint64_t usec) { return (double)(clock_monotonic_usec() - usec) * 1e-3; }

static void start(const char *uri, const char *cache)
{
    Error err = ERROR_INIT;
    Job job = make_job(uri, cache, 64, BATCH);
    _cleanup_(dataset_freep) Dataset *dataset = NULL;
    _cleanup_(loader_freep) Loader *loader = NULL;
    LoaderGrain grain;
    drop_from_memory(uri, cache);
    uint64_t begun = clock_monotonic_usec();
    must(dataset_open(&job, &dataset, &err), &err);
    print("start_opened", msec_since(begun), "ms");
    const int64_t step = start_position / BATCH;
    must(loader_new(dataset, &job, step, 0, job.train.n_grains, 1, &loader, &err), &err);
    must(loader_get(loader, step, 0, 60 * USEC_PER_SEC, &grain, &err), &err);
    print("start_first_grain", msec_since(begun), "ms");
}

int main(int argc, char **argv)
{
    log_open("bench-stream");
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "make") == 0 && argc == 4)
        make(argv[2], strtoll(argv[3], NULL, 10));
    else if (strcmp(verb, "read") == 0 && argc >= 4 && argc <= 6)
        read_along(argv[2], strtod(argv[3], NULL), argc > 4 && *argv[4] ? argv[4] : NULL,
                   argc > 5 ? strtoll(argv[5], NULL, 10) : 64);
    else if (strcmp(verb, "start-make") == 0 && argc == 4)
        start_make(argv[2], argv[3]);
    else if (strcmp(verb, "start") == 0 && argc == 4)
        start(argv[2], argv[3]);
    else
        refuse("usage", "make URI SAMPLES | read URI SECONDS [CACHE [READ_AHEAD]] | "
                        "start-make URI CACHE | start URI CACHE");
    return 0;
}
