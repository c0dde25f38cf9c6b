/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - one open shard: a file or memory, checked, read by sample.
 *
 * A raw shard in a local folder is read in place with pread: a file that is truncated under our
 * feet then gives an error, not a SIGBUS. A shard that lies elsewhere is brought by fetch.h, whole, verified
 * and unpacked, into the node's cache, or into memory where there is no cache.
 *
 * Ownership: functions that return a Shard give it to the caller; shard_free() accepts NULL. A Shard borrows nothing.
 * Units:     bytes, samples.
 * Errors:    -EBADMSG a shard that is not what the index says, with its name and, for hashes, both;
 *            -ENOENT a missing one; the store's.
 * Threads:   a Shard may be read by several threads.
 */
#pragma once

#include "base/event-count.h"
#include "data/index/index.h"
#include "data/mds/checksum.h"
#include "data/stream/cache.h"
#include "data/stream/sample-hashes.h"
#include "store/store.h"

/* Buffers of pieces, of piece_bytes each, kept for the next pieces: fresh memory costs as much as the bytes that fill
 * it. The owner has it zero at first, and calls piece_buffers_clear(). */
typedef struct PieceBuffers {
    char *buffers[8];
    size_t n;
} PieceBuffers;

typedef struct ShardSource {
    Store *store;
    const char *compression; /* "" for none */
    size_t n_hashes;
    const char *hashes[MDS_HASHES_MAX]; /* names of algorithms */
    Cache *cache;                       /* NULL: a fetched shard stays in memory */
    char cache_prefix[HASH_TEXT_BYTES]; /* of names in the cache: the dataset's digest */
    EventCount *events;                 /* signalled for each piece that arrived */
    size_t piece_bytes;                 /* of a whole shard that is fetched */
    PieceBuffers *spare;                /* NULL: buffers of pieces are not kept */
    bool sample_hashes; /* made while a shard's own are checked, unless it is in memory */
} ShardSource;

typedef struct Shard Shard;

/* Fills all but cache, event count and piece_bytes. */
void shard_source_init(ShardSource *source, Store *store, const Index *index);
/* Tells whether its store is a folder; then raw shards are read in place. */
bool shard_source_local(const ShardSource *source);

/* Opens a raw shard where its store keeps it. verify: checks its hashes. */
int shard_open_in_place(const ShardSource *source, const IndexShard *info, bool verify, Shard **ret,
                        Error *err);
/* Opens a shard in the cache; -ENOENT when no whole one is there. */
int shard_open_cached(const ShardSource *source, uint64_t number, const IndexShard *info,
                      bool verify, Shard **ret, Error *err);
/* Make a Shard of unpacked bytes; they take over the descriptor, or the memory, if they succeed. */
int shard_of_file(const ShardSource *source, const IndexShard *info, int fd, Shard **ret,
                  Error *err);
int shard_of_memory(const ShardSource *source, const IndexShard *info, char *memory, Shard **ret,
                    Error *err);
Shard *shard_free(Shard *shard);
DEFINE_CLEANUP(Shard, shard_free)
/* Returns the hashes of its samples that were made while it was verified, the caller's; NULL: none were made. */
uint64_t *shard_take_sample_hashes(Shard *shard);
const char *shard_name(const Shard *shard);    /* its file's URI */
size_t shard_memory_bytes(const Shard *shard); /* held in memory; 0 for files */

/* All hashes of a source over bytes that are added in turn, and, of a shard's raw bytes, the hashes of its samples.
 * Zero before begin and after clear. */
typedef struct ShardHashes {
    size_t n;
    Checksum *checksums[MDS_HASHES_MAX];
    SampleHashes *samples;
} ShardHashes;
/* raw: the bytes are that shard's raw ones, and hashes of its samples are made if the source wants them; or NULL. */
int shard_hashes_begin(ShardHashes *hashes, const ShardSource *source, const IndexShard *raw,
                       Error *err);
int shard_hashes_add(ShardHashes *hashes, const char *name, const void *data, size_t n_bytes,
                     Error *err);
/* Compares with the index: 0 or -EBADMSG. If they agree the samples' hashes stay until shard_hashes_clear(). */
int shard_hashes_end(ShardHashes *hashes, const ShardSource *source, const char *name,
                     const uint8_t *const *wanted, Error *err);
void shard_hashes_clear(ShardHashes *hashes);
/* Moves the hashes of its samples into the shard. */
void shard_keep_sample_hashes(Shard *shard, ShardHashes *hashes);

/* Reads a sample, bytes ret_range of the shard, into *buffer, which belongs to the caller and is grown as needed. */
int shard_read(const Shard *shard, uint32_t sample, uint32_t ret_range[2], char **buffer,
               size_t *room, Error *err);
/* Reads the first n_bytes of a sample. */
int shard_read_head(const Shard *shard, uint32_t sample, void *ret, size_t n_bytes, Error *err);

/* ---- the table of offsets at a shard's start: u32 n, u32 offset[n + 1] ---- */

static inline size_t shard_table_bytes(uint64_t n_samples) { return 4 * (n_samples + 2); }
/* Checks what can be known without hashes of the samples. */
int shard_table_check(const char *name, const uint32_t *table, const IndexShard *info, Error *err);
/* Tells where a sample begins and ends. */
int shard_table_range(const char *name, const uint32_t *table, uint32_t sample,
                      const IndexShard *info, uint32_t ret[2], Error *err);

/* Explains why a read failed with r. An object that ends too early is another one than the index knows: -EBADMSG with
 * both sizes; otherwise r. Asks the store. */
int shard_explain(const ShardSource *source, const IndexShard *info, int r, Error *err);

/* Writes the name of a shard in the cache, and returns it. */
const char *shard_cache_name(const ShardSource *source, uint64_t number,
                             char name[CACHE_NAME_MAX + 1]);
/* Returns "<store>/<file>" of a shard as its store has it; the caller frees it. */
char *shard_uri(const ShardSource *source, const IndexShard *info);
/* Grows a buffer of the caller's; its contents are lost. */
int shard_grow(char **buffer, size_t *room, size_t n_bytes, Error *err);
