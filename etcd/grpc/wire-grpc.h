/* SPDX-License-Identifier: Apache-2.0 */
/* wire-grpc.h - what the two files of gRPC's wire share; nobody else includes it.
 *
 *   wire.c       Wire: one gRPC channel for each endpoint, the completion queue and its thread
 *   wire-call.c  WireCall: one gRPC call, as batches that come back through the queue
 *
 * Ownership: a Wire counts its WireCalls; a WireCall frees itself when its last batch has come back.
 * Units:     as wire.h.
 * Errors:    as wire.h.
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

/* One batch of a WireCall has ended: the completion queue's thread hands this to the loop. */
typedef struct Completion {
    struct Completion *next;
    WireCall *call;
    WireStage stage;
    bool ok;
} Completion;

struct Wire {
    sd_event_source *wake; /* wake_fd became readable */
    grpc_channel **channels;
    size_t n_channels;
    grpc_completion_queue *queue;
    pthread_t thread; /* drains the queue into `completions` */
    bool thread_runs;
    bool dispatching;
    int wake_fd; /* eventfd: the thread has appended a completion */
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
    unsigned n_pending; /* batches that have not come back; the WireCall ends at 0 */
    grpc_metadata metadata[2];
    size_t n_metadata;
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *outgoing, *incoming;
    grpc_status_code status;
    grpc_slice details;
};

/* Handles one ended batch; frees the WireCall with its last one. */
void wire_call_completed(Completion *completion);
