/* SPDX-License-Identifier: Apache-2.0 */
/* test-retry.c - tests all rows of the tables of replies, the pauses, the limit of requests, and hedges. */
#include "base/test/testing.h"

#include "store/s3/client/retry.h"

#include <errno.h>
#include <string.h>

typedef struct Case {
    const char *code;
    long status;
    RetryAction action;
    int result;
    bool unknown;
} Case;

/* The verdicts on a put that must not be executed twice; each case is also tested with a put that may be
 * executed twice. */
static const Case cases[] = {
    {"", 200, RETRY_DONE, 0, false},
    {"", 204, RETRY_DONE, 0, false},
    {"", 206, RETRY_DONE, 0, false},
    {"InternalError", 500, RETRY_FAIL, -EIO, true},
    {"InternalError", 200, RETRY_FAIL, -EIO, true},
    {"", 500, RETRY_FAIL, -EIO, true},
    {"", 502, RETRY_FAIL, -EIO, true},
    {"", 504, RETRY_FAIL, -EIO, true},
    {"", 520, RETRY_FAIL, -EIO, true},
    {"", 503, RETRY_FAIL, -EIO, true},
    {"SlowDown", 503, RETRY_SLOWER, 0, false},
    {"SlowDown", 200, RETRY_SLOWER, 0, false},
    {"ServiceUnavailable", 503, RETRY_SLOWER, 0, false},
    {"TooManyRequests", 429, RETRY_SLOWER, 0, false},
    {"", 429, RETRY_SLOWER, 0, false},
    {"RequestTimeout", 400, RETRY_AGAIN, 0, false},
    {"", 408, RETRY_AGAIN, 0, false},
    {"IncompleteBody", 400, RETRY_AGAIN, 0, false},
    {"BadDigest", 400, RETRY_AGAIN, 0, false},
    {"XAmzContentSHA256Mismatch", 400, RETRY_AGAIN, 0, false},
    {"OperationAborted", 409, RETRY_AGAIN, 0, false},
    {"RequestTimeTooSkewed", 403, RETRY_CLOCK, 0, false},
    {"ExpiredToken", 400, RETRY_CREDENTIALS, 0, false},
    {"InvalidAccessKeyId", 403, RETRY_CREDENTIALS, 0, false},
    {"InvalidToken", 400, RETRY_CREDENTIALS, 0, false},
    {"", 400, RETRY_CREDENTIALS, 0, false},
    {"PreconditionFailed", 412, RETRY_FAIL, -EEXIST, false},
    {"", 412, RETRY_FAIL, -EEXIST, false},
    {"", 304, RETRY_FAIL, -EEXIST, false},
    {"ConditionalRequestConflict", 409, RETRY_FAIL, -EAGAIN, false},
    {"", 409, RETRY_FAIL, -EAGAIN, false},
    {"BucketAlreadyOwnedByYou", 409, RETRY_FAIL, -EEXIST, false},
    {"AccessDenied", 403, RETRY_FAIL, -EACCES, false},
    {"SignatureDoesNotMatch", 403, RETRY_CREDENTIALS, 0, false},
    {"", 401, RETRY_FAIL, -EACCES, false},
    {"", 403, RETRY_FAIL, -EACCES, false},
    {"NoSuchKey", 404, RETRY_FAIL, -ENOENT, false},
    {"NoSuchUpload", 404, RETRY_FAIL, -ENOENT, false},
    {"NoSuchUpload", 200, RETRY_FAIL, -ENOENT, false},
    {"", 404, RETRY_FAIL, -ENOENT, false},
    {"NotImplemented", 501, RETRY_FAIL, -EOPNOTSUPP, false},
    {"NotImplemented", 400, RETRY_FAIL, -EOPNOTSUPP, false},
    {"", 501, RETRY_FAIL, -EOPNOTSUPP, false},
    {"", 405, RETRY_FAIL, -EOPNOTSUPP, false},
    {"QuotaExceeded", 403, RETRY_FAIL, -ENOSPC, false},
    {"", 507, RETRY_FAIL, -ENOSPC, false},
    {"EntityTooLarge", 400, RETRY_FAIL, -EFBIG, false},
    {"InvalidRange", 416, RETRY_FAIL, -EIO, false},
    {"MalformedXML", 400, RETRY_FAIL, -EIO, false},
    {"InvalidPart", 200, RETRY_FAIL, -EIO, false},
    {"PermanentRedirect", 301, RETRY_FAIL, -EIO, false}, /* the reply names no new location */
    {"", 300, RETRY_FAIL, -EIO, false},
    {"", 100, RETRY_FAIL, -EIO, false},
};

