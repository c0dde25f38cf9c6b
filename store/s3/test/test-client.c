/* SPDX-License-Identifier: Apache-2.0 */
/* test-client.c - tests the client: its requests and results, what it learns from replies, and how requests end. */
#include "store/s3/test/testing-client.h"

#include "base/clock.h"
#include "store/s3/test/testing-endpoint.h"

#include <errno.h>
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>

/* ---- successes and refusals ---- */

static void test_objects(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    Error err = ERROR_INIT;
    S3Request put = world_put("a b/\xc3\xa4+&%~", false);
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
    get =
        (S3Request){.method = S3_GET, .bucket = "bucket", .key = "empty", .buffer = world_landing};
    assert_int_equal(s3_do(w->client, &get, &err), 0);
    get = (S3Request){.method = S3_GET, .bucket = "bucket", .key = "empty"};
    assert_int_equal(s3_do(w->client, &get, &err), 0);
    assert_string_equal(get.text, "");
    free(get.text);

    S3Request delete = {.method = S3_DELETE, .bucket = "bucket", .key = "blob"};
    assert_int_equal(s3_do(w->client, &delete, &err), 0);
    assert_int_equal(delete.status, 204);

    world_expect_range(w, 0, BLOB_BYTES, 1);
    world_expect_range(w, 12345, 1 << 20, 1);
    world_expect_range(w, BLOB_BYTES - 1, 1, 1);
    assert_int_equal(fake_connections(w->fake), 1); /* sequential requests need one connection */

    S3Counts counts;
    s3_client_counts(w->client, &counts);
    assert_int_equal(counts.requests, 10);
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

    S3Request put = world_put("once", true);
    assert_int_equal(s3_do(w->client, &put, &err), 0);
    put = world_put("once", true);
    assert_int_equal(s3_do(w->client, &put, &err), -EEXIST);
    assert_false(put.unknown);
    assert_int_equal(fake_puts(w->fake, "/bucket/once"), 1);

    S3Request large = {.method = S3_GET, .bucket = "bucket", .key = "blob", .text_max = 1000};
    assert_int_equal(s3_do(w->client, &large, &err), -EFBIG);
    assert_null(large.text);
    assert_int_equal(large.tries, 1);

    /* An object shorter than requested is reported at once. */
    S3Request range = world_get(BLOB_BYTES - 10, 11);
    assert_int_equal(s3_do(w->client, &range, &err), -EIO);
    assert_int_equal(range.tries, 1);
    assert_non_null(strstr(err.text, "asked were 3145718 to 3145728"));
    range = world_get(BLOB_BYTES, 1);
    assert_int_equal(s3_do(w->client, &range, &err), -EIO);
    assert_non_null(strstr(err.text, "InvalidRange"));
    S3Request whole = {.method = S3_GET,
                       .bucket = "bucket",
                       .key = "blob",
                       .buffer = world_landing,
                       .n_bytes = 1000};
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
        requests[i] = world_get(i * PIECE, PIECE);
        requests[i].buffer = world_landing + i * PIECE;
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
    assert_memory_equal(world_landing, world_blob, N * PIECE);
    assert_true(fake_connections(w->fake) <= 8);
    free(requests);
    world_free(w);
}

/* ---- hashes ---- */

static void test_checksums_of_gets(_unused_ void **state)
{
    static const char right[] = "x-amz-checksum-crc32c: yZRlqg==\r\n"; /* crc32c of "hello world" */
    WORLD({.act = FAKE_CORRUPT, .n = 3, .headers = right},
          {.act = FAKE_SERVE, .headers = "x-amz-checksum-crc32c: AAAAAA==\r\n"},
          {.act = FAKE_SERVE, .headers = right},
          {.act = FAKE_SERVE, .headers = "x-amz-checksum-crc32c: AAAAAA==-2\r\n"});
    w->steps.header = "x-amz-checksum-mode";
    fake_put(w->fake, "/bucket/hello", "hello world", 11);
    w->options.checksum = S3_ON;
    world_open_client(w);

    S3Request get = {.method = S3_GET, .bucket = "bucket", .key = "hello", .text_max = 11};
    assert_int_equal(s3_do(w->client, &get, NULL), 0);
    assert_int_equal(get.tries, 3);
    assert_string_equal(get.text, "hello world");
    assert_string_equal(w->steps.seen[0], "ENABLED");
    free(get.text);
    /* A checksum of a multipart upload's parts is not that of the whole object. */
    get = (S3Request){.method = S3_GET,
                      .bucket = "bucket",
                      .key = "hello",
                      .buffer = world_landing,
                      .n_bytes = 11};
    assert_int_equal(s3_do(w->client, &get, NULL), 0);
    assert_int_equal(get.tries, 1);
    world_free(w);
}

