/* SPDX-License-Identifier: Apache-2.0 */
/* initial-state.h - fills a new state: from a checkpoint of this job, from a checkpoint of another job,
 * from a file of weights, or with random weights.
 *
 * Ownership: borrows everything.
 * Errors:    -EBADMSG: the source does not verify. The error's exit code shows the leader the cause.
 */
#pragma once

#include "protocol/job.h"
#include "trainer/checkpoint/checkpoint.h"

/* Fills state->weights with the job's random initial weights. */
int init_random(const Job *job, TrainState *state, Error *err);
/* state->weights must hold the job's random initial weights. resume may be NULL; otherwise the caller has checked that
 * the manifest is of this job, its data and its algorithms. resume is in store, and local (may be NULL) has this node's
 * copies of it. */
int init_state(const Job *job, Store *store, const CheckpointLocal *local, const Manifest *resume,
               TrainState *state, Error *err);
