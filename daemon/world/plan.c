/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - see plan.h. */
#include "daemon/world/plan.h"

#include <string.h>

int plan_ranks(const WorldRecord *world, const char *node, uint64_t incarnation, int n_slots,
               PlannedRank *ret, size_t *ret_n, Error *err)
{
    assert(n_slots > 0 && n_slots <= RECORD_SLOTS_MAX);

    uint64_t taken = 0;
    size_t n = 0;
    int rank = 0;
    for (size_t i = 0; i < world->n_runs; i++) {
        const WorldRun *run = &world->runs[i];
        bool ours = strcmp(run->node, node) == 0 && run->incarnation == incarnation;
        for (int slot = 0; slot < RECORD_SLOTS_MAX; slot++) {
            uint64_t bit = UINT64_C(1) << slot;
            if (!(run->slots & bit))
                continue;
            if (ours && (slot >= n_slots || (taken & bit)))
                return error_set(err, -EINVAL, "generation %lld gives rank %d slot %d, which %s",
                                 (long long)world->generation, rank, slot,
                                 slot >= n_slots ? "does not exist" : "is taken");
            if (ours) {
                taken |= bit;
                ret[n++] = (PlannedRank){.slot = slot, .rank = rank};
            }
            rank++;
        }
    }
    if (rank != world->size)
        return error_set(err, -EINVAL, "generation %lld has slots for %d ranks, but size is %d",
                         (long long)world->generation, rank, world->size);
    *ret_n = n;
    return 0;
}
