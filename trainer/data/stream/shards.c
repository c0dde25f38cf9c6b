/* shards.c - see shards.h. */
#include "trainer/data/stream/shards.h"

#include "base/clock.h"
#include "base/log.h"
#include "trainer/data/stream/fetch.h"

#include <inttypes.h>
#include <string.h>

enum {
    BUCKETS = 1024,
    BACKGROUND_MAX = 2,
    LOOK_SEC = 1,
    BACKGROUND_PAUSE_SEC = 60, /* after the cache had no room */
    EXPECTED_MAX = 256,        /* shards that are to be fetched in the background */
    RECENT = 4096,             /* of which it is known that they were */
    SKIPPED_MAX = 16,          /* of those that are there, looked at together */
    PIECE_BYTES = 8 << 20,
};

/* What is known and held of one shard. */
typedef struct ShardEntry {
    uint64_t number;
    struct ShardEntry *chain;         /* of its bucket */
    struct ShardEntry *newer, *older; /* by use */
    IndexShard info;
    char *uri;
    Shard *shard;    /* open, whole */
    uint32_t *table; /* its offsets; there once table_read is not under way */
    StoreRead table_read;
    ShardFetch *fetch;
    bool background;    /* the fetch is; ranges serve meanwhile */
    uint64_t look_usec; /* when the cache is asked for it again */
    unsigned refs;      /* reads */
} KeptShard;

struct Shards {
    ShardSource source;
    ShardsOptions options;
    Index *index;
    bool local, in_place, ranged, keep_whole;
    uint8_t *verified; /* one bit a shard: its hashes held once in this process */
    uint64_t **hashes; /* [n_shards]: of its samples, made then; NULL: none */
    KeptShard *buckets[BUCKETS];
    KeptShard *newest, *oldest;
    size_t n_open, n_fetches, memory_bytes, table_bytes;
    KeptShard *background[BACKGROUND_MAX]; /* being fetched */
    uint64_t background_after_usec;
    uint64_t expected[EXPECTED_MAX]; /* a ring */
    size_t first_expected, n_expected;
    uint64_t round; /* as shards_expect() was told last */
    struct {
        uint64_t number, round; /* number + 1 */
    } recent[RECENT];           /* at number % RECENT */
    SampleRead own;             /* of shards_read() */
    EventCount *own_events;     /* where nobody gave one */
    ReadBudget own_budget;
    PieceBuffers spare;
};

int shards_new(Store *store, Index *index, const ShardsOptions *options, Shards **ret, Error *err)
{
    _cleanup_(shards_freep) Shards *s = calloc(1, sizeof(*s));
    if (s) {
        s->index = index;
        s->verified = calloc(1, index_n_shards(index) / 8 + 1);
        s->hashes = calloc(index_n_shards(index) + 1, sizeof(*s->hashes));
    }
    if (!s || !s->verified || !s->hashes)
        return error_set(err, -ENOMEM, "out of memory");
    if (options) {
        s->options = *options;
    } else {
        int r = event_count_new(&s->own_events);
        if (r < 0)
            return error_errno(err, r, "cannot read shards");
        s->options = (ShardsOptions){.events = s->own_events, .budget = &s->own_budget};
    }
    shard_source_init(&s->source, store, index);
    s->source.cache = s->options.cache;
    s->source.events = s->options.events;
    s->source.piece_bytes =
        CLAMP(s->options.budget->most / 8, (size_t)1 << 18, (size_t)PIECE_BYTES);
    s->source.spare = &s->spare;
    s->source.sample_hashes = !index_has_sample_hashes(index);
    s->local = shard_source_local(&s->source);
    s->in_place = s->local && !*s->source.compression;
    s->ranged = !s->in_place && !*s->source.compression && index_has_sample_hashes(index);
    *ret = TAKE_PTR(s);
    return 0;
}

bool shards_are_local(const Shards *s) { return s->local; }
bool shards_in_place(const Shards *s) { return s->in_place; }
bool shards_by_range(const Shards *s) { return s->ranged; }

/* ---- entries ---- */

static void unlink_entry(Shards *s, KeptShard *e)
{
    *(e->newer ? &e->newer->older : &s->newest) = e->older;
    *(e->older ? &e->older->newer : &s->oldest) = e->newer;
}

