/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h - quarantines and strikes of the machine behind a node's name, and whether the node's own verdict counts.
 */
#pragma once

#include "controller/core/state/state.h"

/* True when the node reports that its results cannot be trusted, and the probes are not suspected. */
bool node_is_unhealthy(const Cluster *c, const CoreNode *node);
/* Returns a quarantine that the machine has, for this job or for all jobs, under another node's name; NULL: there is
 * none. */
const CordonCause *node_find_machine_cordon(const Cluster *c, const CoreNode *node,
                                            const CoreJob *job);
/* Counts the strikes within the window that this machine has under other nodes' names: adds the strikes of the job's
 * submission to *own, and all other strikes to *others. */
void node_strikes_elsewhere(const Cluster *c, const CoreNode *node, const CoreJob *job,
                            int64_t *own, int64_t *others);
/* Returns the strikes that the node's own cordon record has against its machine. */
int node_strikes(const Cluster *c, const CoreNode *node);
void health_count(const Cluster *c, int *ret_unhealthy, int *ret_present);
/* True when the cause is a job's refusal for strikes: such a cause ends when its time is over, without a check. */
bool strikes_refuse(const CordonCause *cause);
bool machine_id_is_known(const char *text);
