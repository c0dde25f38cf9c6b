/* report.h - the page of `sdctl job report`: what is on it, and its parts.
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
    CommittedMetrics metrics; /* no line: metrics_note says why */
    char metrics_note[500];
    uint64_t now_usec;
} JobReport;

void report_clear(JobReport *report);

void report_write_page(FILE *to, const JobReport *report);

/* Text of others, with what HTML gives a meaning replaced. */
void report_put_text(FILE *to, const char *text);
/* The next incident of the job, from *i on; NULL when there is none. */
const IncidentRecord *report_next_incident(const JobReport *report, size_t *i);
/* The end of the job, or now. */
uint64_t report_end_usec(const JobReport *report);

enum { RECOVERY_PHASES = 7 };
extern const char *const recovery_phase_name[RECOVERY_PHASES];
/* Seconds of the phases; < 0: unknown. Those that the record has, and between restore and replay
 * what is left until the first step: joining, and the step. */
void recovery_phases(const IncidentRecord *incident, double ret[RECOVERY_PHASES]);

/* Loss by step, with checkpoints, failures, what was trained again, and resizes. */
void report_draw_loss(FILE *to, const JobReport *report);
/* World size by time, with the time between each failure and the next step. */
void report_draw_worlds(FILE *to, const JobReport *report);
/* One bar an incident, its phases stacked. */
void report_draw_recoveries(FILE *to, const JobReport *report);
