/* test-client.c - the client against a server that misbehaves: what is tried again, what is not, what
 * is learned, and what the caller is told. */
#include "base/testing.h"

#include "base/clock.h"
#include "base/hash.h"
#include "store/s3/client.h"
#include "store/s3/testing-s3.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* ---- fixtures ---- */

enum { BLOB_BYTES = 3 << 20 };

typedef struct Steps {
    const FakeStep *steps; /* of the first requests; what comes after is served */
    size_t n;
    char seen[16][1024]; /* a header of each request, if the test names one */
    char methods[16][16];
    const char *header;
} Steps;

static FakeStep script(void *context, const FakeRequest *request)
{
    Steps *steps = context;
    size_t i = request->number - 1;
    if (i < ELEMENTSOF(steps->seen)) {
        (void)snprintf(steps->methods[i], sizeof(steps->methods[i]), "%s", request->method);
        if (steps->header)
            (void)fake_header(request, steps->header, steps->seen[i], sizeof(steps->seen[i]));
    }
    return i < steps->n ? steps->steps[i] : (FakeStep){0};
}

typedef struct World {
    Steps steps;
    Fake *fake;
    S3Client *client;
    S3Options options;
    char endpoint[64];
} World;

static uint8_t blob[BLOB_BYTES];
static uint8_t landing[BLOB_BYTES];

static void open_client(World *w)
{
    Error err = ERROR_INIT;
    (void)snprintf(w->endpoint, sizeof(w->endpoint), "http://127.0.0.1:%d", fake_port(w->fake));
    w->options.endpoint = w->endpoint;
    if (s3_client_open(&w->options, &w->client, &err) < 0)
        fail_msg("%s", err.text);
}

static World *world_new(const FakeStep *steps, size_t n)
{
    World *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->steps = (Steps){.steps = steps, .n = n};
    w->fake = fake_start(script, &w->steps);
    fake_put(w->fake, "/bucket/blob", blob, sizeof(blob));
    w->options = (S3Options){
        .region = "us-east-1",
        .profile = "default",
        .part_bytes = 8 << 20,
        .connections = 8,
        .memory_bytes = 64 << 20,
        .deadline_usec = 60 * USEC_PER_SEC,
        .stall_usec = 20 * USEC_PER_SEC,
        .sign_payload = S3_OFF,
        .checksum = S3_OFF,
    };
    open_client(w);
    return w;
}

#define WORLD(...)                                                                                 \
    static const FakeStep steps[] = {__VA_ARGS__};                                                 \
    World *w = world_new(steps, ELEMENTSOF(steps))

static void world_free(World *w)
{
    w->client = s3_client_close(w->client);
    fake_stop(w->fake);
    free(w);
}

static S3Request get_blob(size_t offset, size_t n_bytes)
{
    memset(landing, 0, sizeof(landing));
    return (S3Request){.method = S3_GET,
                       .bucket = "bucket",
                       .key = "blob",
                       .buffer = landing,
                       .ranged = true,
                       .offset = offset,
                       .n_bytes = n_bytes};
}

static void expect_range(World *w, size_t offset, size_t n_bytes, unsigned tries)
{
    Error err = ERROR_INIT;
    S3Request request = get_blob(offset, n_bytes);
    if (s3_do(w->client, &request, &err) < 0)
        fail_msg("%s", err.text);
    assert_memory_equal(landing, blob + offset, n_bytes);
    assert_int_equal(request.tries, tries);
}

static struct iovec body[2] = {{.iov_base = (void *)"hello ", .iov_len = 6},
                               {.iov_base = (void *)"world", .iov_len = 5}};

static const S3Pair if_absent[] = {{"If-None-Match", "*"}};

static S3Request put_hello(const char *key, bool only_if_absent)
{
    return (S3Request){.method = S3_PUT,
                       .bucket = "bucket",
                       .key = key,
                       .body = body,
                       .n_body = 2,
                       .headers = if_absent,
                       .n_headers = only_if_absent ? 1 : 0,
                       .repeatable = !only_if_absent};
}

/* ---- what works ---- */

