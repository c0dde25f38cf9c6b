/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - POST over libcurl on the sd-event loop.
 *
 * TLS is verified, redirects are not followed, replies are bounded. libcurl looks up a host's name in a
 * short-lived thread of its own; nothing waits for that thread.
 *
 * Units: microseconds, bytes. Threads: loop thread only.
 * Ownership: http_new() gives the caller an Http, which holds a reference on the loop. http_post() borrows the
 *            request for the call. An HttpCall frees itself after its handler; http_call_free() cancels one
 *            call, http_free() cancels all calls.
 * Errors:    -errno: the request could not begin. A later failure is a reply with status 0.
 */
#pragma once

#include "base/cleanup.h"
#include "controller/alerting/answer.h"

#include <systemd/sd-event.h>

typedef struct Http Http;
typedef struct HttpCall HttpCall;

typedef struct HttpRequest {
    const char *url, *body;
    /* ca_file NULL: the system's certificate authorities. proxy NULL: the proxy that the environment names. */
    const char *ca_file, *proxy;
    const char *headers[8]; /* "Name: value"; the list ends with NULL */
    uint64_t timeout_usec;  /* limit for the whole request, from the name look-up to the reply */
} HttpRequest;

/* Called once per request, never from within http_post(). The handler borrows the reply. */
typedef void (*HttpHandler)(const HttpReply *reply, void *userdata);
/* Called when the connection is established, before the first byte of a request is sent; false cancels the request. */
typedef bool (*HttpMaySend)(void *userdata);

int http_new(sd_event *event, HttpMaySend may_send, void *userdata, Http **ret);
Http *http_free(Http *http);
DEFINE_CLEANUP(Http, http_free)

int http_post(Http *http, const HttpRequest *request, HttpHandler handler, void *userdata,
              HttpCall **ret);
HttpCall *http_call_free(HttpCall *call);
