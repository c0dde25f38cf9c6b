/* SPDX-License-Identifier: Apache-2.0 */
/* gloo.c - collectives among CPU ranks, as direct exchanges over a mesh of TCP connections.
 *
 * All-gather: each rank sends its pieces to every other rank. Reduce-scatter: each rank sends the others their
 * pieces, block by block with a few blocks in flight, and adds the blocks that it receives. The order of the
 * additions is fixed (its own value first, then those of rank + 1, rank + 2, ...), so float sums have the same bits
 * in every run. All-reduce is a reduce-scatter followed by an all-gather or, when the data are small, one all-gather
 * and a local sum. Every byte crosses the network as often as in a ring, in fewer hops. */

#include "base/clock.h"
#include "trainer/comm/combine.h"
#include "trainer/comm/comm-backend.h"
#include "trainer/comm/connector.h"
#include "trainer/comm/gloo-shim.h"
#include "trainer/comm/rendezvous-client.h"
#include "trainer/comm/rendezvous-wire.h"

#include <signal.h>
#include <string.h>

enum {
    /* the smallest size of a comm's scratch memory, which has at least BLOCK_BYTES_MIN for each
     * rank */
    SCRATCH_BYTES = 4 << 20,
    BLOCK_BYTES_MAX = 256 << 10, /* a block and its sum stay in the second-level cache */
    BLOCK_BYTES_MIN = 4 << 10,
    BLOCKS_UNDER_WAY_MAX = 16,
    MESSAGES_UNDER_WAY = 64, /* messages of an all-gather in flight, over all peers */
    SMALL_BYTES = 16 << 10,  /* up to this size, an all-reduce is one exchange */
};

typedef struct GlooComm {
    Comm comm;
    GlooMesh *mesh;
    uint64_t timeout_usec;
    uint64_t deadline_usec; /* deadline of the call in progress */
    uint64_t next_slot;     /* slot of the next message; the same on all ranks */
    char *scratch;
    size_t scratch_bytes;
} GlooComm;

static GlooComm *gloo_comm(Comm *comm) { return (GlooComm *)comm; }

/* ---- pieces: who owns which part of a buffer ---- */

typedef struct Deal {
    size_t n, piece; /* n: elements of the buffer; piece: elements of one piece */
    size_t size;     /* the number of ranks */
} Deal;

typedef struct Range {
    size_t begin, length;
} Range;

static size_t deal_rows(const Deal *deal)
{
    return DIV_ROUND_UP(deal->n, deal->piece * deal->size);
}

/* Returns the range of one block of the rank's piece in the given row. `block` is the number of the
 * block; a block has at most `block_elements` elements. Beyond the end of the piece the range is
 * empty. */
static Range deal_block(const Deal *deal, size_t row, int rank, size_t block, size_t block_elements)
{
    size_t piece_begin = (row * deal->size + (size_t)rank) * deal->piece;
    size_t begin = piece_begin + block * block_elements;
    size_t end = MIN(MIN(begin + block_elements, piece_begin + deal->piece), deal->n);
    return begin < end ? (Range){begin, end - begin} : (Range){0, 0};
}

/* ---- the buffers of one call, one or more for each peer ---- */

typedef struct BufferSet {
    GlooBuffer **items;
    size_t n;
} BufferSet;

static void buffer_set_free(BufferSet *set)
{
    for (size_t i = 0; i < set->n && set->items; i++)
        (void)gloo_buffer_free(set->items[i]); /* always returns NULL */
    free(set->items);
}
#define _cleanup_buffers_ _cleanup_(buffer_set_free)

/* Makes `each` buffers for every peer: the k-th buffer of peer p is items[k * size + p] and spans
 * n_bytes from memory + k * stride + p * peer_stride. */
