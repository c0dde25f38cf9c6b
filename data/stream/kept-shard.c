/* SPDX-License-Identifier: Apache-2.0 */
/* kept-shard.c - finds the entries of a Shards by number, orders them by use, and bounds their memory; see
 * shards-internal.h. */
#include "base/log.h"
#include "data/stream/shards-internal.h"

#include <string.h>

static void unlink_kept(Shards *s, KeptShard *e)
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

/* ---- the parts of an entry ---- */

static size_t table_cost(const KeptShard *e)
{
    return sizeof(KeptShard) + shard_table_bytes(e->info.n_samples);
}

static void drop_shard(Shards *s, KeptShard *e)
{
    if (!e->shard)
        return;
    assert(s->n_open > 0 && s->memory_bytes >= shard_memory_bytes(e->shard));
    s->memory_bytes -= shard_memory_bytes(e->shard);
    s->n_open--;
    e->shard = shard_free(e->shard);
    e->look_usec = 0;
}

void kept_shard_drop_table(Shards *s, KeptShard *e)
{
    if (!e->table)
        return;
    assert(s->table_bytes >= table_cost(e));
    store_read_cancel(s->source.store, &e->table_read);
    s->table_bytes -= table_cost(e);
    free(e->table);
    e->table = NULL;
}

void kept_shard_drop_fetch(Shards *s, KeptShard *e)
{
    if (!e->fetch)
        return;
    assert(e->background || s->n_fetches > 0);
    e->fetch = shard_fetch_free(e->fetch);
    s->n_fetches -= !e->background;
    background_remove(s, e);
}

static void drop_hashes(Shards *s, const KeptShard *e)
{
    if (!s->hashes[e->number])
        return;
    assert(s->options.budget->hashes >= 8 * e->info.n_samples);
    s->options.budget->hashes -= 8 * e->info.n_samples;
    free(s->hashes[e->number]);
    s->hashes[e->number] = NULL;
}

/* Keeps the hashes of the shard's samples, if they were computed while the shard was verified and there is room for
 * them. */
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

void kept_shard_set(Shards *s, KeptShard *e, Shard *shard)
{
    drop_shard(s, e); /* the shard may have been opened from the cache meanwhile */
    keep_hashes(s, e, shard);
    e->shard = shard;
    s->n_open++;
    s->memory_bytes += shard_memory_bytes(shard);
    s->verified[e->number / 8] |= (uint8_t)(1 << e->number % 8);
}

void kept_shard_forget(Shards *s, KeptShard *e)
{
    char name[CACHE_NAME_MAX + 1];
    if (e->shard && s->source.cache && !s->in_place && !shard_memory_bytes(e->shard))
        cache_forget(s->source.cache, shard_cache_name(&s->source, e->number, name));
    drop_shard(s, e);
    if (!e->table_read.begun)
        kept_shard_drop_table(s, e); /* the table has no hash: it may be wrong */
    e->look_usec = 0;
    background_forget(s, e->number);
    s->verified[e->number / 8] &= (uint8_t) ~(1 << e->number % 8);
    drop_hashes(s, e);
}

/* ---- entries ---- */

static void kept_shard_free(Shards *s, KeptShard *e)
{
    KeptShard **link = &s->buckets[e->number % KEPT_BUCKETS];
    while (*link != e)
        link = &(*link)->chain;
    *link = e->chain;
    unlink_kept(s, e);
    kept_shard_drop_fetch(s, e);
    kept_shard_drop_table(s, e);
    drop_shard(s, e);
    free(e->uri);
    free(e);
}

void kept_shards_clear(Shards *s)
{
    while (s->oldest)
        kept_shard_free(s, s->oldest);
    assert(s->n_open == 0 && s->n_fetches == 0 && s->memory_bytes == 0 && s->table_bytes == 0);
}

static bool is_idle(const KeptShard *e) { return e->refs == 0 && !e->fetch; }

void kept_shard_release(Shards *s, KeptShard *e)
{
    /* A file of the cache is closed at once: an open file cannot be evicted, and opening it again costs
     * microseconds. */
    if (e->refs == 0 && e->shard && s->source.cache && !s->in_place &&
        !shard_memory_bytes(e->shard))
        drop_shard(s, e);
    if (e->refs == 0 && e->fetch && !e->background)
        /* No read would continue the fetch, and other processes may wait for it. */
        kept_shard_drop_fetch(s, e);
    if (is_idle(e) && !e->shard && (!e->table || e->table_read.begun))
        kept_shard_free(s, e);
}

int kept_shard_get(Shards *s, uint64_t number, KeptShard **ret, Error *err)
{
    assert(number < index_n_shards(s->index));
    KeptShard **bucket = &s->buckets[number % KEPT_BUCKETS], *e = *bucket;
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
        unlink_kept(s, e);
    }
    link_newest(s, e);
    *ret = e;
    return 0;
}

/* ---- room ---- */

bool kept_shards_make_room(Shards *s, uint64_t n_memory)
{
    for (KeptShard *e = s->oldest, *next; e; e = next) {
        bool full = s->n_open >= SHARDS_OPEN_MAX;
        bool large = s->memory_bytes > 0 && s->memory_bytes + n_memory > SHARDS_MEMORY_MAX;
        if (!full && !large)
            return true;
        next = e->newer;
        if (is_idle(e) && e->shard && (full || shard_memory_bytes(e->shard))) {
            drop_shard(s, e);
            kept_shard_release(s, e);
        }
    }
    return s->n_open < SHARDS_OPEN_MAX &&
           (s->memory_bytes == 0 || s->memory_bytes + n_memory <= SHARDS_MEMORY_MAX);
}

int kept_shard_add_table(Shards *s, KeptShard *e, size_t n_bytes, Error *err)
{
    assert(!e->table && !e->table_read.begun);
    for (KeptShard *o = s->oldest, *next; o && s->table_bytes + table_cost(e) > SHARDS_TABLES_MAX;
         o = next) {
        next = o->newer;
        if (is_idle(o)) {
            kept_shard_drop_table(s, o);
            kept_shard_release(s, o);
        }
    }
    e->table = malloc(n_bytes);
    if (!e->table)
        return error_set(err, -ENOMEM, "out of memory");
    s->table_bytes += table_cost(e);
    return 0;
}
