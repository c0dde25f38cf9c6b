/* SPDX-License-Identifier: Apache-2.0 */
/* folder-lock.c - see folder-lock.h. */
#include "trainer/session/folder-lock.h"

#include "base/file.h"
#include "base/text/printable.h"
#include "protocol/owner.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Refuses, with the text that the holder has written about itself. The text comes from outside, so it is made
 * printable. */
static int refuse(const char *path, int fd, Error *err)
{
    char who[96];
    if (fd_read_line(fd, who, sizeof(who)) < 0)
        *who = '\0';
    printable_make(who);
    return error_set(err, -CHECKPOINT_NOT_OWNER,
                     "another sdtrainer run (%s) trains here: it holds %.300s",
                     *who ? who : "it does not say which", path);
}

int folder_lock_take(const char *uri, bool make, Error *err)
{
    char path[PATH_MAX], folder[PATH_MAX];
    _cleanup_(store_freep) Store *store = NULL;
    int r = store_open(uri, &store, err);
    if (r == 0)
        r = store_local_path(store, OWNER_LOCK, path, sizeof(path), err);
    if (r < 0)
        return r;
    memcpy(folder, path, sizeof(folder));
    *strrchr(folder, '/') = '\0';
    if (!make && access(folder, F_OK) < 0 && errno == ENOENT)
        return error_errno(err, -ENOENT, "%s", folder);
    r = folder_make(folder, err);
    if (r < 0)
        return r;
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_errno(err, -errno, "cannot open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return refuse(path, fd, err);
        if (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL)
            return error_errno(err, -EOPNOTSUPP, "%s: its file system keeps no locks", path);
        return error_errno(err, -errno, "cannot lock %s", path);
    }
    char text[96], link[65] = "?";
    (void)gethostname(link, sizeof(link) - 1); /* if it fails, the text has "?" */
    int n = snprintf(text, sizeof(text), "on %s, process %d\n", link, (int)getpid());
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)n, 0) != n)
        (void)ftruncate(fd, 0); /* the lock is valid without its text */
    return TAKE_FD(fd);
}
