/* etcd-internal.h - what the files of libetcd share; nobody else includes it.
 *
 * Layers, each on the one before:
 *   channel.c  Etcd: endpoints, one gRPC channel each, the completion queue's thread, the watchdog
 *   rpc.c      Rpc: one gRPC call on one endpoint, unary or streaming, as events on the loop
 *   call.c     EtcdCall: one request under a deadline, tried on other endpoints where that is safe
 *   auth.c     the token that etcd wants when it has users
 *   kv.c watch.c lease.c election.c status.c   the API of etcd.h
 *
 * Why one channel per endpoint and not gRPC's round_robin: a frozen member keeps its connection, so
 * round_robin goes on handing it every third call. Here the client stays with one endpoint and
 * leaves it, with all its streams, once it is silent.
 *
 * Ownership: an Rpc and an EtcdCall are listed in their Etcd, which frees what is left of them.
 *            A watch or lease holds a reference on the Etcd's memory; once it is `closed` the
 *            pointers to rpcs and calls mean nothing.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    negative errno; gRPC's status is translated in call.c.
 * Threads:   all on the loop's thread but the list of completions, which `lock` guards.
 */
#pragma once

#include "base/clock.h"
#include "etcd.pb-c.h"
#include "etcd/etcd.h"

#include <grpc/grpc.h>
#include <pthread.h>
#include <sys/queue.h>

typedef struct Rpc Rpc;

/* ---- channel.c ---- */

enum {
    ETCD_ENDPOINTS_MAX = 16,
    ETCD_MESSAGE_BYTES_MAX = 16 << 20, /* a value is at most 1.5 MiB; pages shrink to fit */
};

typedef struct Endpoint {
    char *address; /* host:port */
    grpc_channel *channel;
    uint64_t avoid_until_usec; /* another endpoint is taken until then, if there is one */
    uint64_t heard_usec;       /* last message of any of its rpcs */
} Endpoint;

typedef enum RpcStage { RPC_SENT, RPC_STARTED, RPC_RECEIVED, RPC_FINISHED, RPC_STAGES } RpcStage;

/* What the completion queue's thread hands to the loop: a batch of an Rpc has ended. */
typedef struct Completion {
    struct Completion *next;
    Rpc *rpc;
    RpcStage stage;
    bool ok;
} Completion;

struct Etcd {
    unsigned n_references;
    bool closed;
    bool dispatching;
    sd_event *event;
    sd_event_source *wake;
    sd_event_source *watchdog;
    uint64_t timeout_usec;
    uint64_t silence_usec; /* an endpoint that owes an answer for so long is left */

    Endpoint endpoints[ETCD_ENDPOINTS_MAX];
    size_t n_endpoints, current;
    char *endpoint_list; /* for error texts */

    grpc_completion_queue *queue;
    pthread_t thread;
    bool thread_runs;
    int wake_fd;
    pthread_mutex_t lock;
    Completion *completions, **completions_end; /* guarded by lock */

    LIST_HEAD(, Rpc) rpcs;
    LIST_HEAD(, EtcdCall) calls;

    char *user, *password;
    char *token; /* NULL: none yet, "": the server has no users */
    EtcdCall *authenticating;
    unsigned auth_round;

    EtcdObserver observer;
    void *observer_userdata;

    EtcdHistory history;
    EtcdHistoryHandler on_history;
    void *history_userdata;
};

Etcd *etcd_ref(Etcd *etcd);
Etcd *etcd_unref(Etcd *etcd);

/* The endpoint to use now: the current one unless it is to be avoided. */
Endpoint *endpoint_pick(Etcd *etcd);
/* Take another one for a while. */
void endpoint_avoid(Endpoint *endpoint, uint64_t for_usec);
/* It is silent: avoid it and cut every rpc on it, each of which ends as `silent`. */
void endpoint_leave(Etcd *etcd, Endpoint *endpoint);
/* An rpc waits for an answer: look for silence from now on. */
void etcd_watchdog_arm(Etcd *etcd);

/* "host:port,..." into etcd->endpoints[].address. */
int endpoints_parse(Etcd *etcd, const EtcdOptions *options, Error *err);

/* ---- rpc.c ---- */

typedef struct RpcStatus {
    grpc_status_code code;
    const char *text;
    Endpoint *endpoint;
    bool silent; /* cut by endpoint_leave() */
} RpcStatus;

typedef struct RpcEvents {
    /* Takes the message (message_free). */
    void (*message)(void *userdata, ProtobufCMessage *message);
    /* The last event; the Rpc is gone after it. */
    void (*ended)(void *userdata, const RpcStatus *status);
} RpcEvents;

typedef struct RpcMethod {
    const char *path;
    const char *purpose; /* for people: "read", "lease grant" */
    const ProtobufCMessageDescriptor *response;
    bool unary;
    bool leaderless; /* a member that sees no leader answers, too */
} RpcMethod;

