/* probe-disk.c - room left where this node writes. */
#include "health/probe.h"

#include <errno.h>
#include <sys/statvfs.h>

static int run(const ProbeContext *context, ProbeResult *ret, Error *err)
{
    for (size_t i = 0; i < context->n_paths; i++) {
        struct statvfs st;
        if (statvfs(context->paths[i], &st) < 0)
            return error_errno(err, -errno, "cannot look at %s", context->paths[i]);
        uint64_t free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
        if (st.f_flag & ST_RDONLY)
            probe_find_fault(ret, HEALTH_DRAIN, -1, "%s: mounted read-only", context->paths[i]);
        else if (free_bytes < (uint64_t)context->disk_min_bytes)
            probe_find_fault(ret, HEALTH_SUSPECT, -1,
                             "%s: %llu MiB free, below disk_min_bytes (%lld MiB)",
                             context->paths[i], (unsigned long long)(free_bytes >> 20),
                             (long long)(context->disk_min_bytes >> 20));
        else if (st.f_files > 0 && st.f_favail < 1024)
            probe_find_fault(ret, HEALTH_SUSPECT, -1, "%s: %llu inodes free", context->paths[i],
                             (unsigned long long)st.f_favail);
    }
    return 0;
}

const Probe probe_disk_space = {.name = "disk-space",
                                .timeout_usec = 10 * USEC_PER_SEC,
                                .run = run};
