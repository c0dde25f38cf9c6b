/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the verbs of `sdctl context`, which the table in sdctl.c names.
 *
 * Units: none. Threads: the main thread.
 * Ownership: verbs borrow their Arguments.
 * Errors:    a verb prints the error on standard error and returns an exit code (CtlExit).
 */
#pragma once

#include "ctl/verbs.h"

int context_list(const Arguments *a);
int context_show(const Arguments *a);
int context_use(const Arguments *a);
