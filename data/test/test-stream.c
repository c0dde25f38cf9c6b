/* SPDX-License-Identifier: Apache-2.0 */
/* test-stream.c - data in a remote store: what a cold start reads, which reads run at the same time, the effects of a
 * slow, failing, corrupting or unreachable store, and the files that the node's cache keeps. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "data/index-open.h"
#include "data/stream/shard.h"
#include "data/test/testing-loader.h"
#include "store/test/testing-far.h"

#include <dirent.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <time.h>

enum { SAMPLES = 500, WINDOW = 16 };

typedef struct Kind {
    const char *compression, *hash;
    bool sample_hashes, cached;
} Kind;

static void make_index(const Fixture *f, bool sample_hashes)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    char uri[PATH_MAX + 8];
    (void)snprintf(uri, sizeof(uri), "far://%s", f->folders[0]);
    assert_good(store_open(uri, &store, &err), err);
    assert_good(index_make(store, sample_hashes, NULL, NULL, &index, &err), err);
    assert_int_equal(index_has_sample_hashes(index), sample_hashes);
}

/* Makes a dataset of the kind behind far://, with its index beside it. */
static void begin(Fixture *f, const Kind *kind, char uri[PATH_MAX + 8])
{
    ScratchData data = plain;
    data.compression = kind->compression;
    data.hash = kind->hash;
    far_begin();
    fixture_make(f, &data);
    make_index(f, kind->sample_hashes);
    (void)snprintf(uri, PATH_MAX + 8, "far://%s", f->folders[0]);
    f->job.data.streams[0].uri = uri;
    f->job.data.read_ahead = WINDOW;
    f->job.data.read_ahead_bytes = 1 << 20;
    if (kind->cached)
        f->job.data.cache_dir = f->cache;
    far_begin(); /* resets the counters */
}

static void set_faults(const char *faults)
{
    Error err = ERROR_INIT;
    assert_int_equal(setenv("SDTRAIN_FAULT", faults, 1), 0);
    assert_good(fault_open(&err), err);
}

static uint64_t cached_bytes(const Fixture *f, int *ret_files, int *ret_parts)
{
    uint64_t total = 0;
    DIR *dir = opendir(f->cache);
    *ret_files = *ret_parts = 0;
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        if (!strstr(e->d_name, ".mds") || fstatat(dirfd(dir), e->d_name, &st, 0) < 0)
            continue;
        total += (uint64_t)st.st_size;
        *(strstr(e->d_name, ".part") ? ret_parts : ret_files) += 1;
    }
    assert_int_equal(closedir(dir), 0);
    return total;
}

static void all_kinds_come_right(void **state)
{
    (void)state;
    const Kind kinds[] = {
        {NULL, "xxh3_64", true, false},     {NULL, "xxh3_64", true, true},
        {NULL, "xxh3_64", false, false},    {NULL, "xxh3_64", false, true},
        {"zstd:1", "xxh3_64", false, true}, {"zstd:1", "sha1", true, false},
        {"zstd:1", NULL, true, true},       {NULL, NULL, true, true},
        {NULL, NULL, false, true},
    };
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        for (int bounded = 0; bounded <= kinds[i].cached; bounded++) {
            Fixture f;
            char uri[PATH_MAX + 8];
            begin(&f, &kinds[i], uri);
            f.job.data.cache_bytes = bounded ? 40000 : 1 << 30; /* the dataset has 110000 bytes */
            atomic_store(&far->delay_usec, 200);
            Dataset *dataset = open_dataset(&f);
            check_steps(&f, dataset, 0, 30, 0, 6, 1); /* over a pass, with a ring of one step */
            check_steps(&f, dataset, 11, 20, 2, 3, 1 << 20);
            check_steps(&f, dataset, 997, 3, 5, 1, 1 << 30); /* loads up to the last step */
            dataset_free(dataset);
            assert_int_equal(atomic_load(&far->under_way), 0);
            int files, parts;
            uint64_t bytes = cached_bytes(&f, &files, &parts);
            assert_int_equal(parts, 0);
            assert_true(bytes <= (uint64_t)f.job.data.cache_bytes);
            assert_true(!kinds[i].cached || files > 0);
            scratch_remove(&f.scratch);
        }
}

