/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.h - the incident of another writer under a node's name.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

extern const char stranger_cause[];
bool decide_stranger(Cluster *c, Scratch *s, Decision *d);
