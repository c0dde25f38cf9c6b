/* SPDX-License-Identifier: Apache-2.0 */
/* testing-mesh.h - for tests: one rank of a world of any size, with the store and all connections in memory.
 *
 * It is linked in place of gloo-shim.cc, connector.c and rendezvous-client.c. The rank is real, its peers are
 * played: the test defines the bytes that they send, and records all that the rank sends. So a world of 16,384
 * ranks needs only one process.
 *
 * Ownership: one world per process; mesh_reset() empties it.
 * Units:     bytes; deadlines as in gloo-shim.h.
 * Errors:    a misuse of the three interfaces ends the process with a text: a message outside its buffer, overlapping
 *            messages at the same time, a wait without a message, a message that changed while it was sent.
 * Threads:   one.
 */
#pragma once

#include "trainer/comm/comm.h"

typedef struct MeshMessage {
    int peer;
    bool sent; /* sent by the real rank; else received */
    uint64_t slot;
    size_t n_bytes;
    uint64_t hash; /* hash of the message's bytes */
} MeshMessage;

enum { MESH_KEYS = 8192, MESH_NAME = 300 };

typedef struct MeshStore {
    char names[MESH_KEYS][MESH_NAME], values[MESH_KEYS][MESH_NAME];
    size_t n;
    /* The one key for which the store answers with an error; "": none. answer is that error. */
    char bad[MESH_NAME];
    int answer;
} MeshStore;

typedef struct Mesh {
    /* The test sets these fields. */
    void (*fill)(int peer, char *memory, size_t n_bytes); /* makes the data that come from a peer */
    bool late;      /* a message arrives when it is waited for, not at once */
    size_t fail_at; /* the number of the call of gloo-shim.h that fails; 0: none */
    /* hold_fails: the error of connector_hold(); hold_peer: the rank that connector_hold() reports */
    int hold_fails, hold_peer;
    int call_fails; /* the error of connector_call() to rank 3 */
    /* These fields record what the rank did. */
    /* n_calls: calls of gloo-shim.h; n_buffers: existing buffers; n_waiting: messages not yet waited for */
    size_t n_calls, n_buffers, n_waiting;
    size_t n_meetings, n_meshes; /* the numbers of existing connectors and of existing meshes */
    /* the largest number of receives from rank 0 that were posted and not yet waited for */
    size_t n_behind;
    uint64_t least_deadline, most_deadline;
    MeshMessage *messages;
    size_t n_messages, max_messages;
    int n_called, n_adopted, n_aborted;
    /* the memory range that the messages of a collective use: from lowest up to, not including, highest */
    char *lowest, *highest;
} Mesh;

extern Mesh mesh;
extern MeshStore mesh_store;

void mesh_reset(void);
/* Sets a key in the store, as another rank would. */
void mesh_publish(const char *name, const char *value);
/* Returns the value of a key, or NULL if it is not set. */
const char *mesh_published(const char *name);
/* Writes the address of a rank: the played connector reports it for this rank, and expects it for
 * the others. */
void mesh_address(int rank, char ret[MESH_NAME]);
