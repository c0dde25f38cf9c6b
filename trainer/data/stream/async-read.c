/* async-read.c - see async-read.h. */
#include "trainer/data/stream/async-read.h"

#include "base/clock.h"

#include <pthread.h>
#include <time.h>

struct Bell {
    pthread_mutex_t mutex;
    pthread_cond_t rung;
    _Atomic uint64_t count; /* changed under the mutex, so that no wait misses it */
};

int bell_new(Bell **ret)
{
    Bell *bell = calloc(1, sizeof(*bell));
    if (!bell)
        return -ENOMEM;
    pthread_condattr_t attributes;
    int r = pthread_condattr_init(&attributes);
    if (r == 0) {
        (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a valid clock */
        r = pthread_cond_init(&bell->rung, &attributes);
        (void)pthread_condattr_destroy(&attributes);
    }
    if (r != 0) {
        free(bell);
        return -r;
    }
    (void)pthread_mutex_init(&bell->mutex, NULL); /* cannot fail with default attributes */
    *ret = bell;
    return 0;
}

Bell *bell_free(Bell *bell)
{
    if (!bell)
        return NULL;
    (void)pthread_cond_destroy(&bell->rung); /* nobody waits */
    (void)pthread_mutex_destroy(&bell->mutex);
    free(bell);
    return NULL;
}

void bell_ring(Bell *bell)
{
    (void)pthread_mutex_lock(&bell->mutex); /* fails only on our bugs, here and below */
    atomic_fetch_add(&bell->count, 1);
    (void)pthread_cond_broadcast(&bell->rung);
    (void)pthread_mutex_unlock(&bell->mutex);
}

uint64_t bell_count(const Bell *bell) { return atomic_load(&bell->count); }

void bell_wait(Bell *bell, uint64_t seen, uint64_t deadline_usec)
{
    uint64_t usec = MIN(deadline_usec, clock_monotonic_usec() + USEC_PER_SEC * 86400);
    struct timespec deadline = {.tv_sec = (time_t)(usec / USEC_PER_SEC),
                                .tv_nsec = (long)(usec % USEC_PER_SEC * NSEC_PER_USEC)};
    (void)pthread_mutex_lock(&bell->mutex);
    int r = 0;
    while (r == 0 && atomic_load(&bell->count) == seen)
        r = pthread_cond_timedwait(&bell->rung, &bell->mutex, &deadline);
    (void)pthread_mutex_unlock(&bell->mutex);
}

static void note_arrival(StoreRead *read)
{
    Arrival *arrival = (Arrival *)read; /* its first member */
    Bell *bell = arrival->bell;
    atomic_store(&arrival->arrived, true);
    bell_ring(bell);
}

int arrival_begin(Arrival *arrival, Store *store, const char *key, uint64_t offset, size_t n_bytes,
                  void *buffer, Bell *bell, Error *err)
{
    assert(!arrival->begun);
    arrival->read = (StoreRead){.key = key,
                                .offset = offset,
                                .n_bytes = n_bytes,
                                .buffer = buffer,
                                .arrived = note_arrival};
    arrival->bell = bell;
    atomic_store(&arrival->arrived, false);
    int r = store_read_begin(store, &arrival->read, err);
    arrival->begun = r == 0;
    return r;
}

int arrival_poll(Arrival *arrival, Store *store, Error *err)
{
    assert(arrival->begun);
    if (!atomic_load(&arrival->arrived))
        return 0;
    int r = store_read_wait(store, &arrival->read, err);
    arrival->begun = false;
    return r < 0 ? r : 1;
}

void arrival_cancel(Arrival *arrival, Store *store)
{
    if (arrival->begun)
        store_read_cancel(store, &arrival->read);
    arrival->begun = false;
}
