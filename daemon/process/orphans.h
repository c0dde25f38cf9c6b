/* SPDX-License-Identifier: Apache-2.0 */
/* orphans.h - finds and ends processes that an earlier life of this instance left behind.
 *
 * A rank that outlives its sdtraind would hold its devices and train on in a world that is over. The keeper, a small
 * process made before everything but the lock, outlives sdtraind by the time that it takes to end all ranks, however
 * sdtraind ended.
 *
 * Every process started for a rank carries SDTRAIN_OWNER=<run_dir>:<slot> in its environment, and its children inherit
 * that mark. One sdtraind at a time holds the lock of a run_dir, so a marked process without its sdtraind is an orphan.
 * A process that has cleared its environment is known by its session, which is that of its rank unless it has made
 * another. sdtraind and its keeper share the sessions of living ranks only in memory: a number in a file might belong
 * to a stranger by the time it is read.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    -ETIMEDOUT: something survived SIGKILL for as long as we wait.
 * Threads:   any; orphans_keep() before the first thread.
 */
#pragma once

#include "base/error.h"
#include "cluster/records.h"
#include "daemon/process/cgroup.h"

#include <stdatomic.h>
#include <sys/types.h>

#define ORPHANS_VARIABLE "SDTRAIN_OWNER"

/* "SDTRAIN_OWNER=<run_dir>:<slot>" */
void orphans_owner_tag(char *ret, size_t size, const char *run_dir, int slot);
/* Whether that process carries the mark of this run_dir; slot -1: of any slot. */
bool orphans_has_owner_tag(pid_t pid, const char *run_dir, int slot);

/* Ends every marked process and the cgroups; waits until they are gone, at most 40 s (the keeper: ten minutes). */
int orphans_clear(const char *run_dir, const CgroupBase *cgroups, Error *err);

/* Takes the lock of run_dir for the life of this process and its keeper. Waits at most 40 s for the keeper of an
 * earlier life, and 5 s for another sdtraind; then -EBUSY. */
int orphans_lock(const char *run_dir, int *ret_fd, Error *err);
/* The session of the rank in each slot; 0: none. For the life of this process. */
typedef struct RankSessions {
    _Atomic pid_t of[RECORD_SLOTS_MAX];
} RankSessions;

/* Starts the keeper; ret_pid is a child of this process. */
int orphans_keep(const char *run_dir, const CgroupBase *cgroups, RankSessions **ret_sessions,
                 pid_t *ret_pid, Error *err);

/* Sends SIGKILL to a rank's orphans that were handed to us and carry the mark of the slot, or no mark: a process that
 * has cleared its environment may belong to any slot. Returns their number. is_ours tells of a child whether sdtraind
 * itself has started it. */
int orphans_kill_adopted(const char *run_dir, int slot, bool (*is_ours)(void *userdata, pid_t pid),
                         void *userdata);
