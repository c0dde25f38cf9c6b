/* SPDX-License-Identifier: Apache-2.0 */
/* sample-hashes.h - computes XXH3-64 of each sample of a raw shard while the shard's bytes are read for another
 * purpose.
 *
 * A shard that was verified may be damaged on the disk before a sample of it is read. A reader that verifies a shard by
 * the shard's own hash gets these hashes without another read, and checks each sample by them.
 *
 * Ownership: sample_hashes_new() gives the caller a SampleHashes; sample_hashes_free() accepts NULL. The array of
 *            sample_hashes_take() is the caller's.
 * Units:     bytes, samples.
 * Errors:    -ENOMEM. sample_hashes_take() returns NULL for a shard whose table of offsets is broken.
 * Threads:   a SampleHashes belongs to one thread.
 */
#pragma once

#include "base/cleanup.h"

#include <stddef.h>
#include <stdint.h>

typedef struct SampleHashes SampleHashes;

int sample_hashes_new(uint64_t n_samples, uint64_t n_bytes, SampleHashes **ret);
SampleHashes *sample_hashes_free(SampleHashes *samples);
DEFINE_CLEANUP(SampleHashes, sample_hashes_free)
/* Adds the shard's next bytes. */
void sample_hashes_add(SampleHashes *samples, const void *data, size_t n_bytes);
/* Returns [n_samples] hashes. To be called after all bytes were added and the shard's own hash was verified. */
uint64_t *sample_hashes_take(SampleHashes *samples);
