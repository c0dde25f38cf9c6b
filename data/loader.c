/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c - one thread that requests samples, decodes them and hands over grains; see loader.h.
 *
 * All samples form one ring, in the order in which the steps train. A sample is requested, read, decoded, and released
 * together with its step:
 *
 *     released steps | decoded samples | samples that were requested | the others
 *                    ^ of the loop     ^ n_decoded                   ^ n_asked
 *
 * At most n_slots steps are kept decoded, and at most n_reads samples are requested and not decoded yet. Reads continue
 * while the steps' slots are full, since the coming samples are known. Samples count from the loader's start: sample i
 * belongs to step first_step + i / step_samples. Grains count likewise (ordinals).
 *
 * The thread waits for the first read. Whenever bytes have arrived, it polls the other reads, too: when a table of
 * offsets has arrived, a range request can begin. A sample on file:// is read when it is decoded, so one read is enough
 * there.
 *
 * The thread also announces to the streams which shards its next n_horizon samples will need (dataset_plan_cache()). */
#include "data/loader.h"

#include "base/clock.h"
#include "base/fault.h"
#include "data/dataset-internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum {
    SLOTS_MAX = 64,
    EXPECTED_TOGETHER = 64, /* limit of the samples whose shards one call of expect() announces */
};

typedef struct LoaderSlot { /* the grains of one step */
    float *latents, *text;
    OrderSample *samples;
} LoaderSlot;

struct Loader {
    /* Set before the thread starts. */
    Dataset *dataset;
    int64_t global_batch, grain, n_steps;
    int64_t first_step, first_grain, n_grains;
    /* The number of this rank's samples in a step, and in all steps to come. */
    int64_t step_samples, n_samples;
    size_t n_latents, n_text; /* number of floats in one sample */
    int64_t n_slots, n_reads, n_horizon;
    /* A slot is used by the thread until it is filled, and then by the training loop. */
    LoaderSlot slots[SLOTS_MAX];
    bool has_locks, has_thread;
    pthread_t thread;
    atomic_bool stop; /* written under the mutex, so that no waiting thread misses the change */

    /* Used only by the thread, and by loader_free() after the thread has ended. */
    int64_t n_asked, n_decoded, n_expected; /* counts of samples */
    SampleRead *reads;                      /* [n_reads]: sample i uses read i % n_reads */
    /* The count of events when all reads were last polled, and the time of the next poll. */
    uint64_t seen, wake_usec;

    pthread_mutex_t mutex; /* protects the following fields */
    pthread_cond_t changed;
    int64_t filled;   /* number of filled grains, so also the next grain's ordinal */
    int64_t released; /* number of released steps, from first_step on */
    int failure;      /* why grain number `filled` could not be filled; 0: no failure */
    Error error;
};

/* ---- requested samples ---- */

static OrderSample sample_at(const Loader *l, int64_t i)
{
    assert(i >= 0 && i < l->n_samples);
    int64_t step = l->first_step + i / l->step_samples;
    return order_at(dataset_order(l->dataset),
                    step * l->global_batch + l->first_grain * l->grain + i % l->step_samples);
}

static SampleRead *read_at(Loader *l, int64_t i) { return &l->reads[i % l->n_reads]; }

/* Polls a read whose sample is not decoded now. If the read has failed, try_to_decode() returns the failure later. */
static void look_at(Loader *l, SampleRead *read)
{
    const void *bytes;
    size_t n_bytes;
    (void)sample_read_poll(read, false, &l->wake_usec, &bytes, &n_bytes, NULL);
}

static void request_sample(Loader *l)
{
    for (; l->n_asked < l->n_samples && l->n_asked < l->n_decoded + l->n_reads; l->n_asked++) {
        SampleRead *read = read_at(l, l->n_asked);
        dataset_begin(l->dataset, sample_at(l, l->n_asked), read);
        if (l->n_asked > l->n_decoded)
            look_at(l, read);
    }
    assert(l->n_decoded <= l->n_asked && l->n_asked <= l->n_decoded + l->n_reads);
}

/* Polls all reads from sample i on, and the fetches in the background. */
static void look_around(Loader *l, int64_t i)
{
    l->wake_usec = UINT64_MAX;
    for (; i < l->n_asked; i++)
        look_at(l, read_at(l, i));
    for (size_t k = 0; k < l->dataset->n_streams; k++)
        shards_advance(l->dataset->streams[k].shards, &l->wake_usec);
}

static bool may_expect(const Loader *l)
{
    return l->n_expected < MIN(l->n_samples, l->n_decoded + l->n_horizon);
}

