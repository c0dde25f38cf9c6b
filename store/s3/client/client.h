/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - requests to one S3 endpoint, many at the same time: signs, sends and retries them, and judges replies.
 *
 * An S3 server may answer late, twice, or never. One thread drives all transfers (libcurl's multi interface). It tries
 * a request until the request succeeds, is finally refused, or reaches its deadline; each try is signed anew. The
 * client corrects a skewed clock, follows a bucket to its region, renews credentials, and sends fewer requests at a
 * time after a SlowDown (more again later). It repeats a ranged get that is much slower than the others; the first
 * answer counts. retry.h, which is pure, decides how to handle each reply.
 *
 * If the answer to a put was lost, the client does not decide whether the put was done: the request ends with
 * `unknown` set, unless repeating it is harmless.
 *
 * Ownership: clients are shared: s3_client_open() with equal options returns the same client while there is a
 *            reference to it. s3_client_close() releases one reference; the last one ends requests in progress
 *            with -ECANCELED. The caller sets the first fields of a request, up to `context`, and zeroes the
 *            others; the request, and all that it points to, must stay valid until it is done.
 * Units:     bytes, microseconds.
 * Errors:    a request's result: 0; -ENOENT 404; -EEXIST 412; -EAGAIN 409 of a conditional put (the
 *            caller starts again); -EACCES 401, 403, a bad certificate; -EOPNOTSUPP 501 and other functions
 *            that the server lacks; -ENOSPC a quota; -EFBIG more than text_max; -EIO a wrong answer, an
 *            object shorter than requested, or `unknown`; -EHOSTUNREACH the deadline passed (the text has
 *            the last reason); -ECANCELED. The text names method and URL, status, code and message; no
 *            secret.
 * Threads:   any. `done` is called on the client's thread: it must not block or close the client, but may begin
 *            requests. s3_begin() hashes the body on its caller's thread: 0.1 s per
 *            GiB for `checksum`, 1 s per GiB and more if the payload is signed. A child of fork() opens
 *            a client of its own; if it closes the parent's, nothing happens.
 */
#pragma once

#include "store/s3/protocol/reply.h"
#include "store/s3/protocol/sign.h"
#include "store/s3/settings/options.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

typedef struct S3Client S3Client;

typedef enum S3Method { S3_GET, S3_HEAD, S3_PUT, S3_POST, S3_DELETE } S3Method;

typedef struct S3Request S3Request;

/* Fields of a request for the client only; other files must not use them. */
typedef struct S3Progress {
    TAILQ_ENTRY(S3Request) link;     /* links the requests of `queue` */
    struct S3Queue *queue;           /* the queue that the request is in; NULL: not in progress */
    struct S3Try *tries[2];          /* the first try and its hedge; NULL: the try does not run */
    pthread_cond_t *waiter;          /* signalled at the request's end; NULL: no thread waits */
    char *location;                  /* URL of the last redirect; NULL: there was none */
    uint64_t n_body;                 /* bytes of the body */
    uint64_t begun_usec;             /* time of s3_begin() */
    uint64_t due_usec;               /* when the request leaves the queue `paused` */
    char body_hash[SIGN_HASH_BYTES]; /* value of x-amz-content-sha256 */
    unsigned redirects;              /* redirects followed so far */
    int unfit; /* -errno that the first try must return; 0: the try may begin */
    /* Corrections that were already made for this request; each is made at most once. */
    bool clock_corrected, region_corrected, credentials_renewed;
    bool under_way;        /* begun and not done; guarded by the client's lock */
    bool conditional;      /* the request has If-Match or If-None-Match */
    bool undecided;        /* the server may have executed a try whose answer did not arrive */
    atomic_bool cancelled; /* set by s3_cancel() */
} S3Progress;

enum {
    S3_HEADERS_MAX = 24,
    S3_CRC32C_BYTES = 9, /* "4waSgw==" and a NUL: the number's bytes, highest first, in base64 */
};

struct S3Request {
    /* The caller sets the fields up to `context`: they are the request. */
    S3Method method;
    const char *bucket;
    const char *key; /* any bytes except NUL; "": the request is about the bucket */
    const S3Pair *query;
    size_t n_query;
    const S3Pair *headers;    /* without Range, which `ranged` adds */
    size_t n_headers;         /* at most S3_HEADERS_MAX */
    const struct iovec *body; /* the body of a PUT or POST */
    size_t n_body;
    bool checksum;   /* the body's crc32c is sent if the server checks it */
    bool repeatable; /* executing the request twice is harmless; always so for GET and HEAD */
    uint64_t deadline_usec; /* CLOCK_BOOTTIME; 0: the options' deadline, from now */
    /* The request ends with -ECANCELED once this flag is true; NULL: no such flag. */
    const atomic_bool *stop;

    /* Destination of a successful reply's body. If buffer is set (only for GET), the body must fill it exactly;
     * `ranged` requests only the bytes offset .. offset + n_bytes - 1 (n_bytes > 0). If buffer is NULL, the body is
     * stored in `text`, at most text_max bytes (-EFBIG), followed by a NUL. After a failure the buffer's content is
     * undefined. */
    void *buffer;
    bool ranged;
    uint64_t offset;
    size_t n_bytes;
    size_t text_max;

    void (*done)(S3Request *request); /* called at the end; NULL: the caller uses s3_wait() */
    void *context;                    /* for the caller's use */

    /* The client sets the following fields: they are the answer. */
    int result;
    Error error;
    long status;  /* HTTP status of the last reply; 0: there was no reply */
    bool unknown; /* the request failed, but the server may have executed it */
    ReplyHeaders reply;
    S3Error refusal;                   /* the last reply's <Error>; code "": there was none */
    char sent_crc32c[S3_CRC32C_BYTES]; /* checksum header that was sent with the body; "": none */
    char *text;                        /* the body, if it is not in `buffer`; the caller frees it */
    size_t n_text;
    unsigned tries; /* number of tries without hedges */

    S3Progress progress; /* used only by the client */
};

int s3_client_open(const S3Options *options, S3Client **ret, Error *err);
S3Client *s3_client_close(S3Client *client);
DEFINE_CLEANUP(S3Client, s3_client_close)
const S3Options *s3_client_options(const S3Client *client);

/* Queues a request. Even if the request cannot be started, `done` or s3_wait() reports its end. */
void s3_begin(S3Client *client, S3Request *request);
/* Waits for a request without `done`, at most until its deadline; returns its result. */
int s3_wait(S3Client *client, S3Request *request, Error *err);
/* Ends a request as soon as possible with -ECANCELED, unless it is done. `done` is still called, or the caller must
 * still wait for the request. The request must stay valid until this function returns. */
void s3_cancel(S3Client *client, S3Request *request);
/* Begins a request and waits for it. */
int s3_do(S3Client *client, S3Request *request, Error *err);

/* Sets whether the server checks crc32c, as found out by probe.c. */
void s3_client_set_checksum(S3Client *client, bool knows_crc32c);
