/* SPDX-License-Identifier: Apache-2.0 */
/* shard-open.c - the ways in which a shard becomes readable: in place, from the cache, by its table of offsets, or
 * fetched whole; see shards-internal.h. */
#include "base/clock.h"
#include "base/log.h"
#include "data/stream/shards-internal.h"

#include <inttypes.h>

enum { LOOK_SEC = 1 }; /* time between two checks of the cache, which other processes fill, too */

/* Reports whether a shard must be verified when it is opened: not if this process has verified it before, and not if
 * the index has hashes of samples, which are checked at each read at less cost. */
static bool must_verify(const Shards *s, const KeptShard *e)
{
    return !(s->verified[e->number / 8] & 1 << e->number % 8) && !index_has_sample_hashes(s->index);
}

static int open_in_place(Shards *s, KeptShard *e, Where *ret, Error *err)
{
    Shard *shard = NULL;
    (void)kept_shards_make_room(s, 0); /* the shard is opened even without room */
    int r = shard_open_in_place(&s->source, &e->info, must_verify(s, e), &shard, err);
    if (r < 0)
        return r;
    kept_shard_set(s, e, shard);
    *ret = WHERE_OPEN;
    return 0;
}

/* Opens the shard from the cache, if the cache has it. A corrupt copy is removed, and the shard is fetched again. */
static Where open_cached(Shards *s, KeptShard *e, bool first)
{
    Error why = ERROR_INIT;
    Shard *shard = NULL;
    uint64_t now = s->source.cache ? clock_monotonic_usec() : 0;
    if (!s->source.cache || now < e->look_usec || (!kept_shards_make_room(s, 0) && !first))
        return WHERE_NOWHERE;
    int r = shard_open_cached(&s->source, e->number, &e->info, must_verify(s, e), &shard, &why);
    e->look_usec = now + LOOK_SEC * USEC_PER_SEC;
    if (r < 0 && r != -ENOENT)
        log_warning("in data.cache_dir: %s; fetching it again", why.text);
    if (r < 0)
        return WHERE_NOWHERE;
    kept_shard_set(s, e, shard);
    return WHERE_OPEN;
}

/* ---- by its table of offsets ---- */

static int begin_table(Shards *s, KeptShard *e, Error *err)
{
    assert(s->ranged);
    size_t n_bytes = shard_table_bytes(e->info.n_samples);
    if (n_bytes > e->info.raw_bytes)
        return error_set(err, -EBADMSG, "%s: %" PRIu64 " samples do not fit %" PRIu64 " bytes",
                         e->uri, e->info.n_samples, e->info.raw_bytes);
    int r = kept_shard_add_table(s, e, n_bytes, err);
    if (r < 0)
        return r;
    e->table_read = (StoreRead){.key = e->info.raw_name,
                                .n_bytes = n_bytes,
                                .buffer = e->table,
                                .events = s->source.events};
    return store_read_begin(s->source.store, &e->table_read, err);
}

/* Returns 1 if the table has arrived and has the right form, 0 if it has not arrived. */
static int poll_table(Shards *s, KeptShard *e, Error *err)
{
    int r = store_read_poll(s->source.store, &e->table_read, err);
    if (r < 0)
        return shard_explain(&s->source, &e->info, r, err);
    if (r > 0 && shard_table_check(e->uri, e->table, &e->info, err) < 0)
        return -EBADMSG;
    return r;
}

static int open_table(Shards *s, KeptShard *e, Where *ret, Error *err)
{
    *ret = WHERE_TABLE;
    if (e->table && !e->table_read.begun)
        return 0;
    int r = e->table ? 0 : begin_table(s, e, err);
    r = r < 0 ? shard_explain(&s->source, &e->info, r, err) : poll_table(s, e, err);
    if (r < 0)
        kept_shard_drop_table(s, e);
    if (r == 0)
        *ret = WHERE_NOWHERE;
    return MIN(r, 0);
}

/* ---- fetched whole ---- */

int kept_shard_begin_fetch(Shards *s, KeptShard *e, bool background, Error *err)
{
    assert(!e->fetch && !e->shard);
    int r = shard_fetch_new(&s->source, e->number, &e->info, background, &e->fetch, err);
    if (r < 0)
        return r;
    e->background = background;
    s->n_fetches += !background;
    return 0;
}

int kept_shard_poll_fetch(Shards *s, KeptShard *e, uint64_t *wake_usec, Where *ret, Error *err)
{
    Shard *shard;
    assert(e->fetch);
    *ret = WHERE_NOWHERE;
    int r = shard_fetch_poll(e->fetch, wake_usec, &shard, err);
    if (r == 0)
        return 0;
    kept_shard_drop_fetch(s, e);
    if (r < 0)
        return r;
    /* The shard is kept even if no room can be made. */
    (void)kept_shards_make_room(s, shard_memory_bytes(shard));
    kept_shard_set(s, e, shard);
    *ret = WHERE_OPEN;
    return 0;
}

/* Continues a background fetch of the shard; if there is none, or if the background fetch fails, begins a fetch for the
 * reads. */
static int open_whole(Shards *s, KeptShard *e, bool first, uint64_t *wake_usec, Where *ret,
                      Error *err)
{
    if (e->fetch) {
        bool background = e->background;
        int r = kept_shard_poll_fetch(s, e, wake_usec, ret, err);
        if (r == 0 || !background)
            return r;
    }
    *ret = WHERE_NOWHERE;
    bool room = kept_shards_make_room(s, s->source.cache ? 0 : e->info.raw_bytes);
    if (!first && (!room || s->n_fetches >= SHARDS_FETCHES_MAX))
        return 0;
    int r = kept_shard_begin_fetch(s, e, false, err);
    return r < 0 ? r : kept_shard_poll_fetch(s, e, wake_usec, ret, err);
}

int kept_shard_open(Shards *s, KeptShard *e, bool first, uint64_t *wake_usec, Where *ret,
                    Error *err)
{
    assert(e->refs > 0);
    if (e->shard) {
        *ret = WHERE_OPEN;
        return 0;
    }
    if (s->in_place)
        return open_in_place(s, e, ret, err);
    if (!e->fetch || s->ranged) {
        *ret = open_cached(s, e, first);
        if (*ret == WHERE_OPEN)
            return 0;
    }
    return s->ranged ? open_table(s, e, ret, err) : open_whole(s, e, first, wake_usec, ret, err);
}
