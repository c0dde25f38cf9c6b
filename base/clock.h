/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the only module that reads a clock.
 *
 * Folder:    defaults of the headers here: Errors: none. Threads: any.
 * Ownership: none.
 * Units:     microseconds. The boottime clock counts through suspend; deadlines use it. The realtime clock is for times
 *            that people read.
 */
#pragma once

#include "base/macro.h"

uint64_t clock_boottime_usec(void);
uint64_t clock_realtime_usec(void);
/* Returns the clock for deadlines of condition variables, which cannot use the boottime clock. */
uint64_t clock_monotonic_usec(void);
