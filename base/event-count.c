/* SPDX-License-Identifier: Apache-2.0 */
/* event-count.c - see event-count.h. */
#include "base/event-count.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

struct EventCount {
    pthread_mutex_t mutex;
    pthread_cond_t rung;
    _Atomic uint64_t count; /* changed under the mutex, so that no waiting thread misses a change */
};

int event_count_new(EventCount **ret)
{
    EventCount *events = calloc(1, sizeof(*events));
    if (!events)
        return -ENOMEM;
    pthread_condattr_t attributes;
    int r = pthread_condattr_init(&attributes);
    if (r == 0) {
        (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* this clock is valid */
        r = pthread_cond_init(&events->rung, &attributes);
        (void)pthread_condattr_destroy(&attributes);
    }
    if (r != 0) {
        free(events);
        return -r;
    }
    (void)pthread_mutex_init(&events->mutex, NULL); /* cannot fail with default attributes */
    *ret = events;
    return 0;
}

EventCount *event_count_free(EventCount *events)
{
    if (!events)
        return NULL;
    (void)pthread_cond_destroy(&events->rung); /* no thread waits any more */
    (void)pthread_mutex_destroy(&events->mutex);
    free(events);
    return NULL;
}

void event_count_signal(EventCount *events)
{
    (void)pthread_mutex_lock(&events->mutex); /* locking fails only because of a program bug */
    atomic_fetch_add(&events->count, 1);
    (void)pthread_cond_broadcast(&events->rung);
    (void)pthread_mutex_unlock(&events->mutex);
}

uint64_t event_count_read(const EventCount *events) { return atomic_load(&events->count); }

void event_count_wait(EventCount *events, uint64_t seen, uint64_t deadline_usec)
{
    uint64_t usec = MIN(deadline_usec, clock_monotonic_usec() + USEC_PER_SEC * 86400);
    struct timespec deadline = {.tv_sec = (time_t)(usec / USEC_PER_SEC),
                                .tv_nsec = (long)(usec % USEC_PER_SEC * NSEC_PER_USEC)};
    (void)pthread_mutex_lock(&events->mutex);
    int r = 0;
    while (r == 0 && atomic_load(&events->count) == seen)
        r = pthread_cond_timedwait(&events->rung, &events->mutex, &deadline);
    (void)pthread_mutex_unlock(&events->mutex);
}
