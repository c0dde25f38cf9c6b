/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - see memory.h. */
#include "ctl/job/start/memory.h"

#include <limits.h>

int job_memory_plan(const Job *job, const UnetConfig *config, const DatasetLook *look,
                    JobMemory *ret, Error *err)
{
    int worlds[JOB_MEMORY_WORLDS];
    size_t n = 0;
    for (int64_t size = job->world.min; size < job->world.max; size *= 2)
        worlds[n++] = (int)size;
    worlds[n++] = job->world.max;
    assert(n <= JOB_MEMORY_WORLDS);
    const MemoryData data = {.compressed = look->compressed,
                             .n_samples = look->n_samples,
                             .sizes = look->sizes};
    Error said = ERROR_INIT;
    int r = memory_plan_worlds(job, config, &look->shape, &data, worlds, n, ret->plans, &said);
    ret->n = r == 0 ? n : 0;
    if (r == -ENOTSUP) /* a machine that cannot compute this job can still submit it */
        return 0;
    return r < 0 ? error_set(err, r, "%s", said.text) : 0;
}

/* Returns how many ranks of n_bytes the nodes can hold. A node with unknown memory holds one rank per slot. */
static int64_t capacity(const Model *model, uint64_t n_bytes)
{
    int64_t ranks = 0;
    for (size_t i = 0; i < model->n_nodes; i++) {
        const NodeRecord *node = &model->nodes[i];
        const uint64_t fit = node->memory_bytes ? node->memory_bytes / MAX(n_bytes, 1) : INT_MAX;
        ranks += MIN((int64_t)MIN(fit, (uint64_t)INT_MAX), (int64_t)node->n_slots);
    }
    return ranks;
}

static uint64_t largest_node(const Model *model)
{
    uint64_t most = 0;
    for (size_t i = 0; i < model->n_nodes; i++)
        most = MAX(most, model->nodes[i].memory_bytes);
    return most;
}

/* Tells whether a known node is not registered now. Such nodes may return with any amount of memory. */
static bool any_lost(const Model *model)
{
    for (size_t i = 0; i < model->n_health; i++)
        if (!model_node(model, model->health[i].node))
            return true;
    return false;
}

/* Checks whether any world from min to max fits into the nodes. A rank of a larger world never needs more memory than
 * a rank of a smaller world. So a world between two planned sizes has at least the smaller size's number of
 * ranks, and each rank needs at least the memory of a rank of the larger size. If the nodes cannot hold this, no such
 * world fits. */
int job_memory_check(const JobMemory *memory, const char *source, const Model *model, Error *err)
{
    if (memory->n == 0 || model->n_nodes == 0 || any_lost(model))
        return 0;
    for (size_t i = 0; i < memory->n; i++)
        if (capacity(model, memory_least(&memory->plans[i])) >=
            memory->plans[i > 0 ? i - 1 : 0].world_size)
            return 0;
    const MemoryPlan *least = &memory->plans[memory->n - 1];
    return error_set(err, -ENOSPC,
                     "%s: train.grain, model.config: each of %d ranks needs at least %.2f GiB of "
                     "memory, each of "
                     "%d at least %.2f; the nodes that are known have %.2f GiB at most, swap "
                     "included, too little "
                     "for world.min of them (sdtrainer plan says for what; checkpoint.blocking "
                     "needs less); --queue "
                     "submits it all the same",
                     source, memory->plans[0].world_size,
                     (double)memory_least(&memory->plans[0]) / 0x1p30, least->world_size,
                     (double)memory_least(least) / 0x1p30, (double)largest_node(model) / 0x1p30);
}

void job_memory_print(const JobMemory *memory)
{
    const MemoryPlan ends[] = {memory->plans[0], memory->plans[memory->n > 0 ? memory->n - 1 : 0]};
    if (memory->n > 0)
        memory_print(stdout, ends, memory->n > 1 ? 2 : 1);
}
