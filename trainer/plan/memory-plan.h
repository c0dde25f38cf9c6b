/* SPDX-License-Identifier: Apache-2.0 */
/* memory-plan.h - computes how much memory a rank needs for each use, without allocating it.
 *
 * A rank frees no memory while it trains, so its peak is the sum of the uses. A rank makes a plan before it allocates;
 * `sdtrainer plan` and `sdctl job start` make a plan, too.
 *
 * Ownership: values. Threads: any; no state.
 * Units:     bytes of the rank that needs most.
 * Errors:    -EINVAL, -ENOTSUP: such a network or device is impossible; -E2BIG from memory_check().
 */
#pragma once

#include "nn/network.h"
#include "protocol/shapes.h"

#include <stdio.h>

typedef enum MemoryUse {
    MEMORY_WEIGHTS, /* all weights, in fp32 */
    MEMORY_PACKED,  /* the weights in the form that the kernels read */
    MEMORY_MOMENTS,
    MEMORY_EMA,
    MEMORY_GRADIENTS, /* gradients of a grain; only ZeRO 2 has them in a separate buffer */
    MEMORY_SUMS,
    MEMORY_ACTIVATIONS, /* activations of a grain, with workspace */
    MEMORY_EXCHANGE,    /* buffers of the collectives */
    MEMORY_SNAPSHOT,    /* the copy that a save makes */
    MEMORY_DATA,        /* the most that the loader, reads ahead and shards in memory need */
    MEMORY_LIBRARIES,   /* the program itself */
    MEMORY_USES,
} MemoryUse;

typedef struct MemoryPlan {
    int64_t n_parameters;
    int world_size;
    int64_t grain;
    uint64_t bytes[MEMORY_USES];
    uint64_t workspace_bytes; /* included in MEMORY_ACTIVATIONS */
} MemoryPlan;

/* Facts that only the data show. A NULL pointer means local data, not compressed, without hashes of samples. */
typedef struct MemoryData {
    bool compressed;
    uint64_t n_samples;
    const StreamSize *sizes; /* one for each stream of the job; NULL: streams may have any size */
} MemoryData;

/* network: planned; its memory need not be allocated. */
int memory_plan(const Job *job, const Network *network, const DatasetShape *shape,
                const MemoryData *data, int world_size, MemoryPlan *ret, Error *err);
/* Makes the plans for several world sizes; plans the network itself. */
int memory_plan_worlds(const Job *job, const UnetConfig *config, const DatasetShape *shape,
                       const MemoryData *data, const int *world_sizes, size_t n, MemoryPlan *ret,
                       Error *err);

uint64_t memory_total(const MemoryPlan *plan);
/* The total without the uses that may need less than planned: data and libraries. */
uint64_t memory_least(const MemoryPlan *plan);
/* Returns 0 if `available` bytes can hold the plan, otherwise -E2BIG with a text that has the need of each use, and
 * settings that reduce it. gpu: the bytes are a GPU's, which does not hold the copy that a save makes. */
int memory_check(const MemoryPlan *plan, uint64_t available, bool gpu, Error *err);
/* Adds to the error of a failed allocation how much the rank needs in total, and settings that reduce it. Returns r. */
int memory_short(const MemoryPlan *plan, bool gpu, int r, Error *err);

/* Returns the peak resident size of this process; 0: not known. */
uint64_t memory_peak(void);

/* Prints a table with a line for each use and a column for each plan. */
void memory_print(FILE *to, const MemoryPlan *plans, size_t n);
