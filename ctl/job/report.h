/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the page of `sdctl job report`: a template, and the values that fill its places.
 *
 * report.html is the template: all text, tables, colours and drawings (inline SVG) of the page. The
 * build makes it report_template. report.c gives the values of the page, report-chart.c those of
 * the drawings, and report-fill.c puts them into the template:
 *
 *     {{name}}             the value of that name, escaped
 *     <!-- each name -->   what follows up to its <!-- end -->, once for each object of that list;
 *                          inside, only that object's names count
 *     <!-- if name -->     what follows, when there is such a text or list and it is not empty
 *     <!-- unless name --> what follows otherwise
 *
 * Other comments of the template are left out.
 *
 * Ownership: a JobReport borrows all but the metrics. A json_t that a function returns is borrowed.
 * Units:     steps; *_usec is CLOCK_REALTIME microseconds.
 * Errors:    none: writing goes to a FILE in memory, whose owner checks it.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/job/committed.h"
#include "ctl/model.h"
#include "protocol/job.h"

#include <jansson.h>

typedef struct JobReport {
    const Model *model;
    const ModelJob *job;
    const Job *spec;
    CommittedMetrics metrics; /* without lines: metrics_note tells why */
    char metrics_note[500];
    uint64_t now_usec;
} JobReport;

/* Returns the job's next incident from index *i on, and moves *i behind it; NULL: no more. */
const IncidentRecord *report_next_incident(const JobReport *report, size_t *i);
/* Returns the time at which the job ended, or now. */
uint64_t report_end_usec(const JobReport *report);

/* Adds the drawings' values, and the lists of worlds and incidents. */
void report_put_drawings(json_t *page, const JobReport *report);

extern const char report_template[];
/* Writes the template with the page's values in its places. A place without a value is our own error, an assert. */
void report_fill(FILE *to, const json_t *page);
/* Sets values of an object, or of a new object at the end of a list; returns that object. The format
 * has a name and one conversion of printf() for each value: "x=%.1f step=%lld cause=%s". */
json_t *report_put(json_t *to, const char *format, ...) _printf_(2, 3);
/* Returns a new, empty list, which the object holds under that name. */
json_t *report_list(json_t *object, const char *name);
