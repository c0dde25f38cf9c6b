/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - see file.h. */
#include "base/file.h"

#include "base/cleanup.h"
#include "base/fault.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

int fd_write_all(int fd, const void *data, size_t n_bytes)
{
    const char *p = data;
    while (n_bytes > 0) {
        ssize_t n = write(fd, p, n_bytes);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        p += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

int fd_write_at(int fd, const void *data, size_t n_bytes, uint64_t offset)
{
    const char *p = data;
    while (n_bytes > 0) {
        ssize_t n = pwrite(fd, p, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        p += n;
        n_bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* tmpfs supports fallocate() too, but clears each page, which costs as much as writing the page. */
static bool can_reserve(const struct statfs *fs) { return fs->f_type != TMPFS_MAGIC; }

int fd_reserve(int fd, uint64_t n_bytes)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return -errno;
    if (n_bytes > 0 && can_reserve(&fs)) {
        if (fallocate(fd, 0, 0, (off_t)n_bytes) == 0)
            return 0;
        if (errno != EOPNOTSUPP)
            return -errno;
    }
    /* A tmpfs without a size limit reports 0 blocks: then the free space is unknown. */
    if (fs.f_blocks > 0 && DIV_ROUND_UP(n_bytes, (uint64_t)fs.f_bsize) > (uint64_t)fs.f_bavail)
        return -ENOSPC;
    return ftruncate(fd, (off_t)n_bytes) < 0 ? -errno : 0;
}

int fd_read_all(int fd, void *data, size_t n_bytes, uint64_t offset)
{
    char *p = data;
    while (n_bytes > 0) {
        ssize_t n = pread(fd, p, n_bytes, (off_t)offset);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            return -EIO;
        p += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

int file_read(const char *path, size_t max_bytes, char **ret, size_t *ret_bytes, Error *err)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, -errno, "cannot open %s", path);

    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_errno(err, -errno, "cannot stat %s", path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, -EINVAL, "%s is not a regular file", path);
    if ((uint64_t)st.st_size > max_bytes)
        return error_set(err, -EFBIG, "%s has %lld bytes, more than the %zu that are read at most",
                         path, (long long)st.st_size, max_bytes);

    size_t n_bytes = (size_t)st.st_size;
    _cleanup_free_ char *data = malloc(n_bytes + 1);
    if (!data)
        return error_set(err, -ENOMEM, "out of memory reading %s", path);
    int r = fd_read_all(fd, data, n_bytes, 0);
    if (r < 0)
        return error_errno(err, r, "cannot read %s", path);
    data[n_bytes] = '\0';

    *ret = TAKE_PTR(data);
    if (ret_bytes)
        *ret_bytes = n_bytes;
    return 0;
}

int fd_read_line(int fd, char *ret, size_t size)
{
    ssize_t n = read(fd, ret, size - 1);
    if (n < 0)
        return -errno;
    ret[n] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    return 0;
}

int file_read_line(const char *path, char *ret, size_t size)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd_read_line(fd, ret, size);
}

static int folder_sync(const char *path_inside)
{
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof(folder), "%s", path_inside);
    char *slash = strrchr(folder, '/');
    if (!slash)
        (void)snprintf(folder, sizeof(folder), ".");
    else
        slash[slash == folder] = '\0';

    _cleanup_fd_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return fsync(fd) < 0 ? -errno : 0;
}

static int file_fill(int fd, const void *data, size_t n_bytes, FileFlags flags)
{
    int r = fault("file.write");
    if (r < 0)
        return r;
    r = fd_write_all(fd, data, n_bytes);
    if (r < 0)
        return r;
    if ((flags & FILE_SYNC) && fsync(fd) < 0)
        return -errno;
    return 0;
}

int file_write(const char *path, const void *data, size_t n_bytes, FileFlags flags, Error *err)
{
    char temporary[PATH_MAX];
    if (snprintf(temporary, sizeof(temporary), "%s.tmp-XXXXXX", path) >= (int)sizeof(temporary))
        return error_set(err, -ENAMETOOLONG, "%s is too long a path", path);

    _cleanup_fd_ int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, -errno, "cannot create %s", temporary);

    int r = fchmod(fd, 0644) < 0 ? -errno : 0;
    if (r == 0)
        r = file_fill(fd, data, n_bytes, flags);
    if (r == 0) {
        if (flags & FILE_EXCLUSIVE)
            r = link(temporary, path) < 0 ? -errno : 0;
        else
            r = rename(temporary, path) < 0 ? -errno : 0;
    }
    if (r < 0 || (flags & FILE_EXCLUSIVE))
        (void)unlink(temporary); /* the owner of the folder sweeps leftover files away later */
    if (r == 0 && (flags & FILE_SYNC))
        r = folder_sync(path);
    if (r < 0)
        return error_errno(err, r, "cannot write %s", path);
    return 0;
}

static int make_folders(const char *path, mode_t last_mode, Error *err)
{
    char partial[PATH_MAX];
    if (snprintf(partial, sizeof(partial), "%s", path) >= (int)sizeof(partial))
        return error_set(err, -ENAMETOOLONG, "%s is too long a path", path);

    for (char *p = partial + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char end = *p;
        *p = '\0';
        if (mkdir(partial, end ? 0755 : last_mode) < 0 && errno != EEXIST)
            return error_errno(err, -errno, "cannot create folder %s", partial);
        *p = end;
        if (end == '\0')
            break;
    }

    struct stat st;
    if (stat(path, &st) < 0)
        return error_errno(err, -errno, "cannot stat %s", path);
    if (!S_ISDIR(st.st_mode))
        return error_set(err, -ENOTDIR, "%s exists and is not a folder", path);
    return 0;
}

int folder_make(const char *path, Error *err) { return make_folders(path, 0755, err); }
int folder_make_private(const char *path, Error *err) { return make_folders(path, 0750, err); }

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path) < 0 && errno != ENOENT ? -errno : 0;
}

int folder_remove(const char *path, Error *err)
{
    int r = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (r == -1 && errno == ENOENT)
        return 0;
    if (r != 0)
        return error_errno(err, r == -1 ? -errno : r, "cannot remove %s", path);
    return 0;
}
