/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - one job's next decision. */
#pragma once

#include "controller/core/state/state.h"

/* Each decide_...() fills the decision and returns true when there is one. */
bool decide_job(Cluster *c, Scratch *s, CoreJob *job, Decision *d);
