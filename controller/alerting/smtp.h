/* SPDX-License-Identifier: Apache-2.0 */
/* smtp.h - mails over libcurl, each in a thread of its own.
 *
 * libcurl waits for a server's words at the end of a message, and at the end of a connection, without going back to
 * its caller, also where it is driven by events (http.h). In the leader's loop a server that stalls there would hold
 * up every decision. So a thread sends, and hands the loop its result through an eventfd.
 *
 * TLS is verified, and without it nothing is sent unless the request says plain.
 *
 * Ownership: smtp_new() gives the caller an Smtp, which holds a reference on the loop. smtp_send() copies the request.
 *            An SmtpCall ends with its handler; smtp_call_cancel() ends it before, and its handler is not called.
 *            smtp_free() cancels all and waits for the threads: about a second where a server stalls.
 * Units:     microseconds, bytes.
 * Errors:    -errno: the mail could not begin; -EAGAIN: SMTP_CALLS_MAX are under way. A later failure is a reply.
 * Threads:   loop thread only. A thread owns the call's sending half from its start until it has set done.
 */
#pragma once

#include "base/cleanup.h"
#include "controller/alerting/answer.h"

#include <jansson.h>
#include <systemd/sd-event.h>

enum { SMTP_CALLS_MAX = 32 };

typedef struct Smtp Smtp;
typedef struct SmtpCall SmtpCall;

typedef struct SmtpRequest {
    const char *url;           /* smtp:// or smtps:// */
    bool plain;                /* without TLS; else smtp:// needs STARTTLS */
    const char *user, *secret; /* NULL or empty: no authentication */
    const char *ca_file;       /* NULL: the system's authorities */
    const char *from;          /* an address */
    const json_t *to;          /* an array of addresses */
    const char *text;          /* the message, as mail.h makes it */
    uint64_t timeout_usec;     /* of it all, from look-up to the server's last word */
} SmtpRequest;

/* Called once per mail, from the loop, never from within smtp_send(). The reply is borrowed. */
typedef void (*SmtpHandler)(const MailReply *reply, void *userdata);
/* The time (CLOCK_BOOTTIME) from which on no mail may begin any more; asked often while one is under way. */
typedef uint64_t (*SmtpDeadline)(void *userdata);

int smtp_new(sd_event *event, SmtpDeadline deadline, void *userdata, Smtp **ret);
Smtp *smtp_free(Smtp *smtp);
DEFINE_CLEANUP(Smtp, smtp_free)

int smtp_send(Smtp *smtp, const SmtpRequest *request, SmtpHandler handler, void *userdata,
              SmtpCall **ret);
SmtpCall *smtp_call_cancel(SmtpCall *call);