static void link_newest(Shards *s, KeptShard *e)
{
    e->newer = NULL;
    e->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = e;
    s->newest = e;
}

static size_t table_cost(const KeptShard *e)
{
    return sizeof(KeptShard) + shard_table_bytes(e->info.n_samples);
}

static void drop_shard(Shards *s, KeptShard *e)
{
    if (!e->shard)
        return;
    s->memory_bytes -= shard_memory_bytes(e->shard);
    s->n_open--;
    e->shard = shard_free(e->shard);
    e->look_usec = 0;
}

static void drop_table(Shards *s, KeptShard *e)
{
    if (!e->table)
        return;
    store_read_cancel(s->source.store, &e->table_read);
    s->table_bytes -= table_cost(e);
    free(e->table);
    e->table = NULL;
}

static void drop_fetch(Shards *s, KeptShard *e)
{
    if (!e->fetch)
        return;
    e->fetch = shard_fetch_free(e->fetch);
    s->n_fetches -= !e->background;
    for (size_t i = 0; i < BACKGROUND_MAX; i++)
        if (s->background[i] == e)
            s->background[i] = NULL;
}

static void entry_free(Shards *s, KeptShard *e)
{
    KeptShard **link = &s->buckets[e->number % BUCKETS];
    while (*link != e)
        link = &(*link)->chain;
    *link = e->chain;
    unlink_entry(s, e);
    drop_fetch(s, e);
    drop_table(s, e);
    drop_shard(s, e);
    free(e->uri);
    free(e);
}

static bool is_idle(const KeptShard *e) { return e->refs == 0 && !e->fetch; }

/* After a read is done with it, or something of it has gone. A file of the cache is let go at once:
 * while it is open it cannot be evicted, and to open it again costs microseconds. */
static void release(Shards *s, KeptShard *e)
{
    if (e->refs == 0 && e->shard && s->source.cache && !s->in_place &&
        !shard_memory_bytes(e->shard))
        drop_shard(s, e);
    if (e->refs == 0 && e->fetch && !e->background)
        drop_fetch(s, e); /* nobody would let it go on, and other processes wait for it */
    if (is_idle(e) && !e->shard && (!e->table || e->table_read.begun))
        entry_free(s, e);
}

static int entry_get(Shards *s, uint64_t number, KeptShard **ret, Error *err)
{
    KeptShard **bucket = &s->buckets[number % BUCKETS], *e = *bucket;
    while (e && e->number != number)
        e = e->chain;
    if (!e) {
        e = calloc(1, sizeof(*e));
        if (!e)
            return error_set(err, -ENOMEM, "out of memory");
        int r = index_shard(s->index, number, &e->info, err);
        if (r == 0 && !(e->uri = shard_uri(&s->source, &e->info)))
            r = error_set(err, -ENOMEM, "out of memory");
        if (r < 0) {
            free(e);
            return r;
        }
        e->number = number;
        e->chain = *bucket;
        *bucket = e;
    } else {
        unlink_entry(s, e);
    }
    link_newest(s, e);
    *ret = e;
    return 0;
}

Shards *shards_free(Shards *s)
{
    if (!s)
        return NULL;
    shards_end(s, &s->own);
    sample_read_clear(&s->own);
    while (s->oldest)
        entry_free(s, s->oldest);
    piece_buffers_clear(&s->spare);
    (void)event_count_free(s->own_events);
    for (uint64_t i = 0; s->hashes && i < index_n_shards(s->index); i++)
        free(s->hashes[i]);
    free(s->hashes);
    free(s->verified);
    free(s);
    return NULL;
}

/* ---- room ---- */

/* Room for one more open shard, of n_memory bytes if in memory; what no read waits for goes, longest
 * unused first. */
static bool make_room(Shards *s, uint64_t n_memory)
{
    for (KeptShard *e = s->oldest, *next; e; e = next) {
        bool full = s->n_open >= SHARDS_OPEN_MAX;
        bool large = s->memory_bytes > 0 && s->memory_bytes + n_memory > SHARDS_MEMORY_MAX;
        if (!full && !large)
            return true;
        next = e->newer;
        if (is_idle(e) && e->shard && (full || shard_memory_bytes(e->shard))) {
            drop_shard(s, e);
            release(s, e);
        }
    }
    return s->n_open < SHARDS_OPEN_MAX &&
           (s->memory_bytes == 0 || s->memory_bytes + n_memory <= SHARDS_MEMORY_MAX);
}

