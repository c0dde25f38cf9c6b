/* SPDX-License-Identifier: Apache-2.0 */
/* http-server.h - a few pages over HTTP/1.1 out of the program's own event loop, without a thread.
 *
 * GET and HEAD of a known path call its page; other requests are answered 404 or 405. A connection
 * serves one request. There are at most HTTP_CONNECTIONS_MAX connections, and each lives at most
 * HTTP_CONNECTION_SEC, however slowly the other side reads or writes.
 *
 * Nobody shuts the others out. Where there is no place left, the oldest connection that has not finished its request
 * makes way for a new one, or else the oldest that does not take its answer. Before that, an address that has
 * HTTP_UNFINISHED_MAX of such connections loses its own oldest; those that have finished count for no address, since a
 * reverse proxy is one address. HTTP_RESERVED places are only for pages that are `reserved`.
 *
 * A page may answer with a stream of server-sent events instead: a viewer. At most HTTP_VIEWERS_MAX connections are
 * viewers, and further ones are refused in words (503), so that there is always room for pages. A viewer stays until it
 * leaves, until its stream ends, or until it has not taken what there is for HTTP_STALL_SEC.
 *
 * Ownership: http_server_new() gives the caller an HttpServer, which holds a reference on the loop
 *            and borrows the pages.
 * Units:     seconds; bytes.
 * Errors:    -errno with the address in the text; -EINVAL for a text that is not an address. An error
 *            of one connection ends only that connection.
 * Threads:   loop thread only.
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <systemd/sd-event.h>

enum {
    HTTP_CONNECTIONS_MAX = 48,
    HTTP_VIEWERS_MAX = 32,
    HTTP_RESERVED = 2,
    HTTP_UNFINISHED_MAX = 16, /* of one address, or of one network /64 of IPv6 */
    HTTP_CONNECTION_SEC = 5,
    HTTP_STALL_SEC = 10,
};

typedef struct HttpRequest {
    const char *rest;    /* of the path, behind a page's path that ends in "/"; borrowed */
    const char *last_id; /* Last-Event-ID; NULL: none; borrowed */
    int n_viewers;       /* those there are now */
} HttpRequest;

typedef struct HttpAnswer {
    int status;
    const char *type; /* Content-Type */
    const char *text; /* malloc()ed; the server frees it */
    size_t n_text;
    const char *policy; /* Content-Security-Policy; NULL: none */
    bool keep;          /* the text is not malloc()ed, and stays as it is */

    /* Set: the answer is a stream, and text is not read. Called again and again, gives the next bytes, which are
     * borrowed until the next call; 0: there are none now (http_server_wake()); -errno: the stream is over. */
    ssize_t (*next)(void *viewer, const char **ret);
    void (*leave)(void *viewer); /* the connection is gone: called once */
    void *viewer;
} HttpAnswer;

typedef struct HttpPage {
    const char *path; /* "/jobs/" stands for every path below, too */
    /* Makes the page; -errno becomes an answer 500. */
    int (*make)(const HttpRequest *request, HttpAnswer *ret, void *userdata);
    void *userdata; /* NULL: the server's */
    bool reserved;  /* it is answered when all other places are taken */
} HttpPage;

/* Tells whether http_server_new() can read the address; for settings. */
int http_address_check(const char *address, Error *err);

typedef struct HttpServer HttpServer;

/* address is numeric: "127.0.0.1:9464", "[::1]:9464". With port 0 the kernel chooses one. */
int http_server_new(sd_event *event, const char *address, const HttpPage *pages, size_t n_pages,
                    void *userdata, HttpServer **ret, Error *err);
HttpServer *http_server_free(HttpServer *server);
DEFINE_CLEANUP(HttpServer, http_server_free)
/* Asks every viewer's stream again. */
void http_server_wake(HttpServer *server);
/* Returns the address that the server listens on, in a URL's form: "127.0.0.1:9464". */
const char *http_server_address(const HttpServer *server);
