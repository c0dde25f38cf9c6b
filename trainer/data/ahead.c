/* ahead.c - reads that are under way while others are decoded; see dataset-internal.h.
 *
 * A ring of reads in the order in which they are wanted. The first is waited for; whenever something
 * has come, the others are looked at, too, since a table that came lets a range begin. What is on
 * file:// is read when it is wanted: one read is enough. */
#include "trainer/data/dataset-internal.h"

#include "base/clock.h"

enum { SCOUTED_TOGETHER = 64 };

typedef struct AheadSlot {
    OrderSample sample;
    SampleRead read;
} AheadSlot;

struct Ahead {
    Dataset *dataset;
    AheadNext next;
    void *context;
    bool ended; /* next() has told its last */
    atomic_bool stop;
    uint64_t seen, wake_usec; /* of the last look at all reads */

    AheadNext
        scout; /* as next(), for what looks `horizon` samples beyond those taken; NULL: nobody */
    void *scout_context;
    int64_t horizon, scouted, taken;
    bool has_expected; /* `expected` could not be placed yet */
    OrderSample expected;

    size_t room, first, n;
    AheadSlot slots[];
};

int ahead_new(Dataset *d, AheadNext next, void *context, Ahead **ret, Error *err)
{
    size_t room = 1;
    for (size_t i = 0; i < d->n_streams; i++)
        if (!shards_are_local(d->streams[i].shards))
            room = (size_t)d->read_ahead;
    Ahead *a = calloc(1, sizeof(*a) + room * sizeof(a->slots[0]));
    if (!a)
        return error_set(err, -ENOMEM, "out of memory");
    a->dataset = d;
    a->next = next;
    a->context = context;
    a->room = room;
    a->wake_usec = UINT64_MAX;
    *ret = a;
    return 0;
}

Ahead *ahead_free(Ahead *a)
{
    if (!a)
        return NULL;
    Dataset *d = a->dataset;
    (void)pthread_mutex_lock(&d->mutex); /* fails only on our bugs, here and below */
    for (size_t i = 0; i < a->room; i++) {
        shards_end(d->streams[a->slots[i].sample.stream].shards, &a->slots[i].read);
        sample_read_clear(&a->slots[i].read);
    }
    for (size_t i = 0; i < d->n_streams; i++)
        shards_keep_whole(d->streams[i].shards, false); /* nobody lets it go on */
    (void)pthread_mutex_unlock(&d->mutex);
    free(a);
    return NULL;
}

void ahead_stop(Ahead *a)
{
    atomic_store(&a->stop, true);
    event_count_signal(a->dataset->events);
}

static AheadSlot *slot_at(Ahead *a, size_t i) { return &a->slots[(a->first + i) % a->room]; }

static Stream *stream_of(Ahead *a, const AheadSlot *slot)
{
    return &a->dataset->streams[slot->sample.stream];
}

/* At one that is not the first. */
static void look_at(Ahead *a, AheadSlot *slot)
{
    const void *bytes;
    size_t n_bytes;
    (void)shards_poll(stream_of(a, slot)->shards, &slot->read, false, &a->wake_usec, &bytes,
                      &n_bytes, NULL); /* it says so again when it is the first */
}

/* Begins reads while there are places. What fails, fails when it is wanted. */
static void admit(Ahead *a)
{
    while (!a->ended && a->n < a->room) {
        AheadSlot *slot = slot_at(a, a->n);
        OrderSample sample;
        if (!a->next(a->context, &sample)) {
            a->ended = true;
            return;
        }
        slot->sample = sample;
        a->n++;
        Error err = ERROR_INIT;
        int r = dataset_begin(a->dataset, sample, &slot->read, &err);
        if (r < 0) {
            slot->read.failure = r;
            slot->read.why = err;
        }
        if (a->n > 1)
            look_at(a, slot);
    }
}

/* All reads from the i-th on. */
static void look_around(Ahead *a, size_t i)
{
    a->wake_usec = UINT64_MAX;
    for (; i < a->n; i++)
        look_at(a, slot_at(a, i));
    for (size_t k = 0; k < a->dataset->n_streams; k++)
        shards_advance(a->dataset->streams[k].shards, &a->wake_usec);
}

