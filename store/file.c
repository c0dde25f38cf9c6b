/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - file://: each object is a file; file-put.c writes it.
 *
 * A deletion also removes the folders that it leaves empty; a put that loses its folder this way makes the folder
 * again. A single deletion is synced; the deletions of delete_many() are not.
 */
#include "base/file.h"
#include "base/clock.h"
#include "store/file-internal.h"

#include <fcntl.h>

enum { DEPTH_MAX = 32 }; /* maximum depth of folders; deeper folders mean a loop of links */

int file_refuse(const Store *store, const char *key, int r, const char *what, Error *err)
{
    if (r == -ENOENT || r == -ENOTDIR)
        return error_set(err, -ENOENT, "%s/%s: no such object", store->uri, key);
    return error_errno(err, r, "cannot %s %s/%s", what, store->uri, key);
}

/* ---- get, head ---- */

static int open_object(Store *store, const char *key, uint64_t *ret_bytes, Error *err)
{
    char path[PATH_MAX];
    file_path(file_store(store), key, path);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block */
    if (fd < 0)
        return file_refuse(store, key, -errno, "read", err);

    struct stat st;
    if (fstat(fd, &st) < 0)
        return file_refuse(store, key, -errno, "read", err);
    if (!S_ISREG(st.st_mode))
        return file_refuse(store, key, -ENOENT, "read", err);
    *ret_bytes = (uint64_t)st.st_size;
    return TAKE_FD(fd);
}

static int get(Store *store, const char *key, size_t max_bytes, char **ret, size_t *ret_bytes,
               Error *err)
{
    uint64_t n_bytes;
    _cleanup_fd_ int fd = open_object(store, key, &n_bytes, err);
    if (fd < 0)
        return fd;
    if (n_bytes > max_bytes)
        return error_set(err, -EFBIG, "%s/%s has %llu bytes, more than the %zu read at most",
                         store->uri, key, (unsigned long long)n_bytes, max_bytes);

    _cleanup_free_ char *data = malloc((size_t)n_bytes + 1);
    if (!data)
        return error_set(err, -ENOMEM, "out of memory reading %s/%s", store->uri, key);
    int r = fd_read_all(fd, data, (size_t)n_bytes, 0);
    if (r < 0)
        return file_refuse(store, key, r, "read", err);
    data[n_bytes] = '\0';

    *ret = TAKE_PTR(data);
    if (ret_bytes)
        *ret_bytes = (size_t)n_bytes;
    return 0;
}

static int get_range(Store *store, const char *key, uint64_t offset, size_t n_bytes, void *buffer,
                     Error *err)
{
    uint64_t size;
    _cleanup_fd_ int fd = open_object(store, key, &size, err);
    if (fd < 0)
        return fd;
    if (offset > size || n_bytes > size - offset)
        return error_set(err, -EIO, "%s/%s has %llu bytes, %zu were to be read from byte %llu",
                         store->uri, key, (unsigned long long)size, n_bytes,
                         (unsigned long long)offset);
    int r = fd_read_all(fd, buffer, n_bytes, offset);
    return r < 0 ? file_refuse(store, key, r, "read", err) : 0;
}

