/* SPDX-License-Identifier: Apache-2.0 */
/* drain.h - which node a world must leave, and why. */
#pragma once

#include "controller/core/state/state.h"

/* Looks for a node that the job's world must leave for a cause newer than the last leave that was tried. */
bool drain_find(const Cluster *c, const CoreJob *job, char *ret_reason, size_t size);
