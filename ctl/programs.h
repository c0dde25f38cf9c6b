/* SPDX-License-Identifier: Apache-2.0 */
/* programs.h - runs a verb of sdtrainer for a verb of sdctl that needs the U-Net's code.
 *
 * Ownership: none.
 * Errors:    -errno when the program cannot be run; else the result is its exit code, and its own errors are on
 *            standard error.
 * Threads:   the main thread; no CtlClient may be open, because this forks.
 */
#pragma once

#include "base/error.h"

#include <limits.h>

enum { PROGRAMS_ARGUMENTS_MAX = 160 };

/* Writes the folder of the running program, which also has the other programs, into ret. */
int programs_folder(char ret[PATH_MAX], Error *err);
/* Runs sdtrainer and waits for its end. The arguments begin with the verb and end with NULL. sdtrainer inherits every
 * descriptor that is not closed on exec, and is killed if sdctl ends first. */
int programs_run_trainer(const char *const *arguments, Error *err);
