/* SPDX-License-Identifier: Apache-2.0 */
/* test-address.c - tests the hosts and paths of requests, redirects, and the cache of regions. */
#include "base/test/testing.h"

#include "store/s3/client/address.h"

#include <errno.h>
#include <string.h>

typedef struct Case {
    const char *endpoint;
    S3Addressing addressing;
    const char *region, *bucket, *key;
    const char *host, *path; /* NULL: the address is refused */
} Case;

static const Case cases[] = {
    {"http://h:80", S3_ADDRESS_AUTO, "r", "b", "k", "h", "/b/k"},
    {"https://h:443", S3_ADDRESS_AUTO, "r", "b", "k", "h", "/b/k"},
    {"http://h:443", S3_ADDRESS_AUTO, "r", "b", "k", "h:443", "/b/k"},
    {"https://[::1]:9000", S3_ADDRESS_AUTO, "r", "b", "k", "[::1]:9000", "/b/k"},
    {"http://h:8000", S3_ADDRESS_PATH, "r", "b", "", "h:8000", "/b"},
    {"http://h", S3_ADDRESS_AUTO, "r", "b", "a b+c/\xc3\xa4?#%&=~", "h",
     "/b/a%20b%2Bc/%C3%A4%3F%23%25%26%3D~"},
    {"http://h", S3_ADDRESS_AUTO, "r", "b", "/a//../b/", "h", "/b//a//../b/"},
    {"http://h", S3_ADDRESS_AUTO, "r", "b:c/d", "k", "h", "/b%3Ac%2Fd/k"},
    /* The bucket is in the host name only for AWS's own servers with TLS. */
    {"https://s3.r.amazonaws.com", S3_ADDRESS_AUTO, "r", "b-1", "k", "b-1.s3.r.amazonaws.com",
     "/k"},
    {"https://s3.r.amazonaws.com.cn", S3_ADDRESS_AUTO, "r", "b-1", "", "b-1.s3.r.amazonaws.com.cn",
     "/"},
    {"http://s3.r.amazonaws.com", S3_ADDRESS_AUTO, "r", "b-1", "k", "s3.r.amazonaws.com", "/b-1/k"},
    {"https://s3.r.amazonaws.com", S3_ADDRESS_PATH, "r", "b-1", "k", "s3.r.amazonaws.com",
     "/b-1/k"},
    {"https://amazonaws.com.evil", S3_ADDRESS_AUTO, "r", "b-1", "k", "amazonaws.com.evil",
     "/b-1/k"},
    {"https://s3.r.amazonaws.com", S3_ADDRESS_AUTO, "r", "b.1", "k", "s3.r.amazonaws.com",
     "/b.1/k"},
    {"https://s3.r.amazonaws.com", S3_ADDRESS_AUTO, "r", "b_1", "k", "s3.r.amazonaws.com",
     "/b_1/k"},
    {"https://s3.r.amazonaws.com", S3_ADDRESS_AUTO, "r", "B-1", "k", "s3.r.amazonaws.com",
     "/B-1/k"},
    {"https://s3.r.amazonaws.com", S3_ADDRESS_AUTO, "r", "b1", "k", "s3.r.amazonaws.com", "/b1/k"},
    {"http://h:8000", S3_ADDRESS_VIRTUAL, "r", "b.1", "k", "b.1.h:8000", "/k"},
    {"https://h:8000", S3_ADDRESS_VIRTUAL, "r", "b.1", "k", NULL, NULL},
    {"http://h:8000", S3_ADDRESS_VIRTUAL, "r", "b..1", "k", NULL, NULL},
    {"http://h:8000", S3_ADDRESS_VIRTUAL, "r", "-b1", "k", NULL, NULL},
    {"http://h:8000", S3_ADDRESS_VIRTUAL, "r", "b/../c", "k", NULL, NULL},
    /* AWS's endpoint follows the region of the bucket. */
    {"https://s3.r.amazonaws.com", S3_ADDRESS_AUTO, "r2", "bbb", "k", "bbb.s3.r2.amazonaws.com",
     "/k"},
    {"https://s3.amazonaws.com", S3_ADDRESS_AUTO, "r2", "bbb", "k", "bbb.s3.r2.amazonaws.com",
     "/k"},
    {"https://s3.r.amazonaws.com.cn", S3_ADDRESS_PATH, "r2", "bbb", "k", "s3.r2.amazonaws.com.cn",
     "/bbb/k"},
    {"https://vpce-1.s3.r.vpce.amazonaws.com", S3_ADDRESS_PATH, "r2", "bbb", "k",
     "vpce-1.s3.r.vpce.amazonaws.com", "/bbb/k"},
    {"http://h", S3_ADDRESS_AUTO, "r2", "bbb", "k", "h", "/bbb/k"},
};

