/* shards.h - the samples of one dataset: asked for ahead of time, checked, failures tried again.
 *
 * Where a sample's bytes come from:
 *   in place        raw shards on file://: pread, when the sample is wanted
 *   the node's cache  a whole shard that some rank has fetched
 *   ranges          with hashes of samples in the index, and raw shards: the shard's table of
 *                   offsets, kept, then the sample's own bytes
 *   whole shards    without them: fetched into the cache or memory, verified, then read
 *
 * With a cache, after shards_keep_whole(), shards that are expected or were read by range are also
 * fetched whole in the background, two at a time, never into memory.
 *
 * What is opened once and read often may rot in between. Where the index has no hashes of samples, they
 * are made while a shard's own hashes are checked, or while it is fetched into the cache, and kept; each
 * read is checked by them. Shards that nothing vouches for are not read whole for it.
 *
 * Ownership: shards_new() gives the caller a Shards and borrows all that the source names, which
 *            must outlive it. A SampleRead is the caller's, zero at first; it stays where it is
 *            between shards_begin() and shards_end(), and sample_read_clear() frees its buffer.
 * Units:     bytes, samples; wake_usec is clock_monotonic_usec().
 * Errors:    after SHARDS_ATTEMPTS: -EBADMSG corrupt, -ENOENT missing, the store's; the text names
 *            shard, sample, range, and both hashes where they differ.
 * Threads:   one at a time.
 */
#pragma once

#include "trainer/data/stream/shard.h"

enum {
    SHARDS_OPEN_MAX = 128,
    SHARDS_ATTEMPTS = 3,
    SHARDS_FETCHES_MAX = 2,        /* whole ones under way, beside that of the first read */
    SHARDS_MEMORY_MAX = 1 << 30,   /* of unpacked shards, where there is no cache folder */
    SHARDS_TABLES_MAX = 256 << 20, /* of tables of offsets */
    SHARDS_HASHES_MAX = 256 << 20, /* of hashes of samples that were made here, of all streams */
};

typedef struct Shards Shards;

/* Bytes of ranges that are under way or have come and are not used yet; shared by streams. */
typedef struct ReadBudget {
    size_t most, used;
    size_t hashes;    /* bytes of hashes of samples that are kept */
    bool hashes_full; /* said */
} ReadBudget;

typedef struct ShardsOptions {
    Cache *cache; /* NULL: none */
    EventCount *events;
    ReadBudget *budget;
} ShardsOptions;

/* options NULL: without a cache, for one who reads a sample at a time. */
int shards_new(Store *store, Index *index, const ShardsOptions *options, Shards **ret, Error *err);
Shards *shards_free(Shards *shards);
DEFINE_CLEANUP(Shards, shards_free)
bool shards_are_local(const Shards *shards); /* asking ahead gains nothing */
bool shards_in_place(const Shards *shards);
bool shards_by_range(const Shards *shards);
/* Without a cache nothing is kept. false also ends what is under way. */
void shards_keep_whole(Shards *shards, bool keep);
/* A shard that will be wanted; false: ask again later. What was expected in this round or the one
 * before is known to be under way or there; after that it may have been evicted. */
bool shards_expect(Shards *shards, uint64_t number, uint64_t round);

typedef struct SampleRead {
    IndexPlace place;
    struct ShardEntry *entry;
    StoreRead range_read; /* of the sample's range */
    char *buffer;
    size_t room, n_bytes, n_budget;
    uint32_t range[2];
    bool ready;
    int attempts, failure;
    uint64_t again_usec; /* 0: now */
    Error why;
} SampleRead;

int shards_begin(Shards *shards, SampleRead *read, IndexPlace place, Error *err);
/* 1: the sample's bytes, until shards_end(). 0: not yet; poll again when the event count rings, or at
 * *wake_usec, which is made earlier where needed. Else it failed for good. first: the one that is
 * wanted next of all; the others wait where there is no room beside it. */
int shards_poll(Shards *shards, SampleRead *read, bool first, uint64_t *wake_usec, const void **ret,
                size_t *ret_bytes, Error *err);
void shards_end(Shards *shards, SampleRead *read);
void sample_read_clear(SampleRead *read);
/* Lets what is fetched in the background go on. */
void shards_advance(Shards *shards, uint64_t *wake_usec);

/* Begin, wait, end; the bytes stay until the next call. */
int shards_read(Shards *shards, IndexPlace place, const void **ret, size_t *ret_bytes, Error *err);
