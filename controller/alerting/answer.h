/* SPDX-License-Identifier: Apache-2.0 */
/* answer.h - what a sink's reply means, by HTTP or SMTP.
 *
 * Folder:    defaults of the headers here: Threads: any.
 * Ownership: none.
 * Units:     pause_usec in microseconds.
 * Errors:    none: every reply has a meaning. The answer's text is printable ASCII and contains none of the secrets.
 */
#pragma once

#include "base/text/secret-set.h"
#include "controller/core/notifier/notifier.h"

typedef struct HttpReply {
    int status;              /* HTTP status; 0: no reply was received */
    const char *failure;     /* if status is 0: why no reply came */
    int64_t retry_after_sec; /* the sink's Retry-After; 0: none was sent */
    const char *body;        /* the beginning of the body; not NUL-terminated */
    size_t n_body;
} HttpReply;

typedef struct MailReply {
    /* The server's reply code: 250 if it accepted the mail, 400 to 599 if it refused the mail; 0 if it did neither. */
    int status;
    const char *failure; /* if status is 0: why the mail was not sent */
    /* The last reply in which the server refused something; if status is 250, the server refused a recipient. */
    const char *words;
} MailReply;

/* secrets: the secrets that the sink's server was given; none of them is written to *ret. */
void answer_read(const HttpReply *reply, const SecretSet *secrets, Answer *ret);
void answer_read_mail(const MailReply *reply, const SecretSet *secrets, Answer *ret);
