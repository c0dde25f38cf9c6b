/* SPDX-License-Identifier: Apache-2.0 */
/* etcd.h - libetcd: the etcd v3 API over gRPC's C core and protobuf-c, on an sd-event loop.
 *
 * An Etcd uses one of its endpoints, and leaves it, with all its streams, when the endpoint refuses, has
 * no leader or is silent. One thread drains gRPC's completion queue and passes the results to
 * the loop through an eventfd; every callback runs on the loop's thread, never from within the call
 * that made the request.
 *
 * Ownership: etcd_new() gives the caller an Etcd; it holds a reference on the sd_event. Requests
 *            borrow their arguments only for the call. Responses and events passed to a callback
 *            are valid until it returns. The caller owns a returned EtcdCall, EtcdWatch, EtcdLease or EtcdElection;
 *            freeing it cancels it, also from within its own callback. An EtcdCall
 *            frees itself after its callback; free it only to cancel it.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds; ttl_sec is whole seconds, etcd's unit.
 * Errors:    callbacks get r: 0, or -ETIMEDOUT (deadline, or the endpoint became silent),
 *            -ECONNREFUSED (no endpoint answers), -EACCES (authentication), -ESTALE (the lease or
 *            revision no longer exists), -EIO (anything else), with the text of the server in *err. After
 *            -ETIMEDOUT, -ECONNREFUSED or -EIO it is unknown whether a transaction was done: the caller
 *            must read again before it decides anything.
 * Threads:   loop thread only. Not fork-safe once an Etcd exists: a child must exec at once.
 * Source:    etcd API reference v3.4; github.com/etcd-io/etcd api/etcdserverpb.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <systemd/sd-event.h>

typedef struct Etcd Etcd;
typedef struct EtcdCall EtcdCall;
typedef struct EtcdWatch EtcdWatch;
typedef struct EtcdLease EtcdLease;
typedef struct EtcdElection EtcdElection;

typedef struct EtcdOptions {
    const char *endpoints; /* "host:port,host:port"; http:// and https:// prefixes are accepted */
    const char *ca_file, *cert_file, *key_file; /* PEM; ca_file turns on TLS, all three mTLS */
    /* A name that every member's certificate contains; NULL: each endpoint's own host. */
    const char *tls_name;
    const char *user, *password; /* etcd authentication; NULL for none */
    uint64_t timeout_usec;       /* deadline of every unary call; 5 s when 0 */
} EtcdOptions;

/* Reads SDTRAIN_ETCD, SDTRAIN_ETCD_CA, _CERT, _KEY, _TLS_NAME, _USER, _PASSWORD_FILE; the strings stay valid until
 * exit. endpoints is NULL if SDTRAIN_ETCD is unset. */
int etcd_options_from_environment(EtcdOptions *ret, Error *err);

int etcd_new(sd_event *event, const EtcdOptions *options, Etcd **ret, Error *err);
/* Cancels all requests; no callback runs any more. Watches, leases and elections may be freed before or after. Must not
 * be called from a callback. */
Etcd *etcd_free(Etcd *etcd);
DEFINE_CLEANUP(Etcd, etcd_free)

/* Observes requests: called before the handler of each request that was answered or has failed, and for each lease
 * renewal. method is gRPC's name ("Txn", "Range", "LeaseKeepAlive"), r the handler's result; took_usec includes the
 * attempts on other members. The observer must not call libetcd. */
typedef void (*EtcdObserver)(const char *method, int r, uint64_t took_usec, void *userdata);
void etcd_set_observer(Etcd *etcd, EtcdObserver observer, void *userdata);

/* ---- which history answers ----
 *
 * A store that was restored from a snapshot begins another history: revisions go back, later writes are lost, and a
 * guard on an old revision may hold again. libetcd recognizes another history by the cluster's id, or by a linearizable
 * answer whose revision is lower than a revision that was seen before the request was sent. */
typedef struct EtcdHistory {
    uint64_t cluster; /* the cluster's id; 0: not known yet */
    int64_t revision; /* the highest revision seen */
} EtcdHistory;

/* Called once for each change of history, before the handler of the answer that showed it. Must not call libetcd. */
typedef void (*EtcdHistoryHandler)(const EtcdHistory *was, const EtcdHistory *now, void *userdata);
/* known is the history that an earlier process saw; all zero: none. */
void etcd_set_history(Etcd *etcd, EtcdHistory known, EtcdHistoryHandler handler, void *userdata);
EtcdHistory etcd_history(const Etcd *etcd);

/* ---- keys and values ---- */

