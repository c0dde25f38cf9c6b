/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - the checks of `sdctl doctor`. Each check adds rows to the table of findings.
 *
 * Units: none. Threads: the main thread.
 * Ownership: arguments are borrowed; findings are the caller's.
 * Errors:    reported as findings.
 */
#pragma once

#include "ctl/cluster/members.h"
#include "ctl/doctor/findings.h"
#include "ctl/model.h"
#include "protocol/job.h"
#include "store/access-check.h"

/* Checks each member of etcd separately. */
void check_members(const Members *members, Findings *f);
/* Checks this user's rights in etcd, how fast etcd answers, and whether etcd compacts old revisions. */
void check_etcd(CtlClient *client, Findings *f);
/* Checks whether etcd compacts old revisions. etcd does not report this setting, so the check tries to read `key` as it
 * was `kept` revisions ago. */
void check_compaction(Etcd *etcd, const char *key, int64_t revision, int64_t kept, Findings *f);

/* Check the controllers and nodes by reading their records. */
void check_controllers(const Model *model, Findings *f);
void check_node_records(const Model *model, Findings *f);

/* Checks whether there is room for the next checkpoint of each running job, as reported by its rank 0. */
void check_room(const Model *model, Findings *f);

/* The stores named by the cluster's jobs, or by one job file. The stores of a file include folders on each node's own
 * disk (STORE_TRY_WRITE), which only nodes test. */
typedef struct Stores {
    StoreTry tries[RECORD_URIS_MAX];
    size_t n;
    size_t n_left_out;
    bool has_files; /* a store that nodes share is a folder, so the nodes need equal user ids */
} Stores;

/* Collects the stores of the job, or with job NULL the stores of the cluster's jobs. */
void stores_collect(const Model *model, const Job *job, Stores *ret);
/* Tests the stores from this machine, and leaves a marker object in the stores for checkpoints. */
void check_stores(Stores *stores, Findings *f);
/* Removes the marker objects. */
void stores_clear(Stores *stores);

/* Requests a report from every node that is up, and waits at most timeout_sec in total. */
void check_nodes(CtlClient *client, const Model *model, const Stores *stores, double timeout_sec,
                 Findings *f);
