/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the page of `sdctl job report`: its contents and its parts.
 *
 * report-page.c writes the page, report-chart.c the drawings in it (inline SVG). Colours are CSS
 * variables of the page, so that one drawing serves light and dark.
 *
 * Ownership: a Report borrows all but the metrics, which report_clear() frees.
 * Units:     steps; *_usec is CLOCK_REALTIME microseconds.
 * Errors:    none: writing goes to a FILE in memory, whose owner checks it.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/job/committed.h"
#include "ctl/model.h"
#include "protocol/job.h"

typedef struct JobReport {
    const Model *model;
    const ModelJob *job;
    const Job *spec;
    CommittedMetrics metrics; /* without lines: metrics_note tells why */
    char metrics_note[500];
    uint64_t now_usec;
} JobReport;

void report_clear(JobReport *report);

void report_write_page(FILE *to, const JobReport *report);

/* Writes a text from outside, with the characters replaced that HTML gives a meaning. */
void report_put_text(FILE *to, const char *text);
/* Returns the job's next incident from index *i on, and moves *i behind it; NULL: no more. */
const IncidentRecord *report_next_incident(const JobReport *report, size_t *i);
/* Returns the time at which the job ended, or now. */
uint64_t report_end_usec(const JobReport *report);

enum { RECOVERY_PHASES = 7 };
extern const char *const recovery_phase_name[RECOVERY_PHASES];
/* Gives the seconds of each phase; < 0: unknown. The record has all phases but one: joining and the first step, which
 * is the rest of the time between restore and replay. */
void recovery_phases(const IncidentRecord *incident, double ret[RECOVERY_PHASES]);

/* Draws the loss by step, with checkpoints, failures, replayed steps and resizes. */
void report_draw_loss(FILE *to, const JobReport *report);
/* Draws the world size by time, with the time between each failure and the next step. */
void report_draw_worlds(FILE *to, const JobReport *report);
/* Draws one bar an incident, its phases stacked. */
void report_draw_recoveries(FILE *to, const JobReport *report);
