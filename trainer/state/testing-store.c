/* testing-store.c - see testing-store.h. */
#include "trainer/state/testing-store.h"

#include "store/backend.h"
#include "trainer/comm/test_world.h"

#include <string.h>

enum { DEFERRED_MAX = 256 };

typedef struct Deferred {
    char *key;
    struct iovec *parts;
    size_t n_parts;
    StorePutFlags flags;
} Deferred;

typedef struct TestingStore {
    Store store;
    Store *behind;
    StoreTrouble *trouble;
    Deferred deferred[DEFERRED_MAX];
    size_t n_deferred;
    size_t under_way;
} TestingStore;

static TestingStore *testing_store(Store *store) { return (TestingStore *)store; }

static int refuse_away(Store *store, const char *key, Error *err)
{
    const bool away = testing_store(store)->trouble->away;
    return away ? error_set(err, -EHOSTUNREACH, "%s/%s: no answer", store->uri, key) : 0;
}

/* ---- puts ---- */

static int put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
               StorePutFlags flags, Error *err)
{
    TestingStore *t = testing_store(store);
    if (!(flags & STORE_DEFER)) {
        int r = refuse_away(store, key, err);
        return r < 0 ? r : store_put(t->behind, key, parts, n_parts, flags, err);
    }
    world_check(t->n_deferred < DEFERRED_MAX, "too many deferred puts");
    Deferred *d = &t->deferred[t->n_deferred++];
    *d = (Deferred){.key = strdup(key),
                    .parts = malloc((n_parts + 1) * sizeof(*parts)),
                    .n_parts = n_parts,
                    .flags = flags};
    world_check(d->key && d->parts, "memory");
    memcpy(d->parts, parts, n_parts * sizeof(*parts));
    return 0;
}

/* The last one first. */
static int flush(Store *store, Error *err)
{
    TestingStore *t = testing_store(store);
    int r = t->n_deferred > 0 ? refuse_away(store, t->deferred[0].key, err) : 0;
    while (t->n_deferred > 0) {
        Deferred *d = &t->deferred[--t->n_deferred];
        if (r == 0)
            r = store_put(t->behind, d->key, d->parts, d->n_parts, d->flags, err);
        free(d->key);
        free(d->parts);
    }
    int q = store_flush(t->behind, r == 0 ? err : NULL);
    return r < 0 ? r : q;
}

static int puts_if_absent(Store *store, bool *ret, Error *err)
{
    int r = refuse_away(store, "", err);
    *ret = !testing_store(store)->trouble->no_if_absent;
    return r;
}

/* ---- reads ---- */

static int get_range(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                     Error *err)
{
    TestingStore *t = testing_store(store);
    StoreTrouble *trouble = t->trouble;
    const bool struck = trouble->key && strstr(key, trouble->key);
    int r = refuse_away(store, key, err);
    if (r < 0)
        return r;
    trouble->reads++;
    if (struck && trouble->misses > 0) {
        trouble->misses--;
        return error_set(err, -ENOENT, "%s/%s: no such object", store->uri, key);
    }
    r = store_get_range(t->behind, key, offset, n_bytes, buffer, err);
    if (r == 0 && struck && trouble->flips > 0) {
        trouble->flips--;
        ((char *)buffer)[n_bytes / 2] ^= 0x20;
    }
    return r;
}

static int read_begin(Store *store, StoreRead *read, Error *err)
{
    (void)err;
    TestingStore *t = testing_store(store);
    read->state = t;
    memset(read->buffer, 0xa5, read->n_bytes); /* the caller must not look before it waited */
    t->under_way++;
    t->trouble->reads_together = MAX(t->trouble->reads_together, t->under_way);
    if (read->arrived)
        read->arrived(read);
    return 0;
}

static int read_wait(Store *store, StoreRead *read, Error *err)
{
    testing_store(store)->under_way--;
    read->state = NULL;
    return get_range(store, read->key, read->offset, read->n_bytes, read->buffer, err);
}

static void read_cancel(Store *store, StoreRead *read)
{
    testing_store(store)->under_way -= read->state != NULL;
    read->state = NULL;
}

static int get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
               Error *err)
{
    int r = refuse_away(store, key, err);
    return r < 0 ? r : store_get(testing_store(store)->behind, key, max_bytes, ret, ret_bytes, err);
}

static int head(Store *store, const char *key, uint64_t *ret_bytes, Error *err)
{
    TestingStore *t = testing_store(store);
    t->trouble->heads++;
    int r = refuse_away(store, key, err);
    return r < 0 ? r : store_head(t->behind, key, ret_bytes, err);
}

static int version(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err)
{
    return store_version(testing_store(store)->behind, key, ret, err);
}

static int local_path(Store *store, const char *key, _unused_ char *ret, _unused_ size_t size,
                      Error *err)
{
    return error_set(err, -EOPNOTSUPP, "%s/%s is no file", store->uri, key);
}

static int list(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err)
{
    TestingStore *t = testing_store(store);
    t->trouble->lists++;
    int r = refuse_away(store, prefix, err);
    if (r == 0)
        r = store_list(t->behind, prefix, max, ret, err);
    if (r < 0 || !t->trouble->hidden)
        return r;
    size_t n = 0;
    for (size_t i = 0; i < ret->n_objects; i++)
        if (strstr(ret->objects[i].key, t->trouble->hidden))
            free(ret->objects[i].key);
        else
            ret->objects[n++] = ret->objects[i];
    ret->n_objects = n;
    return 0;
}

/* ---- the rest ---- */

static int delete (Store *store, const char *key, Error *err)
{
    int r = refuse_away(store, key, err);
    return r < 0 ? r : store_delete(testing_store(store)->behind, key, err);
}

static int sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may, void *context,
                 size_t *ret_removed, Error *err)
{
    int r = refuse_away(store, "", err);
    return r < 0 ? r
                 : store_sweep(testing_store(store)->behind, older_than_usec, may, context,
                               ret_removed, err);
}

static Store *testing_free(Store *store)
{
    TestingStore *t = testing_store(store);
    world_check(t->n_deferred == 0, "%zu deferred puts were not flushed", t->n_deferred);
    world_check(t->under_way == 0, "%zu reads were not waited for", t->under_way);
    (void)store_free(t->behind);
    free(t);
    return NULL;
}

static const StoreBackend backend = {
    .free = testing_free,
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
};

Store *testing_store_new(Store *behind, StoreTrouble *trouble)
{
    TestingStore *t = calloc(1, sizeof(*t));
    world_check(t, "memory");
    t->store.backend = &backend;
    t->store.uri = strdup(store_uri(behind));
    t->behind = behind;
    t->trouble = trouble;
    world_check(t->store.uri, "memory");
    return &t->store;
}
