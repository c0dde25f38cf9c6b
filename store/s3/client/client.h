/* SPDX-License-Identifier: Apache-2.0 */
/* client.h - requests to one S3 endpoint, many at a time: signed, sent, judged, tried again.
 *
 * An S3 server answers late, twice, or never. One thread drives all transfers (libcurl's multi interface). It tries a
 * request until the request succeeds, is refused for good, or reaches its deadline; each try is signed anew. It
 * corrects a skewed clock, follows a bucket to its region, renews credentials, and sends fewer requests at a time after
 * a SlowDown (more again later). It sends a ranged get that is much slower than the others a second time; the first
 * answer counts. retry.h, which is pure, decides what to do about each reply.
 *
 * The client does not decide whether a put whose answer was lost was done: the request ends with `unknown` set, unless
 * repeating it is harmless.
 *
 * Ownership: clients are shared: s3_client_open() with equal options returns the same client while anybody
 *            holds it. s3_client_close() gives up one reference; the last one ends requests under way
 *            with -ECANCELED. The caller sets the first fields of a request, up to `context`, and zeroes the
 *            others; the request, and all that it points to, must stay until it is done.
 * Units:     bytes, microseconds.
 * Errors:    a request's result: 0; -ENOENT 404; -EEXIST 412; -EAGAIN 409 of a conditional put (the
 *            caller begins anew); -EACCES 401, 403, a bad certificate; -EOPNOTSUPP 501 and other functions
 *            that the server lacks; -ENOSPC a quota; -EFBIG more than text_max; -EIO a wrong answer, an
 *            object shorter than asked, or `unknown`; -EHOSTUNREACH the deadline passed (the text has
 *            the last reason); -ECANCELED. The text names method and URL, status, code and message; no
 *            secret.
 * Threads:   any. `done` is called on the client's thread: it must not block, may begin requests,
 *            and does not close the client. s3_begin() hashes the body on its caller's thread: 0.1 s a
 *            GiB for `checksum`, 1 s a GiB and more where the payload is signed. A child of fork() opens
 *            a client of its own; closing the parent's only forgets it.
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

/* The client's own fields of a request; no other file reads them. */
typedef struct S3Progress {
    TAILQ_ENTRY(S3Request) link;     /* in `queue` */
    struct S3Queue *queue;           /* the request is in this one; NULL: it is not under way */
    struct S3Try *tries[2];          /* under way, NULL where not: the first try, and its hedge */
    pthread_cond_t *waiter;          /* signalled at the end; NULL: nobody waits */
    char *location;                  /* URL of the last redirect; NULL: there was none */
    uint64_t n_body;                 /* bytes of the body */
    uint64_t begun_usec;             /* time of s3_begin() */
    uint64_t due_usec;               /* end of the pause, while in the queue `paused` */
    char body_hash[SIGN_HASH_BYTES]; /* value of x-amz-content-sha256 */
    unsigned redirects;              /* followed so far */
    int unfit; /* -errno with which the first try must fail; 0: it may begin */
    bool clock_corrected, region_corrected, credentials_renewed; /* each is done once a request */
    bool under_way;        /* begun and not done; under the client's lock */
    bool conditional;      /* its headers have If-Match or If-None-Match */
    bool undecided;        /* the server may have acted on a try whose answer did not come */
    atomic_bool cancelled; /* by s3_cancel() */
} S3Progress;

enum {
    S3_HEADERS_MAX = 24,
    S3_CRC32C_BYTES = 9, /* "4waSgw==" and a NUL: the number's bytes, highest first, in base64 */
};

struct S3Request {
    /* The question, up to `context`. */
    S3Method method;
    const char *bucket;
    const char *key; /* any bytes but NUL; "": the request is about the bucket */
    const S3Pair *query;
    size_t n_query;
    const S3Pair *headers;    /* without Range, which `ranged` adds */
    size_t n_headers;         /* at most S3_HEADERS_MAX */
    const struct iovec *body; /* of PUT and POST */
    size_t n_body;
    bool checksum;          /* the body's crc32c is sent if the server knows it */
    bool repeatable;        /* doing it twice is as good as once; always true of GET and HEAD */
    uint64_t deadline_usec; /* CLOCK_BOOTTIME; 0: the options' deadline, from now */
    /* The request ends with -ECANCELED once this is true; NULL: it does not. */
    const atomic_bool *stop;

    /* The destination of a successful reply's body. With a buffer (only GET), the body must fill it exactly; `ranged`
     * then asks for the bytes offset .. offset + n_bytes - 1 (n_bytes > 0). With buffer NULL the body goes into `text`,
     * at most text_max bytes (-EFBIG), with a NUL after them. After a failure the buffer's content is undefined. */
    void *buffer;
    bool ranged;
    uint64_t offset;
    size_t n_bytes;
    size_t text_max;

    void (*done)(S3Request *request); /* called at the end; NULL: the caller uses s3_wait() */
    void *context;                    /* the caller's own */

    /* The answer. */
    int result;
    Error error;
    long status;  /* HTTP status of the last reply; 0: none came */
    bool unknown; /* it failed, and the server may have acted on it all the same */
    ReplyHeaders reply;
    S3Error refusal;                   /* the last reply's <Error>; code "": it had none */
    char sent_crc32c[S3_CRC32C_BYTES]; /* of the body, as its header said; "": none was sent */
    char *text;                        /* the body, which the caller frees; NULL: see `buffer` */
    size_t n_text;
    unsigned tries; /* hedges apart */

    S3Progress progress; /* the client's own */
};

int s3_client_open(const S3Options *options, S3Client **ret, Error *err);
S3Client *s3_client_close(S3Client *client);
DEFINE_CLEANUP(S3Client, s3_client_close)
const S3Options *s3_client_options(const S3Client *client);

/* Queues a request. It ends by `done`, or in s3_wait(), even if it cannot be begun. */
void s3_begin(S3Client *client, S3Request *request);
/* Waits for a request without `done`, at most until its deadline; returns its result. */
int s3_wait(S3Client *client, S3Request *request, Error *err);
/* Ends a request as soon as possible with -ECANCELED, unless it is done. `done` is still called, or the request must
 * still be waited for. The request must exist until this returns. */
void s3_cancel(S3Client *client, S3Request *request);
/* Begins a request and waits for it. */
int s3_do(S3Client *client, S3Request *request, Error *err);

/* Tells the client what probe.c found out: whether the server checks crc32c. */
void s3_client_set_checksum(S3Client *client, bool knows_crc32c);
