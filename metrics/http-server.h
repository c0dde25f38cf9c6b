/* http-server.h - a few pages over HTTP/1.1 out of the program's own event loop, without a thread.
 *
 * GET and HEAD of a path that is there call its page; others are answered 404 or 405. Each
 * connection serves one request. There are at most HTTP_CONNECTIONS_MAX of them, and each lives at
 * most HTTP_CONNECTION_SEC, however slowly the other side reads or writes.
 *
 * Ownership: http_server_new() gives the caller an HttpServer, which holds a reference on the loop
 *            and borrows the pages.
 * Units:     seconds.
 * Errors:    -errno with the address in the text; -EINVAL for a text that is no address. What goes
 *            wrong with one connection ends that connection.
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
    /* -errno: answered 500. */
    int (*make)(HttpAnswer *ret, void *userdata);
} HttpPage;

/* For settings: whether http_server_new() can read it. */
int http_address_check(const char *address, Error *err);

typedef struct HttpServer HttpServer;

/* address: "127.0.0.1:9464", "[::1]:9464"; numbers alone. Port 0: the kernel chooses. */
int http_server_new(sd_event *event, const char *address, const HttpPage *pages, size_t n_pages,
                    void *userdata, HttpServer **ret, Error *err);
HttpServer *http_server_free(HttpServer *server);
DEFINE_CLEANUP(HttpServer, http_server_free)
/* Where it listens, as a URL takes it: "127.0.0.1:9464". */
const char *http_server_address(const HttpServer *server);
