/* SPDX-License-Identifier: Apache-2.0 */
/* file-put.c - file://: writes an object to the disk.
 *
 * A put writes a temporary file in the object's own folder, syncs it, gives it its name by link(2) (if
 * absent) or rename(2) and syncs the folder, so that a reader, also after a crash, sees the whole object or
 * nothing. A deferred put skips the syncs and keeps the descriptors; flush syncs them together,
 * which lets the file system's journal commit once for all objects instead of once for each (64 objects of
 * 16 KB on ext4: 15 ms instead of 50).
 *
 * A folder in the path of an object may be new and not synced yet: a lock, another rank, or a process that crashed may
 * have made it. So the first put below it syncs each name in the path, up to the root of the
 * file system, and the store remembers for which folders that is done.
 *
 * If a deletion removes the folder during a put, the put makes the folder again.
 *
 * The name of a temporary file is ".put-", six random characters, and the object's name, so that a sweep
 * knows the object that it belongs to.
 *
 * Fault points: store.put.before, store.put.half, store.put.after.
 */
#include "base/fault.h"
#include "base/file.h"
#include "store/file-internal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum {
    FOLDER_TRIES = 16, /* tries of a put whose folder is deleted repeatedly */
};

static int sync_fd(int fd) { return fsync(fd) < 0 ? -errno : 0; }

int file_sync_folder(const char *folder)
{
    _cleanup_fd_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return sync_fd(fd);
}

/* Syncs a folder; succeeds without a sync if the file system does not support fsync of folders. */
static int sync_folder_fd(int fd)
{
    int r = sync_fd(fd);
    return r == -EINVAL ? 0 : r;
}

/* ---- deferred syncs ---- */

/* Keeps fd open until the next flush; returns false if there is no room for fd. */
static bool defer(FileStore *files, int fd, const char *folder)
{
    char *copy = folder ? strdup(folder) : NULL;
    bool kept = false;
    (void)pthread_mutex_lock(&files->lock); /* cannot fail for a default mutex */
    if ((copy || !folder) && files->n_deferred < DEFERRED_MAX) {
        files->deferred[files->n_deferred++] = (FileDeferred){.fd = fd, .folder = copy};
        kept = true;
    }
    (void)pthread_mutex_unlock(&files->lock); /* cannot fail */
    if (!kept)
        free(copy);
    return kept;
}

/* Syncs all deferred descriptors. The first fsync makes the file system's journal commit the changes of all objects;
 * the other fsyncs find nothing to do. */
int file_flush(Store *store, Error *err)
{
    FileStore *files = file_store(store);
    int r = 0;

    (void)pthread_mutex_lock(&files->lock); /* cannot fail for a default mutex */
    for (size_t i = 0; i < files->n_deferred; i++) {
        const FileDeferred *d = &files->deferred[i];
        int q = d->folder ? sync_fd(d->fd) : sync_folder_fd(d->fd);
        if (q < 0 && r == 0)
            r = error_errno(err, q, "cannot write %s%s to the disk",
                            d->folder ? "an object in " : "the folders on the way to ",
                            d->folder ?: files->folder);
    }
    const char *synced = "";
    for (size_t i = 0; i < files->n_deferred; i++) {
        const char *folder = files->deferred[i].folder;
        if (!folder || strcmp(folder, synced) == 0)
            continue;
        synced = folder;
        int q = file_sync_folder(folder);
        if (q < 0 && q != -ENOENT && r == 0) /* -ENOENT: the folder was deleted since */
            r = error_errno(err, q, "cannot write folder %s to the disk", folder);
    }
    for (size_t i = 0; i < files->n_deferred; i++) {
        (void)fd_close(files->deferred[i].fd); /* fd was synced, or the failure was reported */
        free(files->deferred[i].folder);
    }
    files->n_deferred = 0;
    for (size_t i = 0; i < files->n_known; i++)
        files->known[i].deferred = false;
    if (r < 0)
        files->n_known = 0;
    (void)pthread_mutex_unlock(&files->lock); /* cannot fail */
    return r;
}

/* ---- the path of an object ---- */

static KnownFolder *find_known(FileStore *files, const KnownFolder *folder)
{
    for (size_t i = 0; i < files->n_known; i++)
        if (files->known[i].device == folder->device && files->known[i].inode == folder->inode)
            return &files->known[i];
    return NULL;
}

