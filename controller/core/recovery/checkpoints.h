/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.h - the commits of a job, whatever becomes of checkpoints/<job>.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"

/* Takes in EVENT_CHECKPOINTS, which was stamped already. */
void checkpoints_learn(CoreJob *job, const Event *ev);
/* Drops commits of an earlier job of this name. */
void checkpoints_drop_others(CoreJob *job);
/* Returns the newest commit that any record speaks of. */
CommitMark checkpoints_known_mark(const CoreJob *job);
/* True when a commit is known to have been made that is not in memory: somebody must look into the folder. */
bool checkpoints_are_missing(const CoreJob *job);
/* Says where the next world resumes. False: every commit is struck out. */
bool checkpoints_find_resume(const CoreJob *job, const CheckpointsRecord *checkpoints,
                             ResumePoint *ret);
/* Returns the step at which the next world would resume; 0: it is not known. */
int64_t checkpoints_resume_step(const CoreJob *job);
/* Puts back the record that the leader remembers; tells of commits that it does not remember. */
bool decide_checkpoints(const Cluster *c, const CoreJob *job, Decision *d);
/* Serves `sdctl job recover`: a job that has ended, or waits, goes on from the manifest that the request names, or
 * from the newest in its folder. */
bool decide_recover(const Cluster *c, const CoreJob *job, Decision *d);
/* Makes another world when the present one looks for its checkpoint and the checkpoint was found. */
bool decide_found(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
