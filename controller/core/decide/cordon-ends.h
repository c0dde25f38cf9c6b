/* SPDX-License-Identifier: Apache-2.0 */
/* cordon-ends.h - ends causes of cordons whose time is over, and quarantines a node by its own verdict.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

bool decide_cordons(const Cluster *c, Scratch *s, Decision *d);
