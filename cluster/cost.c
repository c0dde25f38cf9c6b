/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - the cost figures that are shown to people; see cost.h. */
#include "cluster/cost.h"

#include "cluster/pace.h"

#include <inttypes.h>
#include <stdio.h>

/* Estimates money at the present rate, or returns -1 if the result is out of range. Estimates are for display only and
 * are never summed, so floating point is exact enough. */
static int64_t estimate(int64_t rate, double seconds)
{
    double money = (double)rate * seconds / 3600;
    return money >= 0 && money < (double)COST_MAX ? (int64_t)(money + 0.5) : -1;
}

void cost_look(const PhaseRecord *phase, const ProgressRecord *progress, uint64_t now_usec,
               CostView *ret)
{
    CostMeter meter = phase->cost;
    cost_meter_read(&meter, now_usec, phase->phase == PHASE_RECOVERING);
    *ret = (CostView){.is_known = meter.since_usec || meter.spent > 0,
                      .spent = meter.spent,
                      .lost = meter.lost,
                      .rate = meter.since_usec ? CLAMP(meter.rate, 0, COST_RATE_MAX) : 0,
                      .per_1000_steps = -1,
                      .per_billion_samples = -1,
                      .to_end = -1};
    if (!progress || ret->rate == 0)
        return;
    const double step_sec = progress_pace_sec(progress);
    if (step_sec > 0)
        ret->per_1000_steps = estimate(ret->rate, step_sec * 1000);
    if (progress->samples_per_sec > 0)
        ret->per_billion_samples = estimate(ret->rate, 1e9 / progress->samples_per_sec);
    if (step_sec > 0 && progress->steps >= progress->step)
        ret->to_end = estimate(ret->rate, step_sec * (double)(progress->steps - progress->step));
}

const char *cost_text(int64_t money, char text[COST_TEXT_BYTES])
{
    const int64_t small = (money / 10 + 5) / 10; /* in $0.0001, rounded */
    const int64_t cents = (money + 5000) / 10000;
    char digits[24];
    if (money < 0)
        (void)snprintf(text, COST_TEXT_BYTES, "-");
    else if (small < 10000)
        (void)snprintf(text, COST_TEXT_BYTES, "$0.%04" PRId64, small);
    else if (cents < 100000)
        (void)snprintf(text, COST_TEXT_BYTES, "$%" PRId64 ".%02" PRId64, cents / 100, cents % 100);
    if (money < 0 || small < 10000 || cents < 100000)
        return text;
    int n = snprintf(digits, sizeof(digits), "%" PRId64, (money + COST_DOLLAR / 2) / COST_DOLLAR);
    int n_text = 0;
    text[n_text++] = '$';
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[n_text++] = ',';
        text[n_text++] = digits[i];
    }
    text[n_text] = '\0';
    return text;
}