static void make_table_room(Shards *s, size_t n_bytes)
{
    for (KeptShard *e = s->oldest, *next; e && s->table_bytes + n_bytes > SHARDS_TABLES_MAX;
         e = next) {
        next = e->newer;
        if (is_idle(e)) {
            drop_table(s, e);
            release(s, e);
        }
    }
}

static void drop_hashes(Shards *s, const KeptShard *e)
{
    if (!s->hashes[e->number])
        return;
    s->options.budget->hashes -= 8 * e->info.n_samples;
    free(s->hashes[e->number]);
    s->hashes[e->number] = NULL;
}

/* Of its samples, if they were made now and there is room for them. */
static void keep_hashes(Shards *s, const KeptShard *e, Shard *shard)
{
    ReadBudget *budget = s->options.budget;
    _cleanup_free_ uint64_t *hashes = shard_take_sample_hashes(shard);
    if (!hashes)
        return;
    drop_hashes(s, e);
    if (budget->hashes + 8 * e->info.n_samples <= SHARDS_HASHES_MAX) {
        budget->hashes += 8 * e->info.n_samples;
        s->hashes[e->number] = TAKE_PTR(hashes);
        return;
    }
    if (!budget->hashes_full)
        log_warning(
            "%s: hashes of samples take %d MiB: of this shard and others none are kept, and "
            "what rots after a shard was opened is not noticed there; sdprep index "
            "--sample-hashes puts them into the index",
            e->uri, SHARDS_HASHES_MAX >> 20);
    budget->hashes_full = true;
}

static void keep_shard(Shards *s, KeptShard *e, Shard *shard)
{
    keep_hashes(s, e, shard);
    e->shard = shard;
    s->n_open++;
    s->memory_bytes += shard_memory_bytes(shard);
    s->verified[e->number / 8] |= (uint8_t)(1 << e->number % 8);
}

/* ---- how a shard comes to be readable ---- */

typedef enum Where { WHERE_NOWHERE, WHERE_OPEN, WHERE_TABLE } Where; /* or -errno */

/* In place, or in the cache. */
static int open_here(Shards *s, KeptShard *e, bool first, Error *err)
{
    /* Hashes of samples, checked at each read, do the same at less cost. */
    bool verify =
        !(s->verified[e->number / 8] & 1 << e->number % 8) && !index_has_sample_hashes(s->index);
    Shard *shard = NULL;
    if (s->in_place) {
        (void)make_room(s, 0); /* there is: one read at a time is under way */
        int r = shard_open_in_place(&s->source, &e->info, verify, &shard, err);
        if (r < 0)
            return r;
    } else {
        Error why = ERROR_INIT;
        uint64_t now = s->source.cache ? clock_monotonic_usec() : 0;
        if (!s->source.cache || now < e->look_usec || (!make_room(s, 0) && !first))
            return WHERE_NOWHERE;
        int r = shard_open_cached(&s->source, e->number, &e->info, verify, &shard, &why);
        e->look_usec = now + LOOK_SEC * USEC_PER_SEC; /* others fetch, too */
        if (r < 0 && r != -ENOENT)
            log_warning("in data.cache_dir: %s; fetching it again", why.text);
        if (r < 0)
            return WHERE_NOWHERE;
    }
    keep_shard(s, e, shard);
    return WHERE_OPEN;
}

static int begin_table(Shards *s, KeptShard *e, Error *err)
{
    size_t n_bytes = shard_table_bytes(e->info.n_samples);
    if (n_bytes > e->info.raw_bytes)
        return error_set(err, -EBADMSG, "%s: %" PRIu64 " samples do not fit %" PRIu64 " bytes",
                         e->uri, e->info.n_samples, e->info.raw_bytes);
    make_table_room(s, table_cost(e));
    e->table = malloc(n_bytes);
    if (!e->table)
        return error_set(err, -ENOMEM, "out of memory");
    s->table_bytes += table_cost(e);
    e->table_read = (StoreRead){.key = e->info.raw_name,
                                .n_bytes = n_bytes,
                                .buffer = e->table,
                                .events = s->source.events};
    return store_read_begin(s->source.store, &e->table_read, err);
}

