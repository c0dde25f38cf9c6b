/* SPDX-License-Identifier: Apache-2.0 */
/* progress-curves.h - what this controller has seen of the jobs' steps, for the curves of the live page.
 *
 * The record progress/<job> has only the newest step, so a curve shows only steps since the controller started;
 * followers collect them, too. A job has at most SEEN_POINTS_MAX points: when all are in use, every two neighbours are
 * merged into one point, and further steps join the last point until it is as wide as the other points. Steps that a
 * recovery takes back are forgotten.
 *
 * Ownership: curves_new() gives the caller a Seen. NULL is accepted everywhere: nothing is kept.
 * Units:     as report/report.h.
 * Errors:    none. Jobs beyond the limit are not kept.
 */
#pragma once

#include "controller/core/cluster.h"
#include "report/report.h"

enum { SEEN_POINTS_MAX = 160 };

typedef struct Seen Seen;

Seen *curves_new(int max_jobs);
Seen *curves_free(Seen *seen);
DEFINE_CLEANUP(Seen, curves_free)

/* Notes a record's event. */
void curves_note(Seen *seen, const Event *event);
/* Returns a job's points, sorted by step; borrowed until the next call of curves_note(). */
const ReportPoint *curves_points(const Seen *seen, const char *job, size_t *ret_n);
