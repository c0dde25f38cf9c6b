/* client.h - requests to one S3 endpoint, many at a time: signed, sent, judged, tried again.
 *
 * One thread drives all transfers (libcurl's multi interface). A request is tried until it succeeds,
 * is refused for good, or its deadline is over; each try is signed anew. The thread corrects a skewed
 * clock, follows a bucket to its region, renews credentials, sends fewer at a time when the server
 * says SlowDown (and more again later), and sends a ranged get that is much slower than the others
 * a second time, the first answer counts. What to do about each reply is in retry.h, which is pure.
 *
 * A put whose answer was lost is not decided here: the request ends with `unknown` set, unless
 * repeating it is harmless.
 *
 * Ownership: clients are shared: s3_client_open() of equal options gives the same client while
 *            somebody has it; s3_client_close() lets it go, and the last one ends what is under way
 *            with -ECANCELED. A request is zero but for what is asked, and it and all that it points
 *            to are the caller's and must stay until it is done.
 * Units:     bytes, microseconds.
 * Errors:    a request's result: 0; -ENOENT 404; -EEXIST 412; -EAGAIN 409 of a conditional put (the
 *            caller begins anew); -EACCES 401, 403, a certificate that is wrong; -EOPNOTSUPP 501 and
 *            what else a server does not know; -ENOSPC a quota; -EFBIG more than text_max; -EIO it
 *            answers what it should not, or an object is shorter than asked, or `unknown`;
 *            -EHOSTUNREACH the deadline is over (the text has the last reason); -ECANCELED. The text
 *            names method and URL, status, code and message; no secret.
 * Threads:   any. `done` is called on the client's thread: it must not block, may begin requests,
 *            and does not close the client. The hash of a body is made in s3_begin() by its caller:
 *            0.1 s a GiB for `checksum`, 1 s and more where the payload is signed; who begins large
 *            puts does it on a thread that may take so long.
 *            A child of fork() opens its own, and only lets go of its parent's.
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

/* What the client keeps with a request; nobody else looks at it. */
typedef struct S3Progress {
    TAILQ_ENTRY(S3Request) link;
    struct S3Queue *queue;  /* where it is */
    struct S3Try *tries[2]; /* under way: the first one, and its hedge */
    pthread_cond_t *waiter; /* who waits for the end */
    char *location;         /* where a redirect led; NULL: nowhere */
    uint64_t n_body, begun_usec, due_usec;
    char body_hash[SIGN_HASH_BYTES]; /* what x-amz-content-sha256 says */
    unsigned redirects;
    int unfit; /* why it cannot be begun; 0: it can */
    bool clock_corrected, region_corrected, credentials_renewed;
    bool under_way;   /* begun and not done; under the client's lock */
    bool conditional; /* If-Match or If-None-Match */
    bool undecided;   /* a try that has no answer yet may have been acted on */
    atomic_bool cancelled;
} S3Progress;

enum {
    S3_HEADERS_MAX = 24,
    S3_CRC32C_BYTES = 9, /* "4waSgw==": the number's bytes, high one first, in base64 */
};

struct S3Request {
    /* what is asked */
    S3Method method;
    const char *bucket;
    const char *key; /* any bytes but NUL; "": the bucket itself */
    const S3Pair *query;
    size_t n_query;
    const S3Pair *headers;    /* Range is not among them: see below */
    size_t n_headers;         /* at most S3_HEADERS_MAX */
    const struct iovec *body; /* of PUT and POST */
    size_t n_body;
    bool checksum;          /* send the body's crc32c where the server knows it */
    bool repeatable;        /* doing it twice is as good as once; gets and heads are */
    uint64_t deadline_usec; /* CLOCK_BOOTTIME; 0: the options' from now */

    /* where a successful reply's body goes: of a get into the buffer, which it must fill exactly, as
     * the range offset .. offset + n_bytes - 1 when `ranged` (n_bytes > 0); or, with buffer NULL,
     * into text, at most text_max bytes (-EFBIG), with a NUL after them, which the caller frees.
     * What is in the buffer after a failure means nothing */
    void *buffer;
    bool ranged;
    uint64_t offset;
    size_t n_bytes;
    size_t text_max;

    void (*done)(S3Request *request); /* NULL: somebody waits */
    void *context;                    /* the caller's own */

    /* the answer */
    int result;
    Error error;
    long status;  /* 0: none came */
    bool unknown; /* failed, and it may have been done all the same */
    ReplyHeaders reply;
    S3Error refusal;                   /* code "" when there was none */
    char sent_crc32c[S3_CRC32C_BYTES]; /* the body's, as the header had it; "": none was sent */
    char *text;
    size_t n_text;
    unsigned tries;

    S3Progress progress; /* the client's own */
};

int s3_client_open(const S3Options *options, S3Client **ret, Error *err);
S3Client *s3_client_close(S3Client *client);
DEFINE_CLEANUP(S3Client, s3_client_close)
const S3Options *s3_client_options(const S3Client *client);

/* Queues it. `done`, or s3_wait(), tells the end, also of what could not be begun. */
void s3_begin(S3Client *client, S3Request *request);
/* Of a request without `done`; returns its result. Bounded by its deadline. */
int s3_wait(S3Client *client, S3Request *request, Error *err);
/* Ends it as soon as possible with -ECANCELED, if it is not done; `done` is still called, or it must
 * still be waited for. The caller sees to it that the request still exists. */
void s3_cancel(S3Client *client, S3Request *request);
/* begin and wait. */
int s3_do(S3Client *client, S3Request *request, Error *err);

/* Bytes of buffers that the store takes for itself (hedges, whole objects in pieces): waits until
 * they fit the options' memory_bytes, -EHOSTUNREACH at the deadline (CLOCK_BOOTTIME; 0: the options'
 * from now); a single larger one comes through alone. */
int s3_reserve(S3Client *client, size_t n_bytes, uint64_t deadline_usec, Error *err);
void s3_release(S3Client *client, size_t n_bytes);

/* What the server turned out to be able to do; asked once by whoever needs it (s3.c). */
void s3_client_set_checksum(S3Client *client, bool knows_crc32c);

typedef struct S3Counts {
    uint64_t requests, retries, slow_downs, hedges, hedges_won, bytes_in, bytes_out, resigned;
    int64_t concurrency;      /* allowed now */
    int64_t clock_offset_sec; /* the server's clock, minus ours, as it was learned */
} S3Counts;
void s3_client_counts(const S3Client *client, S3Counts *ret);
