/* SPDX-License-Identifier: Apache-2.0 */
/* credentials.c - an identity: the credentials fetched last, and the thread that renews them. See
 * credentials.h.
 *
 * Guarantees: s3_identity_get() holds the lock only for a copy; no fetch runs with the lock held. A source
 * is used at most once a second, and after failures with growing pauses. The time left until credentials expire is
 * measured with the clock of their source: a machine whose clock is wrong still renews in time. */
#include "store/s3/credentials/credentials.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/s3/credentials/source.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum {
    /* Credentials are renewed LEAD_MIN_SEC to LEAD_MAX_SEC before they expire. If this is more than half of their
     * lifetime, they are renewed when a quarter to half of the lifetime is left. */
    LEAD_MIN_SEC = 300,
    LEAD_MAX_SEC = 600,
    PAUSE_MIN_MSEC = 1000,
    PAUSE_MAX_MSEC = 60000,
    SILENCES_REPORTED = 3, /* this number of missing answers in a row is reported as a failure */
    WAIT_MAX_MSEC = 10000,
};

struct S3Identity {
    S3Source *source;
    void (*ready)(void *context);
    void *context;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* guards all fields below; the source is used only by the thread */
    pthread_cond_t changed;
    bool stop;
    S3Credentials credentials;
    uint64_t serial;   /* serial of `credentials`; 0: none yet */
    uint64_t end_usec; /* when the credentials expire; USEC_INFINITY: never */
    bool rejected;
    uint64_t next_usec, begun_usec; /* times of the next and of the last fetch */
    unsigned failures;              /* failed fetches in a row */
    Error failure;                  /* the failure to report; code 0: none */
};

/* ---- times ---- */

static uint64_t random_below(uint64_t n)
{
    uint64_t r = 0;
    (void)getrandom(&r, sizeof(r), GRND_NONBLOCK); /* a failure gives 0, which does no harm */
    return n ? r % n : 0;
}

/* Returns when to renew credentials that expire at `end`. A random part keeps machines that started together from
 * renewing at the same time. */
static uint64_t renewal_usec(uint64_t now, uint64_t end)
{
    if (end == USEC_INFINITY)
        return USEC_INFINITY;
    uint64_t life = end - now;
    uint64_t lead =
        LEAD_MIN_SEC * USEC_PER_SEC + random_below((LEAD_MAX_SEC - LEAD_MIN_SEC) * USEC_PER_SEC);
    if (lead > life / 2)
        lead = life / 4 + random_below(life / 4);
    return MAX(end - lead, now + PAUSE_MIN_MSEC * USEC_PER_MSEC);
}

static uint64_t pause_usec(unsigned failures)
{
    uint64_t most = MIN((uint64_t)PAUSE_MIN_MSEC << MIN(failures - 1, 16U), PAUSE_MAX_MSEC);
    return (most / 2 + random_below(most / 2)) * USEC_PER_MSEC;
}

/* ---- results of a fetch; the caller holds the lock ---- */

static bool is_good(const S3Identity *identity, uint64_t now)
{
    return identity->serial > 0 && !identity->rejected && now < identity->end_usec;
}

static void fail(S3Identity *identity, int r, const char *text, uint64_t now)
{
    identity->failures++;
    identity->next_usec = now + pause_usec(identity->failures);
    if (r == -EHOSTUNREACH && identity->failures < SILENCES_REPORTED)
        return;
    if (identity->failure.code == 0 && is_good(identity, now))
        log_warning("credentials cannot be renewed, those at hand are good for %" PRIu64
                    " s more: %s",
                    (identity->end_usec - now) / USEC_PER_SEC, text);
    if (r == -EHOSTUNREACH && identity->source->kind == S3_SOURCE_INSTANCE &&
        !identity->source->answered)
        /* A user who configured no source at all sees this error, so the text must say that there is no source. */
        (void)error_set(&identity->failure, -EACCES,
                        "neither the environment nor the shared files have any, and there is no %s",
                        text);
    else
        (void)error_set(&identity->failure, r, "%s", text);
}

static void succeed(S3Identity *identity, const S3Fetched *fetched, uint64_t now)
{
    const S3Credentials *c = &fetched->credentials;
    int64_t time = fetched->server_time ? fetched->server_time
                                        : (int64_t)(clock_realtime_usec() / USEC_PER_SEC);
    if (c->expires && c->expires <= time) {
        char text[sizeof(identity->failure.text)];
        (void)snprintf(text, sizeof(text), "%s gave credentials that have expired",
                       identity->source->name);
        fail(identity, -EACCES, text, now);
        return;
    }
    if (identity->failure.code != 0)
        log_info("credentials were renewed from %s", identity->source->name);
    identity->credentials = *c;
    identity->serial++;
    identity->rejected = false;
    identity->end_usec =
        c->expires ? now + (uint64_t)(c->expires - time) * USEC_PER_SEC : USEC_INFINITY;
    identity->next_usec = renewal_usec(now, identity->end_usec);
    identity->failures = 0;
    identity->failure = ERROR_INIT;
}

/* The caller holds the lock; it is released only during the fetch. */
static void fetch(S3Identity *identity)
{
    S3Fetched fetched;
    Error err = ERROR_INIT;

    identity->begun_usec = clock_boottime_usec();
    (void)pthread_mutex_unlock(&identity->lock); /* this thread holds the lock */
    int r = s3_source_fetch(identity->source, &fetched, &err);
    (void)pthread_mutex_lock(&identity->lock);
    if (!identity->stop) {
        uint64_t now = clock_boottime_usec();
        if (r >= 0)
            succeed(identity, &fetched, now);
        else
            fail(identity, r, err.text, now);
    }
    explicit_bzero(&fetched, sizeof(fetched));
}