static int poll_table(Shards *s, KeptShard *e, Error *err)
{
    int r = e->table ? 0 : begin_table(s, e, err);
    if (r == 0 && !e->table_read.begun)
        return WHERE_TABLE;
    if (r == 0)
        r = store_read_poll(s->source.store, &e->table_read, err);
    if (r < 0)
        r = shard_explain(&s->source, &e->info, r, err);
    if (r > 0)
        r = shard_table_check(e->uri, e->table, &e->info, err) < 0 ? -EBADMSG : WHERE_TABLE;
    if (r < 0)
        drop_table(s, e);
    return r;
}

static int begin_fetch(Shards *s, KeptShard *e, bool background, Error *err)
{
    int r = shard_fetch_new(&s->source, e->number, &e->info, background, &e->fetch, err);
    if (r < 0)
        return r;
    e->background = background;
    s->n_fetches += !background;
    return 0;
}

static int poll_fetch(Shards *s, KeptShard *e, uint64_t *wake_usec, Error *err)
{
    Shard *shard;
    int r = shard_fetch_poll(e->fetch, wake_usec, &shard, err);
    if (r == 0)
        return WHERE_NOWHERE;
    drop_fetch(s, e);
    if (r < 0)
        return r;
    (void)make_room(s, shard_memory_bytes(shard)); /* it has come: room or not */
    keep_shard(s, e, shard);
    return WHERE_OPEN;
}

/* Whoever began to fetch it. */
static int poll_whole(Shards *s, KeptShard *e, bool first, uint64_t *wake_usec, Error *err)
{
    if (e->fetch) {
        bool background = e->background;
        int r = poll_fetch(s, e, wake_usec, err);
        if (r >= 0 || !background)
            return r;
    }
    bool room = make_room(s, s->source.cache ? 0 : e->info.raw_bytes);
    if (!first && (!room || s->n_fetches >= SHARDS_FETCHES_MAX))
        return WHERE_NOWHERE;
    int r = begin_fetch(s, e, false, err);
    return r < 0 ? r : poll_fetch(s, e, wake_usec, err);
}

static int advance_entry(Shards *s, KeptShard *e, bool first, uint64_t *wake_usec, Error *err)
{
    if (e->shard)
        return WHERE_OPEN;
    int r = e->fetch && !s->ranged ? WHERE_NOWHERE : open_here(s, e, first, err);
    if (r != WHERE_NOWHERE)
        return r;
    return s->ranged ? poll_table(s, e, err) : poll_whole(s, e, first, wake_usec, err);
}

/* ---- in the background ---- */

void shards_keep_whole(Shards *s, bool keep)
{
    s->keep_whole = keep && s->source.cache;
    for (size_t i = 0; i < BACKGROUND_MAX && !keep; i++) {
        KeptShard *e = s->background[i];
        if (!e)
            continue;
        drop_fetch(s, e);
        release(s, e);
    }
    s->n_expected = 0;
    memset(s->recent, 0, sizeof(s->recent));
}

bool shards_expect(Shards *s, uint64_t number, uint64_t round)
{
    s->round = round;
    __typeof__(s->recent[0]) *recent = &s->recent[number % RECENT];
    if (!s->keep_whole || (recent->number == number + 1 && recent->round + 1 >= round))
        return true;
    if (s->n_expected == EXPECTED_MAX)
        return false;
    recent->number = number + 1;
    recent->round = round;
    s->expected[(s->first_expected + s->n_expected++) % EXPECTED_MAX] = number;
    return true;
}

static bool is_cached(Shards *s, const KeptShard *e)
{
    char name[CACHE_NAME_MAX + 1];
    _cleanup_fd_ int fd = cache_open(s->source.cache, shard_cache_name(&s->source, e->number, name),
                                     e->info.raw_bytes);
    return fd >= 0;
}

/* The next one that is not there yet, if there is one. */
static KeptShard *begin_expected(Shards *s)
{
    for (int i = 0; i < SKIPPED_MAX && s->n_expected > 0; i++) {
        KeptShard *e;
        uint64_t number = s->expected[s->first_expected];
        s->first_expected = (s->first_expected + 1) % EXPECTED_MAX;
        s->n_expected--;
        if (entry_get(s, number, &e, NULL) < 0)
            continue; /* who reads it will say why */
        if (!e->shard && !e->fetch && !is_cached(s, e) && begin_fetch(s, e, true, NULL) == 0)
            return e;
        release(s, e);
    }
    return NULL;
}