static bool is_known(FileStore *files, const KnownFolder *folder, StorePutFlags flags)
{
    (void)pthread_mutex_lock(&files->lock); /* cannot fail for a default mutex */
    const KnownFolder *found = find_known(files, folder);
    bool known = found && (!found->deferred || (flags & STORE_DEFER));
    (void)pthread_mutex_unlock(&files->lock); /* cannot fail */
    return known;
}

static void know(FileStore *files, const KnownFolder *folder, StorePutFlags flags)
{
    (void)pthread_mutex_lock(&files->lock); /* cannot fail for a default mutex */
    KnownFolder *at = find_known(files, folder);
    if (!at && files->n_known < KNOWN_MAX)
        at = &files->known[files->n_known++];
    if (!at)
        at = &files->known[files->next_known++ % KNOWN_MAX];
    *at = *folder;
    at->deferred = (flags & STORE_DEFER) != 0;
    (void)pthread_mutex_unlock(&files->lock); /* cannot fail */
}

void file_forget_folder(FileStore *files, const struct stat *st)
{
    const KnownFolder folder = {.device = st->st_dev, .inode = st->st_ino};
    (void)pthread_mutex_lock(&files->lock); /* cannot fail for a default mutex */
    KnownFolder *found = find_known(files, &folder);
    if (found)
        *found = (KnownFolder){0};
    (void)pthread_mutex_unlock(&files->lock); /* cannot fail */
}

static int identify(int fd, KnownFolder *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = (KnownFolder){.device = st.st_dev, .inode = st.st_ino};
    return 0;
}

/* Syncs the name of the folder *fd in its parent, then makes *fd and *id those of the parent. Returns 1 if the parent's
 * name must be synced next, 0 if not, or -errno. */
static int sync_name(FileStore *files, int *fd, KnownFolder *id, StorePutFlags flags)
{
    KnownFolder above;
    _cleanup_fd_ int parent = openat(*fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) {
        /* Without read access only the whole file system can be synced, with the names further up. */
        const bool closed = errno == EACCES || errno == EPERM;
        return closed && syncfs(*fd) == 0 ? 0 : -errno;
    }
    int r = identify(parent, &above);
    if (r < 0)
        return r;
    if (above.device != id->device || above.inode == id->inode)
        return 0; /* the folder is the root of a file system */
    int later = flags & STORE_DEFER ? fcntl(parent, F_DUPFD_CLOEXEC, 0) : -EBADF;
    if (later >= 0 && !defer(files, later, NULL))
        later = fd_close(later);
    r = later < 0 ? sync_folder_fd(parent) : 0;
    if (r < 0)
        return r;
    (void)fd_close(*fd); /* the folder was only read */
    *fd = TAKE_FD(parent);
    *id = above;
    return !is_known(files, id, flags);
}

/* Syncs the names of the folder and of all folders above it, whoever made them. When the function returns, the names
 * are on the disk, or in the list of deferred syncs. */
static int sync_way(FileStore *files, const char *folder, StorePutFlags flags)
{
    KnownFolder id, first = {0};
    _cleanup_fd_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : identify(fd, &first);
    if (r < 0)
        return r;
    if (is_known(files, &first, flags))
        return 0;
    id = first;
    for (int depth = 0; depth < PATH_MAX && (r = sync_name(files, &fd, &id, flags)) > 0;)
        depth++;
    if (r == 0)
        know(files, &first, flags);
    return MIN(r, 0);
}

/* Works like mkdir -p. Changes the text `folder`, and restores it before returning. */
static int make_folder(FileStore *files, char *folder)
{
    struct stat st;
    if (stat(folder, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;

    char *slash = strrchr(folder, '/');
    if (slash && slash != folder) { /* the parent / always exists */
        *slash = '\0';
        int r = make_folder(files, folder);
        *slash = '/';
        if (r < 0)
            return r;
    }
    if (mkdir(folder, 0755) < 0)
        return errno == EEXIST ? 0 : -errno;
    if (stat(folder, &st) == 0)
        file_forget_folder(files, &st);
    return 0;
}

/* ---- put ---- */

static int write_range(int fd, const struct iovec *parts, size_t n_parts, uint64_t from,
                       uint64_t to)
{
    uint64_t begin = 0;
    for (size_t i = 0; i < n_parts && begin < to; i++) {
        uint64_t end = begin + parts[i].iov_len;
        uint64_t first = MAX(from, begin), last = MIN(to, end);
        if (first < last) {
            int r = fd_write_all(fd, (const char *)parts[i].iov_base + (first - begin),
                                 (size_t)(last - first));
            if (r < 0)
                return r;
        }
        begin = end;
    }
    return 0;
}

static int write_parts(int fd, const struct iovec *parts, size_t n_parts)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < n_parts; i++)
        n_bytes += parts[i].iov_len;

    int r = write_range(fd, parts, n_parts, 0, n_bytes / 2);
    if (r == 0)
        r = fault("store.put.half");
    if (r == 0)
        r = write_range(fd, parts, n_parts, n_bytes / 2, n_bytes);
    return r;
}

