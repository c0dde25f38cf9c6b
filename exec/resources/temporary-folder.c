/* SPDX-License-Identifier: Apache-2.0 */
/* temporary-folder.c - see temporary-folder.h. */
#include "exec/resources/temporary-folder.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    TRIES_MAX =
        1000, /* 1 ms apart: a folder that is being removed was made a moment ago, and is empty */
};

/* Whether the open folder still bears its name: another may have removed it, and a third made one. */
static bool is_named(int base_fd, const char *name, const struct stat *open)
{
    struct stat st;
    return fstatat(base_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == open->st_dev &&
           st.st_ino == open->st_ino;
}

/* Opens the folder and holds it. Returns a descriptor; -EAGAIN: somebody removes it; or -errno. */
static int hold(const char *path)
{
    struct stat st;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    (void)fault("exec.tmp_folder");
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    (void)fault("exec.tmp_folder");
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        return -errno; /* EWOULDBLOCK is EAGAIN */
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid())
        return -EPERM;
    return is_named(AT_FDCWD, path, &st) ? TAKE_FD(fd) : -EAGAIN;
}

int temporary_folder_enter(const char *base, const char *prefix, const char *name, char *ret,
                           size_t size, Error *err)
{
    if (snprintf(ret, size, "%s/%s%s", base, prefix, name) >= (int)size)
        return error_set(err, -ENAMETOOLONG, "%s: too long", base);
    (void)temporary_folder_leave(base, prefix, -EBADF);
    int fd = -EAGAIN;
    for (int i = 0; i < TRIES_MAX && fd == -EAGAIN; i++) {
        if (i > 0)
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        fd = hold(ret);
    }
    return fd < 0 ? error_errno(err, fd, "%s", ret) : fd;
}

/* Removes the folder of this user unless somebody holds it. */
static void remove_unheld(int base_fd, const char *base, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    Error err = ERROR_INIT;
    _cleanup_fd_ int fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    (void)fault("exec.tmp_unheld");
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid() ||
        flock(fd, LOCK_EX | LOCK_NB) < 0 || !is_named(base_fd, name, &st))
        return;
    if (snprintf(path, sizeof(path), "%s/%s", base, name) < (int)sizeof(path) &&
        folder_remove(path, &err) < 0)
        log_warning("temporary files of an earlier world stay: %s", err.text);
}

int temporary_folder_leave(const char *base, const char *prefix, int fd)
{
    (void)fd_close(fd);
    _cleanup_dir_ DIR *dir = opendir(base);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            remove_unheld(dirfd(dir), base, entry->d_name);
    return -EBADF;
}
