/* SPDX-License-Identifier: Apache-2.0 */
/* message.c - unpacks and frees received messages. */
#include "etcd/wire.h"

#include <stdlib.h>

/* protobuf-c allocates a bytes field with its exact size. One more byte, zeroed, makes keys and values NUL-terminated
 * without a copy. */
static void *allocate(void *data _unused_, size_t size) { return calloc(1, size + 1); }
static void release(void *data _unused_, void *pointer) { free(pointer); }
static const ProtobufCAllocator allocator = {.alloc = allocate, .free = release};

ProtobufCMessage *message_unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *bytes,
                                 size_t n_bytes)
{
    ProtobufCAllocator own = allocator; /* protobuf-c accepts no const allocator */
    return protobuf_c_message_unpack(descriptor, &own, n_bytes, bytes);
}

void message_free(ProtobufCMessage *message)
{
    ProtobufCAllocator own = allocator;
    if (message)
        protobuf_c_message_free_unpacked(message, &own);
}
