/* SPDX-License-Identifier: Apache-2.0 */
/* test-plan-set.c - the plan set of a submission (train.plans "auto") if ranks of two worlds put it at the same time,
 * with an atomic put-if-absent and without one. There are no libraries, so the set is plain. */
#include "trainer/session/plan-set.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "store/test/testing-far.h"

#include <string.h>

#define KEY "plans/auto-one-plain.json"
#define MADE "{\"plain\":true,\"version\":1}"
/* the other world's set: the JSON of MADE, written with one more space */
#define THEIRS "{\"plain\":true, \"version\":1}"

static char folder[] = "/tmp/test-plan-set-XXXXXX";
/* The fault point at which the other world's rank 0 puts its set. */
static const char *other_puts_at;

int __real_fault(const char *point);
int __wrap_fault(const char *point);

int __wrap_fault(const char *point)
{
    if (other_puts_at && strcmp(point, other_puts_at) == 0) {
        char path[128];
        Error err = ERROR_INIT;
        (void)snprintf(path, sizeof(path), "%s/plans", folder);
        assert_int_equal(folder_make(path, &err), 0);
        (void)snprintf(path, sizeof(path), "%s/" KEY, folder);
        assert_int_equal(file_write(path, THEIRS, strlen(THEIRS), 0, &err), 0);
        other_puts_at = NULL;
    }
    return __real_fault(point);
}

/* Checks that rank 0 takes the set `taken` in an empty folder, which then has the set `there`. */
static void expect_taken(bool atomic, const char *point, const char *taken, const char *there)
{
    char uri[128];
    Error err = ERROR_INIT;
    _cleanup_free_ char *set = NULL, *lies = NULL;
    Store *store;
    (void)snprintf(uri, sizeof(uri), "far://%s", folder);
    assert_int_equal(store_open(uri, &store, &err), 0);
    far->no_if_absent = !atomic;
    other_puts_at = point;
    const DeviceOptions device = {.kind = DEVICE_CUDA, .type = DATA_BF16};
    const PlanSetNeeds needs = {
        .store = store, .submission = "one", .device = &device, .tune_sec = 1, .wait_sec = 1};
    if (plan_set_take(&needs, &set, &err) < 0)
        fail_msg("%d: %s", err.exit, err.text);
    assert_null(other_puts_at);
    assert_string_equal(set, taken);
    assert_int_equal(store_get(store, KEY, 1024, &lies, NULL, &err), 0);
    assert_string_equal(lies, there);
    assert_int_equal(store_delete(store, KEY, &err), 0);
    (void)store_free(store);
}

/* If another set exists when rank 0 puts its own set, rank 0 takes the other set. */
static void a_set_put_before_wins(_unused_ void **state)
{
    expect_taken(true, "plans.made", THEIRS, THEIRS);
}

/* The store has no put-if-absent. After this rank 0 has put its set, the other world's rank 0 puts another set under
 * the same key. This rank 0 then takes the other set, which remains. */
static void the_later_of_two_puts_wins_where_both_are_done(_unused_ void **state)
{
    expect_taken(false, "plans.put", THEIRS, THEIRS);
}

/* If the store refuses a second put, the set is not read back, since it cannot have been replaced. */
static void an_atomic_put_is_final(_unused_ void **state)
{
    expect_taken(true, "plans.put", MADE, THEIRS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_put_before_wins),
        cmocka_unit_test(the_later_of_two_puts_wins_where_both_are_done),
        cmocka_unit_test(an_atomic_put_is_final),
    };
    far_begin();
    if (!mkdtemp(folder) || setenv("SDTRAIN_CUDA_MODULE", "/nonexistent/module.so", 1) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    Error err = ERROR_INIT;
    return folder_remove(folder, &err) < 0 || failed;
}