/* Announces to the streams the shards that will be needed, a few samples at a time. Returns whether more can be
 * announced now. */
static bool expect(Loader *l)
{
    for (int n = 0; n < EXPECTED_TOGETHER && may_expect(l); n++) {
        if (!dataset_expect(l->dataset, sample_at(l, l->n_expected),
                            (uint64_t)((l->n_expected + 1) / MAX(l->n_horizon, 1))))
            return false; /* a stream's queue is full: a later call announces this sample */
        l->n_expected++;
    }
    return may_expect(l);
}

/* Decodes the first requested sample, whose bytes have arrived. */
static int decode_first(Loader *l, const void *bytes, size_t n_bytes, Error *err)
{
    int64_t i = l->n_decoded, at = i % l->step_samples;
    LoaderSlot *slot = &l->slots[i / l->step_samples % l->n_slots];
    SampleRead *read = read_at(l, i);
    slot->samples[at] = sample_at(l, i);
    int r = dataset_decode(l->dataset, slot->samples[at], bytes, n_bytes,
                           slot->latents + (size_t)at * l->n_latents,
                           slot->text + (size_t)at * l->n_text, NULL, err);
    sample_read_end(read);
    /* A read may keep a buffer of its share of the budget; a larger buffer is freed. */
    if (read->room > l->dataset->budget.most / (size_t)l->n_reads)
        sample_read_clear(read);
    l->n_decoded++;
    return r < 0 ? r : 1;
}

/* Returns 1 if the next sample was decoded, 0 if its bytes have not arrived. The caller holds the dataset's mutex. */
static int try_to_decode(Loader *l, uint64_t seen, Error *err)
{
    const void *bytes;
    size_t n_bytes;
    uint64_t wake_usec = UINT64_MAX;
    request_sample(l);
    assert(l->n_decoded < l->n_asked);
    SampleRead *read = read_at(l, l->n_decoded);
    int r = sample_read_poll(read, true, &wake_usec, &bytes, &n_bytes, err);
    bool arrived = r > 0;
    if (arrived)
        r = decode_first(l, bytes, n_bytes, err);
    (void)expect(l);
    if (seen != l->seen || clock_monotonic_usec() >= l->wake_usec)
        look_around(l, l->n_decoded + !arrived);
    l->seen = seen;
    l->wake_usec = MIN(l->wake_usec, wake_usec);
    return r;
}

/* Waits for the next sample and decodes it. */
static int decode_next(Loader *l, Error *err)
{
    Dataset *d = l->dataset;
    for (;;) {
        if (atomic_load(&l->stop))
            return error_set(err, -ECANCELED, "reading was stopped");
        uint64_t seen = event_count_read(d->events);
        (void)pthread_mutex_lock(&d->mutex); /* fails only on program bugs, here and below */
        int r = try_to_decode(l, seen, err);
        uint64_t wake_usec = l->wake_usec;
        (void)pthread_mutex_unlock(&d->mutex);
        if (r != 0)
            return MIN(r, 0);
        event_count_wait(d->events, seen, wake_usec);
    }
}

/* Called when no slot is free for a decoded sample. Continues the reads, then waits until bytes have arrived or a step
 * was released. seen: the count of events from before the caller looked for a free slot, so that no event between the
 * look and the wait is missed. */
static void tend(Loader *l, uint64_t seen)
{
    Dataset *d = l->dataset;
    (void)pthread_mutex_lock(&d->mutex);
    request_sample(l);
    bool more = expect(l);
    look_around(l, l->n_decoded);
    l->seen = seen;
    uint64_t wake_usec = more ? 0 : l->wake_usec;
    (void)pthread_mutex_unlock(&d->mutex);
    event_count_wait(d->events, seen, wake_usec);
}

/* ---- grains ---- */

static bool may_fill(const Loader *l)
{
    int64_t step = l->filled / l->n_grains;
    return step < l->released + l->n_slots && l->first_step + step < l->n_steps;
}

/* Decodes one grain into its slot. Only the thread uses the slot now, so the loader's mutex is not held. */
static int fill(Loader *l, int64_t ordinal, Error *err)
{
    assert(l->n_decoded == ordinal * l->grain);
    int64_t step = l->first_step + ordinal / l->n_grains, k = ordinal % l->n_grains;
    int64_t position = step * l->global_batch + (l->first_grain + k) * l->grain;
    int r = fault("loader.fill");
    if (r < 0)
        return error_errno(err, r, "step %" PRId64 ": cannot read ahead", step);
    for (int64_t i = 0; i < l->grain; i++) {
        r = decode_next(l, err);
        if (r < 0)
            return r == -ECANCELED ? r : error_prefix(err, r, "position %" PRId64, position + i);
    }
    return 0;
}

