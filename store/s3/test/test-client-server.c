/* SPDX-License-Identifier: Apache-2.0 */
/* test-client-server.c - the client against a real server, which checks signatures: keys of all kinds, ranges,
 * conditions, parts, and refusals. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "store/s3/client/client.h"

#include <errno.h>
#include <string.h>

enum { LARGE_BYTES = 12 << 20, PART_BYTES = 5 << 20 };

typedef struct World {
    S3Options options;
    S3Client *client;
    const char *bucket;
    bool swift; /* Swift has no put-if-absent */
    uint8_t *large, *landing;
} World;

static World w;

static int set_up(_unused_ void **state)
{
    Error err = ERROR_INIT;
    const char *uri = getenv("SDTRAIN_TEST_S3_URI"), *server = getenv("SDTRAIN_TEST_S3");
    if (!uri || !server) {
        print_error("run it by tests/s3/with-gateway\n");
        return -1;
    }
    w.bucket = uri + strlen("s3://");
    w.swift = strstr(server, "swift") != NULL;
    w.large = malloc(LARGE_BYTES);
    w.landing = malloc(LARGE_BYTES);
    if (!w.large || !w.landing || s3_options_load(&w.options, &err) < 0 ||
        s3_client_open(&w.options, &w.client, &err) < 0) {
        print_error("%s\n", err.text);
        return -1;
    }
    for (size_t i = 0; i < LARGE_BYTES; i++)
        w.large[i] = (uint8_t)(i * 2654435761u >> 11);
    return 0;
}

static int tear_down(_unused_ void **state)
{
    w.client = s3_client_close(w.client);
    s3_options_clear(&w.options);
    free(w.large);
    free(w.landing);
    return 0;
}

static int ask(S3Request *request)
{
    Error err = ERROR_INIT;
    request->bucket = w.bucket;
    int r = s3_do(w.client, request, &err);
    if (r < 0)
        print_message("%s\n", err.text);
    return r;
}

static int put(const char *key, const void *data, size_t n, const S3Pair *headers, size_t n_headers)
{
    struct iovec body = {.iov_base = (void *)data, .iov_len = n};
    S3Request request = {.method = S3_PUT,
                         .key = key,
                         .body = &body,
                         .n_body = 1,
                         .headers = headers,
                         .n_headers = n_headers,
                         .repeatable = n_headers == 0};
    return ask(&request);
}

static void test_keys(_unused_ void **state)
{
    static const char *const keys[] = {"plain",
                                       "a/b/c",
                                       "with space",
                                       "plus+and=equals&and?and#and%",
                                       "\xc3\xa4\xe2\x82\xac",
                                       "double//slash",
                                       "tilde~.-_",
                                       "a%20b",
                                       "colon:comma,semi;at@",
                                       "quotes'\"(){}[]*!$",
                                       "dots/../.x"};
    for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
        assert_int_equal(put(keys[i], keys[i], strlen(keys[i]), NULL, 0), 0);
        S3Request get = {.method = S3_GET, .key = keys[i], .text_max = 1000};
        assert_int_equal(ask(&get), 0);
        assert_string_equal(get.text, keys[i]);
        free(get.text);
    }
    S3Request list = {.method = S3_GET,
                      .key = "",
                      .text_max = 1 << 20,
                      .query = (const S3Pair[]){{"prefix", "with "}, {"list-type", "2"}},
                      .n_query = 2};
    assert_int_equal(ask(&list), 0);
    assert_non_null(strstr(list.text, "<Key>with space</Key>"));
    free(list.text);
    for (size_t i = 0; i < ELEMENTSOF(keys); i++) {
        S3Request delete = {.method = S3_DELETE, .key = keys[i], .repeatable = true};
        assert_int_equal(ask(&delete), 0);
        S3Request head = {.method = S3_HEAD, .key = keys[i]};
        assert_int_equal(ask(&head), -ENOENT);
    }
}

