/* SPDX-License-Identifier: Apache-2.0 */
/* pause.h - the pause between a failure and the next world. */
#pragma once

#include "controller/core/state/state.h"

/* Begins a pause after the failure that `after` describes. */
void decide_pause(const Cluster *c, const CoreJob *job, uint64_t pause_usec, const char *after,
                  Decision *d);
/* Ends a pause whose time is over, and decides the next world. If only one node asked for the pause and there is a
 * spare, the world leaves that node out. */
bool decide_paused(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d);
