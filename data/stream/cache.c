/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - see cache.h.
 *
 * Every function that counts the files or makes room among them holds the lock of the folder's ".lock" for the time of
 * one listing; so the bound holds for all processes that share the folder.
 *
 * Only files whose names have the cache's form are removed, and only in a folder that was claimed (MARKER). A folder
 * can be claimed only while it holds no other files; so a dataset whose folder is named as the cache by mistake keeps
 * its files.
 *
 * Fault points: cache.reserve, cache.commit. */
#include "data/stream/cache.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number/hash.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define PART ".part"
#define MARKER ".sdtrain-cache"

enum {
    PATH_ROOM = PATH_MAX + CACHE_NAME_MAX + 16,
    /* The longest wait for the folder's lock, which is held only for milliseconds. */
    FOLDER_WAIT_SEC = 5,
    OFF_SEC = 60,
};

struct Cache {
    char *folder;
    uint64_t bound;
    uint64_t off_until_usec; /* CLOCK_BOOTTIME; set after the folder failed */
};

typedef struct CacheFile {
    char name[CACHE_NAME_MAX + 1];
    uint64_t n_bytes;
    struct timespec used;
} CacheFile;

/* ---- the cache's own files ---- */

static const char *skip(const char *text, const char *what)
{
    return text + (strncmp(text, what, strlen(what)) == 0 ? strlen(what) : 0);
}

/* Recognizes <hash>-<number>.mds, <hash>-<number>.mds.zip and <hash>.index, each also with .part behind it. Other files
 * are never removed or counted. */
static bool is_own(const char *name, bool *ret_part)
{
    static const char hex[] = "0123456789abcdef", digits[] = "0123456789";
    const char *p = name + strspn(name, hex), *end;
    if (p - name != HASH_TEXT_BYTES - 1 || strlen(name) > CACHE_NAME_MAX)
        return false;
    if (*p == '-') {
        size_t n = strspn(++p, digits);
        end = skip(p + n, ".mds");
        if (n == 0 || end == p + n)
            return false;
        end = skip(end, ".zip");
    } else {
        end = skip(p, ".index");
        if (end == p)
            return false;
    }
    *ret_part = strcmp(end, PART) == 0;
    return *ret_part || *end == '\0';
}

/* Finds a file that is not the cache's. Folders (such as lost+found) and names that begin with a dot (such as the
 * cache's own lock) are ignored: they show nothing about the folder's use. */
