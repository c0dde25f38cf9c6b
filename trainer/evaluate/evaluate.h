/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.h - a rank that evaluates a checkpoint by itself (kind "eval" with `loss` or `grid`), and the verb
 * `sdtrainer evaluate`.
 *
 * Ownership: none; everything is borrowed.
 * Units:     none.
 * Errors:    an exit code (exit-code.h).
 * Threads:   the training thread.
 */
#pragma once

#include "trainer/link/daemon-link.h"

/* Tells whether the job file is one of kind "eval". */
bool evaluate_is_wanted(const char *spec);
/* Runs the assigned evaluation, reports its results, and returns the process's exit code. */
int evaluate_run(DaemonLink *link, const ChannelMessage *assignment);
int verb_evaluate(int argc, char **argv);
