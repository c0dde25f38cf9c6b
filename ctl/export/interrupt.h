/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h - defers an operator's Ctrl-C in a verb that writes for a long time and must clean up before it ends.
 *
 * Units: none. Threads: the main thread.
 * Ownership: none; the state is global to the process.
 * Errors:    interrupt_check(): -EINTR after a signal.
 */
#pragma once

#include "base/error.h"

/* From now on SIGINT, SIGTERM and SIGHUP are only recorded. */
void interrupt_begin(void);
int interrupt_check(Error *err);
/* Restores the signals' previous actions. If a signal was received, raises it again, which normally ends the
 * process. */
void interrupt_end(void);
