/* SPDX-License-Identifier: Apache-2.0 */
/* shards-internal.h - the inside of a Shards, and what is kept of each shard that reads need.
 *
 * kept-shard.c   the entries by number, what each holds, and the room that all of them take
 * shard-open.c      the ways in which an entry becomes readable
 * background.c   the queue of whole shards that are fetched before they are wanted
 * sample-read.c  one read, from its beginning to its end
 *
 * An entry lives while a read refers to it, a fetch is under way, or it holds a shard or a table that is worth keeping.
 *
 * Ownership: a Shards owns its entries. kept_shard_get() lends one: the caller adds to refs, or calls
 *            kept_shard_release().
 * Units:     bytes; *_usec is clock_monotonic_usec().
 * Errors:    as shards.h.
 * Threads:   one at a time.
 */
#pragma once

#include "data/stream/fetch.h"
#include "data/stream/sample-read.h"
#include "data/stream/shards.h"

enum {
    KEPT_BUCKETS = 1024,
    BACKGROUND_MAX = 2,          /* whole shards that are fetched together in the background */
    BACKGROUND_EXPECTED = 256,   /* shards that wait to be fetched in the background */
    BACKGROUND_REMEMBERED = 4096 /* shards that were expected of late */
};

/* One shard's entry: the facts that are known of it, and the parts of it that are held. */
typedef struct KeptShard {
    uint64_t number;
    struct KeptShard *chain;         /* the next entry of its bucket */
    struct KeptShard *newer, *older; /* neighbours in the order of use */
    IndexShard info;
    char *uri;
    Shard *shard;    /* the whole shard, open; NULL: it is not */
    uint32_t *table; /* its table of offsets, complete unless table_read is under way; NULL: none */
    StoreRead table_read; /* of the table */
    ShardFetch *fetch;    /* of the whole shard; NULL: none is under way */
    bool background;      /* the fetch is a background one; ranges serve meanwhile */
    uint64_t look_usec;   /* when the cache is asked for the shard again */
    unsigned refs;        /* reads that refer to the entry */
} KeptShard;

/* A shard that was expected of late, so that its other samples do not expect it again. */
typedef struct Remembered {
    bool known;
    uint64_t number, round;
} Remembered;

struct Shards {
    ShardSource source;
    ShardsOptions options;
    Index *index;
    bool local;        /* its store is a folder */
    bool in_place;     /* and its shards are raw: they are read where they lie */
    bool ranged;       /* samples are read by range */
    uint8_t *verified; /* one bit a shard: its hashes held once in this process */
    uint64_t *
        *hashes; /* [n_shards]: hashes of its samples, made while it was verified; NULL: none */

    KeptShard *buckets[KEPT_BUCKETS];
    KeptShard *newest, *oldest; /* ends of the list by use */
    size_t n_open;              /* entries that hold a shard */
    size_t n_fetches;           /* fetches that are not background ones */
    size_t memory_bytes;        /* of shards held in memory */
    size_t table_bytes;         /* of tables, entries included */

    bool keep_whole; /* background.c has work */
    KeptShard *background[BACKGROUND_MAX];
    uint64_t background_after_usec;         /* no background fetch begins before */
    uint64_t expected[BACKGROUND_EXPECTED]; /* a ring of numbers */
    size_t first_expected, n_expected;
    uint64_t round;                               /* the round of the last shards_expect() */
    Remembered remembered[BACKGROUND_REMEMBERED]; /* shard i at i % BACKGROUND_REMEMBERED */

    SampleRead own;         /* of shards_read() */
    EventCount *own_events; /* where the options have none */
    ReadBudget own_budget;
    PieceBuffers spare;
};

/* ---- kept-shard.c ---- */

/* The entry of a shard, made if need be; it is now the newest. */
int kept_shard_get(Shards *shards, uint64_t number, KeptShard **ret, Error *err);
/* To be called when a read is done with the entry, or the entry has lost something: closes what nobody may keep open,
 * and frees an entry that holds nothing. */
void kept_shard_release(Shards *shards, KeptShard *entry);
/* Frees all entries. */
void kept_shards_clear(Shards *shards);
/* Hands an open shard over to its entry. */
void kept_shard_set(Shards *shards, KeptShard *entry, Shard *shard);
void kept_shard_drop_table(Shards *shards, KeptShard *entry);
void kept_shard_drop_fetch(Shards *shards, KeptShard *entry);
/* Drops everything that a failed read came from, so that the next attempt begins afresh. */
void kept_shard_forget(Shards *shards, KeptShard *entry);
/* Makes room for one more open shard, of n_memory bytes if in memory: drops shards that no read waits for, longest
 * unused first. false: there is no room. */
bool kept_shards_make_room(Shards *shards, uint64_t n_memory);
/* Memory for the entry's table; room is made for it first. */
int kept_shard_add_table(Shards *shards, KeptShard *entry, size_t n_bytes, Error *err);

/* ---- shard-open.c ---- */

typedef enum Where {
    WHERE_NOWHERE, /* not readable yet */
    WHERE_OPEN,    /* entry->shard is open */
    WHERE_TABLE,   /* entry->table is complete: the sample's range may be read */
} Where;

/* Goes on making an entry readable. first: a read of it is the one that is wanted next of all; others wait where there
 * is no room. *ret is set unless it fails. */
int kept_shard_open(Shards *shards, KeptShard *entry, bool first, uint64_t *wake_usec, Where *ret,
                    Error *err);
/* Begins to fetch the whole shard. */
int kept_shard_begin_fetch(Shards *shards, KeptShard *entry, bool background, Error *err);
/* Lets the fetch go on. WHERE_NOWHERE: it is not complete; otherwise it has ended. */
int kept_shard_poll_fetch(Shards *shards, KeptShard *entry, uint64_t *wake_usec, Where *ret,
                          Error *err);

/* ---- background.c ---- */

/* The fetch of an entry has ended. */
void background_remove(Shards *shards, const KeptShard *entry);
/* The shard may be expected again at once. */
void background_forget(Shards *shards, uint64_t number);
