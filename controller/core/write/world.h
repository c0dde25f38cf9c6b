/* SPDX-License-Identifier: Apache-2.0 */
/* world.h - places, in a decision, the next world of a job. */
#pragma once

#include "controller/core/state/state.h"

/* Places the job's next world. Without enough slots the job becomes PHASE_PENDING. Returns false if it waits
 * already, so that nothing is written. */
bool decide_world(const Cluster *c, Scratch *s, const CoreJob *job, JobPhase phase,
                  const char *reason, Decision *d);
