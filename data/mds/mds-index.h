/* SPDX-License-Identifier: Apache-2.0 */
/* mds-index.h - reads index.json of an MDS dataset, one shard's entry at a time.
 *
 * A dataset of 1e9 samples has a gigabyte of index.json, and a JSON tree of it would need many times that memory. So
 * the text is scanned, and only one entry at a time is parsed into a tree.
 *
 * Units: bytes, samples. Threads: any; no state.
 * Ownership: entries are values, valid during the handler's call.
 * Errors:    -EINVAL naming the source, the shard and the key; the handler's errors.
 * Source:    mosaicml/streaming 0.13.0, index.json version 2.
 */
#pragma once

#include "base/error.h"
#include "data/mds/checksum.h"
#include "data/mds/mds.h"

enum {
    MDS_HASHES_MAX = 17, /* the number of algorithms in checksum.h */
    MDS_BASENAME_MAX = 511,
};

typedef struct MdsFile {
    char basename[MDS_BASENAME_MAX + 1]; /* a relative path without ".." */
    uint64_t n_bytes;
    uint8_t hashes[MDS_HASHES_MAX][CHECKSUM_BYTES_MAX]; /* digests, as in MdsEntry.hashes */
} MdsFile;

typedef struct MdsEntry {
    MdsSchema schema;
    size_t n_hashes;
    char hashes[MDS_HASHES_MAX][CHECKSUM_NAME_MAX]; /* names of algorithms */
    char compression[16]; /* for example "zstd:7"; "": the shard is not compressed */
    uint64_t n_samples;
    MdsFile raw, zip; /* zip.basename "": the shard is not compressed */
} MdsEntry;

/* Checks that a shard has the first shard's columns, compression and hashes, as all shards of a stream must. */
int mds_entry_agrees(const MdsEntry *first, const MdsEntry *entry, const char *source, size_t shard,
                     Error *err);

typedef int (*MdsEntryHandler)(void *context, size_t shard, const MdsEntry *entry, Error *err);

/* Calls handler for each shard in order; stops at its first negative result and returns it. */
int mds_index_walk(const char *source, const char *text, size_t n_bytes, MdsEntryHandler handler,
                   void *context, Error *err);
