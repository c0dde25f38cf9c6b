/* SPDX-License-Identifier: Apache-2.0 */
/* etcd-internal.h - declarations shared by the files of libetcd; not for other code.
 *
 * Layers, each using those above it:
 *   wire.h        RPCs to members, without types of gRPC; a simulator may replace this layer
 *   endpoint.c    which endpoint is used, which is avoided, which is silent
 *   rpc.c         Rpc: one RPC on one endpoint, unary or streaming, as events on the loop
 *   call.c        EtcdCall: one request with a deadline, tried on other endpoints where that is safe
 *   auth.c        the token that etcd requires when it has users
 *   kv.c watch.c lease.c election.c status.c   the API of etcd.h
 *   client.c      Etcd: state and functions that all of them share
 *
 * The client has one channel per endpoint and does not use gRPC's round_robin: a frozen member keeps its
 * connection, so round_robin would still send it every third call. This client uses one endpoint and leaves it,
 * with all its streams, when it is silent.
 *
 * Ownership: an Etcd lists its Rpcs and EtcdCalls, and etcd_free() frees those that remain.
 *            A watch, lease or election holds a reference on the Etcd's memory; once the Etcd is
 *            `closed`, their pointers to rpcs and calls dangle and must not be followed.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    negative errno; call.c translates the RPC's status.
 * Threads:   the loop's thread.
 */
#pragma once

#include "base/clock.h"
#include "base/memory.h"
#include "base/text/secret-set.h"
#include "etcd.pb-c.h"
#include "etcd/etcd.h"
#include "etcd/wire.h"

#include <sys/queue.h>

/* ---- client.c ---- */

enum { ETCD_ENDPOINTS_MAX = 16 };

typedef struct Endpoint {
    char *address;             /* host:port */
    uint64_t avoid_until_usec; /* endpoint_pick() prefers other endpoints before this time */
    uint64_t heard_usec;       /* time of the last message received on any rpc of this endpoint */
} Endpoint;

struct Etcd {
    unsigned n_references; /* held by the caller, watches, leases and elections */
    bool closed;           /* etcd_free() has begun: no rpc may start */
    bool dispatching;      /* callbacks run: etcd_free() is forbidden */
    sd_event *event;
    sd_event_source *watchdog; /* timer that searches for silent endpoints while an rpc waits */
    uint64_t timeout_usec;     /* deadline of a unary call */
    uint64_t silence_usec;     /* an endpoint that owes an answer is left after this silence */

    Endpoint endpoints[ETCD_ENDPOINTS_MAX];
    size_t n_endpoints, current; /* current: index of the endpoint in use */
    char *endpoint_list;         /* all endpoints as one text, for errors */

    Wire *wire;
    LIST_HEAD(, Rpc) rpcs;
    LIST_HEAD(, EtcdCall) calls;

    char *user, *password;
    SecretSet secrets;        /* password and token, which a member may quote in its errors */
    char *token;              /* NULL: none yet; "": the server has no users */
    EtcdCall *authenticating; /* the token request that is in flight; NULL: none */
    unsigned auth_round; /* counts token requests; a waiting call records the count at its start */

    EtcdObserver observer;
    void *observer_userdata;

    EtcdHistory history; /* cluster id and highest revision seen */
    EtcdHistoryHandler on_history;
    void *history_userdata;
};

Etcd *etcd_ref(Etcd *etcd);
Etcd *etcd_unref(Etcd *etcd);
/* Makes a timer that is off. Fails when the event loop has finished, or without memory; then *ret is unchanged. */
int timer_new(Etcd *etcd, sd_event_time_handler_t handler, void *userdata, sd_event_source **ret);

/* ---- endpoint.c ---- */

/* Returns the endpoint to use now: the current one, unless it is to be avoided and there is a better one. */
Endpoint *endpoint_pick(Etcd *etcd);
/* Makes endpoint_pick() prefer other endpoints for this time. */
void endpoint_avoid(Endpoint *endpoint, uint64_t for_usec);
/* Starts the search for silent endpoints; to be called when an rpc begins to wait for an answer. */
void etcd_watchdog_arm(Etcd *etcd);
int etcd_watchdog_open(Etcd *etcd, Error *err);

/* ---- options.c ---- */

/* Reads "host:port,..." into etcd->endpoints[].address. */
int endpoints_parse(Etcd *etcd, const EtcdOptions *options, Error *err);

/* ---- rpc.c ---- */

typedef struct RpcStatus {
    WireCode code;
    const char *text; /* message of the server or of the network; valid during the callback */
    bool unsent;      /* the server has received nothing of the request */
    Endpoint *endpoint;
    bool silent; /* the endpoint was silent, so the rpc was cut */
} RpcStatus;

typedef struct RpcEvents {
    /* Receives a message, which the callback owns (message_free()). The callback may cancel the Rpc. */
    void (*message)(void *userdata, ProtobufCMessage *message);
    /* Last event of an Rpc, which is freed already. */
    void (*ended)(void *userdata, const RpcStatus *status);
} RpcEvents;

struct Rpc {
    LIST_ENTRY(Rpc) list;
    Etcd *etcd;
    Endpoint *endpoint;
    const WireMethod *method;
    const RpcEvents *events; /* NULL: the rpc was cancelled or detached, and no callback runs */
    void *userdata;
    WireCall *call;
    uint64_t waiting_usec; /* when the oldest unanswered message was sent; 0: none */
    bool silent;           /* the endpoint was silent, so the rpc was cut */
    bool undecodable;      /* the answer was not a message of method->response, or had no header */
};

