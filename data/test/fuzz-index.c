/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz-index.c - a compact index with arbitrary bytes and correct hashes: every lookup returns a result within bounds
 * or an error. */
#include "data/index/index.h"

#include "base/file.h"
#include "data/index/index-format.h"

#include <limits.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Corrects the hashes of header and blocks, as an attacker would. */
static void mend(uint8_t *file, size_t n)
{
    IndexHeader h;
    memcpy(&h, file, sizeof(h));
    memcpy(h.magic, INDEX_MAGIC, sizeof(h.magic));
    h.version = INDEX_VERSION;
    uint64_t n_blocks = 1, start = INDEX_BLOCK_BYTES;
    h.body_bytes = n - start;
    h.core_bytes = MIN(h.core_bytes, (uint64_t)INDEX_BLOCK_BYTES);
    uint64_t block = hash64_bytes(file + start, h.body_bytes, 0);
    h.core = index_core_hash(&h, &block);
    h.header = index_header_hash(&h, &block, n_blocks);
    memcpy(file, &h, sizeof(h));
    memcpy(file + sizeof(h), &block, sizeof(block));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t file[2 * INDEX_BLOCK_BYTES];
    size_t head = MIN(n, sizeof(IndexHeader));
    size_t rest = MIN(n - head, (size_t)INDEX_BLOCK_BYTES);
    if (rest < 1)
        return 0;
    memset(file, 0, sizeof(file));
    memcpy(file, data, head);
    memcpy(file + INDEX_BLOCK_BYTES, data + head, rest);
    mend(file, INDEX_BLOCK_BYTES + rest);

    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "/tmp/fuzz-index-%d", (int)getpid());
    if (file_write(path, file, INDEX_BLOCK_BYTES + rest, 0, NULL) < 0)
        return 0;
    Index *index;
    int r = index_map(path, NULL, &index, NULL);
    (void)unlink(path); /* the map stays valid; a leftover file is replaced by the next run */
    if (r < 0)
        return 0;
    IndexShard shard;
    IndexPlace place;
    uint64_t hash;
    for (uint64_t i = 0; i < MIN(index_n_shards(index), (uint64_t)20); i++)
        (void)index_shard(index, i, &shard, NULL);
    for (size_t c = 0; c < index_schema(index)->n_columns; c++)
        for (uint64_t i = 0; i < MIN(index_n_valid(index, c), (uint64_t)20); i++)
            if (index_locate(index, c, i, &place, NULL) == 0)
                (void)index_sample_hash(index, place, &hash, NULL);
    index_free(index);
    return 0;
}
