/* SPDX-License-Identifier: Apache-2.0 */
/* bench-loader.c - measures reading through the loader from a store, and a start in the middle of a billion samples.
 *
 *     bench-loader make URI SAMPLES         makes a dataset of samples of 165,888 bytes in raw shards of
 *                                           64 MiB with hashes
 *     bench-loader read URI CACHE           reads one pass of it, in the order of a job whose window is two
 *                                           shards and whose cache holds eight: both are small
 *                                           beside the dataset, as in long runs
 *     bench-loader ranges URI CACHE         the same with a window that does not fit the cache: each sample
 *                                           is a range of its shard, if the index has samples' hashes
 *     bench-loader plan URI CACHE           makes the input of `start`: in CACHE the compact index of 1e9
 *                                           samples (testing-huge-index.h) with their hashes, in the store
 *                                           the shards that hold the first grain
 *     bench-loader start URI CACHE          starts at position 500,000,000: everything from opening the
 *                                           dataset to the first grain
 *
 * `read` and `start` print one line of JSON. To run them cold, empty CACHE first, except for the index. */
#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/number/half.h"
#include "data/index-open.h"
#include "data/loader.h"
#include "data/mds/mds-writer.h"
#include "data/test/testing-huge-index.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum {
    LATENTS = 4 * 32 * 32,
    TEXT = 77 * 1024,
    GLOBAL_BATCH = 64,
    GRAIN = 8,
    FIRST_STEP = 500000000 / GLOBAL_BATCH,
    FIRST_SAMPLES = 32, /* samples that are read when a dataset is opened */
    AHEAD_BYTES = 256 << 20,
    READ_WINDOW = 808,
    READ_CACHE_BYTES = 512 << 20,
    RANGES_CACHE_BYTES = 64 << 20,
};

static _noreturn_ void refuse(const char *what, const char *text)
{
    (void)fprintf(stderr, "bench-loader: %s: %s\n", what, text);
    exit(EXIT_FAILURE);
}

static void must(int r, const Error *err)
{
    if (r < 0)
        refuse("failed", err->text);
}

static Job job_of(char *uri, char *cache, int64_t n_steps)
{
    Job job = {.name = "bench"};
    job.data.streams[job.data.n_streams++] = (JobStream){.uri = uri, .proportion = 1};
    job.data.latents = (char *)(uintptr_t) "latents";
    job.data.text = (char *)(uintptr_t) "text";
    job.data.latent_scale = 1;
    job.data.shuffle_window = 1 << 18;
    job.data.cache_dir = cache;
    job.data.cache_bytes = INT64_C(64) << 30;
    job.data.read_ahead = 64;
    job.data.read_ahead_bytes = 64 << 20;
    job.train.global_batch = GLOBAL_BATCH;
    job.train.grain = GRAIN;
    job.train.n_grains = GLOBAL_BATCH / GRAIN;
    job.train.steps = n_steps;
    job.train.seed = 17;
    return job;
}

static double cpu_sec(void)
{
    struct rusage use;
    (void)getrusage(RUSAGE_SELF, &use); /* cannot fail */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static double sec_since(uint64_t usec) { return 1e-6 * (double)(clock_boottime_usec() - usec); }

/* ---- make ---- */

/* Fills in half-precision numbers of -1.98 to 1.98: their standard deviation is about 1. */
static void fill(uint16_t *at, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        at[i] = half_from_float((float)((int)(*seed >> 56) - 128) / 64.6F);
    }
}

static void make_dataset(const char *uri, int64_t n_samples)
{
    Error err = ERROR_INIT;
    MdsColumn columns[2];
    MdsSchema schema;
    static const char *const hashes[] = {"xxh3_64"};
    const MdsWriterOptions options = {.hashes = hashes,
                                      .n_hashes = 1,
                                      .size_limit = MDS_SIZE_LIMIT_DEFAULT};
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(mds_writer_freep) MdsWriter *writer = NULL;
    _cleanup_free_ uint16_t *latents = malloc(2 * LATENTS), *text = malloc(2 * TEXT);
    if (!latents || !text)
        refuse("make", "out of memory");
    must(mds_column_init("latents", "bytes", &columns[0], &err), &err);
    must(mds_column_init("text", "bytes", &columns[1], &err), &err);
    must(mds_schema_init(columns, 2, &schema, &err), &err);
    must(store_open(uri, &store, &err), &err);
    must(mds_writer_new(store, &schema, &options, &writer, &err), &err);
    uint64_t seed = 1;
    fill(text, TEXT, &seed);
    for (int64_t i = 0; i < n_samples; i++) {
        fill(latents, LATENTS, &seed);
        text[i % TEXT] ^= 1; /* so that no two samples are alike */
        const MdsField fields[] = {{latents, 2 * LATENTS}, {text, 2 * TEXT}};
        must(mds_writer_add(writer, fields, &err), &err);
    }
    must(mds_writer_finish(writer, &err), &err);
}

