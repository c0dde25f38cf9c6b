/* SPDX-License-Identifier: Apache-2.0 */
/* http-server.h - a few pages over HTTP/1.1 out of the program's own event loop, without a thread.
 *
 * GET and HEAD of a known path call its page; other requests are answered 404 or 405. A connection
 * serves one request. There are at most HTTP_CONNECTIONS_MAX connections, and each lives at most
 * HTTP_CONNECTION_SEC, however slowly the other side reads or writes.
 *
 * Ownership: http_server_new() gives the caller an HttpServer, which holds a reference on the loop
 *            and borrows the pages.
 * Units:     seconds.
 * Errors:    -errno with the address in the text; -EINVAL for a text that is no address. An error
 *            of one connection ends that connection alone.
 * Threads:   loop thread only.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <systemd/sd-event.h>

enum { HTTP_CONNECTIONS_MAX = 16, HTTP_CONNECTION_SEC = 5 };

typedef struct HttpAnswer {
    int status;
    const char *type; /* Content-Type */
    char *text;       /* malloc()ed; the server frees it */
    size_t n_text;
} HttpAnswer;

typedef struct HttpPage {
    const char *path;
    /* Makes the page; -errno becomes an answer 500. */
    int (*make)(HttpAnswer *ret, void *userdata);
} HttpPage;

/* Tells whether http_server_new() can read the address; for settings. */
int http_address_check(const char *address, Error *err);

typedef struct HttpServer HttpServer;

/* address is numeric: "127.0.0.1:9464", "[::1]:9464". With port 0 the kernel chooses one. */
int http_server_new(sd_event *event, const char *address, const HttpPage *pages, size_t n_pages,
                    void *userdata, HttpServer **ret, Error *err);
HttpServer *http_server_free(HttpServer *server);
DEFINE_CLEANUP(HttpServer, http_server_free)
/* Returns the address that the server listens on, in a URL's form: "127.0.0.1:9464". */
const char *http_server_address(const HttpServer *server);
