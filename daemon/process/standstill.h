/* SPDX-License-Identifier: Apache-2.0 */
/* standstill.h - what the processes of a rank that hangs do, as /proc shows it: for the log, before they are killed.
 *
 * Ownership: the caller's buffers. Units: none.
 * Errors:    none: what /proc does not show is left out.
 * Threads:   any.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum { STANDSTILL_LINE = 160, STANDSTILL_LINES = 32 };

/* Returns the state of a process as /proc has it: 'R', 'S', 'T', 'D', ...; '?': it has ended. */
char standstill_state(pid_t pid);
/* Describes each process of the session in a line, such as "process 471 (python3) sleeps in futex_do_wait, 12 threads,
 * 93.2 s of processor time". Returns the number of lines, at most max. */
size_t standstill_look(pid_t session, char (*lines)[STANDSTILL_LINE], size_t max);
/* Logs these lines, STANDSTILL_LINES at most. */
void standstill_log(pid_t session);
