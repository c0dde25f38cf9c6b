/* SPDX-License-Identifier: Apache-2.0 */
/* verbs.h - the verbs of `sdctl node`, which the table in sdctl.c names.
 *
 * Units: none. Threads: the main thread.
 * Ownership: verbs borrow their Arguments.
 * Errors:    a verb prints the error on standard error and returns an exit code (CtlExit).
 */
#pragma once

#include "ctl/verbs.h"

extern const CtlOptions node_cordon_options, node_uncordon_options, node_check_options;

int node_list(const Arguments *a);
int node_status(const Arguments *a);
int node_cordon(const Arguments *a);
int node_drain(const Arguments *a);
int node_uncordon(const Arguments *a);
int node_forget(const Arguments *a);
int node_check(const Arguments *a);
