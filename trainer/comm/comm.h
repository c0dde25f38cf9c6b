/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h - collectives among the ranks of one world: gloo (CPU), nccl (later), self (one rank).
 *
 * Every call is collective: all ranks make the same calls in the same order. A comm belongs to one
 * generation. Once a call has failed, every later call fails at once; a new world opens a new comm.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: comm_open_*() gives the caller a Comm; comm_free() accepts NULL. Buffers are host
 *            memory, borrowed.
 * Units:     counts are elements of the given type; *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -ETIMEDOUT: the call's deadline has passed; -ECONNRESET: a peer closed its connection
 *            (the error's text has the peer's rank); -ECANCELED: comm_abort(); -EIO: the text has
 *            the library's message. The first rank that times out closes its connections, so other
 *            ranks may get -ECONNRESET.
 * Threads:   one thread at a time, except comm_abort(), which any thread may call. The process must
 *            ignore SIGPIPE before it opens a gloo comm.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

typedef struct Comm Comm;

typedef enum CommType { COMM_I32, COMM_I64, COMM_U32, COMM_F32 } CommType;
/* COMM_MAX takes only COMM_U32; integer sums wrap */
typedef enum CommOp { COMM_SUM, COMM_MAX } CommOp;

/* The ranks of a world use this key to prove to each other that they belong to that world. */
enum { COMM_SECRET_BYTES = 32 };
typedef struct CommKey {
    int64_t generation;
    /* a secret that only the world's ranks know. NULL: ranks cannot prove to each other that they
     * belong to the world */
    const uint8_t *secret;
} CommKey;

typedef struct CommOptions {
    int rank, size;
    const char *rendezvous;   /* "host:port" of rank 0's rendezvous store */
    const char *prefix;       /* keeps the comms of one store apart: "g3/train", "g3/report" */
    const char *bind_address; /* this node's own address */
    CommKey key;              /* key.secret is borrowed until the comm is open */
    uint64_t connect_usec;    /* how long opening may take */
    uint64_t timeout_usec;    /* how long each call may take */
    /* if opening fails, *unmet becomes 1 + the rank that could not be reached; may be NULL */
    int *unmet;
} CommOptions;

size_t comm_type_bytes(CommType type);

int comm_open_self(Comm **ret, Error *err);
int comm_open_gloo(const CommOptions *options, Comm **ret, Error *err);
Comm *comm_free(Comm *comm);
DEFINE_CLEANUP(Comm, comm_free)
int comm_rank(const Comm *comm);
int comm_size(const Comm *comm);

int comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err);
/* Gathers n_bytes of each rank into `out`, in rank order; `out` has size * n_bytes bytes. The
 * pointer `in` may be out + rank * n_bytes. */
int comm_all_gather(Comm *comm, const void *in, void *out, size_t n_bytes, Error *err);

/* Reduce-scatter of a buffer that is dealt out piece by piece: piece i (the last one may be shorter) belongs to rank i
 * mod size. Sums the pieces of this rank over all ranks. If `out` is NULL, the sums replace this rank's pieces in
 * `data`; else they are written to `out`, one after another. Afterwards the other ranks' pieces in `data` are
 * undefined. */
int comm_reduce_scatter_dealt(Comm *comm, CommType type, void *data, size_t n, size_t piece,
                              void *out, Error *err);
/* All-gather of a buffer that is dealt out piece by piece, as for comm_reduce_scatter_dealt(): each
 * rank contributes its own pieces and receives all other pieces. */
int comm_all_gather_dealt(Comm *comm, void *data, size_t n_bytes, size_t piece_bytes, Error *err);

int comm_broadcast(Comm *comm, int root, void *data, size_t n_bytes, Error *err);
/* Makes the call in progress and all later calls fail with -ECANCELED. */
void comm_abort(Comm *comm);

/* ---- rendezvous store: a small key-value server on rank 0, through which comms are opened ---- */

typedef struct Rendezvous Rendezvous;

/* Listens on bind_address at a free port, and serves in its own thread until rendezvous_free().
 * Holds at most 4 world_size^2 + 1024 keys with values of up to 64 KiB. The number of connections
 * is bounded. A connection that does not prove within 2 s that it belongs to the world is dropped,
 * and cannot take the place of a connection that has proven it. The key's secret is copied;
 * rendezvous_free() wipes the copy. */
int rendezvous_new(const char *bind_address, int world_size, const CommKey *key, Rendezvous **ret,
                   Error *err);
Rendezvous *rendezvous_free(Rendezvous *rendezvous);
DEFINE_CLEANUP(Rendezvous, rendezvous_free)
const char *rendezvous_address(const Rendezvous *rendezvous); /* "host:port" */
