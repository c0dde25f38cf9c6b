/* SPDX-License-Identifier: Apache-2.0 */
/* server-internal.h - declarations for the files of the model, which alone include it.
 *
 * Layers, each on the one before:
 *   tree.c     ordered bytes and ranges
 *   mvcc.c     keys, their versions, the history until compaction
 *   lessor.c   leases, as the leader counts them
 *   users.c    passwords, tokens, rights
 *   kv.c       a Range or Txn and its answer
 *   watcher.c  watches of a stream, by range
 *   raft.c     members: who is in contact, who leads, who knows the leader
 *   calls.c    calls: their requests, waiting and answers
 *
 * There is only one store, which has the quorum's state. A member shows the part of the store that it has applied. A
 * member has its own beliefs (term, leader, leases as a former leader), which do not change while it is out of contact.
 *
 * Ownership: a Server owns everything here.
 * Units:     *_usec is the caller's time; revisions are etcd's.
 * Errors:    a Refusal: gRPC's code and etcd's text; the code SERVER_OK is not an error.
 * Threads:   one.
 */
#pragma once

#include "base/cleanup.h"
#include "base/memory.h"
#include "base/number/philox.h"
#include "tests/sim/server/server.h"
#include "tests/sim/server/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

typedef struct Refusal {
    ServerCode code;
    const char *text;
} Refusal;

#define REFUSAL_NONE ((Refusal){.code = SERVER_OK, .text = ""})

static inline Bytes bytes_from(ProtobufCBinaryData data)
{
    return (Bytes){.data = data.data, .n = data.len};
}
/* Returns a copy followed by one byte that is 0. If there are no bytes, data is NULL. */
ProtobufCBinaryData bytes_copy(Bytes bytes);

/* A key, or [begin, end) as in requests: an empty end means only the key begin; the end "\0" means
 * all keys from begin on. */
typedef struct KeyRange {
    Bytes begin, end;
    bool single, endless;
} KeyRange;

KeyRange key_range(ProtobufCBinaryData key, ProtobufCBinaryData range_end);

/* ---- mvcc.c ---- */

typedef struct Lease Lease;
typedef struct Key Key;

typedef struct Version {
    struct Version *older, *newer; /* the neighbouring versions of the same key */
    Key *key;
    int64_t create_revision, mod_revision, version, lease;
    bool deleted;
    size_t n_value;
    char value[];
} Version;

struct Key {
    TreeNode node; /* sorted by name */
    Version *newest;
    Lease *lease;
    LIST_ENTRY(Key) of_lease;
    char name[]; /* the key, followed by a byte 0 */
};

typedef struct Revision {
    uint64_t committed_usec;
    Version **changes;
    size_t n_changes, room;
} Revision;

typedef struct Mvcc {
    Tree keys;
    int64_t revision, compacted; /* compacted: -1 before the first compaction */
    Revision *history;           /* the revision at index i is first + i */
    size_t n_history, history_room;
    int64_t first;
    bool writing; /* a transaction is between mvcc_begin() and mvcc_end() */
    uint64_t live_bytes;
} Mvcc;

void mvcc_init(Mvcc *mvcc);
void mvcc_clear(Mvcc *mvcc);
/* Begins a transaction: all writes before mvcc_end() get one new revision. Without writes there is
 * no new revision. */
void mvcc_begin(Server *server);
void mvcc_put(Server *server, Bytes key, Bytes value, int64_t lease);
int64_t mvcc_delete(Server *server, const KeyRange *range);
void mvcc_end(Server *server);
/* Returns the revision that a read within the transaction sees. */
int64_t mvcc_revision(const Server *server);
/* Returns the key's version at the given revision; NULL: the key did not exist at that revision. */
const Version *mvcc_at(const Key *key, int64_t revision);
const Version *mvcc_get(const Mvcc *mvcc, Bytes key, int64_t revision);
typedef bool (*VersionVisitor)(const Version *version, void *userdata);
void mvcc_visit(const Mvcc *mvcc, const KeyRange *range, int64_t revision, VersionVisitor visit,
                void *userdata);
/* Returns the changes of a revision; NULL: the revision is compacted or does not exist yet. */
const Revision *mvcc_changes(const Mvcc *mvcc, int64_t revision);
Refusal mvcc_compact(Mvcc *mvcc, int64_t revision);
void mvcc_copy(const Mvcc *from, Mvcc *to);

/* ---- lessor.c ---- */

struct Lease {
    TreeNode by_id, by_expiry;
    uint8_t id_bytes[8], expiry_bytes[8];
    int64_t id, ttl_sec;
    uint64_t expires_usec;
    LIST_HEAD(, Key) keys;
};

typedef struct Lessor {
    Tree leases, expiries;
} Lessor;

/* A lease, as a leader that is out of contact remembers it. */
typedef struct Belief {
    int64_t id, ttl_sec;
    uint64_t expires_usec;
} Belief;

