/* SPDX-License-Identifier: Apache-2.0 */
/* testing-far.c - see testing-far.h. */
#include "store/test/testing-far.h"

#include "base/clock.h"
#include "store/backend.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SCHEME "far://"

enum { DEFERRED_MAX = 256 };

Far *far;

typedef struct Deferred {
    char *key;
    struct iovec *parts;
    size_t n_parts;
    StorePutFlags flags;
} Deferred;

typedef struct FarStore {
    Store store;
    Store *inner;
    Deferred deferred[DEFERRED_MAX];
    size_t n_deferred;
} FarStore;

typedef struct Pending {
    struct Pending *next;
    FarStore *store;
    StoreRead *read;
    char *bytes; /* bytes read; the caller may see them only after a wait */
    uint64_t due_usec;
    bool taken, done, struck;
    int result;
    Error error;
} Pending;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static Pending *pending;
static pid_t thread_of;

static void lock(void) { (void)pthread_mutex_lock(&mutex); } /* fails only on bugs of the test */
static void unlock(void) { (void)pthread_mutex_unlock(&mutex); } /* cannot fail: the lock is held */

static Store *inner(Store *store) { return ((FarStore *)store)->inner; }

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    (void)fprintf(stderr, "far: %s\n", what);
    abort();
}

void far_begin(void)
{
    if (!far) {
        far = mmap(NULL, sizeof(*far), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        must(far != MAP_FAILED, "memory");
    }
    memset((void *)far, 0, sizeof(*far));
}

void far_fault(const char *key, int times, int error, uint64_t delay_usec)
{
    (void)snprintf(far->fault.key, sizeof(far->fault.key), "%s", key);
    far->fault.error = error;
    far->fault.delay_usec = delay_usec;
    far->fault.wanders = false;
    atomic_store(&far->fault.times, times);
}

static bool strikes(const char *key)
{
    return strstr(key, far->fault.key) && atomic_load(&far->fault.times) > 0 &&
           atomic_fetch_sub(&far->fault.times, 1) > 0;
}

static int refuse(Store *store, const char *key, Error *err)
{
    return atomic_load(&far->refuses)
               ? error_set(err, -EHOSTUNREACH, "%s/%s: no answer", store->uri, key)
               : 0;
}

static int get_now(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                   bool struck, Error *err)
{
    if (struck && far->fault.error < 0)
        return error_set(err, far->fault.error, "%s/%s: the test says so", store->uri, key);
    int r = refuse(store, key, err);
    if (r == 0)
        r = store_get_range(inner(store), key, offset, n_bytes, buffer, err);
    if (r == 0 && struck && !far->fault.delay_usec)
        ((char *)buffer)[n_bytes / 2] ^=
            (char)(far->fault.wanders ? 1 << atomic_load(&far->fault.times) % 7 : 1);
    atomic_fetch_add(&far->bytes, n_bytes);
    return r;
}

/* ---- reads ---- */

static void *serve(void *argument)
{
    (void)argument;
    lock();
    for (;;) {
        uint64_t now = clock_monotonic_usec(), next = now + USEC_PER_SEC;
        Pending *p = pending;
        for (; p; p = p->next) {
            if (p->taken)
                continue;
            bool due = p->due_usec == FAR_HELD ? atomic_load(&far->released) : p->due_usec <= now;
            if (due && !atomic_load(&far->away))
                break;
            next = MIN(next, CLAMP(p->due_usec, now + 1000, now + 10000));
        }
        if (!p) {
            struct timespec until = {.tv_sec = (time_t)(next / USEC_PER_SEC),
                                     .tv_nsec = (long)(next % USEC_PER_SEC * 1000)};
            (void)pthread_cond_timedwait(&changed, &mutex, &until);
            continue;
        }
        p->taken = true;
        unlock();
        p->result = get_now(&p->store->store, p->read->key, p->read->offset, p->read->n_bytes,
                            p->bytes, p->struck, &p->error);
        lock();
        store_read_arrive(p->read);
        p->done = true;
        (void)pthread_cond_broadcast(&changed);
    }
    return NULL;
}

/* Starts this process's thread, unless it runs already. Called with the lock. */
static void start_thread(void)
{
    if (thread_of == getpid())
        return;
    if (!thread_of) /* the handlers let a forked child find the lock unlocked */
        must(pthread_atfork(lock, unlock, unlock) == 0, "memory");
    thread_of = getpid();
    pending = NULL; /* drop the parent's reads */
    pthread_condattr_t attributes;
    pthread_t thread;
    (void)pthread_condattr_init(&attributes); /* fails only on bugs of the test */
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    must(pthread_create(&thread, NULL, serve, NULL) == 0 && pthread_detach(thread) == 0, "thread");
}

static int read_begin(Store *store, StoreRead *read, Error *err)
{
    Pending *p = calloc(1, sizeof(*p));
    if (!p || !(p->bytes = malloc(read->n_bytes + 1))) {
        free(p);
        return error_set(err, -ENOMEM, "out of memory");
    }
    memset(read->buffer, 0xa5, read->n_bytes);
    p->store = (FarStore *)store;
    p->read = read;
    p->struck = strikes(read->key);
    p->due_usec = p->struck && far->fault.delay_usec == FAR_HELD
                      ? FAR_HELD
                      : clock_monotonic_usec() + atomic_load(&far->delay_usec) +
                            (p->struck ? far->fault.delay_usec : 0);
    read->state = p;
    atomic_fetch_add(&far->reads, 1);
    atomic_fetch_add(&far->tables, read->offset == 0);
    int n = atomic_fetch_add(&far->under_way, 1) + 1;
    for (int most = atomic_load(&far->most_under_way);
         n > most && !atomic_compare_exchange_weak(&far->most_under_way, &most, n);)
        ;
    lock();
    start_thread();
    p->next = pending;
    pending = p;
    (void)pthread_cond_broadcast(&changed);
    unlock();
    return 0;
}

static int end_read(StoreRead *read, bool cancel, Error *err)
{
    Pending *p = read->state;
    lock();
    while (!p->done && (p->taken || !cancel))
        (void)pthread_cond_wait(&changed, &mutex);
    Pending **link = &pending;
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    unlock();
    int r = p->result;
    if (err && !cancel)
        *err = p->error;
    if (r == 0 && !cancel)
        memcpy(read->buffer, p->bytes, read->n_bytes);
    atomic_fetch_sub(&far->under_way, 1);
    free(p->bytes);
    free(p);
    read->state = NULL;
    return r;
}

static int read_wait(Store *store, StoreRead *read, Error *err)
{
    (void)store;
    return end_read(read, false, err);
}

static void read_cancel(Store *store, StoreRead *read)
{
    (void)store;
    if (!read->state)
        return;
    atomic_fetch_add(&far->cancels, 1);
    (void)end_read(read, true, NULL);
}

/* ---- the rest ---- */

static int get_range(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                     Error *err)
{
    return get_now(store, key, offset, n_bytes, buffer, strikes(key), err);
}

static int get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
               Error *err)
{
    atomic_fetch_add(&far->gets, 1);
    if (strikes(key) && far->fault.error < 0)
        return error_set(err, far->fault.error, "%s/%s: the test says so", store->uri, key);
    int r = refuse(store, key, err);
    return r < 0 ? r : store_get(inner(store), key, max_bytes, ret, ret_bytes, err);
}

