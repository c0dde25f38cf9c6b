/* SPDX-License-Identifier: Apache-2.0 */
/* chunk-layout.c - see chunk-layout.h. */
#include "manifest/chunk-layout.h"

#include "base/macro.h"

#include <assert.h>

enum { CHUNK_BITS_MIN = 12, CHUNK_BITS_MAX = 22, CHUNKS_WANTED = 64 };

ChunkLayout chunk_layout(int64_t n_elements)
{
    assert(n_elements > 0);
    int bits = CHUNK_BITS_MIN;
    while (bits < CHUNK_BITS_MAX && DIV_ROUND_UP(n_elements, INT64_C(1) << bits) > CHUNKS_WANTED)
        bits++;
    int64_t chunk_elements = INT64_C(1) << bits;
    return (ChunkLayout){
        .n_elements = n_elements,
        .chunk_elements = chunk_elements,
        .n_chunks = DIV_ROUND_UP(n_elements, chunk_elements),
    };
}

int64_t chunk_begin(const ChunkLayout *layout, int64_t chunk)
{
    assert(chunk >= 0 && chunk <= layout->n_chunks);
    return MIN(chunk * layout->chunk_elements, layout->n_elements);
}

int64_t chunk_length(const ChunkLayout *layout, int64_t chunk)
{
    assert(chunk < layout->n_chunks);
    int64_t n = chunk_begin(layout, chunk + 1) - chunk_begin(layout, chunk);
    assert(n > 0 && n <= layout->chunk_elements);
    return n;
}

int64_t chunks_owned(const ChunkLayout *layout, int rank, int world_size)
{
    assert(rank >= 0 && rank < world_size);
    return rank < layout->n_chunks ? DIV_ROUND_UP(layout->n_chunks - rank, world_size) : 0;
}

int64_t shard_slots(const ChunkLayout *layout, int world_size)
{
    return chunks_owned(layout, 0, world_size);
}
