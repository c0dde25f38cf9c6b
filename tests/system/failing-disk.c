/* SPDX-License-Identifier: Apache-2.0 */
/* failing-disk.c - a library to preload into a program. It counts and logs the program's calls on files below one
 * folder, and makes one of the calls fail. From the log, tests/system/disk.py computes which files a power failure
 * would leave.
 *
 * DISK_ROOT     the folder, absolute and without links
 * DISK_LOG      a file; each call adds a line: number, call, errno, number of the open file, path, second path
 * DISK_COPIES   a folder on the same file system; each new file gets a second name there, by its number, and each file
 *               that existed before gets a second name there when it is removed
 * DISK_SERIAL   the numbers of new files begin after this number
 * DISK_STRIKE   "N:E": call N is not made, and fails with errno E; "N+:E": all later calls on that path fail, too;
 *               "N:kill": SIGKILL after call N was made
 *
 * Only the first process is observed, not the processes that it starts. Calls that the C library makes internally
 * are not seen. All calls are in one order, because each call is made under one lock.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FDS_MAX = 4096 };

typedef struct OpenFile {
    long serial; /* the file's number; 0: the file is not below the folder */
    char *path;
} OpenFile;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static OpenFile files[FDS_MAX];
static const char *root, *copies;
static size_t n_root;
static int log_fd = -1, strike_errno;
static long n_calls, serial, first, strike_at;
static pid_t owner;
static bool kills, lasts;
static char *struck; /* the path of the failed call: all later calls on this path fail, too */

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    if (!symbol)
        abort();
    return symbol;
}

