/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - the checks of `sdctl doctor`: each adds to the table of findings.
 *
 * Ownership: borrows all; findings are the caller's.
 * Units:     none.
 * Errors:    are findings.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/cluster/members.h"
#include "ctl/doctor/findings.h"
#include "ctl/model.h"
#include "protocol/job.h"
#include "store/access-check.h"

/* Checks the members of etcd, each by itself. */
void check_members(const Members *members, Findings *f);
/* Checks what this user may do in etcd, how fast etcd answers, and whether it forgets old revisions. */
void check_etcd(CtlClient *client, Findings *f);
/* etcd does not tell its settings. Whether it still knows what `key` was so many revisions ago tells enough. */
void check_compaction(Etcd *etcd, const char *key, int64_t revision, int64_t kept, Findings *f);

/* Check controllers and nodes by their records. */
void check_controllers(const Model *model, Findings *f);
void check_node_records(const Model *model, Findings *f);

/* Checks whether the next checkpoint of each job that runs has room, as its rank 0 says. */
void check_room(const Model *model, Findings *f);

/* The stores that jobs name, or that only one job file names. Those of a file include folders on each node's own disk
 * (STORE_TRY_WRITE), which only nodes try. */
typedef struct Stores {
    StoreTry tries[RECORD_URIS_MAX];
    size_t n;
    size_t n_left_out;
    bool has_files; /* one of them is a folder, which requires equal users */
} Stores;

/* job NULL: those of the cluster's jobs. */
void stores_collect(const Model *model, const Job *job, Stores *ret);
/* Tries the stores from here, and leaves a marker in those that take checkpoints. */
void check_stores(Stores *stores, Findings *f);
/* Removes the markers. */
void stores_clear(Stores *stores);

/* Asks every node that is up, and waits timeout_sec at most for all. */
void check_nodes(CtlClient *client, const Model *model, const Stores *stores, double timeout_sec,
                 Findings *f);
