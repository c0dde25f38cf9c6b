/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the verbs of `sdctl job`, which the table in sdctl.c names.
 *
 * Units: none. Threads: the main thread.
 * Ownership: verbs borrow their Arguments.
 * Errors:    a verb prints the error on standard error and returns an exit code (CtlExit).
 */
#pragma once

#include "ctl/verbs.h"

extern const CtlOptions job_evaluate_options, job_start_options, job_status_options,
    job_wait_options, job_metrics_options, job_logs_options, job_resize_options, job_stop_options,
    job_checkpoint_options, job_recover_options, job_report_options, job_sample_options,
    job_export_options;

int job_start(const Arguments *a);
int job_show(const Arguments *a);
int job_status(const Arguments *a);
int job_list(const Arguments *a);
int job_wait(const Arguments *a);
int job_events(const Arguments *a);
int job_metrics(const Arguments *a);
int job_evals(const Arguments *a);
int job_evaluate(const Arguments *a);
int job_logs(const Arguments *a);
int job_resize(const Arguments *a);
int job_stop(const Arguments *a);
int job_delete(const Arguments *a);
int job_checkpoint(const Arguments *a);
int job_recover(const Arguments *a);
int job_report(const Arguments *a);
int job_sample(const Arguments *a);
int job_export(const Arguments *a);
int job_diff(const Arguments *a);

/* Starts a stopped or failed job again, with this priority unless it is OPTION_NO_PRIORITY. job_start() calls this when
 * no job file is given. */
int job_start_again(const Arguments *a, int priority, bool watch);
