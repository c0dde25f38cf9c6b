/* SPDX-License-Identifier: Apache-2.0 */
/* commit-records.h - takes in checkpoints/<job>; no commit that was known is lost by it.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Takes in EVENT_CHECKPOINTS, which was stamped already. */
void checkpoints_observe(CoreJob *job, const Event *ev);
/* Drops commits of an earlier job of this name. */
void checkpoints_drop_others(CoreJob *job);
