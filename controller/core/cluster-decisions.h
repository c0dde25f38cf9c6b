/* SPDX-License-Identifier: Apache-2.0 */
/* cluster-decisions.h - decisions about no single job: incidents of nodes and of the cluster, their cap, requests.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as cluster-internal.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"
#include "controller/core/recovery/failure.h"

bool decide_cluster(Cluster *c, Scratch *s, Decision *d);
/* Notes what a node that has vanished ran, for the incident that will say so. */
void node_note_absence(Cluster *c, CoreNode *node);

/* Begins, in the decision, an incident of no job: its id is "<about>-<revision>". */
void cluster_incident_begin(const Cluster *c, const char *about, const char *cause, Decision *d);
/* As cluster_incident_begin(), about a node. */
void node_incident_begin(const Cluster *c, const CoreNode *node, Cause cause, const char *evidence,
                         Decision *d);
/* Returns the open incident of no job with that cause; NULL: there is none. */
const Incident *cluster_incident_find_open(const Cluster *c, const char *cause);
void cluster_incident_resolve(const Cluster *c, const Incident *incident, Decision *d);
