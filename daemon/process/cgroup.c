/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.c - see cgroup.h. */
#include "daemon/process/cgroup.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/number/hash.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { DESTROY_MSEC = 2000, ROUND_MSEC = 100, DEPTH_MAX = 16, CHILD_PATH_MAX = 1024 };

/* Finds the mount point of cgroup v2 in mountinfo: "... <mount point> <options> - cgroup2 ...". */
static int find_mount(char *ret, size_t size)
{
    _cleanup_file_ FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f)
        return -errno;

    char line[4096], point[512];
    while (fgets(line, sizeof(line), f)) {
        if (!strstr(line, " - cgroup2 ") || sscanf(line, "%*s %*s %*s %*s %511s", point) != 1)
            continue;
        int n = snprintf(ret, size, "%s", point);
        return n < (int)size ? 0 : -ENAMETOOLONG;
    }
    return -EOPNOTSUPP;
}

int cgroup_find_own(char *ret, size_t size)
{
    _cleanup_file_ FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return -errno;

    char line[1024];
    while (fgets(line, sizeof(line), f)) {
        if (strncmp(line, "0::/", 4) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        const char *own = strcmp(line + 3, "/") == 0 ? "" : line + 3;
        int n = snprintf(ret, size, "%s", own);
        return n < (int)size ? 0 : -ENAMETOOLONG;
    }
    return -EOPNOTSUPP;
}

int cgroup_open(CgroupBase *ret, const char *run_dir, Error *err)
{
    char mount[256], own[200];
    int r = find_mount(mount, sizeof(mount));
    if (r == 0)
        r = cgroup_find_own(own, sizeof(own));
    if (r < 0)
        return error_set(err, -EOPNOTSUPP, "no cgroup v2 is mounted here");

    CgroupBase base;
    (void)snprintf(base.path, sizeof(base.path), "%s%s/sdtrain-%016llx", mount, own,
                   (unsigned long long)hash64_bytes(run_dir, strlen(run_dir), 0));
    if (mkdir(base.path, 0755) < 0 && errno != EEXIST)
        return error_errno(err, -EOPNOTSUPP, "%s: cannot make it (%s)", base.path, strerror(errno));
    *ret = base;
    return 0;
}

static int write_kill(const char *folder)
{
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/cgroup.kill", folder);
    _cleanup_fd_ int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        return write(fd, "1", 1) == 1 ? 0 : -errno;
    if (errno != ENOENT)
        return -errno;

    /* Linux before 5.14 has no cgroup.kill: kills the processes one by one. Processes forked meanwhile are left to
     * the caller's next attempt. */
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    _cleanup_file_ FILE *f = fopen(path, "re");
    if (!f)
        return errno == ENOENT ? 0 : -errno;
    int pid;
    while (fscanf(f, "%d", &pid) == 1)
        if (pid > 0)
            (void)kill(pid, SIGKILL); /* the process may have ended */
    return 0;
}

int cgroup_is_populated(int events)
{
    char text[256];
    ssize_t n = pread(events, text, sizeof(text) - 1, 0);
    if (n < 0)
        return errno == ENODEV ? 0 : -errno; /* the cgroup was removed */
    text[n] = '\0';
    const char *at = strstr(text, "populated ");
    return at ? at[strlen("populated ")] == '1' : -EBADMSG;
}

static int wait_empty(const char *folder)
{
    char path[600];
    (void)snprintf(path, sizeof(path), "%s/cgroup.events", folder);
    _cleanup_fd_ int events = open(path, O_RDONLY | O_CLOEXEC);
    if (events < 0)
        return errno == ENOENT ? 0 : -errno;

    for (int left = DESTROY_MSEC / ROUND_MSEC; left > 0; left--) {
        int r = cgroup_is_populated(events);
        if (r <= 0)
            return r;
        struct pollfd p = {.fd = events, .events = POLLPRI};
        (void)poll(&p, 1, ROUND_MSEC); /* returns early at a change */
    }
    return -ETIMEDOUT;
}

static int remove_tree(const char *path, int depth);

/* Removes the cgroups in this one whose names begin with the prefix. If one stays, rmdir() of this one fails, and that
 * error is reported. */
static void remove_children(const char *path, const char *prefix, int depth)
{
    char child[CHILD_PATH_MAX];
    DIR *folder = depth < DEPTH_MAX ? opendir(path) : NULL;
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
            strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
            snprintf(child, sizeof(child), "%s/%s", path, entry->d_name) < (int)sizeof(child))
            (void)remove_tree(child, depth + 1);
    if (folder)
        (void)closedir(folder);
}

