/* SPDX-License-Identifier: Apache-2.0 */
/* committed.h - the metrics of a job's history, as the newest committed checkpoint lists them, for
 * the report. Each object is verified by its hash before it is used.
 *
 * Ownership: the arrays of CommittedMetrics are the caller's to free().
 * Units:     steps.
 * Errors:    -EHOSTUNREACH: the store does not answer; -ENOMEM.
 * Threads:   the main thread.
 * Source:    docs/reference/manifest.md.
 */
#pragma once

#include "manifest/manifest.h"

typedef struct MetricsLine {
    int64_t step;
    double loss, lr, grad_norm; /* NAN: the line does not have it */
    double sec; /* what the step took, or the mean of its neighbourhood; NAN: unknown */
} MetricsLine;

typedef struct CommittedMetrics {
    MetricsLine *lines; /* one per step, in order; steps that are lost have none */
    size_t n_lines;
    int64_t *saved; /* steps of checkpoints: the newest 65, and where older segments end */
    size_t n_saved;
    int64_t n_lost;                /* steps of the history without a line */
    int64_t first_lost, last_lost; /* the first and the last of them */
    char why[200];                 /* what is wrong with the first segment that is lost */
} CommittedMetrics;

/* An object that is missing or does not verify costs only its own steps. */
int committed_metrics(Store *store, const Manifest *manifest, CommittedMetrics *ret, Error *err);
