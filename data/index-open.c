/* SPDX-License-Identifier: Apache-2.0 */
/* index-open.c - see index-open.h. */
#include "data/index-open.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "data/index-build.h"
#include "protocol/exit-code.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <time.h>

enum {
    READ_BYTES = 1 << 20,
    /* The largest number of attempts to fetch an index that arrives corrupted. */
    FETCH_ATTEMPTS = 3,
    PATIENCE_SEC = 900, /* the longest wait for another rank that fetches or makes the index */
    LOOK_MSEC = 20,
};

static int no_dataset(Store *store, int r, Error *err)
{
    if (r != -ENOENT)
        return exit_errno_of_named(r);
    return error_set(err, -EINVAL, "%s holds no MDS dataset: it has no index.json",
                     store_uri(store));
}

/* ---- the origin of an index ---- */

int index_origin_parse(const char *name, const char *text, size_t n_bytes, IndexOrigin *ret,
                       Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    IndexOrigin origin = {0};
    char hash[HASH_TEXT_BYTES] = "";
    int64_t v;
    int r = json_parse(name, text, n_bytes, &root, err);
    if (r < 0)
        return r;
    JsonReader j = json_open(name, root, JSON_ANY_KEYS, err);
    json_get_int(&j, "v", JSON_REQUIRED, 1, 1, &v);
    json_get_text(&j, "version", JSON_REQUIRED, origin.version, sizeof(origin.version));
    if (json_get_text(&j, "source", JSON_REQUIRED, hash, sizeof(hash)) &&
        hash_parse(hash, &origin.source) < 0)
        json_refuse(&j, "source", "\"%s\" is not a hash", hash);
    r = json_close(&j);
    if (r == 0)
        *ret = origin;
    return r;
}

/* Writes the text of an IndexOrigin. The dataset's URI is not in it: a URI may hold bytes that JSON cannot, and a copy
 * of the dataset has another URI. */
int index_origin_format(const IndexOrigin *origin, char **ret, Error *err)
{
    char hash[HASH_TEXT_BYTES];
    _cleanup_json_ json_t *root = json_pack("{s:i,s:s,s:s}", "v", 1, "version", origin->version,
                                            "source", hash_format(origin->source, hash));
    if (!root)
        return error_set(err, -EINVAL, "the version of index.json, \"%s\", is not UTF-8",
                         origin->version);
    char *text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    *ret = text;
    return 0;
}

/* ---- where the index is kept ---- */

/* A copy of the index: a file in the cache, or a file without a name that vanishes with this process. */
typedef struct Copy {
    Store *store;
    Cache *cache; /* NULL: the file has no name */
    /* `cache` belongs to the service and is not named by the job, so its errors are not those of the job. */
    bool of_service;
    char name[CACHE_NAME_MAX + 1];
    int fd; /* the file, to which only this process writes */
} Copy;

const char *index_cache_name(Store *store, const char *version, char ret[CACHE_NAME_MAX + 1])
{
    const char *uri = store_uri(store);
    const Hash parts[] = {hash_bytes(uri, strlen(uri)), hash_bytes(version, strlen(version))};
    char hash[HASH_TEXT_BYTES];
    (void)snprintf(ret, CACHE_NAME_MAX + 1, "%s.index",
                   hash_format(hash_bytes(parts, sizeof(parts)), hash));
    return ret;
}

static const char *place_of(const Copy *copy)
{
    return copy->of_service ? "$CACHE_DIRECTORY" : "data.cache_dir";
}

static int map_copy(const Copy *copy, int fd, const Hash *source, Index **ret, Error *err)
{
    char text[CACHE_NAME_MAX + 32];
    (void)snprintf(text, sizeof(text), "%s: %s", place_of(copy), copy->name);
    return index_map_fd(fd, copy->cache ? text : store_uri(copy->store), source, ret, err);
}

/* Returns 1 if the index is in the cache. */
static int open_copy(const Copy *copy, Index **ret)
{
    _cleanup_fd_ int fd = cache_open(copy->cache, copy->name, CACHE_ANY);
    if (fd < 0)
        return 0;
    Error err = ERROR_INIT;
    if (map_copy(copy, fd, NULL, ret, &err) == 0)
        return 1;
    log_warning("%s", err.text);
    cache_forget(copy->cache, copy->name);
    return 0;
}

