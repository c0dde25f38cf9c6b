/* SPDX-License-Identifier: Apache-2.0 */
/* store.c - URIs, key checks and dispatch; see store.h. */
#include "store/backend.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"

#include <limits.h>
#include <string.h>
#include <sys/statvfs.h>

/* Copies path without empty and "." parts, and without a trailing slash. ".." is kept: its meaning depends on links. */
static int path_normalise(const char *path, char *ret, size_t size)
{
    size_t used = 0;
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/");
        if (n > 0 && !(n == 1 && p[0] == '.')) {
            if (used + 1 + n >= size)
                return -ENAMETOOLONG;
            ret[used++] = '/';
            memcpy(ret + used, p, n);
            used += n;
        }
        p += n + (p[n] == '/');
    }
    ret[used] = '\0';
    return 0;
}

static int folder_of_uri(const char *uri, char *ret, size_t size, Error *err)
{
    char joined[PATH_MAX];
    const char *path = uri;

    if (strncmp(uri, "file://", 7) == 0) {
        path = uri + 7;
        if (path[0] != '/')
            return error_set(err, -EINVAL, "store %s: expected file:///absolute/folder", uri);
    } else if (strstr(uri, "://")) {
        return error_set(err, -EINVAL, "store %s: expected file://, s3:// or a path", uri);
    } else if (uri[0] == '\0') {
        return error_set(err, -EINVAL, "store: the URI is empty");
    } else if (uri[0] != '/') {
        char cwd[PATH_MAX];
        if (!getcwd(cwd, sizeof(cwd)))
            return error_errno(err, -errno, "store %s: no current folder", uri);
        if (snprintf(joined, sizeof(joined), "%s/%s", cwd, uri) >= (int)sizeof(joined))
            return error_set(err, -ENAMETOOLONG, "store %s: too long a path", uri);
        path = joined;
    }

    int r = path_normalise(path, ret, size);
    if (r < 0)
        return error_set(err, r, "store %s: too long a path", uri);
    if (ret[0] == '\0')
        return error_set(err, -EINVAL, "store %s: the root folder is not a store", uri);
    return 0;
}

static int open_folder(const char *uri, Store **ret, Error *err)
{
    char folder[PATH_MAX - STORE_KEY_MAX - 32]; /* leaves room for a key and a temporary's name */
    int r = folder_of_uri(uri, folder, sizeof(folder), err);
    if (r < 0)
        return r;

    Store *store = file_store_new(folder);
    store->uri = memory_format("file://%s", folder);
    *ret = store;
    return 0;
}

/* ---- s3:// ---- */

static bool is_address(const char *bucket)
{
    int dots = 0;
    for (const char *p = bucket; *p; p++) {
        if (*p != '.' && !(*p >= '0' && *p <= '9'))
            return false;
        dots += *p == '.';
    }
    return dots == 3;
}

