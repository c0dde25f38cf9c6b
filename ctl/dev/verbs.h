/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the verbs of `sdctl dev`, which the table in sdctl.c names.
 *
 * Units: none. Threads: the main thread.
 * Ownership: verbs borrow their Arguments.
 * Errors:    a verb prints the error on standard error and returns an exit code (CtlExit).
 */
#pragma once

#include "ctl/verbs.h"

extern const CtlOptions dev_up_options;

int dev_up(const Arguments *a);
int dev_down(const Arguments *a);
int dev_status(const Arguments *a);
int dev_kill(const Arguments *a);
int dev_start_one(const Arguments *a);
int dev_stop_one(const Arguments *a);
