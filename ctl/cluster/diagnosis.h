/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.h - finds the present faults of a cluster, each with advice.
 *
 * Units: none. Errors: none. Threads: the main thread.
 * Ownership: judge_*() append to the caller's arrays.
 */
#pragma once

#include "ctl/cluster/members.h"
#include "ctl/model.h"

typedef struct Judgement {
    json_t *wrong;  /* array of strings, the most urgent fault first */
    json_t *advice; /* array of strings: advice[i] is about wrong[i]; "": no advice */
} Judgement;

/* Returns an array of strings: facts that are useful to know but are not faults. */
json_t *judge_notes(const Model *model);
void diagnose_etcd(const Members *members, Judgement *judgement);
void diagnose_cluster(const Model *model, Judgement *judgement);

typedef struct ClusterSlots {
    int total, used;
    int closed; /* unused slots of nodes that get no new ranks */
} ClusterSlots;
ClusterSlots cluster_slots(const Model *model);
/* Returns true if the node's record vanished without an orderly departure, and the node is not cordoned. */
bool judge_is_lost(const Model *model, const char *node);
/* Tells whether the job has, or should have, ranks now. */
bool job_is_active(const ModelJob *job);
