/* chunk-layout.h - how the flat parameter buffer is cut, and whose each part is.
 *
 * Ownership: values.
 * Units:     elements of fp32, chunks, ranks.
 * Errors:    none.
 * Threads:   any; no state.
 */
#pragma once

#include <stdint.h>

typedef struct ChunkLayout {
    int64_t n_elements;     /* of the flat buffer */
    int64_t chunk_elements; /* a power of two */
    int64_t n_chunks;
} ChunkLayout;

/* A function of the model alone: chunks of 2^12 .. 2^22 elements, about 64 of them when the model
 * is small. */
ChunkLayout chunk_layout(int64_t n_elements);
int64_t chunk_begin(const ChunkLayout *layout, int64_t chunk);
int64_t chunk_length(const ChunkLayout *layout, int64_t chunk);
static inline int chunk_owner(int64_t chunk, int world_size) { return (int)(chunk % world_size); }
/* Chunks that `rank` owns; slots of a shard = those of rank 0, so that all shards have one size. */
int64_t chunks_owned(const ChunkLayout *layout, int rank, int world_size);
int64_t shard_slots(const ChunkLayout *layout, int world_size);
