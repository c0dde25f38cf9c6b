/* SPDX-License-Identifier: Apache-2.0 */
/* testing-mesh.h - for tests: one rank of a world of any size, whose store, meeting and connections are in memory.
 *
 * It is linked in place of gloo-shim.cc, connector.c and rendezvous-client.c. The rank is real, its peers are
 * played: the test says what bytes come from them, and is told of all that the rank sends. So a world of 16,384
 * ranks takes one process.
 *
 * Ownership: one world a process; mesh_reset() empties it.
 * Units:     bytes; deadlines as gloo-shim.h has them.
 * Errors:    a misuse of the three interfaces ends the process with its text: a message outside its buffer, one place
 *            for two messages at once, a wait for nothing, a message that changed while it was sent.
 * Threads:   one.
 */
#pragma once

#include "trainer/comm/comm.h"

typedef struct MeshMessage {
    int peer;
    bool sent; /* else received */
    uint64_t slot;
    size_t n_bytes;
    uint64_t hash; /* of the bytes */
} MeshMessage;

enum { MESH_KEYS = 8192, MESH_NAME = 300 };

typedef struct MeshStore {
    char names[MESH_KEYS][MESH_NAME], values[MESH_KEYS][MESH_NAME];
    size_t n;
    /* The one key for which the store answers with an error, and that error; "": there is none. */
    char bad[MESH_NAME];
    int answer;
} MeshStore;

typedef struct Mesh {
    /* The test's. */
    void (*fill)(int peer, char *memory, size_t n_bytes); /* what comes from a peer */
    bool late;                 /* it comes when it is waited for, not at once */
    size_t fail_at;            /* the call of gloo-shim.h that fails; 0: none */
    int hold_fails, hold_peer; /* what connector_hold() says */
    int call_fails;            /* connector_call() to rank 3 says this */
    /* The record of what the rank did. */
    size_t n_calls, n_buffers,
        n_waiting; /* calls of gloo-shim.h; buffers there are; messages nobody waited for */
    size_t n_meetings, n_meshes; /* that there are */
    size_t n_behind; /* the most messages that were posted to come from rank 0 and not waited for */
    uint64_t least_deadline, most_deadline;
    MeshMessage *messages;
    size_t n_messages, max_messages;
    int n_called, n_adopted, n_aborted;
    char *lowest,
        *highest; /* of the memory that messages of a collective may go through; highest: behind it */
} Mesh;

extern Mesh mesh;
extern MeshStore mesh_store;

void mesh_reset(void);
/* Puts a key into the store, as another rank does. */
void mesh_publish(const char *name, const char *value);
/* NULL: nobody has set it. */
const char *mesh_published(const char *name);
/* The address of a rank, as the played meeting gives it to this one and wants it of the others. */
void mesh_address(int rank, char ret[MESH_NAME]);
