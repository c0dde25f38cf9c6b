/* retry.h - what a reply means and what to do about it, how long to pause, how many at a time. Pure:
 * no clock, no I/O; tests tell it everything.
 *
 * Ownership: values.
 * Units:     microseconds.
 * Errors:    none.
 * Threads:   any.
 * Source:    Amazon S3 API Reference, Error responses; full jitter: "Exponential Backoff And
 *            Jitter", AWS Architecture Blog, 2015.
 */
#pragma once

#include "base/macro.h"
#include "store/s3/protocol/reply.h"

typedef enum RetryAction {
    RETRY_DONE,        /* it succeeded */
    RETRY_FAIL,        /* refused for good: result says how */
    RETRY_AGAIN,       /* after a pause */
    RETRY_SLOWER,      /* after a pause, and fewer at a time */
    RETRY_CLOCK,       /* at once, by the server's clock */
    RETRY_REGION,      /* at once, signed for the region that the reply names */
    RETRY_REDIRECT,    /* at once, to the URL that the reply names, signed for its host */
    RETRY_CREDENTIALS, /* with new credentials, once */
} RetryAction;

enum { RETRY_REDIRECTS_MAX = 3 };

/* What came of one try. */
typedef struct RetryReply {
    bool sent;    /* all of the request left us: before that no server can have acted on it */
    bool failed;  /* no whole, right reply: no connection, reset, stalled, truncated, too long, or
                     not what its checksum says */
    int hopeless; /* why trying again is of no use (a certificate that is wrong); 0: it may be */
    long status;
    const S3Error *error; /* code "": none */
    bool conditional, repeatable;
    bool skewed;       /* its date is further from ours than servers bear */
    bool names_region; /* another one than it was signed for */
    bool names_place;  /* a URL */
    bool clock_corrected, region_corrected, credentials_renewed; /* already, for this request */
    unsigned redirects;
} RetryReply;

typedef struct RetryVerdict {
    RetryAction action;
    int result;   /* of RETRY_FAIL */
    bool unknown; /* of RETRY_FAIL: it may have been done */
} RetryVerdict;

RetryVerdict retry_judge(const RetryReply *reply);

/* Full jitter: a random share of 100 ms x 2^(tries - 1), at most 20 s; after what Retry-After says
 * (-1: nothing), of which a minute is believed. */
uint64_t retry_pause_usec(unsigned tries, int64_t retry_after_sec, uint64_t random);

/* Requests under way: one more after as many successes as are allowed, half as many when the server
 * says SlowDown; all that it says within a second counts once. */
typedef struct RetryLimit {
    int64_t now, most;
    uint64_t lowered_usec;
    int64_t good; /* successes since the last change */
} RetryLimit;

void retry_limit_init(RetryLimit *limit, int64_t most);
void retry_limit_success(RetryLimit *limit);
void retry_limit_slow_down(RetryLimit *limit, uint64_t now_usec);

/* How long the last ranged gets took, of about one size: see retry_size_class(). */
enum { RETRY_LATENCIES = 64, RETRY_SIZE_CLASSES = 16 };
typedef struct RetryLatency {
    uint64_t took_usec[RETRY_LATENCIES];
    size_t n; /* ever added */
} RetryLatency;
/* Sizes of one class differ by a factor of four at most. */
size_t retry_size_class(uint64_t n_bytes);
void retry_latency_add(RetryLatency *latency, uint64_t took_usec);
/* After which a get is sent a second time: twice the 95th percentile, at least 200 ms; UINT64_MAX
 * while fewer than 20 are known. */
uint64_t retry_hedge_after_usec(const RetryLatency *latency);
