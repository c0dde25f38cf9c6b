/* SPDX-License-Identifier: Apache-2.0 */
/* probe-host.c - checks memory, the kernel's out-of-memory killer, and processes stuck in the kernel.
 *
 * State: {"oom_kills", "stuck": {"<pid>-<start time>": number of its sleeps}, "since": {"<pid>-<start time>":
 *        usec}}.
 *
 * A process is stuck if all runs within half a minute find it in D state, and it was not woken between them. A
 * process that reads a disk all day is often found in D state, too, and two runs may follow each other at once. */
#include "health/probe.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "health/sysfs.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

enum { MEMORY_MIN_PERCENT = 3, STUCK_SEC = 30, STUCK_MAX = 64, PROCESSES_MAX = 20000 };

/* Finds the number after the name in a file whose lines are "Name: NUMBER" or "name NUMBER". */
static bool find_number(const char *path, const char *name, uint64_t *ret)
{
    char line[SYSFS_LINE_MAX];
    _cleanup_file_ FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        size_t n = strlen(name);
        if (strncmp(line, name, n) == 0 && strchr(": ", line[n]))
            return sysfs_parse_number(line + n + strspn(line + n, ":\t "), ret) == 0;
    }
    return false;
}

static void look_at_memory(const ProbeContext *context, ProbeResult *ret)
{
    char path[PATH_MAX];
    uint64_t total, available, kills;
    double before;
    (void)snprintf(path, sizeof(path), "%s/meminfo", context->proc);
    if (find_number(path, "MemTotal", &total) && find_number(path, "MemAvailable", &available)) {
        (void)snprintf(ret->note, sizeof(ret->note), "%llu of %llu MiB of memory available",
                       (unsigned long long)(available >> 10), (unsigned long long)(total >> 10));
        if (available < total / 100 * MEMORY_MIN_PERCENT)
            probe_find_fault(ret, FAULT_MEMORY_LOW, -1, "%s", ret->note);
    }
    (void)snprintf(path, sizeof(path), "%s/vmstat", context->proc);
    if (!find_number(path, "oom_kill", &kills))
        return;
    if (probe_recall(context->state, "oom_kills", &before) && (double)kills > before)
        probe_find_fault(ret, FAULT_OOM_KILLS, -1, "the kernel killed %.0f processes for memory",
                         (double)kills - before);
    (void)json_object_set_new(ret->state, "oom_kills", json_real((double)kills));
}

/* Returns whether a line of /proc/<pid>/stat, "pid (name) D ppid ... starttime", shows a process in D state. The
 * name may contain anything. Kernel threads (children of 2) do not count, since they may stay in D state for ever. */
static bool is_blocked(const char *line, char *ret_name, size_t size, uint64_t *ret_start)
{
    const char *open = strchr(line, '('), *close = strrchr(line, ')');
    if (!open || !close || close < open || strncmp(close, ") D ", 4) != 0 ||
        strncmp(close, ") D 2 ", 6) == 0)
        return false;
    (void)snprintf(ret_name, size, "%.*s", (int)(close - open - 1), open + 1);
    const char *p = close + 2;
    for (int field = 3; field < 22 && p; field++) {
        p = strchr(p, ' ');
        p = p ? p + 1 : NULL;
    }
    return p && sysfs_parse_number(p, ret_start) == 0;
}

/* Notes a process in D state. Returns for how long it has not been woken, as far as earlier runs show. */
static double unwoken_usec(const ProbeContext *context, json_t *state, const char *key,
                           uint64_t sleeps)
{
    const double now = (double)clock_boottime_usec();
    double known, since = now;
    if (probe_recall(json_object_get(context->state, "stuck"), key, &known) &&
        known == (double)sleeps)
        (void)probe_recall(json_object_get(context->state, "since"), key, &since);
    json_t *stuck = json_object_get(state, "stuck");
    if (json_object_size(stuck) < STUCK_MAX) {
        (void)json_object_set_new(stuck, key, json_real((double)sleeps));
        (void)json_object_set_new(json_object_get(state, "since"), key, json_real(since));
    }
    return now - since;
}

static void look_at_processes(const ProbeContext *context, ProbeResult *ret)
{
    char first[SYSFS_NAME_MAX + 24] = "";
    int stuck = 0, seen = 0;
    DIR *dir = opendir(context->proc);
    for (struct dirent *e; dir && seen < PROCESSES_MAX && (e = readdir(dir));) {
        char line[SYSFS_LINE_MAX], name[SYSFS_NAME_MAX], path[PATH_MAX], key[SYSFS_NAME_MAX + 24];
        uint64_t start, sleeps = 0;
        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        seen++;
        if (sysfs_read_line(line, "%s/%s/stat", context->proc, e->d_name) < 0 ||
            !is_blocked(line, name, sizeof(name), &start))
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s/status", context->proc, e->d_name);
        /* find_number() fails if the process has ended. */
        (void)find_number(path, "voluntary_ctxt_switches", &sleeps);
        (void)snprintf(key, sizeof(key), "%.10s-%" PRIu64, e->d_name, start);
        if (unwoken_usec(context, ret->state, key, sleeps) < STUCK_SEC * 1e6)
            continue;
        if (stuck++ == 0)
            (void)snprintf(first, sizeof(first), "%s (%.10s)", name, e->d_name);
    }
    if (dir)
        (void)closedir(dir); /* cannot fail: the folder was only read */
    if (stuck > 0)
        probe_find_fault(ret, FAULT_STUCK_PROCESSES, -1,
                         "%d process%s stuck in the kernel for %d s or more, %s first", stuck,
                         stuck == 1 ? "" : "es", STUCK_SEC, first);
}

static int run_host_probe(const ProbeContext *context, ProbeResult *ret, _unused_ Error *err)
{
    ret->state = json_pack("{s{} s{}}", "stuck", "since");
    look_at_memory(context, ret);
    look_at_processes(context, ret);
    return 0;
}

const Probe probe_host = {.name = "host", .timeout_usec = 20 * USEC_PER_SEC, .run = run_host_probe};
