/* SPDX-License-Identifier: Apache-2.0 */
/* shards.h - the shards of one dataset: the ways to read their samples' bytes, and the data that are kept of them.
 *
 * A sample's bytes come from one of these sources:
 *   in place          raw shards on file://: pread, when the sample is needed
 *   the node's cache  a whole shard that some rank has fetched
 *   ranges            raw shards elsewhere, with hashes of samples in the index: the shard's table of offsets, which is
 *                     kept, then the sample's own bytes
 *   whole shards      without such hashes: fetched into the cache or memory, verified, then read
 *
 * Reads of samples are in sample-read.h. With a cache, after shards_keep_whole(), shards that are expected or were read
 * by range are also fetched whole in the background, two at a time, never into memory.
 *
 * A shard that is opened once and read often may be damaged on the disk in between. If the index has no hashes of
 * samples, they are computed while a shard's own hashes are checked, or while the shard is fetched into the cache, and
 * kept; each read is checked by them. A local shard without hashes of its own is not read whole to compute them.
 *
 * Ownership: shards_new() gives the caller a Shards and borrows the store, the index, and the cache, events and budget
 *            of the options, which must outlive the Shards.
 * Units:     bytes; wake_usec is clock_monotonic_usec(). A round is a shuffle window of the reader's samples.
 * Errors:    as sample-read.h.
 * Threads:   one at a time for all Shards that share a ReadBudget.
 */
#pragma once

#include "data/stream/shard.h"

enum {
    SHARDS_OPEN_MAX = 128,
    SHARDS_FETCHES_MAX = 2,      /* whole shards fetched at once, without that of the first read */
    SHARDS_MEMORY_MAX = 1 << 30, /* bytes of unpacked shards, if there is no cache folder */
    SHARDS_TABLES_MAX = 256 << 20, /* bytes of tables of offsets */
    SHARDS_HASHES_MAX =
        256 << 20, /* bytes of hashes of samples that are kept in memory, of all streams */
};

typedef struct Shards Shards;

/* The memory that the reads of all streams may hold together. */
typedef struct ReadBudget {
    size_t most;      /* limit of `used`; only the first read may exceed it */
    size_t used;      /* bytes of ranges that are requested, or have arrived and are not used yet */
    size_t hashes;    /* bytes of hashes of samples that are kept; at most SHARDS_HASHES_MAX */
    bool hashes_full; /* a warning was logged that hashes of some samples are not kept */
} ReadBudget;

typedef struct ShardsOptions {
    Cache *cache;       /* NULL: no cache */
    EventCount *events; /* signalled when a read or a fetch may continue */
    ReadBudget *budget;
} ShardsOptions;

/* If options is NULL, the Shards has no cache and a budget of its own: for callers that read one sample at a time. */
int shards_new(Store *store, Index *index, const ShardsOptions *options, Shards **ret, Error *err);
Shards *shards_free(Shards *shards);
DEFINE_CLEANUP(Shards, shards_free)
bool shards_are_local(const Shards *shards); /* local: reading ahead gains nothing */
bool shards_in_place(const Shards *shards);
bool shards_by_range(const Shards *shards);

/* Sets whether whole shards are fetched in the background, which needs a cache. false also cancels the fetches in
 * progress. */
void shards_keep_whole(Shards *shards, bool keep);
/* Requests a background fetch of a whole shard into the cache. Returns false if the queue is full: try again later.
 * A request is remembered for two rounds: a request of the same shard within two rounds does nothing; a later request
 * starts a new fetch, since the cache may have evicted the shard. */
bool shards_expect(Shards *shards, uint64_t number, uint64_t round);
/* Continues the background fetches. */
void shards_advance(Shards *shards, uint64_t *wake_usec);

/* Reads one sample and waits for it; its bytes stay until the next call. */
int shards_read(Shards *shards, IndexPlace place, const void **ret, size_t *ret_bytes, Error *err);
