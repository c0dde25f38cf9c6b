/* sample-hashes.h - XXH3-64 of each sample of a raw shard, made while the shard's bytes pass by for another reason.
 *
 * Whoever verifies a shard by its own hash gets them without another read; they find what rots
 * between that and the read of a sample.
 *
 * Ownership: sample_hashes_new() gives the caller a SampleHashes; sample_hashes_free() accepts NULL.
 *            The array of sample_hashes_take() is the caller's.
 * Units:     bytes, samples.
 * Errors:    -ENOMEM. A shard whose table of offsets is broken has none: NULL.
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
/* The shard's next bytes. */
void sample_hashes_add(SampleHashes *samples, const void *data, size_t n_bytes);
/* [n_samples], when all bytes have passed by and the shard's own hash held. */
uint64_t *sample_hashes_take(SampleHashes *samples);
