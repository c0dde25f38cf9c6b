/* SPDX-License-Identifier: Apache-2.0 */
/* execute.h - a decision of the core as one guarded transaction.
 *
 * Ownership: borrows the client and the feed, which must outlive the call. The decision is copied.
 * Units:     none.
 * Errors:    -EIO without random bytes, or what etcd_txn() says; then the handler does not run.
 * Threads:   loop thread only.
 */
#pragma once

#include "controller/config/rights.h"
#include "controller/core/cluster.h"
#include "controller/feed/feed.h"
#include "etcd/etcd.h"

typedef struct Target {
    Etcd *etcd;
    const Feed *feed;       /* old texts, whose unknown fields are kept */
    const char *cluster;    /* its name */
    const char *leader_key; /* the election key; the term is its create revision */
    const Rights
        *rights; /* an operation that is denied denies all; NULL: it may write everything */
} Target;

int execute(const Target *target, const Decision *decision, EtcdTxnHandler handler, void *userdata,
            Error *err);
/* The fault point "decide.world.before" and its like: where a test ends the leader, or takes an answer away. */
int execute_fault(const Decision *decision, const char *when);
