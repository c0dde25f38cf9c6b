/* SPDX-License-Identifier: Apache-2.0 */
/* wire-call.c - one gRPC call on one endpoint, as events on the loop.
 *
 * A call has four kinds of batches: sent messages, the server's first metadata, received messages (repeated), and the
 * status. Each batch completes exactly once, even after a failure. When no batch is pending, the WireCall
 * frees itself and reports its end. At most one send and one receive are outstanding, as gRPC requires. */
#include "base/clock.h"
#include "base/memory.h"
#include "etcd/grpc/wire-grpc.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>
#include <string.h>

#define SAME(name) _Static_assert((int)WIRE_##name == (int)GRPC_STATUS_##name, #name)
SAME(OK);
SAME(CANCELLED);
SAME(UNKNOWN);
SAME(INVALID_ARGUMENT);
SAME(DEADLINE_EXCEEDED);
SAME(NOT_FOUND);
SAME(ALREADY_EXISTS);
SAME(PERMISSION_DENIED);
SAME(RESOURCE_EXHAUSTED);
SAME(FAILED_PRECONDITION);
SAME(ABORTED);
SAME(OUT_OF_RANGE);
SAME(UNIMPLEMENTED);
SAME(INTERNAL);
SAME(UNAVAILABLE);
SAME(DATA_LOSS);
SAME(UNAUTHENTICATED);

/* ---- messages ---- */

struct WireRequest {
    grpc_byte_buffer *buffer;
};

