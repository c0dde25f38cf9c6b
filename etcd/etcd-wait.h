/* SPDX-License-Identifier: Apache-2.0 */
/* etcd-wait.h - reads and transactions for command line programs, which have nothing else to do.
 *
 * Each call runs the client's sd_event loop until its answer has come or its deadline has passed;
 * other sources of the loop are served meanwhile. To be called outside callbacks only.
 *
 * Ownership: the answer is the caller's: etcd_answer_free(). Keys and values are copies.
 * Units:     as etcd.h.
 * Errors:    as etcd.h's callbacks; -ECANCELED when the loop was told to exit meanwhile. A
 *            transaction whose compares did not hold is 0 with succeeded = false.
 * Threads:   the loop's thread.
 */
#pragma once

#include "etcd/etcd.h"

typedef struct EtcdAnswer {
    bool succeeded;   /* all compares of the transaction held; true for a read */
    int64_t revision; /* see EtcdRange and EtcdTxnResult */
    EtcdKeyValue *kvs;
    size_t n_kvs;
} EtcdAnswer;

int etcd_get_wait(Etcd *etcd, const char *key, bool prefix, EtcdAnswer **ret, Error *err);

/* Waits for etcd_get_at() and etcd_request_rights(). */
int etcd_get_at_wait(Etcd *etcd, const char *key, int64_t revision, EtcdAnswer **ret, Error *err);
int etcd_request_rights_wait(Etcd *etcd, const char *key, Error *err);

/* ret may be NULL when the caller does not care whether the compares held. */
int etcd_txn_wait(Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
                  size_t n_ops, EtcdAnswer **ret, Error *err);

EtcdAnswer *etcd_answer_free(EtcdAnswer *answer);
DEFINE_CLEANUP(EtcdAnswer, etcd_answer_free)
