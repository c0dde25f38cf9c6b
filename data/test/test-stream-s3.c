/* SPDX-License-Identifier: Apache-2.0 */
/* test-stream-s3.c - datasets on a real S3 server are written, indexed, inspected and loaded: by ranges and by whole
 * shards, with and without a cache. The server's bucket is in SDTRAIN_TEST_S3_URI (tests/s3/with-gateway). */
#include "base/log.h"
#include "data/index/index.h"
#include "data/test/testing-loader.h"
#include "store/s3/test/testing-faults.h"

#include <sys/wait.h>

static void run(const char *verb, const char *uri, const char *options)
{
    char command[PATH_MAX + 256];
    const char *bin = getenv("SDTRAIN_BIN");
    (void)snprintf(command, sizeof(command), "%s/sdprep %s '%s' %s >&2", bin ? bin : ".", verb, uri,
                   options);
    int status = system(command);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s: %d", command, status);
}

static void datasets_on_a_server_come_right(void **state)
{
    (void)state;
    const char *base = getenv("SDTRAIN_TEST_S3_URI");
    const struct {
        const char *compression, *index;
        bool cached;
    } kinds[] = {
        {NULL, "--sample-hashes", false},
        {NULL, "--sample-hashes", true},
        {NULL, "", true},
        {"zstd:1", "", true},
        {NULL, NULL, true}, /* the dataset has no compact index */
    };
    assert_non_null(base);
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        Fixture f;
        char uri[PATH_MAX];
        ScratchData data = plain;
        data.compression = kinds[i].compression;
        fixture_make(&f, &data);
        (void)snprintf(uri, sizeof(uri), "%s/data set+%zu", base, i);
        scratch_dataset(uri, &data);
        f.job.data.streams[0].uri = uri;
        f.job.data.read_ahead = 32;
        f.job.data.read_ahead_bytes = 1 << 20;
        if (kinds[i].index)
            run("index", uri, kinds[i].index);
        if (kinds[i].cached)
            f.job.data.cache_dir = f.cache;
        f.job.data.cache_bytes = 60000;
        for (int again = 0; again < 2; again++) {
            Dataset *dataset = open_dataset(&f);
            check_steps(&f, dataset, 0, 30, 0, 6, 1 << 16);
            check_steps(&f, dataset, 997, 3, 5, 1, 1 << 30);
            dataset_free(dataset);
        }
        run("inspect", uri, "--sample 77");
        scratch_remove(&f.scratch);
    }
}

/* A missing object, or an object with changed bytes, is named in the error. */
static void wrong_objects_are_named(void **state)
{
    (void)state;
    const char *base = getenv("SDTRAIN_TEST_S3_URI");
    Fixture f;
    char uri[PATH_MAX];
    Error err = ERROR_INIT;
    Dataset *dataset;
    assert_non_null(base);
    fixture_make(&f, &plain);
    (void)snprintf(uri, sizeof(uri), "%s/other", base);
    f.job.data.streams[0].uri = uri;
    f.job.data.cache_dir = f.cache;
    f.job.data.cache_bytes = 1 << 20;
    assert_int_equal(dataset_open(&f.job, &dataset, &err), -EINVAL);
    assert_names(err, "other holds no MDS dataset");

    _cleanup_(store_freep) Store *store = NULL;
    scratch_dataset(uri, &plain);
    assert_good(store_open(uri, &store, &err), err);
    struct iovec part = {(char[]){"nothing"}, 7};
    assert_good(store_delete(store, "shard.00000.mds", &err), err);
    assert_good(store_put(store, "shard.00000.mds", &part, 1, 0, &err), err);
    assert_int_equal(dataset_open(&f.job, &dataset, &err), -EBADMSG);
    assert_names(err, "shard.00000.mds is truncated or foreign: 7 bytes");
    assert_good(store_delete(store, "shard.00000.mds", &err), err);
    assert_int_equal(dataset_open(&f.job, &dataset, &err), -ENOENT);
    assert_names(err, "shard.00000.mds");
    scratch_remove(&f.scratch);
}

