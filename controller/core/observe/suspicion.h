/* SPDX-License-Identifier: Apache-2.0 */
/* suspicion.h - when the absence, or the unhealthy verdicts, of many nodes at once cause no decision. */
#pragma once

#include "controller/core/state/state.h"

/* Begins, shortens or ends the hold: while many nodes vanish at once, absence causes no decision. A controller that
 * has not seen them vanish continues the hold that the incident reports. */
void presence_update_hold(Cluster *c, Scratch *s);
/* Suspects the probes while more than half of the nodes report themselves unhealthy. */
void health_update_trust(Cluster *c);
