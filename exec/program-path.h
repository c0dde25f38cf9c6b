/* SPDX-License-Identifier: Apache-2.0 */
/* program-path.h - finds the file that a command names, and checks that it can be executed.
 *
 * Ownership: the caller's buffer. Units: none.
 * Errors:    -errno with a text that names the file. All of them mean that the command can never run here as it is.
 */
#pragma once

#include "base/error.h"

#include <limits.h>

/* Checks that the folder can be entered. */
int exec_check_folder(const char *folder, Error *err);
/* A name with a slash is a path, from `folder` on if it is relative; another one is looked for in the folders of `path`
 * (as PATH). Checks the right to execute and, in a script, the interpreter. */
int exec_find_program(const char *folder, const char *name, const char *path, char ret[PATH_MAX],
                      Error *err);
