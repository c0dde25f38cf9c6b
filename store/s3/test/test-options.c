/* SPDX-License-Identifier: Apache-2.0 */
/* test-options.c - the environment, AWS's shared files, and the errors in them that are refused. */
#include "base/file.h"
#include "base/test/testing.h"
#include "store/s3/settings/options.h"

#include <string.h>

static char folder[] = "/tmp/test-options-XXXXXX";

static SharedFile *parse(SharedFileKind kind, const char *text)
{
    Error err = ERROR_INIT;
    SharedFile *file = NULL;
    if (shared_file_parse(kind, "config", text, &file, &err) < 0)
        fail_msg("%s", err.text);
    return file;
}

/* ---- shared files ---- */

static void test_config(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf# a comment\r\n"
                               "; another\r\n"
                               "[default]\r\n"
                               "region = eu-central-1\r\n"
                               "Output=json   # of another tool\r\n"
                               "\r\n"
                               "[profile  lab] ; ours\n"
                               "endpoint_url\t=\thttp://10.0.0.1:7480\n"
                               "secret = a#b;c=d\n"
                               "s3 =\n"
                               "  addressing_style = path\n"
                               "    # inside\n"
                               "\tmax_concurrent_requests=20\n"
                               "region = here\n"
                               "[profile 'two words']\n"
                               "region=quoted\n"
                               "[sso-session lab]\n"
                               "region = elsewhere\n"
                               "[lab]\n"
                               "region = not a profile here\n"
                               "[profile lab]\n"
                               "ca_bundle = /etc/ca.pem\n"
                               "REGION = there\n"
                               "words = one\n"
                               "  two\n"
                               "  three # no more\n"
                               "empty =";
    _cleanup_(shared_file_freep) SharedFile *file = parse(SHARED_CONFIG, text);
    static const struct {
        const char *profile, *key, *value;
        int line;
    } cases[] = {
        {"default", "region", "eu-central-1", 4},
        {"default", "output", "json", 5},
        {"lab", "endpoint_url", "http://10.0.0.1:7480", 8},
        {"lab", "secret", "a#b;c=d", 9},
        {"lab", "s3", "", 10},
        {"lab", "s3.addressing_style", "path", 11},
        {"lab", "S3.MAX_CONCURRENT_REQUESTS", "20", 13},
        {"lab", "addressing_style", NULL, 0},
        {"lab", "s3.region", NULL, 0},
        {"lab", "region", "there", 23}, /* the last value, from a section that appears twice */
        {"lab", "ca_bundle", "/etc/ca.pem", 22},
        {"lab", "words", "one\ntwo\nthree", 24},
        {"lab", "empty", "", 27},
        {"two words", "region", "quoted", 16},
        {"LAB", "region", NULL, 0},
        {"sso-session lab", "region", NULL, 0},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const char *value = shared_file_get(file, cases[i].profile, cases[i].key);
        if (cases[i].value)
            assert_string_equal(value, cases[i].value);
        else
            assert_null(value);
        assert_int_equal(shared_file_line(file, cases[i].profile, cases[i].key), cases[i].line);
    }
    assert_true(shared_file_has(file, "default"));
    assert_true(shared_file_has(file, "two words"));
    assert_false(shared_file_has(file, "profile lab"));
    assert_false(shared_file_has(file, "sso-session lab"));
    assert_string_equal(shared_file_name(file), "config");
}

static void test_credentials(void **state)
{
    (void)state;
    /* Some people indent all keys of a section. */
    _cleanup_(shared_file_freep) SharedFile *file =
        parse(SHARED_CREDENTIALS, "[lab]\n"
                                  "    aws_access_key_id = AKIA\n"
                                  "    aws_secret_access_key = a/b+c=\n"
                                  "[profile x]\n"
                                  "aws_access_key_id = B\n"
                                  "[empty]\n");
    assert_string_equal(shared_file_get(file, "lab", "aws_access_key_id"), "AKIA");
    assert_string_equal(shared_file_get(file, "lab", "aws_secret_access_key"), "a/b+c=");
    assert_string_equal(shared_file_get(file, "profile x", "aws_access_key_id"), "B");
    assert_true(shared_file_has(file, "empty"));
    assert_false(shared_file_has(file, "default"));
}

