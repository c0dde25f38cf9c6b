/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h - which waiting job comes first, and the slots that it reserves. */
#pragma once

#include "controller/core/state/state.h"

bool queue_job_waits(const Cluster *c, const CoreJob *job);
/* Returns a waiting job that comes before this job and whose patience is over: this job must neither start nor grow
 * on a slot that the waiting job can use. NULL: there is no such job. */
const CoreJob *queue_find_ahead(const Cluster *c, Scratch *s, const CoreJob *job);
/* Returns the slots of the node that jobs ahead of this one, as queue_find_ahead() finds them, can use. */
uint64_t queue_reserved_slots(const Cluster *c, Scratch *s, const CoreJob *job,
                              const CoreNode *node);
/* Returns a waiting job that comes before this job, whose patience ends within leave_deadline_usec, and that can use a
 * slot which the plan that was just made adds to this job; NULL: there is no such job. */
const CoreJob *queue_find_ahead_soon(const Cluster *c, Scratch *s, const CoreJob *job);
