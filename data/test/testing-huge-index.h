/* SPDX-License-Identifier: Apache-2.0 */
/* testing-huge-index.h - for benchmarks: writes a compact index of 1e9 samples, only a few of which may exist.
 *
 * The index describes raw shards of 404 samples, "shard.0000000.mds" and so on, with the columns latents and text; one
 * sample of each 64 has no latents. With hashes of samples the file has 8.3 GB, most of them a hole.
 *
 * Ownership: none. Units: bytes. Errors: -errno of the file. Threads: one.
 */
#pragma once

#include "base/error.h"
#include "base/number/hash.h"

#define HUGE_SAMPLES UINT64_C(1000000000)

enum { HUGE_SHARD_SAMPLES = 404 };

typedef struct HugeIndex {
    Hash source;        /* hash of the dataset's index.json */
    uint64_t raw_bytes; /* size of each shard */
    bool sample_hashes; /* the index has hashes of samples, zeros until they are set */
} HugeIndex;

int huge_index_write(const char *path, const HugeIndex *what, Error *err);
/* Sets the hashes of n samples, which are given as numbers in file order. */
int huge_index_set_hashes(const char *path, const uint64_t *samples, const uint64_t *hashes,
                          size_t n, Error *err);
