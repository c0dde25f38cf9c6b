/* shard.h - one open shard: found, checked, decompressed where it must be, read by sample.
 *
 * A raw shard in a local folder is read in place with pread: a file that is truncated under our
 * feet then gives an error, not a SIGBUS. Compressed and remote shards are fetched whole, verified,
 * and kept decompressed in the cache folder, or in memory where there is none.
 *
 * Ownership: shard_open() gives the caller a Shard; shard_free() accepts NULL. Borrows nothing.
 * Units:     bytes, samples.
 * Errors:    -EBADMSG a shard that is not what the index says, with its name and, for hashes, both;
 *            -ENOENT a missing one; the store's.
 * Threads:   a Shard may be read by several threads.
 */
#pragma once

#include "trainer/data/index.h"

typedef struct ShardSource {
    Store *store;
    const char *compression; /* "" for none */
    size_t n_hashes;
    const char *hashes[MDS_HASHES_MAX]; /* algorithms */
    const char *cache_dir;              /* NULL: what must be unpacked stays in memory */
    uint64_t cache_bytes;               /* bound of cache_dir; 0: none */
    char cache_prefix[HASH_TEXT_BYTES]; /* the dataset's digest: names the files in it */
} ShardSource;

typedef struct Shard Shard;

/* Verifies the hashes when it fetches, and otherwise if verify. */
int shard_open(const ShardSource *source, uint64_t number, const IndexShard *info, bool verify,
               Shard **ret, Error *err);
Shard *shard_free(Shard *shard);
DEFINE_CLEANUP(Shard, shard_free)
const char *shard_name(const Shard *shard);    /* its file's URI */
size_t shard_memory_bytes(const Shard *shard); /* held in memory; 0 for files */

/* A sample's bytes into *buffer, which is grown as needed and belongs to the caller. */
int shard_read(const Shard *shard, uint32_t sample, char **buffer, size_t *room, size_t *ret_bytes,
               Error *err);
/* The first n_bytes of a sample. */
int shard_read_head(const Shard *shard, uint32_t sample, void *ret, size_t n_bytes, Error *err);

/* Removes what the cache holds of a shard, so that the next open fetches it again. */
void shard_forget(const ShardSource *source, uint64_t number);
