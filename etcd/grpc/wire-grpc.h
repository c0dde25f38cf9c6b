/* SPDX-License-Identifier: Apache-2.0 */
/* wire-grpc.h - declarations shared by wire.c and wire-call.c; not for other code.
 *
 *   wire.c       Wire: one gRPC channel for each endpoint, the completion queue and its thread
 *   wire-call.c  WireCall: one gRPC call, as batches whose completions arrive in the queue
 *
 * Units: as in wire.h. Errors: as in wire.h.
 * Ownership: a Wire lists its WireCalls; a WireCall frees itself when its last batch has completed.
 * Threads:   the loop's thread, except the list of completions, which `lock` guards.
 */
#pragma once

#include "etcd/wire.h"

#include <grpc/grpc.h>
#include <pthread.h>
#include <sys/queue.h>

typedef enum WireStage {
    WIRE_SENT,
    WIRE_STARTED,
    WIRE_RECEIVED,
    WIRE_FINISHED,
    WIRE_STAGES
} WireStage;

/* The end of one batch of a WireCall: the completion queue's thread passes it to the loop. */
typedef struct Completion {
    struct Completion *next;
    WireCall *call;
    WireStage stage;
    bool ok;
} Completion;

struct Wire {
    sd_event_source *wake; /* event source that runs when wake_fd is readable */
    grpc_channel **channels;
    size_t n_channels;
    grpc_completion_queue *queue;
    pthread_t thread; /* drains the queue into `completions` */
    bool thread_runs;
    bool dispatching;
    int wake_fd; /* eventfd: signals that the thread has appended a completion */
    pthread_mutex_t lock;
    Completion *completions, **completions_end; /* guarded by lock */
    LIST_HEAD(, WireCall) calls;
};

struct WireCall {
    LIST_ENTRY(WireCall) list;
    Wire *wire;
    Rpc *rpc;
    const WireMethod *method;
    grpc_call *call;
    Completion completions[WIRE_STAGES];
    unsigned n_pending; /* batches that have not completed; the WireCall ends at 0 */
    grpc_metadata metadata[2];
    size_t n_metadata;
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *outgoing, *incoming;
    grpc_status_code status;
    grpc_slice details;
};

/* Handles one completed batch; frees the WireCall with its last batch. */
void wire_call_completed(Completion *completion);
