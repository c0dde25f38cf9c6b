/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h - what a job's records say of it: whether it is to run or pauses, and how much of its training counts.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* True when the user wants it to run and nothing that is missing or unreadable forbids it. */
bool job_wants_to_run(const CoreJob *job);
/* Returns the seconds of training that would count, had the job's history ended with this step. */
double job_useful_sec(const Cluster *c, const CoreJob *job, int64_t step);
/* Returns the part of them that waited for saves. */
double job_saving_sec(const Cluster *c, const CoreJob *job, int64_t step);
/* The order of the queue: priority, then age (the create revision of specs/<job>; no clock can change it). */
bool job_goes_before(const CoreJob *a, const CoreJob *b);
/* True when nothing of the job runs: its last generation has failed, and the next one is not due yet. */
bool job_is_paused(const CoreJob *job);
/* Returns the step that the present world went on from. Only the ranks know the step of another job's checkpoint; until
 * they report it, `otherwise`. */
int64_t job_resumed_step(const Cluster *c, const CoreJob *job, int64_t otherwise);