static void test_checksums_of_puts(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    w->steps.header = "x-amz-checksum-crc32c";
    w->options.checksum = S3_AUTO;
    world_open_client(w);
    S3Request put = world_put("c", false);
    put.checksum = true;
    assert_int_equal(s3_do(w->client, &put, NULL), 0);
    assert_string_equal(w->steps.seen[0], ""); /* it is unknown whether the server checks crc32c */
    assert_string_equal(put.sent_crc32c, "");
    s3_client_set_checksum(w->client, true);
    put = world_put("c", false);
    put.checksum = true;
    assert_int_equal(s3_do(w->client, &put, NULL), 0);
    assert_string_equal(w->steps.seen[1], "yZRlqg==");
    assert_string_equal(put.sent_crc32c, "yZRlqg==");
    put = world_put("c", false);
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
        w->options.sign_payload = cases[i].sign;
        world_open_client(w);
        S3Request put = world_put("c", false);
        assert_int_equal(s3_do(w->client, &put, NULL), 0);
        assert_string_equal(w->steps.seen[0], cases[i].hash);
        S3Request empty = {.method = S3_PUT, .bucket = "bucket", .key = "e", .repeatable = true};
        assert_int_equal(s3_do(w->client, &empty, NULL), 0);
        assert_string_equal(w->steps.seen[1], SIGN_EMPTY_HASH);
        world_free(w);
    }
}

/* ---- learning from replies ---- */

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
    world_expect_range(w, 0, 1000, 2);
    world_expect_range(w, 0, 1000, 1); /* the clock stays corrected */
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
    assert_true(counts.clock_offset_sec > 86400 * 2 && counts.clock_offset_sec <= 86400 * 3);
    world_free(w);

    /* The refusal of a HEAD has no code. If the time stays wrong after the correction, the request is refused. */
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
    world_expect_range(w, 0, 1000, 2);
    world_expect_range(w, 0, 1000, 1);
    assert_non_null(strstr(w->steps.seen[0], "/us-east-1/s3/"));
    assert_non_null(strstr(w->steps.seen[1], "/eu-west-7/s3/"));
    assert_non_null(strstr(w->steps.seen[2], "/eu-west-7/s3/"));
    world_free(w);
}

/* The bucket is in the host name: libcurl itself resolves names below localhost. */
static void test_virtual_hosts(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    w->steps.header = "host";
    w->options.addressing = S3_ADDRESS_VIRTUAL;
    (void)snprintf(w->endpoint, sizeof(w->endpoint), "http://localhost:%d", fake_port(w->fake));
    w->client = s3_client_close(w->client);
    assert_int_equal(s3_client_open(&w->options, &w->client, NULL), 0);
    S3Request put = world_put("k", false);
    assert_int_equal(s3_do(w->client, &put, NULL), 0);
    char host[64];
    (void)snprintf(host, sizeof(host), "bucket.localhost:%d", fake_port(w->fake));
    assert_string_equal(w->steps.seen[0], host);
    assert_true(fake_has(w->fake, "/k", "hello world", 11));
    put.bucket = "no_host";
    assert_int_equal(s3_do(w->client, &put, NULL), -EINVAL);
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
    world_expect_range(w, 5, 1000, 2);
    assert_int_equal(fake_requests(there->fake), 1);
    char host[64];
    (void)snprintf(host, sizeof(host), "localhost:%d", fake_port(there->fake));
    assert_string_equal(there->steps.seen[0], host);
    world_expect_range(w, 5, 1000, 1); /* the redirect was for one request only */
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
    S3Request get = world_get(0, 100);
    assert_int_equal(s3_do(w->client, &get, NULL), -EIO);
    assert_int_equal(get.tries, 4);
    world_free(w);
}

/* An endpoint that gives credentials only when the test lets it; each answer has another key id and token. */
typedef struct Container {
    sem_t may;
    atomic_int n;
} Container;

