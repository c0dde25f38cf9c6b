/* SPDX-License-Identifier: Apache-2.0 */
/* state-digest.h - the numbers of a training state that are not tensors, and the digest of the whole state.
 *
 * Units: steps, samples. Errors: none.
 * Ownership: TrainScalars borrows maxima, unless the struct that contains it says otherwise.
 */
#pragma once

#include "base/number/hash.h"
#include "manifest/chunk-layout.h"

enum { MAXIMA_WINDOW = 16 };

typedef struct TrainScalars {
    int64_t step;     /* the number of completed steps */
    int64_t position; /* samples consumed = step * global_batch */
    int64_t adam_t;   /* the number of updates that were not skipped */
    double loss_scale;
    int64_t loss_scale_steps;
    int64_t n_maxima; /* accepted steps in the window, at most MAXIMA_WINDOW */
    /* [tensors][MAXIMA_WINDOW] bit patterns of max |g|; those of the newest step are at index
     * (n_accepted - 1) mod MAXIMA_WINDOW */
    uint32_t *maxima;
    int64_t n_accepted; /* accepted steps since step 1 */
} TrainScalars;

/* Returns the state digest: XXH3-128 over the hashes of all chunks in order, the layout and the
 * scalars. chunk_hashes[layout->n_chunks] come from train_state_chunk_hash(). */
Hash state_digest(const TrainScalars *scalars, size_t n_tensors, const ChunkLayout *layout,
                  bool ema_active, const Hash *chunk_hashes);
