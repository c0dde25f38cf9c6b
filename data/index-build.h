/* SPDX-License-Identifier: Apache-2.0 */
/* index-build.h - makes the bytes of a dataset's compact index from its index.json and, where they are needed, its
 * shards.
 *
 * Shards are read in two cases: a column of bytes may be empty (its bitmap is made), or hashes of samples are wanted.
 *
 * Ownership: *ret is the caller's, to be freed.
 * Units:     bytes; shards count from 0.
 * Errors:    -EINVAL index.json is missing or wrong, the text names file, shard and key; -EBADMSG a shard that is not
 *            what index.json says; the store's.
 * Threads:   any, one call at a time on a Store.
 */
#pragma once

#include "base/error.h"
#include "store/store.h"

/* Called after each shard that was read. */
typedef void (*IndexProgress)(void *context, uint64_t shard);

/* sample_hashes: also record XXH3-64 of each sample, for which the whole dataset is read. progress may be NULL. The
 * bytes depend only on the dataset. */
int index_build(Store *store, bool sample_hashes, IndexProgress progress, void *context, char **ret,
                size_t *ret_bytes, Error *err);
/* As index_build(), for an index.json that the store does not have yet. sample_hashes: XXH3-64 of each of its samples,
 * in order. Its shards are read only where a column of bytes may be empty. */
int index_build_text(Store *store, const char *text, size_t n_text, const uint64_t *sample_hashes,
                     size_t n_hashes, char **ret, size_t *ret_bytes, Error *err);
