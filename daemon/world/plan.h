/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - computes which ranks a world gives this node, and in which slots.
 *
 * Ownership: values. Threads: any; pure.
 * Units:     slots are counted from 0.
 * Errors:    -EINVAL for a world that gives a slot which this node does not have, or gives it twice.
 */
#pragma once

#include "cluster/records.h"

typedef struct PlannedRank {
    int slot, rank;
} PlannedRank;

/* Only runs that name this incarnation count: a world that was decided for an earlier incarnation of the node gives the
 * node no ranks. Ranks of a run get its slots in rising order. ret has room for RECORD_SLOTS_MAX; *ret_n may be 0. */
int plan_ranks(const WorldRecord *world, const char *node, uint64_t incarnation, int n_slots,
               PlannedRank *ret, size_t *ret_n, Error *err);
