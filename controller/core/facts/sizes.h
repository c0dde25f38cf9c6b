/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h - how many ranks a job is to have, and which slots of a node can host one.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Returns the node's slots that can host a rank of the job (NULL: of any job), whoever uses them: none that is lost or
 * bad and, where the job needs GPUs, none without one. */
uint64_t plan_slots_of(const CoreNode *node, const CoreJob *job);
/* Returns how many ranks the job is to have at most, and at least. */
int plan_wanted(const CoreJob *job);
int plan_needed(const CoreJob *job);
