/* SPDX-License-Identifier: Apache-2.0 */
/* index.h - reads the compact index of an MDS dataset: a small binary file that is mapped, not parsed.
 *
 * index.json of a billion samples has gigabytes; parsing it at each start would take minutes. The compact index is made
 * from it once (index-open.h). It holds, per shard, the number of samples, sizes, hashes and names; per column that may
 * be empty, a bitmap of the samples that have a payload, with ranks for lookup in O(log n); if requested, a hash per
 * sample. Opening costs the same for 1e3 and 1e9 samples. The body is hashed in blocks; each block is checked when it
 * is first read. The bytes depend only on the dataset and on whether it has hashes of samples.
 *
 * Ownership: index_map() gives the caller an Index, which index_free() unmaps. IndexShard points into the Index.
 * Units:     bytes, samples. A sample's number counts all samples of the dataset in file order; a valid sample's number
 *            counts only the samples whose payload in one column is not empty.
 * Errors:    -EBADMSG a compact index that does not verify; -ESTALE a compact index that belongs to another index.json.
 * Threads:   any, after opening.
 * Source:    docs/internals/data.md, "The compact index".
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number/hash.h"
#include "data/mds/mds-index.h"

typedef struct Index Index;

/* A file's hash as it was noted earlier. */
typedef struct NotedHash {
    Hash hash;
    const char *when; /* "when the job was submitted"; NULL: no hash was noted */
} NotedHash;

typedef struct IndexShard {
    uint64_t n_samples;
    uint64_t raw_bytes, zip_bytes;   /* zip_bytes 0: the shard is not compressed */
    const char *raw_name, *zip_name; /* zip_name "": the shard is not compressed */
    const uint8_t *raw_hashes[MDS_HASHES_MAX], *zip_hashes[MDS_HASHES_MAX];
} IndexShard;

typedef struct IndexPlace {
    uint64_t shard;
    uint32_t sample; /* number within the shard */
} IndexPlace;

/* Maps the file at path. source, if not NULL, is the hash that its index.json must have. */
int index_map(const char *path, const Hash *source, Index **ret, Error *err);
/* As index_map(), for an open file. The Index keeps a duplicate descriptor, and with it the file's lock; fd stays the
 * caller's. name is used in error texts. */
int index_map_fd(int fd, const char *name, const Hash *source, Index **ret, Error *err);
Index *index_free(Index *index);
DEFINE_CLEANUP(Index, index_free)

/* Checks every block, in one pass over the file. */
int index_check(Index *index, Error *err);
Hash index_source(const Index *index); /* XXH3-128 of the index.json that the index was made of */
/* Identifies the dataset: the hash of the whole file without the hashes of samples, which follow from the rest. */
Hash index_digest(const Index *index);
const MdsSchema *index_schema(const Index *index);
const char *index_compression(const Index *index); /* "": the shards are not compressed */
size_t index_n_hashes(const Index *index);
const char *index_hash_name(const Index *index, size_t i);
uint64_t index_bytes(const Index *index); /* the size of the file */
uint64_t index_n_shards(const Index *index);
uint64_t index_n_samples(const Index *index);
/* The number of samples whose payload in a column is not empty. */
uint64_t index_n_valid(const Index *index, size_t column);

/* Finds the place of a sample; sample < index_n_samples(). */
int index_place(Index *index, uint64_t sample, IndexPlace *ret, Error *err);
int index_shard(Index *index, uint64_t shard, IndexShard *ret, Error *err);
/* Finds the place of the valid-th sample whose payload in column is not empty; valid < index_n_valid(). */
int index_locate(Index *index, size_t column, uint64_t valid, IndexPlace *ret, Error *err);
/* Returns 1 and the hash if the index has hashes of samples, else 0. */
int index_sample_hash(Index *index, IndexPlace place, uint64_t *ret, Error *err);
bool index_has_sample_hashes(const Index *index);
