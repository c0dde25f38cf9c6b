/* SPDX-License-Identifier: Apache-2.0 */
/* access-check.c - see access-check.h. */
#include "store/access-check.h"

#include "base/clock.h"
#include "base/memory.h"
#include "store/store.h"

#include <ctype.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* State shared by one store_try_all() call and its threads. The last user frees this state: the call or a thread. */
typedef struct Trying {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_left, n_users;
    struct TryThread {
        struct Trying *trying;
        StoreTry try;
        pthread_t thread;
        bool done, is_started;
    } of[STORE_TRIES_MAX];
} Trying;

/* A thread was left alone, because its try had not ended at the deadline. */
static atomic_bool thread_hangs;

static const char try_name[] = ".sdtrain-try-";

/* ---- one store ---- */

static int put_get_delete(Store *store, Error *err)
{
    uint64_t number = 0;
    char key[sizeof(try_name) + 16];
    _cleanup_free_ char *back = NULL;
    size_t n = 0;
    if (getrandom(&number, sizeof(number), 0) != sizeof(number))
        return error_errno(err, -errno, "cannot draw a name");
    (void)snprintf(key, sizeof(key), "%s%016llx", try_name, (unsigned long long)number);
    const struct iovec part = {.iov_base = key, .iov_len = strlen(key)};
    int r = store_put(store, key, &part, 1, STORE_IF_ABSENT, err);
    if (r < 0)
        return r;
    r = store_get(store, key, sizeof(key), &back, &n, err);
    if (r == 0 && (n != strlen(key) || memcmp(back, key, n) != 0))
        r = error_set(err, -EIO, "what was written comes back otherwise");
    Error other = ERROR_INIT;
    int deleted = store_delete(store, key, &other);
    if (r < 0 || deleted == 0)
        return r;
    *err = other;
    return deleted;
}

/* If two machines see the same store, both see its marker. The marker is looked up before any put,
 * which would create the folder. A store that does not answer is not tried further; a store that
 * refuses this lookup may still accept a put. */
static int look_for_marker(Store *store, StoreTry *t, Error *err)
{
    uint64_t n;
    Error why = ERROR_INIT;
    if (!*t->marker || t->kind != STORE_TRY_WRITE)
        return 0;
    int r = store_head(store, t->marker, &n, &why);
    t->lacks_marker = r == -ENOENT;
    return r == -EHOSTUNREACH ? error_set(err, r, "%s", why.text) : 0;
}

/* Whether the store can be read. A missing object counts as yes: an operator who only reads needs to know no more. */
static bool may_read(Store *store, const char *key)
{
    uint64_t n;
    Error ignored = ERROR_INIT;
    int r = store_head(store, key, &n, &ignored);
    return r == 0 || r == -ENOENT;
}

/* Whether the store is a file:// folder that does not exist yet; the first write makes it. Sets path to the folder. */
static bool is_missing(Store *store, char path[PATH_MAX])
{
    Error ignored = ERROR_INIT;
    if (store_local_path(store, "x", path, PATH_MAX, &ignored) < 0)
        return false;
    *strrchr(path, '/') = '\0';
    return access(path, F_OK) < 0 && errno == ENOENT;
}

static int try_writing(Store *store, StoreTry *t, Error *err)
{
    const struct iovec mark = {.iov_base = t->marker, .iov_len = strlen(t->marker)};
    char folder[PATH_MAX];
    const bool missing = is_missing(store, folder);
    /* A folder made here would belong to this user, and ranks could not write to it. */
    t->is_missing = missing && t->kind == STORE_TRY_MARK;
    if (t->is_missing)
        return error_set(err, -ENOENT, "it is not there yet");
    int r = look_for_marker(store, t, err);
    r = r < 0 ? r : put_get_delete(store, err);
    if ((r == -EACCES || r == -EROFS) && t->kind == STORE_TRY_MARK)
        t->may_read = may_read(store, t->marker);
    if (r == 0 && t->kind == STORE_TRY_MARK)
        r = store_put(store, t->marker, &mark, 1, 0, err);
    if (missing)
        (void)rmdir(folder); /* fails if the folder already has an object of another writer */
    return r;
}

static int try_store(StoreTry *t, Error *err)
{
    _cleanup_(store_freep) Store *store = NULL;
    char first;
    int r = store_open(t->uri, &store, err);
    if (r < 0)
        return r;
    switch (t->kind) {
    case STORE_TRY_READ: /* a failed HEAD has no body, so it does not show what was refused */
        return store_get_range(store, "index.json", 0, 1, &first, err);
    case STORE_TRY_UNMARK:
        return store_delete(store, t->marker, err);
    default:
        return try_writing(store, t, err);
    }
}

/* Turns "URI/.sdtrain-try-0123456789abcdef: cannot write URI/ANOTHER: ..." into "cannot write URI/ANOTHER: ...": the
 * name of the try's own object would help no operator. */
static void shorten(Error *err)
{
    const char *name = strstr(err->text, try_name), *rest = strstr(err->text, ": cannot ");
    if (name && rest && name < rest)
        memmove(err->text, rest + 2, strlen(rest + 2) + 1);
}

/* ---- all stores ---- */

