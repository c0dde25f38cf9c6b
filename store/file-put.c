/* SPDX-License-Identifier: Apache-2.0 */
/* file-put.c - file://: how an object gets onto the disk.
 *
 * A put writes a temporary in the object's own folder, syncs it, gives it its name by link(2) (if
 * absent) or rename(2) and syncs the folder, so that a reader or a crash sees all of an object or
 * nothing. A deferred put skips the syncs and keeps the descriptors; flush syncs them together,
 * which lets the file system's journal commit once for all instead of once for each (64 objects of
 * 16 KB on ext4: 15 ms instead of 50).
 *
 * A folder on the way to an object may be new, whoever made it: a lock, another rank, a process that died
 * before it synced anything. So the first put below it syncs each name on the way, up to the root of the
 * file system, and the store remembers for which folders that is done.
 *
 * A put that loses its folder to a deletion makes it again.
 *
 * A temporary's name is ".put-", six characters by chance, and that of its object: whoever sweeps can
 * tell whose it is.
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
    FOLDER_TRIES = 16, /* of a put whose folder is deleted again and again */
};

static int sync_fd(int fd) { return fsync(fd) < 0 ? -errno : 0; }

int file_sync_folder(const char *folder)
{
    _cleanup_fd_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return sync_fd(fd);
}

/* Syncs a folder that may be on another kind of file system, which has no sync for folders. */
static int sync_folder_fd(int fd)
{
    int r = sync_fd(fd);
    return r == -EINVAL ? 0 : r;
}

/* ---- what waits for flush ---- */

/* Keeps fd; false when there is no room. */
static bool defer(FileStore *files, int fd, const char *folder)
{
    char *copy = folder ? strdup(folder) : NULL;
    bool kept = false;
    (void)pthread_mutex_lock(&files->lock); /* cannot fail for a default mutex */
    if ((copy || !folder) && files->n_deferred < DEFERRED_MAX) {
        files->deferred[files->n_deferred++] = (FileDeferred){.fd = fd, .folder = copy};
        kept = true;
    }
    (void)pthread_mutex_unlock(&files->lock); /* as above */
    if (!kept)
        free(copy);
    return kept;
}

/* The first sync makes the journal commit what all of them changed; the others find it done. */
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
        if (q < 0 && q != -ENOENT && r == 0) /* -ENOENT: what was put there was deleted since */
            r = error_errno(err, q, "cannot write folder %s to the disk", folder);
    }
    for (size_t i = 0; i < files->n_deferred; i++) {
        (void)fd_close(files->deferred[i].fd); /* synced, or reported */
        free(files->deferred[i].folder);
    }
    files->n_deferred = 0;
    for (size_t i = 0; i < files->n_known; i++)
        files->known[i].deferred = false;
    if (r < 0)
        files->n_known = 0;
    (void)pthread_mutex_unlock(&files->lock); /* as above */
    return r;
}

/* ---- the way to an object ---- */

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
    (void)pthread_mutex_unlock(&files->lock); /* as above */
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
    (void)pthread_mutex_unlock(&files->lock); /* as above */
}

void file_forget_folder(FileStore *files, const struct stat *st)
{
    const KnownFolder folder = {.device = st->st_dev, .inode = st->st_ino};
    (void)pthread_mutex_lock(&files->lock); /* cannot fail for a default mutex */
    KnownFolder *found = find_known(files, &folder);
    if (found)
        *found = (KnownFolder){0};
    (void)pthread_mutex_unlock(&files->lock); /* as above */
}

static int identify(int fd, KnownFolder *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = (KnownFolder){.device = st.st_dev, .inode = st.st_ino};
    return 0;
}

/* One folder of the way. *fd becomes its parent, *id the parent's; 1: go on there. */
static int sync_name(FileStore *files, int *fd, KnownFolder *id, StorePutFlags flags)
{
    KnownFolder above;
    _cleanup_fd_ int parent = openat(*fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) /* where we may not read, nobody like us has made a name */
        return errno == EACCES || errno == EPERM ? 0 : -errno;
    int r = identify(parent, &above);
    if (r < 0)
        return r;
    if (above.device != id->device || above.inode == id->inode)
        return 0; /* a file system begins here */
    int later = flags & STORE_DEFER ? fcntl(parent, F_DUPFD_CLOEXEC, 0) : -EBADF;
    if (later >= 0 && !defer(files, later, NULL))
        later = fd_close(later);
    r = later < 0 ? sync_folder_fd(parent) : 0;
    if (r < 0)
        return r;
    (void)fd_close(*fd); /* it was only looked at */
    *fd = TAKE_FD(parent);
    *id = above;
    return !is_known(files, id, flags);
}

/* Syncs the folder and those above it, whoever made them: their names are on the disk when it returns, or in
 * the list of what is deferred. */
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

/* mkdir -p. folder is changed and restored. */
static int make_folder(FileStore *files, char *folder)
{
    struct stat st;
    if (stat(folder, &st) == 0)
        return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;

    char *slash = strrchr(folder, '/');
    if (slash && slash != folder) { /* no child of / */
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

/* A new temporary in folder, which is made when it is not there, for an object of that name. */
static int open_temporary(FileStore *files, char *folder, const char *name,
                          char temporary[static PATH_MAX])
{
    const int n_name = (int)MIN(strlen(name), (size_t)(NAME_MAX - TEMPORARY_BYTES));
    for (int tries = 0; tries < FOLDER_TRIES; tries++) {
        int n = snprintf(temporary, PATH_MAX, "%s/" STORE_TEMPORARY "XXXXXX-%.*s", folder, n_name,
                         name);
        assert(n < PATH_MAX); /* store_open() leaves room for it */
        int fd = mkostemps(temporary, n_name + 1, O_CLOEXEC);
        if (fd >= 0)
            return fd;
        if (errno != ENOENT)
            return -errno;
        int r = make_folder(files, folder);
        if (r < 0 && r != -ENOENT) /* -ENOENT: a deletion took the parent meanwhile */
            return r;
    }
    return -EBUSY;
}

/* Makes the object visible. Then nothing is left to do but to sync, and a new one has replaced the old one. */
static int give_name(const char *temporary, const char *path, const char *folder,
                     StorePutFlags flags)
{
    int r = (flags & STORE_IF_ABSENT ? link(temporary, path) : rename(temporary, path)) < 0 ? -errno
                                                                                            : 0;
    if (r < 0 || (flags & STORE_IF_ABSENT))
        (void)unlink(temporary); /* a leftover is swept */
    if (r != -EEXIST)
        return r;
    /* Others build on an object that they find, and its writer may have died before its name was synced. */
    int q = file_sync_folder(folder);
    return q < 0 ? q : r;
}

static int sync_object(FileStore *files, int *fd, const char *folder, StorePutFlags flags)
{
    if (flags & STORE_DEFER) {
        /* Begins to write, waits for nothing; flush finds most of it done. A hint that may fail. */
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
        (void)unlink(temporary); /* a leftover is swept */
    else
        r = give_name(temporary, path, folder, flags);
    if (r == -EEXIST)
        return error_set(err, r, "%s/%s exists already", store->uri, key);
    if (r < 0)
        return error_errno(err, r, "cannot write %s/%s", store->uri, key);

    r = sync_object(files, &fd, folder, flags);
    if (r == 0)
        r = fault("store.put.after");
    /* Its name may yet be lost. One that has taken another's place is all that there is. */
    if (r < 0 && (flags & STORE_IF_ABSENT))
        (void)unlink(path); /* it is whole, if it stays */
    return r < 0 ? error_errno(err, r, "cannot write %s/%s", store->uri, key) : 0;
}