typedef struct EtcdKeyValue {
    const char *key;   /* NUL-terminated */
    const char *value; /* n_value bytes and a NUL */
    size_t n_value;
    int64_t create_revision, mod_revision, version, lease;
} EtcdKeyValue;

typedef struct EtcdRange {
    const EtcdKeyValue *kvs;
    size_t n_kvs;
    int64_t revision; /* revision of the store at the time of the read */
} EtcdRange;

typedef void (*EtcdRangeHandler)(int r, const Error *err, const EtcdRange *range, void *userdata);

/* Reads one key (prefix false) or all keys that begin with key, in key order; linearizable. Large
 * results are read in pages of one revision. */
int etcd_get(Etcd *etcd, const char *key, bool prefix, EtcdRangeHandler handler, void *userdata,
             EtcdCall **ret);

/* Reads one key as it was at that revision; -ESTALE: etcd has compacted that revision away. */
int etcd_get_at(Etcd *etcd, const char *key, int64_t revision, EtcdRangeHandler handler,
                void *userdata, EtcdCall **ret);

typedef enum EtcdCompareTarget {
    ETCD_CREATE_REVISION,
    ETCD_MOD_REVISION,
    ETCD_VERSION
} EtcdCompareTarget;

typedef struct EtcdCompare {
    const char *key;
    EtcdCompareTarget target;
    int64_t equals; /* the wanted value of the target; 0: the key does not exist */
} EtcdCompare;

typedef enum EtcdOpKind { ETCD_PUT, ETCD_DELETE, ETCD_DELETE_PREFIX, ETCD_GET } EtcdOpKind;

typedef struct EtcdOp {
    EtcdOpKind kind;
    const char *key;
    const char *value; /* for ETCD_PUT: n_value bytes, or a text if n_value is 0 */
    size_t n_value;
    int64_t lease; /* for ETCD_PUT: the key's lease; 0: none */
} EtcdOp;

typedef struct EtcdTxnResult {
    bool succeeded;          /* all compares held and every op was done; false: no op was done */
    int64_t revision;        /* if succeeded, mod revision of the keys that were put */
    const EtcdKeyValue *kvs; /* results of all ETCD_GET ops, in order */
    size_t n_kvs;
} EtcdTxnResult;

typedef void (*EtcdTxnHandler)(int r, const Error *err, const EtcdTxnResult *result,
                               void *userdata);

/* Runs the ops if all compares hold; without compares, always runs the ops. The maximum is 120 ops and 120 compares. */
int etcd_txn(Etcd *etcd, const EtcdCompare *compares, size_t n_compares, const EtcdOp *ops,
             size_t n_ops, EtcdTxnHandler handler, void *userdata, EtcdCall **ret);

/* Checks whether this user may read and write a key: r is 0 if so, -EACCES if not. Sends a transaction whose guard
 * cannot hold, so nothing is ever written; etcd checks the rights before the guard. */
int etcd_request_rights(Etcd *etcd, const char *key, EtcdTxnHandler handler, void *userdata,
                        EtcdCall **ret);

EtcdCall *etcd_call_free(EtcdCall *call); /* cancels the call; its handler does not run */

/* ---- one member's status ---- */

typedef struct EtcdStatus {
    uint64_t member, leader; /* ids; leader 0: the member sees no leader, hence no quorum */
    char version[32];
    int64_t db_bytes;      /* size of the member's database file */
    int64_t db_used_bytes; /* used bytes of that file; 0: the member is too old to report them */
    char errors[256]; /* the member's errors and alarms ("etcdserver: no leader"), joined by "; " */
} EtcdStatus;

typedef void (*EtcdStatusHandler)(int r, const Error *err, const EtcdStatus *status,
                                  void *userdata);

/* Requests the status of one endpoint, so make an Etcd for each. Needs neither a quorum nor a user. */
int etcd_status(Etcd *etcd, EtcdStatusHandler handler, void *userdata, EtcdCall **ret);

/* ---- watch ---- */

typedef enum EtcdEventKind { ETCD_EVENT_PUT, ETCD_EVENT_DELETE } EtcdEventKind;

typedef struct EtcdEvent {
    EtcdEventKind kind;
    EtcdKeyValue kv; /* a delete has only the key, and its own revision as mod_revision */
} EtcdEvent;

/* Called with all events of one store revision at a time, in order, each change exactly once. The first call has the
 * whole present state (as puts; possibly none) and initial = true. After a disconnect, leader change or compaction the
 * watch lists the keys again, compares create and mod revisions with the revisions that it delivered, generates the
 * missing deletes (a delete and a put for a key that was deleted and created again), and continues; the handler runs
 * after each list, with n_events 0 if nothing had changed. */
