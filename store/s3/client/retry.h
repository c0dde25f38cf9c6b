/* SPDX-License-Identifier: Apache-2.0 */
/* retry.h - decides what a reply means, how to handle it, how long to pause, how many requests to send at a time. Pure:
 * no clock, no I/O.
 *
 * Ownership: values. Units: microseconds. Errors: none. Threads: any.
 * Source:    Amazon S3 API Reference, Error responses; full jitter: "Exponential Backoff And
 *            Jitter", AWS Architecture Blog, 2015.
 */
#pragma once

#include "base/macro.h"
#include "store/s3/protocol/reply.h"

typedef enum RetryAction {
    RETRY_DONE,        /* the request succeeded */
    RETRY_FAIL,        /* the request failed finally, with `result` */
    RETRY_AGAIN,       /* try again after a pause */
    RETRY_SLOWER,      /* try again after a pause, and send fewer requests at a time */
    RETRY_CLOCK,       /* try again at once, signed with the time of the server's clock */
    RETRY_REGION,      /* try again at once, signed for the region that the reply names */
    RETRY_REDIRECT,    /* try again at once, at the URL that the reply names, signed for its host */
    RETRY_CREDENTIALS, /* try again with new credentials */
} RetryAction;

enum { RETRY_REDIRECTS_MAX = 3 };

/* The outcome of one try. */
typedef struct RetryReply {
    /* The whole request left this machine; otherwise no server can have executed it. */
    bool sent;
    /* No complete and correct reply arrived: no connection, reset, stalled, cut off, too long, wrong checksum. */
    bool failed;
    int hopeless; /* -errno that another try cannot change (a bad certificate); 0: another try may help */
    long status;          /* HTTP status */
    const S3Error *error; /* its code is "" if the reply had none */
    bool conditional;     /* the request has If-Match or If-None-Match */
    bool repeatable;      /* executing the request twice does no harm */
    bool skewed;          /* the reply's Date differs from our clock by more than servers accept */
    bool names_region;    /* the reply names another region than the request was signed for */
    bool names_place;     /* the reply names another URL */
    /* These corrections were made before for this request. */
    bool clock_corrected, region_corrected, credentials_renewed;
    unsigned redirects; /* redirects followed before, for this request */
} RetryReply;

typedef struct RetryVerdict {
    RetryAction action;
    int result;   /* for RETRY_FAIL: -errno */
    bool unknown; /* for RETRY_FAIL: the server may have executed the request */
} RetryVerdict;

RetryVerdict retry_judge(const RetryReply *reply);

/* Returns a pause with full jitter: a random part of 100 ms x 2^(tries - 1), at most 20 s, added to Retry-After (-1:
 * none), which is limited to one minute. */
uint64_t retry_pause_usec(unsigned tries, int64_t retry_after_sec, uint64_t random);

/* The limit of requests in progress. A SlowDown halves it, but only once per second; after as many successes as the
 * limit, it grows by one. */
typedef struct RetryLimit {
    int64_t now; /* the limit at present, 1 .. most */
    int64_t most;
    uint64_t lowered_usec; /* time of the last SlowDown that lowered `now`; 0: never */
    int64_t good;          /* successes since `now` last changed; 0 .. now - 1 */
} RetryLimit;

void retry_limit_init(RetryLimit *limit, int64_t most);
void retry_limit_success(RetryLimit *limit);
void retry_limit_slow_down(RetryLimit *limit, uint64_t now_usec);

/* Durations of the last ranged gets of one size class. */
enum { RETRY_LATENCIES = 64, RETRY_SIZE_CLASSES = 16 };
typedef struct RetryLatency {
    uint64_t took_usec[RETRY_LATENCIES];
    size_t n; /* durations added since the start; the last RETRY_LATENCIES are kept */
} RetryLatency;
/* Returns the class of a size. Sizes of one class differ by a factor of four at most. */
size_t retry_size_class(uint64_t n_bytes);
void retry_latency_add(RetryLatency *latency, uint64_t took_usec);
/* Returns the age at which a get is repeated: twice the 95th percentile of durations, at least 200 ms; UINT64_MAX while
 * fewer than 20 durations are known. */
uint64_t retry_hedge_after_usec(const RetryLatency *latency);
