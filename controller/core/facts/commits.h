/* SPDX-License-Identifier: Apache-2.0 */
/* commits.h - which commits of a job are known, and where its next world resumes.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Returns the newest commit that any record speaks of. */
CommitMark checkpoints_known_mark(const CoreJob *job);
/* True when a commit is known to have been made that is not in memory: somebody must look into the folder. */
bool checkpoints_are_missing(const CoreJob *job);
/* Says where the next world resumes. False: every commit is struck out. */
bool checkpoints_find_resume(const CoreJob *job, const CheckpointsRecord *checkpoints,
                             ResumePoint *ret);
/* Returns the step at which the next world would resume; 0: it is not known. */
int64_t checkpoints_resume_step(const CoreJob *job);
/* Appends a commit; of a full record the oldest one goes. */
void commits_append(CheckpointsRecord *record, const CheckpointCommit *commit);