static int fetch(Store *store, const char *key, uint64_t n_bytes, int fd, Error *err)
{
    atomic_fetch_add(&far->fetches, 1);
    atomic_fetch_add(&far->bytes, n_bytes);
    bool struck = strikes(key);
    if (struck && far->fault.error < 0)
        return error_set(err, far->fault.error, "%s/%s: the test says so", store->uri, key);
    int r = refuse(store, key, err);
    if (r == 0)
        r = store_fetch(inner(store), key, n_bytes, fd, err);
    char byte;
    if (r == 0 && struck && pread(fd, &byte, 1, (off_t)(n_bytes - 9)) == 1) {
        byte ^= 1;
        if (pwrite(fd, &byte, 1, (off_t)(n_bytes - 9)) != 1)
            return error_set(err, -errno, "the test cannot turn a bit");
    }
    return r;
}

static int head(Store *store, const char *key, uint64_t *ret_bytes, Error *err)
{
    atomic_fetch_add(&far->heads, 1);
    int r = refuse(store, key, err);
    return r < 0 ? r : store_head(inner(store), key, ret_bytes, err);
}

static int version(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err)
{
    atomic_fetch_add(&far->versions, 1);
    int r = refuse(store, key, err);
    return r < 0 ? r : store_version(inner(store), key, ret, err);
}

static int list(Store *store, const char *prefix, size_t max, bool versions, StoreList *ret,
                Error *err)
{
    atomic_fetch_add(&far->lists, 1);
    int r = refuse(store, prefix, err);
    if (r == 0)
        r = (versions ? store_list_versions : store_list)(inner(store), prefix, max, ret, err);
    if (r < 0 || !far->hidden)
        return r;
    size_t n = 0;
    for (size_t i = 0; i < ret->n_objects; i++)
        if (strstr(ret->objects[i].key, far->hidden))
            free(ret->objects[i].key), free(ret->objects[i].version);
        else
            ret->objects[n++] = ret->objects[i];
    ret->n_objects = n;
    return 0;
}

