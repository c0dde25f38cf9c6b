/* SPDX-License-Identifier: Apache-2.0 */
/* local.c - see local.h.
 *
 * A save reserves its space with a sparse file of the same size, which shrinks as the copies grow. Each rank of a node
 * counts the sizes of all files under the lock, so that all ranks together stay below max_bytes.
 *
 * Fault points: checkpoint.local (each copy).
 */
#include "trainer/checkpoint/local.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/number/hash.h"
#include "manifest/manifest-internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

enum {
    LOCK_TRIES = 100,
    LOCK_PAUSE_MSEC = 10,
};

struct CheckpointLocal {
    char *root;
    uint64_t max_bytes;
    char folder[CHECKPOINT_FOLDER_MAX]; /* folder of the save in progress */
    int aside_fd;                       /* the sparse file that reserves the save's space */
    char *aside;
    uint64_t aside_bytes;
};

int checkpoint_local_new(const char *dir, uint64_t max_bytes, const char *store_uri,
                         CheckpointLocal **ret, Error *err)
{
    CheckpointLocal *local = calloc(1, sizeof(*local));
    if (!local)
        return error_set(err, -ENOMEM, "out of memory");
    local->aside_fd = -EBADF;
    local->max_bytes = max_bytes;
    const uint64_t which = hash64_bytes(store_uri, strlen(store_uri), 0);
    if (asprintf(&local->root, "%s/%016llx", dir, (unsigned long long)which) < 0) {
        free(local);
        return error_set(err, -ENOMEM, "out of memory");
    }
    *ret = local;
    return 0;
}

CheckpointLocal *checkpoint_local_free(CheckpointLocal *local)
{
    if (!local)
        return NULL;
    if (local->aside)
        checkpoint_local_end(local, false);
    free(local->root);
    free(local);
    return NULL;
}

static int path_of(const CheckpointLocal *local, const char *key, char path[static PATH_MAX],
                   Error *err)
{
    if (snprintf(path, PATH_MAX, "%s/%s", local->root, key) >= PATH_MAX)
        return error_set(err, -ENAMETOOLONG, "%s/%s is too long a path", local->root, key);
    return 0;
}

/* ---- restore ---- */

int checkpoint_local_has(const CheckpointLocal *local, const char *key, uint64_t n_bytes)
{
    char path[PATH_MAX];
    struct stat st;
    if (!local || path_of(local, key, path, NULL) < 0 || stat(path, &st) < 0)
        return 0;
    return S_ISREG(st.st_mode) && (uint64_t)st.st_size == n_bytes ? 1 : -EBADMSG;
}

int checkpoint_local_read(const CheckpointLocal *local, const char *key, uint64_t offset,
                          size_t n_bytes, void *to, Error *err)
{
    char path[PATH_MAX];
    int r = path_of(local, key, path, err);
    if (r < 0)
        return r;
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    r = fd < 0 ? -errno : fd_read_all(fd, to, n_bytes, offset);
    return r < 0 ? error_errno(err, r, "cannot read %s", path) : 0;
}

void checkpoint_local_drop(const CheckpointLocal *local, const char *key)
{
    char path[PATH_MAX];
    if (local && path_of(local, key, path, NULL) == 0)
        (void)unlink(path); /* if this fails, the next reader finds the bad copy again */
}

/* ---- one copy ---- */

