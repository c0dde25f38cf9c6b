/* SPDX-License-Identifier: Apache-2.0 */
/* shards-internal.h - the inside of a Shards, and the entry of each shard that reads need.
 *
 * kept-shard.c   the entries by number, the parts of each entry, and the room that all entries take
 * shard-open.c   the ways in which an entry becomes readable
 * background.c   the queue of whole shards that are fetched before they are needed
 * sample-read.c  one read, from its beginning to its end
 *
 * An entry exists while a read refers to it, a fetch of its shard is in progress, or it holds a shard or a table that
 * is worth keeping.
 *
 * Errors: as shards.h. Threads: one at a time.
 * Ownership: a Shards owns its entries. kept_shard_get() lends an entry: the caller increments its refs, or calls
 *            kept_shard_release().
 * Units:     bytes; *_usec is clock_monotonic_usec().
 */
#pragma once

#include "data/stream/fetch.h"
#include "data/stream/sample-read.h"
#include "data/stream/shards.h"

enum {
    KEPT_BUCKETS = 1024,
    BACKGROUND_MAX = 2,          /* whole shards fetched at the same time in the background */
    BACKGROUND_EXPECTED = 256,   /* room for shards that wait to be fetched in the background */
    BACKGROUND_REMEMBERED = 4096 /* room for shards that were recently expected */
};

/* The entry of one shard: the facts from the index, and the parts of the shard that are in memory or open. */
typedef struct KeptShard {
    uint64_t number;
    struct KeptShard *chain;         /* the next entry in the same bucket */
    struct KeptShard *newer, *older; /* neighbours in the order of use */
    IndexShard info;
    char *uri;
    Shard *shard; /* the whole shard; NULL: the shard is not open */
    /* The shard's table of offsets, complete unless table_read is in progress; NULL: the table is not in memory. */
    uint32_t *table;
    StoreRead table_read; /* the read of the table */
    ShardFetch *fetch;    /* the fetch of the whole shard; NULL: none is in progress */
    bool background;      /* the fetch is a background fetch */
    uint64_t look_usec;   /* when the cache is checked for the shard again */
    unsigned refs;        /* number of reads that refer to the entry */
} KeptShard;

/* A shard that was recently expected. While it is remembered, it is not put into the queue for its other samples. */
typedef struct Remembered {
    bool known;
    uint64_t number, round;
} Remembered;

struct Shards {
    ShardSource source;
    ShardsOptions options;
    Index *index;
    bool local;        /* the store is a local folder */
    bool in_place;     /* the shards are raw files in a local folder, and are read in place */
    bool ranged;       /* samples are read by range */
    uint8_t *verified; /* one bit per shard: set if this process has verified the shard */
    /* [n_shards]: hashes of a verified shard's samples; NULL: no hashes are kept */
    uint64_t **hashes;

    KeptShard *buckets[KEPT_BUCKETS];
    KeptShard *newest, *oldest; /* ends of the list in the order of use */
    size_t n_open;              /* entries that hold a shard */
    size_t n_fetches;           /* number of fetches that are not background fetches */
    size_t memory_bytes;        /* bytes of shards in memory */
    size_t table_bytes; /* bytes of tables of offsets, and of the entries that have a table */

    bool keep_whole; /* whole shards are fetched in the background */
    KeptShard *background[BACKGROUND_MAX];
    uint64_t background_after_usec;         /* time before which no background fetch begins */
    uint64_t expected[BACKGROUND_EXPECTED]; /* ring of shard numbers */
    size_t first_expected, n_expected;
    uint64_t round; /* the round of the last shards_expect() */
    /* Shard i is in element i % BACKGROUND_REMEMBERED. */
    Remembered remembered[BACKGROUND_REMEMBERED];

    SampleRead own;         /* the read of shards_read() */
    EventCount *own_events; /* used if the options have no EventCount */
    ReadBudget own_budget;
    PieceBuffers spare;
};

/* ---- kept-shard.c ---- */

/* Returns a shard's entry, which is created if it is missing, and marks it as the most recently used. */
int kept_shard_get(Shards *shards, uint64_t number, KeptShard **ret, Error *err);
/* To be called when a read no longer needs the entry, or a part of the entry was dropped: closes a file of the cache,
 * cancels a fetch that no read waits for, and frees an entry without parts. */
void kept_shard_release(Shards *shards, KeptShard *entry);
/* Frees all entries. */
void kept_shards_clear(Shards *shards);
/* Moves an open shard into its entry. */
void kept_shard_set(Shards *shards, KeptShard *entry, Shard *shard);
void kept_shard_drop_table(Shards *shards, KeptShard *entry);
void kept_shard_drop_fetch(Shards *shards, KeptShard *entry);
/* Drops everything that a failed read used, so that the next attempt reads it again. */
void kept_shard_forget(Shards *shards, KeptShard *entry);
/* Makes room for one more open shard, of n_memory bytes if it is in memory: drops shards that no read refers to, the
 * least recently used first. Returns false if there is not enough room. */
bool kept_shards_make_room(Shards *shards, uint64_t n_memory);
/* Allocates the entry's table, after making room for it. */
int kept_shard_add_table(Shards *shards, KeptShard *entry, size_t n_bytes, Error *err);

/* ---- shard-open.c ---- */

typedef enum Where {
    WHERE_NOWHERE, /* the entry is not readable yet */
    WHERE_OPEN,    /* entry->shard is open */
    WHERE_TABLE,   /* entry->table is complete: the sample's range may be read */
} Where;

/* Continues to make an entry readable. first: the read that needs the entry is the first read; other reads wait if
 * there is no room. *ret is set if the result is 0. */
int kept_shard_open(Shards *shards, KeptShard *entry, bool first, uint64_t *wake_usec, Where *ret,
                    Error *err);
/* Begins to fetch the whole shard. */
int kept_shard_begin_fetch(Shards *shards, KeptShard *entry, bool background, Error *err);
/* Continues the fetch. *ret is WHERE_NOWHERE while the fetch is not complete; otherwise the fetch has ended. */
int kept_shard_poll_fetch(Shards *shards, KeptShard *entry, uint64_t *wake_usec, Where *ret,
                          Error *err);

/* ---- background.c ---- */

/* Removes an entry whose fetch has ended from the list of background fetches. */
void background_remove(Shards *shards, const KeptShard *entry);
/* Allows the shard to be expected again at once. */
void background_forget(Shards *shards, uint64_t number);