static int delete (Store *store, const char *key, Error *err)
{
    int r = refuse(store, key, err);
    return r < 0 ? r : store_delete(inner(store), key, err);
}

static int sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
                 size_t *ret_removed, Error *err)
{
    int r = refuse(store, "", err);
    return r < 0
               ? r
               : store_sweep(inner(store), older_than_usec, may_remove, context, ret_removed, err);
}

static int local_path(Store *store, const char *key, char *ret, size_t size, Error *err)
{
    (void)ret;
    (void)size;
    return error_set(err, -EOPNOTSUPP, "%s/%s is far", store->uri, key);
}

/* ---- puts ---- */

static int put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
               StorePutFlags flags, Error *err)
{
    FarStore *f = (FarStore *)store;
    if (!(flags & STORE_DEFER)) {
        int r = refuse(store, key, err);
        if (r == 0 && (flags & STORE_IF_ABSENT) && atomic_load(&far->no_if_absent)) {
            uint64_t n; /* a HEAD and then a put: another writer may come in between */
            Error none = ERROR_INIT;
            if (store_head(f->inner, key, &n, &none) == 0)
                return error_set(err, -EEXIST, "%s/%s exists already", store->uri, key);
            flags &= ~(unsigned)STORE_IF_ABSENT;
        }
        return r < 0 ? r : store_put(f->inner, key, parts, n_parts, flags, err);
    }
    must(f->n_deferred < DEFERRED_MAX, "too many deferred puts");
    Deferred *d = &f->deferred[f->n_deferred++];
    *d = (Deferred){.key = strdup(key),
                    .parts = malloc((n_parts + 1) * sizeof(*parts)),
                    .n_parts = n_parts,
                    .flags = flags};
    must(d->key && d->parts, "memory");
    memcpy(d->parts, parts, n_parts * sizeof(*parts));
    return 0;
}

/* Writes the deferred puts in reverse order. */
static int flush(Store *store, Error *err)
{
    FarStore *f = (FarStore *)store;
    int r = f->n_deferred > 0 ? refuse(store, f->deferred[0].key, err) : 0;
    while (f->n_deferred > 0) {
        Deferred *d = &f->deferred[--f->n_deferred];
        if (r == 0)
            r = store_put(f->inner, d->key, d->parts, d->n_parts, d->flags, err);
        free(d->key);
        free(d->parts);
    }
    int q = store_flush(f->inner, r == 0 ? err : NULL);
    return r < 0 ? r : q;
}

static int puts_if_absent(Store *store, bool *ret, Error *err)
{
    *ret = !atomic_load(&far->no_if_absent);
    return refuse(store, "", err);
}

static Store *far_free(Store *store)
{
    must(((FarStore *)store)->n_deferred == 0, "deferred puts were not flushed");
    lock();
    for (Pending *p = thread_of == getpid() ? pending : NULL; p; p = p->next)
        must(&p->store->store != store, "reads were not waited for");
    unlock();
    (void)store_free(inner(store));
    free(store);
    return NULL;
}

static const StoreBackend backend = {
    .free = far_free,
    .put = put,
    .flush = flush,
    .get = get,
    .get_range = get_range,
    .head = head,
    .list = list,
    .delete = delete,
    .sweep = sweep,
    .local_path = local_path,
    .version = version,
    .puts_if_absent = puts_if_absent,
    .read_begin = read_begin,
    .read_wait = read_wait,
    .read_cancel = read_cancel,
    .fetch = fetch,
};

int __real_store_open(const char *uri, Store **ret, Error *err);
int __wrap_store_open(const char *uri, Store **ret, Error *err);

int __wrap_store_open(const char *uri, Store **ret, Error *err)
{
    if (strncmp(uri, SCHEME, strlen(SCHEME)) != 0)
        return __real_store_open(uri, ret, err);
    FarStore *store = calloc(1, sizeof(*store));
    if (!store || !(store->store.uri = strdup(uri))) {
        free(store);
        return error_set(err, -ENOMEM, "out of memory");
    }
    store->store.backend = &backend;
    int r = __real_store_open(uri + strlen(SCHEME), &store->inner, err);
    if (r < 0) {
        free(store->store.uri);
        free(store);
        return r;
    }
    *ret = &store->store;
    return 0;
}
