/* SPDX-License-Identifier: Apache-2.0 */
/* sample-read.c - see sample-read.h. */
#include "data/stream/sample-read.h"

#include "base/clock.h"
#include "base/log.h"
#include "data/stream/shards-internal.h"

#include <inttypes.h>
#include <string.h>

static void give_back_budget(SampleRead *read)
{
    ReadBudget *budget = read->shards->options.budget;
    assert(budget->used >= read->n_budget);
    budget->used -= read->n_budget;
    read->n_budget = 0;
}

void sample_read_refuse(SampleRead *read, int r, const Error *why)
{
    assert(read->state == SAMPLE_READ_IDLE && r < 0);
    read->state = SAMPLE_READ_FAILED;
    read->failure = r;
    read->why = *why;
}

void sample_read_begin(SampleRead *read, Shards *s, IndexPlace place)
{
    Error why = ERROR_INIT;
    assert(read->state == SAMPLE_READ_IDLE && !read->entry && read->n_budget == 0);
    int r = kept_shard_get(s, place.shard, &read->entry, &why);
    if (r < 0) {
        sample_read_refuse(read, r, &why);
        return;
    }
    read->state = SAMPLE_READ_OPENING;
    read->shards = s;
    read->entry->refs++;
    read->place = place;
    read->attempts = read->failure = 0;
    read->again_usec = 0;
}

void sample_read_end(SampleRead *read)
{
    KeptShard *e = TAKE_PTR(read->entry);
    read->state = SAMPLE_READ_IDLE;
    if (!e)
        return;
    assert(e->refs > 0);
    store_read_cancel(read->shards->source.store, &read->range_read);
    give_back_budget(read);
    e->refs--;
    kept_shard_release(read->shards, e);
}

void sample_read_clear(SampleRead *read)
{
    assert(read->state == SAMPLE_READ_IDLE && !read->entry);
    free(read->buffer);
    *read = (SampleRead){0};
}

/* ---- attempts ---- */

static int check_hash(const SampleRead *read, const char *name, Error *err)
{
    const Shards *s = read->shards;
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

/* Reads the sample from an open shard. */
static int read_shard(SampleRead *read, Error *err)
{
    const Shard *shard = read->entry->shard;
    int r = shard_read(shard, read->place.sample, read->range, &read->buffer, &read->room, err);
    if (r < 0)
        return r;
    read->n_bytes = read->range[1] - read->range[0];
    r = check_hash(read, shard_name(shard), err);
    if (r == 0)
        read->state = SAMPLE_READ_READY;
    return r;
}

/* Begins to read the sample's range. The budget bounds all reads except the first. */
static int begin_range(SampleRead *read, bool first, Error *err)
{
    Shards *s = read->shards;
    const KeptShard *e = read->entry;
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
    assert(read->n_budget == 0);
    read->n_budget = read->n_bytes;
    budget->used += read->n_bytes;
    read->state = SAMPLE_READ_RANGE;
    (void)shards_expect(s, e->number, s->round); /* without effect if the queue is full */
    return 0;
}

static int poll_opening(SampleRead *read, bool first, uint64_t *wake_usec, Error *err)
{
    Where where;
    int r = kept_shard_open(read->shards, read->entry, first, wake_usec, &where, err);
    if (r < 0)
        return r;
    if (where == WHERE_TABLE)
        return begin_range(read, first, err);
    /* Only the first read copies its sample from an open shard; other reads do so once they are first. */
    return where == WHERE_OPEN && first ? read_shard(read, err) : 0;
}

static int poll_range(SampleRead *read, Error *err)
{
    const Shards *s = read->shards;
    const KeptShard *e = read->entry;
    int r = store_read_poll(s->source.store, &read->range_read, err);
    if (r == 0)
        return 0;
    r = r > 0 ? check_hash(read, e->uri, err) : shard_explain(&s->source, &e->info, r, err);
    if (r < 0)
        give_back_budget(read);
    else
        read->state = SAMPLE_READ_READY;
    return r;
}

/* Reports whether another attempt is useless: the store has retried until its own deadline, refuses access, or memory
 * is short. */
static bool is_final(int r) { return r == -EHOSTUNREACH || r == -EACCES || r == -ENOMEM; }

/* Notes a failed attempt. Returns 0 if another attempt will follow, else the failure. */
static int note_failure(SampleRead *read, int r, const Error *why, uint64_t *wake_usec)
{
    static const uint64_t pauses_msec[SAMPLE_READ_ATTEMPTS - 1] = {50, 200};
    assert(!read->range_read.begun && read->n_budget == 0);
    kept_shard_forget(read->shards, read->entry);
    read->attempts++;
    if (read->attempts < SAMPLE_READ_ATTEMPTS && !is_final(r)) {
        log_warning("attempt %d failed: %s", read->attempts, why->text);
        read->again_usec = clock_monotonic_usec() + pauses_msec[read->attempts - 1] * USEC_PER_MSEC;
        *wake_usec = MIN(*wake_usec, read->again_usec);
        read->state = SAMPLE_READ_OPENING;
        return 0;
    }
    read->state = SAMPLE_READ_FAILED;
    read->failure =
        error_set(&read->why, r, "sample %s[%u], %d attempts: %s", read->entry->info.raw_name,
                  read->place.sample, read->attempts, why->text);
    return read->failure;
}

static int attempt(SampleRead *read, bool first, uint64_t *wake_usec)
{
    Error why = ERROR_INIT;
    int r = 0;
    if (read->again_usec && clock_monotonic_usec() < read->again_usec) {
        *wake_usec = MIN(*wake_usec, read->again_usec);
        return 0;
    }
    read->again_usec = 0;
    if (read->state == SAMPLE_READ_OPENING)
        r = poll_opening(read, first, wake_usec, &why);
    if (r == 0 && read->state == SAMPLE_READ_RANGE)
        r = poll_range(read, &why);
    return r < 0 ? note_failure(read, r, &why, wake_usec) : 0;
}

int sample_read_poll(SampleRead *read, bool first, uint64_t *wake_usec, const void **ret,
                     size_t *ret_bytes, Error *err)
{
    assert(read->state != SAMPLE_READ_IDLE);
    if (read->state == SAMPLE_READ_OPENING || read->state == SAMPLE_READ_RANGE)
        (void)attempt(read, first, wake_usec); /* the result is in read->state */
    if (read->state == SAMPLE_READ_FAILED) {
        if (err)
            *err = read->why;
        return read->failure;
    }
    if (read->state != SAMPLE_READ_READY)
        return 0;
    *ret = read->buffer;
    *ret_bytes = read->n_bytes;
    return 1;
}