/* With hashes of samples, a start reads each table and each sample once: the first 32 samples, which are checked when
 * the dataset is opened, then the samples of the grain, and at most the window ahead. */
static void a_cold_start_reads_what_its_first_steps_need(void **state)
{
    (void)state;
    Fixture f;
    char uri[PATH_MAX + 8];
    begin(&f, &(Kind){NULL, "xxh3_64", true, false}, uri);
    Dataset *dataset = open_dataset(&f);
    assert_int_equal(atomic_load(&far->versions), 1);
    assert_int_equal(atomic_load(&far->tables), 1);     /* the first samples are in one shard */
    assert_int_equal(atomic_load(&far->reads), 1 + 32); /* no read was needed to find the shapes */

    Error err = ERROR_INIT;
    Loader *loader;
    LoaderGrain grain;
    uint64_t before = atomic_load(&far->bytes);
    int tables = atomic_load(&far->tables), reads = atomic_load(&far->reads);
    /* No step is left. */
    assert_good(loader_new(dataset, &f.job, 500000, 0, 1, 1, &loader, &err), err);
    loader_free(loader);
    assert_int_equal(atomic_load(&far->reads), reads);
    f.job.train.steps = 1000000;
    assert_good(loader_new(dataset, &f.job, 500000, 0, 1, 1, &loader, &err), err);
    assert_good(loader_get(loader, 500000, 0, 60 * USEC_PER_SEC, &grain, &err), err);
    loader_free(loader);
    tables = atomic_load(&far->tables) - tables;
    reads = atomic_load(&far->reads) - reads - tables;
    assert_in_range(tables, 1, 12); /* at most one table per shard */
    assert_in_range(reads, 4, 4 + WINDOW);
    /* At most, each table has 200 bytes and each sample 250. */
    assert_true(atomic_load(&far->bytes) - before <=
                (uint64_t)tables * 200 + (uint64_t)reads * 250);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

static void wait_for_reads(int n_reads, int n_under_way)
{
    static const struct timespec pause = {0, 1000000};
    while (atomic_load(&far->reads) < n_reads || atomic_load(&far->under_way) > n_under_way)
        (void)nanosleep(&pause, NULL); /* ctest ends a test that hangs */
}

static void shard_of(const Dataset *dataset, int64_t position, char name[64])
{
    (void)dataset_sample_name(dataset, order_at(dataset_order(dataset), position), name, 64);
    *strchr(name, '[') = '\0';
}

/* While the first read is held up, all other reads of the window that do not need the same table arrive. */
static void a_slow_read_holds_up_no_other(void **state)
{
    (void)state;
    Fixture f;
    char uri[PATH_MAX + 8], first[64], name[64];
    begin(&f, &(Kind){NULL, "xxh3_64", true, false}, uri);
    f.job.data.shuffle_window = 500;
    Dataset *dataset = open_dataset(&f);
    Error err = ERROR_INIT;
    Loader *loader;
    LoaderGrain grain;
    for (int held = 0; held < 2; held++) { /* first a table is held, then a sample */
        int before = atomic_load(&far->reads), tables = atomic_load(&far->tables), others = 0;
        int64_t step = held * 500;
        if (held) /* these steps read the tables of all shards */
            check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
        shard_of(dataset, step * 24, first);
        for (int i = 1; i < WINDOW; i++) {
            shard_of(dataset, step * 24 + i, name);
            others += held || strcmp(first, name) != 0;
        }
        assert_true(others > WINDOW / 2);
        before = atomic_load(&far->reads);
        tables = atomic_load(&far->tables);
        atomic_store(&far->released, false);
        far_fault("shard", 1, 0, FAR_HELD);
        assert_good(loader_new(dataset, &f.job, step, 0, 6, 1, &loader, &err), err);
        wait_for_reads(before + others, 1);
        while (atomic_load(&far->reads) - before - (atomic_load(&far->tables) - tables) <
               others + held)
            wait_for_reads(0, 1);
        assert_int_equal(loader_get(loader, step, 0, 1000, &grain, NULL), -ETIMEDOUT);
        atomic_store(&far->released, true);
        for (int64_t g = 0; g < 6; g++)
            assert_good(loader_get(loader, step, g, 60 * USEC_PER_SEC, &grain, &err), err);
        loader_free(loader);
    }
    assert_in_range(atomic_load(&far->most_under_way), WINDOW / 2, WINDOW);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

/* While the store is unreachable, the loader can be stopped; it continues when the store returns. */
static void a_store_that_is_away_is_waited_for(void **state)
{
    (void)state;
    const Kind kinds[] = {{NULL, "xxh3_64", true, false}, {NULL, "xxh3_64", false, true}};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        Fixture f;
        char uri[PATH_MAX + 8];
        begin(&f, &kinds[i], uri);
        Dataset *dataset = open_dataset(&f);
        Error err = ERROR_INIT;
        Loader *loader;
        LoaderGrain grain;
        atomic_store(&far->away, true);
        int before = atomic_load(&far->reads);
        assert_good(loader_new(dataset, &f.job, 100, 0, 6, 1, &loader, &err), err);
        wait_for_reads(before + 1, INT32_MAX);
        assert_int_equal(loader_get(loader, 100, 0, 1000, &grain, NULL), -ETIMEDOUT);
        loader_free(loader);
        assert_int_equal(atomic_load(&far->under_way), 0);
        assert_true(atomic_load(&far->cancels) > 0);

        assert_good(loader_new(dataset, &f.job, 100, 0, 6, 1, &loader, &err), err);
        assert_int_equal(loader_get(loader, 100, 0, 1000, &grain, NULL), -ETIMEDOUT);
        atomic_store(&far->away, false);
        assert_good(loader_get(loader, 100, 0, 60 * USEC_PER_SEC, &grain, &err), err);
        loader_free(loader);
        check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);

        /* The store has retried until its own deadline, so the loader does not retry. */
        if (kinds[i].sample_hashes) {
            far_fault("shard", INT32_MAX, -EHOSTUNREACH, 0);
            assert_good(loader_new(dataset, &f.job, 300, 0, 6, 1, &loader, &err), err);
            assert_int_equal(loader_get(loader, 300, 0, 60 * USEC_PER_SEC, &grain, &err),
                             -EHOSTUNREACH);
            assert_names(err, "1 attempts");
            loader_free(loader);
        }
        dataset_free(dataset);
        scratch_remove(&f.scratch);
    }
}

