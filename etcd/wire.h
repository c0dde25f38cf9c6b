/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - RPCs to etcd's members, independent of gRPC: the whole network interface of libetcd.
 *
 * Programs link etcd_grpc (etcd/grpc); a simulator links a model of the network and of etcd instead.
 *
 * One WireCall is one RPC on one endpoint. The loop reports its messages and its end through rpc_received() and
 * rpc_ended(), never from within a function of this header, except wire_free().
 *
 * Ownership: wire_new() gives the caller a Wire, which holds a reference on the loop. A WireCall belongs to its
 *            Wire, and is freed before rpc_ended() runs. Arguments are borrowed for the call.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    negative errno. The outcome of an RPC is a code of the gRPC protocol, with the peer's error text.
 * Threads:   the loop's thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "etcd/etcd.h"

#include <protobuf-c/protobuf-c.h>

typedef struct Wire Wire;               /* a client's connections to all its endpoints */
typedef struct WireCall WireCall;       /* one RPC */
typedef struct WireRequest WireRequest; /* a packed first message; it can be sent many times */
typedef struct Rpc Rpc;                 /* etcd/rpc.c: the user of a WireCall */

/* Status codes, with the numbers of the gRPC protocol. */
typedef enum WireCode {
    WIRE_OK = 0,
    WIRE_CANCELLED = 1,
    WIRE_UNKNOWN = 2,
    WIRE_INVALID_ARGUMENT = 3,
    WIRE_DEADLINE_EXCEEDED = 4,
    WIRE_NOT_FOUND = 5,
    WIRE_ALREADY_EXISTS = 6,
    WIRE_PERMISSION_DENIED = 7,
    WIRE_RESOURCE_EXHAUSTED = 8,
    WIRE_FAILED_PRECONDITION = 9,
    WIRE_ABORTED = 10,
    WIRE_OUT_OF_RANGE = 11,
    WIRE_UNIMPLEMENTED = 12,
    WIRE_INTERNAL = 13,
    WIRE_UNAVAILABLE = 14,
    WIRE_DATA_LOSS = 15,
    WIRE_UNAUTHENTICATED = 16,
} WireCode;

typedef struct WireStatus {
    WireCode code;
    const char *text; /* error text of the server or of the network */
    bool unsent;      /* no connection was made, so the server has received nothing of the RPC */
} WireStatus;

typedef struct WireMethod {
    const char *path;
    const char *purpose; /* what the RPC does, for messages: "read", "lease grant" */
    const ProtobufCMessageDescriptor *response;
    bool unary;
    bool leaderless; /* a member that sees no leader may answer, too */
} WireMethod;

/* Makes no connection yet: the first RPC to an endpoint connects to it. addresses are host:port; an index into them
 * identifies an endpoint from now on. Only the TLS fields of options are used. */
int wire_new(sd_event *event, const EtcdOptions *options, const char *const *addresses,
             size_t n_addresses, Wire **ret, Error *err);
/* Cancels the remaining calls and waits until they have ended: rpc_ended() runs for each. Accepts
 * NULL, returns NULL. */
Wire *wire_free(Wire *wire);
/* Returns the index of a random endpoint, with which a client begins: so clients spread over the members. */
size_t wire_draw(Wire *wire);

WireRequest *wire_request_new(const ProtobufCMessage *message);
WireRequest *wire_request_free(WireRequest *request); /* accepts NULL, returns NULL */
DEFINE_CLEANUP(WireRequest, wire_request_free)

/* Starts an RPC with its first message, the only message of a unary RPC. token: NULL or empty for none. deadline_usec
 * may be USEC_INFINITY. Never fails: each error is reported by rpc_ended(). */
WireCall *wire_call_start(Wire *wire, size_t endpoint, const WireMethod *method, const char *token,
                          const WireRequest *request, uint64_t deadline_usec, Rpc *rpc);
/* Sends one more message on a stream; -EBUSY if the previous message is not sent yet. */
int wire_call_send(WireCall *call, const ProtobufCMessage *message);
/* Cancels the RPC; unless it has ended already, its code is WIRE_CANCELLED. rpc_ended() runs soon. */
void wire_call_cut(WireCall *call);

/* ---- callbacks: etcd/rpc.c, etcd/message.c ---- */

/* Reports a received message, which rpc_received() then owns. NULL: the bytes were not a message of
 * method->response. */
void rpc_received(Rpc *rpc, ProtobufCMessage *message);
/* Reports the end of an RPC, as its last event. status is valid until rpc_ended() returns. */
void rpc_ended(Rpc *rpc, const WireStatus *status);

/* Unpacks a message, with a NUL after each of its bytes fields; returns NULL if the bytes are not such a message. */
ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                                 size_t n_bytes);
void message_free(ProtobufCMessage *message); /* accepts NULL */
