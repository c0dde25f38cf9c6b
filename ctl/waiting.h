/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.h - says what a verb waits for, once that takes longer than people expect.
 *
 * A store that is away is asked again for a while, in one call that does not return meanwhile.
 *
 * Ownership: waiting_begin() gives the caller a Waiting, which has a copy of the text; waiting_end() accepts NULL.
 * Units:     seconds.
 * Errors:    none: where no thread can be started, nothing is said.
 * Threads:   one a Waiting; it writes one line on standard error.
 */
#pragma once

#include "base/cleanup.h"

enum { WAITING_SEC = 3 };

typedef struct Waiting Waiting;

/* what: "s3://bucket/run". After WAITING_SEC it says "waits for WHAT". */
Waiting *waiting_begin(const char *what);
Waiting *waiting_end(Waiting *waiting);
DEFINE_CLEANUP(Waiting, waiting_end)
