/* SPDX-License-Identifier: Apache-2.0 */
/* mds-shard.h - makes the bytes of one shard from samples, and the shard's entry in index.json. mds-writer.h makes
 * datasets with it; other callers name, place and order shards themselves.
 *
 * Units: bytes, samples. Threads: one.
 * Ownership: mds_shard_new() gives the caller a MdsShard; fields are copied. Bytes and texts returned are the caller's.
 * Errors:    -EINVAL fields or options that are not valid; -EFBIG a sample that no shard can hold; -ENOMEM.
 */
#pragma once

#include "base/cleanup.h"
#include "data/mds/mds-index.h"

typedef struct MdsShard MdsShard;

typedef struct MdsShardOptions {
    const char *compression;   /* NULL, "zstd" or "zstd:<1..22>" */
    const char *const *hashes; /* [n_hashes] names of algorithms, sorted */
    size_t n_hashes;
    uint64_t size_limit; /* largest size of a shard in bytes, under 2^32; 0: there is one shard */
} MdsShardOptions;

int mds_shard_new(const MdsSchema *schema, const MdsShardOptions *options, MdsShard **ret,
                  Error *err);
MdsShard *mds_shard_free(MdsShard *shard);
DEFINE_CLEANUP(MdsShard, mds_shard_free)
size_t mds_shard_n_samples(const MdsShard *shard);
/* Returns zstd's level; 0: the shard is not compressed. */
int mds_shard_level(const MdsShard *shard);

/* Returns 1 if the sample would make the shard larger than its limit, else 0, or the error that adding the sample would
 * give. */
int mds_shard_is_full(const MdsShard *shard, const MdsField *fields, Error *err);
/* Adds a sample: fields[n_columns] in the schema's order, each payload in its column's encoding. */
int mds_shard_add(MdsShard *shard, const MdsField *fields, Error *err);
/* Makes the shard's file from the samples that were added, and begins the next shard. */
int mds_shard_take(MdsShard *shard, char **ret, size_t *ret_bytes, Error *err);

/* Fills in name, size and hashes of a file. */
int mds_shard_describe(const MdsShard *shard, const char *basename, const void *bytes,
                       size_t n_bytes, MdsFile *ret, Error *err);
/* Makes a shard's entry for index.json. zip: NULL if shards are not compressed. */
int mds_shard_entry(const MdsShard *shard, const MdsFile *raw, const MdsFile *zip,
                    uint64_t n_samples, char **ret, size_t *ret_bytes, Error *err);
