/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-options.c - options of a client: the list of endpoints, certificates and users, and the environment
 * variables for them. No server runs. */
#include "base/test/testing.h"

#include "base/file.h"
#include "etcd/etcd-internal.h"

#include <string.h>

static void assert_text(const Error *err, const char *text)
{
    if (!strstr(err->text, text))
        fail_msg("\"%s\" is not in \"%s\"", text, err->text);
}

/* ---- a client's options ---- */

static int open_client(const EtcdOptions *options, Etcd **ret, Error *err)
{
    sd_event *event = NULL;
    assert_true(sd_event_new(&event) >= 0);
    int r = etcd_new(event, options, ret, err);
    sd_event_unref(event);
    return r;
}

static void what_is_no_endpoint_is_refused(void **state _unused_)
{
    static const struct {
        EtcdOptions options;
        const char *text;
    } cases[] = {
        {{.endpoints = NULL}, "no etcd endpoint"},
        {{.endpoints = ""}, "no etcd endpoint"},
        {{.endpoints = "localhost"}, "\"localhost\": want host:port"},
        {{.endpoints = "a:1,:2379"}, "\":2379\": want host:port"},
        {{.endpoints = "a:1,,b:2"}, "\"\": want host:port"},
        {{.endpoints = "a:1,"}, "\"\": want host:port"},
        {{.endpoints = "a:"}, "\"\" is not a port"},
        {{.endpoints = "a:0"}, "\"0\" is not a port"},
        {{.endpoints = "a:-1"}, "\"-1\" is not a port"},
        {{.endpoints = "a:+1"}, "\"+1\" is not a port"},
        {{.endpoints = "a: 1"}, "\" 1\" is not a port"},
        {{.endpoints = "a:65536"}, "\"65536\" is not a port"},
        {{.endpoints = "a:23x"}, "\"23x\" is not a port"},
        {{.endpoints = "::1:2379"}, "want host:port"},
        {{.endpoints = "a:b:2379"}, "want host:port"},
        {{.endpoints = "a b:2379"}, "want host:port"},
        {{.endpoints = "a/b:2379"}, "want host:port"},
        {{.endpoints = "ftp://a:2379"}, "want host:port"},
        {{.endpoints = "http://:2379"}, "want host:port"},
        {{.endpoints = "https://a:1"}, "wants TLS"},
        {{.endpoints = "a:1,https://b:1"}, "\"https://b:1\" wants TLS"},
        {{.endpoints = "a:1", .ca_file = "/nonexistent.pem"}, "/nonexistent.pem"},
        {{.endpoints = "https://a:1", .ca_file = "/nonexistent.pem"}, "/nonexistent.pem"},
        {{.endpoints = "http://a:1", .ca_file = "/nonexistent.pem"}, "is plain"},
        {{.endpoints = "a:1", .cert_file = "c"}, "a client certificate needs"},
        {{.endpoints = "a:1", .key_file = "k"}, "a client certificate needs"},
        {{.endpoints = "a:1", .cert_file = "c", .key_file = "k"}, "a client certificate needs"},
        {{.endpoints = "a:1", .cert_file = "c", .ca_file = "a"}, "a client certificate needs"},
        {{.endpoints = "a:1", .user = "u"}, "needs a password"},
        {{.endpoints = "a:1", .password = "p"}, "needs a password"},
        {{.endpoints = "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,a:10,a:11,a:12,a:13,a:14,a:15,a:16,"
                       "a:17"},
         "more than 16"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Etcd *etcd = NULL;
        Error err = ERROR_INIT;
        assert_true(open_client(&cases[i].options, &etcd, &err) < 0);
        assert_null(etcd);
        assert_text(&err, cases[i].text);
    }
}

static void expect_addresses(const char *list, size_t n, const char *const *wanted)
{
    Etcd *etcd = NULL;
    Error err = ERROR_INIT;
    if (open_client(&(EtcdOptions){.endpoints = list}, &etcd, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(etcd->n_endpoints, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(etcd->endpoints[i].address, wanted[i]);
    assert_string_equal(etcd->endpoint_list, list); /* the list is kept for error texts */
    assert_true(etcd->current < n);
    etcd = etcd_free(etcd);
}

static void an_endpoint_is_host_and_port(void **state _unused_)
{
    static const char *const plain[] = {"a:1", "b-c_d.e:65535", "[::1]:2379", "[fe80::1%eth0]:80"};
    static const char *const many[] = {"a:1",  "a:2",  "a:3",  "a:4",  "a:5",  "a:6",
                                       "a:7",  "a:8",  "a:9",  "a:10", "a:11", "a:12",
                                       "a:13", "a:14", "a:15", "a:16"};
    expect_addresses("a:1,b-c_d.e:65535,[::1]:2379,[fe80::1%eth0]:80", 4, plain);
    expect_addresses("http://a:1, http://b-c_d.e:65535/ ,  [::1]:2379//,[fe80::1%eth0]:80 ", 4,
                     plain);
    expect_addresses("a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,a:10,a:11,a:12,a:13,a:14,a:15,a:16", 16,
                     many);
}

/* A silent endpoint is left after a third of the deadline, but not before 500 ms. */
static void a_deadline_has_a_default_and_is_shared(void **state _unused_)
{
    static const struct {
        uint64_t asked_usec, timeout_usec, silence_usec;
    } cases[] = {{0, 5 * USEC_PER_SEC, 5 * USEC_PER_SEC / 3},
                 {9 * USEC_PER_SEC, 9 * USEC_PER_SEC, 3 * USEC_PER_SEC},
                 {USEC_PER_SEC, USEC_PER_SEC, 500 * USEC_PER_MSEC}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Etcd *etcd = NULL;
        const EtcdOptions options = {.endpoints = "a:1,b:1", .timeout_usec = cases[i].asked_usec};
        assert_int_equal(open_client(&options, &etcd, NULL), 0);
        assert_int_equal(etcd->timeout_usec, cases[i].timeout_usec);
        assert_int_equal(etcd->silence_usec, cases[i].silence_usec);
        etcd = etcd_free(etcd);
    }
}

/* The client copies user and password. */
static void a_user_and_its_password_are_kept(void **state _unused_)
{
    char list[] = "a:1", user[] = "me", password[] = "sesame";
    Etcd *etcd = NULL;
    const EtcdOptions options = {.endpoints = list, .user = user, .password = password};
    assert_int_equal(open_client(&options, &etcd, NULL), 0);
    list[0] = user[0] = password[0] = 'x';
    assert_string_equal(etcd->endpoint_list, "a:1");
    assert_string_equal(etcd->user, "me");
    assert_string_equal(etcd->password, "sesame");
    assert_null(etcd->token);
    etcd = etcd_free(etcd);
}

/* Clients with the same list of endpoints begin with a random endpoint. */
static void the_first_endpoint_is_drawn(void **state _unused_)
{
    bool seen[3] = {false};
    for (int i = 0; i < 200; i++) {
        Etcd *etcd = NULL;
        assert_int_equal(open_client(&(EtcdOptions){.endpoints = "a:1,b:1,c:1"}, &etcd, NULL), 0);
        seen[etcd->current] = true;
        etcd = etcd_free(etcd);
    }
    assert_true(seen[0] && seen[1] && seen[2]);
}

/* ---- the environment ---- */

static char path[64];

static int set_up(void **state _unused_)
{
    static const char *const names[] = {"",      "_CA",       "_CERT",         "_KEY",
                                        "_USER", "_TLS_NAME", "_PASSWORD_FILE"};
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "SDTRAIN_ETCD%s", names[i]);
        assert_int_equal(unsetenv(name), 0);
    }
    (void)snprintf(path, sizeof(path), "/tmp/sdtrain-test-password-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)fd_close(fd);
    return 0;
}

static int tear_down(void **state _unused_)
{
    (void)unlink(path); /* the test may have removed the file */
    return 0;
}

static void set(const char *name, const char *value)
{
    char whole[64];
    (void)snprintf(whole, sizeof(whole), "SDTRAIN_ETCD%s", name);
    assert_int_equal(setenv(whole, value, 1), 0);
}

static void put_password(const char *bytes, size_t n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void expect_refusal(int wanted, const char *text)
{
    EtcdOptions options = {.endpoints = "untouched"};
    Error err = ERROR_INIT;
    assert_int_equal(etcd_options_from_environment(&options, &err), wanted);
    assert_string_equal(options.endpoints, "untouched");
    assert_text(&err, text);
}

static EtcdOptions read_environment(void)
{
    EtcdOptions ret = {.endpoints = "untouched", .timeout_usec = 1};
    Error err = ERROR_INIT;
    if (etcd_options_from_environment(&ret, &err) < 0)
        fail_msg("%s", err.text);
    return ret;
}

static void nothing_is_set_by_an_empty_environment(void **state _unused_)
{
    EtcdOptions options = read_environment();
    assert_null(options.endpoints);
    assert_null(options.user);
    assert_null(options.password);
    assert_null(options.ca_file);
    assert_int_equal(options.timeout_usec, 0);
    set("", "");
    set("_CERT", "");
    set("_USER", "");
    set("_PASSWORD_FILE", "");
    options = read_environment();
    assert_null(options.endpoints);
    assert_null(options.user);
}

static void each_variable_has_its_option(void **state _unused_)
{
    put_password("sesame", 6);
    set("", "a:1,b:2");
    set("_CA", "ca");
    EtcdOptions options = read_environment(); /* TLS without a client certificate */
    assert_string_equal(options.ca_file, "ca");
    assert_null(options.cert_file);
    set("_CERT", "cert");
    set("_KEY", "key");
    set("_TLS_NAME", "name");
    set("_USER", "me");
    set("_PASSWORD_FILE", path);
    options = read_environment();
    assert_string_equal(options.endpoints, "a:1,b:2");
    assert_string_equal(options.ca_file, "ca");
    assert_string_equal(options.cert_file, "cert");
    assert_string_equal(options.key_file, "key");
    assert_string_equal(options.tls_name, "name");
    assert_string_equal(options.user, "me");
    assert_string_equal(options.password, "sesame");
}

static void halves_are_refused(void **state _unused_)
{
    put_password("sesame", 6);
    set("_CA", "ca");
    set("_KEY", "key");
    expect_refusal(-EINVAL, "SDTRAIN_ETCD_KEY is set but SDTRAIN_ETCD_CERT is not");
    set("_CERT", "cert");
    (void)read_environment();
    set("_KEY", "");
    expect_refusal(-EINVAL, "SDTRAIN_ETCD_CERT is set but SDTRAIN_ETCD_KEY is not");
    set("_KEY", "key");
    set("_CA", "");
    expect_refusal(-EINVAL, "SDTRAIN_ETCD_CERT is set but SDTRAIN_ETCD_CA is not");
    set("_CERT", "");
    set("_KEY", "");
    set("_USER", "me");
    expect_refusal(-EINVAL, "SDTRAIN_ETCD_USER is set but SDTRAIN_ETCD_PASSWORD_FILE is not");
    set("_USER", "");
    set("_PASSWORD_FILE", path);
    expect_refusal(-EINVAL, "SDTRAIN_ETCD_PASSWORD_FILE is set but SDTRAIN_ETCD_USER is not");
}

/* A password is the whole content of its file, without the line ends at its end. */
static void a_password_is_what_its_file_holds(void **state _unused_)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *password; /* NULL: the file is refused */
        const char *text;
    } cases[] = {
        {"sesame \n", 8, "sesame ", NULL},
        {"s\r\n", 3, "s", NULL},
        {"two\nlines\n\n", 11, "two\nlines", NULL},
        {"", 0, NULL, "holds no password"},
        {"\r\n\n", 3, NULL, "holds no password"},
        {"a\0b", 3, NULL, "NUL"},
        {"\0", 1, NULL, "NUL"},
    };
    set("_USER", "me");
    set("_PASSWORD_FILE", path);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        put_password(cases[i].bytes, cases[i].n);
        if (cases[i].password)
            assert_string_equal(read_environment().password, cases[i].password);
        else
            expect_refusal(-EINVAL, cases[i].text);
    }
    char large[4097];
    memset(large, 'p', sizeof(large));
    put_password(large, 4096);
    assert_int_equal(strlen(read_environment().password), 4096);
    put_password("short", 5); /* nothing remains of the longer password */
    assert_string_equal(read_environment().password, "short");
    put_password(large, 4097);
    EtcdOptions options = {0};
    Error err = ERROR_INIT;
    assert_true(etcd_options_from_environment(&options, &err) < 0);
    assert_text(&err, "SDTRAIN_ETCD_PASSWORD_FILE");
    assert_int_equal(unlink(path), 0);
    expect_refusal(-ENOENT, path);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_endpoint_is_refused),
        cmocka_unit_test(an_endpoint_is_host_and_port),
        cmocka_unit_test(a_deadline_has_a_default_and_is_shared),
        cmocka_unit_test(a_user_and_its_password_are_kept),
        cmocka_unit_test(the_first_endpoint_is_drawn),
        CASE(nothing_is_set_by_an_empty_environment),
        CASE(each_variable_has_its_option),
        CASE(halves_are_refused),
        CASE(a_password_is_what_its_file_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
