/* SPDX-License-Identifier: Apache-2.0 */
/* step-times.h - how long the steps of a history took, in a bounded number of entries.
 *
 * Measured times differ from run to run. So they must not be part of the state, whose digest must be the same in all
 * runs, nor of the metrics lines, which are compared and merged line by line. The manifest, which differs in each save
 * anyway, keeps the times. There the times follow the committed history: a restore continues with the times of the
 * steps that it restores, and drops the times of steps that were rolled back.
 *
 * Ownership: a StepTimes is a value; {0} has no step.
 * Units:     *_usec and usec are microseconds, *_sec seconds.
 * Errors:    -EBADMSG: step_times_parse() does not know the text; *ret is unchanged.
 * Threads:   any, one at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    /* the largest number of entries; when all are used, each two neighbours are merged */
    STEP_TIMES_MAX = 128,
    STEP_TIMES_TEXT_MAX = 64 + 17 * STEP_TIMES_MAX,
};

typedef struct StepTimes {
    int64_t first, n_steps; /* the first step, and the number of steps from it on */
    int64_t width; /* the number of steps that an entry covers; the last entry may cover fewer */
    uint64_t usec[STEP_TIMES_MAX];
} StepTimes;

/* Adds the time of a step. A step that does not follow the last step starts a new series. */
void step_times_add(StepTimes *t, int64_t step, uint64_t usec);
/* Returns the mean time of the steps in the entry of the given step, or NAN if no entry covers the
 * step. */
double step_times_sec(const StepTimes *t, int64_t step);
/* Writes the text that a manifest keeps: "" if there is no step. */
void step_times_format(const StepTimes *t, char ret[STEP_TIMES_TEXT_MAX]);
int step_times_parse(const char *text, StepTimes *ret);
