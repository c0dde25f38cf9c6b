/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.h - puts the record of a job's commits back, and serves `sdctl job recover`.
 *
 * Folder:    defaults of the headers here: Ownership: borrows the Cluster for the call. Units: as state.h. Errors:
 *            none. Threads: one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Puts back checkpoints/<job> if the leader remembers it; otherwise opens an incident about the missing commits. */
bool decide_checkpoints(const Cluster *c, const CoreJob *job, Decision *d);
/* Serves `sdctl job recover`: a job that has ended or waits continues from the manifest that the request names, or
 * from the newest manifest in its folder. */
bool decide_recover(const Cluster *c, const CoreJob *job, Decision *d);
/* Makes another world if the present world searches for its checkpoint and that checkpoint has been found. */
bool decide_found(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
