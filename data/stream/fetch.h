/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h - fetches one whole shard, in pieces, a few at the same time: into the node's cache, or into memory without a
 * cache or after the cache fails. The shard is verified and unpacked before it can be read.
 *
 * If several processes need the same shard, one of them fetches it. The others check every 20 ms whether the shard is
 * in the cache; after a minute, a process fetches the shard itself, into memory.
 *
 * Units: bytes. Threads: one at a time.
 * Ownership: shard_fetch_new() gives the caller a ShardFetch and borrows the source, which must outlive it, and what
 *            info points to; shard_fetch_free() accepts NULL and cancels the fetch.
 * Errors:    -EBADMSG the shard is not what the index says; the store's errors. A background fetch also returns
 *            -EAGAIN, another process is fetching the shard, and -ENOBUFS, the cache has no room: a background fetch
 *            never uses memory.
 */
#pragma once

#include "data/stream/shard.h"

typedef struct ShardFetch ShardFetch;

/* Frees the buffers that earlier fetches of a source kept for the next fetch. */
void piece_buffers_clear(PieceBuffers *spare);

int shard_fetch_new(const ShardSource *source, uint64_t number, const IndexShard *info,
                    bool background, ShardFetch **ret, Error *err);
ShardFetch *shard_fetch_free(ShardFetch *fetch);
DEFINE_CLEANUP(ShardFetch, shard_fetch_free)
/* Returns 1 if *ret is the shard, which the caller owns; 0 if the fetch goes on: poll again when the source's event
 * count was signalled, or at *wake_usec (clock_monotonic_usec()), which is made earlier if needed. */
int shard_fetch_poll(ShardFetch *fetch, uint64_t *wake_usec, Shard **ret, Error *err);
/* Fetches a shard on the calling thread and waits for it. */
int shard_fetch(const ShardSource *source, uint64_t number, const IndexShard *info, Shard **ret,
                Error *err);
