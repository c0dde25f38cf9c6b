/* SPDX-License-Identifier: Apache-2.0 */
/* examples.h - calls of each verb that work as they stand, for --help and the manual page.
 *
 * Ownership: none.
 * Units:     none.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include "ctl/verbs.h"

/* Returns the lines, NULL after the last; NULL: the verb has none. */
const char *const *examples_of(const CtlVerb *verb);
