/* memory.h - the memory that a rank cannot do without, by category, before any of it is taken.
 *
 * A lower bound: what saving, reading ahead and the comms take besides comes and goes. It tells a job
 * that can never fit, which no retry helps, from a machine that has no memory now.
 *
 * Ownership: none.
 * Units:     bytes.
 * Errors:    -E2BIG, with a text that lists the categories.
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/api/job.h"
#include "trainer/nn/network.h"

typedef struct MemoryNeed {
    int64_t n_parameters;
    uint64_t weights, gradients, sums, moments, ema; /* of the parameters */
    uint64_t network;                                /* activations, workspace, packed weights */
    uint64_t total;
} MemoryNeed;

/* network: planned; its memory need not be there. Of one rank of world_size. */
MemoryNeed memory_need(const Job *job, const Network *network, int world_size);
/* Whether available bytes could ever hold it. */
int memory_check(const MemoryNeed *need, uint64_t available, Error *err);
