/* SPDX-License-Identifier: Apache-2.0 */
/* waiting.h - prints what a verb waits for, if the wait takes longer than users expect.
 *
 * A call to a store that does not answer is retried for a while and does not return meanwhile. So a thread prints the
 * message.
 *
 * Ownership: waiting_begin() gives the caller a Waiting, which has a copy of the text; waiting_end() accepts NULL.
 * Units:     seconds.
 * Errors:    none: if the thread cannot be started, nothing is printed.
 * Threads:   one thread per Waiting; it writes one line on standard error.
 */
#pragma once

#include "base/cleanup.h"

enum { WAITING_SEC = 3 };

typedef struct Waiting Waiting;

/* Begins a wait. `what` names the object of the wait, such as "s3://bucket/run". After WAITING_SEC the thread
 * prints "waits for WHAT". */
Waiting *waiting_begin(const char *what);
Waiting *waiting_end(Waiting *waiting);
DEFINE_CLEANUP(Waiting, waiting_end)