Lease *lessor_find(const Server *server, int64_t id);
Refusal lessor_grant(Server *server, int64_t id, int64_t ttl_sec, Lease **ret);
Refusal lessor_revoke(Server *server, int64_t id);
/* Renews a lease. Returns the lease's TTL in seconds; 0: the lease does not exist any more. */
int64_t lessor_renew(Server *server, int64_t id);
/* Call it for a new leader: each lease then lives for its whole TTL and an election timeout from now
 * on. */
void lessor_promote(Server *server);
void lessor_attach(Key *key, Lease *lease); /* lease NULL: detaches the key from its lease */
void lessor_expire(Server *server);
uint64_t lessor_next_usec(const Server *server);
size_t lessor_beliefs(const Server *server, Belief **ret);
void lessor_clear(Lessor *lessor);
void lessor_copy(const Server *from, Server *to);

/* ---- users.c ---- */

typedef struct Right {
    ServerRights rights;
    char *begin, *end;
    KeyRange range; /* the keys to which the user has this right */
} Right;

typedef struct User {
    char *name, *password;
    Right *rights;
    size_t n_rights, room;
} User;

typedef struct Users {
    bool enabled;
    uint64_t revision, n_tokens;
    User *users;
    size_t n, room;
} Users;

/* Each member has its own tokens: a member forgets a token that it has not seen for a while. */
typedef struct Token {
    char *text, *user;
    uint64_t until_usec;
} Token;

/* The user that makes a request, and Users.revision when the user was looked up; revision 0: the
 * request has no token. */
typedef struct Caller {
    char *user;
    uint64_t revision;
} Caller;

Refusal users_caller(Server *server, size_t member, const char *token, Caller *ret);
Refusal users_may(const Server *server, const Caller *caller, const KeyRange *range,
                  ServerRights rights);
Refusal users_check_password(const Server *server, const char *name, const char *password);
/* Makes a token for the user. Then every member that is in contact knows the token. */
char *users_token(Server *server, const char *name);
void users_forget_tokens(Server *server, size_t member);
void users_clear(Users *users);
void users_copy(const Users *from, Users *to);

/* ---- kv.c ---- */

/* Checks as much of a request as can be checked without the store. */
Refusal kv_check_range(const Pb__RangeRequest *request);
Refusal kv_check_txn(const Pb__TxnRequest *request);
bool kv_only_reads(const Pb__TxnRequest *request);
Refusal kv_range(Server *server, size_t member, const Caller *caller,
                 const Pb__RangeRequest *request, ProtobufCMessage **ret);
Refusal kv_txn(Server *server, size_t member, const Caller *caller, const Pb__TxnRequest *request,
               ProtobufCMessage **ret);
Pb__KeyValue *kv_message(const Version *version);

/* ---- watcher.c ---- */

typedef struct Watcher {
    TreeNode node;             /* the node in Member.watchers, while the watcher is synced */
    TAILQ_ENTRY(Watcher) list; /* list of the call's watchers */
    TAILQ_ENTRY(Watcher) unsynced_list;
    ServerCall *call;
    int64_t id;
    uint8_t *bytes;        /* the bytes of the node's range */
    int64_t next_revision; /* all revisions before this revision were sent */
    bool fragment, synced;
    uint64_t sync_usec; /* if not synced: when the watcher next reads the history */
    Version **events;   /* events that were gathered in the present round */
    size_t n_events, room;
} Watcher;

void watcher_request(ServerCall *call, const Pb__WatchRequest *request);
/* Call it when the member has applied the revisions from..to: notifies the member's watchers. */
void watcher_notify(Server *server, size_t member, int64_t from, int64_t to);
void watcher_sync(Server *server, size_t member);
uint64_t watcher_next_usec(const Server *server, size_t member);
void watcher_free_all(ServerCall *call);

/* ---- raft.c ---- */

typedef struct Member {
    uint64_t id;
    bool up, frozen, isolated, disk_stopped;
    uint64_t contact_usec; /* when a returning member is in contact again */
    bool in_contact;

    /* The member's beliefs. */
    uint64_t term;
    size_t leader; /* the leader as the member believes; SIZE_MAX: none */
    /* when the member last had a leader; used only while the member has no contact or no leader */
    uint64_t lost_usec;
    /* when streams that require a leader end; UINT64_MAX: the member has a leader */
    uint64_t streams_usec;
    Belief *beliefs; /* the leases that a leader without contact believes to exist */
    size_t n_beliefs;

    int64_t applied; /* the newest applied revision */
    uint64_t lag_usec;
    Token *tokens;
    size_t n_tokens, tokens_room;

    TAILQ_HEAD(, ServerCall) calls;
    Tree watchers;                               /* the synced watchers */
    TAILQ_HEAD(UnsyncedQueue, Watcher) unsynced; /* sorted by sync_usec */
    Watcher **touched;                           /* watchers with events in the present round */
    size_t n_touched, touched_room;
} Member;

