/* SPDX-License-Identifier: Apache-2.0 */
/* rpc.c - one gRPC call on one endpoint, as events on the loop.
 *
 * Four batches: what is sent, the server's first metadata, what is received (again and again), the
 * status. Each comes back once whatever happens, so an Rpc ends when none is pending; then it says
 * so and frees itself. At most one send and one receive are outstanding, as gRPC demands. */
#include "etcd/etcd-internal.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>
#include <string.h>

/* protobuf-c allocates a bytes field with its exact size: one byte more, zeroed, makes keys and
 * values NUL-terminated without a copy. */
static void *allocate(void *data _unused_, size_t size) { return calloc(1, size + 1); }
static void release(void *data _unused_, void *pointer) { free(pointer); }
static ProtobufCAllocator allocator = {.alloc = allocate, .free = release};

grpc_byte_buffer *message_pack(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
    protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return buffer;
}

static ProtobufCMessage *message_unpack(grpc_byte_buffer *buffer,
                                        const ProtobufCMessageDescriptor *descriptor)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, buffer))
        return NULL;
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &allocator, GRPC_SLICE_LENGTH(slice),
                                  GRPC_SLICE_START_PTR(slice));
    grpc_slice_unref(slice);
    grpc_byte_buffer_reader_destroy(&reader);
    return message;
}

void message_free(ProtobufCMessage *message)
{
    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
}

static void batch_start(Rpc *rpc, const grpc_op *ops, size_t n_ops, RpcStage stage)
{
    assert(rpc->n_pending < RPC_STAGES); /* one of each stage at a time */
    rpc->n_pending++;
    /* gRPC orders this before the thread's writes; the lock says so to ThreadSanitizer, too. */
    pthread_mutex_lock(&rpc->etcd->lock);
    rpc->completions[stage] = (Completion){.rpc = rpc, .stage = stage};
    pthread_mutex_unlock(&rpc->etcd->lock);
    grpc_call_error error =
        grpc_call_start_batch(rpc->call, ops, n_ops, &rpc->completions[stage], NULL);
    assert(error == GRPC_CALL_OK); /* anything else is a misuse of the API */
}

static void receive(Rpc *rpc)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &rpc->incoming;
    batch_start(rpc, &op, 1, RPC_RECEIVED);
}

static void metadata_add(Rpc *rpc, const char *key, const char *value)
{
    assert(rpc->n_metadata < ELEMENTSOF(rpc->metadata));
    rpc->metadata[rpc->n_metadata++] =
        (grpc_metadata){.key = grpc_slice_from_static_string(key),
                        .value = grpc_slice_from_copied_string(value)};
}

static void first_batches(Rpc *rpc)
{
    grpc_op send[3] = {0};
    send[0].op = GRPC_OP_SEND_INITIAL_METADATA;
    send[0].data.send_initial_metadata.count = rpc->n_metadata;
    send[0].data.send_initial_metadata.metadata = rpc->metadata;
    send[1].op = GRPC_OP_SEND_MESSAGE;
    send[1].data.send_message.send_message = rpc->outgoing;
    send[2].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    batch_start(rpc, send, rpc->method->unary ? 3 : 2, RPC_SENT);

    grpc_op started = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    started.data.recv_initial_metadata.recv_initial_metadata = &rpc->initial;
    batch_start(rpc, &started, 1, RPC_STARTED);

    receive(rpc);

    grpc_op finished = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    finished.data.recv_status_on_client.trailing_metadata = &rpc->trailing;
    finished.data.recv_status_on_client.status = &rpc->status;
    finished.data.recv_status_on_client.status_details = &rpc->details;
    batch_start(rpc, &finished, 1, RPC_FINISHED);
}