static void test_every_reply(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const Case *c = &cases[i];
        S3Error error = {0};
        (void)snprintf(error.code, sizeof(error.code), "%s", c->code);
        RetryReply reply = {.sent = true,
                            .status = c->status,
                            .error = &error,
                            .conditional = true};

        RetryVerdict verdict = retry_judge(&reply);
        if (verdict.action != c->action || verdict.result != c->result ||
            verdict.unknown != c->unknown)
            fail_msg("%ld %s: %d %d %d", c->status, c->code, verdict.action, verdict.result,
                     verdict.unknown);

        /* If the answer leaves open whether a put was done, the put is tried again if it may be executed twice, or was
         * not sent completely. */
        bool slower = c->status == 503;
        RetryAction wanted = !c->unknown ? c->action : slower ? RETRY_SLOWER : RETRY_AGAIN;
        reply.repeatable = true;
        verdict = retry_judge(&reply);
        if (verdict.action != wanted || verdict.unknown)
            fail_msg("%ld %s, repeatable: %d", c->status, c->code, verdict.action);
        reply.repeatable = reply.sent = false;
        verdict = retry_judge(&reply);
        if (verdict.action != wanted || verdict.unknown)
            fail_msg("%ld %s, not sent: %d", c->status, c->code, verdict.action);
    }
}

static void test_unconditional_conflict(_unused_ void **state)
{
    RetryReply reply = {.sent = true, .status = 409};
    assert_int_equal(retry_judge(&reply).result, -EIO);
}

static void test_lost_reply(_unused_ void **state)
{
    /* If the reply is lost, the result of a completely sent put is unknown. */
    RetryVerdict verdict = retry_judge(&(RetryReply){.sent = true, .failed = true, .status = 200});
    assert_int_equal(verdict.action, RETRY_FAIL);
    assert_true(verdict.unknown);
    assert_int_equal(verdict.result, -EIO);

    verdict = retry_judge(&(RetryReply){.sent = true, .failed = true, .repeatable = true});
    assert_int_equal(verdict.action, RETRY_AGAIN);

    /* A put that was not sent completely was not done. */
    verdict = retry_judge(&(RetryReply){.sent = false, .failed = true});
    assert_int_equal(verdict.action, RETRY_AGAIN);
    assert_false(verdict.unknown);

    verdict = retry_judge(&(RetryReply){.failed = true, .hopeless = -EACCES, .repeatable = true});
    assert_int_equal(verdict.action, RETRY_FAIL);
    assert_int_equal(verdict.result, -EACCES);
    assert_false(verdict.unknown);
}

static void test_corrections_are_made_once(_unused_ void **state)
{
    S3Error skewed = {.code = "RequestTimeTooSkewed"}, expired = {.code = "ExpiredToken"},
            region = {.code = "AuthorizationHeaderMalformed"};
    RetryReply reply = {.status = 403, .error = &skewed, .clock_corrected = true};
    assert_int_equal(retry_judge(&reply).result, -EACCES);

    reply = (RetryReply){.status = 400, .error = &expired, .credentials_renewed = true};
    assert_int_equal(retry_judge(&reply).result, -EACCES);

    reply = (RetryReply){.status = 400, .error = &region, .names_region = true};
    assert_int_equal(retry_judge(&reply).action, RETRY_REGION);
    reply.region_corrected = true;
    assert_int_equal(retry_judge(&reply).action, RETRY_FAIL);
    assert_int_equal(retry_judge(&reply).result, -EACCES);
}

static void test_head_has_no_code(_unused_ void **state)
{
    RetryReply reply = {.status = 400, .names_region = true};
    assert_int_equal(retry_judge(&reply).action, RETRY_REGION);
    reply = (RetryReply){.status = 400, .credentials_renewed = true};
    assert_int_equal(retry_judge(&reply).result, -EIO);
    reply = (RetryReply){.status = 403, .skewed = true};
    assert_int_equal(retry_judge(&reply).action, RETRY_CLOCK);
    reply.clock_corrected = true;
    assert_int_equal(retry_judge(&reply).result, -EACCES);
}