void raft_init(Server *server);
/* Does everything that is due by now, and updates which members are in contact and form a
 * quorum. */
void raft_advance(Server *server);
uint64_t raft_next_usec(const Server *server);
/* Updates which members are in contact and form a quorum. Call it after a member's state has
 * changed. */
void raft_review(Server *server);
/* Returns whether this member is in a quorum that follows a leader. */
bool raft_reaches_leader(const Server *server, size_t member);
/* Call it when a revision was committed: members apply the revision, now or after their lag. */
void raft_committed(Server *server);
/* Makes members in contact apply all revisions that they lag behind. Call it before a compaction,
 * which comes after these revisions in the log. */
void raft_catch_up(Server *server);
Pb__ResponseHeader *raft_header(const Server *server, size_t member, int64_t revision);

/* ---- calls.c ---- */

typedef enum Method {
    METHOD_RANGE,
    METHOD_TXN,
    METHOD_LEASE_GRANT,
    METHOD_LEASE_REVOKE,
    METHOD_LEASE_KEEP_ALIVE,
    METHOD_WATCH,
    METHOD_AUTHENTICATE,
    METHOD_STATUS,
    METHODS
} Method;

typedef enum Wait {
    WAIT_NOTHING,
    WAIT_LEADER,  /* no leader has the request yet */
    WAIT_QUORUM,  /* a leader has the request, but has no quorum */
    WAIT_APPLIED, /* the call waits until the member has applied the quorum's revisions */
    WAIT_ANSWER,  /* the request is lost: only the timeout ends the wait */
} Wait;

typedef struct Inbox {
    TAILQ_ENTRY(Inbox) list;
    ProtobufCMessage *request;
} Inbox;

struct ServerCall {
    TAILQ_ENTRY(ServerCall) list, waiting_list;
    Server *server;
    size_t member, client;
    Method method;
    bool hasleader;
    char *token;
    ServerEvents events;
    void *userdata;
    bool gone;   /* the client has ended, or the call has got its end */
    bool opened; /* the member has begun to serve the call */
    size_t n_outputs;

    /* requests that are not served yet; the first request may be waiting */
    TAILQ_HEAD(, Inbox) inbox;
    Wait wait;
    uint64_t until_usec; /* deadline of the call's wait, while it waits */
    uint64_t wait_term;  /* WAIT_QUORUM: term of the leader that has the request */
    bool wait_alone;     /* WAIT_QUORUM: whether only this member has the request */
    bool decided;        /* a new leader has the request and carries it out */
    int64_t wait_revision;
    /* WAIT_APPLIED: the answer to a write that is done; NULL: the call is a read */
    ProtobufCMessage *answer;

    TAILQ_HEAD(, Watcher) watchers;
    int64_t next_watch_id;
};

typedef struct Output {
    TAILQ_ENTRY(Output) list;
    ServerCall *call;
    ProtobufCMessage *message; /* NULL: the end of the call */
    Refusal refusal;
} Output;

struct Server {
    ServerOptions options;
    uint64_t now_usec, cluster_id;
    uint64_t term;
    size_t leader, former;  /* former: the last leader; SIZE_MAX: no leader */
    uint64_t election_usec; /* when a quorum without a leader elects a leader; UINT64_MAX: never */
    size_t preferred;       /* the member that is to win the election; SIZE_MAX: any */
    bool nospace;
    size_t writer; /* ServerMetadata.client of the transaction in progress; SIZE_MAX: none */
    size_t n_members;
    Member members[SERVER_MEMBERS_MAX];
    Mvcc mvcc;
    Lessor lessor;
    Users users;
    TAILQ_HEAD(Outputs, Output) outputs;
    TAILQ_HEAD(, ServerCall) waiting;
};

uint64_t server_draw(Server *server);
void call_output(ServerCall *call, ProtobufCMessage *message);
void call_end(ServerCall *call, Refusal refusal);
void calls_end_of_member(Server *server, size_t member, Refusal refusal);
/* Tries the waiting calls of this member again after a change. new_leader: the member has just
 * learned of a leader. */
void calls_retry(Server *server, size_t member, bool new_leader);
/* Call it when there is a new leader: the proposals of the last leader are committed now, or
 * lost. */
void calls_decide(Server *server);
/* Serves the requests that arrived while the member was frozen. */
void calls_thawed(Server *server, size_t member);
void calls_time_out(Server *server);
uint64_t calls_next_usec(const Server *server);
void calls_deliver(Server *server);
/* Drops the leaders' proposals that are not committed. */
void calls_forget_proposals(Server *server);
/* Frees all calls without callbacks. */
void calls_clear(Server *server);
