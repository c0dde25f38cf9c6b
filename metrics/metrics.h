/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h - counters, gauges, summaries and histograms with labels, written in the format of Prometheus.
 *
 * A program lists its families in a table; a family's index in the table is its id. A series begins with its first
 * value. Gauges are valid for one page: for each page the program removes all gauges and sets them again, so that
 * objects that no longer exist are not shown. Counters, summaries and histograms stay until metrics_forget().
 *
 * Ownership: metrics_new() gives the caller a Metrics, which borrows the table for its life. Label values are copied.
 *            All functions accept NULL and then count nothing.
 * Units:     Prometheus' base units (seconds, bytes, ratio), which the family's name ends in.
 * Errors:    counting never fails. Values of series beyond METRICS_SERIES_MAX are dropped and counted
 *            (metrics_dropped).
 * Threads:   loop thread only.
 * Source:    Prometheus text exposition format 0.0.4.
 */
#pragma once

#include "base/cleanup.h"
#include "base/macro.h"

typedef enum MetricKind {
    METRIC_GAUGE,
    METRIC_COUNTER,
    METRIC_SUMMARY, /* has only a sum and a count */
    METRIC_HISTOGRAM,
} MetricKind;

enum { METRIC_LABELS_MAX = 3, METRICS_SERIES_MAX = 20000 };

typedef struct MetricFamily {
    const char *name; /* "sdtrain_..."; names of counters end in _total */
    MetricKind kind;
    const char *help;
    const char *labels[METRIC_LABELS_MAX];
    const double *bounds; /* for a HISTOGRAM: upper bounds, ascending; +Inf is added */
    size_t n_bounds;
    unsigned group; /* bit of a group that a page may omit; 0: on every page */
} MetricFamily;

/* Values of the labels, in the order of the family's labels. */
typedef struct MetricLabels {
    const char *values[METRIC_LABELS_MAX];
} MetricLabels;
#define LABELS(...) ((MetricLabels){{__VA_ARGS__}})
#define NO_LABELS ((MetricLabels){{NULL}})

typedef struct Metrics Metrics;

Metrics *metrics_new(const MetricFamily *table, size_t n);
Metrics *metrics_free(Metrics *metrics);
DEFINE_CLEANUP(Metrics, metrics_free)

/* Sets a GAUGE, or a COUNTER whose value is counted elsewhere. */
void metrics_set(Metrics *metrics, int family, MetricLabels labels, double value);
/* Makes a series (not a GAUGE) with value 0, so that Prometheus sees its first real value as an increase. */
void metrics_know(Metrics *metrics, int family, MetricLabels labels);
/* Adds to a COUNTER. */
void metrics_add(Metrics *metrics, int family, MetricLabels labels, double by);
/* Adds one value to a HISTOGRAM. */
void metrics_observe(Metrics *metrics, int family, MetricLabels labels, double value);
/* Adds n values that have this sum to a SUMMARY. */
void metrics_observe_sum(Metrics *metrics, int family, MetricLabels labels, double sum, uint64_t n);

void metrics_forget_gauges(Metrics *metrics);
/* Removes every series that has this label with this value. */
void metrics_forget(Metrics *metrics, const char *label, const char *value);
uint64_t metrics_dropped(const Metrics *metrics);

/* Writes every family that has series. A failed write shows in ferror(). */
void metrics_write(const Metrics *metrics, unsigned groups, FILE *to);
