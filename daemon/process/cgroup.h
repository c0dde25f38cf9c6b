/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h - the cgroup v2 folders that hold this node's ranks, one per slot.
 *
 * The folder of a slot is <cgroup of sdtraind>/sdtrain-<hash of run_dir>/slot<k>. It is made when a rank starts, and
 * removed when the rank is confirmed dead. No cgroup controller is enabled, so sdtraind may stay in the parent.
 *
 * Units: none. Threads: any.
 * Ownership: cgroup_open() fills a CgroupBase, a value.
 * Errors:    -EOPNOTSUPP: cgroup v2 is not mounted or not writable; then only process groups are used.
 */
#pragma once

#include "base/error.h"

typedef struct CgroupBase {
    char path[512]; /* path of the base folder; "": cgroups are not in use */
} CgroupBase;

/* Finds the cgroup of this process and makes the base folder in it. */
int cgroup_open(CgroupBase *ret, const char *run_dir, Error *err);
/* Kills all processes in the base folder and its slots, which may take up to 2 s. Then removes these folders, which may
 * take 2 s more. Called at start and at end. */
int cgroup_destroy(const CgroupBase *base, Error *err);

/* Makes the slot's folder. *ret_folder is the folder's descriptor for clone3; *ret_events is the
 * descriptor of the folder's cgroup.events, to poll for POLLPRI. */
int cgroup_make_slot(const CgroupBase *base, int slot, int *ret_folder, int *ret_events,
                     Error *err);
/* Sends SIGKILL to every process in the slot's cgroup, also to processes that are forked meanwhile. */
int cgroup_kill_slot(const CgroupBase *base, int slot);
/* Returns 1 if a process lives in the cgroup, 0 if not, or -errno. events: from cgroup_make_slot(). */
int cgroup_is_populated(int events);
int cgroup_remove_slot(const CgroupBase *base, int slot);

/* Writes the cgroup of this process, as in /proc/self/cgroup. */
int cgroup_find_own(char *ret, size_t size);
/* Opens cgroup.events of such a cgroup, of any process. Returns a descriptor, or -errno. */
int cgroup_open_events(const char *own);
/* Blocks until no process lives in such a cgroup and below it. Returns 0 also if there is none; -ETIMEDOUT. */
int cgroup_await_empty(const char *own, int timeout_msec);