struct Rpc {
    LIST_ENTRY(Rpc) list;
    Etcd *etcd;
    Endpoint *endpoint;
    const RpcMethod *method;
    const RpcEvents *events; /* NULL once cancelled */
    void *userdata;
    grpc_call *call;
    Completion completions[RPC_STAGES];
    unsigned n_pending; /* batches that have not come back */
    grpc_metadata metadata[2];
    size_t n_metadata;
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *outgoing, *incoming;
    grpc_status_code status;
    grpc_slice details;
    uint64_t waiting_usec; /* when the oldest unanswered message was sent; 0: none */
    bool silent, undecodable;
};

/* Sends request (borrowed) as the first message. deadline_usec may be USEC_INFINITY. Never fails
 * here: what goes wrong comes as events->ended. */
Rpc *rpc_start(Etcd *etcd, Endpoint *endpoint, const RpcMethod *method, grpc_byte_buffer *request,
               uint64_t deadline_usec, const RpcEvents *events, void *userdata);
/* One message more on a stream; -EBUSY while the last one is not sent. */
int rpc_send(Rpc *rpc, const ProtobufCMessage *message);
/* No event comes any more. NULL is accepted; returns NULL. */
Rpc *rpc_cancel(Rpc *rpc);
/* No event comes any more, but the endpoint still owes its answer. NULL and return as above. */
Rpc *rpc_forget(Rpc *rpc);
/* Ends it with an event, soon. */
void rpc_cut(Rpc *rpc);
void rpc_completed(Completion *completion);

grpc_byte_buffer *message_pack(const ProtobufCMessage *message);
void message_free(ProtobufCMessage *message);

/* ---- call.c ---- */

typedef enum CallState {
    CALL_PAUSING,   /* until the timer: another attempt, or the deadline */
    CALL_TOKENLESS, /* until auth.c has a token, or the deadline */
    CALL_IN_FLIGHT,
    CALL_ANSWERED, /* its handler runs */
} CallState;

/* message is owned by the callee and NULL when r < 0. The call is freed after it unless
 * call_again() was used. */
typedef void (*CallHandler)(EtcdCall *call, int r, const Error *err, ProtobufCMessage *message);

struct EtcdCall {
    LIST_ENTRY(EtcdCall) list;
    Etcd *etcd;
    const RpcMethod *method;
    CallState state;
    bool repeatable; /* running it twice does no harm */
    bool anonymous;  /* needs no token */
    grpc_byte_buffer *request;
    Rpc *rpc;
    sd_event_source *timer;
    uint64_t deadline_usec, attempt_usec;
    int64_t floor_revision; /* seen when it was asked: the answer's is not lower */
    unsigned n_attempts, n_tokens, auth_round;
    ProtobufCMessage *answer;
    Error error; /* of the last attempt */

    CallHandler handler;
    void *context;                /* of whoever made the call */
    void (*context_free)(void *); /* NULL: borrowed */
    union {
        EtcdRangeHandler range;
        EtcdTxnHandler txn;
        EtcdStatusHandler status;
    } user;
    void *userdata;
};

int call_new(Etcd *etcd, const RpcMethod *method, const ProtobufCMessage *request,
             CallHandler handler, void *context, EtcdCall **ret);
/* Sends it; to be called once, after the fields above are set. */
void call_start(EtcdCall *call);
/* From within its handler: another request with a fresh deadline. */
void call_again(EtcdCall *call, const ProtobufCMessage *request);
/* For auth.c: try now, or end. */
void call_attempt(EtcdCall *call);
void call_fail(EtcdCall *call, int r, const Error *err);

/* Tells the observer of a request that began then. */
void call_observe(Etcd *etcd, const RpcMethod *method, int r, uint64_t begun_usec);
/* What a stream's end means for its endpoint and token, before it is set up again. */
void stream_ended(Etcd *etcd, const RpcStatus *status);
/* Bounded back-off: 50, 100, ... 1000 ms. */
uint64_t backoff_usec(unsigned n_failures);
/* The prefix's end, "" for a single key: the last byte that can be is increased. ret has room for
 * strlen(prefix) + 1. */
ProtobufCBinaryData range_end(const char *prefix, char *ret);
ProtobufCBinaryData bytes_of(const char *text);
EtcdKeyValue key_value_view(const Pb__KeyValue *kv);

/* ---- history.c ---- */

/* Of a linearizable answer. */
void history_note(EtcdCall *call, const Pb__ResponseHeader *header);
/* Of what a watch delivered. */
void history_note_revision(Etcd *etcd, int64_t revision);

/* ---- kv.c ---- */

extern const RpcMethod range_method;

/* ---- auth.c ---- */

/* True when requests can be sent (a token is there, or none is needed); else asks for one. */
bool auth_ready(Etcd *etcd);
void auth_forget(Etcd *etcd);
/* The server refused the token, not the user. */
bool auth_token_refused(const RpcStatus *status);