static void test_objects(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    Error err = ERROR_INIT;
    S3Request put = put_hello("a b/\xc3\xa4+&%~", false);
    assert_int_equal(s3_do(w->client, &put, &err), 0);
    assert_string_equal(put.reply.etag, "1");
    assert_true(fake_has(w->fake, "/bucket/a%20b/%C3%A4%2B%26%25~", "hello world", 11));

    S3Request get = {.method = S3_GET,
                     .bucket = "bucket",
                     .key = "a b/\xc3\xa4+&%~",
                     .text_max = 100};
    assert_int_equal(s3_do(w->client, &get, &err), 0);
    assert_int_equal(get.n_text, 11);
    assert_string_equal(get.text, "hello world");
    free(get.text);

    S3Request head = {.method = S3_HEAD, .bucket = "bucket", .key = "blob"};
    assert_int_equal(s3_do(w->client, &head, &err), 0);
    assert_true(head.reply.has_length);
    assert_int_equal(head.reply.length, BLOB_BYTES);

    S3Request empty = {.method = S3_PUT, .bucket = "bucket", .key = "empty", .repeatable = true};
    assert_int_equal(s3_do(w->client, &empty, &err), 0);
    assert_true(fake_has(w->fake, "/bucket/empty", "", 0));
    get = (S3Request){.method = S3_GET, .bucket = "bucket", .key = "empty", .buffer = landing};
    assert_int_equal(s3_do(w->client, &get, &err), 0);

    S3Request delete = {.method = S3_DELETE, .bucket = "bucket", .key = "blob"};
    assert_int_equal(s3_do(w->client, &delete, &err), 0);
    assert_int_equal(delete.status, 204);

    expect_range(w, 0, BLOB_BYTES, 1);
    expect_range(w, 12345, 1 << 20, 1);
    expect_range(w, BLOB_BYTES - 1, 1, 1);
    assert_int_equal(fake_connections(w->fake), 1); /* one after another need no more */

    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_int_equal(counts.requests, 9);
    assert_int_equal(counts.retries, 0);
    assert_true(counts.bytes_in > BLOB_BYTES);
    world_free(w);
}

static void test_refusals(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    Error err = ERROR_INIT;
    S3Request get = {.method = S3_GET, .bucket = "bucket", .key = "none", .text_max = 100};
    assert_int_equal(s3_do(w->client, &get, &err), -ENOENT);
    assert_null(get.text);
    assert_int_equal(get.status, 404);
    assert_string_equal(get.refusal.code, "NoSuchKey");
    assert_non_null(strstr(err.text, "GET http://127.0.0.1:"));
    assert_non_null(strstr(err.text, "/bucket/none: 404 NoSuchKey: as the script says"));

    S3Request put = put_hello("once", true);
    assert_int_equal(s3_do(w->client, &put, &err), 0);
    put = put_hello("once", true);
    assert_int_equal(s3_do(w->client, &put, &err), -EEXIST);
    assert_false(put.unknown);
    assert_int_equal(fake_puts(w->fake, "/bucket/once"), 1);

    S3Request large = {.method = S3_GET, .bucket = "bucket", .key = "blob", .text_max = 1000};
    assert_int_equal(s3_do(w->client, &large, &err), -EFBIG);
    assert_null(large.text);
    assert_int_equal(large.tries, 1);

    /* Shorter than asked is told at once. */
    S3Request range = get_blob(BLOB_BYTES - 10, 11);
    assert_int_equal(s3_do(w->client, &range, &err), -EIO);
    assert_int_equal(range.tries, 1);
    assert_non_null(strstr(err.text, "asked were 3145718 to 3145728"));
    range = get_blob(BLOB_BYTES, 1);
    assert_int_equal(s3_do(w->client, &range, &err), -EIO);
    assert_non_null(strstr(err.text, "InvalidRange"));
    S3Request whole = {
        .method = S3_GET, .bucket = "bucket", .key = "blob", .buffer = landing, .n_bytes = 1000};
    assert_int_equal(s3_do(w->client, &whole, &err), -EIO);
    assert_int_equal(whole.tries, 1);
    world_free(w);
}

static void on_done(S3Request *request)
{
    atomic_int *left = request->context;
    atomic_fetch_sub(left, 1);
}

