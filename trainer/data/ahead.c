/* ahead.c - reads that are under way while others are decoded; see dataset.h.
 *
 * A ring of reads in the order in which they are wanted. The first is waited for; whenever something
 * has come, the others are looked at, too, since a table that came lets a range begin. What is on
 * file:// is read when it is wanted: one read is enough. */
#include "trainer/data/dataset.h"

#include "base/clock.h"

typedef struct Slot {
    OrderSample sample;
    SampleRead read;
} Slot;

struct Ahead {
    Dataset *dataset;
    AheadNext next;
    void *context;
    bool ended; /* next() has told its last */
    atomic_bool stop;
    uint64_t seen, wake_usec; /* of the last look at all reads */
    size_t room, first, n;
    Slot slots[];
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
    bell_ring(a->dataset->bell);
}

static Slot *slot_at(Ahead *a, size_t i) { return &a->slots[(a->first + i) % a->room]; }

static Stream *stream_of(Ahead *a, const Slot *slot)
{
    return &a->dataset->streams[slot->sample.stream];
}

/* At one that is not the first. */
static void look_at(Ahead *a, Slot *slot)
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
        Slot *slot = slot_at(a, a->n);
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

/* The first read has come. */
static int take(Ahead *a, Slot *slot, const void *bytes, size_t n_bytes, float *latents,
                float *text, Error *err)
{
    int r = dataset_decode(a->dataset, slot->sample, bytes, n_bytes, latents, text, NULL, err);
    shards_end(stream_of(a, slot)->shards, &slot->read);
    /* A place may keep its share of the bytes, no more. */
    if (slot->read.room > a->dataset->budget.most / a->room)
        sample_read_clear(&slot->read);
    a->first = (a->first + 1) % a->room;
    a->n--;
    return r < 0 ? r : 1;
}

/* 1: taken. The caller holds the mutex. */
static int try_to_take(Ahead *a, uint64_t seen, float *latents, float *text,
                       OrderSample *ret_sample, Error *err)
{
    admit(a);
    if (a->n == 0)
        return error_set(err, -ENODATA, "there are no more samples");
    Slot *slot = slot_at(a, 0);
    uint64_t wake_usec = UINT64_MAX;
    const void *bytes;
    size_t n_bytes;
    *ret_sample = slot->sample;
    int r = shards_poll(stream_of(a, slot)->shards, &slot->read, true, &wake_usec, &bytes, &n_bytes,
                        err);
    bool came = r > 0;
    if (came)
        r = take(a, slot, bytes, n_bytes, latents, text, err);
    if (seen != a->seen || clock_monotonic_usec() >= a->wake_usec)
        look_around(a, !came);
    a->seen = seen;
    a->wake_usec = MIN(a->wake_usec, wake_usec);
    return r;
}

int ahead_take(Ahead *a, float *latents, float *text, OrderSample *ret_sample, Error *err)
{
    Dataset *d = a->dataset;
    for (;;) {
        if (atomic_load(&a->stop))
            return error_set(err, -ECANCELED, "reading was stopped");
        uint64_t seen = bell_count(d->bell);
        (void)pthread_mutex_lock(&d->mutex);
        int r = try_to_take(a, seen, latents, text, ret_sample, err);
        uint64_t wake_usec = a->wake_usec;
        (void)pthread_mutex_unlock(&d->mutex);
        if (r != 0)
            return MIN(r, 0);
        bell_wait(d->bell, seen, wake_usec);
    }
}
