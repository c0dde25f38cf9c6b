/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-s3.c - checkpoints on a real S3 server: SIGKILL at the steps of a commit, also in the middle of a
 * multipart upload, and two generations that continue from one checkpoint.
 *
 * With SDTRAIN_CHAOS_FULL every visit of every fault point is tested, otherwise a few visits of each. On a server
 * without put-if-absent (Swift, which is slow) only the cases are tested in which put-if-absent matters. */
#include "base/test/testing.h"
#include "trainer/checkpoint/test/testing-crash.h"

#include <string.h>

static bool full(void) { return getenv("SDTRAIN_CHAOS_FULL") != NULL; }

static bool puts_if_absent(const char *uri)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    bool does = false;
    if (store_open(uri, &store, &err) < 0 || store_puts_if_absent(store, &does, &err) < 0)
        fail_msg("%s", err.text);
    return does;
}

static void test_without_if_absent(void **unused)
{
    (void)unused;
    assert_true(crash_case("checkpoint.manifest.before", 1, 0, 1, NULL));
    assert_true(crash_case("checkpoint.manifest.after", 1, 0, 1, NULL));
}

static void test_kill(void **unused)
{
    (void)unused;
    static const struct {
        const char *point;
        int visit; /* number of the visit at which the process is killed */
    } cases[] = {
        {"checkpoint.copied", 1},          {"checkpoint.object", 4},
        {"checkpoint.gathered", 2},        {"checkpoint.manifest.before", 2},
        {"checkpoint.manifest.after", 1},  {"checkpoint.settle", 1},
        {"checkpoint.retire.manifest", 1}, {"checkpoint.retire.object", 1},
        {"store.put.before", 9},           {"store.put.half", 3},
        {"store.put.after", 12},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        if (full())
            crash_everywhere(cases[i].point, 1, 0, 1);
        else if (!crash_case(cases[i].point, cases[i].visit, 0, 1, NULL))
            fail_msg("%s is not visited %d times", cases[i].point, cases[i].visit);
}

static void test_kill_one_of_two(void **unused)
{
    (void)unused;
    static const char *const points[] = {"checkpoint.object", "checkpoint.manifest.after"};
    for (size_t i = 0; i < ELEMENTSOF(points); i++)
        if (full())
            crash_everywhere(points[i], 3, 0, 2);
        else
            assert_true(crash_case(points[i], 2, 0, 2, NULL));
}

/* The puts of the large weight files are left unfinished: parts were uploaded, but there is no object. */
static void test_kill_in_multipart(void **unused)
{
    (void)unused;
    crash_close();
    crash_open(getenv("SDTRAIN_TEST_S3_URI"), FIXTURE_LARGE);
    size_t n_unfinished;
    for (int visit = 1; visit <= (full() ? 3 : 2); visit++) {
        assert_true(crash_case("store.put.parts", visit, 0, 1, &n_unfinished));
        print_message("killed at visit %d: %zu unfinished\n", visit, n_unfinished);
        assert_true(n_unfinished > 0);
    }
}

static void test_two_generations(void **unused)
{
    (void)unused;
    for (int i = 0; i < (full() ? 10 : 1); i++)
        crash_two_generations();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_kill_one_of_two),
        cmocka_unit_test(test_two_generations),
        cmocka_unit_test(test_kill_in_multipart),
    };
    const struct CMUnitTest without_if_absent[] = {
        cmocka_unit_test(test_without_if_absent),
        cmocka_unit_test(test_two_generations),
    };
    const char *uri = getenv("SDTRAIN_TEST_S3_URI");
    if (!uri || setenv("SDTRAIN_S3_PART_BYTES", "5M", 1) < 0) {
        (void)fprintf(stderr,
                      "SDTRAIN_TEST_S3_URI is not set: run it with tests/s3/with-gateway\n");
        return 2;
    }
    const bool whole = full() || puts_if_absent(uri);
    crash_open(uri, FIXTURE_SMALL);
    int failed = whole ? cmocka_run_group_tests(tests, NULL, NULL)
                       : cmocka_run_group_tests(without_if_absent, NULL, NULL);
    crash_close();
    return failed;
}
