/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - one request to an endpoint that gives credentials: limited in time and size, with its memory wiped.
 *
 * Ownership: s3_http_new() gives the caller an S3Http; a reply belongs to the S3Http until the next request.
 * Units:     milliseconds; seconds since 1970.
 * Errors:    -EHOSTUNREACH no complete reply, with libcurl's reason; -EBADMSG the reply is too long;
 *            -ECANCELED; -ENOMEM. An HTTP status is never an error here. The texts do not name the URL.
 * Threads:   one at a time, except s3_http_cancel().
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

enum { S3_HTTP_REPLY_MAX = 65536, S3_HTTP_HEADERS_MAX = 4 };

typedef struct S3Http S3Http;

typedef struct S3HttpRequest {
    const char *method, *url;
    const char *headers[S3_HTTP_HEADERS_MAX]; /* "Name: value"; NULL ends the list */
    const char *body;                         /* NULL: none */
    const char *ca_bundle;                    /* NULL: the system's certificates */
    bool direct;                              /* uses no proxy: the endpoint is on this machine */
    long connect_msec, whole_msec;
} S3HttpRequest;

typedef struct S3HttpReply {
    long status;
    int64_t date;     /* time of the reply's Date header; 0: none */
    const char *body; /* has a NUL after its last byte */
    size_t n_body;
} S3HttpReply;

S3Http *s3_http_new(void);
S3Http *s3_http_free(S3Http *http);
DEFINE_CLEANUP(S3Http, s3_http_free)
int s3_http_request(S3Http *http, const S3HttpRequest *request, S3HttpReply *ret, Error *err);
/* Ends the request in progress, and each later one, with -ECANCELED. */
void s3_http_cancel(S3Http *http);
