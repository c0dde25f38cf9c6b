/* SPDX-License-Identifier: Apache-2.0 */
/* state-digest.c - see state-digest.h. */
#include "manifest/state-digest.h"

#include "base/number/bits.h"

Hash state_digest(const TrainScalars *s, size_t n_tensors, const ChunkLayout *layout,
                  bool ema_active, const Hash *chunk_hashes)
{
    Hash chunks = hash_bytes(chunk_hashes, (size_t)layout->n_chunks * sizeof(*chunk_hashes));
    Hash maxima = hash_bytes(s->maxima, n_tensors * MAXIMA_WINDOW * sizeof(*s->maxima));
    uint64_t words[] = {
        (uint64_t)layout->n_elements,
        (uint64_t)layout->chunk_elements,
        chunks.high,
        chunks.low,
        (uint64_t)s->step,
        (uint64_t)s->position,
        (uint64_t)s->adam_t,
        double_bits(s->loss_scale),
        (uint64_t)s->loss_scale_steps,
        (uint64_t)s->n_maxima,
        (uint64_t)s->n_accepted,
        maxima.high,
        maxima.low,
        ema_active,
    };
    return hash_bytes(words, sizeof(words));
}