static int first_failure(Fixture *f, Dataset *dataset, Error *err)
{
    Loader *loader;
    LoaderGrain grain;
    assert_good(loader_new(dataset, &f->job, 0, 0, 6, 1 << 16, &loader, err), *err);
    int r = 0;
    for (int64_t step = 0; r == 0 && step < 30; step++) {
        for (int64_t g = 0; r == 0 && g < 6; g++)
            r = loader_get(loader, step, g, 60 * USEC_PER_SEC, &grain, err);
        if (r == 0)
            loader_release(loader, step);
    }
    loader_free(loader);
    return r;
}

static void what_comes_corrupted_is_fetched_again_then_reported(void **state)
{
    (void)state;
    const Kind kinds[] = {{NULL, "xxh3_64", true, false},  {NULL, NULL, true, true},
                          {NULL, "xxh3_64", false, false}, {NULL, "sha1", false, true},
                          {"zstd:1", "md5", false, true},  {"zstd:1", "xxh64", true, false}};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        Fixture f;
        char uri[PATH_MAX + 8];
        begin(&f, &kinds[i], uri);
        Dataset *dataset = open_dataset(&f);
        bool ranged = kinds[i].sample_hashes && !kinds[i].compression;
        for (int times = 1; times <= 2; times++) {
            far_fault("shard.00007", times, 0, 0); /* if ranged, the first read is of the table */
            check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
            far_fault("shard.00005", times, -EIO, 0);
            check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
            if (!ranged) /* a shard that was read once is kept */
                break;
        }
        dataset_free(dataset);
        scratch_remove(&f.scratch);

        begin(&f, &kinds[i], uri);
        dataset = open_dataset(&f);
        far_fault("shard.00006", INT32_MAX, 0, 0);
        Error err = ERROR_INIT;
        assert_int_equal(first_failure(&f, dataset, &err), -EBADMSG);
        assert_names(err, "position ");
        assert_names(err, "3 attempts");
        assert_names(err, "shard.00006.mds");
        assert_names(err, "far:///");
        if (!ranged)
            assert_names(err, kinds[i].hash);
        dataset_free(dataset);
        scratch_remove(&f.scratch);
    }
}