int local_file_open(const CheckpointLocal *local, const char *key, LocalFile *ret, Error *err)
{
    char path[PATH_MAX];
    *ret = LOCAL_FILE_INIT;
    int r = path_of(local, key, path, err);
    if (r == 0)
        r = fault("checkpoint.local");
    if (r < 0)
        return error_errno(err, r, "cannot write %s/%s", local->root, key);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    r = folder_make(path, err);
    *slash = '/';
    if (r < 0)
        return r;
    if (asprintf(&ret->path, "%s.tmp-XXXXXX", path) < 0) {
        ret->path = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    ret->fd = mkostemp(ret->path, O_CLOEXEC);
    if (ret->fd < 0) {
        r = error_errno(err, -errno, "cannot create %s", ret->path);
        free(TAKE_PTR(ret->path));
        return r;
    }
    return 0;
}

int local_file_write(LocalFile *file, const void *data, size_t n_bytes, Error *err)
{
    int r = fd_write_all(file->fd, data, n_bytes);
    return r < 0 ? error_errno(err, r, "cannot write %s", file->path) : 0;
}

int local_file_close(LocalFile *file, bool keep, Error *err)
{
    if (!file->path)
        return 0;
    int r = 0;
    _cleanup_free_ char *name = strdup(file->path);
    if (keep && name) {
        name[strlen(name) - strlen(".tmp-XXXXXX")] = '\0';
        r = rename(file->path, name) < 0 ? -errno : 0;
    }
    if (!keep || !name || r < 0)
        (void)unlink(file->path); /* if this fails, the file is removed with its folder */
    file->fd = fd_close(file->fd);
    free(TAKE_PTR(file->path));
    return r < 0 ? error_errno(err, r, "cannot write %s", name) : 0;
}

/* ---- room ---- */

/* Locks the root. Returns -EBUSY if another rank holds the lock for one second. */
static int lock_root(const CheckpointLocal *local)
{
    char path[PATH_MAX];
    int r = path_of(local, "lock", path, NULL);
    if (r < 0)
        return r;
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (tries == LOCK_TRIES)
            return -EBUSY;
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_MSEC * 1000000L}, NULL);
    }
    return TAKE_FD(fd);
}

static bool is_kept(const char *name, const char (*keep)[CHECKPOINT_FOLDER_MAX], size_t n_keep)
{
    for (size_t i = 0; i < n_keep; i++)
        if (strcmp(name, keep[i]) == 0)
            return true;
    return false;
}

/* Removes all checkpoints except those in keep. */
static void remove_others(const CheckpointLocal *local, const char (*keep)[CHECKPOINT_FOLDER_MAX],
                          size_t n_keep)
{
    DIR *dir = opendir(local->root);
    CheckpointName name;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[PATH_MAX];
        if (checkpoint_name_parse(e->d_name, &name) == 0 && !is_kept(e->d_name, keep, n_keep) &&
            path_of(local, e->d_name, path, NULL) == 0)
            (void)folder_remove(path, NULL); /* the bytes of a folder that remains count, too */
    }
    if (dir)
        (void)closedir(dir); /* cannot fail: opened only for reading */
}