/* Another process may have it: that is as good. */
static void end_background(Shards *s, KeptShard *e, int r, const Error *why)
{
    if (r < 0 && r != -EAGAIN)
        s->background_after_usec = clock_monotonic_usec() + BACKGROUND_PAUSE_SEC * USEC_PER_SEC;
    if (r < 0 && r != -EAGAIN && r != -ENOBUFS)
        log_warning("in the background: %s", why->text);
    release(s, e);
}

void shards_advance(Shards *s, uint64_t *wake_usec)
{
    for (size_t i = 0; i < BACKGROUND_MAX; i++) {
        Error why = ERROR_INIT;
        if (!s->background[i] && s->n_expected > 0 &&
            clock_monotonic_usec() >= s->background_after_usec)
            s->background[i] = begin_expected(s);
        KeptShard *e = s->background[i];
        int r = e ? poll_fetch(s, e, wake_usec, &why) : WHERE_NOWHERE;
        if (r == WHERE_NOWHERE)
            continue;
        end_background(s, e, r, &why);
        *wake_usec = 0; /* for the next */
    }
}

/* ---- reads ---- */

int shards_begin(Shards *s, SampleRead *read, IndexPlace place, Error *err)
{
    assert(!read->entry);
    int r = entry_get(s, place.shard, &read->entry, err);
    if (r < 0)
        return r;
    read->entry->refs++;
    read->place = place;
    read->ready = false;
    read->attempts = read->failure = 0;
    read->again_usec = 0;
    return 0;
}

void shards_end(Shards *s, SampleRead *read)
{
    KeptShard *e = read->entry;
    if (!e)
        return;
    store_read_cancel(s->source.store, &read->range_read);
    s->options.budget->used -= read->n_budget;
    read->n_budget = 0;
    read->entry = NULL;
    e->refs--;
    release(s, e);
}

void sample_read_clear(SampleRead *read)
{
    assert(!read->entry);
    free(read->buffer);
    *read = (SampleRead){0};
}

static int check_hash(Shards *s, const SampleRead *read, const char *name, Error *err)
{
    uint64_t wanted = 0;
    const uint64_t *made = s->hashes[read->place.shard];
    int r = index_sample_hash(s->index, read->place, &wanted, err);
    if (r < 0 || (r == 0 && !made))
        return r;
    if (r == 0)
        wanted = made[read->place.sample];
    uint64_t found = hash64_bytes(read->buffer, read->n_bytes, 0);
    if (found == wanted)
        return 0;
    return error_set(err, -EBADMSG,
                     "%s[%u], bytes %u-%u, is corrupt: its xxh3_64 is %016" PRIx64
                     ", %s %016" PRIx64,
                     name, read->place.sample, read->range[0], read->range[1] - 1, found,
                     r > 0 ? "the index says" : "when the shard was verified it was", wanted);
}

static int begin_range(Shards *s, SampleRead *read, bool first, Error *err)
{
    KeptShard *e = read->entry;
    ReadBudget *budget = s->options.budget;
    int r = shard_table_range(e->uri, e->table, read->place.sample, &e->info, read->range, err);
    if (r < 0)
        return r;
    read->n_bytes = read->range[1] - read->range[0];
    if (!first && budget->used + read->n_bytes > budget->most)
        return 0;
    r = shard_grow(&read->buffer, &read->room, read->n_bytes, err);
    if (r < 0)
        return r;
    read->range_read = (StoreRead){.key = e->info.raw_name,
                                   .offset = read->range[0],
                                   .n_bytes = read->n_bytes,
                                   .buffer = read->buffer,
                                   .events = s->source.events};
    r = store_read_begin(s->source.store, &read->range_read, err);
    if (r < 0)
        return r;
    read->n_budget = read->n_bytes;
    budget->used += read->n_bytes;
    (void)shards_expect(s, e->number, s->round); /* no place in the queue: another time */
    return 0;
}

