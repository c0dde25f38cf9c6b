/* shards.h - the samples of one dataset: open shards bounded, each verified once, failures retried.
 *
 * Ownership: shards_new() gives the caller a Shards and borrows store and index, which must outlive
 *            it. A sample's bytes are valid until the next shards_read().
 * Units:     bytes, samples.
 * Errors:    after SHARDS_ATTEMPTS: -EBADMSG corrupt, -ENOENT missing, the store's; the text names
 *            shard and sample, and both hashes where they differ.
 * Threads:   one at a time.
 */
#pragma once

#include "trainer/data/shard.h"

enum {
    SHARDS_OPEN_MAX = 128,
    SHARDS_ATTEMPTS = 3,
    SHARDS_MEMORY_MAX = 1 << 30, /* of unpacked shards, where there is no cache folder */
};

typedef struct Shards Shards;

/* cache_dir may be NULL; cache_bytes 0: no bound. */
int shards_new(Store *store, Index *index, const char *cache_dir, uint64_t cache_bytes,
               Shards **ret, Error *err);
Shards *shards_free(Shards *shards);
DEFINE_CLEANUP(Shards, shards_free)
int shards_read(Shards *shards, IndexPlace place, const void **ret, size_t *ret_bytes, Error *err);