/* If the object itself is corrupt, the error names its range and both hashes. */
static void a_corrupt_object_is_named_with_range_and_hashes(void **state)
{
    (void)state;
    Fixture f;
    char uri[PATH_MAX + 8], path[PATH_MAX];
    begin(&f, &(Kind){NULL, "xxh3_64", true, true}, uri);
    Dataset *dataset = open_dataset(&f);
    scratch_flip(scratch_path(&f.scratch, "first/shard.00006.mds", path), -20);
    Error err = ERROR_INIT;
    assert_int_equal(first_failure(&f, dataset, &err), -EBADMSG);
    assert_names(err, "/first/shard.00006.mds[");
    assert_names(err, "bytes ");
    assert_names(err, "its xxh3_64 is ");
    assert_names(err, "the index says ");
    assert_int_equal(truncate(path, 3000), 0);
    assert_int_equal(first_failure(&f, dataset, &err), -EBADMSG);
    assert_names(err, "truncated or foreign: 3000 bytes");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(first_failure(&f, dataset, &err), -ENOENT);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

/* ---- the node's cache ---- */

static void damage_cache(const Fixture *f, bool cut)
{
    DIR *dir = opendir(f->cache);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[PATH_MAX], name[300];
        if (!strstr(e->d_name, ".mds"))
            continue;
        (void)snprintf(name, sizeof(name), "cache/%s", e->d_name);
        (void)scratch_path(&f->scratch, name, path);
        if (cut)
            assert_int_equal(truncate(path, 1000), 0);
        else
            scratch_flip(path, -5);
    }
    assert_int_equal(closedir(dir), 0);
}

static void damaged_files_of_the_cache_are_fetched_again(void **state)
{
    (void)state;
    const Kind kinds[] = {{NULL, "xxh3_64", false, true},
                          {"zstd:1", "xxh3_64", false, true},
                          {NULL, NULL, true, true}};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        Fixture f;
        char uri[PATH_MAX + 8];
        begin(&f, &kinds[i], uri);
        for (int cut = 0; cut < 3; cut++) {
            Dataset *dataset = open_dataset(&f);
            check_steps(&f, dataset, 0, 60, 0, 6, 1 << 16);
            dataset_free(dataset);
            int files, parts;
            (void)cached_bytes(&f, &files, &parts);
            assert_true(files > 0);
            if (cut < 2)
                damage_cache(&f, cut);
        }
        /* Files that are whole are not fetched again. */
        if (!kinds[i].sample_hashes) {
            far_begin();
            Dataset *dataset = open_dataset(&f);
            check_steps(&f, dataset, 0, 60, 0, 6, 1 << 16);
            assert_int_equal(atomic_load(&far->reads), 0);
            dataset_free(dataset);
        }
        scratch_remove(&f.scratch);
    }
}

/* The cache's files are damaged while the process that verified them continues. If the dataset has no hashes of
 * samples, these hashes were computed when the file was written. */
static void files_of_the_cache_that_rot_later_are_fetched_again(void **state)
{
    (void)state;
    const Kind kinds[] = {{NULL, "xxh3_64", false, true},
                          {"zstd:1", "xxh3_64", false, true},
                          {NULL, NULL, false, true}};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        Fixture f;
        char uri[PATH_MAX + 8];
        begin(&f, &kinds[i], uri);
        Dataset *dataset = open_dataset(&f);
        check_steps(&f, dataset, 0, 60, 0, 6, 1 << 16);
        for (int again = 0; again < 2; again++) {
            damage_cache(&f, 0);
            check_steps(&f, dataset, 0, 60, 0, 6, 1 << 16);
        }
        dataset_free(dataset);
        scratch_remove(&f.scratch);
    }
}

