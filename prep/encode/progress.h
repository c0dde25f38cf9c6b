/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h - a line each 10 s on how far an encoding is: samples, rate, what is left, rejects, cost.
 *
 * Ownership: a value.
 * Units:     samples; bytes of raw units; microseconds of clock_boottime_usec().
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "prep/encode/report.h"

enum { PROGRESS_LINE_MAX = 700 };

typedef struct Progress {
    uint64_t bytes, all_bytes; /* of raw units; what was done before this run counts as done */
    uint64_t bytes_before;     /* and is this much */
    int64_t n_looked, n_rejected;
    Reasons reasons;
    InputTotals input; /* of the units that are over */
    size_t n_aside;    /* units that are set aside */
    double cost_per_hour;
    uint64_t start_usec, told_usec;
} Progress;

void progress_begin(Progress *progress, uint64_t all_bytes, double cost_per_hour);
/* Counts a part that this run made. */
void progress_add(Progress *progress, const PartReport *part);
/* The part that is under way, and not yet added. */
typedef struct ProgressPart {
    const PartReport *part; /* NULL: none */
    double fraction;        /* that was read of a unit of unit_bytes */
    uint64_t unit_bytes;
} ProgressPart;

/* Logs a line if 10 s have gone by, or in any case. */
void progress_report(Progress *progress, const ProgressPart *under_way, bool always);
/* The line as it would be told at `now`. */
const char *progress_format(const Progress *progress, const ProgressPart *under_way, uint64_t now,
                            char text[PROGRESS_LINE_MAX]);
