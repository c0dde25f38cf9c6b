/* SPDX-License-Identifier: Apache-2.0 */
/* defer.c - puts that run in the background while their caller continues.
 *
 * A few threads, started when needed, take the puts in the order in which they were queued. The client,
 * which counts all requests, decides how many run at the same time.
 */
#include "base/memory.h"
#include "store/s3/s3-internal.h"

#include <string.h>

enum {
    THREADS_MAX = 16,
    WAITING_MAX = 256, /* the largest number of puts that wait; further callers wait for room */
};

typedef struct S3Deferred {
    char *key;
    struct iovec *parts;
    size_t n_parts;
    StorePutFlags flags;
} S3Deferred;

struct S3Deferral {
    S3Store *s3;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    S3Deferred waiting[WAITING_MAX]; /* a ring of n_waiting puts, from index `first` on */
    size_t first, n_waiting;
    size_t n_running; /* puts in progress */
    pthread_t threads[THREADS_MAX];
    size_t n_threads;
    bool ending;
    Error failure; /* the first failure since the last flush */
};

static void deferred_clear(S3Deferred *put)
{
    free(put->key);
    free(put->parts);
    *put = (S3Deferred){0};
}

static void *work(void *argument)
{
    S3Deferral *d = argument;
    (void)pthread_mutex_lock(&d->lock); /* cannot fail for a default mutex */
    for (;;) {
        while (d->n_waiting == 0 && !d->ending)
            (void)pthread_cond_wait(&d->changed, &d->lock); /* cannot fail */
        if (d->ending)
            break;
        assert(d->n_waiting <= WAITING_MAX && d->n_running < d->n_threads);
        S3Deferred put = d->waiting[d->first];
        d->first = (d->first + 1) % WAITING_MAX;
        d->n_waiting--;
        d->n_running++;
        (void)pthread_cond_broadcast(&d->changed); /* cannot fail: there is room */
        (void)pthread_mutex_unlock(&d->lock);      /* cannot fail */

        Error err = ERROR_INIT;
        int r = s3_put_now(d->s3, put.key, put.parts, put.n_parts, put.flags, &err);
        deferred_clear(&put);

        (void)pthread_mutex_lock(&d->lock); /* cannot fail */
        if (r < 0 && d->failure.code == 0)
            d->failure = err;
        assert(d->n_running > 0);
        d->n_running--;
        (void)pthread_cond_broadcast(&d->changed); /* cannot fail */
    }
    (void)pthread_mutex_unlock(&d->lock); /* cannot fail */
    return NULL;
}

/* Starts one more thread if all threads are busy. Returns false if there is no thread: then the caller must do the
 * put. */
static bool ensure_thread(S3Deferral *d)
{
    if (d->n_running + d->n_waiting >= d->n_threads && d->n_threads < THREADS_MAX &&
        pthread_create(&d->threads[d->n_threads], NULL, work, d) == 0)
        d->n_threads++;
    return d->n_threads > 0;
}

int s3_defer(S3Store *s3, const char *key, const struct iovec *parts, size_t n_parts,
             StorePutFlags flags, Error *err)
{
    S3Deferral *d = s3->deferral;
    S3Deferred put = {.key = memory_text(key),
                      .parts = memory_zeroed(n_parts, sizeof(*parts)),
                      .n_parts = n_parts,
                      .flags = flags};
    for (size_t i = 0; i < n_parts; i++)
        put.parts[i] = parts[i];

    (void)pthread_mutex_lock(&d->lock); /* cannot fail for a default mutex */
    bool threads = ensure_thread(d);
    if (threads) {
        while (d->n_waiting == WAITING_MAX)
            (void)pthread_cond_wait(&d->changed,
                                    &d->lock); /* the wait ends, as each put has a deadline */
        d->waiting[(d->first + d->n_waiting++) % WAITING_MAX] = put;
        (void)pthread_cond_broadcast(&d->changed); /* cannot fail */
    }
    (void)pthread_mutex_unlock(&d->lock); /* cannot fail */
    if (threads)
        return 0;
    deferred_clear(&put);
    return s3_put_now(s3, key, parts, n_parts, flags, err);
}

int s3_flush(Store *store, Error *err)
{
    S3Deferral *d = s3_store(store)->deferral;
    (void)pthread_mutex_lock(&d->lock); /* cannot fail for a default mutex */
    while (d->n_waiting > 0 || d->n_running > 0)
        (void)pthread_cond_wait(&d->changed, &d->lock); /* the wait ends: puts have deadlines */
    Error failure = d->failure;
    d->failure = ERROR_INIT;
    (void)pthread_mutex_unlock(&d->lock); /* cannot fail */
    return failure.code < 0 ? error_set(err, failure.code, "%s", failure.text) : 0;
}

S3Deferral *s3_deferral_new(S3Store *s3)
{
    S3Deferral *d = memory_new(S3Deferral);
    d->s3 = s3;
    (void)pthread_mutex_init(&d->lock, NULL);   /* cannot fail with default attributes */
    (void)pthread_cond_init(&d->changed, NULL); /* cannot fail */
    return d;
}

S3Deferral *s3_deferral_free(S3Deferral *d)
{
    if (!d)
        return NULL;
    (void)pthread_mutex_lock(&d->lock); /* cannot fail for a default mutex */
    d->ending = true;
    (void)pthread_cond_broadcast(&d->changed); /* cannot fail */
    (void)pthread_mutex_unlock(&d->lock);      /* cannot fail */
    if (d->n_threads > 0)
        atomic_store(&d->s3->ending, true); /* the caller did not flush these puts */
    for (size_t i = 0; i < d->n_threads; i++)
        (void)pthread_join(d->threads[i], NULL); /* the thread was not joined yet */
    assert(d->n_running == 0);
    for (; d->n_waiting > 0; d->n_waiting--, d->first = (d->first + 1) % WAITING_MAX)
        deferred_clear(&d->waiting[d->first]);
    (void)pthread_cond_destroy(&d->changed); /* no thread waits */
    (void)pthread_mutex_destroy(&d->lock);   /* the lock is not held */
    free(d);
    return NULL;
}
