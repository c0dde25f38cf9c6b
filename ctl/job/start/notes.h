/* SPDX-License-Identifier: Apache-2.0 */
/* notes.h - prints notes about a job that `sdctl job start` accepts: one line for each fact that may surprise the user
 * later. Notes never refuse a job.
 *
 * Ownership: borrows all. Units: none. Threads: the main thread.
 * Errors:    none: unknown facts are not printed.
 */
#pragma once

#include "ctl/job/start/memory.h"
#include "ctl/model.h"
#include "data/dataset-look.h"

/* model is NULL if the cluster was not read. */
void job_notes_print(const Job *job, const DatasetLook *look, const JobMemory *memory,
                     const Model *model);
