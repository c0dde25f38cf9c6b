/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - POST over libcurl on the sd-event loop.
 *
 * TLS is verified, redirects are not followed, replies are bounded. Where a host's name must be
 * looked up, libcurl does it in a short-lived thread of its own; nothing waits for that thread.
 *
 * Ownership: http_new() gives the caller an Http; it holds a reference on the loop. http_post()
 *            borrows its request for the call. A HttpCall frees itself after its handler;
 *            http_call_free() cancels, and http_free() cancels all.
 * Units:     microseconds, bytes.
 * Errors:    -errno of what could not begin. Later ones are replies with status 0.
 * Threads:   loop thread only.
 */
#pragma once

#include "base/cleanup.h"
#include "controller/alerting/answer.h"

#include <systemd/sd-event.h>

typedef struct Http Http;
typedef struct HttpCall HttpCall;

typedef struct HttpRequest {
    const char *url, *body;
    const char *ca_file, *proxy; /* NULL: the system's authorities, the environment's proxy */
    const char *headers[8];      /* "Name: value"; NULL ends them */
    uint64_t timeout_usec;       /* of the whole */
} HttpRequest;

/* Called once, never from within http_post(). The reply is borrowed. */
typedef void (*HttpHandler)(const HttpReply *reply, void *userdata);
/* Asked once the connection stands, before the first byte of a request leaves. */
typedef bool (*HttpMaySend)(void *userdata);

int http_new(sd_event *event, HttpMaySend may_send, void *userdata, Http **ret);
Http *http_free(Http *http);
DEFINE_CLEANUP(Http, http_free)

int http_post(Http *http, const HttpRequest *request, HttpHandler handler, void *userdata,
              HttpCall **ret);
HttpCall *http_call_free(HttpCall *call);
