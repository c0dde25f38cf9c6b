/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - what `sdctl doctor` looks at, each into the table of findings.
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
#include "store/try.h"

/* The members of etcd, each by itself. */
void check_members(const Members *members, Findings *f);
/* Checks what this user may do in etcd, how fast etcd answers, and whether it forgets old revisions. */
void check_etcd(CtlClient *client, Findings *f);
/* etcd does not tell its settings. Whether it still knows what `key` was so many revisions ago tells enough. */
void check_compaction(Etcd *etcd, const char *key, int64_t revision, int64_t kept, Findings *f);

/* Controllers and nodes, as their records say. */
void check_controllers(const Model *model, Findings *f);
void check_node_records(const Model *model, Findings *f);

/* Whether the next checkpoint of each job that runs has room, as its rank 0 says. */
void check_room(const Model *model, Findings *f);

/* The stores that jobs name, or one job file alone: of that also folders on each node's own disk (STORE_TRY_WRITE),
 * which nodes alone try. */
typedef struct Stores {
    StoreTry tries[RECORD_URIS_MAX];
    size_t n;
    size_t n_left_out;
    bool has_files; /* one of them is a folder, which asks for equal users */
} Stores;

/* job NULL: those of the cluster's jobs. */
void stores_collect(const Model *model, const Job *job, Stores *ret);
/* Tries them from here, and leaves a marker in those that take checkpoints. */
void check_stores(Stores *stores, Findings *f);
/* Takes the markers away. */
void stores_clear(Stores *stores);

/* Asks every node that is up, and waits timeout_sec at most for all. */
void check_nodes(CtlClient *client, const Model *model, const Stores *stores, double timeout_sec,
                 Findings *f);