static void test_many_at_once(_unused_ void **state)
{
    enum { N = 200, PIECE = 8192 };
    World *w = world_new(NULL, 0);
    atomic_int left = N / 2;
    S3Request *requests = calloc(N, sizeof(*requests));
    assert_non_null(requests);
    for (size_t i = 0; i < N; i++) {
        requests[i] = get_blob(i * PIECE, PIECE);
        requests[i].buffer = landing + i * PIECE;
        requests[i].done = i % 2 ? on_done : NULL;
        requests[i].context = &left;
    }
    for (size_t i = 0; i < N; i++)
        s3_begin(w->client, &requests[i]);
    for (size_t i = 0; i < N; i += 2)
        assert_int_equal(s3_wait(w->client, &requests[i], NULL), 0);
    while (atomic_load(&left) > 0)
        (void)usleep(1000);
    for (size_t i = 1; i < N; i += 2)
        assert_int_equal(requests[i].result, 0);
    assert_memory_equal(landing, blob, N * PIECE);
    assert_true(fake_connections(w->fake) <= 8);
    free(requests);
    world_free(w);
}

/* ---- what is tried again ---- */

static void test_refused_for_now(_unused_ void **state)
{
    WORLD({.act = FAKE_ANSWER, .status = 500, .code = "InternalError"},
          {.act = FAKE_ANSWER, .status = 503, .code = "SlowDown"},
          {.act = FAKE_ANSWER, .status = 400, .code = "RequestTimeout"}, {.act = FAKE_SERVE},
          {.act = FAKE_ANSWER, .status = 502},
          {.act = FAKE_RAW, .body = "HTTP/1.1 2x0 Garbage\r\n\r\n"}, {.act = FAKE_RAW, .body = ""});
    expect_range(w, 0, 100000, 4);
    expect_range(w, 0, 100000, 4);
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
        expect_range(w, 1000, 1 << 20, 2);
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
        expect_range(w, 5, 4, 2);
    world_free(w);
}

static void test_checksums_of_gets(_unused_ void **state)
{
    static const char right[] = "x-amz-checksum-crc32c: yZRlqg==\r\n"; /* of "hello world" */
    WORLD({.act = FAKE_CORRUPT, .n = 3, .headers = right},
          {.act = FAKE_SERVE, .headers = "x-amz-checksum-crc32c: AAAAAA==\r\n"},
          {.act = FAKE_SERVE, .headers = right},
          {.act = FAKE_SERVE, .headers = "x-amz-checksum-crc32c: AAAAAA==-2\r\n"});
    w->steps.header = "x-amz-checksum-mode";
    fake_put(w->fake, "/bucket/hello", "hello world", 11);
    w->client = s3_client_close(w->client);
    w->options.checksum = S3_ON;
    open_client(w);

    S3Request get = {.method = S3_GET, .bucket = "bucket", .key = "hello", .text_max = 11};
    assert_int_equal(s3_do(w->client, &get, NULL), 0);
    assert_int_equal(get.tries, 3);
    assert_string_equal(get.text, "hello world");
    assert_string_equal(w->steps.seen[0], "ENABLED");
    free(get.text);
    /* One of a multipart's parts says nothing of the whole. */
    get = (S3Request){
        .method = S3_GET, .bucket = "bucket", .key = "hello", .buffer = landing, .n_bytes = 11};
    assert_int_equal(s3_do(w->client, &get, NULL), 0);
    assert_int_equal(get.tries, 1);
    world_free(w);
}

static void test_checksums_of_puts(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    w->steps.header = "x-amz-checksum-crc32c";
    w->client = s3_client_close(w->client);
    w->options.checksum = S3_AUTO;
    open_client(w);
    S3Request put = put_hello("c", false);
    put.checksum = true;
    assert_int_equal(s3_do(w->client, &put, NULL), 0);
    assert_string_equal(w->steps.seen[0], ""); /* nobody said yet that the server knows it */
    s3_client_set_checksum(w->client, true);
    put = put_hello("c", false);
    put.checksum = true;
    assert_int_equal(s3_do(w->client, &put, NULL), 0);
    assert_string_equal(w->steps.seen[1], "yZRlqg==");
    put = put_hello("c", false);
    assert_int_equal(s3_do(w->client, &put, NULL), 0);
    assert_string_equal(w->steps.seen[2], "");
    world_free(w);
}

