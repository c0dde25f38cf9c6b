/* SPDX-License-Identifier: Apache-2.0 */
/* commits.h - which commits of a job are known, and where its next world resumes. */
#pragma once

#include "controller/core/state/state.h"

/* Returns the newest commit that any record names. */
CommitMark checkpoints_known_mark(const CoreJob *job);
/* True when a commit is known to exist that is not in job->checkpoints: then the checkpoint folder must be searched. */
bool checkpoints_are_missing(const CoreJob *job);
/* Finds where the next world resumes. Returns false if every commit is struck out. */
bool checkpoints_find_resume(const CoreJob *job, const CheckpointsRecord *checkpoints,
                             ResumePoint *ret);
/* Returns the step at which the next world would resume; 0: the step is not known. */
int64_t checkpoints_resume_step(const CoreJob *job);
/* Appends a commit; a full record drops its oldest commit. */
void commits_append(CheckpointsRecord *record, const CheckpointCommit *commit);
