/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - which waiting job comes first, and the slots that it reserves.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

bool queue_job_waits(const CoreJob *job);
/* Returns the job whose patience is over: this one neither starts nor grows on what that one can use. NULL: none. */
const CoreJob *queue_find_ahead(const Cluster *c, Scratch *s, const CoreJob *job);
/* Returns the slots of the node that a job which is ahead of this one in that way can use. */
uint64_t queue_reserved_slots(const Cluster *c, Scratch *s, const CoreJob *job,
                              const CoreNode *node);
/* Returns the job whose patience ends before this one must have left to grow, by the plan that was just made, onto what
 * that one can use; NULL: none. */
const CoreJob *queue_find_ahead_soon(const Cluster *c, Scratch *s, const CoreJob *job);