__attribute__((constructor)) static void begin(void)
{
    const char *before = getenv("DISK_OWNER"), *strike = getenv("DISK_STRIKE");
    char text[32];
    root = getenv("DISK_ROOT");
    copies = getenv("DISK_COPIES");
    if (!root || !copies || !getenv("DISK_LOG") || before)
        return;
    owner = getpid();
    (void)snprintf(text, sizeof(text), "%d", (int)owner);
    /* processes that the program starts inherit this variable, and so are not observed */
    (void)setenv("DISK_OWNER", text, 1);
    n_root = strlen(root);
    log_fd = REAL(open)(getenv("DISK_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log_fd < 0)
        abort();
    /* DISK_SERIAL differs between runs, so that the files of each run have their own numbers */
    const char *serials = getenv("DISK_SERIAL");
    serial = serials ? strtol(serials, NULL, 10) : 0;
    first = serial;
    if (strike) {
        char *end;
        strike_at = strtol(strike, &end, 10);
        lasts = *end == '+';
        end += lasts;
        kills = strcmp(end, ":kill") == 0;
        strike_errno = kills ? 0 : (int)strtol(end + 1, NULL, 10);
    }
}

/* ---- which calls are observed ---- */

/* Writes the whole path of an observed call to `text`. Returns `text`, or NULL if the path is not
 * below the folder. */
static const char *ours(int dir_fd, const char *path, char text[static PATH_MAX])
{
    if (owner == 0 || getpid() != owner || !path)
        return NULL;
    if (*path == '/') {
        (void)snprintf(text, PATH_MAX, "%s", path);
    } else if (dir_fd >= 0 && dir_fd < FDS_MAX && files[dir_fd].path) {
        if (strcmp(path, "..") == 0) {
            (void)snprintf(text, PATH_MAX, "%s", files[dir_fd].path);
            *strrchr(text, '/') = '\0';
        } else {
            (void)snprintf(text, PATH_MAX, "%s/%s", files[dir_fd].path, path);
        }
    } else {
        return NULL;
    }
    return strncmp(text, root, n_root) == 0 && (text[n_root] == '/' || text[n_root] == '\0') ? text
                                                                                             : NULL;
}

static const char *ours_at(int fd)
{
    return owner != 0 && getpid() == owner && fd >= 0 && fd < FDS_MAX ? files[fd].path : NULL;
}

static void note_open(int fd, const char *path)
{
    if (fd < 0 || fd >= FDS_MAX)
        return;
    free(files[fd].path);
    files[fd] = (OpenFile){.serial = ++serial, .path = strdup(path)};
}

static void keep(const char *path, const char *suffix, long number)
{
    char copy[PATH_MAX];
    (void)snprintf(copy, sizeof(copy), "%s/%ld%s", copies, number, suffix);
    (void)REAL(link)(path, copy); /* link() fails for a folder, which cannot have a second name */
}

/* ---- one call ---- */

/* Begins a call. Returns 0 if the call is to be made, or the errno with which it fails. */
static int enter(const char *path)
{
    (void)pthread_mutex_lock(&lock);
    if (++n_calls == strike_at && lasts)
        struck = strdup(path);
    return n_calls == strike_at || (struck && strcmp(path, struck) == 0) ? strike_errno : 0;
}

static void leave(const char *call, int error, int fd, const char *path, const char *second)
{
    char line[3 * PATH_MAX];
    long number = fd >= 0 && fd < FDS_MAX ? files[fd].serial : 0;
    int n = snprintf(line, sizeof(line), "%ld\t%s\t%d\t%ld\t%s\t%s\n", n_calls, call, error, number,
                     path, second ? second : "");
    if (REAL(write)(log_fd, line, (size_t)n) != n)
        abort();
    if (kills && n_calls == strike_at)
        (void)kill(owner, SIGKILL);
    (void)pthread_mutex_unlock(&lock);
    errno = error;
}

/* Makes and logs a call that returns -1 on failure. */
#define MAKE(type, name, fd, path, second, made)                                                   \
    ({                                                                                             \
        type got_ = -1;                                                                            \
        int error_ = enter(path), before_ = errno;                                                 \
        if (error_ == 0) {                                                                         \
            got_ = (made);                                                                         \
            error_ = got_ < 0 ? errno : 0;                                                         \
        }                                                                                          \
        leave(name, error_, fd, path, second);                                                     \
        if (got_ >= 0)                                                                             \
            errno = before_;                                                                       \
        got_;                                                                                      \
    })

static int open_ours(const char *path, int flags, mode_t mode)
{
    const bool is_new = (flags & O_CREAT) && REAL(access)(path, F_OK) < 0;
    int error = enter(path), fd = -1;
    if (error == 0) {
        fd = REAL(open)(path, flags, mode);
        error = fd < 0 ? errno : 0;
    }
    if (fd >= 0)
        note_open(fd, path);
    if (fd >= 0 && is_new)
        keep(path, "", serial);
    leave(is_new                  ? "create"
          : (flags & O_DIRECTORY) ? "open-folder"
                                  : "open",
          error, fd, path, NULL);
    return fd;
}

int open(const char *path, int flags, ...)
{
    char text[PATH_MAX];
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return ours(-1, path, text) ? open_ours(text, flags, mode) : REAL(open)(path, flags, mode);
}

int openat(int dir_fd, const char *path, int flags, ...)
{
    char text[PATH_MAX];
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(list, mode_t) : 0;
    va_end(list);
    return ours(dir_fd, path, text) ? open_ours(text, flags, mode)
                                    : REAL(openat)(dir_fd, path, flags, mode);
}

int mkostemps(char *path, int n_suffix, int flags)
{
    char text[PATH_MAX];
    if (!ours(-1, path, text))
        return REAL(mkostemps)(path, n_suffix, flags);
    int error = enter(text), fd = -1;
    if (error == 0) {
        fd = REAL(mkostemps)(path, n_suffix, flags);
        error = fd < 0 ? errno : 0;
    }
    if (fd >= 0) {
        note_open(fd, path);
        keep(path, "", serial);
    }
    leave("create", error, fd, path, NULL);
    return fd;
}

int mkostemp(char *path, int flags) { return mkostemps(path, 0, flags); }

int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    int got = REAL(fcntl)(fd, command, argument);
    const char *path = command == F_DUPFD_CLOEXEC && got >= 0 ? ours_at(fd) : NULL;
    if (path) {
        long number = files[fd].serial;
        note_open(got, path);
        files[got].serial = number;
    }
    return got;
}

int close(int fd)
{
    if (ours_at(fd)) {
        (void)pthread_mutex_lock(&lock);
        free(files[fd].path);
        files[fd] = (OpenFile){0};
        (void)pthread_mutex_unlock(&lock);
    }
    return REAL(close)(fd);
}

DIR *opendir(const char *path)
{
    char text[PATH_MAX];
    if (!ours(-1, path, text))
        return REAL(opendir)(path);
    DIR *dir = NULL;
    int error = enter(text);
    if (error == 0) {
        dir = REAL(opendir)(path);
        error = dir ? 0 : errno;
    }
    if (dir)
        note_open(dirfd(dir), text);
    leave("opendir", error, dir ? dirfd(dir) : -1, text, NULL);
    return dir;
}

int closedir(DIR *dir)
{
    int fd = dirfd(dir);
    if (ours_at(fd)) {
        (void)pthread_mutex_lock(&lock);
        free(files[fd].path);
        files[fd] = (OpenFile){0};
        (void)pthread_mutex_unlock(&lock);
    }
    return REAL(closedir)(dir);
}

/* ---- calls on open files ---- */

#define ON_FD(type, name, arguments, ...)                                                          \
    type name arguments                                                                            \
    {                                                                                              \
        const char *path = ours_at(fd);                                                            \
        return path ? MAKE(type, #name, fd, path, NULL, REAL(name)(__VA_ARGS__))                   \
                    : REAL(name)(__VA_ARGS__);                                                     \
    }

ON_FD(ssize_t, write, (int fd, const void *data, size_t n), fd, data, n)
ON_FD(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t at), fd, data, n, at)
ON_FD(ssize_t, read, (int fd, void *data, size_t n), fd, data, n)
ON_FD(ssize_t, pread, (int fd, void *data, size_t n, off_t at), fd, data, n, at)
ON_FD(int, fsync, (int fd), fd)
ON_FD(int, fdatasync, (int fd), fd)
ON_FD(int, ftruncate, (int fd, off_t n), fd, n)
ON_FD(int, fallocate, (int fd, int mode, off_t at, off_t n), fd, mode, at, n)
ON_FD(int, fchmod, (int fd, mode_t mode), fd, mode)
ON_FD(int, flock, (int fd, int what), fd, what)
ON_FD(int, sync_file_range, (int fd, off64_t at, off64_t n, unsigned flags), fd, at, n, flags)
ON_FD(int, fstat, (int fd, struct stat *st), fd, st)

/* ---- calls on names ---- */

int fstatat(int dir_fd, const char *restrict path, struct stat *restrict st, int flags)
{
    char text[PATH_MAX];
    return ours(dir_fd, path, text)
               ? MAKE(int, "stat", -1, text, NULL, REAL(fstatat)(dir_fd, path, st, flags))
               : REAL(fstatat)(dir_fd, path, st, flags);
}

#define ON_PATH(name, arguments, ...)                                                              \
    int name arguments                                                                             \
    {                                                                                              \
        char text[PATH_MAX];                                                                       \
        return ours(-1, path, text) ? MAKE(int, #name, -1, text, NULL, REAL(name)(__VA_ARGS__))    \
                                    : REAL(name)(__VA_ARGS__);                                     \
    }

ON_PATH(stat, (const char *restrict path, struct stat *restrict st), path, st)
ON_PATH(access, (const char *path, int mode), path, mode)
ON_PATH(mkdir, (const char *path, mode_t mode), path, mode)
ON_PATH(rmdir, (const char *path), path)

static int unlink_ours(int dir_fd, const char *path, int flags, const char *text)
{
    const bool is_folder = (flags & AT_REMOVEDIR) != 0;
    int error = enter(text), r = -1;
    if (error == 0) {
        if (!is_folder)
            keep(text, ".gone", first + n_calls);
        r = REAL(unlinkat)(dir_fd, path, flags);
        error = r < 0 ? errno : 0;
    }
    leave(is_folder ? "rmdir" : "unlink", error, -1, text, NULL);
    return r;
}

int unlinkat(int dir_fd, const char *path, int flags)
{
    char text[PATH_MAX];
    return ours(dir_fd, path, text) ? unlink_ours(dir_fd, path, flags, text)
                                    : REAL(unlinkat)(dir_fd, path, flags);
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int remove(const char *path)
{
    int r = unlink(path);
    return r < 0 && errno == EISDIR ? rmdir(path) : r;
}

int link(const char *from, const char *to)
{
    char text[PATH_MAX], other[PATH_MAX];
    return ours(-1, from, text) && ours(-1, to, other)
               ? MAKE(int, "link", -1, text, other, REAL(link)(from, to))
               : REAL(link)(from, to);
}

int rename(const char *from, const char *to)
{
    char text[PATH_MAX], other[PATH_MAX];
    if (!ours(-1, from, text) || !ours(-1, to, other))
        return REAL(rename)(from, to);
    int error = enter(other), r = -1;
    if (error == 0) {
        /* the file may not exist; keep() then keeps nothing */
        keep(other, ".gone", first + n_calls);
        r = REAL(rename)(from, to);
        error = r < 0 ? errno : 0;
    }
    leave("rename", error, -1, text, other);
    return r;
}