static int file_head(Store *store, const char *key, uint64_t *ret_bytes, Error *err)
{
    char path[PATH_MAX];
    file_path(file_store(store), key, path);
    struct stat st;
    if (stat(path, &st) < 0)
        return file_refuse(store, key, -errno, "stat", err);
    if (!S_ISREG(st.st_mode))
        return file_refuse(store, key, -ENOENT, "stat", err);
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

static void format_version(const struct stat *st, char ret[STORE_VERSION_MAX])
{
    (void)snprintf(ret, STORE_VERSION_MAX, "%llu-%lld.%09ld-%lld", (unsigned long long)st->st_ino,
                   (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (long long)st->st_size);
}

static int file_version(Store *store, const char *key, char ret[STORE_VERSION_MAX], Error *err)
{
    char path[PATH_MAX];
    file_path(file_store(store), key, path);
    struct stat st;
    if (stat(path, &st) < 0)
        return file_refuse(store, key, -errno, "stat", err);
    format_version(&st, ret);
    return 0;
}

static int file_local_path(Store *store, const char *key, char *ret, size_t size, Error *err)
{
    char path[PATH_MAX];
    file_path(file_store(store), key, path);
    if (strlen(path) >= size)
        return error_set(err, -ENAMETOOLONG, "%s: the path is too long", path);
    memcpy(ret, path, strlen(path) + 1);
    return 0;
}

/* ---- list ---- */

static uint64_t modified_usec(const struct stat *st)
{
    return (uint64_t)st->st_mtim.tv_sec * USEC_PER_SEC +
           (uint64_t)st->st_mtim.tv_nsec / NSEC_PER_USEC;
}

typedef struct FileListing {
    const FileStore *files;
    const char *prefix;
    size_t max, capacity;
    bool versions;
    StoreList list;
} FileListing;

static int listing_add(FileListing *l, const char *key, const struct stat *st, Error *err)
{
    if (l->list.n_objects == l->max)
        return error_set(err, -E2BIG, "%s/%s: more than %zu objects", l->files->store.uri,
                         l->prefix, l->max);
    l->list.objects =
        memory_grow(l->list.objects, l->list.n_objects, &l->capacity, sizeof(StoreObject));
    char version[STORE_VERSION_MAX];
    format_version(st, version);
    l->list.objects[l->list.n_objects++] =
        (StoreObject){.key = memory_text(key),
                      .n_bytes = (uint64_t)st->st_size,
                      .modified_usec = modified_usec(st),
                      .version = l->versions ? memory_text(version) : NULL};
    return 0;
}

static int list_folder(FileListing *l, const char *folder_key, int depth, Error *err);

static int list_entry(FileListing *l, int folder_fd, const char *folder_key, const char *name,
                      int depth, Error *err)
{
    char key[STORE_KEY_MAX + 1];
    int n = snprintf(key, sizeof(key), "%s%s%s", folder_key, *folder_key ? "/" : "", name);
    if (n >= (int)sizeof(key))
        return 0; /* no store wrote this file: keys are shorter */

    size_t common = MIN(strlen(key), strlen(l->prefix));
    if (strncmp(key, l->prefix, common) != 0)
        return 0;

    struct stat st;
    if (fstatat(folder_fd, name, &st, 0) < 0)
        return errno == ENOENT
                   ? 0
                   : error_errno(err, -errno, "cannot stat %s/%s", l->files->store.uri, key);
    if (S_ISDIR(st.st_mode))
        return list_folder(l, key, depth + 1, err);
    if (!S_ISREG(st.st_mode) || strlen(key) < strlen(l->prefix))
        return 0;
    return listing_add(l, key, &st, err);
}

static bool is_object_name(const char *name)
{
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strncmp(name, STORE_TEMPORARY, strlen(STORE_TEMPORARY)) != 0;
}

static int list_folder(FileListing *l, const char *folder_key, int depth, Error *err)
{
    char path[PATH_MAX];
    file_path(l->files, folder_key, path);
    if (depth > DEPTH_MAX)
        return error_set(err, -ELOOP, "%s: folders are more than %d deep", path, DEPTH_MAX);

    _cleanup_dir_ DIR *dir = opendir(path);
    if (!dir)
        return errno == ENOENT ? 0 : error_errno(err, -errno, "cannot list %s", path);

    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? error_errno(err, -errno, "cannot list %s", path) : 0;
        if (!is_object_name(entry->d_name))
            continue;
        int r = list_entry(l, dirfd(dir), folder_key, entry->d_name, depth, err);
        if (r < 0)
            return r;
    }
}

static int list(Store *store, const char *prefix, size_t max, bool versions, StoreList *ret,
                Error *err)
{
    FileListing l = {.files = file_store(store),
                     .prefix = prefix,
                     .max = max,
                     .versions = versions};

    /* Start in the deepest folder that the prefix names. */
    char folder_key[STORE_KEY_MAX + 1];
    (void)snprintf(folder_key, sizeof(folder_key), "%s", prefix);
    char *slash = strrchr(folder_key, '/');
    *(slash ? slash : folder_key) = '\0';

    int r = list_folder(&l, folder_key, 0, err);
    if (r < 0) {
        store_list_clear(&l.list);
        return r;
    }
    if (l.list.n_objects > 0)
        qsort(l.list.objects, l.list.n_objects, sizeof(*l.list.objects), store_compare_keys);
    *ret = l.list;
    return 0;
}

/* ---- delete, sweep ---- */

/* Removes an object. Returns 1 if it existed, 0 if not, or -errno. path becomes the folder from which the last name was
 * removed. */
static int remove_object(Store *store, const char *key, char path[static PATH_MAX], Error *err)
{
    FileStore *files = file_store(store);
    file_path(files, key, path);
    if (unlink(path) < 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return error_errno(err, -errno, "cannot remove %s/%s", store->uri, key);
        return 0;
    }
    for (;;) {
        struct stat st;
        *strrchr(path, '/') = '\0';
        if (strlen(path) <= strlen(files->folder) || stat(path, &st) < 0 || rmdir(path) < 0)
            return 1; /* rmdir() fails as intended: the folder is not empty */
        file_forget_folder(files, &st);
    }
}

static int delete (Store *store, const char *key, Error *err)
{
    char path[PATH_MAX];
    int r = remove_object(store, key, path, err);
    if (r <= 0)
        return r;
    r = file_sync_folder(path);
    if (r < 0 && r != -ENOENT) /* -ENOENT: another process removed the folder */
        return error_errno(err, r, "removed %s/%s, but not from the disk", store->uri, key);
    return 0;
}

static int delete_many(Store *store, const char *const *keys, size_t n_keys, Error *err)
{
    int first = 0;
    for (size_t i = 0; i < n_keys; i++) {
        char path[PATH_MAX];
        int r = remove_object(store, keys[i], path, first < 0 ? NULL : err);
        first = first < 0 ? first : MIN(r, 0);
    }
    return first;
}

typedef struct FileSweep {
    FileStore *files;
    uint64_t before_usec;
    StoreMayRemove may_remove;
    void *context;
    size_t removed;
} FileSweep;

/* Whether the caller allows the removal. end is "/" for a folder, "" for a file. */
static bool may_remove(const FileSweep *sweep, const char *folder, const char *name,
                       const char *end)
{
    char path[PATH_MAX];
    if (!sweep->may_remove)
        return true;
    if (!*end && strlen(name) > TEMPORARY_BYTES && name[TEMPORARY_BYTES - 1] == '-')
        name += TEMPORARY_BYTES;
    return snprintf(path, sizeof(path), "%s/%s%s", folder, name, end) < (int)sizeof(path) &&
           sweep->may_remove(sweep->context, path + strlen(sweep->files->folder) + 1);
}

/* Removes old temporary files and empty folders. A folder's time is read before its entries are removed, since a
 * removal updates the folder's time. */
static int sweep_folder(FileSweep *sweep, const char *folder, int depth, bool *ret_empty,
                        Error *err)
{
    if (depth > DEPTH_MAX)
        return error_set(err, -ELOOP, "%s: folders are more than %d deep", folder, DEPTH_MAX);
    *ret_empty = false;

    _cleanup_dir_ DIR *dir = opendir(folder);
    if (!dir)
        return errno == ENOENT ? 0 : error_errno(err, -errno, "cannot list %s", folder);

    bool empty = true;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        struct stat st;
        if (fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue; /* the entry was removed meanwhile */
        bool old = modified_usec(&st) <= sweep->before_usec;
        bool gone = false;
        if (S_ISDIR(st.st_mode)) {
            char path[PATH_MAX];
            if (snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path)) {
                int r = sweep_folder(sweep, path, depth + 1, &gone, err);
                if (r < 0)
                    return r;
                gone = gone && old && may_remove(sweep, folder, name, "/") &&
                       unlinkat(dirfd(dir), name, AT_REMOVEDIR) == 0;
                if (gone)
                    file_forget_folder(sweep->files, &st);
            }
        } else if (old && !is_object_name(name) && may_remove(sweep, folder, name, "")) {
            gone = unlinkat(dirfd(dir), name, 0) == 0;
        }
        sweep->removed += gone;
        empty = empty && gone;
    }
    *ret_empty = empty;
    return 0;
}