static void test_ranges(_unused_ void **state)
{
    assert_int_equal(put("large", w.large, LARGE_BYTES, NULL, 0), 0);
    enum { N = 24, PIECE = LARGE_BYTES / N };
    S3Request requests[N];
    memset(w.landing, 0, LARGE_BYTES);
    for (size_t i = 0; i < N; i++) {
        requests[i] = (S3Request){.method = S3_GET,
                                  .bucket = w.bucket,
                                  .key = "large",
                                  .buffer = w.landing + i * PIECE,
                                  .ranged = true,
                                  .offset = i * PIECE,
                                  .n_bytes = PIECE};
        s3_begin(w.client, &requests[i]);
    }
    for (size_t i = 0; i < N; i++)
        assert_int_equal(s3_wait(w.client, &requests[i], NULL), 0);
    assert_memory_equal(w.landing, w.large, LARGE_BYTES);

    memset(w.landing, 0, LARGE_BYTES);
    S3Request whole = {.method = S3_GET,
                       .key = "large",
                       .buffer = w.landing,
                       .n_bytes = LARGE_BYTES};
    assert_int_equal(ask(&whole), 0);
    assert_memory_equal(w.landing, w.large, LARGE_BYTES);

    S3Request beyond = {.method = S3_GET,
                        .key = "large",
                        .buffer = w.landing,
                        .ranged = true,
                        .offset = LARGE_BYTES - 1,
                        .n_bytes = 2};
    assert_int_equal(ask(&beyond), -EIO);
    assert_int_equal(beyond.tries, 1);
    beyond.offset = LARGE_BYTES;
    assert_int_equal(ask(&beyond), -EIO);
    assert_int_equal(beyond.tries, 1);
}

static void test_empty(_unused_ void **state)
{
    assert_int_equal(put("empty", "", 0, NULL, 0), 0);
    S3Request get = {.method = S3_GET, .key = "empty"};
    assert_int_equal(ask(&get), 0);
    assert_string_equal(get.text, "");
    free(get.text);
    S3Request head = {.method = S3_HEAD, .key = "empty"};
    assert_int_equal(ask(&head), 0);
    assert_true(head.reply.has_length && head.reply.length == 0);
}

static void test_if_absent(_unused_ void **state)
{
    static const S3Pair absent[] = {{"If-None-Match", "*"}};
    int r = put("once", "first", 5, absent, 1);
    if (w.swift) {
        assert_int_equal(r, -EOPNOTSUPP);
        return;
    }
    assert_int_equal(r, 0);
    assert_int_equal(put("once", "second", 6, absent, 1), -EEXIST);
    S3Request get = {.method = S3_GET, .key = "once", .text_max = 10};
    assert_int_equal(ask(&get), 0);
    assert_string_equal(get.text, "first");
    free(get.text);
}

static void test_parts(_unused_ void **state)
{
    S3Request begin = {.method = S3_POST,
                       .key = "parts",
                       .query = (const S3Pair[]){{"uploads", NULL}},
                       .n_query = 1,
                       .text_max = 10000};
    assert_int_equal(ask(&begin), 0);
    _cleanup_free_ char *id = NULL;
    assert_int_equal(reply_upload_id(begin.text, begin.n_text, &id, NULL), 0);
    free(begin.text);

    char etags[2][STORE_VERSION_MAX], number[2][2] = {"1", "2"}, complete[600];
    for (size_t i = 0; i < 2; i++) {
        struct iovec body = {.iov_base = w.large + i * PART_BYTES, .iov_len = PART_BYTES};
        S3Request part = {.method = S3_PUT,
                          .key = "parts",
                          .query = (const S3Pair[]){{"uploadId", id}, {"partNumber", number[i]}},
                          .n_query = 2,
                          .body = &body,
                          .n_body = 1,
                          .repeatable = true};
        assert_int_equal(ask(&part), 0);
        memcpy(etags[i], part.reply.etag, sizeof(etags[i]));
    }
    (void)
        snprintf(complete, sizeof(complete),
                 "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>%s</ETag></Part>"
                 "<Part><PartNumber>2</PartNumber><ETag>%s</ETag></Part></CompleteMultipartUpload>",
                 etags[0], etags[1]);
    struct iovec body = {.iov_base = complete, .iov_len = strlen(complete)};
    S3Request end = {.method = S3_POST,
                     .key = "parts",
                     .query = (const S3Pair[]){{"uploadId", id}},
                     .n_query = 1,
                     .body = &body,
                     .n_body = 1,
                     .text_max = 10000};
    assert_int_equal(ask(&end), 0);
    free(end.text);
    S3Request whole = {.method = S3_GET,
                       .key = "parts",
                       .buffer = w.landing,
                       .n_bytes = 2 * PART_BYTES};
    assert_int_equal(ask(&whole), 0);
    assert_memory_equal(w.landing, w.large, 2 * PART_BYTES);
}

