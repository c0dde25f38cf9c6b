/* SPDX-License-Identifier: Apache-2.0 */
/* fault.h - named points in the code at which a test can kill the process or make an operation fail.
 *
 * SDTRAIN_FAULT="point=action[@n][,point=action[@n]...]"; action is one of
 *   kill     SIGKILL to this process
 *   stop     SIGSTOP to this process
 *   stall    sleep for an hour (a hang that a signal still ends)
 *   slow     sleep for 100 ms (a way to slow a program without using a processor)
 *   enospc, eio, enomem, efault, eagain   fault() returns that errno, negative
 * and n is the visit, counted from 1, at which the fault strikes (1 by default; "@*": each visit).
 * fault_open() refuses an unknown action. If the variable is unset, a point costs one load.
 *
 * Ownership: none. Units: visits.
 * Errors:    fault() returns 0, or the negative errno that SDTRAIN_FAULT names for the point.
 */
#pragma once

#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads SDTRAIN_FAULT; main() calls it once, before other work. */
int fault_open(Error *err);

/* Makes fault() return visit(point) from now on. A shared object has its own copy of this file; with this call, that
 * copy uses the fault points of the program. */
void fault_lend(int (*visit)(const char *point));

/* Returns 0 unless a fault strikes here. A caller treats a negative result as the failure of the
 * operation that follows. */
int fault(const char *point);

#ifdef __cplusplus
}
#endif