/* 1: the bytes are there and right. */
static int step(Shards *s, SampleRead *read, bool first, uint64_t *wake_usec, Error *err)
{
    KeptShard *e = read->entry;
    int r;
    if (!read->range_read.begun) {
        r = advance_entry(s, e, first, wake_usec, err);
        if (r == WHERE_OPEN && first) { /* the others are read when it is their turn */
            r = shard_read(e->shard, read->place.sample, read->range, &read->buffer, &read->room,
                           err);
            if (r < 0)
                return r;
            read->n_bytes = read->range[1] - read->range[0];
            r = check_hash(s, read, shard_name(e->shard), err);
            return r < 0 ? r : 1;
        }
        if (r != WHERE_TABLE)
            return MIN(r, 0);
        r = begin_range(s, read, first, err);
        if (r < 0 || !read->range_read.begun)
            return r;
    }
    r = store_read_poll(s->source.store, &read->range_read, err);
    if (r == 0)
        return 0;
    r = r > 0 ? check_hash(s, read, e->uri, err) : shard_explain(&s->source, &e->info, r, err);
    if (r < 0) {
        s->options.budget->used -= read->n_budget;
        read->n_budget = 0;
    }
    return r < 0 ? r : 1;
}

/* Drops what a failed read came from, so that the next attempt begins afresh. */
static void forget(Shards *s, KeptShard *e)
{
    char name[CACHE_NAME_MAX + 1];
    if (e->shard && s->source.cache && !s->in_place && !shard_memory_bytes(e->shard))
        cache_forget(s->source.cache, shard_cache_name(&s->source, e->number, name));
    drop_shard(s, e);
    if (!e->table_read.begun)
        drop_table(s, e); /* nothing vouches for it */
    e->look_usec = 0;
    s->recent[e->number % RECENT].number = 0; /* it may be expected again */
    s->verified[e->number / 8] &= (uint8_t) ~(1 << e->number % 8);
    drop_hashes(s, e);
}

/* The store has tried for as long as makes sense, or will never let us. */
static bool is_final(int r) { return r == -EHOSTUNREACH || r == -EACCES || r == -ENOMEM; }

static int fail(Shards *s, SampleRead *read, int r, const Error *why, uint64_t *wake_usec,
                Error *err)
{
    static const uint64_t pauses_msec[SHARDS_ATTEMPTS - 1] = {50, 200};
    forget(s, read->entry);
    read->attempts++;
    if (read->attempts < SHARDS_ATTEMPTS && !is_final(r)) {
        log_warning("attempt %d failed: %s", read->attempts, why->text);
        read->again_usec = clock_monotonic_usec() + pauses_msec[read->attempts - 1] * USEC_PER_MSEC;
        *wake_usec = MIN(*wake_usec, read->again_usec);
        return 0;
    }
    read->failure =
        error_set(&read->why, r, "sample %s[%u], %d attempts: %s", read->entry->info.raw_name,
                  read->place.sample, read->attempts, why->text);
    if (err)
        *err = read->why;
    return read->failure;
}

int shards_poll(Shards *s, SampleRead *read, bool first, uint64_t *wake_usec, const void **ret,
                size_t *ret_bytes, Error *err)
{
    if (read->failure < 0) {
        if (err)
            *err = read->why;
        return read->failure;
    }
    if (read->again_usec) {
        if (clock_monotonic_usec() < read->again_usec) {
            *wake_usec = MIN(*wake_usec, read->again_usec);
            return 0;
        }
        read->again_usec = 0;
    }
    if (!read->ready) {
        Error why = ERROR_INIT;
        int r = step(s, read, first, wake_usec, &why);
        if (r < 0)
            return fail(s, read, r, &why, wake_usec, err);
        read->ready = r > 0;
    }
    if (!read->ready)
        return 0;
    *ret = read->buffer;
    *ret_bytes = read->n_bytes;
    return 1;
}

int shards_read(Shards *s, IndexPlace place, const void **ret, size_t *ret_bytes, Error *err)
{
    shards_end(s, &s->own);
    int r = shards_begin(s, &s->own, place, err);
    while (r == 0) {
        uint64_t seen = event_count_read(s->source.events), wake_usec = UINT64_MAX;
        r = shards_poll(s, &s->own, true, &wake_usec, ret, ret_bytes, err);
        if (r == 0)
            event_count_wait(s->source.events, seen, wake_usec);
    }
    return MIN(r, 0);
}
