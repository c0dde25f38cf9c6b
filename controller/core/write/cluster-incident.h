/* SPDX-License-Identifier: Apache-2.0 */
/* cluster-incident.h - begins and resolves, in a decision, an incident that is about no job. */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

/* Begins, in the decision, an incident that is about no job; its id is "<about>-<revision>". */
void cluster_incident_begin(const Cluster *c, const char *about, const char *cause, Decision *d);
/* Begins an incident about a node, as cluster_incident_begin() does. */
void node_incident_begin(const Cluster *c, const CoreNode *node, Cause cause, const char *evidence,
                         Decision *d);
void cluster_incident_resolve(const Cluster *c, const Incident *incident, Decision *d);
