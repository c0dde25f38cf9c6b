/* SPDX-License-Identifier: Apache-2.0 */
/* shard.h - one open shard: a file or memory, checked, read by sample.
 *
 * A raw shard in a local folder is read in place with pread: if another process truncates the file meanwhile, that
 * gives an error, not a SIGBUS. fetch.h fetches a shard of a remote store whole, verifies it and unpacks it, into the
 * node's cache, or into memory if there is no cache.
 *
 * Ownership: functions that return a Shard give it to the caller; shard_free() accepts NULL. A Shard borrows nothing.
 * Units:     bytes, samples.
 * Errors:    -EBADMSG a shard that is not what the index says: the text has its name and, if hashes differ, both
 *            hashes; -ENOENT a missing shard; the store's errors.
 * Threads:   a Shard may be read by several threads.
 */
#pragma once

#include "base/event-count.h"
#include "data/index/index.h"
#include "data/mds/checksum.h"
#include "data/stream/cache.h"
#include "data/stream/sample-hashes.h"
#include "store/store.h"

/* Buffers of pieces, of piece_bytes each, kept for the next pieces: allocating fresh memory costs as much as filling
 * it. A PieceBuffers begins as zeros; its owner calls piece_buffers_clear(). */
typedef struct PieceBuffers {
    char *buffers[8];
    size_t n;
} PieceBuffers;

typedef struct ShardSource {
    Store *store;
    const char *compression; /* "": the shards are not compressed */
    size_t n_hashes;
    const char *hashes[MDS_HASHES_MAX]; /* names of algorithms */
    Cache *cache;                       /* NULL: a fetched shard stays in memory */
    /* The dataset's digest, with which the names of its shards in the cache begin. */
    char cache_prefix[HASH_TEXT_BYTES];
    EventCount *events;  /* signalled for each piece that arrived */
    size_t piece_bytes;  /* size of a piece of a whole shard that is fetched */
    PieceBuffers *spare; /* NULL: buffers of pieces are not kept */
    /* Samples are hashed while a shard is verified, unless the shard is in memory. */
    bool sample_hashes;
} ShardSource;

typedef struct Shard Shard;

/* Sets the fields that follow from the store and the index, and clears the other fields. */
void shard_source_init(ShardSource *source, Store *store, const Index *index);
/* Reports whether the source's store is a local folder; then raw shards are read in place. */
bool shard_source_local(const ShardSource *source);

/* Opens a raw shard in the store's folder. verify: checks its hashes. */
int shard_open_in_place(const ShardSource *source, const IndexShard *info, bool verify, Shard **ret,
                        Error *err);
/* Opens a shard in the cache; -ENOENT if the cache has no whole copy. */
int shard_open_cached(const ShardSource *source, uint64_t number, const IndexShard *info,
                      bool verify, Shard **ret, Error *err);
/* Make a Shard of unpacked bytes. If 0 is returned, the Shard owns the descriptor or the memory. */
int shard_of_file(const ShardSource *source, const IndexShard *info, int fd, Shard **ret,
                  Error *err);
int shard_of_memory(const ShardSource *source, const IndexShard *info, char *memory, Shard **ret,
                    Error *err);
Shard *shard_free(Shard *shard);
DEFINE_CLEANUP(Shard, shard_free)
/* Returns the hashes of the shard's samples that were computed while the shard was verified; the caller frees them.
 * NULL: no hashes were computed. */
uint64_t *shard_take_sample_hashes(Shard *shard);
const char *shard_name(const Shard *shard);    /* URI of the shard's file */
size_t shard_memory_bytes(const Shard *shard); /* bytes in memory; 0: the shard is a file */

/* All hashes of a source, computed over bytes that are added in turn. For a shard's raw bytes, also the hashes of its
 * samples. Zero before shard_hashes_begin() and after shard_hashes_clear(). */
typedef struct ShardHashes {
    size_t n;
    Checksum *checksums[MDS_HASHES_MAX];
    SampleHashes *samples;
} ShardHashes;
/* raw: the shard whose raw bytes will be added; its samples are hashed, too, if source->sample_hashes is set. raw NULL:
 * no samples are hashed. */
int shard_hashes_begin(ShardHashes *hashes, const ShardSource *source, const IndexShard *raw,
                       Error *err);
int shard_hashes_add(ShardHashes *hashes, const char *name, const void *data, size_t n_bytes,
                     Error *err);
/* Compares the hashes with those of the index: 0 or -EBADMSG. If they agree, the samples' hashes stay until
 * shard_hashes_clear(). */
int shard_hashes_end(ShardHashes *hashes, const ShardSource *source, const char *name,
                     const uint8_t *const *wanted, Error *err);
void shard_hashes_clear(ShardHashes *hashes);
/* Moves the hashes of the shard's samples into the shard. */
void shard_keep_sample_hashes(Shard *shard, ShardHashes *hashes);

/* Reads a sample into *buffer, which belongs to the caller and is grown as needed. *ret_range gets the sample's first
 * byte in the shard and the first byte behind it. */
int shard_read(const Shard *shard, uint32_t sample, uint32_t ret_range[2], char **buffer,
               size_t *room, Error *err);
/* Reads the first n_bytes of a sample. */
int shard_read_head(const Shard *shard, uint32_t sample, void *ret, size_t n_bytes, Error *err);

/* ---- the table of offsets at a shard's start: u32 n, u32 offset[n + 1] ---- */

static inline size_t shard_table_bytes(uint64_t n_samples) { return 4 * (n_samples + 2); }
/* Checks the table's number of samples, and its first and last offset. */
int shard_table_check(const char *name, const uint32_t *table, const IndexShard *info, Error *err);
/* Returns where a sample begins and ends in its shard. */
int shard_table_range(const char *name, const uint32_t *table, uint32_t sample,
                      const IndexShard *info, uint32_t ret[2], Error *err);

/* Explains why a read failed with r; requests the object's size from the store. If the size is not the one in the
 * index, returns -EBADMSG with both sizes in the text; otherwise r. */
int shard_explain(const ShardSource *source, const IndexShard *info, int r, Error *err);

/* Writes a shard's name in the cache, and returns it. */
const char *shard_cache_name(const ShardSource *source, uint64_t number,
                             char name[CACHE_NAME_MAX + 1]);
/* Returns "<store>/<file>", the URI of a shard in its store; the caller frees it. */
char *shard_uri(const ShardSource *source, const IndexShard *info);
/* Grows a buffer of the caller; its contents are lost. */
int shard_grow(char **buffer, size_t *room, size_t n_bytes, Error *err);
