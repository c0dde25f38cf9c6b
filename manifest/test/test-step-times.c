/* SPDX-License-Identifier: Apache-2.0 */
/* test-step-times.c - the times of steps are stored in few entries and kept through a restart, and
 * malformed texts are refused. */
#include "base/test/testing.h"

#include "base/macro.h"
#include "manifest/step-times.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void each_step_has_its_own_while_there_is_room(_unused_ void **state)
{
    StepTimes t = {0};
    for (int64_t step = 1; step <= STEP_TIMES_MAX; step++)
        step_times_add(&t, step, (uint64_t)step * USEC_PER_SEC);
    for (int64_t step = 1; step <= STEP_TIMES_MAX; step++)
        assert_true(step_times_sec(&t, step) == (double)step);
    assert_true(isnan(step_times_sec(&t, 0)));
    assert_true(isnan(step_times_sec(&t, STEP_TIMES_MAX + 1)));
}

/* However long a job runs, the sum of its times is kept, and each entry gives the mean time of its
 * steps. */
static void many_steps_are_means(_unused_ void **state)
{
    StepTimes t = {0};
    const int64_t n = 1000000;
    for (int64_t step = 1; step <= n; step++)
        step_times_add(&t, step, step <= n / 2 ? 1000 : 3000);
    double sum = 0;
    for (int64_t step = 1; step <= n; step++)
        sum += step_times_sec(&t, step);
    assert_true(fabs(sum - 2000) < 1e-3);
    assert_true(fabs(step_times_sec(&t, 1) - 1e-3) < 1e-12);
    assert_true(fabs(step_times_sec(&t, n) - 3e-3) < 1e-12);
    char text[STEP_TIMES_TEXT_MAX];
    step_times_format(&t, text);
    assert_true(strlen(text) < 2000);
}

static void a_restart_goes_on_with_the_steps_that_count(_unused_ void **state)
{
    StepTimes t = {0}, again = {0};
    char text[STEP_TIMES_TEXT_MAX];
    for (int64_t step = 11; step <= 20; step++)
        step_times_add(&t, step, 1000);
    step_times_format(&t, text);
    assert_string_equal(text, "11 10 1 1000 1000 1000 1000 1000 1000 1000 1000 1000 1000");
    assert_int_equal(step_times_parse(text, &again), 0);
    for (int64_t step = 21; step <= 400; step++)
        step_times_add(&again, step, 5000);
    assert_true(step_times_sec(&again, 11) == 1e-3);
    assert_true(step_times_sec(&again, 400) == 5e-3);
    step_times_format(&again, text);
    StepTimes back;
    assert_int_equal(step_times_parse(text, &back), 0);
    assert_memory_equal(&back, &again, sizeof(back));
    /* step 401 is missing: the times of all steps before 402 are dropped */
    step_times_add(&back, 402, 7000);
    assert_true(isnan(step_times_sec(&back, 400)));
    assert_true(fabs(step_times_sec(&back, 402) - 7e-3) < 1e-12);
}

static void times_beyond_all_measure_have_room(_unused_ void **state)
{
    StepTimes t = {0}, back;
    char text[STEP_TIMES_TEXT_MAX];
    for (int64_t step = 1; step <= 5 * STEP_TIMES_MAX / 2; step++)
        step_times_add(&t, step, UINT64_MAX);
    step_times_format(&t, text);
    assert_int_equal(step_times_parse(text, &back), 0);
    assert_memory_equal(&back, &t, sizeof(back));
}

static void text_that_it_does_not_know_is_refused(_unused_ void **state)
{
    const char *bad[] = {"",
                         "1",
                         "1 1 1",
                         "1 2 1 5",
                         "1 1 1 5 5",
                         "1 0 1",
                         "1 1 0 5",
                         "-1 1 1 5",
                         "1 129 1 5",
                         "1 1 1 -5",
                         "1 1 1 5x",
                         "1 1 1 1000000000000000",
                         "1 9223372036854775807 9223372036854775807 5",
                         "later"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        StepTimes t = {.first = 5};
        assert_int_equal(step_times_parse(bad[i], &t), -EBADMSG);
        assert_int_equal(t.first, 5);
    }
    StepTimes none = {0};
    char text[STEP_TIMES_TEXT_MAX] = "x";
    step_times_format(&none, text);
    assert_string_equal(text, "");
    assert_true(isnan(step_times_sec(&none, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_has_its_own_while_there_is_room),
        cmocka_unit_test(many_steps_are_means),
        cmocka_unit_test(a_restart_goes_on_with_the_steps_that_count),
        cmocka_unit_test(times_beyond_all_measure_have_room),
        cmocka_unit_test(text_that_it_does_not_know_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