/* If a file has "[profile default]" and "[default]", in any order, only "[profile default]" counts. */
static void test_two_defaults(void **state)
{
    (void)state;
    static const char *const texts[] = {"[default]\na=1\nb=1\n[profile default]\na=2\n",
                                        "[profile default]\na=2\n[default]\na=1\nb=1\n"};
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        _cleanup_(shared_file_freep) SharedFile *file = parse(SHARED_CONFIG, texts[i]);
        assert_string_equal(shared_file_get(file, "default", "a"), "2");
        assert_null(shared_file_get(file, "default", "b"));
    }
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"region = x\n", "config:1: a key in front of the first [section]"},
        {"\n[default\nregion = x\n", "config:2: a section's name ends with ]"},
        {"[default] region = x\n", "config:1: only a comment may stand behind"},
        {"[ ]\n", "config:1: a section without a name"},
        {"[default]\nregion\n", "config:2: expected [section], key = value"},
        {"[default]\n= x\n", "config:2: expected [section], key = value"},
        {"[default]\ns3 =\n  path\n", "config:3: expected [section], key = value"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        SharedFile *file = NULL;
        assert_int_equal(shared_file_parse(SHARED_CONFIG, "config", cases[i].text, &file, &err),
                         -EINVAL);
        assert_null(file);
        if (!strstr(err.text, cases[i].words))
            fail_msg("%s: expected %s", err.text, cases[i].words);
    }
}

/* ---- options ---- */

static const char *const variables[] = {"AWS_PROFILE",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                        "AWS_CA_BUNDLE",
                                        "AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "SDTRAIN_S3_ADDRESSING",
                                        "SDTRAIN_S3_PART_BYTES",
                                        "SDTRAIN_S3_CONNECTIONS",
                                        "SDTRAIN_S3_MEMORY_BYTES",
                                        "SDTRAIN_S3_DEADLINE_SEC",
                                        "SDTRAIN_S3_STALL_SEC",
                                        "SDTRAIN_S3_SIGN_PAYLOAD",
                                        "SDTRAIN_S3_CHECKSUM",
                                        "SDTRAIN_S3_PARTS"};

static int begin(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTSOF(variables); i++)
        unsetenv(variables[i]);
    setenv("HOME", folder, 1);
    Error err = ERROR_INIT;
    char path[64];
    snprintf(path, sizeof(path), "%s/.aws", folder);
    return folder_remove(path, &err) < 0 || folder_make(path, &err) < 0 ? -1 : 0;
}

static const char *write_text(const char *name, const char *text)
{
    static char path[64];
    Error err = ERROR_INIT;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(file_write(path, text, strlen(text), 0, &err), 0);
    return path;
}

static S3Options load(void)
{
    Error err = ERROR_INIT;
    S3Options o;
    if (s3_options_load(&o, &err) < 0)
        fail_msg("%s", err.text);
    return o;
}

static void test_defaults(void **state)
{
    (void)state;
    S3Options o = load();
    assert_string_equal(o.endpoint, "https://s3.us-east-1.amazonaws.com");
    assert_string_equal(o.region, "us-east-1");
    assert_string_equal(o.profile, "default");
    assert_null(o.ca_bundle);
    assert_int_equal(o.addressing, S3_ADDRESS_AUTO);
    assert_int_equal(o.part_bytes, 8 << 20);
    assert_int_equal(o.connections, 32);
    assert_int_equal(o.memory_bytes, 256 << 20);
    assert_int_equal(o.deadline_usec, 300 * USEC_PER_SEC);
    assert_int_equal(o.stall_usec, 20 * USEC_PER_SEC);
    assert_int_equal(o.sign_payload, S3_AUTO);
    assert_int_equal(o.checksum, S3_AUTO);
    s3_options_clear(&o);
    assert_null(o.endpoint);

    setenv("AWS_DEFAULT_REGION", "cn-north-1", 1);
    o = load();
    assert_string_equal(o.endpoint, "https://s3.cn-north-1.amazonaws.com.cn");
    s3_options_clear(&o);
}