/* Removes a cgroup with those that a program in it, such as a container runtime, has made below. */
static int remove_tree(const char *path, int depth)
{
    remove_children(path, "", depth);
    return rmdir(path) < 0 ? -errno : 0;
}

int cgroup_destroy(const CgroupBase *base, Error *err)
{
    if (!*base->path)
        return 0;

    int r = write_kill(base->path);
    if (r == 0)
        r = wait_empty(base->path);
    if (r < 0)
        return error_errno(err, r, "%s: cannot end what runs inside", base->path);

    /* EBUSY: the kernel has not finished removing the processes that were just killed. */
    for (int left = DESTROY_MSEC / ROUND_MSEC; left > 0; left--) {
        remove_children(base->path, "slot", 0);
        r = rmdir(base->path) < 0 && errno != ENOENT ? -errno : 0;
        if (r != -EBUSY)
            break;
        const struct timespec pause = {.tv_nsec = ROUND_MSEC * 1000 * 1000};
        (void)nanosleep(&pause, NULL); /* no event announces that rmdir would work */
    }
    return r < 0 ? error_errno(err, r, "%s: cannot remove it", base->path) : 0;
}

static void slot_path(const CgroupBase *base, int slot, char ret[560])
{
    assert(slot >= 0 && *base->path);
    (void)snprintf(ret, 560, "%s/slot%d", base->path, slot);
}

int cgroup_make_slot(const CgroupBase *base, int slot, int *ret_folder, int *ret_events, Error *err)
{
    char path[560];
    slot_path(base, slot, path);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return error_errno(err, -errno, "%s: cannot make it", path);
    _cleanup_fd_ int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return error_errno(err, -errno, "%s: cannot open it", path);
    int events = openat(folder, "cgroup.events", O_RDONLY | O_CLOEXEC);
    if (events < 0)
        return error_errno(err, -errno, "%s/cgroup.events: cannot open it", path);
    *ret_folder = TAKE_FD(folder);
    *ret_events = events;
    return 0;
}

int cgroup_kill_slot(const CgroupBase *base, int slot)
{
    char path[560];
    slot_path(base, slot, path);
    return write_kill(path);
}

int cgroup_remove_slot(const CgroupBase *base, int slot)
{
    char path[560];
    slot_path(base, slot, path);
    return remove_tree(path, 0);
}

int cgroup_open_events(const char *own)
{
    char mount[256], path[1024];
    if (*own != '/' || strstr(own, "/../"))
        return -EINVAL;
    int r = find_mount(mount, sizeof(mount));
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof(path), "%s%s/cgroup.events", mount, own);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int cgroup_await_empty(const char *own, int timeout_msec)
{
    const uint64_t end_usec = clock_boottime_usec() + (uint64_t)timeout_msec * USEC_PER_MSEC;
    _cleanup_fd_ int events = cgroup_open_events(own);
    if (events < 0)
        return events == -ENOENT ? 0 : events;
    for (;;) {
        const int r = cgroup_is_populated(events); /* the read also clears the event */
        const uint64_t now_usec = clock_boottime_usec();
        if (r <= 0)
            return r;
        if (now_usec >= end_usec)
            return -ETIMEDOUT;
        struct pollfd changed = {.fd = events, .events = POLLPRI};
        (void)poll(&changed, 1, (int)((end_usec - now_usec) / USEC_PER_MSEC) + 1);
    }
}
