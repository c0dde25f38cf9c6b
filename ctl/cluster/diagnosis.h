/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.h - the faults of a cluster now, each with advice.
 *
 * Ownership: judge_*() append to the caller's arrays.
 * Units:     none.
 * Errors:    none.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/cluster/members.h"
#include "ctl/model.h"

typedef struct Judgement {
    json_t *wrong;  /* array of strings, the most urgent fault first */
    json_t *advice; /* array of strings: advice[i] is about wrong[i]; "" for none */
} Judgement;

/* Facts that are worth knowing and wrong nowhere: an array of strings. */
json_t *judge_notes(const Model *model);
void diagnose_etcd(const Members *members, Judgement *judgement);
void diagnose_cluster(const Model *model, Judgement *judgement);

typedef struct ClusterSlots {
    int total, used;
    int closed; /* unused slots of nodes that get no new ranks */
} ClusterSlots;
ClusterSlots cluster_slots(const Model *model);
/* Tells whether the node is gone without leave, and nobody has cordoned it. */
bool judge_is_lost(const Model *model, const char *node);
/* Tells whether the job has, or should have, ranks now. */
bool job_is_active(const ModelJob *job);
