/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine.h - ends a quarantine whose time is over, by the result of the machine's own check. */
#pragma once

#include "controller/core/state/state.h"

/* Ends a quarantine whose time is over: requests the machine, whatever its name is now, to check itself, and admits
 * the machine or keeps it out by the result. */
bool decide_quarantine(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                       Decision *d);
