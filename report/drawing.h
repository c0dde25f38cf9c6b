/* SPDX-License-Identifier: Apache-2.0 */
/* drawing.h - the drawings of a job's page: computes their values, in units of each drawing.
 *
 * A drawing's width is 100 % and its height fixed, so that text and marks keep their size on every screen; only paths
 * are stretched, from a width of 1000 units.
 *
 * Units: as report.h. Errors: none.
 * Ownership: the page is the caller's; an Axis has no pointers.
 */
#pragma once

#include "report/report.h"

/* Maps values low..high to units from..to of the drawing. */
typedef struct Axis {
    double low, high;
    double from, to;
    bool logarithmic;
} Axis;

double axis_at(const Axis *axis, double value);
/* Adds about n ticks to the list. Each tick has its position "at" and the number to print, "value", which is the axis's
 * value divided by scale. */
void axis_put_ticks(json_t *ticks, const Axis *axis, double scale, int n);

/* A number that a job reports of each checkpoint that it evaluates. The names are borrowed from the ReportJob. */
typedef struct Series {
    const char *job, *name;
    bool is_loss;
} Series;

enum { SERIES_MAX = 12 };

/* Finds the series, in the order in which their names appear first. */
size_t series_find(const ReportJob *job, Series ret[SERIES_MAX]);
/* Widens low..high so that the values of the series are inside. */
void series_range(const ReportJob *job, const Series *series, double *low, double *high);
/* Adds the curve of the series to the list. */
void series_put(json_t *list, const ReportJob *job, const Series *series, size_t colour,
                const Axis *steps, const Axis *y);

/* Returns the time when the job ended, or now if it has not ended. */
uint64_t drawing_end_usec(const ReportJob *job);
bool drawing_has_ended(const ReportJob *job);
/* Tells whether the job has steps of its own to show. A program may report none, and an evaluation has none. */
bool drawing_counts_steps(const ReportJob *job);
/* Returns NAN if the goodput is unknown, or if the job has no steps. */
double drawing_goodput(const ReportJob *job);
/* Puts the curves of loss, speed, gradient and learning rate by step. */
void drawing_put_curves(json_t *page, const ReportJob *job);
/* Puts the drawing of world sizes by time with marks of incidents, and the table of worlds. */
void drawing_put_worlds(json_t *page, const ReportJob *job);
/* Puts the phases of each recovery, and the table of incidents. */
void drawing_put_recoveries(json_t *page, const ReportJob *job);
/* Puts the table of the evaluations. */
void drawing_put_evals(json_t *page, const ReportJob *job);
/* Puts the shares of the job's time. */
void drawing_put_times(json_t *page, const ReportJob *job);
