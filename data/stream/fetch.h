/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.h - brings one whole shard, a piece at a time and a few pieces together: into the node's
 * cache, or into memory where there is none or it fails; verified and unpacked before anybody reads.
 *
 * One of the processes that want the same shard fetches it. The others look each 20 ms whether it is in the cache;
 * after a minute a process fetches the shard by itself, into memory.
 *
 * Ownership: shard_fetch_new() gives the caller a ShardFetch and borrows the source, which must
 *            outlive it, and what info points to; shard_fetch_free() accepts NULL and cancels.
 * Units:     bytes.
 * Errors:    -EBADMSG the shard is not what the index says; the store's. In the background also
 *            -EAGAIN, another process has it, and -ENOBUFS, the cache has no room: it never takes
 *            memory.
 * Threads:   one at a time.
 */
#pragma once

#include "data/stream/shard.h"

typedef struct ShardFetch ShardFetch;

/* Frees the buffers that fetches of a source left for the next one. */
void piece_buffers_clear(PieceBuffers *spare);

int shard_fetch_new(const ShardSource *source, uint64_t number, const IndexShard *info,
                    bool background, ShardFetch **ret, Error *err);
ShardFetch *shard_fetch_free(ShardFetch *fetch);
DEFINE_CLEANUP(ShardFetch, shard_fetch_free)
/* 1: *ret is the shard, the caller's. 0: not yet; poll again when the source's event count was signalled, or at
 * *wake_usec (clock_monotonic_usec()), which is made earlier where needed. */
int shard_fetch_poll(ShardFetch *fetch, uint64_t *wake_usec, Shard **ret, Error *err);
/* Fetches and waits, on the calling thread. */
int shard_fetch(const ShardSource *source, uint64_t number, const IndexShard *info, Shard **ret,
                Error *err);
