/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h - RPCs to etcd's members without a word of gRPC: all that libetcd needs of a network.
 *
 * Programs link etcd_grpc (etcd/grpc); a simulator links a model of the network and of etcd instead.
 *
 * One WireCall is one RPC on one endpoint. Its messages and its end are reported through rpc_received() and
 * rpc_ended(), by the loop and never from within a function of this header, but for wire_free().
 *
 * Ownership: wire_new() gives the caller a Wire, which holds a reference on the loop. A WireCall is its Wire's, and
 *            is gone when rpc_ended() runs. Arguments are borrowed for the call.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    negative errno. The outcome of an RPC is a code of the gRPC protocol, with the other side's words.
 * Threads:   the loop's thread.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "etcd/etcd.h"

#include <protobuf-c/protobuf-c.h>

typedef struct Wire Wire;               /* a client's connections to all its endpoints */
typedef struct WireCall WireCall;       /* one RPC */
typedef struct WireRequest WireRequest; /* a first message, ready to be sent any number of times */
typedef struct Rpc Rpc;                 /* etcd/rpc.c: who started a WireCall */

/* With the numbers of the gRPC protocol. */
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
    const char *text; /* the words of the server or of the network */
    bool unsent;      /* no connection came up, so the server has seen nothing of it */
} WireStatus;

typedef struct WireMethod {
    const char *path;
    const char *purpose; /* for people: "read", "lease grant" */
    const ProtobufCMessageDescriptor *response;
    bool unary;
    bool leaderless; /* a member that sees no leader may answer as well */
} WireMethod;

/* Connects to nothing yet: an endpoint's connection comes up with its first RPC. addresses are host:port, and the index
 * in them names an endpoint from now on; of options it takes what is said of TLS. */
int wire_new(sd_event *event, const EtcdOptions *options, const char *const *addresses,
             size_t n_addresses, Wire **ret, Error *err);
/* Cuts what is left and waits until it has ended: rpc_ended() runs for each. Accepts NULL, returns NULL. */
Wire *wire_free(Wire *wire);
/* Draws the endpoint that a client begins with: clients spread over the members. */
size_t wire_draw(Wire *wire);

WireRequest *wire_request_new(const ProtobufCMessage *message);
WireRequest *wire_request_free(WireRequest *request); /* accepts NULL, returns NULL */
DEFINE_CLEANUP(WireRequest, wire_request_free)

/* Starts an RPC with its first message; a unary one has no other. token: NULL or empty for none. deadline_usec may be
 * USEC_INFINITY. Never fails: each error arrives as rpc_ended(). */
WireCall *wire_call_start(Wire *wire, size_t endpoint, const WireMethod *method, const char *token,
                          const WireRequest *request, uint64_t deadline_usec, Rpc *rpc);
/* Sends one more message on a stream; -EBUSY while the message before is not sent. */
int wire_call_send(WireCall *call, const ProtobufCMessage *message);
/* Ends the RPC with WIRE_CANCELLED, unless it has ended otherwise; rpc_ended() runs soon. */
void wire_call_cut(WireCall *call);

/* ---- upwards: etcd/rpc.c, etcd/message.c ---- */

/* An answer; it owns message from now on. NULL: bytes that are not a message of method->response. */
void rpc_received(Rpc *rpc, ProtobufCMessage *message);
/* Comes last. status is valid until it returns. */
void rpc_ended(Rpc *rpc, const WireStatus *status);

/* The message that these bytes are, with a NUL behind each of its byte fields; NULL: they are none. */
ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                                 size_t n_bytes);
void message_free(ProtobufCMessage *message); /* accepts NULL */
