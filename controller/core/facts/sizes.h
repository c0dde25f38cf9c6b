/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h - how many ranks a job should have, and which slots of a node can host a rank. */
#pragma once

#include "controller/core/state/state.h"

/* Returns the node's slots that can host a rank of the job (if NULL, of any job), including slots in use. Lost
 * slots and bad slots are left out and, if the job needs GPUs, slots without a GPU, too. */
uint64_t plan_slots_of(const CoreNode *node, const CoreJob *job);
/* Returns those of a node's slots that one world of the job takes at most: all or, if the job has a fixed number of
 * ranks per node, the lowest so many. Returns 0 if the node has fewer. */
uint64_t plan_share_of(const CoreJob *job, uint64_t slots);
/* Returns the lowest n of the slots, or all if there are fewer. */
uint64_t slots_lowest(uint64_t slots, int n);
/* The two functions return the largest and the smallest number of ranks that the job should have. Both are multiples of
 * the job's fixed number of ranks per node. */
int plan_wanted(const CoreJob *job);
int plan_needed(const CoreJob *job);
