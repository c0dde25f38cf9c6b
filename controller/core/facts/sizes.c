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

int plan_wanted(const CoreJob *job)
{
    int64_t wanted = job->desired.target > 0 ? job->desired.target : job->desired.max;
    return (int)MIN(wanted, job->facts.n_grains);
}

int plan_needed(const CoreJob *job) { return MIN(job->desired.min, plan_wanted(job)); }
