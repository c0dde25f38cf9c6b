/* SPDX-License-Identifier: Apache-2.0 */
/* exec-check.h - what a program of a job of kind "exec" would find on this machine: the answer of `sdtrain-exec look`.
 *
 * Ownership: exec_check_begin() starts a child, which exec_check_end() ends. exec_check_end() gives the caller JSON.
 * Units:     none.
 * Errors:    in the answer: {"error": "..."}.
 * Threads:   main thread; exec_check_end() blocks until EXEC_CHECK_SEC after exec_check_begin() at most.
 */
#pragma once

#include "base/json/json.h"

#include <sys/types.h>

enum { EXEC_CHECK_SEC = 8 };

typedef struct ExecCheck {
    const char *runner;        /* path of sdtrain-exec; NULL: the node runs no programs */
    const char *user, *socket; /* NULL: programs run as the user of sdtraind */
    const char *secrets;       /* NULL: none */
    pid_t pid;                 /* 0: the child could not be started, for the reason `r` */
    int r, output;
    uint64_t end_usec; /* CLOCK_BOOTTIME: EXEC_CHECK_SEC after exec_check_begin() */
} ExecCheck;

void exec_check_begin(ExecCheck *check);
json_t *exec_check_end(ExecCheck *check);
