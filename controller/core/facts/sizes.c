/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.c - see sizes.h. */
#include "controller/core/facts/sizes.h"

uint64_t plan_slots_of(const CoreNode *node, const CoreJob *job)
{
    int n = node->record.n_slots;
    if (job && job->facts.needs_gpu)
        n = MIN(n, node->record.n_gpus);
    uint64_t slots = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
    return slots & ~(node->record.lost_slots | node->record.bad_slots);
}

uint64_t slots_lowest(uint64_t slots, int n)
{
    uint64_t taken = 0;
    for (; n > 0 && slots; n--, slots &= slots - 1)
        taken |= slots & -slots;
    return taken;
}

uint64_t plan_share_of(const CoreJob *job, uint64_t slots)
{
    const int share = job->facts.per_node;
    if (share == 0)
        return slots;
    return slots_count(slots) < share ? 0 : slots_lowest(slots, share);
}

int plan_wanted(const CoreJob *job)
{
    int64_t wanted = job->desired.target > 0 ? job->desired.target : job->desired.max;
    wanted = MIN(wanted, job->facts.n_grains);
    if (job->facts.per_node > 0)
        wanted = MAX(wanted - wanted % job->facts.per_node, (int64_t)job->facts.per_node);
    return (int)wanted;
}

int plan_needed(const CoreJob *job)
{
    const int wanted = plan_wanted(job), share = MAX(job->facts.per_node, 1);
    const int64_t min = job->desired.min;
    return (int)MIN((min + share - 1) / share * share, (int64_t)wanted);
}
