/* SPDX-License-Identifier: Apache-2.0 */
/* test-reads.c - when the loader begins and continues reads of a remote store (far://), how far ahead it announces
 * shards, and that it releases everything. The store's counters show each fact, and no test relies on an event that
 * might happen by chance. */
#include "base/clock.h"
#include "base/fault.h"
#include "data/dataset-internal.h"
#include "data/index-open.h"
#include "data/test/testing-loader.h"
#include "store/test/testing-far.h"

#include <math.h>
#include <time.h>

enum {
    SAMPLES = 500,
    BATCH = 24,
    GRAIN = 4,
    STD_FIRST = 32, /* samples that are read when a dataset is opened */
    WAIT_SEC = 60,
};

/* Opens a stream behind far://, with its index beside it. */
static void begin_stream(Fixture *f, size_t stream, bool sample_hashes, char uri[PATH_MAX + 8])
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    (void)snprintf(uri, PATH_MAX + 8, "far://%s", f->folders[stream]);
    assert_good(store_open(uri, &store, &err), err);
    assert_good(index_make(store, sample_hashes, NULL, NULL, &index, &err), err);
    f->job.data.streams[stream].uri = uri;
}

static void begin(Fixture *f, bool sample_hashes, char uri[PATH_MAX + 8])
{
    far_begin();
    fixture_make(f, &plain);
    f->job.data.read_ahead_bytes = 1 << 20;
    begin_stream(f, 0, sample_hashes, uri);
    far_begin(); /* resets the counters */
}

static void end(Fixture *f, Dataset *dataset)
{
    dataset_free(dataset);
    assert_int_equal(atomic_load(&far->under_way), 0);
    scratch_remove(&f->scratch);
}

static void shard_at(const Dataset *dataset, int64_t position, char name[64])
{
    (void)dataset_sample_name(dataset, order_at(dataset_order(dataset), position), name, 64);
    *strchr(name, '[') = '\0';
}

/* Waits until at least n_reads reads have begun and at most n_under_way are in progress. */
static void wait_for_reads(int n_reads, int n_under_way)
{
    static const struct timespec pause = {0, 1000000};
    const uint64_t until = clock_monotonic_usec() + WAIT_SEC * USEC_PER_SEC;
    while (atomic_load(&far->reads) < n_reads || atomic_load(&far->under_way) > n_under_way) {
        if (clock_monotonic_usec() > until)
            fail_msg("%d of %d reads have begun, %d are under way", atomic_load(&far->reads),
                     n_reads, atomic_load(&far->under_way));
        (void)nanosleep(&pause, NULL);
    }
}

