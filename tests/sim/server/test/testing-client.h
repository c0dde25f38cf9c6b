/* SPDX-License-Identifier: Apache-2.0 */
/* testing-client.h - a client of a real etcd member that waits for each answer; it uses gRPC, and nothing of libetcd.
 *
 * Units: bytes. Threads: main thread only.
 * Ownership: testing_client_new() gives the caller a client, testing_stream_open() a stream; the functions that free
 *            them accept NULL. Messages are freed by protobuf_c_message_free_unpacked(message, NULL).
 * Errors:    a failure of gRPC itself ends the test; a call's status is its result.
 */
#pragma once

#include "base/cleanup.h"
#include "etcd.pb-c.h"

typedef struct TestingClient TestingClient;
typedef struct TestingStream TestingStream;

TestingClient *testing_client_new(const char *endpoint);
TestingClient *testing_client_free(TestingClient *client);
DEFINE_CLEANUP(TestingClient, testing_client_free)

/* Makes a call and returns gRPC's status. The caller frees *ret_text. token may be NULL. response
 * may be NULL, too: then the answer is not unpacked. */
int testing_client_call(TestingClient *client, const char *path, const char *token,
                        const void *request, size_t n_request,
                        const ProtobufCMessageDescriptor *response, ProtobufCMessage **ret,
                        char **ret_text);

TestingStream *testing_stream_open(TestingClient *client, const char *path, const char *token,
                                   const ProtobufCMessageDescriptor *response);
void testing_stream_send(TestingStream *stream, const ProtobufCMessage *message);
/* Returns the next message; NULL: no message arrived within a minute, or the stream has ended. */
ProtobufCMessage *testing_stream_receive(TestingStream *stream);
TestingStream *testing_stream_close(TestingStream *stream);
