/* memory.h - what a job's ranks will need of memory, and whether the nodes that are known could ever give it.
 *
 * Ownership: a JobMemory is a value.
 * Units:     bytes.
 * Errors:    -ENOSPC: no node has as much; the network's.
 * Threads:   any; no state.
 */
#pragma once

#include "ctl/model.h"
#include "trainer/data/dataset-shape.h"
#include "trainer/plan/memory-plan.h"

enum { JOB_MEMORY_WORLDS = 40 };

typedef struct JobMemory {
    MemoryPlan
        plans[JOB_MEMORY_WORLDS]; /* from world.min to world.max, at most twice as large each */
    size_t n;                     /* 0: this machine cannot tell */
} JobMemory;

/* The data's sides are known, and the config fits them. */
int job_memory_plan(const Job *job, const UnetConfig *config, const DatasetLook *look,
                    JobMemory *ret, Error *err);
/* source: the job's file, for the text. */
int job_memory_check(const JobMemory *memory, const char *source, const Model *model, Error *err);
/* Of the smallest world and of the largest. */
void job_memory_print(const JobMemory *memory);
