/* SPDX-License-Identifier: Apache-2.0 */
/* test-checkpoint-crash.c - sends SIGKILL at every fault point of a commit, at every visit of the point, on file://. */
#include "base/test/testing.h"
#include "trainer/checkpoint/test/testing-crash.h"

static const char *const points[] = {
    "checkpoint.copied",
    "checkpoint.object",
    "checkpoint.gathered",
    "checkpoint.manifest.before",
    "checkpoint.manifest.after",
    "checkpoint.settle",
    "checkpoint.retire.manifest",
    "checkpoint.retire.object",
    "store.put.before",
    "store.put.half",
    "store.put.after",
};

static void test_kill_alone(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ELEMENTSOF(points); i++)
        crash_everywhere(points[i], 1, 0, 1);
}

/* Kills one rank of two: the other rank must not hang. Only every seventh visit is tested, since a world of two ranks
 * starts more slowly than one rank. */
static void test_kill_one_of_two(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ELEMENTSOF(points); i++)
        crash_everywhere(points[i], 7, 0, 2);
    static const char *const elsewhere[] = {"checkpoint.copied", "checkpoint.object",
                                            "checkpoint.gathered", "store.put.half"};
    for (size_t i = 0; i < ELEMENTSOF(elsewhere); i++)
        crash_everywhere(elsewhere[i], 7, 1, 2);
}

static void test_kill_blocking(void **unused)
{
    (void)unused;
    crash_blocking(true);
    for (size_t i = 0; i < ELEMENTSOF(points); i++)
        crash_everywhere(points[i], 5, 0, 1);
    crash_everywhere("checkpoint.object", 7, 1, 2);
    crash_blocking(false);
}

static void test_two_generations(void **unused)
{
    (void)unused;
    for (int i = 0; i < 10; i++)
        crash_two_generations();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill_alone),
        cmocka_unit_test(test_kill_one_of_two),
        cmocka_unit_test(test_kill_blocking),
        cmocka_unit_test(test_two_generations),
    };
    crash_open(NULL, FIXTURE_SMALL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    crash_close();
    return failed;
}
