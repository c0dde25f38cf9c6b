/* SPDX-License-Identifier: Apache-2.0 */
/* probe-disk.c - checks the free space where this node writes, and whether a small write reaches the disk.
 *
 * State: {"slow": {folder: rounds in a row}}. A single slow write is not a finding: other programs may have caused
 *        it. */
#include "health/probe.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/statvfs.h>

enum { SLOW_MSEC = 1000, SLOW_ROUNDS = 3, INODES_MIN = 1024 };

/* Measures how many microseconds a write of 4 KiB with fsync takes. The file has no name. */
static int time_write(const char *folder, uint64_t *ret_usec)
{
    char block[4096], path[PATH_MAX];
    memset(block, 0x5a, sizeof(block));
    uint64_t began = clock_boottime_usec();
    _cleanup_fd_ int fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        (void)snprintf(path, sizeof(path), "%s/.probe-disk", folder);
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd >= 0)
            (void)unlink(path); /* if this fails, the next run uses the file again */
    }
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, block, sizeof(block));
    if (n != (ssize_t)sizeof(block))
        return n < 0 ? -errno : -ENOSPC;
    if (fsync(fd) < 0)
        return -errno;
    *ret_usec = clock_boottime_usec() - began;
    return 0;
}

static void look_at_writes(const char *folder, const json_t *state, ProbeResult *ret)
{
    uint64_t usec = 0;
    double rounds = 0;
    int r = time_write(folder, &usec);
    if (r == -EROFS)
        return; /* a read-only mount was already reported */
    if (r < 0) {
        probe_find_fault(ret, r == -ENOSPC ? FAULT_DISK_FULL : FAULT_DISK_WRITE, -1,
                         "%s: a write of 4 KiB fails: %s", folder, strerror(-r));
        return;
    }
    if (usec < SLOW_MSEC * USEC_PER_MSEC)
        return;
    (void)probe_recall(json_object_get(state, "slow"), folder, &rounds);
    rounds++;
    (void)json_object_set_new(json_object_get(ret->state, "slow"), folder, json_real(rounds));
    if (rounds >= SLOW_ROUNDS)
        probe_find_fault(ret, FAULT_DISK_SLOW, -1, "%s: a write of 4 KiB took %.1f s, %.0f rounds",
                         folder, (double)usec / 1e6, rounds);
}

static int look(const char *folder, const ProbeContext *context, ProbeResult *ret, Error *err)
{
    struct statvfs st;
    if (statvfs(folder, &st) < 0)
        return error_errno(err, -errno, "cannot look at %s", folder);
    uint64_t free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    if (st.f_flag & ST_RDONLY)
        probe_find_fault(ret, FAULT_DISK_READ_ONLY, -1, "%s: mounted read-only", folder);
    else if (free_bytes < (uint64_t)context->disk_min_bytes)
        probe_find_fault(ret, FAULT_DISK_FULL, -1,
                         "%s: %llu MiB free, below disk_min_bytes (%lld MiB)", folder,
                         (unsigned long long)(free_bytes >> 20),
                         (long long)(context->disk_min_bytes >> 20));
    else if (st.f_files > 0 && st.f_favail < INODES_MIN)
        probe_find_fault(ret, FAULT_DISK_FULL, -1, "%s: %llu inodes free", folder,
                         (unsigned long long)st.f_favail);
    look_at_writes(folder, context->state, ret);
    return 0;
}

static int run_disk_probe(const ProbeContext *context, ProbeResult *ret, Error *err)
{
    ret->state = json_pack("{s{}}", "slow");
    int r = look(context->run_dir, context, ret, err);
    return r < 0 ? r : look(context->log_dir, context, ret, err);
}

const Probe probe_disk = {.name = "disk", .timeout_usec = 20 * USEC_PER_SEC, .run = run_disk_probe};
