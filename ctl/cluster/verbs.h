/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the verbs of `sdctl cluster`, which the table in sdctl.c names.
 *
 * Units: none. Threads: the main thread.
 * Ownership: verbs borrow their Arguments.
 * Errors:    a verb prints the error on standard error and returns an exit code (CtlExit).
 */
#pragma once

#include "ctl/verbs.h"

extern const CtlOptions cluster_what_if_options;

int cluster_status(const Arguments *a);
int cluster_what_if(const Arguments *a);