static void test_files(void **state)
{
    (void)state;
    write_text(".aws/config", "[default]\nregion = one\n"
                              "[profile lab]\nregion = two\nendpoint_url = https://s3.lab:443/\n"
                              "s3 =\n  addressing_style = virtual\n");
    write_text(".aws/credentials", "[lab]\nregion = three\nca_bundle = /dev/null\n[bare]\n");
    S3Options o = load();
    assert_string_equal(o.region, "one");
    s3_options_clear(&o);

    setenv("AWS_PROFILE", "lab", 1);
    o = load();
    assert_string_equal(o.profile, "lab");
    assert_string_equal(o.region, "two");
    assert_string_equal(o.endpoint, "https://s3.lab");
    assert_string_equal(o.ca_bundle, "/dev/null");
    assert_int_equal(o.addressing, S3_ADDRESS_VIRTUAL);
    s3_options_clear(&o);

    setenv("AWS_PROFILE", "bare", 1);
    o = load();
    assert_string_equal(o.region, "us-east-1");
    s3_options_clear(&o);

    /* A variable names another config file, and then an empty file. */
    unsetenv("AWS_PROFILE");
    write_text("other", "[default]\nregion = four\n");
    setenv("AWS_CONFIG_FILE", "~/other", 1);
    o = load();
    assert_string_equal(o.region, "four");
    s3_options_clear(&o);
    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    o = load();
    assert_string_equal(o.region, "us-east-1");
    s3_options_clear(&o);
}

static void test_environment(void **state)
{
    (void)state;
    write_text(".aws/config", "[default]\nregion = one\nendpoint_url = http://file\n"
                              "s3 =\n  addressing_style = virtual\n");
    static const struct {
        const char *name, *value;
    } set[] = {{"AWS_REGION", "two"},
               {"AWS_DEFAULT_REGION", "three"},
               {"AWS_ENDPOINT_URL", "http://127.0.0.1:7480"},
               {"AWS_ENDPOINT_URL_S3", ""},
               {"SDTRAIN_S3_ADDRESSING", "path"},
               {"SDTRAIN_S3_PART_BYTES", "16M"},
               {"SDTRAIN_S3_CONNECTIONS", "1024"},
               {"SDTRAIN_S3_MEMORY_BYTES", "1G"},
               {"SDTRAIN_S3_DEADLINE_SEC", "5"},
               {"SDTRAIN_S3_STALL_SEC", "1"},
               {"SDTRAIN_S3_SIGN_PAYLOAD", "off"},
               {"SDTRAIN_S3_CHECKSUM", "on"}};
    for (size_t i = 0; i < ELEMENTSOF(set); i++)
        setenv(set[i].name, set[i].value, 1);
    S3Options o = load();
    assert_string_equal(o.region, "two");
    assert_string_equal(o.endpoint, "http://127.0.0.1:7480");
    assert_int_equal(o.addressing, S3_ADDRESS_PATH);
    assert_int_equal(o.part_bytes, 16 << 20);
    assert_int_equal(o.connections, 1024);
    assert_int_equal(o.memory_bytes, 1 << 30);
    assert_int_equal(o.deadline_usec, 5 * USEC_PER_SEC);
    assert_int_equal(o.stall_usec, USEC_PER_SEC);
    assert_int_equal(o.sign_payload, S3_OFF);
    assert_int_equal(o.checksum, S3_ON);
    s3_options_clear(&o);

    setenv("AWS_ENDPOINT_URL_S3", "http://[::1]:80//", 1);
    setenv("SDTRAIN_S3_PART_BYTES", "5242880", 1);
    setenv("SDTRAIN_S3_MEMORY_BYTES", "5120K", 1);
    o = load();
    assert_string_equal(o.endpoint, "http://[::1]");
    assert_int_equal(o.part_bytes, 5 << 20);
    assert_int_equal(o.memory_bytes, 5 << 20);
    s3_options_clear(&o);

    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    o = load();
    assert_string_equal(o.endpoint, "https://s3.two.amazonaws.com");
    s3_options_clear(&o);

    /* There is always memory for one part, even if the default is smaller. */
    unsetenv("SDTRAIN_S3_MEMORY_BYTES");
    setenv("SDTRAIN_S3_PART_BYTES", "1G", 1);
    o = load();
    assert_int_equal(o.memory_bytes, 1 << 30);
    s3_options_clear(&o);
}

static void assert_refused(const char *words)
{
    Error err = ERROR_INIT;
    S3Options o = {.connections = 7};
    if (s3_options_load(&o, &err) != -EINVAL)
        fail_msg("not refused: %s", words);
    assert_int_equal(o.connections, 7);
    if (!strstr(err.text, words))
        fail_msg("%s: expected %s", err.text, words);
}

