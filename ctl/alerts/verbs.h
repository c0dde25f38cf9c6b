/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the verbs of `sdctl alerts`, which the table in sdctl.c names.
 *
 * Units: none. Threads: the main thread.
 * Ownership: verbs borrow their Arguments.
 * Errors:    a verb prints the error on standard error and returns an exit code (CtlExit).
 */
#pragma once

#include "ctl/verbs.h"

extern const CtlOptions alerts_test_options;

int alerts_list(const Arguments *a);
int alerts_test(const Arguments *a);