static int sweep(Store *store, uint64_t older_than_usec, StoreMayRemove may, void *context,
                 size_t *ret_removed, Error *err)
{
    uint64_t now = clock_realtime_usec();
    FileSweep s = {.files = file_store(store),
                   .before_usec = now > older_than_usec ? now - older_than_usec : 0,
                   .may_remove = may,
                   .context = context};
    bool empty;
    int r = sweep_folder(&s, s.files->folder, 0, &empty, err);
    *ret_removed = s.removed;
    return r;
}

/* ---- new, free ---- */

static Store *file_free(Store *store)
{
    FileStore *files = file_store(store);
    for (size_t i = 0; i < files->n_deferred; i++) {
        (void)fd_close(files->deferred[i].fd); /* the caller did not request a flush */
        free(files->deferred[i].folder);
    }
    (void)pthread_mutex_destroy(&files->lock); /* the lock is not held */
    free(files->folder);
    free(files);
    return NULL;
}

static const StoreBackend file_backend = {
    .free = file_free,
    .put = file_put,
    .flush = file_flush,
    .get = get,
    .get_range = get_range,
    .head = file_head,
    .list = list,
    .delete = delete,
    .delete_many = delete_many,
    .sweep = sweep,
    .local_path = file_local_path,
    .version = file_version,
};

Store *file_store_new(const char *folder)
{
    FileStore *files = memory_new(FileStore);
    files->store.backend = &file_backend;
    files->folder = memory_text(folder);
    (void)pthread_mutex_init(&files->lock, NULL); /* cannot fail with default attributes */
    return &files->store;
}
