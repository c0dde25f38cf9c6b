/* SPDX-License-Identifier: Apache-2.0 */
/* notes.h - what `sdctl job start` says of a job that it takes: a line each, of what may surprise later. Nothing here
 * refuses a job.
 *
 * Ownership: borrows all.
 * Units:     none.
 * Errors:    none: what cannot be told is not told.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/job/start/memory.h"
#include "ctl/model.h"
#include "data/dataset-look.h"

/* model: NULL where no cluster was asked. */
void job_notes_print(const Job *job, const DatasetLook *look, const JobMemory *memory,
                     const Model *model);