static void test_bad_variables(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *words;
    } cases[] = {
        {"AWS_PROFILE", "nobody", "AWS_PROFILE: there is no profile \"nobody\" in /tmp/"},
        {"AWS_REGION", "us east", "AWS_REGION: \"us east\" is not the name of a region"},
        {"AWS_DEFAULT_REGION", "a\nb", "AWS_DEFAULT_REGION: "},
        {"AWS_ENDPOINT_URL", "localhost:7480", "AWS_ENDPOINT_URL: \"localhost:7480\" is not http:"},
        {"AWS_ENDPOINT_URL", "ftp://x", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://-x", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://:80", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://x:", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://x:0", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://x:65536", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://x:+80", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://x:80x", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://x/path", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://x?y", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://me:word@x", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://[::1", "is not http://host"},
        {"AWS_ENDPOINT_URL", "http://[]", "is not http://host"},
        {"AWS_CA_BUNDLE", "/nonexistent/ca.pem", "AWS_CA_BUNDLE: cannot read /nonexistent/ca.pem"},
        {"SDTRAIN_S3_ADDRESSING", "host", "SDTRAIN_S3_ADDRESSING: \"host\" is not auto, path or v"},
        {"SDTRAIN_S3_PART_BYTES", "1M", "a number of bytes from 5M to 5G, such as 8M"},
        {"SDTRAIN_S3_PART_BYTES", "6G", "\"6G\" is not a number of bytes"},
        {"SDTRAIN_S3_PART_BYTES", "8m", "\"8m\" is not a number of bytes"},
        {"SDTRAIN_S3_PART_BYTES", "8MB", "\"8MB\" is not a number of bytes"},
        {"SDTRAIN_S3_PART_BYTES", "-8M", "\"-8M\" is not a number of bytes"},
        {"SDTRAIN_S3_PART_BYTES", "99999999999999999999", "is not a number of bytes"},
        {"SDTRAIN_S3_PART_BYTES", "999999999999999999T", "is not a number of bytes"},
        {"SDTRAIN_S3_MEMORY_BYTES", "7M", "\"7M\" is not a number of bytes from 8M to 1T"},
        {"SDTRAIN_S3_CONNECTIONS", "0", "a whole number from 1 to 1024"},
        {"SDTRAIN_S3_CONNECTIONS", "1K", "a whole number from 1 to 1024"},
        {"SDTRAIN_S3_DEADLINE_SEC", "1.5", "a whole number from 1 to 86400"},
        {"SDTRAIN_S3_STALL_SEC", "3601", "a whole number from 1 to 3600"},
        {"SDTRAIN_S3_SIGN_PAYLOAD", "yes", "\"yes\" is not auto, on or off"},
        {"SDTRAIN_S3_CHECKSUM", "ON", "SDTRAIN_S3_CHECKSUM: \"ON\" is not auto, on or off"},
        {"SDTRAIN_S3_PARTS", "8M", "SDTRAIN_S3_PARTS: no such setting"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        begin(NULL);
        setenv(cases[i].name, cases[i].value, 1);
        assert_refused(cases[i].words);
    }
}

static void test_bad_keys(void **state)
{
    (void)state;
    write_text(".aws/config", "[default]\n\nendpoint_url = x\n");
    assert_refused("/.aws/config:3: endpoint_url: \"x\" is not http://host");
    write_text(".aws/config", "[default]\ns3 =\n\taddressing_style = dns\n");
    assert_refused("/.aws/config:3: s3.addressing_style: \"dns\" is not auto, path or virtual");
    write_text(".aws/config", "[default]\n");
    write_text(".aws/credentials", "[default]\naws_secret_access_key = hush\nca_bundle = /none\n");
    assert_refused("/.aws/credentials:3: ca_bundle: cannot read /none");
    write_text(".aws/credentials", "hush\n");
    assert_refused("/.aws/credentials:1: expected [section]");
    Error err = ERROR_INIT;
    S3Options o;
    assert_int_equal(s3_options_load(&o, &err), -EINVAL);
    assert_null(strstr(err.text, "hush"));

    char path[64], nul[] = "[default]\n\0x";
    snprintf(path, sizeof(path), "%s/.aws/credentials", folder);
    assert_int_equal(file_write(path, nul, sizeof(nul), 0, &err), 0);
    assert_refused("a NUL in a text");
    setenv("AWS_CONFIG_FILE", folder, 1);
    assert_refused("is not a regular file");
}

static int end(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    return folder_remove(folder, &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_credentials),
        cmocka_unit_test(test_two_defaults),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test_setup(test_defaults, begin),
        cmocka_unit_test_setup(test_files, begin),
        cmocka_unit_test_setup(test_environment, begin),
        cmocka_unit_test_setup(test_bad_variables, begin),
        cmocka_unit_test_setup(test_bad_keys, begin),
    };
    if (!mkdtemp(folder))
        return 1;
    return cmocka_run_group_tests(tests, NULL, end);
}
