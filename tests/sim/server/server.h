/* SPDX-License-Identifier: Apache-2.0 */
/* server.h - a model of an etcd cluster, as its clients see it through the protobuf API.
 *
 *     ServerCall *call = server_open(server, member, "/etcdserverpb.KV/Range", &metadata, &events, userdata);
 *     server_send(call, &request.base);
 *     server_advance(server, now_usec); // events.message, then events.ended
 *
 * One Server is the whole cluster. It consists only of data: no clock, thread or I/O. Time advances only in
 * server_advance(), and random choices come from a function of the caller, so that a schedule can be played again. The
 * messages are those of etcd/etcd.proto; a transport carries them, delays them and loses them.
 *
 * Ownership: server_new() gives the caller a Server; server_free() accepts NULL and frees calls without callbacks. A
 *            ServerCall belongs to the Server until events.ended has returned or server_cancel() was called. Requests
 *            are borrowed. events.message gives the message away: protobuf_c_message_free_unpacked(message, NULL) frees
 *            it. Bytes and texts in the message are followed by one byte that is 0.
 * Units:     *_usec is the caller's time, in microseconds; ttl_sec whole seconds; members are counted from 0.
 * Errors:    a call ends with gRPC's status number and etcd 3.4's text. Misuse that no client can commit is
 *            asserted.
 * Threads:   one. Callbacks run only within server_advance(); they may call all functions except server_advance(),
 *            server_free() and server_restore().
 */
#pragma once

#include "base/macro.h"
#include "etcd.pb-c.h"

typedef struct Server Server;
typedef struct ServerCall ServerCall;

enum {
    SERVER_MEMBERS_MAX = 7,
    SERVER_KEY_BYTES_MAX = 1 << 10, /* the model's own limit; etcd only limits requests */
};

/* The gRPC status codes that etcd uses. */
typedef enum ServerCode {
    SERVER_OK = 0,
    SERVER_UNKNOWN = 2,
    SERVER_INVALID_ARGUMENT = 3,
    SERVER_NOT_FOUND = 5,
    SERVER_PERMISSION_DENIED = 7,
    SERVER_RESOURCE_EXHAUSTED = 8,
    SERVER_FAILED_PRECONDITION = 9,
    SERVER_OUT_OF_RANGE = 11,
    SERVER_UNIMPLEMENTED = 12,
    SERVER_UNAVAILABLE = 14,
    SERVER_UNAUTHENTICATED = 16,
} ServerCode;

/* The change of one key in one revision, for a checker. It is valid during the callback. */
typedef struct ServerChange {
    const char *key, *value; /* NUL-terminated; value is NULL if the key was deleted */
    size_t n_key, n_value;
    int64_t create_revision, version, lease;
    const char *old_value; /* NULL: the key did not exist */
    size_t n_old_value;
    int64_t old_create_revision, old_mod_revision;
} ServerChange;

typedef struct ServerOptions {
    size_t n_members;
    uint64_t cluster_id, now_usec;
    /* how long the members wait without a leader until an election; 0: etcd's 1 s */
    uint64_t election_usec;
    /* the largest size of a request, and of a fragment of a watch's answer; 0: etcd's 1.5 MiB */
    size_t request_bytes_max;
    /* Returns any 64 bits; NULL: always 0, so that each random choice is the first possibility. */
    uint64_t (*draw)(void *userdata);
    /* Is called once for each revision, when the revision is made and before any client is notified; may be NULL. */
    void (*on_commit)(int64_t revision, const ServerChange *changes, size_t n, void *userdata);
    void *userdata; /* passed to draw() and on_commit() */
} ServerOptions;

int server_new(const ServerOptions *options, Server **ret);
Server *server_free(Server *server);

/* Call it only within on_commit(). Returns the ServerMetadata.client of the transaction; SIZE_MAX: the revision is that
 * of an expired lease. */
size_t server_writer(const Server *server);

/* Sets the time to now_usec, which must not be before the last time. Does everything that is due by
 * that time, and delivers the calls' answers. */
void server_advance(Server *server, uint64_t now_usec);
/* Returns when server_advance() must be called next; UINT64_MAX: it need not be called until
 * another function of this interface was called. */
uint64_t server_next_usec(const Server *server);

/* ---- calls ---- */

typedef struct ServerMetadata {
    bool hasleader;    /* a member without a leader refuses the call instead of waiting */
    const char *token; /* NULL: the call has no token */
    size_t client;     /* identifies the client, for server_writer() */
} ServerMetadata;