static void test_requests(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const Case *c = &cases[i];
        S3Options options = {.endpoint = (char *)c->endpoint, /* is only read */
                             .region = (char *)"r",
                             .addressing = c->addressing};
        S3Address address = {0};
        Error err = ERROR_INIT;
        int r = s3_address_make(&options, c->region, c->bucket, c->key, &address, &err);
        if (!c->host) {
            assert_int_equal(r, -EINVAL);
            assert_non_null(strstr(err.text, c->bucket));
            continue;
        }
        if (r < 0)
            fail_msg("%zu: %s", i, err.text);
        assert_string_equal(address.host, c->host);
        assert_string_equal(address.path, c->path);
        assert_int_equal(address.tls, strncmp(c->endpoint, "https", 5) == 0);
        s3_address_clear(&address);
    }
}

static void test_redirects(_unused_ void **state)
{
    S3Address address;
    assert_int_equal(s3_address_parse("http://h:80/b/k%20?x=1#y", false, &address, NULL), 0);
    assert_string_equal(address.host, "h");
    assert_string_equal(address.path, "/b/k%20");
    s3_address_clear(&address);
    assert_int_equal(s3_address_parse("HTTPS://b.h?x", true, &address, NULL), 0);
    assert_string_equal(address.host, "b.h");
    assert_string_equal(address.path, "/");
    assert_true(address.tls);
    s3_address_clear(&address);

    static const char *const bad[] = {"/b/k",           "",
                                      "http://",        "ftp://h/k",
                                      "http://u:p@h/k", "http://h/a b",
                                      "http://h\r\n/k", "http://h/\xff",
                                      "//h/k"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(s3_address_parse(bad[i], false, &address, NULL), -EINVAL);
    assert_int_equal(s3_address_parse("http://h/k", true, &address, NULL), -EINVAL);

    char long_host[S3_HOST_MAX + 20];
    memset(long_host, 'a', sizeof(long_host));
    memcpy(long_host, "http://", 7);
    long_host[sizeof(long_host) - 1] = '\0';
    assert_int_equal(s3_address_parse(long_host, false, &address, NULL), -EINVAL);
}

static void test_places(_unused_ void **state)
{
    static S3RegionCache regions;
    S3Options options = {.region = (char *)"home"};
    assert_string_equal(s3_region_cache_find(&regions, &options, "b"), "home");
    s3_region_cache_note(&regions, "b", "one");
    s3_region_cache_note(&regions, "c", "two");
    s3_region_cache_note(&regions, "c", ""); /* texts that could form another host are not stored */
    s3_region_cache_note(&regions, "c", "evil.example/");
    s3_region_cache_note(&regions, "c", "a@evil.example");
    s3_region_cache_note(&regions, "c", "a b");
    s3_region_cache_note(&regions, "b", "three");
    assert_string_equal(s3_region_cache_find(&regions, &options, "b"), "three");
    assert_string_equal(s3_region_cache_find(&regions, &options, "c"), "two");

    /* More buckets than fit: the newest are stored. */
    char bucket[16];
    for (int i = 0; i < 3 * S3_PLACES; i++) {
        (void)snprintf(bucket, sizeof(bucket), "b%d", i);
        s3_region_cache_note(&regions, bucket, "far");
        assert_string_equal(s3_region_cache_find(&regions, &options, bucket), "far");
    }
    assert_string_equal(s3_region_cache_find(&regions, &options, "b"), "home");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_redirects),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
