/* SPDX-License-Identifier: Apache-2.0 */
/* background.c - fetches whole shards into the cache before they are needed; see shards.h.
 *
 * Expected shards wait in a queue; at most BACKGROUND_MAX of them are fetched at the same time. An expected
 * shard is remembered for two rounds, so that it is not put into the queue again for each of its samples. */
#include "base/clock.h"
#include "base/log.h"
#include "data/stream/shards-internal.h"

#include <string.h>

enum {
    PAUSE_SEC = 60,   /* pause after a failed background fetch */
    SKIPPED_MAX = 16, /* the largest number of cached shards that one call skips */
};

void background_remove(Shards *s, const KeptShard *e)
{
    for (size_t i = 0; i < BACKGROUND_MAX; i++)
        if (s->background[i] == e)
            s->background[i] = NULL;
}

void background_forget(Shards *s, uint64_t number)
{
    Remembered *remembered = &s->remembered[number % BACKGROUND_REMEMBERED];
    remembered->known = remembered->known && remembered->number != number;
}

void shards_keep_whole(Shards *s, bool keep)
{
    s->keep_whole = keep && s->source.cache;
    for (size_t i = 0; i < BACKGROUND_MAX && !keep; i++) {
        KeptShard *e = s->background[i];
        if (!e)
            continue;
        assert(e->fetch && e->background);
        kept_shard_drop_fetch(s, e);
        kept_shard_release(s, e);
    }
    s->n_expected = 0;
    memset(s->remembered, 0, sizeof(s->remembered));
}

bool shards_expect(Shards *s, uint64_t number, uint64_t round)
{
    s->round = round;
    Remembered *remembered = &s->remembered[number % BACKGROUND_REMEMBERED];
    if (!s->keep_whole ||
        (remembered->known && remembered->number == number && remembered->round + 1 >= round))
        return true;
    if (s->n_expected == BACKGROUND_EXPECTED)
        return false;
    assert(number < index_n_shards(s->index));
    *remembered = (Remembered){.known = true, .number = number, .round = round};
    s->expected[(s->first_expected + s->n_expected++) % BACKGROUND_EXPECTED] = number;
    return true;
}

static bool is_cached(Shards *s, const KeptShard *e)
{
    char name[CACHE_NAME_MAX + 1];
    _cleanup_fd_ int fd = cache_open(s->source.cache, shard_cache_name(&s->source, e->number, name),
                                     e->info.raw_bytes);
    return fd >= 0;
}

/* Begins to fetch the next expected shard that is not cached. Returns NULL if no shard is left, or if SKIPPED_MAX
 * shards were skipped. */
static KeptShard *begin_expected(Shards *s)
{
    for (int i = 0; i < SKIPPED_MAX && s->n_expected > 0; i++) {
        KeptShard *e;
        uint64_t number = s->expected[s->first_expected];
        s->first_expected = (s->first_expected + 1) % BACKGROUND_EXPECTED;
        s->n_expected--;
        if (kept_shard_get(s, number, &e, NULL) < 0)
            continue; /* a read of the shard will report the error */
        if (!e->shard && !e->fetch && !is_cached(s, e) &&
            kept_shard_begin_fetch(s, e, true, NULL) == 0)
            return e;
        kept_shard_release(s, e);
    }
    return NULL;
}

/* Notes a failed background fetch. -EAGAIN is not a failure: another process is fetching the shard. */
static void note_failure(Shards *s, int r, const Error *why)
{
    if (r == -EAGAIN)
        return;
    s->background_after_usec = clock_monotonic_usec() + PAUSE_SEC * USEC_PER_SEC;
    if (r != -ENOBUFS)
        log_warning("in the background: %s", why->text);
}

void shards_advance(Shards *s, uint64_t *wake_usec)
{
    for (size_t i = 0; i < BACKGROUND_MAX; i++) {
        Error why = ERROR_INIT;
        Where where;
        if (!s->background[i] && s->n_expected > 0 &&
            clock_monotonic_usec() >= s->background_after_usec)
            s->background[i] = begin_expected(s);
        KeptShard *e = s->background[i];
        if (!e)
            continue;
        assert(e->fetch && e->background);
        int r = kept_shard_poll_fetch(s, e, wake_usec, &where, &why);
        if (r == 0 && where == WHERE_NOWHERE)
            continue;
        if (r < 0)
            note_failure(s, r, &why);
        kept_shard_release(s, e);
        *wake_usec = 0; /* poll again at once, to begin the next fetch */
    }
}
