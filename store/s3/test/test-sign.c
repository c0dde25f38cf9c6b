/* SPDX-License-Identifier: Apache-2.0 */
/* test-sign.c - test vectors that AWS has published, and object keys as people choose them. */
#include "base/test/testing.h"
#include "store/s3/protocol/sign.h"

#include <string.h>

/* 2013-05-24T00:00:00Z and 2015-08-30T12:36:00Z */
enum { DOCS_TIME = 1369353600, SUITE_TIME = 1440938160 };

static const S3Credentials docs = {.access_key = "AKIAIOSFODNN7EXAMPLE",
                                   .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
static const S3Credentials suite = {.access_key = "AKIDEXAMPLE",
                                    .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};

typedef struct Vector {
    const char *name, *method, *path;
    S3Pair query[2], headers[4];
    const char *body;
    const char *names, *signature;
} Vector;

static size_t count_pairs(const S3Pair *pairs, size_t most)
{
    size_t n = 0;
    while (n < most && pairs[n].name)
        n++;
    return n;
}

static void assert_signed(const Vector *v, const char *host, const S3Credentials *credentials,
                          const char *service, int64_t time, SignCache *cache)
{
    Error err = ERROR_INIT;
    char hash[SIGN_HASH_BYTES];
    struct iovec body = {(void *)(uintptr_t)(v->body ? v->body : ""),
                         v->body ? strlen(v->body) : 0};
    assert_int_equal(sign_payload_hash(&body, 1, hash), 0);
    SignRequest request = {.method = v->method,
                           .host = host,
                           .path = v->path,
                           .query = v->query,
                           .n_query = count_pairs(v->query, ELEMENTSOF(v->query)),
                           .headers = v->headers,
                           .n_headers = count_pairs(v->headers, ELEMENTSOF(v->headers)),
                           .payload_hash = hash};
    SignedRequest got = {0};
    assert_int_equal(sign_request(&request, credentials, "us-east-1", service, time, cache, &got,
                                  &err),
                     0);
    char expected[1024];
    snprintf(expected, sizeof(expected),
             "AWS4-HMAC-SHA256 Credential=%s/%.8s/us-east-1/%s/aws4_request, SignedHeaders=%s, "
             "Signature=%s",
             credentials->access_key, got.date, service, v->names, v->signature);
    if (strcmp(got.authorization, expected) != 0)
        print_message("%s\n", v->name);
    assert_string_equal(got.authorization, expected);
    free(got.authorization);
}

/* The examples in the Amazon S3 API Reference, "Signature calculations for the Authorization header". */
static void test_documentation(void **state)
{
    (void)state;
    static const Vector vectors[] = {
        {.name = "ranged get",
         .method = "GET",
         .path = "/test.txt",
         .headers = {{"Range", "bytes=0-9"}},
         .names = "host;range;x-amz-content-sha256;x-amz-date",
         .signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
        {.name = "put",
         .method = "PUT",
         .path = "/test%24file.text",
         .headers = {{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                     {"Date", "Fri, 24 May 2013 00:00:00 GMT"}},
         .body = "Welcome to Amazon S3.",
         .names = "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
         .signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
        {.name = "lifecycle",
         .method = "GET",
         .path = "/",
         .query = {{"lifecycle", NULL}},
         .names = "host;x-amz-content-sha256;x-amz-date",
         .signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
        {.name = "list",
         .method = "GET",
         .path = "/",
         .query = {{"prefix", "J"}, {"max-keys", "2"}},
         .names = "host;x-amz-content-sha256;x-amz-date",
         .signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    };
    SignCache cache = {0};
    for (size_t i = 0; i < ELEMENTSOF(vectors); i++)
        assert_signed(&vectors[i], "examplebucket.s3.amazonaws.com", &docs, "s3", DOCS_TIME,
                      &cache);
}

/* AWS's Signature Version 4 test suite, except vectors that need path normalization or a header over several lines. */
static void test_suite(void **state)
{
    (void)state;
#define UNRESERVED "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    static const Vector vectors[] = {
        {.name = "get-vanilla",
         .signature = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
        {.name = "get-header-key-duplicate",
         .headers = {{"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}},
         .names = "host;my-header1;x-amz-date",
         .signature = "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
        {.name = "get-header-value-order",
         .headers = {{"My-Header1", "value4"},
                     {"My-Header1", "value1"},
                     {"My-Header1", "value3"},
                     {"My-Header1", "value2"}},
         .names = "host;my-header1;x-amz-date",
         .signature = "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
        {.name = "get-header-value-trim",
         .headers = {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
         .names = "host;my-header1;my-header2;x-amz-date",
         .signature = "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
        {.name = "get-slashes-unnormalized",
         .path = "//example//",
         .signature = "87cca117541a147f6df867677d98a7d80dff226d2bfca9e4ffa899665623c7e5"},
        {.name = "get-unreserved",
         .path = "/" UNRESERVED,
         .signature = "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
        {.name = "get-utf8",
         .path = "/%E1%88%B4",
         .signature = "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
        {.name = "get-vanilla-empty-query-key",
         .query = {{"Param1", "value1"}},
         .signature = "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
        {.name = "get-vanilla-query-order-key-case",
         .query = {{"Param2", "value2"}, {"Param1", "value1"}},
         .signature = "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
        {.name = "get-vanilla-query-unreserved",
         .query = {{UNRESERVED, UNRESERVED}},
         .signature = "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
        {.name = "get-vanilla-utf8-query",
         .query = {{"\xe1\x88\xb4", "bar"}},
         .signature = "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
        {.name = "post-vanilla",
         .method = "POST",
         .signature = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
        {.name = "post-header-key-sort",
         .method = "POST",
         .headers = {{"My-Header1", "value1"}},
         .names = "host;my-header1;x-amz-date",
         .signature = "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
        {.name = "post-x-www-form-urlencoded",
         .method = "POST",
         .headers = {{"Content-Type", "application/x-www-form-urlencoded"},
                     {"Content-Length", "13"},
                     {"x-amz-content-sha256",
                      "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e"}},
         .body = "Param1=value1",
         .names = "content-length;content-type;host;x-amz-content-sha256;x-amz-date",
         .signature = "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b"},
    };
    SignCache cache = {0};
    for (size_t i = 0; i < ELEMENTSOF(vectors); i++) {
        Vector v = vectors[i];
        v.method = v.method ? v.method : "GET";
        v.path = v.path ? v.path : "/";
        v.names = v.names ? v.names : "host;x-amz-date";
        assert_signed(&v, "example.amazonaws.com", &suite, "service", SUITE_TIME, &cache);
    }

    /* The vector get-vanilla-with-session-token. */
    S3Credentials session = suite;
    snprintf(session.token, sizeof(session.token),
             "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267");
    const Vector v = {.method = "GET",
                      .path = "/",
                      .names = "host;x-amz-date;x-amz-security-token",
                      .signature =
                          "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"};
    assert_signed(&v, "example.amazonaws.com", &session, "service", SUITE_TIME, &cache);
}

/* The vector get-vanilla-query-order-encoded has three pairs, one more than fits into a Vector. */
static void test_query(void **state)
{
    (void)state;
    static const struct {
        S3Pair query[4];
        const char *expected;
    } cases[] = {
        {{{NULL}}, ""},
        {{{"uploads", NULL}}, "uploads="},
        {{{"uploads", ""}}, "uploads="},
        {{{"Param-3", "Value3"}, {"Param", "Value2"}, {"\xe1\x88\xb4", "Value1"}},
         "%E1%88%B4=Value1&Param=Value2&Param-3=Value3"},
        {{{"uploadId", "a/b+c="}, {"partNumber", "10"}}, "partNumber=10&uploadId=a%2Fb%2Bc%3D"},
        {{{"prefix", "a b/"}, {"list-type", "2"}, {"encoding-type", "url"}, {"delimiter", "/"}},
         "delimiter=%2F&encoding-type=url&list-type=2&prefix=a%20b%2F"},
        {{{"a", "2"}, {"a", "10"}, {"A", "z"}, {"a", NULL}}, "A=z&a=&a=10&a=2"},
        {{{"x&y", "1=2"}, {"\n", "\x7f"}}, "%0A=%7F&x%26y=1%3D2"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *text =
            sign_query(cases[i].query, count_pairs(cases[i].query, ELEMENTSOF(cases[i].query)));
        assert_string_equal(text, cases[i].expected);
    }

    Error err = ERROR_INIT;
    SignCache cache = {0};
    SignedRequest got;
    const SignRequest request = {.method = "GET",
                                 .host = "example.amazonaws.com",
                                 .path = "/",
                                 .query = cases[3].query,
                                 .n_query = 3,
                                 .payload_hash = SIGN_EMPTY_HASH};
    assert_int_equal(sign_request(&request, &suite, "us-east-1", "service", SUITE_TIME, &cache,
                                  &got, &err),
                     0);
    assert_string_equal(got.date, "20150830T123600Z");
    assert_non_null(
        strstr(got.authorization,
               "Signature=371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"));
    free(got.authorization);
}

static void test_encode(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool keep_slash;
        const char *expected;
    } cases[] = {
        {"", true, ""},
        {UNRESERVED, false, UNRESERVED},
        {"a b", true, "a%20b"},
        {"a+b", true, "a%2Bb"},
        {"a//b/", true, "a//b/"},
        {"a//b/", false, "a%2F%2Fb%2F"},
        {"100%", true, "100%25"},
        {"%41", true, "%2541"},
        {"~x", true, "~x"},
        {"../.", true, "../."},
        {"gr\xc3\xbc\xc3\x9f/\xe6\x97\xa5", true, "gr%C3%BC%C3%9F/%E6%97%A5"},
        {"\x01\x7f\xff", true, "%01%7F%FF"},
        {"!\"#$&'()*,:;<=>?@[\\]^`{|}", true,
         "%21%22%23%24%26%27%28%29%2A%2C%3A%3B%3C%3D%3E%3F%40%5B%5C%5D%5E%60%7B%7C%7D"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *text = sign_encode(cases[i].text, cases[i].keep_slash);
        assert_string_equal(text, cases[i].expected);
    }
}

static void test_payload(void **state)
{
    (void)state;
    char hash[SIGN_HASH_BYTES];
    assert_int_equal(sign_payload_hash(NULL, 0, hash), 0);
    assert_string_equal(hash, SIGN_EMPTY_HASH);
    char text[] = "Welcome to Amazon S3.";
    const struct iovec parts[] = {{text, 8}, {text + 8, 0}, {text + 8, sizeof(text) - 9}};
    assert_int_equal(sign_payload_hash(parts, ELEMENTSOF(parts), hash), 0);
    assert_string_equal(hash, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
}

/* A cached key must not be used for another day, region, service or secret. */
static void test_cache(void **state)
{
    (void)state;
    S3Credentials other = docs;
    other.secret_key[0] = 'x';
    static const struct {
        const char *region, *service;
        int64_t time;
        bool other;
    } calls[] = {
        {"us-east-1", "s3", DOCS_TIME, false},
        {"us-east-1", "s3", DOCS_TIME + 86399, false},
        {"us-east-1", "s3", DOCS_TIME + 86400, false},
        {"us-east-1s3", "", DOCS_TIME, false},
        {"us-east-2", "s3", DOCS_TIME, false},
        {"us-east-1", "sts", DOCS_TIME, false},
        {"us-east-1", "s3", DOCS_TIME, true},
        {"us-east-1", "s3", DOCS_TIME, false},
    };
    const SignRequest request = {.method = "GET",
                                 .host = "h:7480",
                                 .path = "/",
                                 .payload_hash = SIGN_UNSIGNED};
    SignCache kept = {0};
    for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
        Error err = ERROR_INIT;
        SignCache fresh = {0};
        SignedRequest a, b;
        const S3Credentials *who = calls[i].other ? &other : &docs;
        assert_int_equal(sign_request(&request, who, calls[i].region, calls[i].service,
                                      calls[i].time, &kept, &a, &err),
                         0);
        assert_int_equal(sign_request(&request, who, calls[i].region, calls[i].service,
                                      calls[i].time, &fresh, &b, &err),
                         0);
        assert_string_equal(a.authorization, b.authorization);
        free(a.authorization);
        free(b.authorization);
    }
}

/* A reply's region and a file's token are sent in headers: control characters in them must be refused. */
static void test_refused(void **state)
{
    (void)state;
    S3Credentials bad_id = docs, bad_token = docs;
    snprintf(bad_id.access_key, sizeof(bad_id.access_key), "AKIA\r\nx: y");
    snprintf(bad_token.token, sizeof(bad_token.token), "abc\n");
    static const S3Pair value = {"Range", "bytes=0-9\r\nx: y"}, name = {"a b", "c"},
                        empty = {"", "c"};
    const struct {
        const S3Credentials *credentials;
        const S3Pair *header;
        const char *region;
        int64_t time;
        const char *words;
    } cases[] = {
        {&bad_id, NULL, "us-east-1", DOCS_TIME, "key's id or the region"},
        {&docs, NULL, "us-\teast", DOCS_TIME, "key's id or the region"},
        {&bad_token, NULL, "us-east-1", DOCS_TIME, "header x-amz-security-token"},
        {&docs, &value, "us-east-1", DOCS_TIME, "header Range"},
        {&docs, &name, "us-east-1", DOCS_TIME, "header ?"},
        {&docs, &empty, "us-east-1", DOCS_TIME, "header ?"},
        {&docs, NULL, "us-east-1", -1, "-1"},
        {&docs, NULL, "us-east-1", INT64_C(253402300800), "253402300800"},
        {&docs, NULL, "us-east-1", INT64_MAX, "9223372036854775807"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        SignCache cache = {0};
        SignedRequest got;
        SignRequest request = {.method = "GET",
                               .host = "h",
                               .path = "/",
                               .headers = cases[i].header,
                               .n_headers = cases[i].header != NULL,
                               .payload_hash = SIGN_UNSIGNED};
        assert_int_equal(sign_request(&request, cases[i].credentials, cases[i].region, "s3",
                                      cases[i].time, &cache, &got, &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, cases[i].words));
        assert_null(strstr(err.text, "wJalr"));
        assert_null(strstr(err.text, "abc"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documentation), cmocka_unit_test(test_suite),
        cmocka_unit_test(test_query),         cmocka_unit_test(test_encode),
        cmocka_unit_test(test_payload),       cmocka_unit_test(test_cache),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