/* Checks a name by Amazon S3 User Guide, "Bucket naming rules". Returns what is wrong, or NULL for a good name. */
static const char *bucket_refuse(const char *bucket)
{
    const size_t n = strlen(bucket);
    if (n < 3 || n > 63)
        return "a bucket's name has 3 to 63 characters";
    if (strspn(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-") != n)
        return "a bucket's name holds only lower-case letters, digits, '.' and '-'";
    if (strchr(".-", bucket[0]) || strchr(".-", bucket[n - 1]))
        return "a bucket's name begins and ends with a letter or digit";
    if (strstr(bucket, ".."))
        return "a bucket's name has no two dots in a row";
    if (is_address(bucket))
        return "a bucket's name is not an address";
    return NULL;
}

static int open_bucket(const char *uri, Store **ret, Error *err)
{
    const char *begin = uri + strlen("s3://");
    const size_t n_bucket = strcspn(begin, "/");
    _cleanup_free_ char *bucket = memory_bytes(begin, n_bucket);
    _cleanup_free_ char *prefix = memory_text(begin + n_bucket + (begin[n_bucket] == '/'));
    for (size_t n = strlen(prefix); n > 0 && prefix[n - 1] == '/';)
        prefix[--n] = '\0';
    const char *why = bucket_refuse(bucket);
    for (const char *p = prefix; *p && !why; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            why = "the prefix holds a control character";
    if (!why && strlen(prefix) > STORE_KEY_MAX)
        why = "the prefix is too long";
    if (why)
        return error_set(err, -EINVAL, "store %.300s: %s", uri, why);

    Store *store = NULL;
    int r = s3_store_new(bucket, prefix, &store, err);
    if (r < 0)
        return r;
    store->uri = memory_format("s3://%s%s%s", bucket, *prefix ? "/" : "", prefix);
    *ret = store;
    return 0;
}

int store_open(const char *uri, Store **ret, Error *err)
{
    return strncmp(uri, "s3://", 5) == 0 ? open_bucket(uri, ret, err) : open_folder(uri, ret, err);
}

Store *store_free(Store *store)
{
    if (!store)
        return NULL;
    char *uri = store->uri; /* requests in progress may use it until they have ended */
    store = store->backend->free(store);
    free(uri);
    return store;
}

const char *store_uri(const Store *store) { return store->uri; }

/* Returns what is wrong with a key, or NULL. A prefix may end anywhere, so its last part may be empty or incomplete. */
static const char *key_fault(const char *key, bool is_prefix)
{
    if (strlen(key) > STORE_KEY_MAX)
        return "the key is too long";
    for (const char *p = key; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return "the key holds a control character";

    for (const char *p = key;; p++) {
        size_t n = strcspn(p, "/");
        bool last = p[n] == '\0';
        if (last && is_prefix)
            return NULL;
        if (n == 0)
            return "the key has an empty part";
        if ((n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return "the key has a . or .. part";
        if (strncmp(p, STORE_TEMPORARY, strlen(STORE_TEMPORARY)) == 0)
            return STORE_TEMPORARY " begins a temporary's name";
        if (n > NAME_MAX)
            return "a part of the key is too long";
        if (last)
            return NULL;
        p += n;
    }
}

bool store_key_is_good(const char *key) { return !key_fault(key, false); }

static int key_check(const Store *store, const char *key, bool is_prefix, Error *err)
{
    const char *why = key_fault(key, is_prefix);
    return why ? error_set(err, -EINVAL, "%s/%.200s: %s", store->uri, key, why) : 0;
}

int store_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
              StorePutFlags flags, Error *err)
{
    int r = key_check(store, key, false, err);
    if (r < 0)
        return r;
    uint64_t begun_usec = clock_boottime_usec();
    r = store->backend->put(store, key, parts, n_parts, flags, err);
    atomic_fetch_add(&store->puts, 1);
    atomic_fetch_add(&store->put_usec, clock_boottime_usec() - begun_usec);
    return r;
}

int store_flush(Store *store, Error *err)
{
    uint64_t begun_usec = clock_boottime_usec();
    int r = store->backend->flush(store, err);
    atomic_fetch_add(&store->put_usec, clock_boottime_usec() - begun_usec);
    return r;
}

static int count_get(Store *store, int r, uint64_t begun_usec)
{
    atomic_fetch_add(&store->gets, 1);
    atomic_fetch_add(&store->get_usec, clock_boottime_usec() - begun_usec);
    return r;
}

void store_use(const Store *store, StoreUse *ret)
{
    *ret = (StoreUse){.puts = atomic_load(&store->puts),
                      .gets = atomic_load(&store->gets),
                      .put_usec = atomic_load(&store->put_usec),
                      .get_usec = atomic_load(&store->get_usec)};
}

int store_get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
              Error *err)
{
    int r = key_check(store, key, false, err);
    uint64_t begun_usec = clock_boottime_usec();
    return r < 0 ? r
                 : count_get(store, store->backend->get(store, key, max_bytes, ret, ret_bytes, err),
                             begun_usec);
}

int store_get_uri(const char *uri, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err)
{
    const char *slash = strrchr(uri, '/');
    _cleanup_free_ char *folder =
        slash ? memory_bytes(uri, (size_t)(slash - uri) + (slash == uri)) : memory_text(".");
    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(folder, &store, err);
    return r < 0 ? r : store_get(store, slash ? slash + 1 : uri, max_bytes, ret, ret_bytes, err);
}

int store_get_range(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                    Error *err)
{
    int r = key_check(store, key, false, err);
    uint64_t begun_usec = clock_boottime_usec();
    return r < 0 ? r
                 : count_get(store,
                             store->backend->get_range(store, key, offset, n_bytes, buffer, err),
                             begun_usec);
}

int store_head(Store *store, const char *key, uint64_t *ret_bytes, Error *err)
{
    int r = key_check(store, key, false, err);
    return r < 0 ? r : store->backend->head(store, key, ret_bytes, err);
}

static int list(Store *store, const char *prefix, size_t max, bool versions, StoreList *ret,
                Error *err)
{
    int r = key_check(store, prefix, true, err);
    return r < 0 ? r : store->backend->list(store, prefix, max, versions, ret, err);
}

int store_list(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err)
{
    return list(store, prefix, max, false, ret, err);
}

int store_list_versions(Store *store, const char *prefix, size_t max, StoreList *ret, Error *err)
{
    return list(store, prefix, max, true, ret, err);
}

void store_list_clear(StoreList *list)
{
    for (size_t i = 0; i < list->n_objects; i++) {
        free(list->objects[i].key);
        free(list->objects[i].version);
    }
    free(list->objects);
    *list = (StoreList){0};
}

int store_delete(Store *store, const char *key, Error *err)
{
    int r = key_check(store, key, false, err);
    return r < 0 ? r : store->backend->delete (store, key, err);
}

/* ---- defaults for functions that a backend may lack ---- */

int store_compare_keys(const void *a, const void *b)
{
    return strcmp(((const StoreObject *)a)->key, ((const StoreObject *)b)->key);
}

void store_read_arrive(StoreRead *read)
{
    assert(!atomic_load(&read->arrived));
    EventCount *events = read->events;
    atomic_store(&read->arrived, true);
    if (events)
        event_count_signal(events);
}

int store_read_begin(Store *store, StoreRead *read, Error *err)
{
    assert(!read->begun && !read->state);
    int r = key_check(store, read->key, false, err);
    if (r < 0)
        return r;
    atomic_store(&read->arrived, false);
    read->begun = true; /* set first, as the backend's thread may end the read at once */
    if (store->backend->read_begin)
        r = store->backend->read_begin(store, read, err);
    else
        store_read_arrive(read); /* store_read_wait() does the whole read */
    if (r < 0)
        read->begun = false;
    return r;
}

int store_read_wait(Store *store, StoreRead *read, Error *err)
{
    assert(read->begun);
    uint64_t begun_usec = clock_boottime_usec();
    int r = store->backend->read_wait ? store->backend->read_wait(store, read, err)
                                      : store->backend->get_range(store, read->key, read->offset,
                                                                  read->n_bytes, read->buffer, err);
    assert(!read->state && atomic_load(&read->arrived));
    read->begun = false;
    return count_get(store, r, begun_usec);
}

int store_read_poll(Store *store, StoreRead *read, Error *err)
{
    assert(read->begun);
    if (!atomic_load(&read->arrived))
        return 0;
    int r = store_read_wait(store, read, err);
    return r < 0 ? r : 1;
}

void store_read_cancel(Store *store, StoreRead *read)
{
    if (read->begun && store->backend->read_cancel)
        store->backend->read_cancel(store, read);
    assert(!read->state);
    read->begun = false;
}

/* ---- copying an object into a file ---- */

enum { FETCH_READS = 8, FETCH_PIECE_BYTES = 2 << 20, FETCH_TRIES = 3 };

typedef struct StoreFetch {
    Store *store;
    const char *key;
    uint64_t n_bytes;
    int fd;
    char *buffers;
    StoreRead reads[FETCH_READS];
} StoreFetch;

static int fetch_begin(StoreFetch *f, size_t index, Error *err)
{
    const uint64_t at = (uint64_t)index * FETCH_PIECE_BYTES;
    StoreRead *read = &f->reads[index % FETCH_READS];
    assert(at < f->n_bytes && !read->begun);
    *read = (StoreRead){.key = f->key,
                        .offset = at,
                        .n_bytes = (size_t)MIN(f->n_bytes - at, (uint64_t)FETCH_PIECE_BYTES),
                        .buffer = f->buffers + index % FETCH_READS * FETCH_PIECE_BYTES};
    return store_read_begin(f->store, read, err);
}

static int fetch_end(StoreFetch *f, size_t index, Error *err)
{
    StoreRead *read = &f->reads[index % FETCH_READS];
    int r = store_read_wait(f->store, read, err);
    if (r < 0)
        return r;
    r = fd_write_at(f->fd, read->buffer, read->n_bytes, read->offset);
    return r < 0
               ? error_errno(err, r, "cannot write what is fetched of %s/%s", f->store->uri, f->key)
               : 0;
}

static int fetch_once(StoreFetch *f, Error *err)
{
    const size_t n = (size_t)DIV_ROUND_UP(f->n_bytes, (uint64_t)FETCH_PIECE_BYTES);
    size_t begun = 0, ended = 0;
    int r = 0;
    while (r == 0 && ended < n) {
        while (r == 0 && begun < MIN(ended + FETCH_READS, n)) {
            r = fetch_begin(f, begun, err);
            begun += r == 0;
        }
        if (r == 0)
            r = fetch_end(f, ended++, err);
    }
    for (; ended < begun; ended++)
        store_read_cancel(f->store, &f->reads[ended % FETCH_READS]);
    return r;
}

/* Fetches the object; repeats this if the object changes meanwhile. */
static int fetch_one_version(StoreFetch *f, Error *err)
{
    char before[STORE_VERSION_MAX], after[STORE_VERSION_MAX];
    int r = f->store->backend->version(f->store, f->key, before, err);
    for (int tries = 0; r == 0 && tries < FETCH_TRIES; tries++) {
        r = fetch_once(f, err);
        if (r == 0)
            r = f->store->backend->version(f->store, f->key, after, err);
        if (r == 0 && strcmp(before, after) == 0)
            return 0;
        memcpy(before, after, sizeof(before));
    }
    return r < 0
               ? r
               : error_set(err, -EIO, "%s/%s changed while it was fetched", f->store->uri, f->key);
}

static int fetch_ranges(Store *store, const char *key, uint64_t n_bytes, int fd, Error *err)
{
    StoreFetch f = {.store = store, .key = key, .n_bytes = n_bytes, .fd = fd};
    int r = fd_reserve(fd, n_bytes);
    if (r == -ENOSPC || r == -EDQUOT || r == -EFBIG) /* a full disk fails before the transfer */
        return error_errno(err, r, "cannot write what is fetched of %s/%s", store->uri, key);
    f.buffers = malloc((size_t)MIN(n_bytes, (uint64_t)FETCH_READS * FETCH_PIECE_BYTES) + 1);
    if (!f.buffers)
        return error_set(err, -ENOMEM, "out of memory fetching %s/%s", store->uri, key);
    r = fetch_one_version(&f, err);
    free(f.buffers);
    return r;
}

int store_fetch(Store *store, const char *key, uint64_t n_bytes, int fd, Error *err)
{
    int r = key_check(store, key, false, err);
    if (r < 0 || n_bytes == 0)
        return r;
    return store->backend->fetch ? store->backend->fetch(store, key, n_bytes, fd, err)
                                 : fetch_ranges(store, key, n_bytes, fd, err);
}

int store_version(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err)
{
    int r = key_check(store, key, false, err);
    return r < 0 ? r : store->backend->version(store, key, ret, err);
}

int store_puts_if_absent(Store *store, bool *ret, Error *err)
{
    if (store->backend->puts_if_absent)
        return store->backend->puts_if_absent(store, ret, err);
    *ret = true;
    return 0;
}

int store_delete_many(Store *store, const char *const *keys, size_t n_keys, Error *err)
{
    int first = 0;
    for (size_t i = 0; i < n_keys; i++) {
        int r = key_check(store, keys[i], false, err);
        if (r < 0)
            return r;
    }
    if (store->backend->delete_many)
        return store->backend->delete_many(store, keys, n_keys, err);
    for (size_t i = 0; i < n_keys; i++) {
        int r = store->backend->delete (store, keys[i], first < 0 ? NULL : err);
        first = first < 0 ? first : r;
    }
    return first;
}

int store_sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may_remove, void *context,
                size_t *ret_removed, Error *err)
{
    size_t removed = 0;
    int r = store->backend->sweep(store, older_than_usec, may_remove, context, &removed, err);
    if (r >= 0 && ret_removed)
        *ret_removed = removed;
    return r;
}

int store_free_bytes(const Store *store, uint64_t *ret, Error *err)
{
    struct statvfs fs;
    char folder[PATH_MAX];
    if (strncmp(store->uri, "file://", 7) != 0)
        return error_set(err, -EOPNOTSUPP, "%s does not tell how much room it has", store->uri);
    (void)snprintf(folder, sizeof(folder), "%s/", store->uri + 7); /* bounded by store_open() */
    int r;
    do { /* search the nearest folder that exists */
        char *slash = strrchr(folder, '/');
        slash[slash == folder] = '\0';
        r = statvfs(folder, &fs) < 0 ? -errno : 0;
    } while (r == -ENOENT && folder[1]);
    if (r < 0)
        return error_errno(err, r, "cannot tell how much room %s has", store->uri);
    *ret = (uint64_t)fs.f_bavail * fs.f_frsize;
    return 0;
}

int store_local_path(Store *store, const char *key, char *ret, size_t size, Error *err)
{
    int r = key_check(store, key, false, err);
    return r < 0 ? r : store->backend->local_path(store, key, ret, size, err);
}