static grpc_byte_buffer *message_pack(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

WireRequest *wire_request_new(const ProtobufCMessage *message)
{
    WireRequest *request = memory_new(WireRequest);
    request->buffer = message_pack(message);
    return request;
}

WireRequest *wire_request_free(WireRequest *request)
{
    if (request)
        grpc_byte_buffer_destroy(request->buffer);
    free(request);
    return NULL;
}

/* Returns NULL if the bytes are not a message of this type. */
static ProtobufCMessage *buffer_unpack(grpc_byte_buffer *buffer,
                                       const ProtobufCMessageDescriptor *descriptor)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return NULL;
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    ProtobufCMessage *message =
        message_unpack(descriptor, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
    grpc_slice_unref(slice);
    grpc_byte_buffer_reader_destroy(&reader);
    return message;
}

/* ---- sending ---- */

static void batch_start(WireCall *call, const grpc_op *ops, size_t n_ops, WireStage stage)
{
    assert(call->n_pending < WIRE_STAGES); /* at most one batch of each stage is pending */
    call->n_pending++;
    /* gRPC orders these writes before the writes of its own thread; the lock makes the order visible to
     * ThreadSanitizer. */
    pthread_mutex_lock(&call->wire->lock);
    call->completions[stage] = (Completion){.call = call, .stage = stage};
    pthread_mutex_unlock(&call->wire->lock);
    grpc_call_error error =
        grpc_call_start_batch(call->call, ops, n_ops, &call->completions[stage], NULL);
    assert(error == GRPC_CALL_OK); /* any other value reports a misuse of the API */
}

static void receive(WireCall *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->incoming;
    batch_start(call, &op, 1, WIRE_RECEIVED);
}

static void metadata_add(WireCall *call, const char *key, const char *value)
{
    assert(call->n_metadata < ELEMENTSOF(call->metadata));
    call->metadata[call->n_metadata++] =
        (grpc_metadata){.key = grpc_slice_from_static_string(key),
                        .value = grpc_slice_from_copied_string(value)};
}

static void first_batches(WireCall *call)
{
    grpc_op send[3] = {0};
    send[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    send[0].data.send_initial_metadata.count = call->n_metadata;
    send[0].data.send_initial_metadata.metadata = call->metadata;
    send[1].op = GRPC_OP_SEND_MESSAGE;
    send[1].data.send_message.send_message = call->outgoing;
    send[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    batch_start(call, send, call->method->unary ? 3 : 2, WIRE_SENT);

    grpc_op started = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    started.data.recv_initial_metadata.recv_initial_metadata = &call->initial;
    batch_start(call, &started, 1, WIRE_STARTED);

    receive(call);

    grpc_op finished = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    finished.data.recv_status_on_client.trailing_metadata = &call->trailing;
    finished.data.recv_status_on_client.status = &call->status;
    finished.data.recv_status_on_client.status_details = &call->details;
    batch_start(call, &finished, 1, WIRE_FINISHED);
}

/* Converts a CLOCK_BOOTTIME deadline to gRPC's monotonic clock, as gRPC has no CLOCK_BOOTTIME. */
static gpr_timespec deadline_of(uint64_t deadline_usec)
{
    uint64_t now = clock_boottime_usec();
    if (deadline_usec == USEC_INFINITY)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_micros(deadline_usec > now ? (int64_t)(deadline_usec - now)
                                                                 : 0,
                                             GPR_TIMESPAN));
}

WireCall *wire_call_start(Wire *wire, size_t endpoint, const WireMethod *method, const char *token,
                          const WireRequest *request, uint64_t deadline_usec, Rpc *rpc)
{
    assert(endpoint < wire->n_channels);
    WireCall *call = memory_new(WireCall);
    *call = (WireCall){
        .wire = wire,
        .rpc = rpc,
        .method = method,
        .outgoing = grpc_byte_buffer_copy(request->buffer),
        .details = grpc_empty_slice(),
    };
    /* Without this header, a member that has lost its leader never answers. */
    if (!method->leaderless)
        metadata_add(call, "hasleader", "true");
    if (token && *token)
        metadata_add(call, "token", token);
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->call = grpc_channel_create_call(wire->channels[endpoint], NULL, GRPC_PROPAGATE_DEFAULTS,
                                          wire->queue, grpc_slice_from_static_string(method->path),
                                          NULL, deadline_of(deadline_usec), NULL);
    LIST_INSERT_HEAD(&wire->calls, call, list);
    first_batches(call);
    return call;
}

int wire_call_send(WireCall *call, const ProtobufCMessage *message)
{
    assert(!call->method->unary);
    if (call->outgoing)
        return -EBUSY;
    call->outgoing = message_pack(message);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = call->outgoing;
    batch_start(call, &op, 1, WIRE_SENT);
    return 0;
}

void wire_call_cut(WireCall *call)
{
    grpc_call_error error = grpc_call_cancel(call->call, NULL);
    assert(error == GRPC_CALL_OK);
}

/* ---- receiving ---- */

static void received(WireCall *call)
{
    ProtobufCMessage *message = buffer_unpack(call->incoming, call->method->response);
    grpc_byte_buffer_destroy(call->incoming);
    call->incoming = NULL;

    bool whole = message;
    rpc_received(call->rpc, message); /* rpc_received() may cut this call */
    if (whole)
        receive(call);
}

/* Whether no connection was made. gRPC shows this only in the text of its error. */
static bool never_connected(grpc_status_code code, const char *text)
{
    return code == GRPC_STATUS_UNAVAILABLE && (strstr(text, "failed to connect to all addresses") ||
                                               strstr(text, "DNS resolution failed"));
}

static void end(WireCall *call)
{
    Rpc *rpc = call->rpc;
    char *text = grpc_slice_to_c_string(call->details);
    WireStatus status = {
        .code = (WireCode)call->status,
        .text = text,
        .unsent = never_connected(call->status, text),
    };

    assert(call->n_pending == 0 && !call->outgoing);
    LIST_REMOVE(call, list);
    for (size_t i = 0; i < call->n_metadata; i++)
        grpc_slice_unref(call->metadata[i].value);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_slice_unref(call->details);
    grpc_call_unref(call->call);
    free(call);
    rpc_ended(rpc, &status);
    gpr_free(text);
}

void wire_call_completed(Completion *completion)
{
    WireCall *call = completion->call;

    assert(completion == &call->completions[completion->stage]);
    switch (completion->stage) {
    case WIRE_SENT:
        grpc_byte_buffer_destroy(call->outgoing);
        call->outgoing = NULL;
        break;
    case WIRE_RECEIVED:
        if (completion->ok && call->incoming)
            received(call);
        break;
    case WIRE_STARTED:
    case WIRE_FINISHED:
        break;
    case WIRE_STAGES:
        assert(false);
    }
    assert(call->n_pending > 0);
    if (--call->n_pending == 0)
        end(call);
}
