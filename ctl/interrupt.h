/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h - what Ctrl-C says in a verb that only looks on or waits: that what it waited for goes on.
 *
 * Ownership: the text is copied.
 * Units:     none.
 * Errors:    none.
 * Threads:   the main thread calls; the signal may come to any.
 */
#pragma once

#include "base/macro.h"

/* From now on SIGINT prints "sdctl: <text>" on standard error, and then ends the process as it does without. */
void interrupt_print(const char *format, ...) _printf_(1, 2);
