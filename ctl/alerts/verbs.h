/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the verbs of `sdctl alerts`, which the table in sdctl.c names.
 *
 * Ownership: verbs borrow their Arguments.
 * Units:     none.
 * Errors:    a verb returns an exit code (CtlExit), after it has told the error on standard error.
 * Threads:   the main thread.
 */
#pragma once

#include "ctl/verbs.h"

extern const CtlOptions alerts_test_options;

int alerts_list(const Arguments *a);
int alerts_test(const Arguments *a);