void ahead_scout(Ahead *a, AheadNext scout, void *context, int64_t horizon)
{
    a->scout = scout;
    a->scout_context = context;
    a->horizon = horizon;
}

/* Tells the streams which shards will be wanted, a few samples at a time. */
static void look_ahead(Ahead *a)
{
    for (int i = 0; i < SCOUTED_TOGETHER && a->scout; i++) {
        if (!a->has_expected) {
            if (a->scouted >= a->taken + a->horizon)
                return;
            if (!a->scout(a->scout_context, &a->expected)) {
                a->scout = NULL;
                return;
            }
            a->scouted++;
        }
        const Stream *stream = &a->dataset->streams[a->expected.stream];
        IndexPlace place;
        a->has_expected = index_locate(stream->index, stream->latents, (uint64_t)a->expected.sample,
                                       &place, NULL) == 0 &&
                          !shards_expect(stream->shards, place.shard,
                                         (uint64_t)(a->scouted / MAX(a->horizon, 1)));
        if (a->has_expected)
            return;
    }
}

/* There is nothing that look_ahead() could do now. */
static bool look_is_over(const Ahead *a)
{
    return !a->scout || a->has_expected || a->scouted >= a->taken + a->horizon;
}

/* The first read has come. */
static int take(Ahead *a, AheadSlot *slot, const void *bytes, size_t n_bytes, float *latents,
                float *text, Error *err)
{
    int r = dataset_decode(a->dataset, slot->sample, bytes, n_bytes, latents, text, NULL, err);
    shards_end(stream_of(a, slot)->shards, &slot->read);
    /* A place may keep its share of the bytes, no more. */
    if (slot->read.room > a->dataset->budget.most / a->room)
        sample_read_clear(&slot->read);
    a->first = (a->first + 1) % a->room;
    a->n--;
    a->taken++;
    return r < 0 ? r : 1;
}

/* 1: taken. The caller holds the mutex. */
static int try_to_take(Ahead *a, uint64_t seen, float *latents, float *text,
                       OrderSample *ret_sample, Error *err)
{
    admit(a);
    if (a->n == 0)
        return error_set(err, -ENODATA, "there are no more samples");
    AheadSlot *slot = slot_at(a, 0);
    uint64_t wake_usec = UINT64_MAX;
    const void *bytes;
    size_t n_bytes;
    *ret_sample = slot->sample;
    int r = shards_poll(stream_of(a, slot)->shards, &slot->read, true, &wake_usec, &bytes, &n_bytes,
                        err);
    bool came = r > 0;
    if (came)
        r = take(a, slot, bytes, n_bytes, latents, text, err);
    look_ahead(a);
    if (seen != a->seen || clock_monotonic_usec() >= a->wake_usec)
        look_around(a, !came);
    a->seen = seen;
    a->wake_usec = MIN(a->wake_usec, wake_usec);
    return r;
}

void ahead_tend(Ahead *a, uint64_t seen)
{
    Dataset *d = a->dataset;
    (void)pthread_mutex_lock(&d->mutex);
    admit(a);
    look_ahead(a);
    look_around(a, 0);
    a->seen = seen;
    uint64_t wake_usec = look_is_over(a) ? a->wake_usec : 0;
    (void)pthread_mutex_unlock(&d->mutex);
    event_count_wait(d->events, seen, wake_usec);
}

int ahead_take(Ahead *a, float *latents, float *text, OrderSample *ret_sample, Error *err)
{
    Dataset *d = a->dataset;
    for (;;) {
        if (atomic_load(&a->stop))
            return error_set(err, -ECANCELED, "reading was stopped");
        uint64_t seen = event_count_read(d->events);
        (void)pthread_mutex_lock(&d->mutex);
        int r = try_to_take(a, seen, latents, text, ret_sample, err);
        uint64_t wake_usec = a->wake_usec;
        (void)pthread_mutex_unlock(&d->mutex);
        if (r != 0)
            return MIN(r, 0);
        event_count_wait(d->events, seen, wake_usec);
    }
}
