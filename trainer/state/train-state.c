/* SPDX-License-Identifier: Apache-2.0 */
/* train-state.c - the buffers of the training state and its hashes. */

#include "trainer/state/train-state.h"

#include <string.h>

/* Elements that are hashed at once: a copy of this size stays in the second-level cache. */
enum { HASH_ELEMENTS = 1 << 15 };

/* ZeRO 0 keeps every chunk, in chunk order: the layout of a world of one. */
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
    if (!state->scalars.maxima)
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
    device_release(state->device, state->weights);
    device_release(state->device, state->m);
    device_release(state->device, state->v);
    device_release(state->device, state->ema);
    free(state->scalars.maxima);
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

static int hash_floats(const TrainState *state, Hasher *hasher, const float *values, int64_t n,
                       float *scratch, Error *err)
{
    for (int64_t done = 0; done < n;) {
        int64_t part = MIN(n - done, (int64_t)HASH_ELEMENTS);
        device_download(state->device, scratch, values + done, (size_t)part * sizeof(float));
        int r = device_synchronise(state->device, err);
        if (r < 0)
            return r;
        hasher_update(hasher, scratch, (size_t)part * sizeof(float));
        done += part;
    }
    return 0;
}

int train_state_chunk_hash(const TrainState *state, int64_t chunk, Hash *ret, Error *err)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    _cleanup_free_ float *scratch = malloc(HASH_ELEMENTS * sizeof(float));
    if (!scratch || hasher_new(&hasher) < 0)
        return error_set(err, -ENOMEM, "hash of chunk %lld: out of memory", (long long)chunk);

    const float *parts[] = {
        state->weights + chunk_begin(&state->layout, chunk),
        train_state_chunk(state, state->m, chunk),
        train_state_chunk(state, state->v, chunk),
        state->ema_active ? train_state_chunk(state, state->ema, chunk) : NULL,
    };
    assert(parts[1] && parts[2]); /* only who keeps a chunk can hash it */
    for (size_t i = 0; i < ELEMENTSOF(parts); i++) {
        if (!parts[i])
            continue;
        int r =
            hash_floats(state, hasher, parts[i], chunk_length(&state->layout, chunk), scratch, err);
        if (r < 0)
            return error_prefix(err, r, "hash of chunk %lld", (long long)chunk);
    }
    *ret = hasher_digest(hasher);
    return 0;
}
