/* memory-plan.h - what a rank needs of memory, by use, without taking any of it.
 *
 * The sum is of what is there at the same time at the peak, which every use reaches: a rank gives nothing
 * back while it trains. Asked by a rank before it allocates, by `sdtrainer plan` and by `sdctl job start`.
 *
 * Ownership: values.
 * Units:     bytes of one rank, the one that needs most.
 * Errors:    -EINVAL, -ENOTSUP of a network or device that cannot be; -E2BIG from memory_check().
 * Threads:   any; no state.
 */
#pragma once

#include "protocol/shapes.h"
#include "trainer/nn/network.h"

#include <stdio.h>

typedef enum MemoryUse {
    MEMORY_WEIGHTS, /* fp32, all of them */
    MEMORY_PACKED,  /* as the kernels read them */
    MEMORY_MOMENTS,
    MEMORY_EMA,
    MEMORY_GRADIENTS, /* of a grain, and a chunk of the mean */
    MEMORY_SUMS,
    MEMORY_ACTIVATIONS, /* of a grain, with workspace */
    MEMORY_EXCHANGE,    /* with other ranks */
    MEMORY_SNAPSHOT,    /* what a save copies */
    MEMORY_DATA,        /* loader, reads ahead, shards in memory; at most */
    MEMORY_LIBRARIES,   /* the program itself */
    MEMORY_USES,
} MemoryUse;

typedef struct MemoryPlan {
    int64_t n_parameters;
    int world_size;
    uint64_t bytes[MEMORY_USES];
} MemoryPlan;

/* What only a look at the data tells; NULL below: local, not compressed, without hashes of samples. */
typedef struct MemoryData {
    bool compressed;
    uint64_t n_samples;
} MemoryData;

/* network: planned; its memory need not be there. */
int memory_plan(const Job *job, const Network *network, const DatasetShape *shape,
                const MemoryData *data, int world_size, MemoryPlan *ret, Error *err);
/* The same for several sizes of the world, of a network that is planned for it. */
int memory_plan_worlds(const Job *job, const UnetConfig *config, const DatasetShape *shape,
                       const MemoryData *data, const int *world_sizes, size_t n, MemoryPlan *ret,
                       Error *err);

uint64_t memory_total(const MemoryPlan *plan);
/* Without what may be less: data, libraries. */
uint64_t memory_least(const MemoryPlan *plan);
/* Whether `available` bytes could ever hold it. where: "this machine". */
int memory_check(const MemoryPlan *plan, uint64_t available, const char *where, Error *err);

/* The most that this process has had resident; 0: not known. */
uint64_t memory_peak(void);

/* A table with a line for each use and a column for each plan. */
void memory_print(FILE *to, const MemoryPlan *plans, size_t n);
