/* train-state.h - everything that a step changes: weights, moments, EMA, scalars; and who owns
 * which chunk.
 *
 * The flat parameter buffer (parameters.h) is cut into chunks of equal size, the last one shorter;
 * the size depends on the model alone. Chunk c belongs to rank c mod W. A rank keeps all weights
 * (ZeRO 0, 1, 2) and, for ZeRO 1 and 2, the moments and EMA of its own chunks only, one after
 * another ("shard": slot k holds chunk rank + k W, each slot chunk_elements long, zero-padded).
 * With ZeRO 0 every rank keeps all chunks (its layout is that of W = 1) and the owner rule only
 * says who saves what.
 *
 * Ownership: train_state_new() gives the caller a TrainState; it borrows the Device and the
 *            ParameterList.
 * Units:     elements of fp32. Buffers are device memory.
 * Errors:    -ENOMEM.
 * Threads:   the training thread's; the checkpoint writer sees copies only.
 */
#pragma once

#include "base/hash.h"
#include "kernels/kernels.h"
#include "trainer/nn/parameters.h"
#include "trainer/state/state-digest.h"

typedef struct TrainState {
    Device *device;
    const ParameterList *parameters;
    ChunkLayout layout;
    int rank, world_size;
    int zero_stage;
    float *weights;  /* whole, flat; fp32 master on CPUs */
    float *m, *v;    /* shard (ZeRO 1, 2) or whole in chunk order (ZeRO 0) */
    float *ema;      /* like m; NULL when the job has no EMA */
    bool ema_active; /* the EMA has started */
    TrainScalars scalars;
} TrainState;

int train_state_new(Device *device, const ParameterList *parameters, int rank, int world_size,
                    int zero_stage, bool ema, TrainState **ret, Error *err);
TrainState *train_state_free(TrainState *state);
DEFINE_CLEANUP(TrainState, train_state_free)

/* How many shards m, v and ema are cut into: 1 with ZeRO 0, else one a rank. */
int train_state_shards(const TrainState *state);
/* Does this rank keep m, v and ema of the chunk? */
bool train_state_keeps(const TrainState *state, int64_t chunk);
/* Where chunk c of m, v, ema lies on this rank, or NULL when it is another rank's. */
float *train_state_chunk(const TrainState *state, float *shard, int64_t chunk);

/* XXH3-128 of one chunk: weights, m, v, and EMA when it is active, unpadded. */
int train_state_chunk_hash(const TrainState *state, int64_t chunk, Hash *ret, Error *err);