/* With hashes of samples, whole shards are fetched into the cache only if that pays. */
static void whole_shards_are_kept_where_they_pay(void **state)
{
    (void)state;
    const struct {
        int64_t steps, n_grains, cache_bytes;
        bool kept;
    } cases[] = {
        {30, 6, 1 << 30, true},   /* the rank reads all samples, more than once */
        {30, 1, 1 << 30, false},  /* the rank reads a sixth of the samples, once */
        {1000, 1, 1 << 30, true}, /* the rank reads a sixth of the samples in each of many passes */
        {1000, 1, 60000, false},  /* the cache cannot keep all shards */
        {1000, 6, 60000, true},   /* the cache can keep a window */
        {1000, 6, 10000, false},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Fixture f;
        char uri[PATH_MAX + 8];
        begin(&f, &(Kind){NULL, "xxh3_64", true, true}, uri);
        f.job.train.steps = cases[i].steps;
        f.job.data.cache_bytes = cases[i].cache_bytes;
        Dataset *dataset = open_dataset(&f);
        check_steps(&f, dataset, 0, 25, 0, cases[i].n_grains, 1 << 16);
        int files, parts;
        (void)cached_bytes(&f, &files, &parts);
        if ((files > 0) != cases[i].kept)
            fail_msg("case %zu: %d files", i, files);
        dataset_free(dataset);
        scratch_remove(&f.scratch);
    }
}

/* Although only the first grain is requested, all shards of its window are fetched, in the background. */
static void shards_of_the_window_are_fetched_ahead(void **state)
{
    (void)state;
    const Kind kinds[] = {{NULL, "xxh3_64", false, true}, {NULL, "xxh3_64", true, true}};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        Fixture f;
        char uri[PATH_MAX + 8];
        begin(&f, &kinds[i], uri);
        f.job.data.read_ahead = 1;
        f.job.data.shuffle_window = 250;
        f.job.data.cache_bytes = 1 << 20;
        Dataset *dataset = open_dataset(&f);
        Error err = ERROR_INIT;
        Loader *loader;
        LoaderGrain grain;
        assert_good(loader_new(dataset, &f.job, 0, 0, 6, 1, &loader, &err), err);
        assert_good(loader_get(loader, 0, 0, 60 * USEC_PER_SEC, &grain, &err), err);
        for (int files = 0, parts; files < 7;) /* the window is half of the dataset */
            (void)cached_bytes(&f, &files, &parts);
        loader_free(loader);
        check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
        dataset_free(dataset);
        scratch_remove(&f.scratch);
    }
}

static void a_full_disk_is_a_slower_run(void **state)
{
    (void)state;
    const Kind kinds[] = {{NULL, "xxh3_64", false, true},
                          {"zstd:1", "xxh3_64", false, true},
                          {NULL, "xxh3_64", true, true}};
    const char *faults[] = {"cache.reserve=enospc@*", "cache.reserve=enospc@4",
                            "cache.write=enospc@3", "cache.write=eio@*", "cache.commit=eio@2"};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++)
        for (size_t k = 0; k < ELEMENTSOF(faults); k++) {
            Fixture f;
            char uri[PATH_MAX + 8];
            begin(&f, &kinds[i], uri);
            Dataset *dataset = open_dataset(&f);
            set_faults(faults[k]);
            check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
            dataset_free(dataset);
            set_faults("data.none=eio");
            int files, parts;
            (void)cached_bytes(&f, &files, &parts);
            assert_int_equal(parts, 0);
            scratch_remove(&f.scratch);
        }

    /* A file cannot be a cache's folder. */
    Fixture f;
    char uri[PATH_MAX + 8];
    Error err = ERROR_INIT;
    begin(&f, &kinds[0], uri);
    assert_good(file_write(f.cache, "x", 1, 0, &err), err);
    Dataset *dataset = NULL;
    assert_true(dataset_open(&f.job, &dataset, &err) < 0);
    assert_names(err, "cache");
    scratch_remove(&f.scratch);
}

