/* SPDX-License-Identifier: Apache-2.0 */
/* train-state.c - the buffers of the training state and its hashes. */

#include "trainer/state/train-state.h"

#include "base/clock.h"
#include "trainer/state/device-patience.h"

#include <string.h>

size_t train_state_piece_bytes = 8 << 20;
static const uint64_t HASH_TIMEOUT_USEC = 60 * USEC_PER_SEC; /* timeout for copying one piece */

struct StateTraffic {
    float *pieces[2]; /* host memory for copies that are hashed; NULL until the first hash */
    Fence copied;     /* reached when the copies of the newest save are done */
    uint64_t waited_usec;
};

/* ZeRO 0 keeps every chunk, in chunk order, which is the layout of a world of one rank. */
int train_state_shards(const TrainState *state)
{
    return state->zero_stage == 0 ? 1 : state->world_size;
}

bool train_state_keeps(const TrainState *state, int64_t chunk)
{
    int n_shards = train_state_shards(state);
    return chunk_owner(chunk, n_shards) == state->rank % n_shards;
}

static int buffers_allocate(TrainState *state, bool ema, Error *err)
{
    size_t whole = (size_t)state->layout.n_elements * sizeof(float);
    size_t shard = (size_t)(shard_slots(&state->layout, train_state_shards(state)) *
                            state->layout.chunk_elements) *
                   sizeof(float);
    int r = device_allocate(state->device, whole, (void **)&state->weights, err);
    if (r >= 0)
        r = device_allocate(state->device, shard, (void **)&state->m, err);
    if (r >= 0)
        r = device_allocate(state->device, shard, (void **)&state->v, err);
    if (r >= 0 && ema)
        r = device_allocate(state->device, shard, (void **)&state->ema, err);
    return r;
}

int train_state_new(Device *device, const ParameterList *parameters, int rank, int world_size,
                    int zero_stage, bool ema, TrainState **ret, Error *err)
{
    assert(rank >= 0 && rank < world_size);
    assert(zero_stage >= 0 && zero_stage <= 2);

    _cleanup_(train_state_freep) TrainState *state = calloc(1, sizeof(*state));
    if (!state)
        return error_set(err, -ENOMEM, "training state: out of memory");
    *state = (TrainState){
        .device = device,
        .parameters = parameters,
        .layout = chunk_layout(parameters->n_elements),
        .rank = rank,
        .world_size = world_size,
        .zero_stage = zero_stage,
        .scalars = {.loss_scale = 1},
    };
    state->scalars.maxima = calloc(parameters->n_items, MAXIMA_WINDOW * sizeof(uint32_t));
    state->traffic = calloc(1, sizeof(*state->traffic));
    if (!state->scalars.maxima || !state->traffic)
        return error_set(err, -ENOMEM, "training state: out of memory");
    int r = buffers_allocate(state, ema, err);
    if (r < 0)
        return error_prefix(err, r, "training state of %lld elements, rank %d of %d, ZeRO %d",
                            (long long)parameters->n_elements, rank, world_size, zero_stage);
    *ret = TAKE_PTR(state);
    return 0;
}

TrainState *train_state_free(TrainState *state)
{
    if (!state)
        return NULL;
    train_state_release_staging(state);
    if (device_is_idle(state->device)) {
        device_release(state->device, state->weights);
        device_release(state->device, state->m);
        device_release(state->device, state->v);
        device_release(state->device, state->ema);
    }
    free(state->scalars.maxima);
    free(state->traffic);
    free(state);
    return NULL;
}

float *train_state_chunk(const TrainState *state, float *shard, int64_t chunk)
{
    assert(chunk >= 0 && chunk < state->layout.n_chunks);
    if (!shard || !train_state_keeps(state, chunk))
        return NULL;
    assert(chunk / train_state_shards(state) <
           shard_slots(&state->layout, train_state_shards(state)));
    return shard + chunk / train_state_shards(state) * state->layout.chunk_elements;
}

/* ---- copies of a save ---- */

void train_state_copying(const TrainState *state, Fence copied)
{
    state->traffic->copied = copied;
    state->traffic->waited_usec = 0;
}

void train_state_before_write(const TrainState *state)
{
    StateTraffic *traffic = state->traffic;
    if (device_reached(state->device, traffic->copied))
        return;
    const uint64_t begun = clock_boottime_usec();
    device_wait(state->device, LANE_COMPUTE, traffic->copied);
    traffic->waited_usec += clock_boottime_usec() - begun;
}

uint64_t train_state_waited_usec(const TrainState *state) { return state->traffic->waited_usec; }

/* ---- hashes ---- */