static bool give_credentials(void *context, _unused_ const EndpointRequest *request, char *ret,
                             size_t size)
{
    Container *container = context;
    while (sem_wait(&container->may) < 0)
        ;
    char json[256];
    (void)snprintf(json, sizeof(json),
                   "{\"AccessKeyId\": \"AK%d\", \"SecretAccessKey\": \"S\", \"Token\": \"T%d\", "
                   "\"Expiration\": \"2099-01-01T00:00:00Z\"}",
                   atomic_load(&container->n), atomic_load(&container->n));
    atomic_fetch_add(&container->n, 1);
    endpoint_reply(ret, size, 200, 0, json);
    return true;
}

static void test_credentials_that_come_late(_unused_ void **state)
{
    Container container = {.n = 1};
    assert_int_equal(sem_init(&container.may, 0, 0), 0);
    FakeEndpoint *endpoint = endpoint_start("127.0.0.1:0", give_credentials, &container);
    char url[64];
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%d/c", endpoint_port(endpoint));
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_SECRET_ACCESS_KEY");
    (void)setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    (void)setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    (void)setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    WORLD({0}, {.act = FAKE_ANSWER, .status = 400, .code = "ExpiredToken"});
    w->steps.header = "authorization";

    S3Request early[2] = {world_get(0, 1000), world_get(0, 1000)};
    for (size_t i = 0; i < ELEMENTSOF(early); i++) {
        early[i].deadline_usec = clock_boottime_usec() + 500 * USEC_PER_MSEC;
        s3_begin(w->client, &early[i]);
    }
    for (size_t i = 0; i < ELEMENTSOF(early); i++) {
        Error err = ERROR_INIT;
        assert_int_equal(s3_wait(w->client, &early[i], &err), -EHOSTUNREACH);
        assert_non_null(strstr(err.text, "the last: no credentials: "));
    }
    assert_int_equal(fake_requests(w->fake), 0);

    S3Request get = world_get(0, 1000);
    s3_begin(w->client, &get);
    (void)sem_post(&container.may);
    assert_int_equal(s3_wait(w->client, &get, NULL), 0);
    assert_int_equal(get.tries, 1);
    assert_non_null(strstr(w->steps.seen[0], "Credential=AK1/"));

    (void)sem_post(&container.may);
    world_expect_range(w, 0, 1000, 2);
    assert_non_null(strstr(w->steps.seen[1], "Credential=AK1/"));
    assert_non_null(strstr(w->steps.seen[2], "Credential=AK2/"));
    assert_non_null(strstr(w->steps.seen[2], "x-amz-security-token"));

    world_free(w);
    endpoint_stop(endpoint);
    (void)sem_destroy(&container.may);
    (void)unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    (void)world_set_up(NULL);
}

static void test_expired_credentials(_unused_ void **state)
{
    /* The environment has no other credentials: one retry, then the refusal is reported. */
    WORLD({.act = FAKE_ANSWER, .status = 400, .code = "ExpiredToken"}, {.act = FAKE_SERVE},
          {.act = FAKE_ANSWER, .status = 400, .code = "ExpiredToken"},
          {.act = FAKE_ANSWER, .status = 400, .code = "ExpiredToken"});
    world_expect_range(w, 0, 1000, 2);
    Error err = ERROR_INIT;
    S3Request get = world_get(0, 1000);
    assert_int_equal(s3_do(w->client, &get, &err), -EACCES);
    assert_int_equal(get.tries, 2);
    assert_non_null(strstr(err.text, "ExpiredToken"));
    assert_null(strstr(err.text, "THESECRET"));
    world_free(w);
}

/* ---- ends ---- */

static void test_cancel(_unused_ void **state)
{
    WORLD({.act = FAKE_STALL, .n = 100}, {.act = FAKE_ANSWER, .status = 503});
    S3Request active = world_get(0, 1000), paused = world_get(0, 1000);
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
    assert_true(r == -ECANCELED || r == 0); /* the request may have ended */
    s3_cancel(w->client, &paused);          /* no effect: the request has ended */
    S3Request next = world_get(0, 1000);
    assert_int_equal(s3_do(w->client, &next, NULL), 0);
    assert_memory_equal(world_landing, world_blob, 1000);
    assert_in_range(next.tries, 1, 2); /* either request may get the 503 */
    world_free(w);
}

