/* SPDX-License-Identifier: Apache-2.0 */
/* suspicion.h - when the absence or the unhealthy verdicts of many nodes at once are not acted upon.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

/* Begins, shortens or ends the hold: absence is not acted upon while nodes vanish in numbers. A controller that has not
 * seen them vanish goes on with the hold that the incident tells of. */
void presence_update_hold(Cluster *c, Scratch *s);
/* Suspects the probes while more than half of the nodes call themselves unhealthy. */
void health_update_trust(Cluster *c);
