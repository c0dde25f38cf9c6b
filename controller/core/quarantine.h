/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine.h - how far a node's own verdict is trusted, and how a quarantine ends.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"

/* Suspects the probes while more than half of the nodes call themselves unhealthy. */
void health_update_trust(Cluster *c);
/* True when the node says that its results can't be trusted, and the probes are not suspected. */
bool node_is_unhealthy(const Cluster *c, const CoreNode *node);
/* Returns a quarantine, for that job or for all, that the machine got under another name; NULL: there is none. */
const CordonCause *node_find_machine_cordon(const Cluster *c, const CoreNode *node,
                                            const CoreJob *job);
/* Adds the strikes of the window against this machine under other names: of the job's submission, and of others. */
void node_strikes_elsewhere(const Cluster *c, const CoreNode *node, const CoreJob *job,
                            int64_t *own, int64_t *others);
/* Returns the strikes that the node's record has against its machine. */
int node_strikes(const Cluster *c, const CoreNode *node);
void health_count(const Cluster *c, int *ret_unhealthy, int *ret_present);
/* Ends a quarantine whose time is over: asks the machine, whatever its name is now, to check itself, and lets it
 * in or keeps it out by its answer. */
bool decide_quarantine(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                       Decision *d);
