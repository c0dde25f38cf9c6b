/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h - what is known against the machine behind a node's name, and whether its own verdict is believed.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"

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
/* True when the cause is a job's refusal for strikes: its time ends it, without a check. */
bool strikes_refuse(const CordonCause *cause);
bool machine_id_is_known(const char *text);
