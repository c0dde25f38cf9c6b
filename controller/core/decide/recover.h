/* SPDX-License-Identifier: Apache-2.0 */
/* recover.h - the answer to a failure: strikes, quarantine, and the next world or the end of the job. */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

bool decide_failure(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *failure,
                    Decision *d);
