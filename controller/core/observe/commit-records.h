/* SPDX-License-Identifier: Apache-2.0 */
/* commit-records.h - applies the record checkpoints/<job> to the state, without losing a known commit. */
#pragma once

#include "controller/core/state/state.h"

/* Applies EVENT_CHECKPOINTS, whose revision observe() has noted already. */
void checkpoints_observe(CoreJob *job, const Event *ev);
/* Drops commits of an earlier job of this name. */
void checkpoints_drop_others(CoreJob *job);