static int count_bytes(const CheckpointLocal *local, uint64_t *ret)
{
    char *const paths[] = {local->root, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (!tree)
        return -errno;
    uint64_t n_bytes = 0;
    for (FTSENT *e; (e = fts_read(tree));)
        if (e->fts_info == FTS_F)
            n_bytes += (uint64_t)e->fts_statp->st_size;
    (void)fts_close(tree); /* cannot fail: opened only for reading */
    *ret = n_bytes;
    return 0;
}

void checkpoint_local_tidy(const CheckpointLocal *local, const Manifest *latest)
{
    char keep[2][CHECKPOINT_FOLDER_MAX];
    _cleanup_fd_ int lock = lock_root(local);
    if (lock < 0)
        return; /* nothing is removed now: there are no copies, or the next save removes them */
    checkpoint_name_format(&latest->name, keep[0]);
    memcpy(keep[1], latest->n_committed ? latest->committed[latest->n_committed - 1] : keep[0],
           sizeof(keep[1]));
    remove_others(local, (const char(*)[CHECKPOINT_FOLDER_MAX])keep, ELEMENTSOF(keep));
}

/* Reserves n_bytes: makes a sparse file of this size in the save's folder. count_bytes() counts the sparse file in
 * place of the copies that will be written. */
static int set_aside(CheckpointLocal *local, uint64_t n_bytes)
{
    char path[PATH_MAX];
    if (asprintf(&local->aside, "%s/%s/.aside-XXXXXX", local->root, local->folder) < 0) {
        local->aside = NULL;
        return -ENOMEM;
    }
    int r = path_of(local, local->folder, path, NULL);
    if (r == 0)
        r = folder_make(path, NULL);
    if (r < 0)
        return r;
    local->aside_fd = mkostemp(local->aside, O_CLOEXEC);
    if (local->aside_fd < 0 || ftruncate(local->aside_fd, (off_t)n_bytes) < 0)
        return -errno;
    local->aside_bytes = n_bytes;
    return 0;
}

int checkpoint_local_begin(CheckpointLocal *local, const char (*keep)[CHECKPOINT_FOLDER_MAX],
                           size_t n_keep, uint64_t n_bytes, Error *err)
{
    assert(!local->aside && n_keep > 0);
    int r = folder_make_private(local->root, err);
    if (r < 0)
        return r;
    _cleanup_fd_ int lock = lock_root(local);
    if (lock < 0)
        return error_errno(err, lock, "cannot lock %s", local->root);

    remove_others(local, keep, n_keep);
    uint64_t used = 0;
    r = count_bytes(local, &used);
    if (r < 0)
        return error_errno(err, r, "cannot count %s", local->root);
    if (used > local->max_bytes || n_bytes > local->max_bytes - used)
        return error_set(
            err, -ENOSPC,
            "%s holds %llu bytes, %llu more would be above checkpoint.local_bytes %llu",
            local->root, (unsigned long long)used, (unsigned long long)n_bytes,
            (unsigned long long)local->max_bytes);
    (void)snprintf(local->folder, sizeof(local->folder), "%s", keep[n_keep - 1]);
    r = set_aside(local, n_bytes);
    if (r < 0) {
        checkpoint_local_end(local, false);
        return error_errno(err, r, "cannot set %llu bytes aside in %s", (unsigned long long)n_bytes,
                           local->root);
    }
    return 0;
}

int checkpoint_local_put(CheckpointLocal *local, const char *key, const struct iovec *parts,
                         size_t n_parts, Error *err)
{
    assert(local->aside);
    LocalFile file;
    uint64_t n_bytes = 0;
    int r = local_file_open(local, key, &file, err);
    for (size_t i = 0; r == 0 && i < n_parts; i++) {
        r = local_file_write(&file, parts[i].iov_base, parts[i].iov_len, err);
        n_bytes += parts[i].iov_len;
    }
    int q = local_file_close(&file, r == 0, r == 0 ? err : NULL);
    r = r < 0 ? r : q;
    if (r == 0) {
        local->aside_bytes -= MIN(local->aside_bytes, n_bytes);
        if (ftruncate(local->aside_fd, (off_t)local->aside_bytes) < 0)
            return error_errno(err, -errno, "cannot shrink %s", local->aside);
    }
    return r;
}

void checkpoint_local_forget(const CheckpointLocal *local, const char *folder)
{
    char path[PATH_MAX];
    if (*folder && path_of(local, folder, path, NULL) == 0)
        (void)folder_remove(path, NULL); /* copies that remain are removed before the next save */
}

void checkpoint_local_end(CheckpointLocal *local, bool success)
{
    if (local->aside && local->aside_fd >= 0)
        (void)unlink(local->aside); /* if this fails, the file is removed with its folder */
    local->aside_fd = fd_close(local->aside_fd);
    free(TAKE_PTR(local->aside));
    if (!success)
        checkpoint_local_forget(local, local->folder);
    *local->folder = '\0';
}

void checkpoint_local_clear(const CheckpointLocal *local)
{
    /* if this fails, the copies that remain are bounded in size, and nothing uses them */
    (void)folder_remove(local->root, NULL);
}
