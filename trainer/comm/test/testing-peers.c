/* SPDX-License-Identifier: Apache-2.0 */
/* testing-peers.c - see testing-peers.h. */

#include "trainer/comm/test/testing-peers.h"

#include "trainer/comm/comm-backend.h"

#include <string.h>

typedef struct PlayedComm {
    Comm comm;
    const Play *play;
} PlayedComm;

static int ask(Comm *comm, PlayedCall call, void *data, size_t n_bytes, size_t own_bytes,
               Error *err)
{
    const Play *play = ((PlayedComm *)comm)->play;
    int r = play->play(play->arg, call, data, n_bytes, own_bytes);
    return r < 0 ? error_set(err, r, "a played peer failed") : 0;
}

static int played_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err)
{
    (void)op;
    size_t n_bytes = n * comm_type_bytes(type);
    return ask(comm, PLAYED_ALL_REDUCE, data, n_bytes, n_bytes, err);
}

static int played_reduce_scatter(Comm *comm, CommType type, void *data, size_t n, size_t piece,
                                 void *out, Error *err)
{
    size_t bytes = comm_type_bytes(type);
    int r = ask(comm, PLAYED_REDUCE_SCATTER, data, n * bytes, piece * bytes, err);
    size_t row = piece * (size_t)comm->size, to = 0;
    for (size_t begin = piece * (size_t)comm->rank; out && begin < n; begin += row, to += piece)
        memcpy((char *)out + to * bytes, (char *)data + begin * bytes,
               MIN(piece, n - begin) * bytes);
    return r;
}

static int played_all_gather(Comm *comm, void *data, size_t n_bytes, size_t piece_bytes, Error *err)
{
    return ask(comm, PLAYED_ALL_GATHER, data, n_bytes, piece_bytes, err);
}

static int played_broadcast(Comm *comm, int root, void *data, size_t n_bytes, Error *err)
{
    return root == comm->rank ? 0 : ask(comm, PLAYED_BROADCAST, data, n_bytes, n_bytes, err);
}

static void played_abort(Comm *comm) { (void)comm; /* no call is in progress */ }

static Comm *played_free(Comm *comm)
{
    free(comm);
    return NULL;
}

static const CommBackend played_backend = {
    .all_reduce = played_all_reduce,
    .reduce_scatter_dealt = played_reduce_scatter,
    .all_gather_dealt = played_all_gather,
    .broadcast = played_broadcast,
    .abort = played_abort,
    .free = played_free,
};

int comm_open_played(int rank, int size, const Play *play, Comm **ret, Error *err)
{
    PlayedComm *played = calloc(1, sizeof(*played));
    if (!played)
        return error_set(err, -ENOMEM, "played comm: out of memory");
    played->comm = (Comm){.backend = &played_backend, .rank = rank, .size = size};
    played->play = play;
    *ret = &played->comm;
    return 0;
}
