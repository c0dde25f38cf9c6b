/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h - the cgroup v2 folders that hold this node's ranks, one per slot.
 *
 * The folder of a slot is <where sdtraind runs>/sdtrain-<hash of run_dir>/slot<k>. It is made when a rank starts, and
 * removed when the rank is confirmed dead. No controller is switched on, so sdtraind may stay in the parent.
 *
 * Ownership: cgroup_open() fills a CgroupBase, a value.
 * Units:     none.
 * Errors:    -EOPNOTSUPP: no cgroup v2 here, or not ours to write; process groups must do.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

typedef struct CgroupBase {
    char path[512]; /* of the base folder; "": cgroups are not in use */
} CgroupBase;

/* Finds the place and makes the base folder. */
int cgroup_open(CgroupBase *ret, const char *run_dir, Error *err);
/* Kills what is left inside and removes all folders, within 2 s. Called at start and at end. */
int cgroup_destroy(const CgroupBase *base, Error *err);

/* Makes the slot's folder; ret_folder for clone3, ret_events to poll for POLLPRI. */
int cgroup_make_slot(const CgroupBase *base, int slot, int *ret_folder, int *ret_events,
                     Error *err);
/* SIGKILL to every process inside, also to those that are forked meanwhile. */
int cgroup_kill_slot(const CgroupBase *base, int slot);
/* 1: some process lives inside; 0: none; -errno. */
int cgroup_is_populated(int events);
int cgroup_remove_slot(const CgroupBase *base, int slot);