/* Starts an RPC and sends request (borrowed) as its first message. deadline_usec may be USEC_INFINITY. Never fails:
 * every error is reported by events->ended. */
Rpc *rpc_start(Etcd *etcd, Endpoint *endpoint, const WireMethod *method, const WireRequest *request,
               uint64_t deadline_usec, const RpcEvents *events, void *userdata);
/* Sends one more message on a stream; -EBUSY if the previous message is not sent yet. */
int rpc_send(Rpc *rpc, const ProtobufCMessage *message);
/* Detaches the caller, so that no callback will run, and ends the RPC. Accepts NULL, returns NULL. */
Rpc *rpc_cancel(Rpc *rpc);
/* Detaches the caller: no callback will run. The RPC itself stays open, so that the watchdog can still count the
 * endpoint as silent. Accepts NULL, returns NULL. */
Rpc *rpc_forget(Rpc *rpc);
/* Makes the wire end the RPC; the caller gets its `ended` event soon after. */
void rpc_cut(Rpc *rpc);

/* ---- call.c ---- */

typedef enum CallState {
    CALL_PAUSING, /* the call waits for its timer, which starts another attempt or ends the call */
    CALL_TOKENLESS, /* the call waits until auth.c has a token or the deadline passes */
    CALL_IN_FLIGHT, /* an rpc of the call runs */
    CALL_ANSWERED,  /* the call's handler runs */
} CallState;

/* The handler owns message, which is NULL if r < 0. The call is freed when the handler returns, unless the handler
 * called call_again(). */
typedef void (*CallHandler)(EtcdCall *call, int r, const Error *err, ProtobufCMessage *message);

struct EtcdCall {
    LIST_ENTRY(EtcdCall) list;
    Etcd *etcd;
    const WireMethod *method;
    CallState state;
    bool repeatable;      /* the server may execute the request twice without harm */
    bool anonymous;       /* the request needs no token */
    WireRequest *request; /* each attempt sends the same request */
    Rpc *rpc;             /* set in CALL_IN_FLIGHT; NULL in every other state */
    sd_event_source *timer;
    uint64_t deadline_usec; /* the deadline of the whole call */
    uint64_t attempt_usec;  /* when the current attempt began */
    /* Highest revision seen when the call was made; an answer with a lower revision shows another history. */
    int64_t floor_revision;
    unsigned n_attempts; /* attempts that have ended */
    unsigned n_tokens;   /* tokens that were refused */
    unsigned auth_round; /* in CALL_TOKENLESS: the number of the token request to wait for */
    ProtobufCMessage *answer;
    Error error; /* the error of the last attempt */

    CallHandler handler;
    size_t n_results; /* how many results a completed transaction has: one for each op */
    void *context;    /* belongs to the code that made the call */
    void (*context_free)(void *); /* frees context with the call; NULL: context is borrowed */
    union {
        EtcdRangeHandler range;
        EtcdTxnHandler txn;
        EtcdStatusHandler status;
    } user;
    void *userdata;
};

int call_new(Etcd *etcd, const WireMethod *method, const ProtobufCMessage *request,
             CallHandler handler, void *context, EtcdCall **ret);
/* Sends the call. To be called once, after the caller has set repeatable, context_free, user and similar fields. */
void call_start(EtcdCall *call);
/* Sends another request with a fresh deadline; only from within the call's handler. */
void call_again(EtcdCall *call, const ProtobufCMessage *request);
/* Starts an attempt of the call now, or waits for a token first. */
void call_attempt(EtcdCall *call);
/* Ends the call with an error. */
void call_fail(EtcdCall *call, int r, const Error *err);

/* Notifies the observer of a request that began at begun_usec and ended with r. */
void call_observe(Etcd *etcd, const WireMethod *method, int r, uint64_t begun_usec);
/* Handles the end of a stream: avoids the endpoint or drops the token, if the status is a reason for that. */
void stream_ended(Etcd *etcd, const RpcStatus *status);
/* Returns the pause after n_failures failures in a row: 50, 100, ... 1000 ms. */
uint64_t backoff_usec(unsigned n_failures);
/* Turns a prefix into the end of the range of all keys with this prefix: increases the last of the prefix's bytes that
 * is below 0xff, and cuts off the bytes after it. */
ProtobufCBinaryData range_end(char *prefix);
ProtobufCBinaryData bytes_of(const char *text);
EtcdKeyValue key_value_view(const Pb__KeyValue *kv);

/* ---- history.c ---- */

/* Notes the header of a linearizable answer; calls on_history if the header is of another history. */
void history_note(EtcdCall *call, const Pb__ResponseHeader *header);
/* Notes a revision that a watch has delivered. */
void history_note_revision(Etcd *etcd, int64_t revision);

/* ---- kv.c ---- */

extern const WireMethod range_method;

/* ---- auth.c ---- */

/* Returns whether requests can be sent now: there is a token, or none is needed. Otherwise requests a token. */
bool auth_ready(Etcd *etcd);
enum { ETCD_WORDS_BYTES = 400 };
/* Copies a server's message without our password and token, so that it may be logged. */
void auth_describe(const Etcd *etcd, const char *words, char ret[ETCD_WORDS_BYTES]);
/* Drops the token, so that the next attempt requests a new token. */
void auth_forget(Etcd *etcd);
/* Returns whether the server refused the token (and not the user's rights). */
bool auth_token_refused(const RpcStatus *status);
