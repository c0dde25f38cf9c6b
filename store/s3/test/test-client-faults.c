/* SPDX-License-Identifier: Apache-2.0 */
/* test-client-faults.c - the client against a server that misbehaves: which requests are tried again, which puts may
 * have been done, and which gets are hedged. */
#include "store/s3/test/testing-client.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

/* ---- retries ---- */

static void test_refused_for_now(_unused_ void **state)
{
    WORLD({.act = FAKE_ANSWER, .status = 500, .code = "InternalError"},
          {.act = FAKE_ANSWER, .status = 503, .code = "SlowDown"},
          {.act = FAKE_ANSWER, .status = 400, .code = "RequestTimeout"}, {.act = FAKE_SERVE},
          {.act = FAKE_ANSWER, .status = 502},
          {.act = FAKE_RAW, .body = "HTTP/1.1 2x0 Garbage\r\n\r\n"}, {.act = FAKE_RAW, .body = ""});
    world_expect_range(w, 0, 100000, 4);
    world_expect_range(w, 0, 100000, 4);
    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_int_equal(counts.retries, 6);
    assert_int_equal(counts.slow_downs, 1);
    assert_int_equal(counts.concurrency, 4);
    world_free(w);
}

static void test_broken_replies(_unused_ void **state)
{
    WORLD({.act = FAKE_RESET, .n = 0}, {0}, {.act = FAKE_RESET, .n = 1}, {0},
          {.act = FAKE_RESET, .n = 60}, {0}, {.act = FAKE_RESET, .n = 400}, {0},
          {.act = FAKE_RESET, .n = 1 << 20}, {0}, {.act = FAKE_TRUNCATE, .n = 0}, {0},
          {.act = FAKE_TRUNCATE, .n = (1 << 20) - 1});
    for (size_t i = 0; i < ELEMENTSOF(steps); i += 2)
        world_expect_range(w, 1000, 1 << 20, 2);
    world_free(w);
}

/* The connection is cut after every byte of a reply's head, and after some bytes of its body. */
static void test_reset_at_any_byte(_unused_ void **state)
{
    enum { N = 200 };
    static FakeStep steps[N];
    static S3Request requests[N];
    for (size_t i = 0; i < N; i++)
        steps[i] = (FakeStep){.act = i % 2 ? FAKE_RESET : FAKE_TRUNCATE, .n = i};
    World *w = world_new(steps, N);
    for (size_t i = 0; i < N; i++) {
        requests[i] = world_get(i, N);
        requests[i].buffer = world_landing + i * N;
    }
    for (size_t i = 0; i < N; i++)
        s3_begin(w->client, &requests[i]);
    for (size_t i = 0; i < N; i++) {
        Error err = ERROR_INIT;
        if (s3_wait(w->client, &requests[i], &err) < 0)
            fail_msg("%zu: %s", i, err.text);
        assert_memory_equal(world_landing + i * N, world_blob + i, N);
    }
    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_true(counts.retries >= N / 2);
    world_free(w);
}