static void test_payload_hashes(_unused_ void **state)
{
    static const struct {
        S3Switch sign;
        const char *hash;
    } cases[] = {
        {S3_OFF, "UNSIGNED-PAYLOAD"},
        {S3_ON, "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"},
        {S3_AUTO, "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        World *w = world_new(NULL, 0);
        w->steps.header = "x-amz-content-sha256";
        w->client = s3_client_close(w->client);
        w->options.sign_payload = cases[i].sign;
        open_client(w);
        S3Request put = put_hello("c", false);
        assert_int_equal(s3_do(w->client, &put, NULL), 0);
        assert_string_equal(w->steps.seen[0], cases[i].hash);
        S3Request empty = {.method = S3_PUT, .bucket = "bucket", .key = "e", .repeatable = true};
        assert_int_equal(s3_do(w->client, &empty, NULL), 0);
        assert_string_equal(w->steps.seen[1], SIGN_EMPTY_HASH);
        world_free(w);
    }
}

static void test_stalls(_unused_ void **state)
{
    WORLD({.act = FAKE_STALL, .n = 0}, {.act = FAKE_STALL, .n = 50},
          {.act = FAKE_STALL, .n = 5000});
    w->client = s3_client_close(w->client);
    w->options.stall_usec = 300 * USEC_PER_MSEC;
    open_client(w);
    expect_range(w, 0, 100000, 4);
    world_free(w);
}

static void test_body_cut(_unused_ void **state)
{
    /* What did not come whole was not done: a put-if-absent is tried again, too. */
    WORLD({.act = FAKE_DEAF, .n = 0}, {.act = FAKE_DEAF, .n = 1 << 20});
    struct iovec large = {.iov_base = blob, .iov_len = sizeof(blob)};
    S3Request put = {.method = S3_PUT,
                     .bucket = "bucket",
                     .key = "large",
                     .body = &large,
                     .n_body = 1,
                     .repeatable = true};
    Error err = ERROR_INIT;
    if (s3_do(w->client, &put, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(put.tries, 3);
    assert_true(fake_has(w->fake, "/bucket/large", blob, sizeof(blob)));
    assert_int_equal(fake_puts(w->fake, "/bucket/large"), 1);
    world_free(w);
}

static void test_deadline(_unused_ void **state)
{
    WORLD({.act = FAKE_ANSWER, .status = 503, .code = "SlowDown"}, {.act = FAKE_STALL});
    Error err = ERROR_INIT;
    S3Request get = get_blob(0, 1000);
    get.deadline_usec = clock_boottime_usec() + 700 * USEC_PER_MSEC;
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
    S3Request put = put_hello("k", true);
    put.deadline_usec = clock_boottime_usec() + 500 * USEC_PER_MSEC;
    assert_int_equal(s3_do(w->client, &put, &err), -EHOSTUNREACH);
    assert_false(put.unknown); /* nothing left us */
    assert_true(put.tries > 1);
    w->client = s3_client_close(w->client);
    free(w);
}

/* ---- what may have been done ---- */

static void test_lost_replies(_unused_ void **state)
{
    WORLD({.act = FAKE_LOSE}, {.act = FAKE_LOSE});
    Error err = ERROR_INIT;
    S3Request put = put_hello("lost", true);
    assert_int_equal(s3_do(w->client, &put, &err), -EIO);
    assert_true(put.unknown);
    assert_int_equal(put.tries, 1);
    assert_int_equal(fake_puts(w->fake, "/bucket/lost"), 1);

    put = put_hello("twice", false);
    assert_int_equal(s3_do(w->client, &put, &err), 0);
    assert_int_equal(put.tries, 2);
    assert_int_equal(fake_puts(w->fake, "/bucket/twice"), 2);
    world_free(w);
}

/* Over a connection that was kept open, libcurl would begin again without asking. */
static void test_lost_reply_on_a_kept_connection(_unused_ void **state)
{
    WORLD({.act = FAKE_SERVE}, {.act = FAKE_LOSE}, {.act = FAKE_SERVE}, {.act = FAKE_LOSE});
    expect_range(w, 0, 1000, 1);
    S3Request put = {
        .method = S3_PUT, .bucket = "bucket", .key = "empty", .headers = if_absent, .n_headers = 1};
    assert_int_equal(s3_do(w->client, &put, NULL), -EIO);
    assert_true(put.unknown);
    assert_int_equal(fake_puts(w->fake, "/bucket/empty"), 1);

    expect_range(w, 0, 1000, 1);
    put = put_hello("lost", true);
    assert_int_equal(s3_do(w->client, &put, NULL), -EIO);
    assert_true(put.unknown);
    assert_int_equal(fake_requests(w->fake), 4);
    world_free(w);
}

static void test_unknown_at_the_deadline(_unused_ void **state)
{
    WORLD({.act = FAKE_STALL, .n = 0});
    S3Request put = put_hello("k", true);
    put.deadline_usec = clock_boottime_usec() + 400 * USEC_PER_MSEC;
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
    S3Request post = put_hello("k", false);
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

    /* What a user put into an object is no answer. */
    S3Request get = {.method = S3_GET, .bucket = "bucket", .key = "k", .text_max = 1000};
    assert_int_equal(s3_do(w->client, &get, NULL), 0);
    assert_string_equal(get.text, error);
    free(get.text);
    world_free(w);
}

/* ---- what is learned ---- */

static void test_clock(_unused_ void **state)
{
    int64_t theirs = (int64_t)(clock_realtime_usec() / USEC_PER_SEC) + 86400 * 3;
    static FakeStep steps[2];
    steps[0] = (FakeStep){.act = FAKE_ANSWER,
                          .status = 403,
                          .code = "RequestTimeTooSkewed",
                          .date = theirs};
    World *w = world_new(steps, 1);
    w->steps.header = "x-amz-date";
    expect_range(w, 0, 1000, 2);
    expect_range(w, 0, 1000, 1); /* and it stays corrected */
    char date[16];
    time_t at = (time_t)theirs;
    struct tm tm;
    (void)strftime(date, sizeof(date), "%Y%m%d", gmtime_r(&at, &tm));
    assert_memory_not_equal(w->steps.seen[0], date, 8);
    assert_memory_equal(w->steps.seen[1], date, 8);
    assert_memory_equal(w->steps.seen[2], date, 8);
    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_int_equal(counts.resigned, 1);
    world_free(w);

    /* A HEAD's refusal has no code; one that stays skewed is refused. */
    steps[0] = steps[1] = (FakeStep){.act = FAKE_ANSWER, .status = 403, .date = theirs};
    w = world_new(steps, 1);
    S3Request head = {.method = S3_HEAD, .bucket = "bucket", .key = "blob"};
    assert_int_equal(s3_do(w->client, &head, NULL), 0);
    assert_int_equal(head.tries, 2);
    world_free(w);
    w = world_new(steps, 2);
    steps[1].code = "RequestTimeTooSkewed";
    assert_int_equal(s3_do(w->client, &head, NULL), -EACCES);
    assert_int_equal(head.tries, 2);
    world_free(w);
}

static void test_region(_unused_ void **state)
{
    WORLD({.act = FAKE_ANSWER,
           .status = 400,
           .code = "AuthorizationHeaderMalformed",
           .headers = "x-amz-bucket-region: eu-west-7\r\n"});
    w->steps.header = "authorization";
    expect_range(w, 0, 1000, 2);
    expect_range(w, 0, 1000, 1);
    assert_non_null(strstr(w->steps.seen[0], "/us-east-1/s3/"));
    assert_non_null(strstr(w->steps.seen[1], "/eu-west-7/s3/"));
    assert_non_null(strstr(w->steps.seen[2], "/eu-west-7/s3/"));
    world_free(w);
}

static void test_redirect(_unused_ void **state)
{
    World *there = world_new(NULL, 0);
    there->steps.header = "host";
    static char location[128];
    (void)snprintf(location, sizeof(location), "Location: http://localhost:%d/bucket/blob?x=1\r\n",
                   fake_port(there->fake));
    static FakeStep steps[2];
    steps[0] = (FakeStep){.act = FAKE_ANSWER,
                          .status = 307,
                          .code = "TemporaryRedirect",
                          .headers = location};
    World *w = world_new(steps, 1);
    expect_range(w, 5, 1000, 2);
    assert_int_equal(fake_requests(there->fake), 1);
    char host[64];
    (void)snprintf(host, sizeof(host), "localhost:%d", fake_port(there->fake));
    assert_string_equal(there->steps.seen[0], host);
    expect_range(w, 5, 1000, 1); /* it was for once */
    assert_int_equal(fake_requests(there->fake), 1);
    world_free(w);
    world_free(there);
}

static void test_redirect_in_circles(_unused_ void **state)
{
    static char location[128];
    static FakeStep steps[8];
    World *w = world_new(steps, ELEMENTSOF(steps));
    (void)snprintf(location, sizeof(location), "Location: http://127.0.0.1:%d/bucket/blob\r\n",
                   fake_port(w->fake));
    for (size_t i = 0; i < ELEMENTSOF(steps); i++)
        steps[i] = (FakeStep){.act = FAKE_ANSWER, .status = 301, .headers = location};
    S3Request get = get_blob(0, 100);
    assert_int_equal(s3_do(w->client, &get, NULL), -EIO);
    assert_int_equal(get.tries, 4);
    world_free(w);
}

static void test_expired_credentials(_unused_ void **state)
{
    /* The environment has no others: once more, then that is told. */
    WORLD({.act = FAKE_ANSWER, .status = 400, .code = "ExpiredToken"}, {.act = FAKE_SERVE},
          {.act = FAKE_ANSWER, .status = 400, .code = "ExpiredToken"},
          {.act = FAKE_ANSWER, .status = 400, .code = "ExpiredToken"});
    expect_range(w, 0, 1000, 2);
    Error err = ERROR_INIT;
    S3Request get = get_blob(0, 1000);
    assert_int_equal(s3_do(w->client, &get, &err), -EACCES);
    assert_int_equal(get.tries, 2);
    assert_non_null(strstr(err.text, "ExpiredToken"));
    assert_null(strstr(err.text, "THESECRET"));
    world_free(w);
}

/* ---- hedges ---- */

static void test_hedge(_unused_ void **state)
{
    static FakeStep steps[25];
    steps[24] = (FakeStep){.act = FAKE_STALL, .n = 5000};
    World *w = world_new(steps, ELEMENTSOF(steps));
    for (size_t i = 0; i < 24; i++)
        expect_range(w, i, 65536, 1);
    uint64_t begun = clock_boottime_usec();
    expect_range(w, 77, 65536, 1); /* would stall for 20 s */
    assert_true(clock_boottime_usec() - begun < 10 * USEC_PER_SEC);
    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_int_equal(counts.hedges, 1);
    assert_int_equal(counts.hedges_won, 1);

    /* All of the memory was given back. */
    assert_int_equal(s3_reserve(w->client, 64 << 20, 0, NULL), 0);
    s3_release(w->client, 64 << 20);
    world_free(w);
}

static void test_no_hedge_without_memory(_unused_ void **state)
{
    static FakeStep steps[25];
    steps[24] = (FakeStep){.act = FAKE_STALL, .n = 5000};
    World *w = world_new(steps, ELEMENTSOF(steps));
    assert_int_equal(s3_reserve(w->client, 64 << 20, 0, NULL), 0);
    for (size_t i = 0; i < 24; i++)
        expect_range(w, i, 65536, 1);
    S3Request get = get_blob(0, 65536);
    get.deadline_usec = clock_boottime_usec() + USEC_PER_SEC;
    assert_int_equal(s3_do(w->client, &get, NULL), -EHOSTUNREACH);
    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_int_equal(counts.hedges, 0);
    s3_release(w->client, 64 << 20);
    world_free(w);
}

/* ---- ends ---- */

static void test_cancel(_unused_ void **state)
{
    WORLD({.act = FAKE_STALL, .n = 100}, {.act = FAKE_ANSWER, .status = 503});
    S3Request active = get_blob(0, 1000), paused = get_blob(0, 1000);
    active.key = paused.key = "blob";
    s3_begin(w->client, &active);
    while (fake_requests(w->fake) < 1)
        (void)usleep(1000);
    s3_cancel(w->client, &active);
    assert_int_equal(s3_wait(w->client, &active, NULL), -ECANCELED);
    s3_begin(w->client, &paused);
    s3_cancel(w->client, &paused);
    Error err = ERROR_INIT;
    int r = s3_wait(w->client, &paused, &err);
    assert_true(r == -ECANCELED || r == 0); /* it may have been quicker */
    s3_cancel(w->client, &paused);          /* does nothing any more */
    expect_range(w, 0, 1000, r == 0 || fake_requests(w->fake) >= 2 ? 1 : 2);
    world_free(w);
}

static void test_close_under_way(_unused_ void **state)
{
    WORLD({.act = FAKE_STALL, .n = 100}, {.act = FAKE_ANSWER, .status = 503, .code = "SlowDown"});
    atomic_int left = 3;
    S3Request requests[3];
    for (size_t i = 0; i < ELEMENTSOF(requests); i++) {
        requests[i] = get_blob(0, 1000);
        requests[i].done = on_done;
        requests[i].context = &left;
        s3_begin(w->client, &requests[i]);
    }
    while (fake_requests(w->fake) < 2)
        (void)usleep(1000);
    uint64_t begun = clock_boottime_usec();
    w->client = s3_client_close(w->client);
    assert_true(clock_boottime_usec() - begun < 5 * USEC_PER_SEC);
    assert_int_equal(atomic_load(&left), 0);
    assert_int_equal(requests[0].result, -ECANCELED);
    world_free(w);
}

static void test_sharing(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    S3Client *same = NULL, *other = NULL;
    assert_int_equal(s3_client_open(&w->options, &same, NULL), 0);
    assert_ptr_equal(same, w->client);
    S3Options options = w->options;
    options.connections = 3;
    assert_int_equal(s3_client_open(&options, &other, NULL), 0);
    assert_ptr_not_equal(other, w->client);
    other = s3_client_close(other);
    same = s3_client_close(same);
    expect_range(w, 0, 10, 1);
    world_free(w);
}

static void test_bad_endpoints(_unused_ void **state)
{
    static const char *const bad[] = {"ftp://host",       "host",
                                      "http://",          "http://user:secret@host",
                                      "http://host/path", "https://ho st"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        S3Options options = {.endpoint = (char *)bad[i], .region = "r", .connections = 1};
        S3Client *client = NULL;
        Error err = ERROR_INIT;
        assert_int_equal(s3_client_open(&options, &client, &err), -EINVAL);
        assert_null(client);
        assert_null(strstr(err.text, "secret"));
    }
}

static int set_up(_unused_ void **state)
{
    for (size_t i = 0; i < sizeof(blob); i++)
        blob[i] = (uint8_t)(i * 2654435761u >> 13);
    (void)setenv("AWS_ACCESS_KEY_ID", "AKTEST", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "THESECRET", 1);
    (void)unsetenv("AWS_SESSION_TOKEN");
    (void)setenv("no_proxy", "*", 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_refused_for_now),
        cmocka_unit_test(test_broken_replies),
        cmocka_unit_test(test_wrong_ranges),
        cmocka_unit_test(test_checksums_of_gets),
        cmocka_unit_test(test_checksums_of_puts),
        cmocka_unit_test(test_payload_hashes),
        cmocka_unit_test(test_stalls),
        cmocka_unit_test(test_body_cut),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_lost_replies),
        cmocka_unit_test(test_lost_reply_on_a_kept_connection),
        cmocka_unit_test(test_unknown_at_the_deadline),
        cmocka_unit_test(test_error_in_a_success),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_region),
        cmocka_unit_test(test_redirect),
        cmocka_unit_test(test_redirect_in_circles),
        cmocka_unit_test(test_expired_credentials),
        cmocka_unit_test(test_hedge),
        cmocka_unit_test(test_no_hedge_without_memory),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_close_under_way),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_bad_endpoints),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