/* Another process has reserved a shard but does not fill it: after a while the shard is fetched without the cache. */
static void nobody_waits_for_ever(void **state)
{
    (void)state;
    for (int patient = 0; patient < 2; patient++) {
        Fixture f;
        char uri[PATH_MAX + 8], name[CACHE_NAME_MAX + 1];
        Error err = ERROR_INIT;
        begin(&f, &(Kind){NULL, "xxh3_64", false, true}, uri);
        f.job.data.cache_bytes = 1 << 20;
        _cleanup_(store_freep) Store *store = NULL;
        _cleanup_(index_freep) Index *index = NULL;
        _cleanup_(cache_freep) Cache *cache = NULL;
        ShardSource source;
        IndexShard shard;
        assert_good(store_open(uri, &store, &err), err);
        assert_good(cache_new(f.cache, 1 << 20, &cache, &err), err);
        assert_good(index_open(store, cache, &index, &err), err);
        assert_good(index_shard(index, 7, &shard, &err), err);
        shard_source_init(&source, store, index);
        int held = cache_reserve(cache, shard_cache_name(&source, 7, name), shard.raw_bytes);
        assert_true(held >= 0);
        Dataset *dataset = open_dataset(&f);
        if (patient) { /* the holder abandons the shard while the loader waits */
            Loader *loader;
            LoaderGrain grain;
            assert_good(loader_new(dataset, &f.job, 0, 0, 6, 1 << 20, &loader, &err), err);
            int r = 0;
            for (int64_t step = 0; r == 0; step++)
                r = loader_get(loader, step, 0, USEC_PER_SEC, &grain, NULL);
            assert_int_equal(r, -ETIMEDOUT);
            held = cache_abandon(cache, name, held);
            loader_free(loader);
        } else {
            set_faults("cache.patience=eio@*");
        }
        check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
        set_faults("data.none=eio");
        dataset_free(dataset);
        held = cache_abandon(cache, name, held);
        scratch_remove(&f.scratch);
    }
}

/* ---- the index ---- */

static void rewrite(const Fixture *f, const char *name, const char *from, const char *to)
{
    Error err = ERROR_INIT;
    char path[PATH_MAX], *text;
    size_t n;
    assert_good(file_read(scratch_path(&f->scratch, name, path), 1 << 24, &text, &n, &err), err);
    char *at = from ? strstr(text, from) : text;
    assert_non_null(at);
    if (from)
        memcpy(at, to, strlen(to));
    assert_good(file_write(path, text, n, 0, &err), err);
    free(text);
}

static void an_unchanged_dataset_costs_two_requests(void **state)
{
    (void)state;
    Fixture f;
    char uri[PATH_MAX + 8], path[PATH_MAX];
    begin(&f, &(Kind){NULL, "xxh3_64", true, true}, uri);

    /* At first, the index and its origin are fetched, but not index.json. encoder.json is requested at each start. */
    Dataset *dataset = open_dataset(&f);
    Hash digest = dataset_digest(dataset);
    dataset_free(dataset);
    assert_int_equal(atomic_load(&far->fetches), 1);
    assert_int_equal(atomic_load(&far->gets), 2);
    far_begin();
    dataset = open_dataset(&f);
    assert_true(hash_equal(digest, dataset_digest(dataset)));
    dataset_free(dataset);
    assert_int_equal(atomic_load(&far->versions), 1);
    assert_int_equal(atomic_load(&far->gets), 1);
    assert_int_equal(atomic_load(&far->fetches) + atomic_load(&far->heads), 0);

    /* With another version of the same bytes, index.json is fetched and hashed; the index is still valid. */
    rewrite(&f, "first/index.json", NULL, NULL);
    far_begin();
    dataset = open_dataset(&f);
    assert_true(hash_equal(digest, dataset_digest(dataset)));
    dataset_free(dataset);
    assert_int_equal(atomic_load(&far->fetches), 2);
    far_begin();
    dataset_free(open_dataset(&f));
    assert_int_equal(atomic_load(&far->fetches), 0);

    /* If index.json is that of another dataset, the index beside it is not valid any more, and an index is made. */
    rewrite(&f, "first/index.json", "shard.00011.mds", "shard.00010.mds");
    Error err = ERROR_INIT;
    dataset = NULL;
    assert_good(dataset_open(&f.job, &dataset, &err), err);
    assert_false(hash_equal(digest, dataset_digest(dataset)));
    dataset_free(dataset);

    /* Without an index beside index.json and without a cache, an index is made at each start and not kept. */
    rewrite(&f, "first/index.json", "shard.00010.mds\", \"bytes", "shard.00010.mds\", \"bytes");
    assert_int_equal(unlink(scratch_path(&f.scratch, "first/" INDEX_NAME, path)), 0);
    f.job.data.cache_dir = NULL;
    dataset_free(open_dataset(&f));
    assert_int_equal(unlink(scratch_path(&f.scratch, "first/index.json", path)), 0);
    assert_int_equal(dataset_open(&f.job, &dataset, &err), -EINVAL);
    assert_names(err, "holds no MDS dataset");
    scratch_remove(&f.scratch);
}