/* If the connection ends within a reply's head, the reply does not count as an empty object: the get is repeated. */
static void test_heads_that_end(_unused_ void **state)
{
    WORLD({.act = FAKE_RAW, .body = "HTTP/1.1 200 OK\r\n"}, {0},
          {.act = FAKE_RAW, .body = "HTTP/1.1 200 OK\r\nContent-Le"}, {0},
          {.act = FAKE_RAW, .body = "HTTP/1.1 200 OK\r\nContent-Length: 1048576"}, {0},
          {.act = FAKE_RAW, .body = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nDate"});
    for (size_t i = 0; i < ELEMENTSOF(steps); i += 2) {
        S3Request get = {.method = S3_GET,
                         .bucket = "bucket",
                         .key = "blob",
                         .text_max = BLOB_BYTES};
        Error err = ERROR_INIT;
        if (s3_do(w->client, &get, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(get.n_text, BLOB_BYTES);
        assert_int_equal(get.tries, 2);
        free(get.text);
    }
    world_free(w);
}

/* A SlowDown halves the limit of requests in progress; afterwards the limit grows again. */
static void test_slow_down(_unused_ void **state)
{
    enum { N = 64, TOO_MUCH = 8 };
    static FakeStep steps[TOO_MUCH];
    static S3Request requests[N];
    for (size_t i = 0; i < TOO_MUCH; i++)
        steps[i] = (FakeStep){.act = FAKE_ANSWER, .status = 503, .code = "SlowDown"};
    World *w = world_new(steps, TOO_MUCH);
    for (size_t i = 0; i < N; i++) {
        requests[i] = world_get(i, 1000);
        requests[i].buffer = world_landing + i * 1000;
    }
    for (size_t i = 0; i < N; i++)
        s3_begin(w->client, &requests[i]);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(s3_wait(w->client, &requests[i], NULL), 0);
    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_int_equal(counts.slow_downs, TOO_MUCH);
    assert_int_equal(counts.retries, TOO_MUCH);
    assert_int_equal(counts.concurrency, 8); /* the limit was halved to 4, and grew again */
    world_free(w);
}

static void test_wrong_ranges(_unused_ void **state)
{
    WORLD(
        {.act = FAKE_RAW,
         .body =
             "HTTP/1.1 206 P\r\nContent-Length: 4\r\nContent-Range: bytes 6-9/3145728\r\n\r\nabcd"},
        {0}, {.act = FAKE_RAW, .body = "HTTP/1.1 206 P\r\nContent-Length: 4\r\n\r\nabcd"}, {0},
        {.act = FAKE_RAW, .body = "HTTP/1.1 200 P\r\nContent-Length: 4194304\r\n\r\nabcd"}, {0},
        {.act = FAKE_RAW,
         .body = "HTTP/1.1 206 P\r\nContent-Range: bytes 5-8/3145728\r\n\r\nabcdef"},
        {0},
        {.act = FAKE_RAW, .body = "HTTP/1.1 206 P\r\nContent-Range: bytes 5-8/3145728\r\n\r\nabc"},
        {0},
        {.act = FAKE_RAW,
         .body = "HTTP/1.1 206 P\r\nContent-Range: bytes 5-x/3145728\r\n\r\nabcd"});
    for (size_t i = 0; i < ELEMENTSOF(steps); i += 2)
        world_expect_range(w, 5, 4, 2);
    world_free(w);
}

static void test_stalls(_unused_ void **state)
{
    WORLD({.act = FAKE_STALL, .n = 0}, {.act = FAKE_STALL, .n = 50},
          {.act = FAKE_STALL, .n = 5000});
    w->options.stall_usec = USEC_PER_SEC;
    world_open_client(w);
    S3Request requests[ELEMENTSOF(steps)];
    unsigned tries = 0;
    for (size_t i = 0; i < ELEMENTSOF(steps); i++) {
        requests[i] = world_get(i, 100000);
        requests[i].buffer = world_landing + i * 100000;
    }
    for (size_t i = 0; i < ELEMENTSOF(steps); i++)
        s3_begin(w->client, &requests[i]);
    for (size_t i = 0; i < ELEMENTSOF(steps); i++) {
        assert_int_equal(s3_wait(w->client, &requests[i], NULL), 0);
        assert_memory_equal(requests[i].buffer, world_blob + i, 100000);
        tries += requests[i].tries;
    }
    /* Each request is tried twice, or more often if the machine is so slow that tries stall. */
    assert_true(tries >= 6);
    world_free(w);
}

/* A put-if-absent with more bytes than the socket buffers hold. */
static S3Request put_large(struct iovec body[11])
{
    for (size_t i = 0; i < 11; i++)
        body[i] = (struct iovec){.iov_base = world_blob, .iov_len = sizeof(world_blob)};
    return (S3Request){.method = S3_PUT,
                       .bucket = "bucket",
                       .key = "large",
                       .headers = world_if_absent,
                       .n_headers = 1,
                       .body = body,
                       .n_body = 11};
}

/* If the server stops reading the body, it has not executed the put: the put is tried again. */
static void test_body_stalls(_unused_ void **state)
{
    WORLD({.act = FAKE_HOLD, .n = 1000},
          {.act = FAKE_EARLY, .n = 1000, .status = 412, .code = "PreconditionFailed"});
    w->options.stall_usec = 3 * USEC_PER_SEC; /* the second try may take this long, too */
    world_open_client(w);
    struct iovec body[11];
    S3Request put = put_large(body);
    assert_int_equal(s3_do(w->client, &put, NULL), -EEXIST);
    assert_int_equal(put.tries, 2);
    assert_false(put.unknown);
    world_free(w);
}

/* A refusal before the whole body is sent ends the sending; the put was not done. */
static void test_refused_early(_unused_ void **state)
{
    WORLD({.act = FAKE_EARLY, .n = 1000, .status = 503, .code = "SlowDown"},
          {.act = FAKE_EARLY, .n = 1000, .status = 500});
    struct iovec body[11];
    S3Request put = put_large(body);
    assert_int_equal(s3_do(w->client, &put, NULL), 0);
    assert_int_equal(put.tries, 3);
    assert_int_equal(fake_puts(w->fake, "/bucket/large"), 1);
    world_free(w);
}

static void test_body_cut(_unused_ void **state)
{
    /* A put that did not arrive completely was not done: even a put-if-absent is tried again. */
    WORLD({.act = FAKE_DEAF, .n = 0}, {.act = FAKE_DEAF, .n = 1 << 20});
    struct iovec body[11];
    S3Request put = put_large(body);
    Error err = ERROR_INIT;
    if (s3_do(w->client, &put, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(put.tries, 3);
    assert_int_equal(fake_puts(w->fake, "/bucket/large"), 1);
    world_free(w);
}

static void test_deadline(_unused_ void **state)
{
    WORLD({.act = FAKE_ANSWER, .status = 503, .code = "SlowDown"}, {.act = FAKE_STALL});
    Error err = ERROR_INIT;
    S3Request get = world_get(0, 1000);
    get.deadline_usec = clock_boottime_usec() + 4 * USEC_PER_SEC;
    assert_int_equal(s3_do(w->client, &get, &err), -EHOSTUNREACH);
    assert_non_null(strstr(err.text, "no usable answer in"));
    assert_non_null(strstr(err.text, "the last: 503 SlowDown: as the script says (2 tries in"));
    assert_false(get.unknown);
    world_free(w);
}

static void test_nobody_there(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    w->client = s3_client_close(w->client);
    int port = fake_port(w->fake);
    fake_stop(w->fake);
    Error err = ERROR_INIT;
    (void)snprintf(w->endpoint, sizeof(w->endpoint), "http://127.0.0.1:%d", port);
    assert_int_equal(s3_client_open(&w->options, &w->client, &err), 0);
    S3Request put = world_put("k", true);
    put.deadline_usec = clock_boottime_usec() + 3 * USEC_PER_SEC;
    assert_int_equal(s3_do(w->client, &put, &err), -EHOSTUNREACH);
    assert_false(put.unknown); /* no request was sent */
    assert_true(put.tries > 1);
    w->client = s3_client_close(w->client);
    free(w);
}

/* An invalid host name fails before any name server is queried. */
static void test_no_such_name(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    w->client = s3_client_close(w->client);
    Error err = ERROR_INIT;
    (void)snprintf(w->endpoint, sizeof(w->endpoint), "http://%066d.invalid", 1);
    assert_int_equal(s3_client_open(&w->options, &w->client, &err), 0);
    S3Request put = world_put("k", true);
    put.deadline_usec = clock_boottime_usec() + 3 * USEC_PER_SEC;
    assert_int_equal(s3_do(w->client, &put, &err), -EHOSTUNREACH);
    assert_non_null(strstr(err.text, "resolve host"));
    assert_false(put.unknown);
    assert_true(put.tries > 1);
    world_free(w);
}

/* ---- unknown results ---- */

static void test_lost_replies(_unused_ void **state)
{
    WORLD({.act = FAKE_LOSE}, {.act = FAKE_LOSE});
    Error err = ERROR_INIT;
    S3Request put = world_put("lost", true);
    assert_int_equal(s3_do(w->client, &put, &err), -EIO);
    assert_true(put.unknown);
    assert_int_equal(put.tries, 1);
    assert_int_equal(fake_puts(w->fake, "/bucket/lost"), 1);

    put = world_put("twice", false);
    assert_int_equal(s3_do(w->client, &put, &err), 0);
    assert_int_equal(put.tries, 2);
    assert_int_equal(fake_puts(w->fake, "/bucket/twice"), 2);
    world_free(w);
}

/* On a reused connection, libcurl itself would repeat the put. */
static void test_lost_reply_on_a_kept_connection(_unused_ void **state)
{
    WORLD({.act = FAKE_SERVE}, {.act = FAKE_LOSE}, {.act = FAKE_SERVE}, {.act = FAKE_LOSE});
    world_expect_range(w, 0, 1000, 1);
    S3Request put = {.method = S3_PUT,
                     .bucket = "bucket",
                     .key = "empty",
                     .headers = world_if_absent,
                     .n_headers = 1};
    assert_int_equal(s3_do(w->client, &put, NULL), -EIO);
    assert_true(put.unknown);
    assert_int_equal(fake_puts(w->fake, "/bucket/empty"), 1);

    world_expect_range(w, 0, 1000, 1);
    put = world_put("lost", true);
    assert_int_equal(s3_do(w->client, &put, NULL), -EIO);
    assert_true(put.unknown);
    assert_int_equal(fake_requests(w->fake), 4);
    world_free(w);
}

static void test_unknown_at_the_deadline(_unused_ void **state)
{
    WORLD({.act = FAKE_STALL, .n = 0});
    S3Request put = world_put("k", true);
    put.deadline_usec = clock_boottime_usec() + 3 * USEC_PER_SEC;
    assert_int_equal(s3_do(w->client, &put, NULL), -EHOSTUNREACH);
    assert_true(put.unknown);
    world_free(w);
}

static void test_error_in_a_success(_unused_ void **state)
{
    static const char error[] = "  \n<?xml version=\"1.0\"?><Error><Code>InternalError</Code>"
                                "<Message>m</Message></Error>";
    WORLD({.act = FAKE_ANSWER, .status = 200, .body = error},
          {.act = FAKE_ANSWER, .status = 200, .body = "<Done/>"},
          {.act = FAKE_ANSWER, .status = 200, .body = error},
          {.act = FAKE_ANSWER, .status = 200, .body = error});
    S3Request post = world_put("k", false);
    post.method = S3_POST;
    post.text_max = 1000;
    assert_int_equal(s3_do(w->client, &post, NULL), 0);
    assert_int_equal(post.tries, 2);
    assert_string_equal(post.text, "<Done/>");
    free(post.text);

    post.repeatable = false;
    assert_int_equal(s3_do(w->client, &post, NULL), -EIO);
    assert_true(post.unknown);
    assert_string_equal(post.refusal.code, "InternalError");

    /* If a user's object has an error document as its content, this is not an error of the server. */
    S3Request get = {.method = S3_GET, .bucket = "bucket", .key = "k", .text_max = 1000};
    assert_int_equal(s3_do(w->client, &get, NULL), 0);
    assert_string_equal(get.text, error);
    free(get.text);
    world_free(w);
}

/* ---- stops ---- */

static void test_stop(_unused_ void **state)
{
    static FakeStep steps[1];
    steps[0] = (FakeStep){.act = FAKE_STALL, .n = 5000};
    World *w = world_new(steps, ELEMENTSOF(steps));
    atomic_bool stop = false;
    S3Request stalls = world_get(0, 65536);
    stalls.stop = &stop;
    uint64_t begun = clock_boottime_usec();
    s3_begin(w->client, &stalls);
    while (fake_requests(w->fake) == 0)
        (void)usleep(1000);
    atomic_store(&stop, true);
    assert_int_equal(s3_wait(w->client, &stalls, NULL), -ECANCELED);
    assert_non_null(strstr(stalls.error.text, "cancelled"));
    assert_true(clock_boottime_usec() - begun < 10 * USEC_PER_SEC); /* a stall lasts 20 s */
    world_free(w);
}

/* ---- hedges ---- */

static void test_hedge(_unused_ void **state)
{
    static FakeStep steps[25];
    steps[24] = (FakeStep){.act = FAKE_STALL, .n = 5000};
    World *w = world_new(steps, ELEMENTSOF(steps));
    w->options.connections = 1; /* a hedge may exceed this limit */
    world_open_client(w);
    for (size_t i = 0; i < 24; i++)
        world_expect_range(w, i, 65536, 1);
    uint64_t begun = clock_boottime_usec();
    world_expect_range(w, 77, 65536, 1); /* without a hedge, this get would stall for 20 s */
    assert_true(clock_boottime_usec() - begun < 15 * USEC_PER_SEC);
    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_true(counts.hedges >= 1);
    assert_true(counts.hedges_won >= 1);
    world_free(w);
}

static void test_no_hedge_without_memory(_unused_ void **state)
{
    static FakeStep steps[25];
    steps[24] = (FakeStep){.act = FAKE_STALL, .n = 5000};
    World *w = world_new(steps, ELEMENTSOF(steps));
    w->options.memory_bytes = 65535;
    world_open_client(w);
    for (size_t i = 0; i < 24; i++)
        world_expect_range(w, i, 65536, 1);
    S3Request get = world_get(0, 65536);
    get.deadline_usec = clock_boottime_usec() + USEC_PER_SEC;
    assert_int_equal(s3_do(w->client, &get, NULL), -EHOSTUNREACH);
    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_int_equal(counts.hedges, 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_for_now),
        cmocka_unit_test(test_broken_replies),
        cmocka_unit_test(test_reset_at_any_byte),
        cmocka_unit_test(test_heads_that_end),
        cmocka_unit_test(test_slow_down),
        cmocka_unit_test(test_wrong_ranges),
        cmocka_unit_test(test_stalls),
        cmocka_unit_test(test_body_stalls),
        cmocka_unit_test(test_refused_early),
        cmocka_unit_test(test_body_cut),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_no_such_name),
        cmocka_unit_test(test_lost_replies),
        cmocka_unit_test(test_lost_reply_on_a_kept_connection),
        cmocka_unit_test(test_unknown_at_the_deadline),
        cmocka_unit_test(test_error_in_a_success),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_hedge),
        cmocka_unit_test(test_no_hedge_without_memory),
    };
    return cmocka_run_group_tests(tests, world_set_up, NULL);
}