static void bound_requests(int sec, bool whatever)
{
    char seconds[16];
    (void)snprintf(seconds, sizeof(seconds), "%d", sec);
    /* If setenv() lacks memory, the usual deadline applies. */
    (void)setenv("SDTRAIN_S3_DEADLINE_SEC", seconds, whatever);
}

void store_try_begin(void) { bound_requests(STORE_TRY_REQUEST_SEC, true); }

void store_requests_within(int sec) { bound_requests(sec, false); }

/* Returns the start of the server's answer in an error text, "403 AccessDenied: ..."; NULL: the text has no such
 * answer. */
static const char *answer_of(const char *text)
{
    for (const char *at = text; (at = strstr(at, ": ")); at += 2)
        if (isdigit(at[2]) && isdigit(at[3]) && isdigit(at[4]) && at[5] == ' ')
            return at + 2;
    return NULL;
}

const char *store_try_words(const StoreTry *t, size_t max, char *ret)
{
    static const char dots[] = "...";
    const char *text = t->error.text, *answer = answer_of(text);
    const size_t n = strlen(text), room = max - strlen(dots);
    assert(max > strlen(dots));
    if (n <= max)
        return memcpy(ret, text, n + 1);
    if (!answer || strlen(answer) < room)
        answer = text + n - room;
    while ((*answer & 0xc0) == 0x80) /* skip the rest of a cut UTF-8 character */
        answer++;
    size_t taken = MIN(strlen(answer), room);
    while (taken < strlen(answer) && (answer[taken] & 0xc0) == 0x80)
        taken--; /* cut before a character that does not fit */
    (void)snprintf(ret, max + 1, "%s%.*s", dots, (int)taken, answer);
    return ret;
}

static void let_go(Trying *trying)
{
    (void)pthread_mutex_lock(&trying->lock);
    const bool last = --trying->n_users == 0;
    (void)pthread_mutex_unlock(&trying->lock);
    if (!last)
        return;
    (void)pthread_cond_destroy(&trying->changed);
    (void)pthread_mutex_destroy(&trying->lock);
    free(trying);
}

static void *run(void *userdata)
{
    struct TryThread *one = userdata;
    Trying *trying = one->trying;
    StoreTry t = one->try;
    const uint64_t began = clock_boottime_usec();
    t.error = ERROR_INIT;
    t.r = try_store(&t, &t.error);
    shorten(&t.error);
    t.took_usec = clock_boottime_usec() - began;
    (void)pthread_mutex_lock(&trying->lock);
    one->try = t;
    one->done = true;
    trying->n_left--;
    (void)pthread_cond_signal(&trying->changed);
    (void)pthread_mutex_unlock(&trying->lock);
    let_go(trying);
    return NULL;
}

static Trying *start(const StoreTry *tries, size_t n)
{
    Trying *trying = memory_new(Trying);
    pthread_condattr_t monotonic;
    *trying = (Trying){.n_left = n, .n_users = n + 1};
    (void)pthread_condattr_init(&monotonic); /* this and the three next calls can't fail on Linux */
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&trying->lock, NULL);
    (void)pthread_cond_init(&trying->changed, &monotonic);
    for (size_t i = 0; i < n; i++) {
        struct TryThread *one = &trying->of[i];
        one->trying = trying;
        one->try = tries[i];
        int r = pthread_create(&one->thread, NULL, run, one);
        one->is_started = r == 0;
        if (one->is_started)
            continue;
        (void)pthread_mutex_lock(&trying->lock);
        one->try.r = error_errno(&one->try.error, -r, "cannot start a thread");
        one->done = true;
        trying->n_left--;
        trying->n_users--;
        (void)pthread_mutex_unlock(&trying->lock);
    }
    return trying;
}

void store_try_all(StoreTry *tries, size_t n, uint64_t timeout_usec)
{
    struct timespec until;
    bool hangs[STORE_TRIES_MAX] = {0};
    assert(n <= STORE_TRIES_MAX);
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(timeout_usec / USEC_PER_SEC);
    Trying *trying = start(tries, n);
    (void)pthread_mutex_lock(&trying->lock);
    while (trying->n_left > 0 &&
           pthread_cond_timedwait(&trying->changed, &trying->lock, &until) != ETIMEDOUT)
        ;
    for (size_t i = 0; i < n; i++) {
        if (trying->of[i].done) {
            tries[i] = trying->of[i].try;
            continue;
        }
        tries[i].r = error_set(&tries[i].error, -ETIMEDOUT,
                               "not done within %llu s: it hangs, or answers slowly",
                               (unsigned long long)(timeout_usec / USEC_PER_SEC));
        tries[i].took_usec = timeout_usec;
        hangs[i] = true;
        atomic_store(&thread_hangs, true);
    }
    (void)pthread_mutex_unlock(&trying->lock);
    /* Libraries clean up as a thread ends, and exit() must not run beside that. */
    for (size_t i = 0; i < n; i++)
        if (hangs[i])
            (void)pthread_detach(trying->of[i].thread);
        else if (trying->of[i].is_started)
            (void)pthread_join(trying->of[i].thread, NULL);
    let_go(trying);
}

void store_try_exit(int code)
{
    (void)fflush(NULL); /* a failure cannot be reported any more */
    if (atomic_load(&thread_hangs))
        _exit(code);
    exit(code);
}