Rpc *rpc_start(Etcd *etcd, Endpoint *endpoint, const RpcMethod *method, grpc_byte_buffer *request,
               uint64_t deadline_usec, const RpcEvents *events, void *userdata)
{
    assert(!etcd->closed);
    assert(endpoint >= etcd->endpoints && endpoint < etcd->endpoints + etcd->n_endpoints);
    Rpc *rpc = memory_new(Rpc);
    uint64_t now = clock_boottime_usec();
    *rpc = (Rpc){
        .etcd = etcd,
        .endpoint = endpoint,
        .method = method,
        .events = events,
        .userdata = userdata,
        .outgoing = grpc_byte_buffer_copy(request),
        .details = grpc_empty_slice(),
        .waiting_usec = now,
    };
    /* Without it a member that has lost its leader leaves us waiting. */
    if (!method->leaderless)
        metadata_add(rpc, "hasleader", "true");
    if (etcd->token && *etcd->token)
        metadata_add(rpc, "token", etcd->token);
    grpc_metadata_array_init(&rpc->initial);
    grpc_metadata_array_init(&rpc->trailing);

    gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (deadline_usec != USEC_INFINITY)
        deadline =
            gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                         gpr_time_from_micros(deadline_usec > now ? (int64_t)(deadline_usec - now)
                                                                  : 0,
                                              GPR_TIMESPAN));
    rpc->call =
        grpc_channel_create_call(endpoint->channel, NULL, GRPC_PROPAGATE_DEFAULTS, etcd->queue,
                                 grpc_slice_from_static_string(method->path), NULL, deadline, NULL);
    LIST_INSERT_HEAD(&etcd->rpcs, rpc, list);
    first_batches(rpc);
    etcd_watchdog_arm(etcd);
    return rpc;
}

int rpc_send(Rpc *rpc, const ProtobufCMessage *message)
{
    assert(rpc->events && !rpc->method->unary);
    if (rpc->outgoing)
        return -EBUSY;
    rpc->outgoing = message_pack(message);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = rpc->outgoing;
    batch_start(rpc, &op, 1, RPC_SENT);
    if (rpc->waiting_usec == 0)
        rpc->waiting_usec = clock_boottime_usec();
    etcd_watchdog_arm(rpc->etcd);
    return 0;
}

void rpc_cut(Rpc *rpc)
{
    grpc_call_error error = grpc_call_cancel(rpc->call, NULL);
    assert(error == GRPC_CALL_OK);
}

Rpc *rpc_cancel(Rpc *rpc)
{
    if (rpc) {
        rpc->events = NULL;
        rpc->waiting_usec = 0;
        rpc_cut(rpc);
    }
    return NULL;
}

Rpc *rpc_forget(Rpc *rpc)
{
    if (rpc)
        rpc->events = NULL;
    return NULL;
}

static void received(Rpc *rpc)
{
    ProtobufCMessage *message = message_unpack(rpc->incoming, rpc->method->response);
    grpc_byte_buffer_destroy(rpc->incoming);
    rpc->incoming = NULL;

    rpc->endpoint->heard_usec = clock_boottime_usec();
    rpc->waiting_usec = 0;
    if (!message) {
        rpc->undecodable = true;
        rpc_cut(rpc);
        return;
    }
    if (rpc->events)
        rpc->events->message(rpc->userdata, message); /* may cancel this Rpc */
    else
        message_free(message);
    receive(rpc);
}

static void end(Rpc *rpc)
{
    const RpcEvents *events = rpc->events;
    char *text = grpc_slice_to_c_string(rpc->details);
    RpcStatus status = {
        .code = rpc->undecodable ? GRPC_STATUS_INTERNAL : rpc->status,
        .text = rpc->undecodable ? "the answer is no etcd message" : text,
        .endpoint = rpc->endpoint,
        .silent = rpc->silent,
    };
    void *userdata = rpc->userdata;

    assert(rpc->n_pending == 0 && !rpc->outgoing);
    LIST_REMOVE(rpc, list);
    for (size_t i = 0; i < rpc->n_metadata; i++)
        grpc_slice_unref(rpc->metadata[i].value);
    grpc_metadata_array_destroy(&rpc->initial);
    grpc_metadata_array_destroy(&rpc->trailing);
    grpc_slice_unref(rpc->details);
    grpc_call_unref(rpc->call);
    free(rpc);
    if (events)
        events->ended(userdata, &status);
    gpr_free(text);
}

void rpc_completed(Completion *completion)
{
    Rpc *rpc = completion->rpc;

    assert(completion == &rpc->completions[completion->stage]);
    switch (completion->stage) {
    case RPC_SENT:
        grpc_byte_buffer_destroy(rpc->outgoing);
        rpc->outgoing = NULL;
        break;
    case RPC_RECEIVED:
        if (completion->ok && rpc->incoming)
            received(rpc);
        break;
    case RPC_STARTED:
    case RPC_FINISHED:
        break;
    case RPC_STAGES:
        assert(false);
    }
    assert(rpc->n_pending > 0);
    if (--rpc->n_pending == 0)
        end(rpc);
}