/* Makes a temporary file for the object `name` in folder, and makes the folder if it does not exist. Returns the
 * file's descriptor or -errno. */
static int open_temporary(FileStore *files, char *folder, const char *name,
                          char temporary[static PATH_MAX])
{
    const int n_name = (int)MIN(strlen(name), (size_t)(NAME_MAX - TEMPORARY_BYTES));
    for (int tries = 0; tries < FOLDER_TRIES; tries++) {
        int n = snprintf(temporary, PATH_MAX, "%s/" STORE_TEMPORARY "XXXXXX-%.*s", folder, n_name,
                         name);
        assert(n < PATH_MAX); /* store_open() leaves room for the name */
        int fd = mkostemps(temporary, n_name + 1, O_CLOEXEC);
        if (fd >= 0)
            return fd;
        if (errno != ENOENT)
            return -errno;
        int r = make_folder(files, folder);
        if (r < 0 && r != -ENOENT) /* -ENOENT: the parent was deleted meanwhile */
            return r;
    }
    return -EBUSY;
}

/* Makes the object visible under its name; rename() replaces an old object. Only the sync of the
 * folder is left to do. */
static int give_name(const char *temporary, const char *path, const char *folder,
                     StorePutFlags flags)
{
    int r = (flags & STORE_IF_ABSENT ? link(temporary, path) : rename(temporary, path)) < 0 ? -errno
                                                                                            : 0;
    if (r < 0 || (flags & STORE_IF_ABSENT))
        (void)unlink(temporary); /* a leftover is removed by a sweep */
    if (r != -EEXIST)
        return r;
    /* The object exists, and the caller may rely on that. But the object's writer may have crashed before it synced the
     * name, so the name is synced here. */
    int q = file_sync_folder(folder);
    return q < 0 ? q : r;
}

static int sync_object(FileStore *files, int *fd, const char *folder, StorePutFlags flags)
{
    if (flags & STORE_DEFER) {
        /* Starts to write the file's data without waiting, so that the flush has little left to write. This call is
         * only a hint, which may fail. */
        (void)sync_file_range(*fd, 0, 0, SYNC_FILE_RANGE_WRITE);
        if (defer(files, *fd, folder)) {
            *fd = -EBADF;
            return 0;
        }
        int r = sync_fd(*fd);
        if (r < 0)
            return r;
    }
    return file_sync_folder(folder);
}

int file_put(Store *store, const char *key, const struct iovec *parts, size_t n_parts,
             StorePutFlags flags, Error *err)
{
    FileStore *files = file_store(store);
    char path[PATH_MAX], folder[PATH_MAX], temporary[PATH_MAX];
    file_path(files, key, path);
    memcpy(folder, path, sizeof(folder));
    *strrchr(folder, '/') = '\0';

    int r = fault("store.put.before");
    if (r < 0)
        return file_refuse(store, key, r, "write", err);

    _cleanup_fd_ int fd = open_temporary(files, folder, strrchr(path, '/') + 1, temporary);
    if (fd < 0)
        return error_errno(err, fd, "cannot write %s/%s", store->uri, key);

    r = fchmod(fd, 0644) < 0 ? -errno : 0;
    if (r == 0)
        r = write_parts(fd, parts, n_parts);
    if (r == 0 && !(flags & STORE_DEFER))
        r = sync_fd(fd);
    if (r == 0)
        r = sync_way(files, folder, flags);
    if (r < 0)
        (void)unlink(temporary); /* a leftover is removed by a sweep */
    else
        r = give_name(temporary, path, folder, flags);
    if (r == -EEXIST)
        return error_set(err, r, "%s/%s exists already", store->uri, key);
    if (r < 0)
        return error_errno(err, r, "cannot write %s/%s", store->uri, key);

    r = sync_object(files, &fd, folder, flags);
    if (r == 0)
        r = fault("store.put.after");
    /* The new name may still be lost, so remove it. An object that replaced an older object is
     * kept: it is the only copy. */
    if (r < 0 && (flags & STORE_IF_ABSENT))
        (void)unlink(path); /* if this fails, the file stays: it is whole */
    return r < 0 ? error_errno(err, r, "cannot write %s/%s", store->uri, key) : 0;
}
