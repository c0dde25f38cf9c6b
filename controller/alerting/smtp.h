/* SPDX-License-Identifier: Apache-2.0 */
/* smtp.h - mails over libcurl, each in a thread of its own.
 *
 * At the end of a message, and at the end of a connection, libcurl waits for the server's reply without returning to
 * its caller, even where it is driven by events as in http.h. In the leader's loop a stalled server would delay every
 * decision. So a thread sends the mail, and passes the result to the loop through an eventfd.
 *
 * TLS is verified. Without TLS no mail is sent unless the request is plain.
 *
 * Ownership: smtp_new() gives the caller an Smtp, which holds a reference on the loop. smtp_send() copies the
 *            request. An SmtpCall ends with its handler; smtp_call_cancel() ends it earlier, without calling the
 *            handler. smtp_free() cancels all calls and waits for the threads, which takes about a second if a server
 *            stalls.
 * Units:     microseconds, bytes.
 * Errors:    -errno: the mail could not begin; -EAGAIN: SMTP_CALLS_MAX mails are under way. The reply reports a later
 *            failure.
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
    const char *url;           /* begins with smtp:// or smtps:// */
    bool plain;                /* no TLS; otherwise smtp:// needs STARTTLS */
    const char *user, *secret; /* NULL or empty: no authentication */
    const char *ca_file;       /* NULL: the system's certificate authorities */
    const char *from;          /* the sender's address */
    const json_t *to;          /* JSON array of the recipients' addresses */
    const char *text;          /* the message, from mail_text() */
    /* limit for the whole mail, from the name look-up to the server's last reply */
    uint64_t timeout_usec;
} SmtpRequest;

/* Called once per mail, from the loop, never from within smtp_send(). The handler borrows the reply. */
typedef void (*SmtpHandler)(const MailReply *reply, void *userdata);
/* Returns the time (CLOCK_BOOTTIME) from which on no mail may begin; called often while a mail is under way. */
typedef uint64_t (*SmtpDeadline)(void *userdata);

int smtp_new(sd_event *event, SmtpDeadline deadline, void *userdata, Smtp **ret);
Smtp *smtp_free(Smtp *smtp);
DEFINE_CLEANUP(Smtp, smtp_free)

int smtp_send(Smtp *smtp, const SmtpRequest *request, SmtpHandler handler, void *userdata,
              SmtpCall **ret);
SmtpCall *smtp_call_cancel(SmtpCall *call);