/* Opens a file without a name. */
static int open_unnamed(void)
{
    const char *folder = getenv("TMPDIR");
    int fd = open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

static int leave_cache(Copy *copy, Error *err)
{
    copy->cache = NULL;
    copy->fd = open_unnamed();
    if (copy->fd >= 0)
        return 0;
    /* The caller would read -ENOENT as a missing dataset. */
    return error_errno(err, copy->fd == -ENOENT ? -ENOTDIR : copy->fd,
                       "%s: its compact index cannot be kept in TMPDIR either; set data.cache_dir",
                       store_uri(copy->store));
}

/* Reports whether an operator must repair what the error is about. Any other error may be temporary: then the index is
 * kept elsewhere. */
static bool is_for_people(int r)
{
    return r == -EACCES || r == -EPERM || r == -EROFS || r == -ENOTDIR;
}

/* Returns 1 if the index is in the cache already, 0 if the caller must fill the copy. */
static int begin_copy(Copy *copy, Index **ret, Error *err)
{
    static const struct timespec pause = {.tv_nsec = LOOK_MSEC * 1000000};
    const uint64_t until_usec = clock_monotonic_usec() + PATIENCE_SEC * USEC_PER_SEC;
    while (copy->cache) {
        if (open_copy(copy, ret) > 0)
            return 1;
        copy->fd = cache_reserve(copy->cache, copy->name, CACHE_ANY);
        if (copy->fd >= 0)
            return 0;
        if (is_for_people(copy->fd) && !copy->of_service)
            return error_errno(err, copy->fd, "data.cache_dir cannot be used");
        if (copy->fd != -EAGAIN && copy->fd != -EEXIST)
            break;
        if (clock_monotonic_usec() >= until_usec) {
            log_warning("%s: another process has been at %s.part in %s for %d s; going on without "
                        "it",
                        store_uri(copy->store), copy->name, place_of(copy), PATIENCE_SEC);
            break;
        }
        (void)nanosleep(&pause, NULL); /* a signal may shorten the pause */
    }
    return leave_cache(copy, err);
}

/* Makes room for n_bytes: in the cache, or in a file without a name if the cache is too small. */
static int make_room(Copy *copy, uint64_t n_bytes, Error *err)
{
    int r = copy->cache ? cache_resize(copy->cache, copy->name, copy->fd, n_bytes) : 0;
    if (r < 0) {
        log_warning("%s: %s has no room for its compact index of %" PRIu64
                    " bytes; every start fetches or makes it again",
                    store_uri(copy->store), place_of(copy), n_bytes);
        copy->fd = cache_abandon(copy->cache, copy->name, copy->fd);
        r = leave_cache(copy, err);
    }
    if (r == 0 && !copy->cache && ftruncate(copy->fd, 0) < 0)
        r = error_errno(err, -errno, "cannot keep the compact index of %s", store_uri(copy->store));
    return r;
}

/* Commits the copy to the cache if r, the result of filling the copy, is 0. If the commit fails, this process still
 * uses the copy. */
static void end_copy(Copy *copy, int r)
{
    if (copy->cache && r == 0 && (r = cache_commit(copy->cache, copy->name, copy->fd, true)) < 0)
        cache_failed(copy->cache, r);
    copy->fd = copy->cache && r < 0 ? cache_abandon(copy->cache, copy->name, copy->fd)
                                    : fd_close(copy->fd);
}

int index_check_source(const char *name, Hash found, const NotedHash *noted, Error *err)
{
    if (!noted || !noted->when || hash_equal(found, noted->hash))
        return 0;
    char is[HASH_TEXT_BYTES], was[HASH_TEXT_BYTES];
    return error_set(err, -EBADMSG, "%s is not what it was %s: its xxh3_128 is %s, was %s", name,
                     noted->when, hash_format(found, is), hash_format(noted->hash, was));
}

/* ---- a dataset in a remote store ---- */

static int hash_file(int fd, uint64_t n_bytes, Hash *ret)
{
    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    _cleanup_free_ char *buffer = malloc(READ_BYTES);
    int r = buffer ? hasher_new(&hasher) : -ENOMEM;
    for (uint64_t at = 0; r == 0 && at < n_bytes; at += READ_BYTES) {
        size_t n = (size_t)MIN(n_bytes - at, (uint64_t)READ_BYTES);
        r = fd_read_all(fd, buffer, n, at);
        if (r == 0)
            hasher_update(hasher, buffer, n);
    }
    if (r == 0)
        *ret = hasher_digest(hasher);
    return r;
}

/* Finds the hash of the store's index.json of this version: in INDEX_ORIGIN if INDEX_ORIGIN names the same version,
 * else from the bytes of index.json. */
static int find_source(Store *store, const char *version, Hash *ret, Error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    uint64_t n_source;
    IndexOrigin origin;
    Error why = ERROR_INIT;
    int r = store_get(store, INDEX_ORIGIN, INDEX_ORIGIN_MAX, &text, &n_bytes, &why);
    if (r == 0)
        r = index_origin_parse(INDEX_ORIGIN, text, n_bytes, &origin, &why);
    if (r == 0 && strcmp(origin.version, version) == 0) {
        *ret = origin.source;
        return 0;
    }
    if (r < 0 && r != -ENOENT && r != -EINVAL && r != -EFBIG)
        return error_set(err, r, "%s", why.text);

    log_info("%s: fetching index.json, since " INDEX_ORIGIN " does not tell of it",
             store_uri(store));
    r = no_dataset(store, store_head(store, "index.json", &n_source, err), err);
    if (r < 0)
        return r;
    _cleanup_fd_ int fd = open_unnamed();
    if (fd < 0)
        return error_errno(err, fd, "cannot keep %s/index.json for a while", store_uri(store));
    r = store_fetch(store, "index.json", n_source, fd, err);
    if (r < 0)
        return r;
    r = hash_file(fd, n_source, ret);
    return r < 0 ? error_errno(err, r, "cannot hash %s/index.json", store_uri(store)) : 0;
}

int index_head(Store *store, uint64_t *ret_bytes, Error *err)
{
    return no_dataset(store, store_head(store, "index.json", ret_bytes, err), err);
}

int index_find_source(Store *store, Hash *ret, Error *err)
{
    char version[STORE_VERSION_MAX];
    int r = no_dataset(store, store_version(store, "index.json", version, err), err);
    return r < 0 ? r : find_source(store, version, ret, err);
}

static int put_bytes(Copy *copy, const char *bytes, size_t n_bytes, Index **ret, Error *err)
{
    int r = make_room(copy, n_bytes, err);
    if (r < 0)
        return r;
    r = fd_write_at(copy->fd, bytes, n_bytes, 0);
    return r < 0
               ? error_errno(err, r, "cannot keep the compact index of %s", store_uri(copy->store))
               : map_copy(copy, copy->fd, NULL, ret, err);
}

static int build_into(Copy *copy, Index **ret, Error *err)
{
    _cleanup_free_ char *bytes = NULL;
    size_t n_bytes;
    log_info("indexing %s; sdprep index would do it once for all nodes", store_uri(copy->store));
    int r = index_build(copy->store, false, NULL, NULL, &bytes, &n_bytes, err);
    return r < 0 ? r : put_bytes(copy, bytes, n_bytes, ret, err);
}

/* Fetches the dataset's own index and checks all of it. -ENOENT: the dataset has no index; -ESTALE: the index belongs
 * to another index.json. */
static int fetch_once(Copy *copy, const Hash *source, Index **ret, Error *err)
{
    uint64_t n_bytes;
    int r = store_head(copy->store, INDEX_NAME, &n_bytes, err);
    if (r == 0)
        r = make_room(copy, n_bytes, err);
    if (r == 0)
        r = store_fetch(copy->store, INDEX_NAME, n_bytes, copy->fd, err);
    _cleanup_(index_freep) Index *index = NULL;
    if (r == 0)
        r = map_copy(copy, copy->fd, source, &index, err);
    if (r == 0)
        r = index_check(index, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(index);
    return 0;
}

/* Returns 1, or 0 if the dataset has no index that can be used. */
static int fetch_into(Copy *copy, const char *version, Index **ret, Error *err)
{
    uint64_t n_bytes;
    Hash source;
    int r = store_head(copy->store, INDEX_NAME, &n_bytes, err);
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = find_source(copy->store, version, &source, err);
    if (r < 0)
        return r;
    for (int attempt = 0; attempt < FETCH_ATTEMPTS; attempt++) {
        Error why = ERROR_INIT;
        r = fetch_once(copy, &source, ret, &why);
        if (r == 0)
            return 1;
        log_warning("%s/" INDEX_NAME ": %s", store_uri(copy->store), why.text);
        if (r == -ENOENT || r == -ESTALE)
            return 0;
        if (r != -EBADMSG)
            return error_set(err, r, "%s", why.text);
    }
    return 0;
}

static int open_elsewhere(Store *store, Cache *cache, Index **ret, Error *err)
{
    Copy copy = {.store = store, .cache = cache, .fd = -EBADF};
    char version[STORE_VERSION_MAX];
    int r = no_dataset(store, store_version(store, "index.json", version, err), err);
    if (r < 0)
        return r;
    (void)index_cache_name(store, version, copy.name);
    r = begin_copy(&copy, ret, err);
    if (r != 0)
        return MIN(r, 0);
    r = fetch_into(&copy, version, ret, err);
    if (r == 0)
        r = build_into(&copy, ret, err);
    end_copy(&copy, MIN(r, 0));
    return MIN(r, 0);
}

/* ---- a dataset in a local folder ---- */

/* Opens the folder that systemd gives a service (CacheDirectory=). It keeps the index for a job without a cache, if the
 * dataset's folder cannot be written. Returns NULL if there is no such folder or it is in use for another purpose. */
static Cache *cache_of_service(void)
{
    const char *folders = getenv("CACHE_DIRECTORY");
    Cache *cache = NULL;
    Error ignored = ERROR_INIT; /* the job does not name this folder: it may be unusable */
    if (!folders || *folders != '/')
        return NULL;
    _cleanup_free_ char *first = strndup(folders, strcspn(folders, ":"));
    return first && cache_new(first, 0, &cache, &ignored) == 0 ? cache : NULL;
}

/* Builds the index and keeps it beside index.json, else in the cache, else only for this process. Several ranks may do
 * this at the same time: each renames the same bytes into place. */
static int build_and_keep(Copy *copy, const char *path, const Hash *source, Index **ret, Error *err)
{
    _cleanup_free_ char *bytes = NULL;
    size_t n_bytes;
    log_info("indexing %s", store_uri(copy->store));
    int r = index_build(copy->store, false, NULL, NULL, &bytes, &n_bytes, err);
    if (r < 0)
        return r;
    r = file_write(path, bytes, n_bytes, FILE_SYNC, err);
    if (r == 0)
        return index_map(path, source, ret, err);
    Error why = *err;
    *err = ERROR_INIT;
    r = begin_copy(copy, ret, err);
    if (r != 0)
        return MIN(r, 0);
    if (!copy->cache)
        log_warning("%s; every start makes the compact index again, as long as neither sdprep "
                    "index, as a user who may write there, nor data.cache_dir keeps it",
                    why.text);
    r = put_bytes(copy, bytes, n_bytes, ret, err);
    end_copy(copy, r);
    return r;
}

static int check_json(Store *store, Hash found, const NotedHash *noted, Error *err)
{
    char name[512];
    (void)snprintf(name, sizeof(name), "%.480s/index.json", store_uri(store));
    return index_check_source(name, found, noted, err);
}

static int open_local(Store *store, const char *path, Cache *cache, const NotedHash *noted,
                      Index **ret, Error *err)
{
    char json[PATH_MAX], hash[HASH_TEXT_BYTES];
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    int r = store_local_path(store, "index.json", json, sizeof(json), err);
    if (r == 0)
        r = no_dataset(store, file_read(json, SIZE_MAX / 2, &text, &n_bytes, err), err);
    if (r < 0)
        return r;
    const Hash source = hash_bytes(text, n_bytes);
    /* An index.json that has changed is refused before an index is built. */
    r = check_json(store, source, noted, err);
    if (r < 0)
        return r;
    Error why = ERROR_INIT;
    r = index_map(path, &source, ret, &why);
    if (r == 0)
        return 0;
    if (r != -ENOENT)
        log_warning("%s", why.text);

    _cleanup_(cache_freep) Cache *of_service = cache ? NULL : cache_of_service();
    Copy copy = {.store = store,
                 .cache = cache ? cache : of_service,
                 .of_service = of_service != NULL,
                 .fd = -EBADF};
    (void)index_cache_name(store, hash_format(source, hash), copy.name);
    if (copy.cache && open_copy(&copy, ret) > 0)
        return 0;
    return build_and_keep(&copy, path, &source, ret, err);
}

int index_open_noted(Store *store, Cache *cache, const NotedHash *noted, Index **ret, Error *err)
{
    char path[PATH_MAX];
    _cleanup_(index_freep) Index *index = NULL;
    int r = store_local_path(store, INDEX_NAME, path, sizeof(path), NULL) == 0
                ? open_local(store, path, cache, noted, &index, err)
                : open_elsewhere(store, cache, &index, err);
    if (r == 0)
        r = check_json(store, index_source(index), noted, err);
    if (r == 0)
        *ret = TAKE_PTR(index);
    return r;
}

int index_open(Store *store, Cache *cache, Index **ret, Error *err)
{
    return index_open_noted(store, cache, NULL, ret, err);
}

/* ---- beside index.json ---- */

static int replace(Store *store, const char *key, const char *bytes, size_t n_bytes, Error *err)
{
    struct iovec part = {(void *)(uintptr_t)bytes, n_bytes};
    int r = store_delete(store, key, err);
    return r < 0 ? r : store_put(store, key, &part, 1, 0, err);
}

/* Deletes the old INDEX_ORIGIN first, so that no reader takes the new index for the index of another index.json. */
static int put_beside(Store *store, const char *bytes, size_t n_bytes, const char *version,
                      Index **ret, Error *err)
{
    Copy copy = {.store = store, .fd = -EBADF};
    _cleanup_(index_freep) Index *index = NULL;
    int r = leave_cache(&copy, err);
    if (r == 0)
        r = put_bytes(&copy, bytes, n_bytes, &index, err);
    end_copy(&copy, r);
    if (r < 0)
        return r;
    IndexOrigin origin = {.source = index_source(index)};
    (void)snprintf(origin.version, sizeof(origin.version), "%s", version);
    _cleanup_free_ char *text = NULL;
    r = index_origin_format(&origin, &text, err);
    if (r == 0)
        r = store_delete(store, INDEX_ORIGIN, err);
    if (r == 0)
        r = replace(store, INDEX_NAME, bytes, n_bytes, err);
    if (r == 0)
        r = replace(store, INDEX_ORIGIN, text, strlen(text), err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(index);
    return 0;
}

int index_make(Store *store, bool sample_hashes, IndexProgress progress, void *context, Index **ret,
               Error *err)
{
    _cleanup_free_ char *bytes = NULL;
    size_t n_bytes;
    char path[PATH_MAX], version[STORE_VERSION_MAX];
    /* The version is read first: if index.json changes meanwhile, INDEX_ORIGIN names a version that no longer
     * exists. */
    int r = no_dataset(store, store_version(store, "index.json", version, err), err);
    if (r == 0)
        r = index_build(store, sample_hashes, progress, context, &bytes, &n_bytes, err);
    if (r < 0)
        return r;
    if (store_local_path(store, INDEX_NAME, path, sizeof(path), NULL) < 0)
        return put_beside(store, bytes, n_bytes, version, ret, err);
    r = file_write(path, bytes, n_bytes, FILE_SYNC, err);
    return r < 0 ? r : index_map(path, NULL, ret, err);
}
