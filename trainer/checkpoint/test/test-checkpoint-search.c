/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-search.c - the newest own, whole checkpoint is found, whatever else is in the folder. */
#include "trainer/checkpoint/search.h"

#include "base/file.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "manifest/manifest-internal.h"
#include "store/test/testing-far.h"
#include "trainer/checkpoint/test/testing-state.h"

#include <string.h>

static char folder[] = "/tmp/test-search-XXXXXX";
static Fixture fixture;
static Store *store;
static char names[5][CHECKPOINT_FOLDER_MAX]; /* folders of the steps 0 to 4 */

/* Makes five checkpoints of one generation, all of which are kept. */
static int setup(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    Comm *comm = NULL;
    char uri[64];
    far_begin();
    (void)snprintf(uri, sizeof(uri), "far://%s", folder);
    assert_int_equal(folder_make(folder, &err), 0);
    assert_int_equal(store_open(uri, &store, &err), 0);
    assert_int_equal(comm_open_self(&comm, &err), 0);
    CheckpointWriter *writer = testing_writer(&fixture, store, comm, 7, 0);
    for (int64_t step = 0; step < (int64_t)ELEMENTSOF(names); step++) {
        _cleanup_(train_state_freep) TrainState *state =
            testing_state(&fixture, step, 0, 1, 1, false);
        CheckpointResult result = testing_save(writer, state, 7, 1);
        assert_int_equal(result.phase, CHECKPOINT_WRITTEN);
        const char *name = result.uri + strlen(store_uri(store)) + 1;
        (void)snprintf(names[step], sizeof(names[step]), "%.*s", (int)strcspn(name, "/"), name);
        /* without a commit there is no history, and so no retention */
        checkpoint_settle(writer, false);
    }
    (void)checkpoint_writer_free(writer);
    (void)comm_free(comm);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    store = store_free(store);
    return folder_remove(folder, NULL);
}

static void path_in(int64_t step, const char *object, char path[256])
{
    (void)snprintf(path, 256, "%s/%s/%s", folder, names[step], object);
}

