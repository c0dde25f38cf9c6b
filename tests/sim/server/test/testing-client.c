/* SPDX-License-Identifier: Apache-2.0 */
/* testing-client.c - see testing-client.h: each gRPC batch is awaited before the next one begins. */
#include "tests/sim/server/test/testing-client.h"

#include "base/memory.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>

enum { PATIENCE_SEC = 60, MESSAGE_BYTES_MAX = 64 << 20 };

struct TestingClient {
    grpc_channel *channel;
    grpc_completion_queue *queue;
};

struct TestingStream {
    TestingClient *client;
    grpc_call *call;
    const ProtobufCMessageDescriptor *response;
    grpc_metadata token;
    grpc_metadata_array initial;
    bool started; /* the stream's initial metadata was requested */
};

TestingClient *testing_client_new(const char *endpoint)
{
    TestingClient *client = memory_new(TestingClient);
    grpc_arg arg = {
        .type = GRPC_ARG_INTEGER,
        .key = (char *)GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
        .value.integer = MESSAGE_BYTES_MAX,
    };
    grpc_channel_args args = {.num_args = 1, .args = &arg};

    grpc_init();
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    client->channel = grpc_channel_create(endpoint, credentials, &args);
    grpc_channel_credentials_release(credentials);
    client->queue = grpc_completion_queue_create_for_pluck(NULL);
    return client;
}

TestingClient *testing_client_free(TestingClient *client)
{
    if (!client)
        return NULL;
    grpc_channel_destroy(client->channel);
    grpc_completion_queue_shutdown(client->queue);
    grpc_completion_queue_destroy(client->queue);
    grpc_shutdown();
    free(client);
    return NULL;
}

static gpr_timespec deadline(void)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_seconds(PATIENCE_SEC, GPR_TIMESPAN));
}

static void batch(TestingClient *client, grpc_call *call, const grpc_op *ops, size_t n)
{
    void *tag = call;
    grpc_call_error error = grpc_call_start_batch(call, ops, n, tag, NULL);
    assert(error == GRPC_CALL_OK);
    grpc_event event =
        grpc_completion_queue_pluck(client->queue, tag, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    assert(event.type == GRPC_OP_COMPLETE);
}

static grpc_call *call_new(TestingClient *client, const char *path)
{
    return grpc_channel_create_call(client->channel, NULL, GRPC_PROPAGATE_DEFAULTS, client->queue,
                                    grpc_slice_from_static_string(path), NULL, deadline(), NULL);
}

static ProtobufCMessage *unpack(grpc_byte_buffer *buffer,
                                const ProtobufCMessageDescriptor *descriptor)
{
    grpc_byte_buffer_reader reader;

    if (!buffer || !descriptor || !grpc_byte_buffer_reader_init(&reader, buffer))
        return NULL;
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    ProtobufCMessage *ret = protobuf_c_message_unpack(descriptor, NULL, GRPC_SLICE_LENGTH(slice),
                                                      GRPC_SLICE_START_PTR(slice));
    grpc_slice_unref(slice);
    grpc_byte_buffer_reader_destroy(&reader);
    return ret;
}

static grpc_byte_buffer *buffer_of(const void *bytes, size_t n)
{
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes ? bytes : "", n);
    grpc_byte_buffer *ret = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return ret;
}

static grpc_metadata token_of(const char *token)
{
    return (grpc_metadata){.key = grpc_slice_from_static_string("token"),
                           .value = grpc_slice_from_copied_string(token ? token : "")};
}

int testing_client_call(TestingClient *client, const char *path, const char *token,
                        const void *request, size_t n_request,
                        const ProtobufCMessageDescriptor *response, ProtobufCMessage **ret,
                        char **ret_text)
{
    grpc_call *call = call_new(client, path);
    grpc_byte_buffer *out = buffer_of(request, n_request), *in = NULL;
    grpc_metadata_array initial, trailing;
    grpc_metadata metadata = token_of(token);
    grpc_status_code status;
    grpc_slice details = grpc_empty_slice();
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_MESSAGE},
                      {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};

    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
    ops[0].data.send_initial_metadata.count = token ? 1 : 0;
    ops[0].data.send_initial_metadata.metadata = &metadata;
    ops[1].data.send_message.send_message = out;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &initial;
    ops[4].data.recv_message.recv_message = &in;
    ops[5].data.recv_status_on_client.trailing_metadata = &trailing;
    ops[5].data.recv_status_on_client.status = &status;
    ops[5].data.recv_status_on_client.status_details = &details;
    batch(client, call, ops, ELEMENTSOF(ops));

    char *text = grpc_slice_to_c_string(details);
    *ret_text = memory_text(text);
    gpr_free(text);
    if (ret)
        *ret = unpack(in, response);
    grpc_slice_unref(details);
    grpc_slice_unref(metadata.value);
    grpc_metadata_array_destroy(&initial);
    grpc_metadata_array_destroy(&trailing);
    grpc_byte_buffer_destroy(out);
    grpc_byte_buffer_destroy(in);
    grpc_call_unref(call);
    return (int)status;
}

TestingStream *testing_stream_open(TestingClient *client, const char *path, const char *token,
                                   const ProtobufCMessageDescriptor *response)
{
    TestingStream *stream = memory_new(TestingStream);
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};

    stream->client = client;
    stream->response = response;
    stream->token = token_of(token);
    grpc_metadata_array_init(&stream->initial);
    stream->call = call_new(client, path);
    op.data.send_initial_metadata.count = token ? 1 : 0;
    op.data.send_initial_metadata.metadata = &stream->token;
    batch(client, stream->call, &op, 1);
    return stream;
}

void testing_stream_send(TestingStream *stream, const ProtobufCMessage *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = memory_zeroed(n + 1, 1);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};

    protobuf_c_message_pack(message, packed);
    grpc_byte_buffer *buffer = buffer_of(packed, n);
    op.data.send_message.send_message = buffer;
    batch(stream->client, stream->call, &op, 1);
    grpc_byte_buffer_destroy(buffer);
    free(packed);
}

ProtobufCMessage *testing_stream_receive(TestingStream *stream)
{
    grpc_byte_buffer *in = NULL;
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_MESSAGE}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};

    ops[0].data.recv_message.recv_message = &in; /* the call's deadline limits the wait */
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &stream->initial;
    batch(stream->client, stream->call, ops, stream->started ? 1 : 2);
    stream->started = true;
    ProtobufCMessage *ret = unpack(in, stream->response);
    grpc_byte_buffer_destroy(in);
    return ret;
}

TestingStream *testing_stream_close(TestingStream *stream)
{
    if (!stream)
        return NULL;
    grpc_call_error error = grpc_call_cancel(stream->call, NULL);
    assert(error == GRPC_CALL_OK);
    grpc_slice_unref(stream->token.value);
    grpc_metadata_array_destroy(&stream->initial);
    grpc_call_unref(stream->call);
    free(stream);
    return NULL;
}
