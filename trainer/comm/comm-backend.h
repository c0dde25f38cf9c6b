/* SPDX-License-Identifier: Apache-2.0 */
/* comm-backend.h - the operations that a kind of comm implements; comm.c does everything else.
 *
 * Ownership: a backend embeds Comm as its first member and is freed by its own `free`.
 * Units:     counts are elements if the operation has a type, else bytes.
 * Errors:    as comm.h. comm.c makes failures sticky and recognises failures that an abort caused.
 * Threads:   as comm.h; `abort` may be called by any thread.
 */
#pragma once

#include "trainer/comm/comm.h"

#include <stdatomic.h>

typedef struct CommBackend {
    int (*all_reduce)(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err);
    int (*reduce_scatter_dealt)(Comm *comm, CommType type, void *data, size_t n, size_t piece,
                                void *out, Error *err);
    int (*all_gather_dealt)(Comm *comm, void *data, size_t n_bytes, size_t piece_bytes, Error *err);
    int (*broadcast)(Comm *comm, int root, void *data, size_t n_bytes, Error *err);
    void (*abort)(Comm *comm);
    Comm *(*free)(Comm *comm);
} CommBackend;

struct Comm {
    const CommBackend *backend;
    int rank, size;
    atomic_bool aborted;
    Error failure; /* the error of the first call that failed */
};
