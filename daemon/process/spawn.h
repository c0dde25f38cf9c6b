/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.h - starts a program as a child that cannot outlive this process.
 *
 * The child is the leader of its own session, or only of a process group, dies by SIGKILL when its parent
 * does (PR_SET_PDEATHSIG), begins inside its cgroup where one is given, and holds only descriptors 0
 * to 3. It inherits neither ambient capabilities nor a low oom_score_adj. Between clone3 and
 * exec the child makes system calls only, so locks of this process's other threads do not matter.
 *
 * Ownership: borrows everything for the call; the caller owns pid (waitid) and pidfd.
 * Units:     none.
 * Errors:    -errno of clone3, or of clone where clone3 is forbidden. A program that cannot be
 *            executed exits 127 and says so on its standard error.
 * Threads:   call it from the main thread: PR_SET_PDEATHSIG follows the thread that called.
 */
#pragma once

#include "base/error.h"

#include <sys/types.h>

enum { SPAWN_EXEC_FAILED = 127 };

typedef struct SpawnRequest {
    char *const *argv; /* argv[0] is the program's path */
    int program;       /* open fd of the program to execute; 0: the file at argv[0] is executed */
    char *const *environment;
    const char *folder;  /* the child's working folder; NULL: this process's own */
    bool shares_session; /* the child leads only a process group, in the session of this process */
    int output;          /* standard output and error; negative: this process's own */
    int channel;         /* descriptor 3; negative: none */
    int cgroup; /* folder of a cgroup v2; negative: the child stays in this process's cgroup */
    bool *ret_inside; /* whether the child is in `cgroup`, which may refuse it; may be NULL */
} SpawnRequest;

int spawn_process(const SpawnRequest *request, pid_t *ret_pid, int *ret_pidfd, Error *err);
