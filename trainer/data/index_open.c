/* index_open.c - finds the compact index of a dataset, fetches it or has it made; see index.h. */
#include "base/file.h"
#include "base/log.h"
#include "trainer/data/cache.h"
#include "trainer/data/index.h"
#include "trainer/data/index_origin.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

enum {
    READ_BYTES = 1 << 20,
    FETCH_ATTEMPTS = 3,  /* of an index that comes corrupted */
    LOCK_WAIT_SEC = 900, /* while another rank of the node fetches or makes the same index */
};

static int keep_origin(const char *path, const IndexOrigin *origin, Error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = index_origin_format(origin, &text, err);
    return r < 0 ? r : file_write(path, text, strlen(text), FILE_SYNC, err);
}

static int no_dataset(Store *store, int r, Error *err)
{
    if (r != -ENOENT)
        return r;
    return error_set(err, r, "%s holds no MDS dataset: it has no index.json", store_uri(store));
}

/* ---- a dataset elsewhere ---- */

typedef struct Copy { /* where this node keeps the index */
    char path[PATH_MAX], part[PATH_MAX], origin[PATH_MAX], lock[PATH_MAX];
} Copy;

static int name_copy(Store *store, const char *cache_dir, Copy *ret, Error *err)
{
    char hash[HASH_TEXT_BYTES];
    const char *uri = store_uri(store);
    int n = snprintf(ret->lock, PATH_MAX, "%s/%s.index.origin", cache_dir,
                     hash_format(hash_bytes(uri, strlen(uri)), hash));
    if (n >= PATH_MAX)
        return error_set(err, -ENAMETOOLONG, "data.cache_dir: %.100s... is too long a path",
                         cache_dir);
    (void)snprintf(ret->path, PATH_MAX, "%s/%s.index", cache_dir, hash);
    (void)snprintf(ret->part, PATH_MAX, "%s/%s.index.part", cache_dir, hash);
    (void)snprintf(ret->lock, PATH_MAX, "%s/%s.index.lock", cache_dir, hash);
    (void)snprintf(ret->origin, PATH_MAX, "%s/%s.index.origin", cache_dir, hash);
    return folder_make(cache_dir, err);
}

/* 1: the copy is there and of this version. */
static int open_copy(const Copy *copy, const char *version, Index **ret)
{
    _cleanup_free_ char *text = NULL;
    size_t n_bytes;
    IndexOrigin origin;
    Error err = ERROR_INIT;
    int r = file_read(copy->origin, INDEX_ORIGIN_MAX, &text, &n_bytes, &err);
    if (r == 0)
        r = index_origin_parse(copy->origin, text, n_bytes, &origin, &err);
    if (r == 0 && strcmp(origin.version, version) != 0)
        return 0;
    if (r == 0)
        r = index_map(copy->path, &origin.source, ret, &err);
    if (r < 0 && r != -ENOENT)
        log_warning("%s", err.text);
    return r == 0;
}