/* Waits until n_ranges reads of ranges, not of tables, have begun, and one read of any kind is in progress. */
static void wait_for_ranges(int n_ranges)
{
    static const struct timespec pause = {0, 1000000};
    const uint64_t until = clock_monotonic_usec() + WAIT_SEC * USEC_PER_SEC;
    while (atomic_load(&far->reads) - atomic_load(&far->tables) != n_ranges ||
           atomic_load(&far->under_way) != 1) {
        if (clock_monotonic_usec() > until)
            fail_msg("%d ranges have begun, not %d, and %d reads are under way",
                     atomic_load(&far->reads) - atomic_load(&far->tables), n_ranges,
                     atomic_load(&far->under_way));
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- waits ---- */

static atomic_int n_waits;

/* Checks the arguments of each wait: a count that was read before, and 0 or an absolute time. Counts the waits. */
void __wrap_event_count_wait(EventCount *events, uint64_t seen, uint64_t until_usec);
void __real_event_count_wait(EventCount *events, uint64_t seen, uint64_t until_usec);
void __wrap_event_count_wait(EventCount *events, uint64_t seen, uint64_t until_usec)
{
    assert_true(seen <= event_count_read(events));
    assert_true(until_usec == 0 || until_usec >= USEC_PER_SEC);
    atomic_fetch_add(&n_waits, 1);
    __real_event_count_wait(events, seen, until_usec);
}

static void wait_for_waits(int n)
{
    static const struct timespec pause = {0, 1000000};
    const uint64_t until = clock_monotonic_usec() + WAIT_SEC * USEC_PER_SEC;
    while (atomic_load(&n_waits) < n) {
        if (clock_monotonic_usec() > until)
            fail_msg("%d waits, not %d", atomic_load(&n_waits), n);
        (void)nanosleep(&pause, NULL);
    }
}

static Loader *load(const Fixture *f, Dataset *dataset, int64_t step)
{
    Error err = ERROR_INIT;
    Loader *loader;
    assert_good(loader_new(dataset, &f->job, step, 0, 1, 1, &loader, &err), err);
    return loader;
}

static void get(Loader *loader, int64_t step)
{
    Error err = ERROR_INIT;
    LoaderGrain grain;
    assert_good(loader_get(loader, step, 0, WAIT_SEC * USEC_PER_SEC, &grain, &err), err);
}

/* Returns the position of the i-th sample that a rank trains from step `step` on; the rank has the first grain of each
 * step. */
static int64_t position_of(int64_t step, int64_t i)
{
    return (step + i / GRAIN) * BATCH + i % GRAIN;
}

/* Counts the samples begin_at .. end_at - 1 that are in a shard whose name contains `part`. */
static int count_in(const Dataset *dataset, int64_t step, int64_t begin_at, int64_t end_at,
                    const char *part)
{
    int n = 0;
    for (int64_t i = begin_at; i < end_at; i++) {
        char name[64];
        shard_at(dataset, position_of(step, i), name);
        n += strstr(name, part) != NULL;
    }
    return n;
}

/* A shard's table arrives while all slots are full: the loader must still poll the read, so that the sample's range is
 * requested. */
static void reads_go_on_while_the_ring_is_full(_unused_ void **state)
{
    enum { AHEAD = 6 };
    Fixture f;
    char uri[PATH_MAX + 8], name[64];
    begin(&f, true, uri);
    f.job.data.shuffle_window = SAMPLES;
    f.job.data.read_ahead = AHEAD;
    Dataset *dataset = open_dataset(&f);
    /* Find a step at which the last requested sample is in a shard that no earlier requested sample is in. */
    int64_t step = 0, last = GRAIN + AHEAD - 1;
    for (;; step++) {
        shard_at(dataset, position_of(step, last), name);
        if (strcmp(name, "shard.00000.mds") != 0 && count_in(dataset, step, 0, last, name) == 0)
            break;
    }
    far_fault(name, 1, 0, FAR_HELD);
    Loader *loader = load(&f, dataset, step);
    get(loader, step);                              /* fills the only slot of the ring */
    wait_for_ranges(STD_FIRST + GRAIN + AHEAD - 1); /* only the held table is missing */
    const int before = atomic_load(&far->reads);
    atomic_store(&far->released, true);
    wait_for_reads(before + 1, 0);
    loader_free(loader);
    end(&f, dataset);
}

/* A sample that is requested because another sample was decoded is requested at once, not when other bytes arrive. */
static void what_is_asked_for_begins_at_once(_unused_ void **state)
{
    enum { AHEAD = 3 };
    Fixture f;
    char uri[PATH_MAX + 8];
    begin(&f, true, uri);
    f.job.data.shuffle_window = SAMPLES;
    f.job.data.read_ahead = AHEAD;
    Dataset *dataset = open_dataset(&f);
    check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16); /* reads all tables */
    /* Find a step whose first sample arrives, while the samples behind it are held. */
    int64_t step = 30;
    while (count_in(dataset, step, 0, 1, "shard.0001") != 1 ||
           count_in(dataset, step, 1, AHEAD + 1, "shard.0000") != AHEAD)
        step++;
    const int before = atomic_load(&far->reads);
    far_fault("shard.0000", INT32_MAX, 0, FAR_HELD);
    atomic_store(&n_waits, 0);
    Loader *loader = load(&f, dataset, step);
    wait_for_reads(before + 1 + AHEAD, AHEAD);
    assert_int_equal(atomic_load(&far->reads), before + 1 + AHEAD);
    wait_for_waits(1); /* the loader sleeps until bytes arrive */
    atomic_store(&far->released, true);
    get(loader, step);
    loader_free(loader);
    end(&f, dataset);
}

typedef struct Reader {
    Dataset *dataset;
    float *latents, *text;
    int r;
} Reader;

static void *read_one(void *userdata)
{
    Reader *reader = userdata;
    Error err = ERROR_INIT;
    reader->r = dataset_read(reader->dataset, (OrderSample){.sample = 0}, reader->latents,
                             reader->text, NULL, &err);
    return NULL;
}

/* The calling thread sleeps while its read is in progress. */
static void a_single_read_waits(_unused_ void **state)
{
    Fixture f;
    char uri[PATH_MAX + 8];
    begin(&f, true, uri);
    Dataset *dataset = open_dataset(&f);
    float latents[4 * 6 * 3], text[5 * 7];
    Reader reader = {.dataset = dataset, .latents = latents, .text = text};
    pthread_t thread;
    far_fault("shard.0000", INT32_MAX, 0, FAR_HELD);
    atomic_store(&n_waits, 0);
    assert_int_equal(pthread_create(&thread, NULL, read_one, &reader), 0);
    wait_for_waits(1);
    assert_int_equal(atomic_load(&far->under_way), 1);
    atomic_store(&far->released, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(reader.r, 0);
    assert_sample(&f, dataset, (OrderSample){.sample = 0}, latents, text);
    end(&f, dataset);
}

/* Freeing a loader cancels its reads in progress and returns their bytes to the budget. */
static void what_is_under_way_ends_with_the_loader(_unused_ void **state)
{
    enum { AHEAD = 8 };
    Fixture f;
    char uri[PATH_MAX + 8];
    begin(&f, true, uri);
    f.job.data.read_ahead = AHEAD;
    Dataset *dataset = open_dataset(&f);
    check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
    for (int times = 0; times < 2; times++) { /* a second loader of the same dataset works, too */
        const int before = atomic_load(&far->reads), cancels = atomic_load(&far->cancels);
        atomic_store(&far->away, true);
        Loader *loader = load(&f, dataset, 40);
        wait_for_reads(before + AHEAD, AHEAD);
        loader_free(loader);
        assert_int_equal(atomic_load(&far->under_way), 0);
        assert_int_equal(atomic_load(&far->cancels), cancels + AHEAD);
        atomic_store(&far->away, false);
    }
    assert_int_equal(dataset->budget.used, 0);
    check_steps(&f, dataset, 40, 3, 0, 6, 1 << 16);
    end(&f, dataset);
}

/* ---- how far ahead shards are announced ---- */

typedef struct Plan {
    bool sample_hashes;
    int64_t steps, first_step;
    double share;
    /* The size of the cache, in windows of unpacked shards; 0: no bound; -1: no cache. */
    double windows;
    int64_t wanted; /* expected result of dataset_plan_cache(), in samples */
} Plan;

static double bytes_of_window(const Fixture *f, const Dataset *dataset, size_t stream)
{
    Index *index = dataset->streams[stream].index;
    IndexShard shard;
    Error err = ERROR_INIT;
    assert_good(index_shard(index, 0, &shard, &err), err);
    const double n_shards = (double)index_n_shards(index);
    assert_true(n_shards > 4);
    return ((double)f->job.data.shuffle_window * n_shards / SAMPLES + 1) * (double)shard.raw_bytes;
}

static void shards_are_expected_as_far_as_they_find_room(_unused_ void **state)
{
    static const Plan cases[] = {
        {false, 1000, 0, 1, -1, 0},     /* there is no cache */
        {false, 1000, 0, 1, 0, 64},     /* the cache has no bound: all shards stay */
        {false, 1000, 0, 1, 100, 64},   /* the cache is larger than the dataset: all shards stay */
        {false, 1000, 0, 0.5, 100, 32}, /* half of each window is this rank's */
        {false, 1000, 0, 1, 2.5, 64},   /* the cache has room for a whole window ahead */
        {false, 1000, 0, 1, 1.5, 32},   /* the cache has room for half a window ahead */
        {false, 1000, 0, 1, 1.25, 16},  /* the cache has room for a quarter of a window ahead */
        {false, 1000, 0, 1, 0.5, 0},    /* the cache has no room ahead */
        {true, 1000, 0, 1, 100, 64},    /* each sample is used 48 times */
        {true, 1000, 1000, 1, 100, 0},  /* no step is left */
        {true, 1000, 989, 1, 100, 64},  /* the last steps use 264 of 500 samples */
        {true, 1000, 990, 1, 100, 0},   /* the last steps use 240 of 500 samples */
        {true, 1000, 0, 0.25, 1.5, 0},  /* each pass fetches a shard and uses a quarter of it */
        {true, 1000, 0, 0.5, 1.5, 16},  /* each pass fetches a shard and uses half of it */
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const Plan *c = &cases[i];
        Fixture f;
        char uri[PATH_MAX + 8];
        begin(&f, c->sample_hashes, uri);
        f.job.train.steps = c->steps;
        f.job.data.cache_dir = c->windows < 0 ? NULL : f.cache;
        f.job.data.cache_bytes = 1 << 30;
        Dataset *dataset = open_dataset(&f);
        f.job.data.cache_bytes = c->windows > 0
                                     ? (int64_t)ceil(c->windows * bytes_of_window(&f, dataset, 0)) +
                                           (int64_t)index_bytes(dataset->streams[0].index)
                                     : 0;
        const int64_t found = dataset_plan_cache(dataset, &f.job, c->first_step, c->share);
        if (found != c->wanted)
            fail_msg("case %zu: %d instead of %d", i, (int)found, (int)c->wanted);
        end(&f, dataset);
    }
}

/* Streams share the cache by their proportions. dataset_plan_cache() returns the largest of the streams' distances by
 * which shards may be fetched ahead. */
static void streams_share_the_cache(_unused_ void **state)
{
    Fixture f;
    char uri[2][PATH_MAX + 8];
    begin(&f, false, uri[0]);
    add_stream(&f, &plain, 3);
    begin_stream(&f, 1, false, uri[1]);
    f.job.data.cache_dir = f.cache;
    f.job.data.cache_bytes = 1 << 30;
    Dataset *dataset = open_dataset(&f);
    const double window = bytes_of_window(&f, dataset, 0);
    const int64_t copies = (int64_t)index_bytes(dataset->streams[0].index) +
                           (int64_t)index_bytes(dataset->streams[1].index);
    /* The cache has room for 0.5 windows of the first stream and 1.5 windows of the second stream. */
    f.job.data.cache_bytes = copies + (int64_t)ceil(2 * window);
    assert_int_equal(dataset_plan_cache(dataset, &f.job, 0, 1), 32);
    f.job.data.cache_bytes = copies / 2; /* the copies of the indices alone exceed the cache */
    assert_int_equal(dataset_plan_cache(dataset, &f.job, 0, 1), 0);
    end(&f, dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_go_on_while_the_ring_is_full),
        cmocka_unit_test(what_is_asked_for_begins_at_once),
        cmocka_unit_test(a_single_read_waits),
        cmocka_unit_test(what_is_under_way_ends_with_the_loader),
        cmocka_unit_test(shards_are_expected_as_far_as_they_find_room),
        cmocka_unit_test(streams_share_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
