/* orphans.h - processes that an earlier life of this instance left behind, and who ends them.
 *
 * Every process started for a rank carries SDTRAIN_OWNER=<run_dir>:<slot> in its environment, and
 * what it starts inherits that. One sdtraind at a time holds the lock of a run_dir, so a marked
 * process without its sdtraind is an orphan. Who has cleared his environment is known by the
 * session, which is that of his rank unless he has made another; sdtraind and its keeper share a
 * page with the sessions of the ranks that live, which nobody else knows: a number that was written
 * down might be a stranger's by then. The keeper, a small process made before everything but the
 * lock, outlives sdtraind by the time that it takes to end them, however sdtraind ended.
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
void orphans_mark(char *ret, size_t size, const char *run_dir, int slot);
/* Whether that process carries the mark of this run_dir; slot -1: of any slot. */
bool orphans_is_marked(pid_t pid, const char *run_dir, int slot);

/* Ends every marked process and the cgroups; waits until they are gone, at most 40 s (the keeper: ten minutes). */
int orphans_clear(const char *run_dir, const CgroupBase *cgroups, Error *err);

/* Takes the lock of run_dir for the life of this process and its keeper. Waits up to 40 s for the
 * keeper of an earlier life; -EBUSY: another sdtraind lives, after 5 s. */
int orphans_lock(const char *run_dir, int *ret_fd, Error *err);
/* The sessions of the ranks in each slot, 0: none; for the life of this process. */
typedef struct RankSessions {
    _Atomic pid_t of[RECORD_SLOTS_MAX];
} RankSessions;

/* Starts the keeper; ret_pid is a child of ours for as long as we live. */
int orphans_keep(const char *run_dir, const CgroupBase *cgroups, RankSessions **ret_sessions,
                 pid_t *ret_pid, Error *err);

/* SIGKILL to the children that were handed to us (a rank's orphans) and carry the slot's mark, or none: who has
 * cleared his environment says of no slot that he belongs to it. How many there were. is_ours: a process
 * that sdtraind itself has started. */
int orphans_kill_adopted(const char *run_dir, int slot, bool (*is_ours)(void *userdata, pid_t pid),
                         void *userdata);