/* A file without a name. */
static int open_unnamed(void)
{
    const char *folder = getenv("TMPDIR");
    int fd = open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

static const char *path_of_fd(int fd, char path[64])
{
    (void)snprintf(path, 64, "/proc/self/fd/%d", fd);
    return path;
}

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

/* Of the store's index.json, which has this version: told by the dataset, else by its bytes. */
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

static int write_index(int fd, const char *bytes, size_t n_bytes, Store *store, Error *err)
{
    int r = ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0;
    if (r == 0)
        r = fd_write_all(fd, bytes, n_bytes);
    return r < 0 ? error_errno(err, r, "cannot keep the compact index of %s", store_uri(store)) : 0;
}

static int build_into(Store *store, int fd, Error *err)
{
    _cleanup_free_ char *bytes = NULL;
    size_t n_bytes;
    log_info("indexing %s; sdprep index would do it once for all nodes", store_uri(store));
    int r = index_build(store, false, NULL, NULL, &bytes, &n_bytes, err);
    return r < 0 ? r : write_index(fd, bytes, n_bytes, store, err);
}

/* The dataset's own, checked whole. -ENOENT: there is none; -ESTALE: it is of another index.json. */
static int fetch_once(Store *store, const Hash *source, int fd, const char *path, Index **ret,
                      Error *err)
{
    uint64_t n_bytes;
    int r = store_head(store, INDEX_NAME, &n_bytes, err);
    if (r == 0 && ftruncate(fd, 0) < 0)
        r = error_errno(err, -errno, "cannot keep %s/" INDEX_NAME, store_uri(store));
    if (r == 0)
        r = store_fetch(store, INDEX_NAME, n_bytes, fd, err);
    _cleanup_(index_freep) Index *index = NULL;
    if (r == 0)
        r = index_map(path, source, &index, err);
    if (r == 0)
        r = index_check(index, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(index);
    return 0;
}

/* 1; 0 when there is none that can be used. */
static int fetch_into(Store *store, const char *version, int fd, const char *path, Index **ret,
                      Error *err)
{
    uint64_t n_bytes;
    Hash source;
    int r = store_head(store, INDEX_NAME, &n_bytes, err);
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = find_source(store, version, &source, err);
    if (r < 0)
        return r;
    for (int attempt = 0; attempt < FETCH_ATTEMPTS; attempt++) {
        Error why = ERROR_INIT;
        r = fetch_once(store, &source, fd, path, ret, &why);
        if (r == 0)
            return 1;
        log_warning("%s/" INDEX_NAME ": %s", store_uri(store), why.text);
        if (r == -ENOENT || r == -ESTALE)
            return 0;
        if (r != -EBADMSG)
            return error_set(err, r, "%s", why.text);
    }
    return 0;
}

/* Fetched, or made of index.json, into a file that is this process's alone. */
static int obtain(Store *store, const char *version, int fd, const char *path, Index **ret,
                  Error *err)
{
    int r = fetch_into(store, version, fd, path, ret, err);
    if (r == 0)
        r = build_into(store, fd, err);
    else
        return MIN(r, 0);
    return r < 0 ? r : index_map(path, NULL, ret, err);
}

/* Under the copy's lock. */
static int make_copy(Store *store, const Copy *copy, const char *version, Index **ret, Error *err)
{
    if (open_copy(copy, version, ret) > 0)
        return 0; /* while we waited for the lock */
    _cleanup_fd_ int fd = open(copy->part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return error_errno(err, -errno, "cannot open %s", copy->part);
    _cleanup_(index_freep) Index *index = NULL;
    int r = obtain(store, version, fd, copy->part, &index, err);
    if (r == 0 && (fdatasync(fd) < 0 || rename(copy->part, copy->path) < 0))
        r = error_errno(err, -errno, "cannot keep %s", copy->path);
    if (r == 0) {
        IndexOrigin origin = {.source = index_source(index)};
        memcpy(origin.version, version, sizeof(origin.version));
        r = keep_origin(copy->origin, &origin, err);
    }
    if (r < 0) {
        (void)unlink(copy->part); /* it may have its name already */
        return r;
    }
    *ret = TAKE_PTR(index);
    return 0;
}

static int open_elsewhere(Store *store, const char *cache_dir, Index **ret, Error *err)
{
    char version[STORE_VERSION_MAX];
    int r = no_dataset(store, store_version(store, "index.json", version, err), err);
    if (r < 0)
        return r;
    if (!cache_dir) {
        char path[64];
        _cleanup_fd_ int fd = open_unnamed();
        if (fd < 0)
            return error_errno(err, fd, "%s: its compact index cannot be kept; set data.cache_dir",
                               store_uri(store));
        return obtain(store, version, fd, path_of_fd(fd, path), ret, err);
    }

    _cleanup_free_ Copy *copy = calloc(1, sizeof(*copy)); /* 16 KB */
    if (!copy)
        return error_set(err, -ENOMEM, "out of memory");
    r = name_copy(store, cache_dir, copy, err);
    if (r < 0 || open_copy(copy, version, ret) > 0)
        return r;
    _cleanup_fd_ int lock = cache_lock(copy->lock, LOCK_WAIT_SEC * USEC_PER_SEC);
    if (lock < 0)
        return error_errno(err, lock,
                           "cannot have %s, which another process holds to fetch or make an index",
                           copy->lock);
    return make_copy(store, copy, version, ret, err);
}

/* ---- a dataset in a local folder ---- */

/* Builds it and keeps it in the first folder that takes it. Ranks may do this at the same time:
 * each renames the same bytes into place. */
static int build_and_keep(Store *store, char (*paths)[PATH_MAX], size_t n_paths, const Hash *source,
                          Index **ret, Error *err)
{
    _cleanup_free_ char *bytes = NULL;
    size_t n_bytes;
    log_info("indexing %s", store_uri(store));
    int r = index_build(store, false, NULL, NULL, &bytes, &n_bytes, err);
    if (r < 0)
        return r;
    r = error_set(err, -EINVAL, "there is no local folder for it");
    for (size_t i = 0; i < n_paths; i++) {
        r = file_write(paths[i], bytes, n_bytes, FILE_SYNC, err);
        if (r == 0)
            return index_map(paths[i], source, ret, err);
    }
    return error_prefix(err, r, "%s: its compact index cannot be kept; set data.cache_dir",
                        store_uri(store));
}

static int open_local(Store *store, const char *path, const char *cache_dir, Index **ret,
                      Error *err)
{
    char json[PATH_MAX], paths[2][PATH_MAX];
    _cleanup_free_ char *text = NULL;
    size_t n_bytes, n_paths = 0;
    int r = store_local_path(store, "index.json", json, sizeof(json), err);
    if (r == 0)
        r = no_dataset(store, file_read(json, SIZE_MAX / 2, &text, &n_bytes, err), err);
    if (r < 0)
        return r;
    Hash source = hash_bytes(text, n_bytes);

    (void)snprintf(paths[n_paths++], PATH_MAX, "%s", path);
    if (cache_dir) {
        _cleanup_free_ Copy *copy = calloc(1, sizeof(*copy));
        if (!copy)
            return error_set(err, -ENOMEM, "out of memory");
        r = name_copy(store, cache_dir, copy, err);
        if (r < 0)
            return r;
        memcpy(paths[n_paths++], copy->path, PATH_MAX);
    }
    for (size_t i = 0; i < n_paths; i++) {
        r = index_map(paths[i], &source, ret, err);
        if (r == 0)
            return 0;
        if (r != -ENOENT)
            log_warning("%s", err ? err->text : "a compact index is not usable");
    }
    return build_and_keep(store, paths, n_paths, &source, ret, err);
}

int index_open(Store *store, const char *cache_dir, Index **ret, Error *err)
{
    char path[PATH_MAX];
    return store_local_path(store, INDEX_NAME, path, sizeof(path), NULL) == 0
               ? open_local(store, path, cache_dir, ret, err)
               : open_elsewhere(store, cache_dir, ret, err);
}

/* ---- beside index.json ---- */

static int replace(Store *store, const char *key, const char *bytes, size_t n_bytes, Error *err)
{
    struct iovec part = {(void *)(uintptr_t)bytes, n_bytes};
    int r = store_delete(store, key, err);
    return r < 0 ? r : store_put(store, key, &part, 1, 0, err);
}

/* The old origin goes first: nobody must take the new index for another's. */
static int put_beside(Store *store, const char *bytes, size_t n_bytes, const char *version,
                      Index **ret, Error *err)
{
    char path[64];
    _cleanup_(index_freep) Index *index = NULL;
    _cleanup_fd_ int fd = open_unnamed();
    int r = fd < 0 ? error_errno(err, fd, "cannot look at the compact index")
                   : write_index(fd, bytes, n_bytes, store, err);
    if (r == 0)
        r = index_map(path_of_fd(fd, path), NULL, &index, err);
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
    /* Before it is read: if it changes meanwhile, the origin tells of one that is no more. */
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
