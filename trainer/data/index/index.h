/* index.h - the compact index of an MDS dataset: a small binary file that is mapped, not parsed.
 *
 * It is made once from index.json (and, where a bytes column may be empty, the shards): per shard
 * its samples, sizes, hashes and names; per column with empty payloads a bitmap of the samples that
 * have one, with ranks for O(log n) lookup; if asked for, a hash per sample. Everything stands in
 * the file as it is used, so that opening costs the same for 1e3 and 1e9 samples. The body is
 * hashed in blocks, each checked when it is first touched. The bytes depend on the dataset alone.
 *
 * The file is INDEX_NAME beside index.json; where that folder is local and cannot be written it lies
 * in the job's cache. One whose recorded hash of index.json no longer holds is made anew.
 *
 * Of a dataset on S3 the node's cache keeps a copy, fetched by one process for all, or made there
 * where the dataset has none. It is named after the dataset and the version (ETag) of index.json, so
 * that a dataset that has not changed costs one request, and is a file of the cache like any other:
 * within its bound, in use while it is mapped, gone when it was used least recently. Without room
 * each process fetches its own, into a file without a name. The dataset says in INDEX_ORIGIN which
 * index.json its index was made of, so that a node need not fetch that, of gigabytes perhaps, to know
 * that the two belong together; without it, or where it says something else, index.json is fetched
 * and hashed.
 *
 * Ownership: index_open() and index_map() give the caller an Index, which index_free() unmaps.
 *            IndexShard points into it.
 * Units:     bytes, samples. A sample's number counts all samples of the dataset in file order; a
 *            valid sample's number counts those whose payload in one column is not empty.
 * Errors:    -EBADMSG a compact index that does not verify; -ESTALE it belongs to another
 *            index.json; -EINVAL an index.json that is wrong, naming shard and key; the store's.
 * Threads:   any, after opening.
 * Source:    docs/internals/data.md, "The compact index".
 */
#pragma once

#include "base/hash.h"
#include "store/store.h"
#include "trainer/data/mds/mds-index.h"
#include "trainer/data/stream/cache.h"

#define INDEX_NAME "index.sdtrain"
#define INDEX_ORIGIN "index.sdtrain.json"

typedef struct Index Index;

typedef struct IndexShard {
    uint64_t n_samples;
    uint64_t raw_bytes, zip_bytes;   /* zip_bytes 0: not compressed */
    const char *raw_name, *zip_name; /* zip_name "": not compressed */
    const uint8_t *raw_hashes[MDS_HASHES_MAX], *zip_hashes[MDS_HASHES_MAX];
} IndexShard;

typedef struct IndexPlace {
    uint64_t shard;
    uint32_t sample; /* within the shard */
} IndexPlace;

/* The file's bytes; the caller frees *ret. sample_hashes also records XXH3-64 of every sample,
 * which reads the whole dataset; progress, if not NULL, is called after each shard. */
typedef void (*IndexProgress)(void *context, uint64_t shard);
int index_build(Store *store, bool sample_hashes, IndexProgress progress, void *context, char **ret,
                size_t *ret_bytes, Error *err);

/* Builds it and puts it beside index.json; *ret is that index. */
int index_make(Store *store, bool sample_hashes, IndexProgress progress, void *context, Index **ret,
               Error *err);

/* Maps the compact index of the dataset in store, building and keeping it first where it is missing
 * or stale. cache may be NULL; then the dataset's own folder must be writable, or have one, or be on
 * S3: the copy then has no name and goes with the Index. */
int index_open(Store *store, Cache *cache, Index **ret, Error *err);
/* The same; submitted: the hash that index.json had when the job was submitted, or NULL. -EBADMSG: it
 * is another one. */
int index_open_submitted(Store *store, Cache *cache, const Hash *submitted, Index **ret,
                         Error *err);
int index_check_source(const char *name, Hash found, Hash submitted, Error *err);
/* For who looks at a dataset without an index: how long its index.json is, and its hash, which a large
 * one's INDEX_ORIGIN tells where it is there. -EINVAL: there is none. */
int index_head(Store *store, uint64_t *ret_bytes, Error *err);
int index_find_source(Store *store, Hash *ret, Error *err);
/* What the cache calls the copy. */
const char *index_cache_name(Store *store, const char *version, char ret[CACHE_NAME_MAX + 1]);
/* The file alone; source, if not NULL, is the hash that its index.json must have. */
int index_map(const char *path, const Hash *source, Index **ret, Error *err);
/* The same of a file that is open, and stays so, with its lock, until the index is freed; fd is
 * still the caller's. name is for texts. */
int index_map_fd(int fd, const char *name, const Hash *source, Index **ret, Error *err);
Index *index_free(Index *index);
DEFINE_CLEANUP(Index, index_free)

/* Looks at every block, in one pass over the file. */
int index_check(Index *index, Error *err);
Hash index_source(const Index *index); /* XXH3-128 of its index.json */
/* Identity of the dataset: all of the file but the hashes of samples, which say nothing new. */
Hash index_digest(const Index *index);
const MdsSchema *index_schema(const Index *index);
const char *index_compression(const Index *index); /* "" for none */
size_t index_n_hashes(const Index *index);
const char *index_hash_name(const Index *index, size_t i);
uint64_t index_bytes(const Index *index); /* of the file */
uint64_t index_n_shards(const Index *index);
uint64_t index_n_samples(const Index *index);
/* Samples whose payload in a column is not empty. */
uint64_t index_n_valid(const Index *index, size_t column);

/* Where a sample lies; sample < index_n_samples(). */
int index_place(Index *index, uint64_t sample, IndexPlace *ret, Error *err);
int index_shard(Index *index, uint64_t shard, IndexShard *ret, Error *err);
/* Where the valid-th sample that has something in column lies; valid < index_n_valid(). */
int index_locate(Index *index, size_t column, uint64_t valid, IndexPlace *ret, Error *err);
/* 1 and the hash when the index has hashes of samples, else 0. */
int index_sample_hash(Index *index, IndexPlace place, uint64_t *ret, Error *err);
bool index_has_sample_hashes(const Index *index);
