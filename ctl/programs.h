/* SPDX-License-Identifier: Apache-2.0 */
/* programs.h - running a verb of sdtrainer for a verb of sdctl that needs the U-Net's code.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    -errno when the program cannot be run; else the result is its exit code, and its own
 *            errors are on standard error.
 * Threads:   the main thread; no Client may be open (children are forked).
 */
#pragma once

#include "base/error.h"

#include <limits.h>

enum { PROGRAMS_ARGUMENTS_MAX = 160 };

/* Returns the folder of the running program, where the other programs lie. */
int programs_folder(char ret[PATH_MAX], Error *err);
/* Runs sdtrainer with the arguments, which begin with the verb and end with NULL, and waits for its end. It inherits
 * every descriptor that is not closed on exec, and is killed when sdctl ends first. */
int programs_run_trainer(const char *const *arguments, Error *err);