/* ---- the thread ---- */

/* Waits at most until `then`. The condition's clock stops during a suspend, so a wait is limited to WAIT_MAX_MSEC. */
static void wait_until(S3Identity *identity, uint64_t then)
{
    uint64_t now = clock_boottime_usec();
    uint64_t usec = MIN(then > now ? then - now : 0, WAIT_MAX_MSEC * USEC_PER_MSEC);
    uint64_t end = clock_monotonic_usec() + usec;
    struct timespec deadline = {.tv_sec = (time_t)(end / USEC_PER_SEC),
                                .tv_nsec = (long)(end % USEC_PER_SEC * NSEC_PER_USEC)};
    (void)pthread_cond_timedwait(&identity->changed, &identity->lock,
                                 &deadline); /* the wait fails only by a timeout */
}

static void *identity_run(void *userdata)
{
    S3Identity *identity = userdata;
    (void)pthread_mutex_lock(&identity->lock);
    while (!identity->stop) {
        if (clock_boottime_usec() < identity->next_usec) {
            wait_until(identity, identity->next_usec);
            continue;
        }
        fetch(identity);
        if (identity->stop)
            break;
        (void)pthread_mutex_unlock(&identity->lock);
        identity->ready(identity->context);
        (void)pthread_mutex_lock(&identity->lock);
    }
    (void)pthread_mutex_unlock(&identity->lock);
    return NULL;
}

static int start_thread(S3Identity *identity, Error *err)
{
    int r = -pthread_create(&identity->thread, NULL, identity_run, identity);
    if (r < 0)
        return error_errno(err, r, "cannot start the thread that renews credentials");
    identity->has_thread = true;
    return 0;
}

/* ---- the interface ---- */

static int init_lock(S3Identity *identity, Error *err)
{
    pthread_condattr_t attributes;
    int r = -pthread_condattr_init(&attributes);
    if (r >= 0)
        r = -pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (r >= 0)
        r = -pthread_cond_init(&identity->changed, &attributes);
    if (r >= 0)
        r = -pthread_mutex_init(&identity->lock, NULL);
    return r < 0 ? error_errno(err, r, "cannot make the credentials' lock") : 0;
}

int s3_identity_new(const S3Options *options, void (*ready)(void *context), void *context,
                    S3Identity **ret, Error *err)
{
    _cleanup_(s3_source_freep) S3Source *source = NULL;
    int r = s3_source_find(options, &source, err);
    if (r < 0)
        return r;
    S3Identity *made = memory_new(S3Identity);
    r = init_lock(made, err);
    if (r < 0) {
        free(made);
        return r;
    }
    _cleanup_(s3_identity_freep) S3Identity *identity = made;
    identity->source = TAKE_PTR(source);
    identity->ready = ready;
    identity->context = context;

    if (identity->source->kind == S3_SOURCE_ENVIRONMENT ||
        identity->source->kind == S3_SOURCE_PROFILE) { /* no request is needed, so fetch at once */
        (void)pthread_mutex_lock(&identity->lock);
        fetch(identity);
        r = identity->failure.code;
        if (r < 0)
            (void)error_set(err, r, "%s", identity->failure.text);
        (void)pthread_mutex_unlock(&identity->lock);
    }
    if (r >= 0 && identity->source->kind != S3_SOURCE_ENVIRONMENT)
        r = start_thread(identity, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(identity);
    return 0;
}

S3Identity *s3_identity_free(S3Identity *identity)
{
    if (!identity)
        return NULL;
    if (identity->has_thread) {
        (void)pthread_mutex_lock(&identity->lock);
        identity->stop = true;
        (void)pthread_cond_signal(&identity->changed);
        (void)pthread_mutex_unlock(&identity->lock);
        s3_source_cancel(identity->source);
        (void)pthread_join(identity->thread, NULL); /* cannot fail: the thread is joinable */
    }
    (void)pthread_cond_destroy(&identity->changed);
    (void)pthread_mutex_destroy(&identity->lock);
    s3_source_free(identity->source);
    explicit_bzero(identity, sizeof(*identity));
    free(identity);
    return NULL;
}

int s3_identity_get(S3Identity *identity, S3Credentials *ret, uint64_t *ret_serial, Error *err)
{
    int r = 0;
    (void)pthread_mutex_lock(&identity->lock);
    if (is_good(identity, clock_boottime_usec())) {
        *ret = identity->credentials;
        *ret_serial = identity->serial;
    } else if (identity->failure.code != 0) {
        r = error_set(err, identity->failure.code, "%s", identity->failure.text);
    } else {
        r = error_set(err, -EAGAIN, "credentials are being fetched: %s", identity->source->name);
    }
    (void)pthread_mutex_unlock(&identity->lock);
    return r;
}

void s3_identity_reject(S3Identity *identity, uint64_t serial)
{
    if (!identity->has_thread)
        return; /* the environment has no other credentials */
    (void)pthread_mutex_lock(&identity->lock);
    if (serial == identity->serial && !identity->rejected) {
        identity->rejected = true;
        identity->failures = 0;
        identity->failure = ERROR_INIT;
        identity->next_usec =
            MIN(identity->next_usec, identity->begun_usec + PAUSE_MIN_MSEC * USEC_PER_MSEC);
        (void)pthread_cond_signal(&identity->changed);
    }
    (void)pthread_mutex_unlock(&identity->lock);
}

const char *s3_identity_source(const S3Identity *identity) { return identity->source->name; }
