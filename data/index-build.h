/* SPDX-License-Identifier: Apache-2.0 */
/* index-build.h - makes the bytes of a dataset's compact index from its index.json and, if needed, its shards.
 *
 * Shards are read in two cases: a column of bytes may be empty (then its bitmap is made), or hashes of samples are
 * wanted.
 *
 * Ownership: *ret is the caller's, to be freed.
 * Units:     bytes; shards count from 0.
 * Errors:    -EINVAL index.json is missing or wrong, the text names file, shard and key; -EBADMSG a shard differs from
 *            its entry in index.json; the store's errors.
 * Threads:   any, one call at a time on a Store.
 */
#pragma once

#include "base/error.h"
#include "store/store.h"

/* Called after each shard that was read. */
typedef void (*IndexProgress)(void *context, uint64_t shard);

/* Builds the index. sample_hashes: also store XXH3-64 of each sample, which reads the whole dataset. progress may be
 * NULL. The bytes depend only on the dataset and sample_hashes. */
int index_build(Store *store, bool sample_hashes, IndexProgress progress, void *context, char **ret,
                size_t *ret_bytes, Error *err);
/* As index_build(), for an index.json that is not in the store yet. sample_hashes: XXH3-64 of each sample, in order.
 * Shards are read only if a column of bytes may be empty. */
int index_build_text(Store *store, const char *text, size_t n_text, const uint64_t *sample_hashes,
                     size_t n_hashes, char **ret, size_t *ret_bytes, Error *err);
