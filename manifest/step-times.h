/* SPDX-License-Identifier: Apache-2.0 */
/* step-times.h - how long the steps of a history took, in a bounded number of entries.
 *
 * A clock differs from run to run, so it may stand neither in the state, whose digest must not, nor in the lines of
 * metrics, which are compared and united line by line. It stands in the manifest, which is another one for each save.
 * There it follows the committed history: a restore goes on with the times of the steps that it restores, and those
 * of steps that were taken back are gone.
 *
 * Ownership: a StepTimes is a value; {0} has no step.
 * Units:     *_usec and usec are microseconds, *_sec seconds.
 * Errors:    -EBADMSG: step_times_parse() does not know the text; *ret is as it was.
 * Threads:   any, one at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    STEP_TIMES_MAX = 128, /* entries; when they are full, two become one */
    STEP_TIMES_TEXT_MAX = 64 + 17 * STEP_TIMES_MAX,
};

typedef struct StepTimes {
    int64_t first, n_steps; /* the first step, and how many from there on */
    int64_t width;          /* steps that an entry stands for; the last one may have fewer */
    uint64_t usec[STEP_TIMES_MAX];
} StepTimes;

/* Takes in the time of a step. One that does not follow the last begins anew. */
void step_times_add(StepTimes *t, int64_t step, uint64_t usec);
/* Returns the mean time of the steps of that step's entry; NAN: it is not known. */
double step_times_sec(const StepTimes *t, int64_t step);
/* The text that a manifest keeps; "" without a step. */
void step_times_format(const StepTimes *t, char ret[STEP_TIMES_TEXT_MAX]);
int step_times_parse(const char *text, StepTimes *ret);
