/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - the shards of one dataset: how its samples' bytes are reached, and what is kept of them.
 *
 * Where a sample's bytes come from:
 *   in place          raw shards on file://: pread, when the sample is wanted
 *   the node's cache  a whole shard that some rank has fetched
 *   ranges            raw shards elsewhere, with hashes of samples in the index: the shard's table of offsets, which is
 *                     kept, then the sample's own bytes
 *   whole shards      without such hashes: fetched into the cache or memory, verified, then read
 *
 * Reads of samples are in sample-read.h. With a cache, after shards_keep_whole(), shards that are expected or were read
 * by range are also fetched whole in the background, two at a time, never into memory.
 *
 * A shard that is opened once and read often may rot in between. Where the index has no hashes of samples, they are
 * made while a shard's own hashes are checked, or while it is fetched into the cache, and kept; each read is
 * checked by them. A shard that has no hashes of its own is not read whole for it.
 *
 * Ownership: shards_new() gives the caller a Shards and borrows the store, the index and what the options name, which
 *            must outlive it.
 * Units:     bytes; wake_usec is clock_monotonic_usec(). A round is a shuffle window of the reader's samples.
 * Errors:    as sample-read.h.
 * Threads:   one at a time for all Shards that share a ReadBudget.
 */
#pragma once

#include "data/stream/shard.h"

enum {
    SHARDS_OPEN_MAX = 128,
    SHARDS_FETCHES_MAX = 2,        /* whole shards under way, beside that of the first read */
    SHARDS_MEMORY_MAX = 1 << 30,   /* bytes of unpacked shards, where there is no cache folder */
    SHARDS_TABLES_MAX = 256 << 20, /* bytes of tables of offsets */
    SHARDS_HASHES_MAX =
        256 << 20, /* bytes of hashes of samples that were made here, of all streams */
};

typedef struct Shards Shards;

/* The memory that the reads of all streams may hold together. */
typedef struct ReadBudget {
    size_t most;      /* bytes of ranges, but for the first read's */
    size_t used;      /* bytes of ranges that are under way, or have arrived and are not used yet */
    size_t hashes;    /* bytes of hashes of samples that are kept; at most SHARDS_HASHES_MAX */
    bool hashes_full; /* a warning has said that hashes of some samples are not kept */
} ReadBudget;

typedef struct ShardsOptions {
    Cache *cache;       /* NULL: none */
    EventCount *events; /* signalled when a read or a fetch may go on */
    ReadBudget *budget;
} ShardsOptions;

/* options NULL: no cache, and a budget of its own, for callers that read one sample at a time. */
int shards_new(Store *store, Index *index, const ShardsOptions *options, Shards **ret, Error *err);
Shards *shards_free(Shards *shards);
DEFINE_CLEANUP(Shards, shards_free)
bool shards_are_local(const Shards *shards); /* the store is a folder: asking ahead gains nothing */
bool shards_in_place(const Shards *shards);
bool shards_by_range(const Shards *shards);

/* Whether whole shards are fetched in the background; never without a cache. false also ends those under way. */
void shards_keep_whole(Shards *shards, bool keep);
/* Asks for a whole shard to be fetched into the cache in the background. false: the queue is full, ask again. Requests
 * are remembered for two rounds: asking again within them is free, asking later starts a new fetch, since the cache may
 * have evicted the shard. */
bool shards_expect(Shards *shards, uint64_t number, uint64_t round);
/* Lets the background fetches go on. */
void shards_advance(Shards *shards, uint64_t *wake_usec);

/* Reads one sample and waits for it; its bytes stay until the next call. */
int shards_read(Shards *shards, IndexPlace place, const void **ret, size_t *ret_bytes, Error *err);