void train_state_release_staging(const TrainState *state)
{
    if (!state->traffic)
        return;
    const bool idle = device_is_idle(state->device);
    for (size_t i = 0; i < ELEMENTSOF(state->traffic->pieces); i++) {
        if (idle)
            device_host_release(state->device, state->traffic->pieces[i]);
        state->traffic->pieces[i] = NULL;
    }
}

static int64_t piece_elements(const TrainState *state)
{
    return MIN((int64_t)(train_state_piece_bytes / sizeof(float)), state->layout.chunk_elements);
}

static int stage(const TrainState *state, Error *err)
{
    for (size_t i = 0; i < ELEMENTSOF(state->traffic->pieces); i++) {
        if (state->traffic->pieces[i])
            continue;
        int r = device_host_allocate(state->device, (size_t)piece_elements(state) * sizeof(float),
                                     (void **)&state->traffic->pieces[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Up to four ranges of n elements each, which are hashed one after another in pieces. */
typedef struct HashedRanges {
    const float *ranges[4];
    size_t n_ranges;
    int64_t n;
} HashedRanges;

typedef struct HashPlace {
    size_t range;
    int64_t at;
} HashPlace;

/* Starts the copy of the next piece. Returns the number of elements of the piece; 0: no piece is left. */
static int64_t fetch_piece(const TrainState *state, const HashedRanges *h, HashPlace *place,
                           float *to)
{
    if (place->range == h->n_ranges)
        return 0;
    const int64_t part = MIN(h->n - place->at, piece_elements(state));
    device_fetch(state->device, LANE_OUT, to, h->ranges[place->range] + place->at,
                 (size_t)part * sizeof(float));
    place->at += part;
    if (place->at == h->n)
        *place = (HashPlace){.range = place->range + 1};
    return part;
}

/* Copies the next piece while the current one is hashed. When this function returns 0, no copy is in progress. */
static int hash_ranges(const TrainState *state, const HashedRanges *h, Hasher *hasher, Error *err)
{
    float *const *pieces = state->traffic->pieces;
    HashPlace place = {0};
    int64_t n[2];
    Fence fences[2];
    device_wait(state->device, LANE_OUT, device_fence(state->device, LANE_COMPUTE));
    n[0] = fetch_piece(state, h, &place, pieces[0]);
    fences[0] = device_fence(state->device, LANE_OUT);
    for (size_t k = 0; n[k] > 0; k = 1 - k) {
        n[1 - k] = fetch_piece(state, h, &place, pieces[1 - k]);
        fences[1 - k] = device_fence(state->device, LANE_OUT);
        int r = device_await(state->device, fences[k], device_patience(HASH_TIMEOUT_USEC), err);
        if (r < 0)
            return r;
        hasher_update(hasher, pieces[k], (size_t)n[k] * sizeof(float));
    }
    return 0;
}

/* Hashes device memory without copying it, on a device whose memory the host can read. */
static int hash_in_place(const TrainState *state, const HashedRanges *h, Hasher *hasher, Error *err)
{
    Device *device = state->device;
    int r = device_await(device, device_fence(device, LANE_COMPUTE),
                         device_patience(HASH_TIMEOUT_USEC), err);
    for (size_t i = 0; r == 0 && i < h->n_ranges; i++)
        hasher_update(hasher, device_host_view(device, h->ranges[i]), (size_t)h->n * sizeof(float));
    return r;
}

static int hash_copies(const TrainState *state, const HashedRanges *h, Hasher *hasher, Error *err)
{
    int r = stage(state, err);
    return r == 0 ? hash_ranges(state, h, hasher, err) : r;
}

int train_state_chunk_hash(const TrainState *state, int64_t chunk, Hash *ret, Error *err)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    HashedRanges h = {.ranges = {state->weights + chunk_begin(&state->layout, chunk),
                                 train_state_chunk(state, state->m, chunk),
                                 train_state_chunk(state, state->v, chunk)},
                      .n_ranges = 3,
                      .n = chunk_length(&state->layout, chunk)};
    assert(h.ranges[1] && h.ranges[2]); /* only a rank that keeps the chunk can hash it */
    if (state->ema_active)
        h.ranges[h.n_ranges++] = train_state_chunk(state, state->ema, chunk);
    if (hasher_new(&hasher) < 0)
        return error_set(err, -ENOMEM, "hash of chunk %lld: out of memory", (long long)chunk);
    int r = device_host_view(state->device, state->weights) ? hash_in_place(state, &h, hasher, err)
                                                            : hash_copies(state, &h, hasher, err);
    if (r < 0)
        return error_prefix(err, r, "hash of chunk %lld", (long long)chunk);
    *ret = hasher_digest(hasher);
    return 0;
}
