/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.h - decisions of jobs that evaluate the checkpoints of another job; private to controller/core. */
#pragma once

#include "controller/core/judge/failure.h"

/* Decides for a pending job without a checkpoint to evaluate: it has succeeded, or waits. */
bool decide_eval_idle(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
/* Writes the reason of a world that begins now: "evaluates step 4000 of job sd2". Returns ret. */
const char *decide_eval_reason(const Cluster *c, const CoreJob *job, char ret[RECORD_TEXT_MAX + 1]);
/* Answers a request to evaluate a checkpoint. */
bool decide_eval_asked(const Cluster *c, const CoreJob *job, Decision *d);
/* Notes that a checkpoint was removed before its turn. */
bool decide_eval_skipped(const Cluster *c, const CoreJob *job, Decision *d);
/* Ends a world whose ranks have all finished: the checkpoint is evaluated. Always decides. */
bool decide_eval_done(const Cluster *c, const CoreJob *job, Decision *d);
/* Ends a world whose slots another job has got, or whose checkpoint is of an earlier submission. */
bool decide_eval_ends(const Cluster *c, const CoreJob *job, Decision *d);
/* Answers a failure by another try, or by the verdict that the evaluation has failed. No node is to blame. Always
 * decides. */
bool decide_eval_failure(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *failure,
                         Decision *d);