static void test_redirects(_unused_ void **state)
{
    static const long moved[] = {301, 302, 307, 308};
    for (size_t i = 0; i < ELEMENTSOF(moved); i++) {
        RetryReply reply = {.status = moved[i], .names_region = true, .names_place = true};
        assert_int_equal(retry_judge(&reply).action, RETRY_REGION);
        reply.region_corrected = true;
        assert_int_equal(retry_judge(&reply).action, RETRY_REDIRECT);
        reply.redirects = RETRY_REDIRECTS_MAX;
        assert_int_equal(retry_judge(&reply).action, RETRY_FAIL);
        assert_int_equal(retry_judge(&reply).result, -EIO);
    }
}

static void test_pauses_have_full_jitter(_unused_ void **state)
{
    for (unsigned tries = 0; tries < 70; tries++) {
        uint64_t most = 0, least = UINT64_MAX;
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t pause = retry_pause_usec(tries, -1, i * UINT64_C(0x9e3779b97f4a7c15));
            most = MAX(most, pause);
            least = MIN(least, pause);
        }
        uint64_t bound = tries < 2   ? 100000
                         : tries < 9 ? UINT64_C(100000) << (tries - 1)
                                     : 20000000;
        assert_true(most <= bound);
        assert_true(most > bound * 9 / 10);
        assert_true(least < bound / 10);
    }
    assert_true(retry_pause_usec(1, 7, 12345) >= 7 * USEC_PER_SEC);
    assert_true(retry_pause_usec(1, 7, 12345) <= 7 * USEC_PER_SEC + 100000);
    assert_true(retry_pause_usec(1, INT64_MAX, 0) == 60 * USEC_PER_SEC);
    assert_true(retry_pause_usec(1, INT64_MIN, 0) == 0);
}

static void test_limit(_unused_ void **state)
{
    RetryLimit limit;
    retry_limit_init(&limit, 32);
    assert_int_equal(limit.now, 32);
    retry_limit_success(&limit);
    assert_int_equal(limit.now, 32);

    retry_limit_slow_down(&limit, 5 * USEC_PER_SEC);
    assert_int_equal(limit.now, 16);
    retry_limit_slow_down(&limit, 5 * USEC_PER_SEC + 999999); /* same second: ignored */
    assert_int_equal(limit.now, 16);
    retry_limit_slow_down(&limit, 6 * USEC_PER_SEC);
    assert_int_equal(limit.now, 8);

    for (int i = 0; i < 8; i++) {
        assert_int_equal(limit.now, 8);
        retry_limit_success(&limit);
    }
    assert_int_equal(limit.now, 9);

    for (uint64_t t = 10; t < 20; t++)
        retry_limit_slow_down(&limit, t * USEC_PER_SEC);
    assert_int_equal(limit.now, 1);
    for (int i = 0; i < 32 * 32; i++)
        retry_limit_success(&limit);
    assert_int_equal(limit.now, 32);
}

static void test_size_classes(_unused_ void **state)
{
    assert_int_equal(retry_size_class(0), 0);
    assert_int_equal(retry_size_class(UINT64_MAX), RETRY_SIZE_CLASSES - 1);
    for (uint64_t n = 1; n < UINT64_C(1) << 29; n *= 2) {
        assert_true(retry_size_class(n) <= retry_size_class(2 * n));
        assert_true(retry_size_class(n) < retry_size_class(4 * n));
        assert_int_equal(retry_size_class(n), retry_size_class(2 * n - 1));
    }
}

static void test_hedges(_unused_ void **state)
{
    RetryLatency latency = {0};
    for (int i = 0; i < 19; i++)
        retry_latency_add(&latency, 1000);
    assert_true(retry_hedge_after_usec(&latency) == UINT64_MAX);
    retry_latency_add(&latency, 1000);
    assert_int_equal(retry_hedge_after_usec(&latency), 200 * USEC_PER_MSEC);

    /* The durations 10 ms to 640 ms, shuffled: only the last 64 durations count. */
    latency = (RetryLatency){0};
    for (uint64_t i = 0; i < 100; i++)
        retry_latency_add(&latency, 30 * USEC_PER_SEC);
    for (uint64_t i = 0; i < 64; i++)
        retry_latency_add(&latency, (i * 37 % 64 + 1) * 10 * USEC_PER_MSEC);
    assert_int_equal(retry_hedge_after_usec(&latency), 2 * 61 * 10 * USEC_PER_MSEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_reply),
        cmocka_unit_test(test_unconditional_conflict),
        cmocka_unit_test(test_lost_reply),
        cmocka_unit_test(test_corrections_are_made_once),
        cmocka_unit_test(test_head_has_no_code),
        cmocka_unit_test(test_redirects),
        cmocka_unit_test(test_pauses_have_full_jitter),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_size_classes),
        cmocka_unit_test(test_hedges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
