/* SPDX-License-Identifier: Apache-2.0 */
/* drawing.h - the inside of a job's page: values of its drawings, in units of each drawing.
 *
 * A drawing's width is 100 % and its height fixed, so that text and marks keep their size on every screen; only
 * paths are stretched, from 1000 units.
 *
 * Ownership: the page is the caller's; an Axis is a value.
 * Units:     as report.h.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "report/report.h"

/* From values to units of the drawing. */
typedef struct Axis {
    double low, high;
    double from, to;
    bool logarithmic;
} Axis;

double axis_at(const Axis *axis, double value);
/* Sets "at" and "value" for about n ticks; scale: how many of the axis's units a printed one is. */
void axis_put_ticks(json_t *ticks, const Axis *axis, double scale, int n);

/* Returns the time at which the job ended, or now. */
uint64_t drawing_end_usec(const ReportJob *job);
bool drawing_has_ended(const ReportJob *job);
/* Curves of loss, speed, gradient and learning rate by step. */
void drawing_put_curves(json_t *page, const ReportJob *job);
/* World sizes by time, the table of worlds, and incidents' marks and rows. */
void drawing_put_worlds(json_t *page, const ReportJob *job);
/* Phases of each recovery. */
void drawing_put_recoveries(json_t *page, const ReportJob *job);
/* Where the time went. */
void drawing_put_times(json_t *page, const ReportJob *job);