/* ---- read ---- */

static void read_dataset(char *uri, char *cache, bool by_range)
{
    Error err = ERROR_INIT;
    _cleanup_(dataset_freep) Dataset *dataset = NULL;
    _cleanup_(loader_freep) Loader *loader = NULL;
    Job job = job_of(uri, cache, INT64_MAX / GLOBAL_BATCH);
    if (!by_range)
        job.data.shuffle_window = READ_WINDOW;
    job.data.cache_bytes = by_range ? RANGES_CACHE_BYTES : READ_CACHE_BYTES;
    must(dataset_open(&job, &dataset, &err), &err);
    job.train.steps = dataset_order(dataset)->streams[0].n_samples / GLOBAL_BATCH;

    const uint64_t begin = clock_boottime_usec();
    const double cpu = cpu_sec();
    must(loader_new(dataset, &job, 0, 0, job.train.n_grains, AHEAD_BYTES, &loader, &err), &err);
    for (int64_t step = 0; step < job.train.steps; step++) {
        for (int64_t grain = 0; grain < job.train.n_grains; grain++) {
            LoaderGrain got;
            must(loader_get(loader, step, grain, 600 * USEC_PER_SEC, &got, &err), &err);
        }
        loader_release(loader, step);
    }
    const double seconds = sec_since(begin), n = (double)(job.train.steps * GLOBAL_BATCH);
    printf("{\"samples\": %.0f, \"samples_per_s\": %.6g, \"cpu_us_per_sample\": %.4g}\n", n,
           n / seconds, 1e6 * (cpu_sec() - cpu) / n);
}

/* ---- plan ---- */

typedef struct Plan {
    Store *store;
    char folder[PATH_MAX], index[PATH_MAX + CACHE_NAME_MAX + 2], shard[PATH_MAX + 64];
    uint64_t hashes[HUGE_SHARD_SAMPLES]; /* hashes of the one shard's samples, in file order */
} Plan;

/* Makes one shard in a local folder. Its bytes serve as each shard of the billion samples. */
static void plan_shard(Plan *p)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *local = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    must(folder_remove(p->folder, &err), &err);
    make_dataset(p->folder, HUGE_SHARD_SAMPLES);
    must(store_open(p->folder, &local, &err), &err);
    must(index_make(local, true, NULL, NULL, &index, &err), &err);
    if (index_n_shards(index) != 1)
        refuse("plan", "the samples of a shard do not fit one");
    for (uint32_t i = 0; i < HUGE_SHARD_SAMPLES; i++)
        must(index_sample_hash(index, (IndexPlace){.sample = i}, &p->hashes[i], &err), &err);
}

/* Writes the index to the place in the cache where index_open() looks for a copy. */
static void plan_index(Plan *p, const char *cache, const struct iovec *shard)
{
    Error err = ERROR_INIT;
    static const char json[] = "{\"a billion samples\": \"of which index.sdtrain tells\"}\n";
    const struct iovec part = {(void *)(uintptr_t)json, sizeof(json) - 1};
    HugeIndex what = {.source = hash_bytes(json, sizeof(json) - 1),
                      .raw_bytes = shard->iov_len,
                      .sample_hashes = true};
    char version[STORE_VERSION_MAX], name[CACHE_NAME_MAX + 1];
    must(store_put(p->store, "index.json", &part, 1, 0, &err), &err);
    must(store_version(p->store, "index.json", version, &err), &err);
    (void)snprintf(p->index, sizeof(p->index), "%s/%s", cache,
                   index_cache_name(p->store, version, name));
    must(huge_index_write(p->index, &what, &err), &err);
}

