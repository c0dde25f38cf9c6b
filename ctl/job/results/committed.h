/* SPDX-License-Identifier: Apache-2.0 */
/* committed.h - reads the metrics of a job's history from the objects that the newest committed checkpoint lists. The
 * hash of each object is checked before use.
 *
 * Units: steps. Threads: the main thread.
 * Ownership: the arrays of CommittedMetrics are the caller's to free().
 * Errors:    -EHOSTUNREACH: the store does not answer; -ENOMEM.
 * Source:    docs/reference/manifest.md.
 */
#pragma once

#include "manifest/manifest.h"

typedef struct MetricsLine {
    int64_t step;
    double loss, lr, grad_norm; /* NAN: the line has no such value */
    double sec; /* duration of the step, or the mean duration of neighbouring steps; NAN: unknown */
} MetricsLine;

typedef struct CommittedMetrics {
    MetricsLine *lines; /* one line per step, in order; lost steps have no line */
    size_t n_lines;
    int64_t *saved; /* steps of the newest 65 checkpoints, and the last steps of older segments */
    size_t n_saved;
    int64_t n_lost;                /* steps of the history without a line */
    int64_t first_lost, last_lost; /* the first and the last lost step */
    char why[200];                 /* the error of the first lost segment */
} CommittedMetrics;

/* Reads the metrics. If an object is missing or damaged, only its own steps are lost. */
int committed_metrics(Store *store, const Manifest *manifest, CommittedMetrics *ret, Error *err);
