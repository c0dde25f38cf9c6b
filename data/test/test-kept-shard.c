/* SPDX-License-Identifier: Apache-2.0 */
/* test-kept-shard.c - a shard that is fetched in the background and read from the cache at the same time. */
#include "base/clock.h"
#include "data/index-open.h"
#include "data/stream/sample-read.h"
#include "data/test/testing-loader.h"
#include "store/test/testing-far.h"

#include <unistd.h>

/* While a shard is fetched in the background, another process puts its file into the cache, and a read opens that file.
 * When the fetch ends, the file that was opened first is closed. */
static void a_shard_comes_twice(void **state)
{
    (void)state;
    Fixture f;
    char uri[PATH_MAX + 8], name[CACHE_NAME_MAX + 1], from[PATH_MAX + 64], to[PATH_MAX + 160],
        part[PATH_MAX + 168];
    Error err = ERROR_INIT;
    far_begin();
    fixture_make(&f, &plain);
    (void)snprintf(uri, sizeof(uri), "far://%s", f.folders[0]);
    _cleanup_(store_freep) Store *store = NULL;
    _cleanup_(index_freep) Index *index = NULL;
    _cleanup_(cache_freep) Cache *cache = NULL;
    _cleanup_(event_count_freep) EventCount *events = NULL;
    ReadBudget budget = {.most = 1 << 20};
    IndexShard info;
    ShardSource source;
    Shards *shards;
    assert_good(store_open(uri, &store, &err), err);
    assert_good(cache_new(f.cache, 1 << 20, &cache, &err), err);
    assert_good(index_make(store, true, NULL, NULL, &index, &err), err);
    assert_int_equal(event_count_new(&events), 0);
    assert_good(index_shard(index, 3, &info, &err), err);
    const ShardsOptions options = {.cache = cache, .events = events, .budget = &budget};
    assert_good(shards_new(store, index, &options, &shards, &err), err);

    shard_source_init(&source, store, index);
    (void)snprintf(from, sizeof(from), "%s/%s", f.folders[0], info.raw_name);
    (void)snprintf(to, sizeof(to), "%s/%s", f.cache, shard_cache_name(&source, 3, name));
    (void)snprintf(part, sizeof(part), "%s.part", to);

    uint64_t wake_usec = UINT64_MAX;
    far_fault(info.raw_name, 1, 0, FAR_HELD);
    shards_keep_whole(shards, true);
    assert_true(shards_expect(shards, 3, 0));
    shards_advance(shards, &wake_usec);
    assert_int_equal(access(part, F_OK), 0);

    char *bytes;
    size_t n;
    assert_good(file_read(from, SIZE_MAX / 2, &bytes, &n, &err), err);
    assert_good(file_write(to, bytes, n, 0, &err), err);
    free(bytes);
    SampleRead read = {0};
    const void *sample;
    sample_read_begin(&read, shards, (IndexPlace){.shard = 3});
    assert_int_equal(sample_read_poll(&read, true, &wake_usec, &sample, &n, &err), 1);

    far->released = true;
    for (uint64_t seen = event_count_read(events); access(part, F_OK) == 0;) {
        event_count_wait(events, seen, clock_monotonic_usec() + USEC_PER_SEC / 100);
        shards_advance(shards, &wake_usec);
    }
    sample_read_end(&read);
    sample_read_clear(&read);
    shards_free(shards); /* asserts that no shard is counted as open */
    scratch_remove(&f.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shard_comes_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
