/* retry.h - what a reply means and what to do about it, how long to pause, how many at a time. Pure:
 * no clock, no I/O; tests tell it everything.
 *
 * Ownership: values.
 * Units:     microseconds.
 * Errors:    none.
 * Threads:   any.
 * Source:    Amazon S3 error responses; full jitter: "Exponential Backoff And Jitter", AWS
 *            Architecture Blog, 2015.
 */
#pragma once

#include "base/macro.h"
#include "store/s3/reply.h"

typedef enum RetryAction {
    RETRY_DONE,       /* it succeeded */
    RETRY_FAIL,       /* refused for good: result says how */
    RETRY_AGAIN,      /* after a pause */
    RETRY_SLOWER,     /* after a pause, and fewer at a time */
    RETRY_CLOCK,      /* at once, by the server's clock */
    RETRY_REGION,     /* at once, signed for the region that the reply names */
    RETRY_CREDENTIALS /* with new credentials, once */
} RetryAction;

/* What came of one try. */
typedef struct RetryReply {
    bool sent;   /* at least one byte of the request left */
    bool failed; /* no whole reply: reset, stalled, truncated, too long, no connection */
    long status;
    const S3Error *error; /* code "": none */
    bool is_put, conditional, repeatable;
    bool clock_corrected, region_corrected, credentials_renewed; /* already, for this request */
} RetryReply;

typedef struct RetryVerdict {
    RetryAction action;
    int result;   /* of RETRY_FAIL */
    bool unknown; /* it may have been done */
} RetryVerdict;

RetryVerdict retry_judge(const RetryReply *reply);

/* Full jitter: a random share of base x 2^(tries - 1), at most `most`; Retry-After is the least. */
uint64_t retry_pause_usec(unsigned tries, int64_t retry_after_sec, uint64_t random);

/* Additive increase, multiplicative decrease of the requests under way. */
typedef struct RetryLimit {
    int64_t now, most;
    uint64_t lowered_usec;
    int64_t good; /* successes since the last change */
} RetryLimit;

void retry_limit_init(RetryLimit *limit, int64_t most);
void retry_limit_success(RetryLimit *limit, uint64_t now_usec);
void retry_limit_slow_down(RetryLimit *limit, uint64_t now_usec);

/* How long ranged gets take: the 95th percentile of the last ones, by size class. */
enum { RETRY_LATENCIES = 64 };
typedef struct RetryLatency {
    uint64_t took_usec[RETRY_LATENCIES];
    size_t n;
} RetryLatency;
void retry_latency_add(RetryLatency *latency, uint64_t took_usec);
/* After which a get is sent a second time: twice the percentile, at least 200 ms; UINT64_MAX while
 * too few are known. */
uint64_t retry_hedge_after_usec(const RetryLatency *latency);
