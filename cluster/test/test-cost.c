/* SPDX-License-Identifier: Apache-2.0 */
/* test-cost.c - prices are parsed correctly, and the cost meter is exact to the micro-dollar. */
#include "base/test/testing.h"
#include "cluster/cost.h"

#include <string.h>

#define HOUR_USEC (3600 * USEC_PER_SEC)

static void prices_are_exact_decimals(_unused_ void **state)
{
    static const struct {
        const char *text;
        int64_t price;
    } cases[] = {
        {"12.29", 12290000},
        {"0.000001", 1},
        {"1000", COST_PRICE_MAX},
        {"0", 0},
        {"007.10", 7100000},
        {"1000.1", -1},
        {"99999999999999999999", -1},
        {"0.0000001", -1},
        {".5", -1},
        {"5.", -1},
        {"", -1},
        {".", -1},
        {"1.2.3", -1},
        {"-1", -1},
        {"1e3", -1},
        {"$4", -1},
        {"4,5", -1},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        assert_int_equal(cost_parse_price(cases[i].text, strlen(cases[i].text)), cases[i].price);
}

static void the_first_word_that_fits_is_the_price(_unused_ void **state)
{
    static const char list[] = "p5-spot=3.5, p5*=12.29,,broken,=4,x=,*=1";
    assert_int_equal(cost_find_price(list, "p5-spot"), 3500000);
    assert_int_equal(cost_find_price(list, "p5.48xlarge"), 12290000);
    assert_int_equal(cost_find_price(list, "broken"), 1000000);
    assert_int_equal(cost_find_price(list, ""),
                     1000000); /* the price of a node without the label */
    assert_int_equal(cost_find_price("p5=3", ""), 0);
    assert_int_equal(cost_find_price("p5=3", "p50"), 0);
    assert_int_equal(cost_find_price("", "p5"), 0);
}

static void cost_is_exact_and_never_overflows(_unused_ void **state)
{
    assert_int_equal(cost_of(36 * COST_DOLLAR, USEC_PER_SEC), 10000);
    /* At this rate 100 us cost one micro-dollar. */
    assert_int_equal(cost_of(36 * COST_DOLLAR, 100), 1);
    assert_int_equal(cost_of(36 * COST_DOLLAR, 99), 0);
    assert_int_equal(cost_of(1, HOUR_USEC - 1), 0);
    assert_int_equal(cost_of(1, HOUR_USEC), 1);
    assert_int_equal(cost_of(7, 365 * 24 * HOUR_USEC), 7 * 365 * 24);
    /* the highest rate, for a little less than an hour, for a year, and until the sum overflows */
    assert_int_equal(cost_of(COST_RATE_MAX, HOUR_USEC - 1), COST_RATE_MAX - 4552);
    assert_int_equal(cost_of(COST_RATE_MAX, 8766 * HOUR_USEC), COST_RATE_MAX * 8766);
    assert_int_equal(cost_of(COST_RATE_MAX, UINT64_MAX), COST_MAX);
    /* A rate from a record may be out of range. */
    assert_int_equal(cost_of(INT64_MAX, HOUR_USEC), COST_RATE_MAX);
    assert_int_equal(cost_of(-5, HOUR_USEC), 0);
    assert_int_equal(cost_add(COST_MAX, COST_MAX), COST_MAX);
}

/* Readings add up even if the clock is set back, and lost costs are part of the spent costs. */
static void a_meter_counts_what_was_lost_beside_what_was_spent(_unused_ void **state)
{
    CostMeter meter = {0};
    cost_meter_read(&meter, 5, true); /* the meter does not run yet */
    assert_int_equal(meter.spent, 0);
    cost_meter_run(&meter, 3600 * COST_DOLLAR, 10 * USEC_PER_SEC); /* $1 a second */
    cost_meter_read(&meter, 20 * USEC_PER_SEC, false);
    cost_meter_read(&meter, 15 * USEC_PER_SEC, true); /* the clock was set back */
    cost_meter_read(&meter, 16 * USEC_PER_SEC, true);
    assert_int_equal(meter.spent, 11 * COST_DOLLAR);
    assert_int_equal(meter.lost, COST_DOLLAR);
    cost_meter_lose(&meter, 2 * USEC_PER_SEC);
    assert_int_equal(meter.lost, 3 * COST_DOLLAR);
    cost_meter_lose(&meter, 100 * USEC_PER_SEC); /* lost costs are limited to the spent costs */
    assert_int_equal(meter.lost, 11 * COST_DOLLAR);
    cost_meter_run(&meter, 0, 17 * USEC_PER_SEC);
    cost_meter_read(&meter, 99 * USEC_PER_SEC, false);
    assert_int_equal(meter.spent, 11 * COST_DOLLAR);
}

static void estimates_are_by_the_present_pace(_unused_ void **state)
{
    CostView view;
    PhaseRecord phase = {
        .phase = PHASE_RUNNING,
        .cost = {.rate = 36 * COST_DOLLAR, .since_usec = USEC_PER_SEC, .spent = 5, .lost = 2}};
    ProgressRecord progress = {.step = 40, .steps = 100, .step_sec = 0.5, .samples_per_sec = 64};
    cost_look(&phase, &progress, 3 * USEC_PER_SEC, &view);
    assert_true(view.is_known);
    assert_int_equal(view.spent, 20005);
    assert_int_equal(view.lost, 2);
    assert_int_equal(view.rate, 36 * COST_DOLLAR);
    assert_int_equal(view.per_1000_steps, 5 * COST_DOLLAR);
    assert_int_equal(view.per_billion_samples, 156250 * COST_DOLLAR);
    assert_int_equal(view.to_end, 300000); /* 60 steps of half a second are left */

    progress.samples_seen = 40 * 16; /* step_sec is ignored: 64 samples a second, 16 per step */
    cost_look(&phase, &progress, 3 * USEC_PER_SEC, &view);
    assert_int_equal(view.per_1000_steps, 2500000);
    assert_int_equal(view.to_end, 150000);

    phase.phase = PHASE_RECOVERING;
    cost_look(&phase, NULL, 3 * USEC_PER_SEC, &view);
    assert_int_equal(view.lost, 20002);
    assert_int_equal(view.per_1000_steps, -1);
    assert_int_equal(view.to_end, -1);
    phase.cost.since_usec = 0; /* the job has ended */
    cost_look(&phase, &progress, 3 * USEC_PER_SEC, &view);
    assert_true(view.is_known && view.spent == 5 && view.rate == 0 && view.to_end == -1);
    phase.cost = (CostMeter){0};
    cost_look(&phase, &progress, 3 * USEC_PER_SEC, &view);
    assert_false(view.is_known);

    phase.cost = (CostMeter){.rate = INT64_MAX, .since_usec = 1};
    progress = (ProgressRecord){.steps = INT64_MAX, .step_sec = 1e300, .samples_per_sec = 1e-300};
    cost_look(&phase, &progress, UINT64_MAX, &view); /* a damaged record causes no crash */
    assert_int_equal(view.spent, COST_MAX);
    assert_int_equal(view.to_end, -1);
    assert_int_equal(view.per_billion_samples, -1);
}

static void money_is_written_as_people_read_it(_unused_ void **state)
{
    static const struct {
        int64_t money;
        const char *text;
    } cases[] = {
        {-1, "-"},
        {0, "$0.0000"},
        {49, "$0.0000"},
        {50, "$0.0001"},
        {999949, "$0.9999"},
        {999950, "$1.00"},
        {12299999, "$12.30"},
        {999994999, "$999.99"},
        {999995000, "$1,000"},
        {INT64_C(1234567890000), "$1,234,568"},
        {COST_MAX, "$4,611,686,018,427"},
    };
    char text[COST_TEXT_BYTES];
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        assert_string_equal(cost_text(cases[i].money, text), cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prices_are_exact_decimals),
        cmocka_unit_test(the_first_word_that_fits_is_the_price),
        cmocka_unit_test(cost_is_exact_and_never_overflows),
        cmocka_unit_test(a_meter_counts_what_was_lost_beside_what_was_spent),
        cmocka_unit_test(estimates_are_by_the_present_pace),
        cmocka_unit_test(money_is_written_as_people_read_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
