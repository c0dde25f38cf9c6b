/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.h - an operator's Ctrl-C in a verb that writes for long and must clear up before it ends.
 *
 * Ownership: none; the process has one.
 * Units:     none.
 * Errors:    interrupt_check(): -EINTR after a signal.
 * Threads:   the main thread.
 */
#pragma once

#include "base/error.h"

/* From here on SIGINT, SIGTERM and SIGHUP are noted. */
void interrupt_begin(void);
int interrupt_check(Error *err);
/* Restores what they do. Ends the process by the signal that came, if one did. */
void interrupt_end(void);