/* Replaces the first occurrence of `from` in an object by `to`, which is as long. */
static void patch(int64_t step, const char *object, const char *from, const char *to)
{
    Error err = ERROR_INIT;
    char path[256];
    _cleanup_free_ char *text = NULL;
    size_t n;
    path_in(step, object, path);
    assert_int_equal(file_read(path, 1 << 20, &text, &n, &err), 0);
    char *at = memmem(text, n, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    assert_int_equal(file_write(path, text, n, 0, &err), 0);
}

static void cut(int64_t step, const char *object, long n_bytes)
{
    char path[256];
    path_in(step, object, path);
    assert_int_equal(n_bytes < 0 ? unlink(path) : truncate(path, n_bytes), 0);
}

static CheckpointSearch *begin(const CheckpointFacts *own)
{
    Error err = ERROR_INIT;
    CheckpointSearch *s = NULL;
    if (checkpoint_search_new(store, own, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

/* Returns the step of the next checkpoint that is found; -1: none. */
static int64_t next(CheckpointSearch *s)
{
    Error err = ERROR_INIT;
    _cleanup_(manifest_freep) Manifest *m = NULL;
    int r = checkpoint_search_next(s, &m, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    return r > 0 ? manifest_step(m) : -1;
}

static void assert_passed(const CheckpointSearch *s, size_t index, int64_t step, const char *word)
{
    const CheckpointPassed *passed;
    assert_true(index < checkpoint_search_passed(s, &passed));
    assert_string_equal(passed[index].folder, names[step]);
    if (!strstr(passed[index].why.text, word))
        fail_msg("\"%s\" does not say %s", passed[index].why.text, word);
}

/* Tests each way in which the newest checkpoints may be bad. */
static void test_passes_over(void **unused)
{
    (void)unused;
    const CheckpointFacts own = testing_facts(9);
    patch(4, "manifest.json", "\"step\": 4", "\"step\": 5");
    cut(3, "moments/c000001.bin", 100);
    cut(2, "unet/config.json", -1);
    _cleanup_(checkpoint_search_freep) CheckpointSearch *s = begin(&own);
    assert_int_equal(next(s), 1);
    assert_passed(s, 0, 4, "manifest.json");
    assert_passed(s, 1, 3, "moments/c000001.bin");
    assert_passed(s, 2, 2, "unet/config.json");

    /* The restore of this checkpoint fails. */
    Error why = ERROR_INIT;
    (void)error_set(&why, -EBADMSG, "a flipped byte");
    checkpoint_search_reject(s, &why);
    assert_passed(s, 3, 1, "a flipped byte");
    assert_int_equal(next(s), 0);
    assert_int_equal(next(s), -1);
    assert_int_equal(checkpoint_search_generation(s), 7);
}

static void test_finds_the_newest(void **unused)
{
    (void)unused;
    const CheckpointPassed *passed;
    const CheckpointFacts own = testing_facts(9);
    _cleanup_(checkpoint_search_freep) CheckpointSearch *s = begin(&own);
    for (int64_t step = 4; step >= 0; step--)
        assert_int_equal(next(s), step);
    assert_int_equal(next(s), -1);
    assert_int_equal(checkpoint_search_passed(s, &passed), 0);
}

static void test_nothing_there(void **unused)
{
    (void)unused;
    const CheckpointPassed *passed;
    const CheckpointFacts own = testing_facts(9);
    for (int64_t step = 0; step < (int64_t)ELEMENTSOF(names); step++)
        cut(step, "manifest.json", -1);
    _cleanup_(checkpoint_search_freep) CheckpointSearch *s = begin(&own);
    assert_int_equal(next(s), -1);
    assert_int_equal(checkpoint_search_passed(s, &passed), 0);
    assert_int_equal(checkpoint_search_generation(s), 7); /* unfinished checkpoints count here */
}

/* Another job's checkpoints are never used, and the text says why. */
static void test_of_another_job(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    CheckpointFacts other = testing_facts(9);
    other.job_identity.low ^= 1;
    _cleanup_(checkpoint_search_freep) CheckpointSearch *s = begin(&other);
    assert_int_equal(next(s), -1);
    assert_passed(s, 0, 4, "job identity");
    assert_int_equal(checkpoint_search_failed(s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "none of the 5 checkpoints"));
    assert_non_null(strstr(err.text, names[4]));
    CheckpointFacts data = testing_facts(9);
    data.dataset_digest.high ^= 1;
    _cleanup_(checkpoint_search_freep) CheckpointSearch *d = begin(&data);
    assert_int_equal(next(d), -1);
    cut(0, "manifest.json", 10);
    _cleanup_(checkpoint_search_freep) CheckpointSearch *both = begin(&data);
    assert_int_equal(next(both), -1);
    assert_int_equal(checkpoint_search_failed(both, &err), -EBADMSG);
}

/* A newer program's checkpoint is not hidden by an older checkpoint. If the store does not answer, no checkpoint is
 * called bad. */
static void test_says_what_it_cannot_judge(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    Manifest *m = NULL;
    const CheckpointFacts own = testing_facts(9);
    char version[16], newer[16];
    (void)snprintf(version, sizeof(version), "\"v\": %d", MANIFEST_VERSION);
    (void)snprintf(newer, sizeof(newer), "\"v\": %d", MANIFEST_VERSION + 1);
    patch(4, "manifest.json", version, newer);
    _cleanup_(checkpoint_search_freep) CheckpointSearch *s = begin(&own);
    assert_int_equal(checkpoint_search_next(s, &m, &err), -EPROTONOSUPPORT);
    assert_non_null(strstr(err.text, names[4]));

    _cleanup_(checkpoint_search_freep) CheckpointSearch *away = begin(&own);
    atomic_store(&far->refuses, true);
    assert_int_equal(checkpoint_search_next(away, &m, &err), -EHOSTUNREACH);
    atomic_store(&far->refuses, false);
    far_fault("manifest.json", 1, -EIO, 0); /* simulates a bad sector */
    _cleanup_(checkpoint_search_freep) CheckpointSearch *sick = begin(&own);
    assert_int_equal(next(sick), 3);
}

/* A listing that lags behind hides no checkpoint. */
static void test_listing_lags(void **unused)
{
    (void)unused;
    const CheckpointFacts own = testing_facts(9);
    far->hidden = "moments/";
    _cleanup_(checkpoint_search_freep) CheckpointSearch *s = begin(&own);
    assert_int_equal(next(s), 4);
    far->hidden = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_finds_the_newest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_passes_over, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_another_job, setup, teardown),
        cmocka_unit_test_setup_teardown(test_says_what_it_cannot_judge, setup, teardown),
        cmocka_unit_test_setup_teardown(test_listing_lags, setup, teardown),
    };
    log_set_level(LOG_LEVEL_ERROR);
    if (!mkdtemp(folder))
        return 1;
    fixture_open(FIXTURE_SMALL, &fixture);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_close(&fixture);
    return failed;
}
