/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - what a sink's reply means, by HTTP or SMTP.
 *
 * Ownership: none.
 * Units:     pause_usec in microseconds.
 * Errors:    none: every reply has a meaning. The answer's text is printable ASCII; of our secrets it holds
 *            none.
 * Threads:   any.
 */
#pragma once

#include "base/text/secret-set.h"
#include "controller/core/notifier/notifier.h"

typedef struct HttpReply {
    int status;              /* of HTTP; 0: no reply came */
    const char *failure;     /* if status is 0: why no reply came */
    int64_t retry_after_sec; /* the sink's Retry-After; 0: it sent none */
    const char *body;        /* the beginning of the body; not terminated */
    size_t n_body;
} HttpReply;

typedef struct MailReply {
    int status; /* the SMTP reply that decided: 250, or the one that refused; 0: no server did */
    const char *failure; /* if status is 0: why the mail was not sent */
    const char *words;   /* the last reply that refused something; with 250 that was a recipient */
} MailReply;

/* secrets: what the sink was handed. */
void answer_read(const HttpReply *reply, const SecretSet *secrets, Answer *ret);
void answer_read_mail(const MailReply *reply, const SecretSet *secrets, Answer *ret);
