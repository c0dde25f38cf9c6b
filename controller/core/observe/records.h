/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - applies the records specs, desired and phases to the state, and forgets records that are gone. */
#pragma once

#include "controller/core/state/state.h"

/* Called when the job is gone, or another job has its name. Forgets what was remembered of the job's records that no
 * longer exist, and the checkpoints unless they are of the given submission. */
void lost_forget(CoreJob *job, const char *submission);
/* Each of these functions applies an event whose revision observe() has noted already. */
void lost_observe_spec(const Cluster *c, CoreJob *job, const Event *ev);
void lost_observe_desired(CoreJob *job, const Event *ev);
void lost_observe_phase(const Cluster *c, CoreJob *job, const Event *ev);
/* Applies what a node reports of the job after etcd was restored from a snapshot. */
void lost_observe_runs(CoreJob *job, const NodeRecord *node);