/* Every kind of network fault happens every few requests; every number that is loaded is right. */
static void faults_on_the_way_change_nothing(void **state)
{
    (void)state;
    const char *base = getenv("SDTRAIN_TEST_S3_URI");
    static const char *const rules[] = {
        "'fault': 'status', 'status': 500, 'code': 'InternalError'",
        "'fault': 'status', 'status': 503, 'code': 'SlowDown'",
        "'fault': 'reset', 'where': 'reply', 'after': 300",
        "'fault': 'reset', 'where': 'request', 'after': 10",
        "'fault': 'truncate', 'after': 500",
        "'fault': 'corrupt', 'where': 'reply', 'at': 40",
        "'fault': 'corrupt', 'where': 'reply', 'at': -20",
        "'fault': 'lose'",
    };
    assert_non_null(base);
    for (int whole = 0; whole < 2; whole++) {
        Fixture f;
        char uri[PATH_MAX];
        fixture_make(&f, &plain);
        (void)snprintf(uri, sizeof(uri), "%s/faults%d", base, whole);
        scratch_dataset(uri, &plain);
        run("index", uri, whole ? "" : "--sample-hashes");
        f.job.data.streams[0].uri = uri;
        f.job.data.cache_dir = f.cache;
        /* With a cache of 1 byte, samples are read only by range. */
        f.job.data.cache_bytes = whole ? 30000 : 1;
        f.job.data.read_ahead = 32;
        f.job.data.read_ahead_bytes = 1 << 20;

        _cleanup_(faults_stopp) Faults *faults = faults_start(NULL);
        Dataset *dataset = open_dataset(&f);
        for (size_t i = 0; i < ELEMENTSOF(rules); i++)
            (void)faults_add(faults,
                             "{'match': {'method': 'GET', 'path': 'shard'}, 'count': null, "
                             "'skip': %zu, 'probability': 0.01, %s}",
                             i, rules[i]);
        check_steps(&f, dataset, 0, 20, 0, 6, 1 << 16);
        (void)faults_do(faults, "{'do': 'clear'}");
        dataset_free(dataset);
        scratch_remove(&f.scratch);
    }
}

/* The store becomes unreachable during loading and returns; then it becomes unreachable again and the loader is
 * freed. */
static void a_store_may_be_away(void **state)
{
    (void)state;
    const char *base = getenv("SDTRAIN_TEST_S3_URI");
    Fixture f;
    char uri[PATH_MAX];
    Error err = ERROR_INIT;
    Loader *loader;
    LoaderGrain grain;
    assert_non_null(base);
    fixture_make(&f, &plain);
    (void)snprintf(uri, sizeof(uri), "%s/away", base);
    scratch_dataset(uri, &plain);
    run("index", uri, "--sample-hashes");
    f.job.data.streams[0].uri = uri;
    f.job.data.read_ahead = 32;
    f.job.data.read_ahead_bytes = 1 << 20;
    _cleanup_(faults_stopp) Faults *faults = faults_start(NULL);
    Dataset *dataset = open_dataset(&f);
    assert_good(loader_new(dataset, &f.job, 0, 0, 6, 1, &loader, &err), err);
    assert_good(loader_get(loader, 0, 0, 60 * USEC_PER_SEC, &grain, &err), err);
    (void)faults_do(faults, "{'do': 'listen', 'open': false}");
    int64_t step = 0;
    int r = 0;
    while (r == 0) { /* until all steps that were read are used */
        r = loader_get(loader, step, 5, USEC_PER_SEC, &grain, NULL);
        if (r == 0)
            loader_release(loader, step++);
    }
    assert_int_equal(r, -ETIMEDOUT);
    (void)faults_do(faults, "{'do': 'listen', 'open': true}");
    assert_good(loader_get(loader, step, 5, 100 * USEC_PER_SEC, &grain, &err), err);
    (void)faults_do(faults, "{'do': 'listen', 'open': false}");
    loader_free(loader);
    dataset_free(dataset);
    scratch_remove(&f.scratch);
}

int main(void)
{
    log_open("test-stream-s3");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(datasets_on_a_server_come_right),
        cmocka_unit_test(wrong_objects_are_named),
        cmocka_unit_test(faults_on_the_way_change_nothing),
        cmocka_unit_test(a_store_may_be_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
