/* SPDX-License-Identifier: Apache-2.0 */
/* eval-list.h - reads the evaluations of a job's checkpoints: the verdicts in phases/<job>, with the results in
 * evals/<job>/<step>.
 *
 * Ownership: the caller clears the ReportEvals. It borrows names from the Model.
 * Units:     as report.h. Threads: the main thread.
 * Errors:    etcd's; results that do not decode are left out.
 */
#pragma once

#include "ctl/client.h"
#include "ctl/model.h"
#include "report/report.h"

/* Adds the evaluations that the job, which is of kind "eval", has made. */
int eval_list_add(ReportEvals *to, CtlClient *client, const ModelJob *job, Error *err);
/* Adds what all jobs of kind "eval" have found of the checkpoints of this submission of the job. */
int eval_list_add_followers(ReportEvals *to, CtlClient *client, const Model *model,
                            const ModelJob *job, Error *err);
