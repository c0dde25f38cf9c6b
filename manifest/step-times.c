/* SPDX-License-Identifier: Apache-2.0 */
/* step-times.c - see step-times.h. */
#include "manifest/step-times.h"

#include "base/macro.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* USEC_MAX is the largest time of an entry: 30 years, 15 digits. USEC_MAX and STEPS_MAX are so
 * small that no sum or product in this file overflows. */
#define USEC_MAX UINT64_C(999999999999999)
#define STEPS_MAX (INT64_C(1) << 56)

static size_t n_entries(const StepTimes *t)
{
    return t->n_steps > 0 ? (size_t)((t->n_steps - 1) / t->width + 1) : 0;
}

static void merge_pairs(StepTimes *t)
{
    for (size_t i = 0; i < STEP_TIMES_MAX / 2; i++)
        t->usec[i] = MIN(t->usec[2 * i] + t->usec[2 * i + 1], USEC_MAX);
    for (size_t i = STEP_TIMES_MAX / 2; i < STEP_TIMES_MAX; i++)
        t->usec[i] = 0;
    t->width *= 2;
}

void step_times_add(StepTimes *t, int64_t step, uint64_t usec)
{
    if (t->n_steps == 0 || step != t->first + t->n_steps)
        *t = (StepTimes){.first = step, .width = 1};
    if (t->n_steps == t->width * STEP_TIMES_MAX)
        merge_pairs(t);
    uint64_t *entry = &t->usec[t->n_steps / t->width];
    *entry = MIN(*entry + MIN(usec, USEC_MAX), USEC_MAX);
    t->n_steps++;
}

double step_times_sec(const StepTimes *t, int64_t step)
{
    if (step < t->first || step - t->first >= t->n_steps)
        return NAN;
    const int64_t entry = (step - t->first) / t->width;
    return (double)t->usec[entry] * 1e-6 / (double)MIN(t->width, t->n_steps - entry * t->width);
}

void step_times_format(const StepTimes *t, char ret[STEP_TIMES_TEXT_MAX])
{
    *ret = '\0';
    if (t->n_steps == 0)
        return;
    int n = snprintf(ret, STEP_TIMES_TEXT_MAX, "%" PRId64 " %" PRId64 " %" PRId64, t->first,
                     t->n_steps, t->width);
    for (size_t i = 0; i < n_entries(t); i++)
        n += snprintf(ret + n, STEP_TIMES_TEXT_MAX - (size_t)n, " %" PRIu64, t->usec[i]);
    assert(n > 0 && n < STEP_TIMES_TEXT_MAX);
}

int step_times_parse(const char *text, StepTimes *ret)
{
    StepTimes t = {0};
    int end = 0;
    int n =
        sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64 "%n", &t.first, &t.n_steps, &t.width, &end);
    if (n != 3 || t.first < 0 || t.first > STEPS_MAX || t.n_steps < 1 || t.n_steps > STEPS_MAX ||
        t.width < 1 || t.width > STEPS_MAX || n_entries(&t) > STEP_TIMES_MAX)
        return -EBADMSG;
    for (size_t i = 0; i < n_entries(&t); i++) {
        int used = 0;
        text += end;
        if (sscanf(text, " %15" SCNu64 "%n", &t.usec[i], &used) != 1 ||
            t.usec[i] > USEC_MAX) /* sscanf() accepts a minus sign, and then gives a huge value */
            return -EBADMSG;
        end = used;
    }
    if (text[end])
        return -EBADMSG;
    *ret = t;
    return 0;
}
