/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - what a sink's HTTP reply means.
 *
 * Ownership: none.
 * Units:     pause_usec in microseconds.
 * Errors:    none: any bytes mean something. The text is printable ASCII and holds no secret of
 *            ours that the reply did not repeat.
 * Threads:   any.
 */
#pragma once

#include "controller/core/notifier/notifier.h"

typedef struct HttpReply {
    int status;              /* 0: there was none */
    const char *failure;     /* status 0: why */
    int64_t retry_after_sec; /* as the sink asks; 0: it does not */
    const char *body;        /* its beginning; not terminated */
    size_t n_body;
} HttpReply;

void answer_read(const HttpReply *reply, Answer *ret);
