/* programs.h - verbs of sdtrainer, run by verbs of sdctl: what needs the network's code is there.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    -errno when it cannot be run; else its own words are on standard error and the result
 *            is its exit code.
 * Threads:   the main thread; no Client may be open (children are forked).
 */
#pragma once

#include "base/error.h"

#include <limits.h>

/* The folder of this very program, where the others lie. */
int programs_folder(char ret[PATH_MAX], Error *err);
/* arguments begin with the verb and end with NULL; waits for its end. */
int programs_run_trainer(const char *const *arguments, Error *err);
