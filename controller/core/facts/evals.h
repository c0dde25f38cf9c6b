/* SPDX-License-Identifier: Apache-2.0 */
/* evals.h - which checkpoint a job of kind "eval" evaluates next.
 *
 * Ownership: results point into the Cluster. Units: steps. Errors: none. Threads: one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Returns the job whose checkpoints are evaluated; NULL: there is none of that name. */
const CoreJob *eval_followed(const Cluster *c, const CoreJob *job);
/* Returns how far the job has evaluated the present submission of the followed job. */
EvalProgress eval_progress(const Cluster *c, const CoreJob *job);
/* True when the checkpoint was asked for, and has no verdict since. */
bool eval_has_asked(const EvalProgress *progress, CommitMark mark);
/* True when the evaluation that has begun is one that was asked for. */
bool eval_is_asked(const CoreJob *job);
/* Finds the commit that the next world evaluates: the one whose evaluation has begun, or else the next one. Those that
 * were asked for come first. NULL: none. */
const CheckpointCommit *eval_find_commit(const Cluster *c, const CoreJob *job);
/* Finds the oldest commit that will not be evaluated, because the followed job has removed it before its turn: *ret is
 * its mark. Returns false if there is none. */
bool eval_find_skipped(const Cluster *c, const CoreJob *job, CommitMark *ret);
/* True when the followed job makes no more checkpoints, and the job has a verdict for each. */
bool eval_is_complete(const Cluster *c, const CoreJob *job);
/* Returns a job of another kind whose world has a slot of this evaluation's world; NULL: there is none. */
const CoreJob *eval_find_heir(const Cluster *c, const CoreJob *job);
