/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - collectives among the ranks of one world: gloo (CPU), nccl (later), self (one rank).
 *
 * Every call is collective: all ranks make the same calls in the same order. A comm belongs to one
 * generation. Once a call has failed, every later one fails at once; a new world opens a new comm.
 *
 * Folder:    Threads: any.
 * Ownership: comm_open_*() gives the caller a Comm; comm_free() accepts NULL. Buffers are host
 *            memory, borrowed.
 * Units:     counts are elements of the given type; *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT: the call's deadline has passed; -ECONNRESET: a peer closed its connection
 *            (the text has its rank); -ECANCELED: comm_abort(); -EIO: the text has the library's
 *            message. The first rank that times out closes its connections, so others may get
 *            -ECONNRESET.
 * Threads:   one thread at a time, except comm_abort(), which any thread may call. The process must
 *            ignore SIGPIPE before it opens a gloo comm.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

typedef struct Comm Comm;

typedef enum CommType { COMM_I32, COMM_I64, COMM_U32, COMM_F32 } CommType;
typedef enum CommOp { COMM_SUM, COMM_MAX } CommOp; /* MAX: COMM_U32 only; integer sums wrap */

/* The ranks of a world use this key to prove to each other that they belong to it. */
enum { COMM_SECRET_BYTES = 32 };
typedef struct CommKey {
    int64_t generation;
    /* known only to the world's ranks. NULL: a connection proves only that it was not made by
     * mistake */
    const uint8_t *secret;
} CommKey;

typedef struct CommOptions {
    int rank, size;
    const char *rendezvous;   /* "host:port" of rank 0's rendezvous store */
    const char *prefix;       /* keeps the comms of one store apart: "g3/train", "g3/report" */
    const char *bind_address; /* this node's own address */
    CommKey key;              /* borrowed until the comm is open */
    uint64_t connect_usec;    /* how long opening may take */
    uint64_t timeout_usec;    /* how long each call may take */
    int *unmet; /* if opening fails: set to 1 + the rank that could not be reached; may be NULL */
} CommOptions;

size_t comm_type_bytes(CommType type);

int comm_open_self(Comm **ret, Error *err);
int comm_open_gloo(const CommOptions *options, Comm **ret, Error *err);
Comm *comm_free(Comm *comm);
DEFINE_CLEANUP(Comm, comm_free)
int comm_rank(const Comm *comm);
int comm_size(const Comm *comm);

int comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err);
/* Gathers n_bytes of each rank into out, which has size * n_bytes, in rank order. in may be out +
 * rank * n_bytes. */
int comm_all_gather(Comm *comm, const void *in, void *out, size_t n_bytes, Error *err);

/* Reduce-scatter of a buffer that is dealt out piece by piece: piece i (the last one may be shorter)
 * belongs to rank i mod size. Sums the pieces of this rank over all ranks, in place or, unless out
 * is NULL, into out, one after another; other ranks' pieces in data are undefined afterwards. */
int comm_reduce_scatter_dealt(Comm *comm, CommType type, void *data, size_t n, size_t piece,
                              void *out, Error *err);
/* All-gather of a buffer that is dealt out in the same way: each rank contributes its own pieces
 * and receives all the others. */
int comm_all_gather_dealt(Comm *comm, void *data, size_t n_bytes, size_t piece_bytes, Error *err);

int comm_broadcast(Comm *comm, int root, void *data, size_t n_bytes, Error *err);
/* Makes the call in progress and all later ones fail with -ECANCELED. */
void comm_abort(Comm *comm);

/* ---- rendezvous store: a small key-value server on rank 0, through which comms are opened ---- */

typedef struct Rendezvous Rendezvous;

/* Listens on bind_address at a free port, and serves in its own thread until rendezvous_free().
 * Holds at most 4 world_size^2 + 1024 keys with values of up to 64 KiB. The number of connections
 * is bounded. A connection that does not prove within 2 s that it belongs to the world is dropped,
 * and cannot take the place of one that does. The key's secret is copied, and the copy is wiped at
 * the end. */
int rendezvous_new(const char *bind_address, int world_size, const CommKey *key, Rendezvous **ret,
                   Error *err);
Rendezvous *rendezvous_free(Rendezvous *rendezvous);
DEFINE_CLEANUP(Rendezvous, rendezvous_free)
const char *rendezvous_address(const Rendezvous *rendezvous); /* "host:port" */