typedef void (*EtcdWatchHandler)(const EtcdEvent *events, size_t n_events, int64_t revision,
                                 bool initial, void *userdata);

int etcd_watch_prefix(Etcd *etcd, const char *prefix, EtcdWatchHandler handler, void *userdata,
                      EtcdWatch **ret);
/* Watches only one key, for users without the right to read more. */
int etcd_watch_key(Etcd *etcd, const char *key, EtcdWatchHandler handler, void *userdata,
                   EtcdWatch **ret);
EtcdWatch *etcd_watch_free(EtcdWatch *watch);
DEFINE_CLEANUP(EtcdWatch, etcd_watch_free)
/* A watch generates deletes only of keys that it delivered itself. A caller that also reads keys by other means needs:
 * how often the watch has read all its keys, and whether it has delivered `key` and not its deletion. */
uint64_t etcd_watch_lists(const EtcdWatch *watch);
bool etcd_watch_knows(const EtcdWatch *watch, const char *key);
bool etcd_watch_connected(const EtcdWatch *watch); /* whether the stream is open */

/* ---- lease ---- */

typedef enum EtcdLeaseState {
    ETCD_LEASE_GRANTED,
    ETCD_LEASE_RENEWED,
    ETCD_LEASE_LOST
} EtcdLeaseState;

/* GRANTED is reported once per lease, RENEWED at each acknowledged keep-alive, LOST when the server reports that the
 * lease does not exist; the next GRANTED then has a new id. Silence is not LOST: the caller compares
 * etcd_lease_deadline_usec() with its clock. */
typedef void (*EtcdLeaseHandler)(EtcdLeaseState state, int64_t lease, void *userdata);

/* Requests a lease (with retries and bounded back-off), renews it after each quarter of the granted TTL, and requests a
 * new lease when the lease is lost. witness_key (copied) is a key that the user may read; the key need not exist. A
 * renewal counts only if a quorum answers a read of witness_key. */
int etcd_lease_new(Etcd *etcd, int64_t ttl_sec, const char *witness_key, EtcdLeaseHandler handler,
                   void *userdata, EtcdLease **ret);
int64_t etcd_lease_id(const EtcdLease *lease);      /* 0 while no lease is held */
int64_t etcd_lease_ttl_sec(const EtcdLease *lease); /* the TTL that the server granted */
/* Returns the earliest time at which the lease may expire: when the last acknowledged keep-alive was sent, plus the
 * TTL. */
uint64_t etcd_lease_deadline_usec(const EtcdLease *lease);
/* Renews the lease now instead of after the next quarter of the TTL; for a caller whose key on the lease has
 * disappeared. */
void etcd_lease_check(EtcdLease *lease);
EtcdLease *etcd_lease_free(EtcdLease *lease); /* stops renewing; the lease then expires */
DEFINE_CLEANUP(EtcdLease, etcd_lease_free)
/* Revokes the lease, so that its keys are deleted now, and stops renewing. The lease may be freed before or after the
 * handler `done` (may be NULL) has run; freeing the call in *ret (ret may be NULL) cancels the revocation. -ESTALE: no
 * lease is held. */
int etcd_lease_revoke(EtcdLease *lease, EtcdTxnHandler done, void *userdata, EtcdCall **ret);
/* Revokes a lease by its id, such as a lease that the caller held before a restart. The handler gets -ESTALE if the
 * lease does not exist any more. Otherwise works like etcd_lease_revoke(). */
int etcd_revoke(Etcd *etcd, int64_t id, EtcdTxnHandler done, void *userdata, EtcdCall **ret);

/* ---- election ---- */

/* leading is true: this candidate leads; term is the create revision of its key, the guard of every write
 * (EtcdCompare{key, ETCD_CREATE_REVISION, term}). leading is false: the candidate has lost; the election campaigns
 * again by itself. */
typedef void (*EtcdElectionHandler)(bool leading, const char *key, int64_t term, void *userdata);

/* Puts the candidate's key <prefix><lease in hex> with value; the lowest create revision leads. */
int etcd_election_new(Etcd *etcd, const char *prefix, const char *value, EtcdLease *lease,
                      EtcdElectionHandler handler, void *userdata, EtcdElection **ret);
/* Changes the candidate's value; if the key exists, it is written again, with the same lease and term. */
void etcd_election_change(EtcdElection *election, const char *value);
/* Must be called by the lease's handler, with each state that it receives. */
void etcd_election_lease_changed(EtcdElection *election, EtcdLeaseState state, int64_t lease);
EtcdElection *etcd_election_free(EtcdElection *election);
DEFINE_CLEANUP(EtcdElection, etcd_election_free)
