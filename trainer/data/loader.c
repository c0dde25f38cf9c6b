/* loader.c - one thread that decodes ahead into a ring of steps; see loader.h. What it decodes next
 * is under way by then (dataset-internal.h).
 *
 * Grains are numbered from the loader's start: ordinal o is grain first_grain + o % n_grains of
 * step first_step + o / n_grains. The thread fills ordinals in turn, at most n_slots steps beyond
 * the last released one; the loop waits for `filled` to pass the ordinal it wants. */
#include "trainer/data/loader.h"

#include "base/clock.h"
#include "base/fault.h"
#include "trainer/data/dataset-internal.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { SLOTS_MAX = 64 };

typedef struct LoaderSlot { /* one step's grains */
    float *latents, *text;
    OrderSample *samples;
} LoaderSlot;

typedef struct LoaderCursor {
    const Loader *loader;
    int64_t told; /* samples */
} LoaderCursor;

struct Loader {
    /* set before the thread starts */
    Dataset *dataset;
    int64_t global_batch, grain, n_steps;
    int64_t first_step, first_grain, n_grains;
    size_t n_latents, n_text; /* of a sample */
    Ahead *ahead;
    LoaderCursor wanted, expected; /* the thread's */
    int64_t n_slots;
    LoaderSlot
        slots[SLOTS_MAX]; /* a slot's contents belong to the thread until filled, then to the loop
                            */
    bool has_locks, has_thread;
    pthread_t thread;
    atomic_bool stop; /* written under the mutex, so that no wait misses it */

    pthread_mutex_t mutex; /* protects what follows */
    pthread_cond_t changed;
    int64_t filled;   /* ordinals */
    int64_t released; /* steps, from first_step */
    int failure;      /* why ordinal `filled` could not be filled; 0: none */
    Error error;
};

static bool may_fill(const Loader *l)
{
    int64_t step = l->filled / l->n_grains;
    return step < l->released + l->n_slots && l->first_step + step < l->n_steps;
}

/* The positions of the owned grains, in turn. */
static bool next_sample(void *context, OrderSample *ret)
{
    LoaderCursor *cursor = context;
    const Loader *l = cursor->loader;
    int64_t in_step = l->n_grains * l->grain, step = cursor->told / in_step;
    if (l->first_step + step >= l->n_steps)
        return false;
    *ret = order_at(dataset_order(l->dataset), (l->first_step + step) * l->global_batch +
                                                   l->first_grain * l->grain +
                                                   cursor->told++ % in_step);
    return true;
}

/* One grain into its slot; the slot is the thread's, so no lock is held. */
static int fill(Loader *l, int64_t ordinal, Error *err)
{
    int64_t step = ordinal / l->n_grains, k = ordinal % l->n_grains;
    LoaderSlot *slot = &l->slots[step % l->n_slots];
    int64_t position = (l->first_step + step) * l->global_batch + (l->first_grain + k) * l->grain;
    int r = fault("loader.fill");
    if (r < 0)
        return error_errno(err, r, "step %" PRId64 ": cannot read ahead", l->first_step + step);
    for (int64_t i = 0; i < l->grain; i++) {
        size_t at = (size_t)(k * l->grain + i);
        r = ahead_take(l->ahead, slot->latents + at * l->n_latents, slot->text + at * l->n_text,
                       &slot->samples[at], err);
        if (r < 0)
            return r == -ECANCELED ? r : error_prefix(err, r, "position %" PRId64, position + i);
    }
    return 0;
}

static void *run_loader(void *argument)
{
    Loader *l = argument;
    Error err = ERROR_INIT;
    (void)pthread_mutex_lock(&l->mutex); /* fails only on our bugs, here and below */
    while (!l->stop && l->failure == 0) {
        if (!may_fill(l)) {
            uint64_t seen = event_count_read(l->dataset->events);
            (void)pthread_mutex_unlock(&l->mutex);
            ahead_tend(l->ahead, seen);
            (void)pthread_mutex_lock(&l->mutex);
            continue;
        }
        int64_t ordinal = l->filled;
        (void)pthread_mutex_unlock(&l->mutex);
        int r = fill(l, ordinal, &err);
        (void)pthread_mutex_lock(&l->mutex);
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

static int allocate(Loader *l, size_t ahead_bytes)
{
    size_t samples = (size_t)(l->n_grains * l->grain);
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

/* Signals are for the main thread. */
static int start_thread(Loader *l)
{
    sigset_t all, before;
    (void)sigfillset(&all); /* fails only on a bad pointer, as do the two below */
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
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a valid clock */
    r = pthread_cond_init(&l->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (r != 0)
        return -r;
    r = pthread_mutex_init(&l->mutex, NULL);
    if (r != 0) {
        (void)pthread_cond_destroy(&l->changed); /* nobody waits */
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

    l->wanted.loader = l->expected.loader = l;
    int r = ahead_new(dataset, next_sample, &l->wanted, &l->ahead, err);
    if (r < 0)
        return r;
    double share = (double)(n_grains * l->grain) / (double)l->global_batch;
    ahead_scout(l->ahead, next_sample, &l->expected,
                dataset_plan_cache(dataset, job, first_step, share));
    r = allocate(l, ahead_bytes);
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
        ahead_stop(l->ahead);
        (void)pthread_join(l->thread,
                           NULL); /* it stops after a sample, or while it waits for one */
    }
    (void)ahead_free(l->ahead);
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
    event_count_signal(l->dataset->events); /* the thread tends its reads meanwhile */
}
