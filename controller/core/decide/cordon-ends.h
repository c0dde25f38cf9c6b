/* SPDX-License-Identifier: Apache-2.0 */
/* cordon-ends.h - ends causes of cordons whose time is over, and quarantines a node by its own verdict. */
#pragma once

#include "controller/core/state/state.h"

bool decide_cordons(const Cluster *c, Scratch *s, Decision *d);