/* The dataset's URI need not be UTF-8, although JSON texts must be. */
static void a_prefix_of_any_bytes_has_an_index(void **state)
{
    (void)state;
    Fixture f;
    char uri[PATH_MAX + 8], folder[PATH_MAX];
    begin(&f, &(Kind){NULL, "xxh3_64", true, true}, uri);
    (void)scratch_path(&f.scratch, "caf\xe9", folder);
    assert_int_equal(rename(f.folders[0], folder), 0);
    memcpy(f.folders[0], folder, sizeof(folder));
    make_index(&f, true);
    scratch_remove(&f.scratch);
}

/* An index that arrives corrupted is fetched again. It is not made on this node, since it would lack the hashes of
 * samples. */
static void an_index_that_comes_corrupted_is_fetched_again(void **state)
{
    (void)state;
    Fixture f;
    char uri[PATH_MAX + 8];
    begin(&f, &(Kind){NULL, "xxh3_64", true, true}, uri);
    /* The request of INDEX_ORIGIN, whose name contains INDEX_NAME, uses up the first fault without an effect. */
    far_fault(INDEX_NAME, 2, 0, 0);
    Dataset *dataset = open_dataset(&f);
    assert_int_equal(atomic_load(&far->fetches), 2);
    dataset_free(dataset);
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    _cleanup_(cache_freep) Cache *cache = NULL;
    assert_good(store_open(uri, &store, &err), err);
    assert_good(cache_new(f.cache, 0, &cache, &err), err);
    assert_good(index_open(store, cache, &index, &err), err);
    assert_true(index_has_sample_hashes(index));
    scratch_remove(&f.scratch);
}

/* A damaged copy of the index in the cache is fetched again. */
static void a_damaged_copy_of_the_index_is_fetched_again(void **state)
{
    (void)state;
    Fixture f;
    char uri[PATH_MAX + 8];
    begin(&f, &(Kind){NULL, "xxh3_64", true, true}, uri);
    dataset_free(open_dataset(&f));
    DIR *dir = opendir(f.cache);
    assert_non_null(dir);
    int n = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char path[PATH_MAX], name[300];
        if (!strstr(e->d_name, ".index"))
            continue;
        (void)snprintf(name, sizeof(name), "cache/%s", e->d_name);
        scratch_flip(scratch_path(&f.scratch, name, path), 4);
        n++;
    }
    assert_int_equal(closedir(dir), 0);
    assert_int_equal(n, 1);
    for (int again = 0; again < 2; again++) {
        far_begin();
        Dataset *dataset = open_dataset(&f);
        check_steps(&f, dataset, 0, 2, 0, 6, 1 << 16);
        dataset_free(dataset);
        assert_int_equal(atomic_load(&far->fetches), !again);
    }
    scratch_remove(&f.scratch);
}

int main(void)
{
    log_open("test-stream");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kinds_come_right),
        cmocka_unit_test(a_cold_start_reads_what_its_first_steps_need),
        cmocka_unit_test(a_slow_read_holds_up_no_other),
        cmocka_unit_test(a_store_that_is_away_is_waited_for),
        cmocka_unit_test(what_comes_corrupted_is_fetched_again_then_reported),
        cmocka_unit_test(a_corrupt_object_is_named_with_range_and_hashes),
        cmocka_unit_test(damaged_files_of_the_cache_are_fetched_again),
        cmocka_unit_test(files_of_the_cache_that_rot_later_are_fetched_again),
        cmocka_unit_test(whole_shards_are_kept_where_they_pay),
        cmocka_unit_test(shards_of_the_window_are_fetched_ahead),
        cmocka_unit_test(a_full_disk_is_a_slower_run),
        cmocka_unit_test(nobody_waits_for_ever),
        cmocka_unit_test(an_unchanged_dataset_costs_two_requests),
        cmocka_unit_test(a_prefix_of_any_bytes_has_an_index),
        cmocka_unit_test(an_index_that_comes_corrupted_is_fetched_again),
        cmocka_unit_test(a_damaged_copy_of_the_index_is_fetched_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
