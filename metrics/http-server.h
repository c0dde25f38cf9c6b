/* SPDX-License-Identifier: Apache-2.0 */
/* http-server.h - serves a few pages over HTTP/1.1 from the program's own event loop, without a thread.
 *
 * GET and HEAD of a known path call its page; other requests are answered 404 or 405. A connection serves one request.
 * There are at most HTTP_CONNECTIONS_MAX connections, and each is closed after HTTP_CONNECTION_SEC, even if the client
 * reads or writes slowly.
 *
 * A client cannot block other clients. If all places are taken, a new connection replaces the oldest connection that
 * has not finished its request, or else the oldest connection that does not read its answer. Before that limit, an
 * address that has HTTP_UNFINISHED_MAX connections with unfinished requests loses the oldest of these connections.
 * Connections with finished requests are not counted per address, because a reverse proxy has only one address.
 * HTTP_RESERVED places are only for pages that are `reserved`.
 *
 * A page may answer with a stream of server-sent events instead: the connection is then a viewer. At most
 * HTTP_VIEWERS_MAX connections are viewers, and more viewers are refused with a text (503), so that there is always
 * room for pages. A viewer stays connected until it disconnects, until its stream ends, or until it has not read
 * available data for HTTP_STALL_SEC.
 *
 * Units: seconds; bytes. Threads: loop thread only.
 * Ownership: http_server_new() gives the caller an HttpServer, which holds a reference on the loop and borrows the
 *            pages.
 * Errors:    -errno with the address in the text; -EINVAL for a text that is not an address. An error of one connection
 *            ends only that connection.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <systemd/sd-event.h>

enum {
    HTTP_CONNECTIONS_MAX = 48,
    HTTP_VIEWERS_MAX = 32,
    HTTP_RESERVED = 2,
    HTTP_UNFINISHED_MAX = 16, /* limit per IPv4 address, or per IPv6 network /64 */
    HTTP_CONNECTION_SEC = 5,
    HTTP_STALL_SEC = 10,
};

typedef struct HttpRequest {
    const char *rest;    /* rest of the path after a page's path that ends in "/"; borrowed */
    const char *last_id; /* header Last-Event-ID; NULL: none; borrowed */
    int n_viewers;       /* present number of viewers */
} HttpRequest;

typedef struct HttpAnswer {
    int status;
    const char *type; /* the header Content-Type */
    const char *text; /* malloc()ed; the server frees it */
    size_t n_text;
    const char *policy; /* the header Content-Security-Policy; NULL: none */
    bool keep;          /* the text is static and must not be freed */

    /* If set, the answer is a stream, and text is ignored. Each call returns the next bytes, which stay valid until the
     * next call; 0: there is no data until http_server_wake(); -errno: the stream has ended. */
    ssize_t (*next)(void *viewer, const char **ret);
    void (*leave)(void *viewer); /* called once, after the connection was closed */
    void *viewer;
} HttpAnswer;

typedef struct HttpPage {
    const char *path; /* "/jobs/" also matches every path below it */
    /* Makes the page; -errno gives an answer with status 500. */
    int (*make)(const HttpRequest *request, HttpAnswer *ret, void *userdata);
    void *userdata; /* NULL: use the server's userdata */
    bool reserved;  /* the page is served even if all other places are taken */
} HttpPage;

/* Checks whether http_server_new() accepts the address; used for settings. */
int http_address_check(const char *address, Error *err);

typedef struct HttpServer HttpServer;

/* address is numeric: "127.0.0.1:9464", "[::1]:9464". With port 0 the kernel chooses one. */
int http_server_new(sd_event *event, const char *address, const HttpPage *pages, size_t n_pages,
                    void *userdata, HttpServer **ret, Error *err);
HttpServer *http_server_free(HttpServer *server);
DEFINE_CLEANUP(HttpServer, http_server_free)
/* Resumes every viewer that waits for data, so that its stream is read again. */
void http_server_wake(HttpServer *server);
/* Returns the address that the server listens on, in a URL's form: "127.0.0.1:9464". */
const char *http_server_address(const HttpServer *server);
