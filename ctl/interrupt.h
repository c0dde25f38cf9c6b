/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h - prints a text at Ctrl-C in a verb that only watches a job or waits for it: the job continues without
 * the verb.
 *
 * Ownership: the text is copied.
 * Threads:   call from the main thread; any thread may receive the signal.
 */
#pragma once

#include "base/macro.h"

/* From now on SIGINT first prints "sdctl: <text>" on standard error, and then ends the process as usual. */
void interrupt_print(const char *format, ...) _printf_(1, 2);
