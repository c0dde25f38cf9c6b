/* SPDX-License-Identifier: Apache-2.0 */
/* comm.c - what all kinds of comm have in common: the calls, sticky failure, abort. */

#include "trainer/comm/comm.h"

#include "trainer/comm/comm-backend.h"

#include <string.h>

size_t comm_type_bytes(CommType type) { return type == COMM_I64 ? 8 : 4; }

int comm_rank(const Comm *comm) { return comm->rank; }

int comm_size(const Comm *comm) { return comm->size; }

Comm *comm_free(Comm *comm) { return comm ? comm->backend->free(comm) : NULL; }

void comm_abort(Comm *comm)
{
    atomic_store(&comm->aborted, true);
    comm->backend->abort(comm);
}

/* Before a call: returns the error of an earlier call or of an abort, or 0. */
static int comm_check(Comm *comm, const char *call, Error *err)
{
    if (atomic_load(&comm->aborted))
        return error_set(err, -ECANCELED, "%s: the comm was aborted", call);
    if (comm->failure.code < 0)
        return error_set(err, comm->failure.code, "%s: the comm failed before: %s", call,
                         comm->failure.text);
    return 0;
}

/* After a call: if the call has failed, stores the failure, so that all later calls fail. */
static int comm_conclude(Comm *comm, const char *call, int r, const Error *failure, Error *err)
{
    if (r >= 0)
        return 0;
    comm->failure = *failure;
    comm->failure.code = atomic_load(&comm->aborted) ? -ECANCELED : r;
    return error_set(err, comm->failure.code, "%s: rank %d of %d: %s", call, comm->rank, comm->size,
                     failure->text);
}

int comm_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err)
{
    assert(op == COMM_SUM || type == COMM_U32);
    Error failure = ERROR_INIT;
    int r = comm_check(comm, "all-reduce", err);
    if (r < 0 || n == 0)
        return r;
    r = comm->backend->all_reduce(comm, type, op, data, n, &failure);
    return comm_conclude(comm, "all-reduce", r, &failure, err);
}

int comm_reduce_scatter_dealt(Comm *comm, CommType type, void *data, size_t n, size_t piece,
                              void *out, Error *err)
{
    assert(piece > 0);
    Error failure = ERROR_INIT;
    int r = comm_check(comm, "reduce-scatter", err);
    if (r < 0 || n == 0)
        return r;
    r = comm->backend->reduce_scatter_dealt(comm, type, data, n, piece, out, &failure);
    return comm_conclude(comm, "reduce-scatter", r, &failure, err);
}

int comm_all_gather_dealt(Comm *comm, void *data, size_t n_bytes, size_t piece_bytes, Error *err)
{
    assert(piece_bytes > 0);
    Error failure = ERROR_INIT;
    int r = comm_check(comm, "all-gather", err);
    if (r < 0 || n_bytes == 0)
        return r;
    r = comm->backend->all_gather_dealt(comm, data, n_bytes, piece_bytes, &failure);
    return comm_conclude(comm, "all-gather", r, &failure, err);
}

int comm_all_gather(Comm *comm, const void *in, void *out, size_t n_bytes, Error *err)
{
    if (n_bytes == 0)
        return comm_check(comm, "all-gather", err);
    char *own = (char *)out + (size_t)comm->rank * n_bytes;
    if (own != in)
        memcpy(own, in, n_bytes);
    return comm_all_gather_dealt(comm, out, n_bytes * (size_t)comm->size, n_bytes, err);
}

int comm_broadcast(Comm *comm, int root, void *data, size_t n_bytes, Error *err)
{
    assert(root >= 0 && root < comm->size);
    Error failure = ERROR_INIT;
    int r = comm_check(comm, "broadcast", err);
    if (r < 0 || n_bytes == 0)
        return r;
    r = comm->backend->broadcast(comm, root, data, n_bytes, &failure);
    return comm_conclude(comm, "broadcast", r, &failure, err);
}
