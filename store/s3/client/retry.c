/* SPDX-License-Identifier: Apache-2.0 */
/* retry.c - see retry.h. It has two tables: S3's error codes are more precise than the status, so their table is
 * searched first. */
#include "store/s3/client/retry.h"

#include <errno.h>
#include <string.h>

enum {
    PAUSE_BASE_USEC = 100 * 1000,
    PAUSE_MOST_USEC = 20 * 1000 * 1000,
    RETRY_AFTER_MOST_SEC = 60,
    SLOW_DOWN_BURST_USEC = 1000 * 1000,
    HEDGE_LEAST_USEC = 200 * 1000,
    HEDGE_KNOWN_LEAST = 20,
};

typedef enum Meaning {
    REFUSED,      /* a final refusal */
    AGAIN,        /* the server did nothing, but another try may succeed */
    AGAIN_OR_NOT, /* the server may have executed the request */
    SLOWER,       /* the server did nothing because it is overloaded */
    SLOWER_OR_NOT,
    CLOCK,
    CREDENTIALS,
    ELSEWHERE, /* the bucket is in another region or at another host */
} Meaning;

typedef struct Row {
    const char *code;
    long status;
    Meaning meaning;
    int result; /* -errno of the request if REFUSED, or if the correction did not help */
} Row;

static const Row codes[] = {
    {.code = "SlowDown", .meaning = SLOWER},
    {.code = "ServiceUnavailable", .meaning = SLOWER},
    {.code = "TooManyRequests", .meaning = SLOWER},
    {.code = "Throttling", .meaning = SLOWER},
    {.code = "ThrottlingException", .meaning = SLOWER},
    {.code = "RequestLimitExceeded", .meaning = SLOWER},
    {.code = "BandwidthLimitExceeded", .meaning = SLOWER},
    {.code = "InternalError", .meaning = AGAIN_OR_NOT},
    {.code = "OperationAborted", .meaning = AGAIN},
    {.code = "RequestTimeout", .meaning = AGAIN},
    {.code = "IncompleteBody", .meaning = AGAIN},
    /* The server received other bytes than we sent. */
    {.code = "BadDigest", .meaning = AGAIN},
    {.code = "XAmzContentSHA256Mismatch", .meaning = AGAIN},
    {.code = "XAmzContentChecksumMismatch", .meaning = AGAIN},
    {.code = "RequestTimeTooSkewed", .meaning = CLOCK, .result = -EACCES},
    {.code = "ExpiredToken", .meaning = CREDENTIALS, .result = -EACCES},
    {.code = "ExpiredTokenException", .meaning = CREDENTIALS, .result = -EACCES},
    {.code = "TokenRefreshRequired", .meaning = CREDENTIALS, .result = -EACCES},
    {.code = "InvalidToken", .meaning = CREDENTIALS, .result = -EACCES},
    {.code = "InvalidAccessKeyId", .meaning = CREDENTIALS, .result = -EACCES},
    /* the secret key may have been replaced; Swift also uses this code for an unknown access key */
    {.code = "SignatureDoesNotMatch", .meaning = CREDENTIALS, .result = -EACCES},
    {.code = "PermanentRedirect", .meaning = ELSEWHERE, .result = -EIO},
    {.code = "TemporaryRedirect", .meaning = ELSEWHERE, .result = -EIO},
    {.code = "AuthorizationHeaderMalformed", .meaning = ELSEWHERE, .result = -EACCES},
    {.code = "IllegalLocationConstraintException", .meaning = ELSEWHERE, .result = -EIO},
    {.code = "NoSuchKey", .result = -ENOENT},
    {.code = "NoSuchBucket", .result = -ENOENT},
    {.code = "NoSuchUpload", .result = -ENOENT},
    {.code = "PreconditionFailed", .result = -EEXIST},
    {.code = "ConditionalRequestConflict", .result = -EAGAIN},
    {.code = "BucketAlreadyExists", .result = -EEXIST},
    {.code = "BucketAlreadyOwnedByYou", .result = -EEXIST},
    {.code = "NotImplemented", .result = -EOPNOTSUPP},
    {.code = "MethodNotAllowed", .result = -EOPNOTSUPP},
    {.code = "QuotaExceeded", .result = -ENOSPC},
    {.code = "EntityTooLarge", .result = -EFBIG},
    {.code = "AccessDenied", .result = -EACCES},
};

static const Row statuses[] = {
    {.status = 301, .meaning = ELSEWHERE, .result = -EIO},
    {.status = 302, .meaning = ELSEWHERE, .result = -EIO},
    {.status = 307, .meaning = ELSEWHERE, .result = -EIO},
    {.status = 308, .meaning = ELSEWHERE, .result = -EIO},
    {.status = 304, .result = -EEXIST}, /* old MinIO's answer to a put-if-absent */
    {.status = 401, .result = -EACCES},
    {.status = 403, .result = -EACCES},
    {.status = 404, .result = -ENOENT},
    {.status = 405, .result = -EOPNOTSUPP},
    {.status = 408, .meaning = AGAIN},
    {.status = 410, .result = -ENOENT},
    {.status = 412, .result = -EEXIST},
    {.status = 429, .meaning = SLOWER},
    {.status = 501, .result = -EOPNOTSUPP},
    {.status = 503, .meaning = SLOWER_OR_NOT}, /* a reply without a code may come from a proxy */
    {.status = 507, .result = -ENOSPC},
    {.status = 509, .meaning = SLOWER_OR_NOT},
};

