/* SPDX-License-Identifier: Apache-2.0 */
/* etcd-wait.h - reads and transactions that block, for command line programs, which have nothing else to do.
 *
 * Each call runs the client's sd_event loop until its answer has arrived or its deadline has passed;
 * the loop serves its other sources meanwhile. Must not be called from a callback.
 *
 * Units: as in etcd.h. Threads: the loop's thread.
 * Ownership: the caller owns the answer: etcd_answer_free(). Keys and values are copies.
 * Errors:    as in etcd.h's callbacks; -ECANCELED if the loop was stopped meanwhile. A
 *            transaction whose compares did not hold returns 0, with succeeded = false.
 */
#pragma once

#include "etcd/etcd.h"

typedef struct EtcdAnswer {
    bool succeeded;   /* all compares of the transaction held; true for a read */
    int64_t revision; /* as in EtcdRange or EtcdTxnResult */
    EtcdKeyValue *kvs;
    size_t n_kvs;
} EtcdAnswer;

int etcd_get_wait(Etcd *etcd, const char *key, bool prefix, EtcdAnswer **ret, Error *err);

/* These work like etcd_get_at() and etcd_request_rights(), but wait for the answer. */
int etcd_get_at_wait(Etcd *etcd, const char *key, int64_t revision, EtcdAnswer **ret, Error *err);
int etcd_request_rights_wait(Etcd *etcd, const char *key, Error *err);

/* ret may be NULL if the caller does not need to know whether the compares held. */
int etcd_txn_wait(Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
                  size_t n_ops, EtcdAnswer **ret, Error *err);

EtcdAnswer *etcd_answer_free(EtcdAnswer *answer);
DEFINE_CLEANUP(EtcdAnswer, etcd_answer_free)
