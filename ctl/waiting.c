/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.c - see waiting.h. */
#include "ctl/waiting.h"

#include "base/memory.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct Waiting {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    pthread_t thread;
    bool is_over;
    char *what;
};

static void *watch(void *context)
{
    Waiting *w = context;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* cannot fail: the clock exists */
    until.tv_sec += WAITING_SEC;
    (void)pthread_mutex_lock(&w->lock);
    int r = 0;
    while (!w->is_over && r == 0)
        r = pthread_cond_timedwait(&w->ended, &w->lock, &until);
    if (!w->is_over)
        (void)fprintf(stderr, "sdctl: waits for %s\n", w->what);
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

Waiting *waiting_begin(const char *what)
{
    pthread_condattr_t attributes;
    Waiting *w = memory_new(Waiting);
    w->what = memory_text(what);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->ended, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (pthread_create(&w->thread, NULL, watch, w) == 0)
        return w;
    free(w->what);
    free(w);
    return NULL;
}

Waiting *waiting_end(Waiting *w)
{
    if (!w)
        return NULL;
    (void)pthread_mutex_lock(&w->lock);
    w->is_over = true;
    (void)pthread_cond_signal(&w->ended);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    (void)pthread_cond_destroy(&w->ended);
    (void)pthread_mutex_destroy(&w->lock);
    free(w->what);
    free(w);
    return NULL;
}
