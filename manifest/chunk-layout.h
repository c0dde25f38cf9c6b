/* SPDX-License-Identifier: Apache-2.0 */
/* chunk-layout.h - cuts the flat parameter buffer into chunks and assigns each to a rank.
 *
 * Ownership: values. Errors: none.
 * Units:     elements of fp32, chunks, ranks.
 */
#pragma once

#include <stdint.h>

typedef struct ChunkLayout {
    int64_t n_elements;     /* elements of the flat buffer */
    int64_t chunk_elements; /* elements per chunk, a power of two */
    int64_t n_chunks;
} ChunkLayout;

/* Returns a layout that depends only on the model: at most 64 chunks of 2^12 .. 2^22 elements each.
 * If 64 chunks of 2^22 elements do not suffice, the layout has more than 64 chunks of 2^22
 * elements. */
ChunkLayout chunk_layout(int64_t n_elements);
int64_t chunk_begin(const ChunkLayout *layout, int64_t chunk);
int64_t chunk_length(const ChunkLayout *layout, int64_t chunk);
static inline int chunk_owner(int64_t chunk, int world_size) { return (int)(chunk % world_size); }
/* chunks_owned() returns how many chunks the rank owns. shard_slots() returns how many slots each
 * rank's shard has: as many as rank 0 owns, so that all shards have one size. */
int64_t chunks_owned(const ChunkLayout *layout, int rank, int world_size);
int64_t shard_slots(const ChunkLayout *layout, int world_size);
