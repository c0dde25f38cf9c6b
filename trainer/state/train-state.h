/* SPDX-License-Identifier: Apache-2.0 */
/* train-state.h - everything that a step changes: weights, moments, EMA, scalars.
 *
 * The flat parameter buffer (parameters.h) is cut into chunks (chunk-layout.h); chunk c belongs to rank c mod W. Every
 * rank keeps all weights. With ZeRO 1 and 2 a rank keeps the moments and the EMA of its own chunks only, one after
 * another, as its shard: slot k holds chunk rank + k W, each slot chunk_elements long, zero-padded. With ZeRO 0 every
 * rank keeps all chunks, laid out as with W = 1, and the owner of a chunk is only the rank that saves it.
 *
 * Ownership: train_state_new() gives the caller a TrainState; it borrows the Device and the
 *            ParameterList.
 * Units:     elements of fp32. Buffers are device memory.
 * Errors:    -ENOMEM.
 * Threads:   the training thread's. LANE_OUT copies the state for a save, so train_state_before_write() must be called
 *            before weights, m, v or EMA are written. In a save that blocks, the checkpoint writer reads the state
 *            while the training thread waits.
 */
#pragma once

#include "base/number/hash.h"
#include "kernels/kernels.h"
#include "manifest/state-digest.h"
#include "nn/parameters.h"

typedef struct StateTraffic StateTraffic;

typedef struct TrainState {
    Device *device;
    const ParameterList *parameters;
    ChunkLayout layout;
    int rank, world_size;
    int zero_stage;
    float *weights;  /* all weights, flat */
    float *m, *v;    /* this rank's shard (ZeRO 1, 2) or all chunks in order (ZeRO 0) */
    float *ema;      /* laid out like m; NULL: the job has no EMA */
    bool ema_active; /* the EMA has started */
    TrainScalars scalars;
    StateTraffic *traffic; /* owned; copies in progress between the state and the host */
} TrainState;

int train_state_new(Device *device, const ParameterList *parameters, int rank, int world_size,
                    int zero_stage, bool ema, TrainState **ret, Error *err);
TrainState *train_state_free(TrainState *state);
DEFINE_CLEANUP(TrainState, train_state_free)

/* Returns how many shards m, v and ema are cut into: 1 with ZeRO 0, otherwise one for each rank. */
int train_state_shards(const TrainState *state);
/* Returns whether this rank keeps m, v and ema of the chunk. */
bool train_state_keeps(const TrainState *state, int64_t chunk);
/* Returns the address of the chunk in shard (m, v or ema); NULL: shard is NULL, or another rank keeps the chunk. */
float *train_state_chunk(const TrainState *state, float *shard, int64_t chunk);

/* Notes that copies of the present state are in progress until the fence is reached. */
void train_state_copying(const TrainState *state, Fence copied);
/* Work that is put on LANE_COMPUTE after this call runs after the copies of train_state_copying(). */
void train_state_before_write(const TrainState *state);
/* Returns how long the host has waited in train_state_before_write() for the newest copies. */
uint64_t train_state_waited_usec(const TrainState *state);

/* Computes the XXH3-128 hash of a chunk that this rank keeps: weights, m, v, and the EMA if it is active, without
 * padding. The hash is taken after all work that LANE_COMPUTE holds. */
int train_state_chunk_hash(const TrainState *state, int64_t chunk, Hash *ret, Error *err);
/* How many bytes of a chunk are copied at once to be hashed, if the host cannot read device memory; tests lower it. */
extern size_t train_state_piece_bytes;
/* Releases the host memory that hashes keep between calls. */
void train_state_release_staging(const TrainState *state);