static void test_close_under_way(_unused_ void **state)
{
    WORLD({.act = FAKE_STALL, .n = 100}, {.act = FAKE_ANSWER, .status = 503, .code = "SlowDown"});
    atomic_int left = 3;
    S3Request requests[3];
    for (size_t i = 0; i < ELEMENTSOF(requests); i++) {
        requests[i] = world_get(0, 1000);
        requests[i].done = on_done;
        requests[i].context = &left;
        requests[i].buffer = world_landing + i * 1000;
    }
    for (size_t i = 0; i < ELEMENTSOF(requests); i++)
        s3_begin(w->client, &requests[i]);
    while (fake_requests(w->fake) < 2)
        (void)usleep(1000);
    uint64_t begun = clock_boottime_usec();
    w->client = s3_client_close(w->client);
    assert_true(clock_boottime_usec() - begun < 15 * USEC_PER_SEC);
    assert_int_equal(atomic_load(&left), 0); /* the stalled request would take 20 s */
    int cancelled = 0;
    for (size_t i = 0; i < ELEMENTSOF(requests); i++) {
        cancelled += requests[i].result == -ECANCELED;
        assert_true(requests[i].result == -ECANCELED || requests[i].result == 0);
    }
    assert_true(cancelled >= 1); /* at least the stalled request was cancelled */
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
    world_expect_range(w, 0, 10, 1);
    world_free(w);
}

/* After fork(), the client's thread exists only in the parent; the child can open a client of its own. */
_unused_ static void test_fork(_unused_ void **state)
{
    World *w = world_new(NULL, 0);
    world_expect_range(w, 0, 1000, 1);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        S3Client *mine = NULL;
        S3Request get = world_get(7, 1000);
        bool good = s3_client_open(&w->options, &mine, NULL) == 0 && mine != w->client &&
                    s3_do(mine, &get, NULL) == 0 &&
                    memcmp(world_landing, world_blob + 7, 1000) == 0;
        mine = s3_client_close(mine);
        w->client = s3_client_close(w->client);
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    world_expect_range(w, 0, 1000, 1);
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

/* The error names the proxy: with only "Failed to connect to 127.0.0.1 port 9", an operator would search for the fault
 * in the store and not in a variable. */
static void test_proxy_of_the_environment_is_named(_unused_ void **state)
{
    S3Options options = {.endpoint = (char *)"http://s3.invalid:9000",
                         .region = "r",
                         .profile = "default",
                         .part_bytes = 8 << 20,
                         .connections = 1,
                         .memory_bytes = 64 << 20,
                         .deadline_usec = USEC_PER_SEC,
                         .stall_usec = 20 * USEC_PER_SEC,
                         .sign_payload = S3_OFF,
                         .checksum = S3_OFF};
    S3Client *client = NULL;
    Error err = ERROR_INIT;
    (void)unsetenv("no_proxy");
    (void)setenv("http_proxy", "http://me:secret@127.0.0.1:9", 1);
    assert_int_equal(s3_client_open(&options, &client, &err), 0);
    S3Request get = world_get(0, 1);
    assert_true(s3_do(client, &get, &err) < 0);
    if (!strstr(err.text, "through the proxy http://127.0.0.1:9 of http_proxy") ||
        strstr(err.text, "secret"))
        fail_msg("%s", err.text);
    (void)s3_client_close(client); /* always returns NULL */
    (void)unsetenv("http_proxy");
    (void)setenv("no_proxy", "*", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_checksums_of_gets),
        cmocka_unit_test(test_checksums_of_puts),
        cmocka_unit_test(test_payload_hashes),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_region),
        cmocka_unit_test(test_virtual_hosts),
        cmocka_unit_test(test_redirect),
        cmocka_unit_test(test_redirect_in_circles),
        cmocka_unit_test(test_credentials_that_come_late),
        cmocka_unit_test(test_expired_credentials),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_close_under_way),
        cmocka_unit_test(test_sharing),
/* Neither sanitizer supports threads together with a fork(). */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
        cmocka_unit_test(test_fork),
#endif
        cmocka_unit_test(test_bad_endpoints),
        cmocka_unit_test(test_proxy_of_the_environment_is_named),
    };
    return cmocka_run_group_tests(tests, world_set_up, NULL);
}