static void *run_loader(void *argument)
{
    Loader *l = argument;
    Error err = ERROR_INIT;
    (void)pthread_mutex_lock(&l->mutex); /* fails only on program bugs, here and below */
    while (!l->stop && l->failure == 0) {
        if (!may_fill(l)) {
            uint64_t seen = event_count_read(l->dataset->events);
            (void)pthread_mutex_unlock(&l->mutex);
            tend(l, seen);
            (void)pthread_mutex_lock(&l->mutex);
            continue;
        }
        int64_t ordinal = l->filled;
        (void)pthread_mutex_unlock(&l->mutex);
        int r = fill(l, ordinal, &err);
        (void)pthread_mutex_lock(&l->mutex);
        assert(l->filled == ordinal && ordinal < (l->released + l->n_slots) * l->n_grains);
        if (r < 0) {
            l->failure = r;
            l->error = err;
        } else {
            l->filled++;
        }
        (void)pthread_cond_broadcast(&l->changed);
    }
    (void)pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* Cancels the reads that are in progress. The thread has ended. */
static void end_reads(Loader *l)
{
    Dataset *d = l->dataset;
    if (!l->reads)
        return;
    (void)pthread_mutex_lock(&d->mutex);
    for (int64_t i = l->n_decoded; i < l->n_asked; i++)
        sample_read_end(read_at(l, i));
    for (int64_t i = 0; i < l->n_reads; i++)
        sample_read_clear(&l->reads[i]);
    for (size_t i = 0; i < d->n_streams; i++)
        shards_keep_whole(d->streams[i].shards, false); /* no thread will continue the fetches */
    (void)pthread_mutex_unlock(&d->mutex);
    free(l->reads);
}

/* ---- a loader ---- */

static int allocate(Loader *l, size_t ahead_bytes)
{
    l->n_reads = dataset_reads_ahead(l->dataset);
    l->reads = calloc((size_t)l->n_reads, sizeof(l->reads[0]));
    if (!l->reads)
        return -ENOMEM;
    size_t samples = (size_t)l->step_samples;
    size_t step_bytes = samples * (l->n_latents + l->n_text) * sizeof(float);
    l->n_slots = (int64_t)CLAMP(ahead_bytes / step_bytes, (size_t)1, (size_t)SLOTS_MAX);
    for (int64_t i = 0; i < l->n_slots; i++) {
        LoaderSlot *slot = &l->slots[i];
        slot->latents = malloc(samples * l->n_latents * sizeof(float));
        slot->text = malloc(samples * l->n_text * sizeof(float));
        slot->samples = malloc(samples * sizeof(OrderSample));
        if (!slot->latents || !slot->text || !slot->samples)
            return -ENOMEM;
    }
    return 0;
}

/* Starts the thread with all signals blocked, so that the main thread receives them. */
static int start_thread(Loader *l)
{
    sigset_t all, before;
    (void)sigfillset(&all); /* fails only on a bad pointer, as do the two calls below */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = -pthread_create(&l->thread, NULL, run_loader, l);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    l->has_thread = r == 0;
    return r;
}

static int init_locks(Loader *l)
{
    pthread_condattr_t attributes;
    int r = pthread_condattr_init(&attributes);
    if (r != 0)
        return -r;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* cannot fail here */
    r = pthread_cond_init(&l->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (r != 0)
        return -r;
    r = pthread_mutex_init(&l->mutex, NULL);
    if (r != 0) {
        (void)pthread_cond_destroy(&l->changed); /* no thread waits */
        return -r;
    }
    l->has_locks = true;
    return 0;
}

int loader_new(Dataset *dataset, const Job *job, int64_t first_step, int64_t first_grain,
               int64_t n_grains, size_t ahead_bytes, Loader **ret, Error *err)
{
    assert(first_step >= 0 && first_grain >= 0 && n_grains >= 1);
    assert((first_grain + n_grains) * job->train.grain <= job->train.global_batch);
    _cleanup_(loader_freep) Loader *l = calloc(1, sizeof(*l));
    if (!l)
        return error_set(err, -ENOMEM, "out of memory");
    const DatasetShape *shape = dataset_shape(dataset);
    l->dataset = dataset;
    l->global_batch = job->train.global_batch;
    l->grain = job->train.grain;
    l->n_steps = job->train.steps;
    l->first_step = first_step;
    l->first_grain = first_grain;
    l->n_grains = n_grains;
    l->n_latents = (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
    l->n_text = (size_t)shape->text_tokens * (size_t)shape->text_dim;

    l->step_samples = n_grains * l->grain;
    l->n_samples = (MAX(job->train.steps, first_step) - first_step) * l->step_samples;
    l->wake_usec = UINT64_MAX;

    double share = (double)l->step_samples / (double)l->global_batch;
    l->n_horizon = dataset_plan_cache(dataset, job, first_step, share);
    int r = allocate(l, ahead_bytes);
    if (r == 0)
        r = init_locks(l);
    if (r == 0)
        r = start_thread(l);
    if (r < 0)
        return error_errno(err, r, "cannot start the loader");
    *ret = TAKE_PTR(l);
    return 0;
}

Loader *loader_free(Loader *l)
{
    if (!l)
        return NULL;
    if (l->has_thread) {
        (void)pthread_mutex_lock(&l->mutex);
        l->stop = true;
        (void)pthread_mutex_unlock(&l->mutex);
        event_count_signal(l->dataset->events);
        /* The thread stops after the current sample, or at once if it is waiting for a sample. */
        (void)pthread_join(l->thread, NULL);
    }
    end_reads(l);
    if (l->has_locks) {
        (void)pthread_cond_destroy(&l->changed);
        (void)pthread_mutex_destroy(&l->mutex);
    }
    for (int64_t i = 0; i < l->n_slots; i++) {
        free(l->slots[i].latents);
        free(l->slots[i].text);
        free(l->slots[i].samples);
    }
    free(l);
    return NULL;
}

static struct timespec deadline_after(uint64_t timeout_usec)
{
    uint64_t usec = clock_monotonic_usec() + timeout_usec;
    return (struct timespec){.tv_sec = (time_t)(usec / USEC_PER_SEC),
                             .tv_nsec = (long)(usec % USEC_PER_SEC * NSEC_PER_USEC)};
}

/* The caller holds the mutex. */
static int wait_for(Loader *l, int64_t ordinal, uint64_t timeout_usec, Error *err)
{
    int64_t step = l->first_step + ordinal / l->n_grains;
    if (ordinal / l->n_grains >= l->released + l->n_slots)
        return error_set(err, -EDEADLK,
                         "step %" PRId64 " cannot be loaded before step %" PRId64 " is released",
                         step, l->first_step + l->released);
    struct timespec deadline = deadline_after(MIN(timeout_usec, USEC_PER_SEC * 86400 * 365));
    while (l->filled <= ordinal) {
        if (l->failure < 0) {
            if (err)
                *err = l->error;
            return l->failure;
        }
        int r = pthread_cond_timedwait(&l->changed, &l->mutex, &deadline);
        if (r == ETIMEDOUT && l->filled <= ordinal && l->failure == 0)
            return error_set(err, -ETIMEDOUT,
                             "the samples of step %" PRId64 " did not come within "
                             "%.1f s",
                             step, (double)timeout_usec / 1e6);
    }
    return 0;
}

int loader_get(Loader *l, int64_t step, int64_t grain, uint64_t timeout_usec, LoaderGrain *ret,
               Error *err)
{
    assert(step >= l->first_step && step < l->n_steps);
    assert(grain >= l->first_grain && grain < l->first_grain + l->n_grains);
    int64_t k = grain - l->first_grain;
    int64_t ordinal = (step - l->first_step) * l->n_grains + k;

    (void)pthread_mutex_lock(&l->mutex);
    assert(step - l->first_step >= l->released);
    int r = wait_for(l, ordinal, timeout_usec, err);
    (void)pthread_mutex_unlock(&l->mutex);
    if (r < 0)
        return r;

    const LoaderSlot *slot = &l->slots[(step - l->first_step) % l->n_slots];
    size_t at = (size_t)(k * l->grain);
    *ret = (LoaderGrain){.step = step,
                         .grain = grain,
                         .first_position = step * l->global_batch + grain * l->grain,
                         .latents = slot->latents + at * l->n_latents,
                         .text = slot->text + at * l->n_text,
                         .samples = slot->samples + at};
    return 0;
}

void loader_release(Loader *l, int64_t step)
{
    (void)pthread_mutex_lock(&l->mutex);
    l->released = MAX(l->released, step - l->first_step + 1);
    (void)pthread_mutex_unlock(&l->mutex);
    event_count_signal(l->dataset->events); /* wakes the thread, which may wait for a free slot */
}
