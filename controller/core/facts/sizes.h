/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h - how many ranks a job should have, and which slots of a node can host a rank. */
#pragma once

#include "controller/core/state/state.h"

/* Returns the node's slots that can host a rank of the job (if NULL, of any job), also slots in use: no lost or bad
 * slot and, if the job needs GPUs, no slot without a GPU. */
uint64_t plan_slots_of(const CoreNode *node, const CoreJob *job);
/* The two functions return the largest and the smallest number of ranks that the job should have. */
int plan_wanted(const CoreJob *job);
int plan_needed(const CoreJob *job);
