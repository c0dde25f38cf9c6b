/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - logs a line every 10 s about an encoding's progress: samples, rate, remaining time, rejects, cost.
 *
 * Ownership: a value. Errors: none. Threads: one.
 * Units:     samples; bytes of raw units; microseconds of clock_boottime_usec().
 */
#pragma once

#include "prep/encode/report.h"

enum { PROGRESS_LINE_MAX = 700 };

typedef struct Progress {
    uint64_t bytes, all_bytes; /* bytes of raw units that are done, and of all raw units */
    uint64_t bytes_before;     /* the part of `bytes` that was done before this run */
    int64_t n_looked, n_rejected;
    Reasons reasons;
    InputTotals input; /* totals of the units that are finished */
    size_t n_aside;    /* number of units that are set aside */
    double cost_per_hour;
    uint64_t start_usec, told_usec;
} Progress;

void progress_begin(Progress *progress, uint64_t all_bytes, double cost_per_hour);
/* Counts a part that this run made. */
void progress_add(Progress *progress, const PartReport *part);
/* The part in progress, which was not added yet. */
typedef struct ProgressPart {
    const PartReport *part; /* NULL: no part is in progress */
    double fraction;        /* fraction of the part's unit that was read */
    uint64_t unit_bytes;
} ProgressPart;

/* Logs a line if 10 s have passed since the last one, or if `always` is set. */
void progress_report(Progress *progress, const ProgressPart *under_way, bool always);
/* Writes the line that would be logged at the time `now`. */
const char *progress_format(const Progress *progress, const ProgressPart *under_way, uint64_t now,
                            char text[PROGRESS_LINE_MAX]);
