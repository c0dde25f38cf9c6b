/* SPDX-License-Identifier: Apache-2.0 */
/* etcd.h - a model of etcd as its clients see it: one linearizable store of typed records.
 *
 * Revisions, create and mod revisions, leases that delete their keys in one revision, transactions
 * that compare and put, a history that watches read from until it is compacted. Members, elections
 * and disks show as what they do to clients: no answers for a while, leases extended by a new
 * leader, leases revoked in numbers.
 *
 * Keys are interned: a small number stands for (kind, name, generation, node) for ever.
 *
 * Ownership: the Universe owns the Etcd. Values are counted; value_new() gives one reference, puts
 *            take one of their own.
 * Units:     microseconds of virtual time; TTLs too.
 * Errors:    etcd_commit(): -ESTALE for a lease that is not there; a compare that does not hold is
 *            *ret_succeeded = false.
 * Threads:   one.
 */
#pragma once

#include "cluster/keys.h"
#include "cluster/records.h"
#include "controller/core/cluster.h"
#include "tests/sim/sim.h"

/* ---- values: a record and what hangs on it in one block ---- */

typedef struct ModelValue {
    int references;
    RecordHealth health;
    max_align_t record[];
} ModelValue;

ModelValue *value_new(const void *record, size_t bytes);
ModelValue *value_new_world(const WorldRecord *world);
ModelValue *value_new_ranks(const RanksRecord *ranks);
ModelValue *value_ref(ModelValue *value);
ModelValue *value_unref(ModelValue *value);
/* What nobody here can read. */
ModelValue *value_new_broken(RecordHealth health);
/* NULL: there is none, or it cannot be read. */
static inline const void *value_record(const ModelValue *value)
{
    return value && value->health == RECORD_READABLE ? value->record : NULL;
}

/* ---- the store ---- */

typedef struct ModelKey {
    KeyKind kind;
    char name[CLUSTER_NAME_BYTES]; /* node, job, incident, request or lease */
    int node;                      /* RANKS; -1 */
    int64_t generation;            /* RANKS, RENDEZVOUS */
    int ordinal;                   /* among the keys of its kind */
    int next_of_hash;

    int64_t create_revision, mod_revision; /* 0: it does not exist */
    int64_t deleted_revision;              /* the last time, and when */
    uint64_t deleted_usec;
    ModelValue *value;
    int lease, next_of_lease, previous_of_lease; /* -1 */
} ModelKey;

typedef struct Change {
    int64_t revision, create_revision;
    int key;
    ModelValue *value; /* NULL: deleted */
} Change;

typedef struct Lease {
    bool alive;
    uint64_t ttl_usec, expires_usec;
    int first_key;
    const Actor *owner;
} Lease;

typedef struct Watch Watch;

typedef struct Positions { /* of one kind's changes in the history */
    int *at;
    size_t n, size;
} Positions;

typedef struct ModelEtcd {
    Universe *universe;
    int64_t revision, compacted_revision;
    ModelKey *keys;
    int n_keys, keys_size;
    int *buckets;
    int n_buckets;
    Positions keys_of[KEY_KINDS];
    Change *history;
    size_t n_history, history_size, n_compacted;
    Positions changes_of[KEY_KINDS];
    Lease *leases;
    int n_leases, leases_size;
    Watch **watches[KEY_KINDS + 1]; /* by kind; the last: of every kind */
    size_t n_watches[KEY_KINDS + 1];
    bool down; /* no quorum: nothing is answered, no lease runs out */
    uint64_t n_downs;
} ModelEtcd;

void etcd_init(ModelEtcd *etcd, Universe *u);
void etcd_clear(ModelEtcd *etcd);

/* The number of a key, made when it is new. */
int etcd_key(ModelEtcd *etcd, KeyKind kind, const char *name, int64_t generation, int node);
/* As it is now; NULL when it does not exist. The pointer holds until the next etcd_key(). */
const ModelKey *etcd_find(ModelEtcd *etcd, KeyKind kind, const char *name);
const void *etcd_record(ModelEtcd *etcd, KeyKind kind, const char *name);

/* ---- transactions ---- */

typedef enum CompareTarget { COMPARE_MOD, COMPARE_CREATE } CompareTarget;
typedef enum OpKind { OP_PUT, OP_DELETE, OP_DELETE_RANKS /* and rendezvous, of a job */ } OpKind;

enum { TXN_COMPARES_MAX = 24, TXN_OPS_MAX = 32 };

typedef struct Compare {
    CompareTarget target;
    int key;
    int64_t equals; /* 0: the key does not exist */
} Compare;

typedef struct Op {
    OpKind kind;
    int key;
    ModelValue *value;
    int lease;          /* -1: none */
    int64_t generation; /* OP_DELETE_RANKS: of this one alone; 0: all */
} Op;

typedef struct Txn {
    /* for the checkers: who asks; neither: a person, or a candidate */
    const struct ModelController *leader;
    int64_t term;
    const struct SimNode *node;
    size_t n_compares, n_ops;
    Compare compares[TXN_COMPARES_MAX];
    Op ops[TXN_OPS_MAX];
} Txn;

void txn_compare(Txn *txn, CompareTarget target, int key, int64_t equals);
/* Takes the reference. lease -1: none. */
void txn_put(Txn *txn, int key, ModelValue *value, int lease);
void txn_delete(Txn *txn, int key);
void txn_clear(Txn *txn);

int etcd_commit(ModelEtcd *etcd, const Txn *txn, bool *ret_succeeded);
/* A person's put, without a client: at once. Takes the reference; NULL deletes. */
void etcd_put(ModelEtcd *etcd, KeyKind kind, const char *name, ModelValue *value);

/* ---- leases ---- */

int etcd_lease_grant(ModelEtcd *etcd, uint64_t ttl_usec, const Actor *owner);
/* False: it is not there any more. */
bool etcd_lease_renew(ModelEtcd *etcd, int lease);
void etcd_lease_revoke(ModelEtcd *etcd, int lease);
void etcd_revoke_all(ModelEtcd *etcd);

/* ---- faults ---- */

void etcd_lose_quorum(ModelEtcd *etcd);
/* A new leader: what leases are left are extended by their whole TTL. */
void etcd_regain_quorum(ModelEtcd *etcd);
/* Watches that have not read so far yet must list again. */
void etcd_compact(ModelEtcd *etcd);