static Row row_of(const RetryReply *reply, const char *code)
{
    for (size_t i = 0; code[0] && i < ELEMENTSOF(codes); i++)
        if (strcmp(codes[i].code, code) == 0)
            return codes[i];

    /* The reply to a HEAD has no body, so it has no error code. */
    if (reply->status == 400 && reply->names_region)
        return (Row){.meaning = ELSEWHERE, .result = -EACCES};
    if (reply->status == 400 && !code[0])
        return (Row){.meaning = CREDENTIALS, .result = -EIO};
    if (reply->status == 403 && !code[0] && reply->skewed)
        return (Row){.meaning = CLOCK, .result = -EACCES};
    if (reply->status == 409 && reply->conditional)
        return (Row){.result = -EAGAIN};

    for (size_t i = 0; i < ELEMENTSOF(statuses); i++)
        if (statuses[i].status == reply->status)
            return statuses[i];
    return reply->status >= 500 ? (Row){.meaning = AGAIN_OR_NOT} : (Row){.result = -EIO};
}

static RetryVerdict fail(int result)
{
    return (RetryVerdict){.action = RETRY_FAIL, .result = result};
}

static RetryVerdict again(RetryAction action, bool undecided, const RetryReply *reply)
{
    if (undecided && reply->sent && !reply->repeatable)
        return (RetryVerdict){.action = RETRY_FAIL, .result = -EIO, .unknown = true};
    return (RetryVerdict){.action = action};
}

RetryVerdict retry_judge(const RetryReply *reply)
{
    if (reply->hopeless < 0)
        return fail(reply->hopeless);
    if (reply->failed)
        return again(RETRY_AGAIN, true, reply);

    const char *code = reply->error ? reply->error->code : "";
    if (reply->status >= 200 && reply->status < 300 && !code[0])
        return (RetryVerdict){.action = RETRY_DONE};

    Row row = row_of(reply, code);
    switch (row.meaning) {
    case AGAIN:
    case AGAIN_OR_NOT:
        return again(RETRY_AGAIN, row.meaning == AGAIN_OR_NOT, reply);
    case SLOWER:
    case SLOWER_OR_NOT:
        return again(RETRY_SLOWER, row.meaning == SLOWER_OR_NOT, reply);
    case CLOCK:
        if (!reply->clock_corrected)
            return (RetryVerdict){.action = RETRY_CLOCK};
        break;
    case CREDENTIALS:
        if (!reply->credentials_renewed)
            return (RetryVerdict){.action = RETRY_CREDENTIALS};
        break;
    case ELSEWHERE:
        if (reply->names_region && !reply->region_corrected)
            return (RetryVerdict){.action = RETRY_REGION};
        if (reply->names_place && reply->redirects < RETRY_REDIRECTS_MAX)
            return (RetryVerdict){.action = RETRY_REDIRECT};
        break;
    case REFUSED:
        break;
    }
    return fail(row.result);
}

uint64_t retry_pause_usec(unsigned tries, int64_t retry_after_sec, uint64_t random)
{
    unsigned doublings = CLAMP(tries, 1, 16) - 1;
    uint64_t most = MIN((uint64_t)PAUSE_BASE_USEC << doublings, (uint64_t)PAUSE_MOST_USEC);
    uint64_t least = (uint64_t)CLAMP(retry_after_sec, 0, RETRY_AFTER_MOST_SEC) * USEC_PER_SEC;
    return least + random % (most + 1);
}

void retry_limit_init(RetryLimit *limit, int64_t most)
{
    assert(most >= 1);
    *limit = (RetryLimit){.now = most, .most = most};
}

void retry_limit_success(RetryLimit *limit)
{
    assert(limit->now >= 1 && limit->now <= limit->most);
    if (limit->now == limit->most || ++limit->good < limit->now)
        return;
    limit->now++;
    limit->good = 0;
}

void retry_limit_slow_down(RetryLimit *limit, uint64_t now_usec)
{
    assert(limit->now >= 1 && limit->now <= limit->most);
    limit->good = 0;
    if (limit->lowered_usec > 0 && now_usec < limit->lowered_usec + SLOW_DOWN_BURST_USEC)
        return;
    limit->now = MAX(limit->now / 2, 1);
    limit->lowered_usec = now_usec;
}

size_t retry_size_class(uint64_t n_bytes)
{
    size_t bits = n_bytes == 0 ? 0 : 64 - (size_t)__builtin_clzll(n_bytes);
    return MIN(bits / 2, (size_t)RETRY_SIZE_CLASSES - 1);
}

void retry_latency_add(RetryLatency *latency, uint64_t took_usec)
{
    latency->took_usec[latency->n++ % RETRY_LATENCIES] = took_usec;
}

uint64_t retry_hedge_after_usec(const RetryLatency *latency)
{
    size_t n = MIN(latency->n, (size_t)RETRY_LATENCIES);
    if (n < HEDGE_KNOWN_LEAST)
        return UINT64_MAX;

    uint64_t sorted[RETRY_LATENCIES];
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && sorted[at - 1] > latency->took_usec[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = latency->took_usec[i];
    }
    return MAX(2 * sorted[n * 95 / 100], (uint64_t)HEDGE_LEAST_USEC);
}
