/* SPDX-License-Identifier: Apache-2.0 */
/* execute.h - turns a decision of the core into one guarded transaction.
 *
 * Units: none. Threads: loop thread only.
 * Ownership: borrows the client and the feed, which must outlive the call. The decision is copied.
 * Errors:    -EIO: no random bytes; or those of etcd_txn(). After an error the handler does not run.
 */
#pragma once

#include "controller/core/cluster.h"
#include "controller/feed/feed.h"
#include "controller/rights/rights.h"
#include "etcd/etcd.h"

typedef struct Target {
    Etcd *etcd;
    const Feed *feed;                  /* has the old texts, whose unknown fields are kept */
    const char *cluster;               /* the cluster's name */
    const char *leader_key;            /* the election key; the term is its create revision */
    const Rights *rights;              /* kinds of keys to leave out; NULL: none */
    bool (*draw)(void *ret, size_t n); /* fills in n random bytes; false: none are available */
} Target;

int execute(const Target *target, const Decision *decision, EtcdTxnHandler handler, void *userdata,
            EtcdCall **ret, Error *err);
/* Visits a fault point such as "decide.world.before", where a test kills the leader or loses an answer. */
int execute_fault(const Decision *decision, const char *when);
