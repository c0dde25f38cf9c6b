/* SPDX-License-Identifier: Apache-2.0 */
/* progress-curves.h - what this controller has seen of the jobs' steps and evaluations, for the live page.
 *
 * The record progress/<job> has only the newest step, so a curve shows only steps since the controller started;
 * followers collect them, too. A job has at most SEEN_POINTS_MAX points: when all are in use, every two neighbours are
 * merged into one point, and further steps join the last point until it is as wide as the other points. Steps that a
 * recovery takes back are forgotten. Only the newest results of an evaluation are kept; a removed record that was
 * missed in a gap of the watch may stay, so a reader asks phases/<job> which of them count.
 *
 * Ownership: curves_new() gives the caller a Seen. NULL is accepted everywhere: nothing is kept.
 * Units:     as report/report.h.
 * Errors:    none. Jobs beyond the limit are not kept.
 */
#pragma once

#include "controller/core/cluster.h"
#include "report/report.h"

/* One evaluation more than phases/<job> has verdicts, because its results come before its verdict. */
enum { SEEN_POINTS_MAX = 160, SEEN_EVALS_MAX = RECORD_EVALS_MAX + 1 };

/* The record of the results of an evaluation. */
typedef struct SeenEval {
    int64_t step;
    char *text;
    size_t n;
} SeenEval;

typedef struct Seen Seen;

Seen *curves_new(int max_jobs);
Seen *curves_free(Seen *seen);
DEFINE_CLEANUP(Seen, curves_free)

/* Notes a record's event. */
void curves_note(Seen *seen, const Event *event);
/* Returns a job's points, sorted by step; borrowed until the next call of curves_note(). */
const ReportPoint *curves_points(const Seen *seen, const char *job, size_t *ret_n);
/* Notes a record evals/<rest>; value NULL: it is gone. */
void curves_note_eval(Seen *seen, const char *rest, const char *value, size_t n);
/* Returns the i-th record of a job that evaluates, by step; NULL: there are no more. Borrowed until the next note. */
const SeenEval *curves_eval(const Seen *seen, const char *job, size_t i);