static int find_stranger(int folder_fd, DIR *dir, char ret[NAME_MAX + 1])
{
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        bool part;
        if (e->d_name[0] == '.' || is_own(e->d_name, &part) ||
            fstatat(folder_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
            continue;
        (void)snprintf(ret, NAME_MAX + 1, "%s", e->d_name);
        return 1;
    }
    return 0;
}

/* Checks the folder's content. -EINVAL with a text: the folder has files of others. 1: the folder is a cache. 0: the
 * folder has no such files and may become a cache, or is missing. */
static int look_at_folder(const char *folder, Error *err)
{
    char name[NAME_MAX + 1];
    _cleanup_dir_ DIR *dir = opendir(folder);
    if (!dir)
        return 0; /* the folder is missing, or its first use will report the error */
    if (faccessat(dirfd(dir), "index.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, -EINVAL,
                         "data.cache_dir: %s holds an index.json: it is a dataset, and files of a "
                         "cache are removed",
                         folder);
    if (faccessat(dirfd(dir), MARKER, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    if (find_stranger(dirfd(dir), dir, name) == 0)
        return 0;
    return error_set(err, -EINVAL,
                     "data.cache_dir: %s holds %.80s and is not a cache (it has no " MARKER
                     "): give it a folder of its own",
                     folder, name);
}

int cache_new(const char *folder, uint64_t bound, Cache **ret, Error *err)
{
    if (strlen(folder) >= PATH_MAX - CACHE_NAME_MAX - 16)
        return error_set(err, -ENAMETOOLONG, "data.cache_dir: %.100s... is too long a path",
                         folder);
    int r = look_at_folder(folder, err);
    if (r < 0)
        return r;
    Cache *cache = calloc(1, sizeof(*cache));
    if (!cache || !(cache->folder = strdup(folder))) {
        free(cache);
        return error_set(err, -ENOMEM, "out of memory");
    }
    cache->bound = bound;
    *ret = cache;
    return 0;
}

Cache *cache_free(Cache *cache)
{
    if (!cache)
        return NULL;
    free(cache->folder);
    free(cache);
    return NULL;
}

static const char *path_of(const Cache *cache, const char *name, const char *suffix,
                           char path[PATH_ROOM])
{
    assert(strlen(name) + strlen(suffix) <= CACHE_NAME_MAX);
    (void)snprintf(path, PATH_ROOM, "%s/%s%s", cache->folder, name, suffix);
    return path;
}

static bool is_off(const Cache *cache)
{
    return cache->off_until_usec && clock_boottime_usec() < cache->off_until_usec;
}

void cache_failed(Cache *cache, int r)
{
    if (!is_off(cache))
        log_warning("data.cache_dir %s cannot be used, going on without it for %d s: %s",
                    cache->folder, OFF_SEC, strerror(-r));
    cache->off_until_usec = clock_boottime_usec() + OFF_SEC * USEC_PER_SEC;
}

int cache_lock(const char *path, uint64_t timeout_usec)
{
    static const struct timespec pause = {0, 2000000};
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    uint64_t until_usec = clock_boottime_usec() + timeout_usec;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            return -errno;
        if (clock_boottime_usec() >= until_usec)
            return -EBUSY;
        (void)nanosleep(&pause, NULL); /* a signal may shorten the pause */
    }
    return TAKE_FD(fd);
}

/* Claims the folder; called under its lock. The content is checked again, since another file system may have been
 * mounted over the folder after cache_new(). */
static int claim(const Cache *cache)
{
    char path[PATH_ROOM];
    int r = look_at_folder(cache->folder, NULL);
    if (r != 0)
        return r < 0 ? -ENOTEMPTY : 0;
    _cleanup_fd_ int fd =
        open(path_of(cache, "", MARKER, path), O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    return fd < 0 ? -errno : 0;
}

static int lock_folder(const Cache *cache)
{
    char path[PATH_ROOM];
    int r = cache_lock(path_of(cache, "", ".lock", path), FOLDER_WAIT_SEC * USEC_PER_SEC);
    if (r == -ENOENT) {
        r = folder_make_private(cache->folder, NULL);
        if (r == 0)
            r = cache_lock(path, FOLDER_WAIT_SEC * USEC_PER_SEC);
    }
    if (r < 0)
        return r;
    _cleanup_fd_ int fd = r;
    r = claim(cache);
    return r < 0 ? r : TAKE_FD(fd);
}

/* ---- making room; under the folder's lock ---- */

static int compare_used(const void *a, const void *b)
{
    const struct timespec *x = &((const CacheFile *)a)->used, *y = &((const CacheFile *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

/* Removes a part that has no lock: the process that filled it has died. A process creates and locks its part under the
 * folder's lock, which the caller holds. */
static bool clear_part(int folder_fd, const char *name)
{
    _cleanup_fd_ int fd = openat(folder_fd, name, O_RDWR | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(folder_fd, name, 0) == 0;
}

typedef struct CacheListing {
    CacheFile *files; /* whole files, the least recently used first */
    size_t n, next;
    uint64_t total; /* bytes of all files, parts included */
} CacheListing;

static int list_files(DIR *dir, const char *own, CacheListing *l)
{
    size_t room = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat st;
        bool part;
        if (!is_own(e->d_name, &part) || strcmp(e->d_name, own) == 0 ||
            (part && clear_part(dirfd(dir), e->d_name)) ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue; /* it is not a file of the cache, or was removed meanwhile */
        l->total += (uint64_t)st.st_size;
        if (part)
            continue;
        if (l->n == room) {
            room = MAX(2 * room, (size_t)64);
            CacheFile *grown = realloc(l->files, room * sizeof(*grown));
            if (!grown)
                return -ENOMEM;
            l->files = grown;
        }
        CacheFile *file = &l->files[l->n++];
        memcpy(file->name, e->d_name, strlen(e->d_name) + 1);
        file->n_bytes = (uint64_t)st.st_size;
        file->used = st.st_mtim;
    }
    if (l->n > 0)
        qsort(l->files, l->n, sizeof(l->files[0]), compare_used);
    return 0;
}

/* Removes the least recently used file that is not in use. Removing a file in use would free no space. */
static bool evict_one(DIR *dir, CacheListing *l)
{
    while (l->next < l->n) {
        const CacheFile *file = &l->files[l->next++];
        _cleanup_fd_ int fd = openat(dirfd(dir), file->name, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
            unlinkat(dirfd(dir), file->name, 0) == 0) {
            l->total -= file->n_bytes;
            return true;
        }
    }
    return false;
}

/* Reserves space on the disk, which may have less room than the bound allows. */
static int allocate(int fd, uint64_t n_bytes)
{
    int r = fault("cache.reserve");
    return r < 0 ? r : fd_reserve(fd, n_bytes);
}

static int make_room(const Cache *cache, const char *name, int fd, uint64_t n_bytes)
{
    CacheListing l = {0};
    char own[CACHE_NAME_MAX + 1];
    (void)snprintf(own, sizeof(own), "%s" PART, name);
    _cleanup_dir_ DIR *dir = opendir(cache->folder);
    int r = dir ? list_files(dir, own, &l) : -errno;
    while (r == 0 && cache->bound && l.total + n_bytes > cache->bound)
        if (!evict_one(dir, &l))
            r = -ENOBUFS; /* all remaining files are in use */
    if (r == 0)
        r = allocate(fd, n_bytes);
    while ((r == -ENOSPC || r == -EDQUOT) && evict_one(dir, &l))
        r = allocate(fd, n_bytes);
    free(l.files);
    return r;
}

/* ---- files ---- */

/* Sets the file's time of use, unless it is less than about a second old. A wrong time costs at most one more fetch. */
static void touch(int fd, const struct stat *st)
{
    if ((uint64_t)st->st_mtim.tv_sec + 1 < clock_realtime_usec() / USEC_PER_SEC)
        (void)futimens(fd, NULL);
}

int cache_open(Cache *cache, const char *name, uint64_t n_bytes)
{
    char path[PATH_ROOM];
    struct stat st;
    _cleanup_fd_ int fd = open(path_of(cache, name, "", path), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -ENOENT : -errno; /* another process is removing the file */
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || (n_bytes != CACHE_ANY && (uint64_t)st.st_size != n_bytes)) {
        (void)unlink(path); /* a process that needs the file fetches it again */
        return -ENOENT;
    }
    if (st.st_nlink == 0)
        return -ENOENT;
    touch(fd, &st);
    return TAKE_FD(fd);
}

/* Called under the folder's lock. */
static int resize(Cache *cache, const char *name, int fd, uint64_t n_bytes)
{
    if (ftruncate(fd, 0) < 0)
        return -errno;
    return n_bytes == CACHE_ANY ? 0 : make_room(cache, name, fd, n_bytes);
}

/* Called under the folder's lock. */
static int reserve(Cache *cache, const char *name, uint64_t n_bytes)
{
    char path[PATH_ROOM];
    struct stat st;
    _cleanup_fd_ int there = cache_open(cache, name, n_bytes);
    if (there >= 0)
        return -EEXIST;
    _cleanup_fd_ int fd =
        open(path_of(cache, name, PART, path), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    if (fstat(fd, &st) == 0 && st.st_nlink == 0)
        return -EAGAIN; /* another process abandoned the part while this one opened it */
    int r = resize(cache, name, fd, n_bytes);
    if (r < 0) {
        (void)unlink(path); /* no other process uses the part: this process has locked it */
        return r;
    }
    return TAKE_FD(fd);
}

static bool can_fit(const Cache *cache, uint64_t n_bytes)
{
    return !is_off(cache) && (!cache->bound || n_bytes == CACHE_ANY || n_bytes <= cache->bound);
}

static int failed_if(Cache *cache, int r)
{
    if (r < 0 && r != -EAGAIN && r != -EEXIST && r != -ENOBUFS)
        cache_failed(cache, r);
    return r;
}

int cache_reserve(Cache *cache, const char *name, uint64_t n_bytes)
{
    bool part;
    assert(is_own(name, &part) && !part); /* a file of another name would never be removed */
    if (n_bytes == 0 || !can_fit(cache, n_bytes))
        return -ENOBUFS;
    _cleanup_fd_ int lock = lock_folder(cache);
    return failed_if(cache, lock < 0 ? lock : reserve(cache, name, n_bytes));
}

int cache_resize(Cache *cache, const char *name, int fd, uint64_t n_bytes)
{
    if (!can_fit(cache, n_bytes))
        return -ENOBUFS;
    _cleanup_fd_ int lock = lock_folder(cache);
    return failed_if(cache, lock < 0 ? lock : resize(cache, name, fd, n_bytes));
}

/* Renames under the folder's lock: a process that reserves meanwhile must find the file under the old or the new name,
 * and must not meet the moment in which flock() has released the exclusive lock but not yet taken the shared one. */
int cache_commit(Cache *cache, const char *name, int fd, bool sync)
{
    char part[PATH_ROOM], path[PATH_ROOM];
    int r = fault("cache.commit");
    if (r == 0 && sync && fdatasync(fd) < 0)
        r = -errno;
    if (r < 0)
        return r;
    _cleanup_fd_ int lock = lock_folder(cache);
    if (lock < 0)
        return lock;
    if (rename(path_of(cache, name, PART, part), path_of(cache, name, "", path)) < 0)
        return -errno;
    /* The shared lock marks the file as in use, as after cache_open(). No other process has opened the file yet. */
    (void)flock(fd, LOCK_SH);
    return 0;
}

int cache_abandon(Cache *cache, const char *name, int fd)
{
    char path[PATH_ROOM];
    if (fd >= 0)
        (void)unlink(path_of(cache, name, PART, path)); /* only this process uses the part */
    return fd_close(fd);
}

void cache_forget(Cache *cache, const char *name)
{
    char path[PATH_ROOM];
    (void)unlink(path_of(cache, name, "", path)); /* the file may be missing */
}