static void test_refusals(_unused_ void **state)
{
    S3Request get = {.method = S3_GET, .key = "not-there", .text_max = 10};
    assert_int_equal(ask(&get), -ENOENT);
    assert_string_equal(get.refusal.code, "NoSuchKey");

    Error err = ERROR_INIT;
    S3Request other = {.method = S3_GET,
                       .bucket = "no-such-bucket-here",
                       .key = "k",
                       .text_max = 10};
    assert_int_equal(s3_do(w.client, &other, &err), -ENOENT);
    assert_non_null(strstr(err.text, "NoSuchBucket"));
}

static void test_wrong_secret(_unused_ void **state)
{
    _cleanup_free_ char *secret = strdup(getenv("AWS_SECRET_ACCESS_KEY"));
    (void)setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret", 1);
    S3Options options = w.options;
    options.connections = 2; /* other options, hence another client with its own identity */
    S3Client *client = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(s3_client_open(&options, &client, &err), 0);
    S3Request get = {.method = S3_GET, .bucket = w.bucket, .key = "k", .text_max = 10};
    assert_int_equal(s3_do(client, &get, &err), -EACCES);
    assert_non_null(strstr(err.text, "SignatureDoesNotMatch"));
    assert_null(strstr(err.text, "wrong-secret"));
    assert_int_equal(get.tries, 2);
    client = s3_client_close(client);
    (void)setenv("AWS_SECRET_ACCESS_KEY", secret, 1);
}

static void test_signed_payload(_unused_ void **state)
{
    S3Options options = w.options;
    options.sign_payload = S3_OFF;
    S3Client *client = NULL;
    assert_int_equal(s3_client_open(&options, &client, NULL), 0);
    struct iovec body[] = {{.iov_base = w.large, .iov_len = 1 << 20},
                           {.iov_base = w.large, .iov_len = 0},
                           {.iov_base = w.large + (1 << 20), .iov_len = 12345}};
    /* `client` does not sign the payload. w.client does: its option is auto, which means on without TLS. */
    for (int i = 0; i < 2; i++) {
        S3Request request = {.method = S3_PUT,
                             .bucket = w.bucket,
                             .key = "signed",
                             .body = body,
                             .n_body = ELEMENTSOF(body),
                             .repeatable = true};
        assert_int_equal(s3_do(i ? w.client : client, &request, NULL), 0);
        S3Request get = {.method = S3_GET,
                         .key = "signed",
                         .buffer = w.landing,
                         .n_bytes = (1 << 20) + 12345};
        assert_int_equal(ask(&get), 0);
        assert_memory_equal(w.landing, w.large, (1 << 20) + 12345);
    }
    client = s3_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),         cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_empty),        cmocka_unit_test(test_if_absent),
        cmocka_unit_test(test_parts),        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_wrong_secret), cmocka_unit_test(test_signed_payload),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