typedef struct ServerEvents {
    /* Receives an answer, and owns the message. */
    void (*message)(ServerCall *call, ProtobufCMessage *message, void *userdata);
    /* Receives the end of the call, after all answers. text is valid during the callback; the call
     * is freed after the callback. */
    void (*ended)(ServerCall *call, ServerCode code, const char *text, void *userdata);
} ServerEvents;

/* Begins a call of a method, such as "/etcdserverpb.KV/Txn", on a member that is up
 * (server_is_up()). The request of each call, even of a unary method, is sent by server_send(). */
ServerCall *server_open(Server *server, size_t member, const char *path,
                        const ServerMetadata *metadata, const ServerEvents *events, void *userdata);
/* Sends a request: one for a unary method, any number for a stream. A request that comes after the call's end is
 * dropped. */
void server_send(ServerCall *call, const ProtobufCMessage *request);
/* Cancels a call whose client has ended or whose deadline has passed: none of its callbacks runs
 * any more, but the request may still be carried out. Accepts NULL, returns NULL. */
ServerCall *server_cancel(ServerCall *call);
/* Returns the descriptor of a method's requests; NULL: there is no such method. */
const ProtobufCMessageDescriptor *server_request_type(const char *path);

/* ---- members ---- */

/* Returns false if the member accepts no connection. */
bool server_is_up(const Server *server, size_t member);
/* Stops the member's process: its calls end as UNAVAILABLE, and its tokens are forgotten. */
void server_stop(Server *server, size_t member);
void server_start(Server *server, size_t member);
/* Freezes the member: until server_thaw() the member sends and does nothing; then it handles
 * everything that was sent to it. */
void server_freeze(Server *server, size_t member);
void server_thaw(Server *server, size_t member);
/* Cuts the member off from the other members, but not from clients. */
void server_isolate(Server *server, size_t member);
void server_join(Server *server, size_t member);
/* Makes the member's writes to its disk hang: the member takes no part in the cluster's decisions,
 * but does not know that. If it was the leader, it still answers keep-alives from memory, while the
 * other members have another leader. */
void server_stop_disk(Server *server, size_t member);
void server_start_disk(Server *server, size_t member);
/* Makes the member apply committed revisions lag_usec later, and so its watches show them later; 0 ends the lag. */
void server_lag(Server *server, size_t member, uint64_t lag_usec);
/* Moves the leadership to this member, in a new term. Does nothing without a quorum. */
void server_elect(Server *server, size_t member);

size_t server_members(const Server *server);
uint64_t server_member_id(const Server *server, size_t member);
uint64_t server_cluster_id(const Server *server);
uint64_t server_term(const Server *server);
/* Returns the leading member; SIZE_MAX: there is no leader. */
size_t server_leader(const Server *server);
int64_t server_revision(const Server *server);

/* ---- an operator's actions ---- */

/* Removes the history before this revision. Returns the status with which etcd answers. */
ServerCode server_compact(Server *server, int64_t revision, const char **ret_text);
/* Sets or clears the alarm NOSPACE. While it is set, puts are refused, but not deletes and
 * reads. */
void server_set_nospace(Server *server, bool full);

typedef enum ServerRights {
    SERVER_READ = 1 << 0,
    SERVER_WRITE = 1 << 1,
} ServerRights;

/* The user "root" may do everything. */
void server_add_user(Server *server, const char *name, const char *password);
/* Grants rights on [key, range_end), as in a RangeRequest; n_range_end 0: grants them only on the
 * key. */
void server_grant(Server *server, const char *user, ServerRights rights, const char *key,
                  const char *range_end, size_t n_range_end);
void server_enable_auth(Server *server, bool enable);

/* Returns false if the lease was never granted or has been revoked. An expired lease is revoked up
 * to half a second later. */
bool server_has_lease(const Server *server, int64_t id);

typedef struct ServerSnapshot ServerSnapshot;

/* Copies the present keys, history, leases and users. */
ServerSnapshot *server_snapshot(const Server *server);
ServerSnapshot *server_snapshot_free(ServerSnapshot *snapshot);
/* Stops all members and starts them again with the state of the snapshot, as a cluster with the
 * given id. Borrows the snapshot. */
void server_restore(Server *server, const ServerSnapshot *snapshot, uint64_t cluster_id);