/* Lists the samples that a start reads: those that are read when the dataset is opened, and the first grain's. */
static size_t plan_places(const Plan *p, IndexPlace places[static FIRST_SAMPLES + GRAIN])
{
    Error err = ERROR_INIT;
    Order order;
    _cleanup_(index_freep) Index *index = NULL;
    must(index_map(p->index, NULL, &index, &err), &err);
    const int64_t n_valid = (int64_t)index_n_valid(index, 0);
    const OrderStream stream = {.n_samples = n_valid,
                                .unit = DIV_ROUND_UP(n_valid, (int64_t)index_n_shards(index)),
                                .proportion = 1};
    const Job job = job_of(NULL, NULL, 0);
    int r = order_init(&stream, 1, job.train.seed, job.data.shuffle_window, &order);
    if (r < 0)
        refuse("order", strerror(-r));
    size_t n = 0;
    for (uint64_t i = 0; i < FIRST_SAMPLES; i++)
        must(index_locate(index, 0, i, &places[n++], &err), &err);
    for (int64_t i = 0; i < GRAIN; i++) {
        const OrderSample sample = order_at(&order, (int64_t)FIRST_STEP * GLOBAL_BATCH + i);
        must(index_locate(index, 0, (uint64_t)sample.sample, &places[n++], &err), &err);
    }
    return n;
}

static void put_shard(const Plan *p, uint64_t number, const struct iovec *bytes)
{
    Error err = ERROR_INIT;
    char key[32];
    (void)snprintf(key, sizeof(key), "shard.%07" PRIu64 ".mds", number);
    must(store_put(p->store, key, bytes, 1, 0, &err), &err);
}

static void plan_start(const char *uri, const char *cache)
{
    Error err = ERROR_INIT;
    Plan p = {.store = NULL};
    char *shard;
    size_t n_bytes;
    must(store_open(uri, &p.store, &err), &err);
    must(folder_make(cache, &err), &err);
    (void)snprintf(p.folder, sizeof(p.folder), "%s/shard", cache);
    (void)snprintf(p.shard, sizeof(p.shard), "%s/shard.00000.mds", p.folder);
    plan_shard(&p);
    must(file_read(p.shard, SIZE_MAX / 2, &shard, &n_bytes, &err), &err);
    const struct iovec bytes = {shard, n_bytes};
    plan_index(&p, cache, &bytes);

    IndexPlace places[FIRST_SAMPLES + GRAIN];
    uint64_t samples[FIRST_SAMPLES + GRAIN], hashes[FIRST_SAMPLES + GRAIN];
    size_t n = plan_places(&p, places);
    for (size_t i = 0; i < n; i++) {
        samples[i] = places[i].shard * HUGE_SHARD_SAMPLES + places[i].sample;
        hashes[i] = p.hashes[places[i].sample];
        if (i == 0 || places[i].shard != places[i - 1].shard)
            put_shard(&p, places[i].shard, &bytes);
    }
    must(huge_index_set_hashes(p.index, samples, hashes, n, &err), &err);
    must(folder_remove(p.folder, &err), &err);
    free(shard);
    p.store = store_free(p.store);
}

/* ---- start ---- */

static void start(char *uri, char *cache)
{
    Error err = ERROR_INIT;
    _cleanup_(dataset_freep) Dataset *dataset = NULL;
    _cleanup_(loader_freep) Loader *loader = NULL;
    const Job job = job_of(uri, cache, FIRST_STEP + 1);
    const uint64_t begin = clock_boottime_usec();
    must(dataset_open(&job, &dataset, &err), &err);
    const double open_sec = sec_since(begin);
    must(loader_new(dataset, &job, FIRST_STEP, 0, 1, AHEAD_BYTES, &loader, &err), &err);
    LoaderGrain grain;
    must(loader_get(loader, FIRST_STEP, 0, 600 * USEC_PER_SEC, &grain, &err), &err);
    printf("{\"start_s\": %.4f, \"open_s\": %.4f, \"position\": %" PRId64 "}\n", sec_since(begin),
           open_sec, grain.first_position);
}

int main(int argc, char *argv[])
{
    log_open("bench-loader");
    log_set_level(LOG_LEVEL_WARNING);
    if (argc != 4)
        refuse("usage", "bench-loader make URI SAMPLES | read|ranges|plan|start URI CACHE");
    if (strcmp(argv[1], "make") == 0)
        make_dataset(argv[2], atoll(argv[3]));
    else if (strcmp(argv[1], "read") == 0 || strcmp(argv[1], "ranges") == 0)
        read_dataset(argv[2], argv[3], strcmp(argv[1], "ranges") == 0);
    else if (strcmp(argv[1], "plan") == 0)
        plan_start(argv[2], argv[3]);
    else if (strcmp(argv[1], "start") == 0)
        start(argv[2], argv[3]);
    else
        refuse("usage", "see the head of bench-loader.c");
    return EXIT_SUCCESS;
}
