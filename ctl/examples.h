/* SPDX-License-Identifier: Apache-2.0 */
/* examples.h - complete command lines for each verb, as examples in --help and the manual page.
 *
 * Ownership: none. Threads: any.
 */
#pragma once

#include "ctl/verbs.h"

/* Returns the verb's example lines with a NULL after the last line, or NULL if the verb has none. */
const char *const *examples_of(const CtlVerb *verb);
