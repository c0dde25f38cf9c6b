/* SPDX-License-Identifier: Apache-2.0 */
/* cordons.h - puts and ends, in a decision, the leader's own causes in cordons/<node>. */
#pragma once

#include "controller/core/state/state.h"

/* Returns a copy of the leader's own cause against the machine or, if refused_by is not NULL, of that job's cause; if
 * there is no such cause, returns a new cause without a mode. The caller changes the copy and passes it to
 * cordon_put_cause(). */
CordonCause cordon_begin_cause(const Cluster *c, const CoreNode *node, const CoreJob *refused_by);
/* Sets one cause of the node's record and keeps the others. Returns false if the decision or the record has no room
 * for the cause, or if a later version wrote the record. */
bool cordon_put_cause(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                      Decision *d);
/* Removes one cause from the node's record; the others stay. */
void cordon_end_cause(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                      Decision *d);
