/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h - the memory that a job's ranks will need, and whether the known nodes have enough.
 *
 * Units: bytes. Threads: any; no state.
 * Ownership: a JobMemory has no pointers; the caller owns it.
 * Errors:    -ENOSPC: the nodes have too little memory; else the errors of memory-plan.h.
 */
#pragma once

#include "ctl/model.h"
#include "data/dataset-look.h"
#include "trainer/plan/memory-plan.h"

enum { JOB_MEMORY_WORLDS = 40 };

typedef struct JobMemory {
    /* Plans of worlds from world.min to world.max, each world at most twice as large as the world before. */
    MemoryPlan plans[JOB_MEMORY_WORLDS];
    size_t n; /* 0: this machine cannot compute the plans */
} JobMemory;

/* Plans the memory of each world. The image sizes of the data must be known and fit the config. */
int job_memory_plan(const Job *job, const UnetConfig *config, const DatasetLook *look,
                    JobMemory *ret, Error *err);
/* Checks the plans against the nodes; source names the job file in errors. */
int job_memory_check(const JobMemory *memory, const char *source, const Model *model, Error *err);
/* Prints the plans of the smallest world and of the largest. */
void job_memory_print(const JobMemory *memory);
