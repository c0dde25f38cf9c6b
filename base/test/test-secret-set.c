/* SPDX-License-Identifier: Apache-2.0 */
/* test-secret-set.c - a secret is removed from a text in every form in which a server may quote it. */
#include "base/test/testing.h"
#include "base/text/secret-set.h"

#include <stdio.h>
#include <string.h>

static SecretSet set;

static int clear(void **state)
{
    (void)state;
    secret_set_clear(&set);
    return 0;
}

static void assert_becomes(const char *text, const char *wanted)
{
    char copy[600];
    (void)snprintf(copy, sizeof(copy), "%s", text);
    secret_set_take_out(&set, copy);
    assert_string_equal(copy, wanted);
}

static void test_plain_and_escaped(void **state)
{
    (void)state;
    secret_set_add(&set, "T0/B+c=d\"e&f");
    static const char *const forms[] = {
        "T0/B+c=d\"e&f",
        "T0%2FB%2Bc%3Dd%22e%26f",
        "%54%30%2f%42%2b%63%3d%64%22%65%26%66",
        "T0\\/B+c=d\\\"e\\u0026f",
        "T0&#x2F;B&#43;c&#61;d&quot;e&amp;f",
    };
    for (size_t i = 0; i < ELEMENTSOF(forms); i++) {
        char text[200];
        (void)snprintf(text, sizeof(text), "no hook %s here, or %s", forms[i], forms[i]);
        assert_becomes(text, "no hook *** here, or ***");
    }
    assert_becomes("T0/B+c is another, T0/B+c=d\"e is none",
                   "T0/B+c is another, T0/B+c=d\"e is none");
    assert_becomes("", "");
    /* texts that nobody may write to, as the default of a protobuf's field */
    secret_set_take_out(&set, (char *)"");
    secret_set_take_out(&set, (char *)"no hook here");
    secret_set_add(&set, "50%25of");
    assert_becomes("a 50%25of, 50%of, 50%2525of", "a ***, ***, ***");
}

static void base64(const char *text, char ret[200])
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(text), to = 0;
    for (size_t i = 0; i < n; i += 3) {
        unsigned three = (unsigned)(unsigned char)text[i] << 16;
        three |= i + 1 < n ? (unsigned)(unsigned char)text[i + 1] << 8 : 0;
        three |= i + 2 < n ? (unsigned char)text[i + 2] : 0;
        for (size_t k = 0; k < 4; k++)
            ret[to++] = i + k > n ? '=' : alphabet[three >> (18 - 6 * k) & 63];
    }
    ret[to] = '\0';
}

/* A secret is found in base64 with any number of bytes before and after it in the encoded text. */
static void test_base64(void **state)
{
    (void)state;
    static const char *const secrets[] = {"pass", "hunter2", "\xc3\xbf\xc3\xbe~?>",
                                          "a-long_token.of.40.characters+more/in=it"};
    for (size_t k = 0; k < ELEMENTSOF(secrets); k++) {
        secret_set_clear(&set);
        secret_set_add(&set, secrets[k]);
        for (int before = 0; before < 7; before++)
            for (int behind = 0; behind < 4; behind++) {
                char whole[100], encoded[200], text[300];
                (void)snprintf(whole, sizeof(whole), "%.*s%s%.*s", before, "robot-1:", secrets[k],
                               behind, "\n{;");
                base64(whole, encoded);
                (void)snprintf(text, sizeof(text), "Basic %s, refused", encoded);
                assert_becomes(text, "Basic ***, refused");
                for (char *p = encoded; *p; p++)
                    *p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
                encoded[strcspn(encoded, "=")] = '\0';
                (void)snprintf(text, sizeof(text), "Basic %s refused", encoded);
                assert_becomes(text, "Basic *** refused");
            }
    }
    secret_set_clear(&set);
    secret_set_add(&set, "\xc3\xbf\xc3\xbf\xc3\xbf\xc3\xbe"); /* in base64: "w7/Dv8O/w74=" */
    assert_becomes("x=w7%2FDv8O%2fw74%3D.", "x=***.");
}

static void test_cut(void **state)
{
    (void)state;
    secret_set_add(&set, "s3cr3t-word");
    assert_becomes("you said s3cr3t-w", "you said ***");
    assert_becomes("you said s3cr", "you said ***");
    assert_becomes("you said s3c", "you said s3c");
    assert_becomes("you said s3cr3t w", "you said s3cr3t w");
    assert_becomes("you said czNjcjN0L", "you said ***");  /* base64 of "s3cr3t-word", cut */
    assert_becomes("you said cjpzM2NyM3", "you said ***"); /* base64 of "r:s3cr3t-word", cut */
}

static void test_short_and_many(void **state)
{
    (void)state;
    secret_set_add(&set, "abc");
    secret_set_add(&set, NULL);
    secret_set_add(&set, "");
    assert_int_equal(set.n, 0);
    assert_becomes("abc", "abc");
    for (int i = 0; i < SECRETS_MAX + 1; i++) {
        char text[20];
        (void)snprintf(text, sizeof(text), "secret-%02d.", i);
        secret_set_add(&set, text);
        secret_set_add(&set, text);
    }
    assert_int_equal(set.n, SECRETS_MAX);
    assert_becomes("secret-00. secret-01. secret-32.secret-31.", "secret-00. *** ***");
}

static void test_urls(void **state)
{
    (void)state;
    secret_set_add_url(&set, "https://hooks.example/services/T00/XXXXXXXXYYYY?key=0123456789&v=2");
    assert_becomes("POST /services/T00/XXXXXXXXYYYY?key=0123456789&v=2 HTTP/1.1 to hooks.example",
                   "POST /*** HTTP/1.1 to hooks.example");
    assert_becomes("no XXXXXXXXYYYY, 0123456789 in v=2", "no ***, *** in v=2");
    secret_set_clear(&set);
    secret_set_add_url(&set, "https://hooks.example");
    secret_set_add_url(&set, "https://hooks.example/");
    assert_int_equal(set.n, 0);
    secret_set_add_url(&set, "https://robot:pa%2Fss@hooks.example/@me@home");
    assert_becomes("robot:pa%2Fss@hooks.example robot:pa/ss pa/ss", "***@hooks.example *** ***");
    assert_becomes("cm9ib3Q6cGEvc3M=", "***");
    secret_set_clear(&set);
    secret_set_add_url_user(&set, "http://robot:pa/s#s@proxy.example:3128/");
    assert_becomes("robot:pa/s#s@proxy.example", "***@proxy.example");
    secret_set_clear(&set);
    secret_set_add_url_user(&set, "robot:secret@proxy.example:3128");
    secret_set_add_url_user(&set, "proxy.example:3128/secret");
    assert_becomes("robot:secret@proxy.example", "***@proxy.example");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_plain_and_escaped, clear),
        cmocka_unit_test_teardown(test_base64, clear),
        cmocka_unit_test_teardown(test_cut, clear),
        cmocka_unit_test_teardown(test_short_and_many, clear),
        cmocka_unit_test_teardown(test_urls, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
