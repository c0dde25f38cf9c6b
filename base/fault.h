/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - named points at which a test can make a process die or an operation fail.
 *
 * SDTRAIN_FAULT="point=action[@n][,point=action[@n]...]"; action is one of
 *   kill     SIGKILL to this process
 *   stop     SIGSTOP to this process
 *   stall    sleep for an hour (a hang that a signal still ends)
 *   slow     sleep for 100 ms (with @* it slows each step without using a processor)
 *   enospc, eio, enomem, efault, eagain   fault() returns that errno, negative
 * and n is the visit, counted from 1, at which the fault strikes (1 by default; "@*": each visit).
 * fault_open() refuses an unknown action. Without the variable a point costs one load.
 *
 * Ownership: none.
 * Units:     visits.
 * Errors:    0, or the negative errno that the point was told to return.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads SDTRAIN_FAULT; to be called once, early in main(). */
int fault_open(Error *err);

/* Gives each visit to `visit`: the copy of this file in a shared object lends its points to the program. */
void fault_lend(int (*visit)(const char *point));

/* Returns 0 unless a fault strikes here. A caller treats a negative result as the failure of the
 * operation that follows. */
int fault(const char *point);

#ifdef __cplusplus
}
#endif
