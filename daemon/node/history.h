/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - remembers which history of etcd this node has lived in, and how far it was with its jobs.
 *
 * When etcd was restored from a snapshot, this daemon's view, its guards and its ranks' world belong to a
 * history that is gone: the ranks are killed, and sdtraind begins anew, with another incarnation. Its record
 * then tells the highest generation that it ran of each job and the newest commit that it knows of, until
 * a world of that job lies beyond. Both are kept in <state_dir>/history.json, so that a restart does not forget them.
 * The lease of the node's record is kept there, too: whoever finds it there is the sdtraind that held it.
 *
 * Ownership: part of the Manager.
 * Units:     none.
 * Errors:    a file that cannot be read or written is logged: less is known after a restart then.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/config/config.h"
#include "etcd/etcd.h"

typedef struct HistoryNeeds {
    const DaemonConfig *config;
    Etcd *etcd;
    void *userdata; /* of the calls below */
    /* As those of ManagerNeeds. */
    int (*read)(void *userdata, const char *path, char **ret, size_t *ret_n, Error *err);
    int (*write)(void *userdata, const char *path, const char *text, Error *err);
    /* etcd lives in another history than the one that this daemon was started in; the file says so already. */
    void (*changed)(void *userdata);
    /* Tells whether ranks of that job run here: what is known of it is not forgotten for another one. */
    bool (*runs)(void *userdata, const char *job);
} HistoryNeeds;

typedef struct History {
    HistoryNeeds needs;
    HistoryRecord record; /* what the file holds */
} History;

/* To be called before anything is asked of etcd. */
void history_open(History *h, const HistoryNeeds *needs);
/* Writes the file, with the highest revision that etcd has shown. */
void history_save(History *h);
/* The node's record is about to be put under that lease. */
void history_note_lease(History *h, int64_t lease);
/* This node runs ranks of that generation. RECORD_RUNS_MAX jobs are known: a new one takes the place of the one that
 * began first of those that run no more. Where all run, nothing is kept of the new one, and the log names it. */
void history_note_world(History *h, const char *job, const char *submission, int64_t generation);
/* A checkpoint was committed. */
void history_note_commit(History *h, const char *job, const char *submission, CommitMark mark);
/* Adds to the node's record what it tells after a restore. */
void history_write(const History *h, NodeRecord *record);
