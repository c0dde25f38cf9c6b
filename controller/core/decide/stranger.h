/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.h - the incident of another writer under a node's name. */
#pragma once

#include "controller/core/state/state.h"

extern const char stranger_cause[];
bool decide_stranger(Cluster *c, Scratch *s, Decision *d);
