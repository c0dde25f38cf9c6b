/* SPDX-License-Identifier: Apache-2.0 */
/* testing-report.h - for tests: the page of an invented job, and checks of its text. With SDTRAIN_TEST_OUT=FOLDER the
 * pages are written into FOLDER, where a person can view them.
 *
 * Ownership: the caller frees a Scenario with free().
 * Units:     as report.h.
 * Errors:    fail the test.
 * Threads:   any.
 */
#pragma once

#include "base/test/testing.h"
#include "report/report.h"

enum { BEGAN_SEC = 1767225600, N_POINTS = 120 };

#define AT(sec) ((uint64_t)(BEGAN_SEC + (sec)) * USEC_PER_SEC)

/* A job with a failure, a resize and an open incident, at step N_POINTS. */
typedef struct Scenario {
    PhaseRecord phase;
    CheckpointsRecord checkpoints;
    ProgressRecord progress;
    IncidentRecord incidents[3];
    const IncidentRecord *list[3];
    ReportPoint points[N_POINTS];
    int64_t saved[2];
    ReportJob job;
} Scenario;

Scenario *scenario_new(void);
/* Returns advice with characters that HTML escapes. */
const char *report_advise(const IncidentRecord *incident);
/* Returns how often the text contains the part. */
size_t count_text(const char *text, const char *part);
/* Checks that the page contains the part, and that no mark of its template lacks a value. */
void assert_contains(const Page *page, const char *part);
/* Leaves the page as a file for a person. */
void leave_page(const Page *page, const char *name);
