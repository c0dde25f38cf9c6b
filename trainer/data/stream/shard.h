/* shard.h - one open shard: a file or memory, checked, read by sample.
 *
 * A raw shard in a local folder is read in place with pread: a file that is truncated under our
 * feet then gives an error, not a SIGBUS. What lies elsewhere is brought by fetch.h, whole, verified
 * and unpacked, into the node's cache, or into memory where there is none.
 *
 * Ownership: what returns a Shard gives it to the caller; shard_free() accepts NULL. Borrows
 *            nothing but, of the ShardSource, what its comments say.
 * Units:     bytes, samples.
 * Errors:    -EBADMSG a shard that is not what the index says, with its name and, for hashes, both;
 *            -ENOENT a missing one; the store's.
 * Threads:   a Shard may be read by several threads.
 */
#pragma once

#include "base/event-count.h"
#include "store/store.h"
#include "trainer/data/index/index.h"
#include "trainer/data/mds/checksum.h"
#include "trainer/data/stream/cache.h"
#include "trainer/data/stream/sample-hashes.h"

/* Memory of pieces, of piece_bytes each, for the next ones: to give it back and have it cleared anew costs
 * as much as to fill it. Zero before, and cleared by, its owner. */
typedef struct PieceBuffers {
    char *buffers[8];
    size_t n;
} PieceBuffers;

typedef struct ShardSource {
    Store *store;
    const char *compression; /* "" for none */
    size_t n_hashes;
    const char *hashes[MDS_HASHES_MAX]; /* algorithms */
    Cache *cache;                       /* NULL: what must be fetched stays in memory */
    char cache_prefix[HASH_TEXT_BYTES]; /* the dataset's digest: names the files in it */
    EventCount *events;                 /* rings for what is fetched */
    size_t piece_bytes;                 /* of what is asked for at a time of a whole shard */
    PieceBuffers *spare;                /* NULL: none are kept */
    bool sample_hashes; /* are made of what is hashed on its way into a file, or in place */
} ShardSource;

typedef struct Shard Shard;

/* Fills all but cache, event count and piece_bytes. */
void shard_source_init(ShardSource *source, Store *store, const Index *index);
/* Whether its store is a folder; then raw shards are read in place. */
bool shard_source_local(const ShardSource *source);

/* Where its store keeps it; verify: by its hashes. */
int shard_open_in_place(const ShardSource *source, const IndexShard *info, bool verify, Shard **ret,
                        Error *err);
/* From the cache; -ENOENT when it holds none that is whole. */
int shard_open_cached(const ShardSource *source, uint64_t number, const IndexShard *info,
                      bool verify, Shard **ret, Error *err);
/* Of a shard's unpacked bytes; takes the descriptor, or the memory, if it succeeds. */
int shard_of_file(const ShardSource *source, const IndexShard *info, int fd, Shard **ret,
                  Error *err);
int shard_of_memory(const ShardSource *source, const IndexShard *info, char *memory, Shard **ret,
                    Error *err);
Shard *shard_free(Shard *shard);
DEFINE_CLEANUP(Shard, shard_free)
/* Of what was verified when it was opened: hashes of its samples, the caller's; NULL when none were made. */
uint64_t *shard_take_sample_hashes(Shard *shard);
const char *shard_name(const Shard *shard);    /* its file's URI */
size_t shard_memory_bytes(const Shard *shard); /* held in memory; 0 for files */

/* All hashes of a source over bytes that come in turn, and, of the raw bytes of a shard, those of its
 * samples. Zero before begin and after clear. */
typedef struct ShardHashes {
    size_t n;
    Checksum *checksums[MDS_HASHES_MAX];
    SampleHashes *samples;
} ShardHashes;
/* raw: the bytes are that shard's, and its samples' hashes are wanted if the source wants any; or NULL. */
int shard_hashes_begin(ShardHashes *hashes, const ShardSource *source, const IndexShard *raw,
                       Error *err);
int shard_hashes_add(ShardHashes *hashes, const char *name, const void *data, size_t n_bytes,
                     Error *err);
/* Whether they are those of the index; then the samples' are kept until shard_hashes_clear(). */
int shard_hashes_end(ShardHashes *hashes, const ShardSource *source, const char *name,
                     const uint8_t *const *wanted, Error *err);
void shard_hashes_clear(ShardHashes *hashes);
/* Gives the shard those of its samples. */
void shard_keep_sample_hashes(Shard *shard, ShardHashes *hashes);

/* A sample's bytes, ret_range of the shard, into *buffer, which is grown as needed and belongs to the
 * caller. */
int shard_read(const Shard *shard, uint32_t sample, uint32_t ret_range[2], char **buffer,
               size_t *room, Error *err);
/* The first n_bytes of a sample. */
int shard_read_head(const Shard *shard, uint32_t sample, void *ret, size_t n_bytes, Error *err);

/* ---- the table of offsets at a shard's start: u32 n, u32 offset[n + 1] ---- */

static inline size_t shard_table_bytes(uint64_t n_samples) { return 4 * (n_samples + 2); }
/* What can be known without the hashes of the samples. */
int shard_table_check(const char *name, const uint32_t *table, const IndexShard *info, Error *err);
/* Where a sample begins and ends. */
int shard_table_range(const char *name, const uint32_t *table, uint32_t sample,
                      const IndexShard *info, uint32_t ret[2], Error *err);

/* Why a read failed, r: an object that ends too early is another one than the index knows, -EBADMSG
 * with both sizes. Asks the store. */
int shard_explain(const ShardSource *source, const IndexShard *info, int r, Error *err);

/* The name of a shard in the cache. */
const char *shard_cache_name(const ShardSource *source, uint64_t number,
                             char name[CACHE_NAME_MAX + 1]);
/* "<store>/<file>" of a shard as its store has it; the caller frees it. */
char *shard_uri(const ShardSource *source, const IndexShard *info);
/* Grows a buffer of the caller's; keeps nothing of it. */
int shard_grow(char **buffer, size_t *room, size_t n_bytes, Error *err);
