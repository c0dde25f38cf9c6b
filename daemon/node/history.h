/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - remembers which history of etcd this node has seen, and how far this node was with its jobs.
 *
 * After etcd is restored from a snapshot, this daemon's view, its guards and its ranks' world belong to a history
 * that no longer exists. So the ranks are killed, and sdtraind executes itself again, as a new incarnation. For each
 * job, the node's record then reports the highest generation that ran here and the newest commit known here, until a
 * newer world of that job runs here. The generation and the commit are kept in <state_dir>/history.json, so that they
 * survive a restart. The file also keeps the lease of the node's record, so that a restarted sdtraind recognises the
 * record that it wrote before.
 *
 * Errors:    a file that cannot be read or written is logged; sdtraind then knows less after a restart.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/config/config.h"
#include "etcd/etcd.h"

typedef struct HistoryNeeds {
    const DaemonConfig *config;
    Etcd *etcd;
    void *userdata; /* passed to the callbacks below */
    /* Read and write a file, as read_file() and write_file() of ManagerNeeds do. */
    int (*read)(void *userdata, const char *path, char **ret, size_t *ret_n, Error *err);
    int (*write)(void *userdata, const char *path, const char *text, Error *err);
    /* Called when the history of etcd differs from that of the start. The file is already up to date. */
    void (*changed)(void *userdata);
    /* Returns whether ranks of the job run here. The entry of such a job is not removed in favour of another job. */
    bool (*runs)(void *userdata, const char *job);
} HistoryNeeds;

typedef struct History {
    HistoryNeeds needs;
    HistoryRecord record; /* the content of the file */
} History;

/* Must be called before the first request to etcd. */
void history_open(History *h, const HistoryNeeds *needs);
/* Writes the file, with the highest revision that etcd has returned. */
void history_save(History *h);
/* Saves the lease under which the node's record is about to be put. */
void history_note_lease(History *h, int64_t lease);
/* Notes that this node runs ranks of the generation. At most RECORD_RUNS_MAX jobs are kept: a new job replaces the
 * oldest job that does not run any more. If all kept jobs run, the new job is not kept, and a warning names it. */
void history_note_world(History *h, const char *job, const char *submission, int64_t generation);
/* Notes a commit of a checkpoint. */
void history_note_commit(History *h, const char *job, const char *submission, CommitMark mark);
/* Adds to the node's record the jobs that must be reported because etcd was restored from a snapshot. */
void history_write(const History *h, NodeRecord *record);