static int buffer_set_make(GlooComm *gloo, size_t each, char *memory, size_t n_bytes, size_t stride,
                           size_t peer_stride, BufferSet *ret, Error *err)
{
    size_t size = (size_t)gloo->comm.size;
    ret->n = each * size;
    ret->items = calloc(ret->n, sizeof(GlooBuffer *));
    if (!ret->items)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < ret->n; i++) {
        int peer = (int)(i % size);
        if (peer == gloo->comm.rank)
            continue;
        int r = gloo_buffer_new(gloo->mesh, peer,
                                memory + i / size * stride + (size_t)peer * peer_stride, n_bytes,
                                &ret->items[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int peer_at(const GlooComm *gloo, int distance)
{
    return (gloo->comm.rank + distance) % gloo->comm.size;
}

static uint64_t slots_take(GlooComm *gloo, size_t n)
{
    uint64_t first = gloo->next_slot;
    gloo->next_slot += n;
    return first;
}

static int wait_all_sent(GlooComm *gloo, const BufferSet *set, const size_t *sent, Error *err)
{
    for (int peer = 0; peer < gloo->comm.size; peer++) {
        for (size_t i = 0; i < sent[peer]; i++) {
            int r = gloo_buffer_wait_sent(set->items[peer], gloo->deadline_usec, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* ---- all-gather ---- */

static int gather_post(GlooComm *gloo, const Deal *deal, const BufferSet *set, uint64_t slot,
                       size_t row, size_t *sent, Error *err)
{
    Range own = deal_block(deal, row, gloo->comm.rank, 0, deal->piece);
    int r = 0;
    for (int k = 1; k < gloo->comm.size && r >= 0 && own.length > 0; k++) {
        int peer = peer_at(gloo, k);
        r = gloo_buffer_send(set->items[peer], slot + row, own.begin, own.length, err);
        sent[peer]++;
    }
    for (int k = 1; k < gloo->comm.size && r >= 0; k++) {
        int peer = peer_at(gloo, k);
        Range theirs = deal_block(deal, row, peer, 0, deal->piece);
        if (theirs.length > 0)
            r = gloo_buffer_receive(set->items[peer], slot + row, theirs.begin, theirs.length, err);
    }
    return r;
}

static int gather_finish(GlooComm *gloo, const Deal *deal, const BufferSet *set, size_t row,
                         Error *err)
{
    for (int k = 1; k < gloo->comm.size; k++) {
        int peer = peer_at(gloo, k);
        if (deal_block(deal, row, peer, 0, deal->piece).length == 0)
            continue;
        int r = gloo_buffer_wait_received(set->items[peer], gloo->deadline_usec, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int gather(GlooComm *gloo, void *data, size_t n_bytes, size_t piece_bytes, Error *err)
{
    const Deal deal = {n_bytes, piece_bytes, (size_t)gloo->comm.size};
    size_t rows = deal_rows(&deal);
    size_t ahead = MAX(MESSAGES_UNDER_WAY / deal.size, (size_t)1);
    uint64_t slot = slots_take(gloo, rows);
    _cleanup_free_ size_t *sent = calloc(deal.size, sizeof(*sent));
    _cleanup_buffers_ BufferSet set = {0};
    if (!sent)
        return error_set(err, -ENOMEM, "out of memory");
    int r = buffer_set_make(gloo, 1, data, n_bytes, 0, 0, &set, err);
    for (size_t row = 0; row < MIN(ahead, rows) && r >= 0; row++)
        r = gather_post(gloo, &deal, &set, slot, row, sent, err);
    for (size_t row = 0; row < rows && r >= 0; row++) {
        r = gather_finish(gloo, &deal, &set, row, err);
        if (r >= 0 && row + ahead < rows)
            r = gather_post(gloo, &deal, &set, slot, row + ahead, sent, err);
    }
    return r < 0 ? r : wait_all_sent(gloo, &set, sent, err);
}

/* ---- reduce-scatter ---- */

typedef struct Scatter {
    GlooComm *gloo;
    Deal deal;
    CommType type;
    CommOp op;
    size_t element_bytes, block_elements, blocks_each, depth;
    char *data;
    char *out; /* NULL: in place */
    uint64_t slot;
    BufferSet incoming; /* [depth][size] buffers in the scratch memory */
    BufferSet outgoing; /* [size] buffers in data */
    size_t *sent;
} Scatter;

static void scatter_free(Scatter *scatter)
{
    buffer_set_free(&scatter->incoming);
    buffer_set_free(&scatter->outgoing);
    free(scatter->sent);
}

static Range scatter_block(const Scatter *s, size_t turn, int rank)
{
    return deal_block(&s->deal, turn / s->blocks_each, rank, turn % s->blocks_each,
                      s->block_elements);
}

static size_t scatter_index(const Scatter *s, size_t turn, int peer)
{
    return turn % s->depth * s->deal.size + (size_t)peer;
}

static int scatter_post(Scatter *s, size_t turn, Error *err)
{
    GlooComm *gloo = s->gloo;
    Range own = scatter_block(s, turn, gloo->comm.rank);
    int r = 0;
    for (int k = 1; k < gloo->comm.size && r >= 0; k++) {
        int peer = peer_at(gloo, k);
        Range theirs = scatter_block(s, turn, peer);
        if (theirs.length == 0)
            continue;
        r = gloo_buffer_send(s->outgoing.items[peer], s->slot + turn,
                             theirs.begin * s->element_bytes, theirs.length * s->element_bytes,
                             err);
        s->sent[peer]++;
    }
    for (int k = 1; k < gloo->comm.size && r >= 0 && own.length > 0; k++) {
        size_t i = scatter_index(s, turn, peer_at(gloo, k));
        r = gloo_buffer_receive(s->incoming.items[i], s->slot + turn, 0,
                                own.length * s->element_bytes, err);
    }
    return r;
}

/* Adds this turn's blocks of all peers to this rank's own block. */
static int scatter_finish(Scatter *s, size_t turn, Error *err)
{
    GlooComm *gloo = s->gloo;
    Range own = scatter_block(s, turn, gloo->comm.rank);
    if (own.length == 0)
        return 0;
    char *into = s->data + own.begin * s->element_bytes;
    if (s->out) {
        size_t row = turn / s->blocks_each, block = turn % s->blocks_each;
        char *to = s->out + (row * s->deal.piece + block * s->block_elements) * s->element_bytes;
        memcpy(to, into, own.length * s->element_bytes);
        into = to;
    }
    for (int k = 1; k < gloo->comm.size; k++) {
        size_t i = scatter_index(s, turn, peer_at(gloo, k));
        int r = gloo_buffer_wait_received(s->incoming.items[i], gloo->deadline_usec, err);
        if (r < 0)
            return r;
        combine(s->type, s->op, into, gloo->scratch + i * s->block_elements * s->element_bytes,
                own.length);
    }
    return 0;
}

static int scatter(GlooComm *gloo, CommType type, CommOp op, void *data, size_t n, size_t piece,
                   void *out, Error *err)
{
    size_t size = (size_t)gloo->comm.size, bytes = comm_type_bytes(type);
    size_t block_bytes = CLAMP(SCRATCH_BYTES / (2 * size), BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
    size_t block = MIN(piece, block_bytes / bytes);
    __attribute__((cleanup(scatter_free))) Scatter s = {
        .gloo = gloo,
        .deal = {n, piece, size},
        .type = type,
        .op = op,
        .element_bytes = bytes,
        .block_elements = block,
        .blocks_each = DIV_ROUND_UP(piece, block),
        .depth = CLAMP(gloo->scratch_bytes / (size * block * bytes), 1, BLOCKS_UNDER_WAY_MAX),
        .data = data,
        .out = out,
        .sent = calloc(size, sizeof(size_t)),
    };
    size_t turns = deal_rows(&s.deal) * s.blocks_each;
    s.slot = slots_take(gloo, turns);
    if (!s.sent)
        return error_set(err, -ENOMEM, "out of memory");
    int r = buffer_set_make(gloo, s.depth, gloo->scratch, block * bytes, size * block * bytes,
                            block * bytes, &s.incoming, err);
    if (r >= 0)
        r = buffer_set_make(gloo, 1, data, n * bytes, 0, 0, &s.outgoing, err);
    for (size_t turn = 0; turn < MIN(s.depth, turns) && r >= 0; turn++)
        r = scatter_post(&s, turn, err);
    for (size_t turn = 0; turn < turns && r >= 0; turn++) {
        r = scatter_finish(&s, turn, err);
        if (r >= 0 && turn + s.depth < turns)
            r = scatter_post(&s, turn + s.depth, err);
    }
    return r < 0 ? r : wait_all_sent(gloo, &s.outgoing, s.sent, err);
}

/* ---- the calls ---- */

static void begin(GlooComm *gloo)
{
    gloo->deadline_usec = clock_boottime_usec() + gloo->timeout_usec;
}

static int gloo_reduce_scatter_dealt(Comm *comm, CommType type, void *data, size_t n, size_t piece,
                                     void *out, Error *err)
{
    begin(gloo_comm(comm));
    return scatter(gloo_comm(comm), type, COMM_SUM, data, n, piece, out, err);
}

static int gloo_all_gather_dealt(Comm *comm, void *data, size_t n_bytes, size_t piece_bytes,
                                 Error *err)
{
    begin(gloo_comm(comm));
    return gather(gloo_comm(comm), data, n_bytes, piece_bytes, err);
}

/* Every rank receives the data of all ranks, and adds them in rank order. */
static int all_reduce_small(GlooComm *gloo, CommType type, CommOp op, void *data, size_t n_bytes,
                            Error *err)
{
    size_t size = (size_t)gloo->comm.size;
    memcpy(gloo->scratch + (size_t)gloo->comm.rank * n_bytes, data, n_bytes);
    int r = gather(gloo, gloo->scratch, n_bytes * size, n_bytes, err);
    if (r < 0)
        return r;
    memcpy(data, gloo->scratch, n_bytes);
    for (size_t i = 1; i < size; i++)
        combine(type, op, data, gloo->scratch + i * n_bytes, n_bytes / comm_type_bytes(type));
    return 0;
}

static int gloo_all_reduce(Comm *comm, CommType type, CommOp op, void *data, size_t n, Error *err)
{
    GlooComm *gloo = gloo_comm(comm);
    size_t bytes = comm_type_bytes(type), size = (size_t)comm->size;
    begin(gloo);
    if (n * bytes <= SMALL_BYTES && n * bytes * size <= SCRATCH_BYTES)
        return all_reduce_small(gloo, type, op, data, n * bytes, err);
    size_t piece = DIV_ROUND_UP(n, size);
    int r = scatter(gloo, type, op, data, n, piece, NULL, err);
    return r < 0 ? r : gather(gloo, data, n * bytes, piece * bytes, err);
}

static int gloo_broadcast(Comm *comm, int root, void *data, size_t n_bytes, Error *err)
{
    GlooComm *gloo = gloo_comm(comm);
    begin(gloo);
    uint64_t slot = slots_take(gloo, 1);
    _cleanup_buffers_ BufferSet set = {0};
    int r = buffer_set_make(gloo, 1, data, n_bytes, 0, 0, &set, err);
    if (r < 0)
        return r;
    if (comm->rank != root) {
        r = gloo_buffer_receive(set.items[root], slot, 0, n_bytes, err);
        return r < 0 ? r : gloo_buffer_wait_received(set.items[root], gloo->deadline_usec, err);
    }
    for (int k = 1; k < comm->size && r >= 0; k++)
        r = gloo_buffer_send(set.items[peer_at(gloo, k)], slot, 0, n_bytes, err);
    for (int k = 1; k < comm->size && r >= 0; k++)
        r = gloo_buffer_wait_sent(set.items[peer_at(gloo, k)], gloo->deadline_usec, err);
    return r;
}

static void gloo_abort(Comm *comm) { gloo_mesh_abort(gloo_comm(comm)->mesh); }

static Comm *gloo_free(Comm *comm)
{
    GlooComm *gloo = gloo_comm(comm);
    (void)gloo_mesh_free(gloo->mesh); /* always returns NULL */
    free(gloo->scratch);
    free(gloo);
    return NULL;
}

static const CommBackend gloo_backend = {
    .all_reduce = gloo_all_reduce,
    .reduce_scatter_dealt = gloo_reduce_scatter_dealt,
    .all_gather_dealt = gloo_all_gather_dealt,
    .broadcast = gloo_broadcast,
    .abort = gloo_abort,
    .free = gloo_free,
};

/* ---- opening ---- */

static int key_of(const CommOptions *options, int rank, char ret[RENDEZVOUS_KEY_MAX + 1],
                  Error *err)
{
    int n = snprintf(ret, RENDEZVOUS_KEY_MAX + 1, "%s/%d", options->prefix, rank);
    if (n > RENDEZVOUS_KEY_MAX)
        return error_set(err, -EINVAL, "comm %s: prefix too long", options->prefix);
    return 0;
}

static void blame_peer(const CommOptions *options, int peer)
{
    if (options->unmet)
        *options->unmet = 1 + peer;
}

/* Publishes the address at which this rank listens. */
static int publish(const CommOptions *options, const Connector *meeting, uint64_t deadline_usec,
                   Error *err)
{
    char key[RENDEZVOUS_KEY_MAX + 1];
    const char *address = connector_address(meeting);
    int r = key_of(options, options->rank, key, err);
    if (r < 0)
        return r;
    r = rendezvous_set(options->rendezvous, &options->key, key, address, strlen(address),
                       deadline_usec, err);
    if (r < 0 && options->rank != 0 && rendezvous_is_away(r))
        blame_peer(options, 0); /* the store was not reached, and rank 0 serves it */
    return r;
}

/* Gets the address of a lower rank from the store, and calls the rank. */
static int find_peer(const CommOptions *options, Connector *meeting, int peer,
                     uint64_t deadline_usec, Error *err)
{
    char key[RENDEZVOUS_KEY_MAX + 1], address[ADDRESS_MAX];
    size_t n = 0;
    int r = key_of(options, peer, key, err);
    if (r >= 0)
        r = rendezvous_get(options->rendezvous, &options->key, key, address, sizeof(address) - 1,
                           &n, deadline_usec, err);
    if (r < 0) {
        if (rendezvous_is_away(r))
            blame_peer(options, r == -ETIMEDOUT ? peer : 0); /* rank 0 has the store */
        return r;
    }
    address[n] = '\0';
    r = connector_call(meeting, peer, address, err);
    if (r < 0)
        blame_peer(options, peer);
    return r;
}

static int connect_peers(const CommOptions *options, GlooMesh *mesh, uint64_t deadline_usec,
                         Error *err)
{
    _cleanup_(connector_freep) Connector *meeting = NULL;
    int r = connector_open(options, &meeting, err);
    if (r >= 0)
        r = publish(options, meeting, deadline_usec, err);
    if (r < 0)
        return r;
    for (int peer = 0; peer < options->rank && r >= 0; peer++)
        r = find_peer(options, meeting, peer, deadline_usec, err);
    if (r < 0)
        return r;
    int missing = 0;
    r = connector_hold(meeting, deadline_usec, &missing, err);
    if (r < 0)
        blame_peer(options, missing);
    for (int peer = 0; peer < options->size && r >= 0; peer++)
        if (peer != options->rank)
            r = gloo_mesh_adopt(mesh, peer, connector_take(meeting, peer), err);
    return r;
}

int comm_open_gloo(const CommOptions *options, Comm **ret, Error *err)
{
    assert(options->size > 0 && options->rank >= 0 && options->rank < options->size);
    struct sigaction pipe_action;
    assert(sigaction(SIGPIPE, NULL, &pipe_action) == 0 && pipe_action.sa_handler != SIG_DFL);

    uint64_t deadline_usec = clock_boottime_usec() + options->connect_usec;
    GlooComm *gloo = calloc(1, sizeof(*gloo));
    if (!gloo)
        return error_set(err, -ENOMEM, "comm %s: out of memory", options->prefix);
    gloo->comm.backend = &gloo_backend;
    gloo->comm.rank = options->rank;
    gloo->comm.size = options->size;
    gloo->timeout_usec = options->timeout_usec;
    _cleanup_(comm_freep) Comm *comm = &gloo->comm;

    gloo->scratch_bytes =
        MAX((size_t)SCRATCH_BYTES, (size_t)options->size * (size_t)BLOCK_BYTES_MIN);
    gloo->scratch = malloc(gloo->scratch_bytes);
    if (!gloo->scratch)
        return error_set(err, -ENOMEM, "comm %s: out of memory", options->prefix);
    int r = gloo_mesh_new(options->rank, options->size, &gloo->mesh, err);
    if (r >= 0)
        r = connect_peers(options, gloo->mesh, deadline_usec, err);
    if (r < 0)
        return error_prefix(err, r, "opening comm %s as rank %d of %d", options->prefix,
                            options->rank, options->size);
    *ret = TAKE_PTR(comm);
    return 0;
}
