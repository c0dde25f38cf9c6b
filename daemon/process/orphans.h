/* SPDX-License-Identifier: Apache-2.0 */
/* orphans.h - finds and ends processes that an earlier sdtraind left behind.
 *
 * A rank that outlives its sdtraind would hold its devices and train on in a world that is over. The keeper, a small
 * process that is started before everything except the lock, outlives sdtraind until it has ended all ranks, however
 * sdtraind ended.
 *
 * Every process started for a rank carries SDTRAIN_OWNER=<run_dir>:<slot> in its environment, and its children
 * inherit that mark. One sdtraind at a time holds the lock of a run_dir, so a marked process without its sdtraind is
 * an orphan. A process that has cleared its environment is recognised by its session: that is its rank's session,
 * unless the process has made a session of its own. sdtraind and its keeper share the sessions of living ranks only in
 * memory: a number in a file might belong to another process by the time it is read.
 *
 * Ownership: none. Units: none.
 * Errors:    -ETIMEDOUT: a process survived SIGKILL for the whole wait.
 * Threads:   any; orphans_keep() before the first thread.
 */
#pragma once

#include "base/error.h"
#include "cluster/records.h"
#include "daemon/process/cgroup.h"

#include <stdatomic.h>
#include <sys/types.h>

#define ORPHANS_VARIABLE "SDTRAIN_OWNER"

/* Writes "SDTRAIN_OWNER=<run_dir>:<slot>" into ret. */
void orphans_owner_tag(char *ret, size_t size, const char *run_dir, int slot);
/* Returns whether the process carries the mark of this run_dir and slot; slot -1: of any slot. */
bool orphans_has_owner_tag(pid_t pid, const char *run_dir, int slot);

/* Kills every marked process and removes the cgroups; waits until all have ended, at most 40 s, or
 * at most ten minutes in the keeper. */
int orphans_clear(const char *run_dir, const CgroupBase *cgroups, Error *err);

/* Takes the lock of run_dir until both this process and its keeper have ended. Waits at most 40 s for the keeper of an
 * earlier sdtraind, and at most 5 s for another sdtraind; then returns -EBUSY. */
int orphans_lock(const char *run_dir, int *ret_fd, Error *err);
/* The session of the rank in each slot; 0: none. The memory stays mapped until this process ends. */
typedef struct RankSessions {
    _Atomic pid_t of[RECORD_SLOTS_MAX];
} RankSessions;

/* Starts the keeper, a child of this process. *ret_pid is the keeper's pid; *ret_sessions is shared with the keeper. */
int orphans_keep(const char *run_dir, const CgroupBase *cgroups, RankSessions **ret_sessions,
                 pid_t *ret_pid, Error *err);

/* Reaps children of this process that have ended, up to the first one that this process has started itself, as is_ours
 * returns: whoever has started it reaps it. */
void orphans_reap_adopted(bool (*is_ours)(void *userdata, pid_t pid), void *userdata);

/* Sends SIGKILL to a rank's orphans that became children of this process and carry the mark of the slot, or no mark:
 * a process that has cleared its environment may belong to any slot. Returns their number. is_ours returns whether
 * sdtraind itself has started the child. */
int orphans_kill_adopted(const char *run_dir, int slot, bool (*is_ours)(void *userdata, pid_t pid),
                         void *userdata);
