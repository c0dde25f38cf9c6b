/* SPDX-License-Identifier: Apache-2.0 */
/* index-format.h - the layout of a compact index file, shared by its builder and its reader.
 *
 * header | block hashes (u64 each) | padding to INDEX_BLOCK_BYTES | body. Body sections begin at
 * multiples of 64 bytes; the core ends at core_bytes, a multiple of INDEX_BLOCK_BYTES, and the
 * hashes of samples follow. Block i of the body is INDEX_BLOCK_BYTES long (the last may be
 * shorter).
 *
 * Ownership: plain data. Errors: none. Threads: any.
 * Units:     offsets are bytes from the start of the body.
 */
#pragma once

#include "base/number/hash.h"
#include "data/mds/mds-index.h"

enum {
    INDEX_VERSION = 1,
    INDEX_BLOCK_BYTES = 4096,
    INDEX_RANK_BITS = 512, /* samples per entry of a bitmap's ranks */
};

#define INDEX_MAGIC "SDTINDEX"

typedef struct IndexColumn {
    uint64_t n_valid;
    /* Offsets of the bitmap's ranks and of the bitmap; 0: no payload is empty. */
    uint64_t ranks, bits;
} IndexColumn;

typedef struct IndexHeader {
    char magic[8];
    uint32_t version, n_columns;
    Hash source; /* XXH3-128 of index.json */
    Hash core;   /* hash of the core's block hashes; source and core identify the dataset */
    uint64_t n_shards, n_samples;
    uint64_t body_bytes, core_bytes;
    uint64_t config; /* offset of a JSON text: columns, compression, names of hashes */
    uint64_t config_bytes;
    uint64_t columns; /* offset of IndexColumn[n_columns] */
    uint64_t first;   /* offset of u64[n_shards + 1]: first sample of each shard */
    /* Offset of records[n_shards]. A record has record_bytes: an IndexRecord, then the digests of the raw file, then
     * the digests of the zip file. */
    uint64_t records;
    uint64_t record_bytes;
    uint64_t names; /* offset of the file names of each shard: "raw\0zip\0" */
    uint64_t names_bytes;
    uint64_t hashes; /* offset of u64[n_samples]; 0: there are no hashes of samples */
    Hash header;     /* hash over this header (zeros in this field) and the block hashes */
} IndexHeader;

typedef struct IndexRecord {
    uint64_t raw_bytes, zip_bytes, name;
} IndexRecord;

/* Compute the header's own hash, and the core's hash. blocks: the hashes of the body's blocks. */
Hash index_header_hash(const IndexHeader *header, const uint64_t *blocks, size_t n_blocks);
Hash index_core_hash(const IndexHeader *header, const uint64_t *blocks);
