/* SPDX-License-Identifier: Apache-2.0 */
/* memory-plan.h - computes how much memory a rank needs for each use, without taking any.
 *
 * A rank gives nothing back while it trains, so the uses add up to its peak. A rank asks before it
 * allocates; `sdtrainer plan` and `sdctl job start` ask, too.
 *
 * Ownership: values.
 * Units:     bytes of one rank, the one that needs most.
 * Errors:    -EINVAL, -ENOTSUP: there can be no such network or device; -E2BIG from memory_check().
 * Threads:   any; no state.
 */
#pragma once

#include "nn/network.h"
#include "protocol/shapes.h"

#include <stdio.h>

typedef enum MemoryUse {
    MEMORY_WEIGHTS, /* all, fp32 */
    MEMORY_PACKED,  /* the weights as the kernels read them */
    MEMORY_MOMENTS,
    MEMORY_EMA,
    MEMORY_GRADIENTS, /* a grain's, which ZeRO 2 has plain */
    MEMORY_SUMS,
    MEMORY_ACTIVATIONS, /* a grain's, with workspace */
    MEMORY_EXCHANGE,    /* buffers of the collectives */
    MEMORY_SNAPSHOT,    /* the copy that a save makes */
    MEMORY_DATA,        /* the most that loader, reads ahead and shards in memory take */
    MEMORY_LIBRARIES,   /* the program itself */
    MEMORY_USES,
} MemoryUse;

typedef struct MemoryPlan {
    int64_t n_parameters;
    int world_size;
    int64_t grain;
    uint64_t bytes[MEMORY_USES];
    uint64_t workspace_bytes; /* part of the activations' */
} MemoryPlan;

/* Facts that only the data themselves tell. NULL below stands for local data, not compressed, without
 * hashes of samples. */
typedef struct MemoryData {
    bool compressed;
    uint64_t n_samples;
    const StreamSize *sizes; /* of each stream of the job; NULL: they may have any size */
} MemoryData;

/* network: planned; its memory need not be allocated. */
int memory_plan(const Job *job, const Network *network, const DatasetShape *shape,
                const MemoryData *data, int world_size, MemoryPlan *ret, Error *err);
/* The same for several world sizes; plans the network by itself. */
int memory_plan_worlds(const Job *job, const UnetConfig *config, const DatasetShape *shape,
                       const MemoryData *data, const int *world_sizes, size_t n, MemoryPlan *ret,
                       Error *err);

uint64_t memory_total(const MemoryPlan *plan);
/* The total without the uses that may need less than planned: data and libraries. */
uint64_t memory_least(const MemoryPlan *plan);
/* 0: `available` bytes could hold the plan; -E2BIG, with what each use needs, and what needs less. gpu: the bytes are a
 * GPU's, which does not hold the copy that a save makes. */
int memory_check(const MemoryPlan *plan, uint64_t available, bool gpu, Error *err);
/* Adds to the error of an allocation that failed what the rank needs in all, and what needs less; returns r. */
int memory_short(const MemoryPlan *plan, bool gpu, int r, Error *err);

/* The peak resident size of this process; 0: not known. */
uint64_t memory_peak(void);

/* Prints a table with a line for each use and a column for each plan. */
void memory_print(FILE *to, const MemoryPlan *plans, size_t n);
