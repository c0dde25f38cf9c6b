/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoints.h - puts the record of a job's commits back, and serves `sdctl job recover`.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Puts back the record that the leader remembers; tells of commits that it does not remember. */
bool decide_checkpoints(const Cluster *c, const CoreJob *job, Decision *d);
/* Serves `sdctl job recover`: a job that has ended, or waits, goes on from the manifest that the request names, or
 * from the newest in its folder. */
bool decide_recover(const Cluster *c, const CoreJob *job, Decision *d);
/* Makes another world when the present one looks for its checkpoint and the checkpoint was found. */
bool decide_found(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
