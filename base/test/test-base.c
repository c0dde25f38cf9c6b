/* SPDX-License-Identifier: Apache-2.0 */
/* test-base.c - tests of the base modules: errors, JSON reading, hashes, Philox, exact functions,
 * files, fault points. */

#include "base/fault.h"
#include "base/file-kind.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "base/number/exactmath.h"
#include "base/number/hash.h"
#include "base/number/philox.h"
#include "base/proxy.h"
#include "base/test/testing.h"
#include "base/text/printable.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void texts_from_outside_are_printable(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    char text[] = "a\033[2Jb\tc\nd\rf\x07\xc2\x9bg\xc3\xa4\x7f";
    printable_make(text);
    assert_string_equal(text, "a?[2Jb\tc d f???g\xc3\xa4?");
    (void)error_set(&err, -EINVAL, "key %s", "n1\n! all is well\033[0m");
    assert_string_equal(err.text, "key n1 ! all is well?[0m");
}

static void files_of_other_kinds_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *begins;
        size_t n;
        const char *words;
    } cases[] = {
        {"\x1f\x8b\x08\0", 4, "; it is gzip"},
        {"version https://git-lfs.github.com/spec/v1", 42,
         "; it is a pointer of Git LFS, whose file was not fetched (git lfs pull)"},
        {"\x80\x04\x95\x0b", 4, "; it is a pickle"},
        {"\x80\x06\x95\x0b", 4, ""},
        {"\x93NUMPY\x01", 7, "; it is a NumPy array"},
        {"\x89HDF\r\n\x1a\n", 8, "; it is HDF5"},
        {"GGUF\3\0", 6, "; it is GGUF"},
        {"\n <HTML>", 8, "; it is an HTML page"},
        {"\xef\xbb\xbf{", 4, "; it is a JSON text"},
        {"version https://git-", 20, ""}, /* shorter than the magic text of Git LFS */
        {"", 0, ""},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char words[128];
        assert_string_equal(file_kind_words(cases[i].begins, cases[i].n, words, sizeof(words)),
                            cases[i].words);
    }
    json_t *json = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(json_parse("a.json", "<html>", 6, &json, &err), -EINVAL);
    assert_non_null(strstr(err.text, "; it is an HTML page"));
    assert_int_equal(json_parse("a.json", "{\"a\": <html>}", 14, &json, &err), -EINVAL);
    /* The text is JSON with a mistake, so no other format is named. */
    assert_null(strstr(err.text, "it is"));
}

static void half_a_character_at_the_end_goes(void **state)
{
    (void)state;
    static const char *const all[][2] = {{"", ""},
                                         {"a", "a"},
                                         {"a\xc3\xa4", "a\xc3\xa4"},
                                         {"a\xc3", "a"},
                                         {"a\xe2\x82\xac", "a\xe2\x82\xac"},
                                         {"a\xe2\x82", "a"},
                                         {"a\xe2", "a"},
                                         {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
                                         {"\xf0\x9f\x98", ""},
                                         {"a\xff", "a\xff"}, /* 0xff begins no character */
                                         {"\x9f\x98", "\x9f\x98"}};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        char text[8];
        (void)snprintf(text, sizeof(text), "%s", all[i][0]);
        printable_end(text);
        assert_string_equal(text, all[i][1]);
    }
}

static void wrong_bytes_leave_the_rest_readable(void **state)
{
    (void)state;
    static const char *const all[][2] = {{"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
                                         {"\xc3\xa9 a\xff z\xc3", "\xc3\xa9 a? z"},
                                         {"\xc3\xa9\xa9z", "\xc3\xa9?z"},
                                         {"\xc0\x80z", "??z"}, /* an overlong encoding */
                                         {"\xe0\x80\x80z", "???z"},
                                         {"\xed\xa0\x80z", "???z"},      /* a surrogate */
                                         {"\xf4\x90\x80\x80z", "????z"}, /* above U+10FFFF */
                                         {"\xf8\x88\x80\x80\x80z", "?????z"},
                                         {"\xf0\x9f\x98\x80z", "\xf0\x9f\x98\x80z"},
                                         {"\xe2\x82z", "??z"}};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%s", all[i][0]);
        printable_repair(text);
        assert_string_equal(text, all[i][1]);
        _cleanup_json_ json_t *valid = json_string(text);
        assert_non_null(valid);
    }
}

#define E20 "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"

/* Shortening keeps the end of a text, which describes the failure, and the end of each path, which names the file. */
static void long_paths_lose_their_middle(void **state)
{
    (void)state;
    char text[1024], kept[256];
    static const char wrong[] = "shard file:///" E20 E20 E20 E20 "/" E20 E20 E20 E20
                                "/shard.00000.mds is truncated: 191366 bytes, index.json says 7";
    for (size_t n = 110; n < sizeof(wrong); n++) {
        (void)snprintf(text, sizeof(text), "%s", wrong);
        printable_shorten_paths(text, n, "");
        assert_true(strlen(text) <= n);
        assert_true(n - strlen(text) < 4 || strlen(wrong) <= n);
        assert_int_equal(strncmp(text, "shard file:///", 14), 0);
        assert_non_null(
            strstr(text, "/shard.00000.mds is truncated: 191366 bytes, index.json says 7"));
        _cleanup_json_ json_t *valid = json_string(text);
        assert_non_null(valid);
    }
    (void)snprintf(text, sizeof(text), "/%0100d to s3://b/%0200d: %s", 1, 2, "no room");
    printable_shorten_paths(text, 250, ""); /* the longest path is shortened first */
    assert_non_null(strstr(text, "/0000000000000000000000000000"));
    assert_non_null(strstr(text, "1 to s3://b/"));
    assert_non_null(strstr(text, "2: no room"));
    assert_int_equal(strlen(text), 250);
    printable_shorten_paths(text, 120, "");
    assert_true(strlen(text) <= 120);
    printable_shorten_paths(text, 10, ""); /* no path can be shortened further */
    assert_non_null(strstr(text, "2: no room"));
    (void)snprintf(text, sizeof(text), "%0300d", 1);
    printable_shorten_paths(text, 100, ""); /* the text has no path */
    assert_int_equal(strlen(text), 300);

    /* the text in `kept`, which a decision depends on, stays whole */
    (void)snprintf(text, sizeof(text), "/a/%0200d and file:///b/%0200d/m: no room", 1, 2);
    (void)snprintf(kept, sizeof(kept), "file:///b/%0200d", 2);
    printable_shorten_paths(text, 100, kept);
    assert_non_null(strstr(text, kept));
    assert_true(strlen(text) < 300);

    Error err = ERROR_INIT;
    (void)error_set(&err, -EIO, "%0490d" E20, 1); /* the cut falls between two characters */
    assert_int_equal(strlen(err.text), 490);
}

/* The proxy is chosen by libcurl's rules for the variables of the environment. */
static void the_environments_proxy_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *url, *name, *value, *no_proxy, *text;
    } all[] = {
        {"http://a.example/x", "http_proxy", "http://127.0.0.1:9", NULL,
         ", through the proxy http://127.0.0.1:9 of http_proxy"},
        {"http://a.example/x", "http_proxy", "127.0.0.1:9", NULL,
         ", through the proxy 127.0.0.1:9 of http_proxy"},
        {"http://a.example/x", "http_proxy", "http://me:secret@p:9/x", NULL,
         ", through the proxy http://p:9 of http_proxy"},
        {"http://a.example/x", "HTTP_PROXY", "http://p:9", NULL, ""},
        {"http://a.example/x", "https_proxy", "http://p:9", NULL, ""},
        {"http://a.example/x", "all_proxy", "socks5h://p", NULL,
         ", through the proxy socks5h://p of all_proxy"},
        {"https://a.example/x", "HTTPS_PROXY", "http://p:9", NULL,
         ", through the proxy http://p:9 of HTTPS_PROXY"},
        {"https://a.example/x", "ALL_PROXY", "http://p:9", NULL,
         ", through the proxy http://p:9 of ALL_PROXY"},
        {"https://a.example/x", "http_proxy", "http://p:9", NULL, ""},
        {"http://a.example/x", "http_proxy", "", NULL, ""},
        {"http://a.example/x", "http_proxy", "http://p:9", "*", ""},
        {"http://a.example:80/x", "http_proxy", "http://p:9", "b.example, a.example", ""},
        {"http://a.example/x", "http_proxy", "http://p:9", ".EXAMPLE", ""},
        {"http://a.example/x", "http_proxy", "http://p:9", "ample,xa.example,",
         ", through the proxy http://p:9 of http_proxy"},
        {"http://u@127.0.0.1:8/x", "http_proxy", "http://p:9", "127.0.0.1", ""},
        {"http://[::1]:8/x", "http_proxy", "http://p:9", "[::1]", ""},
        {"http://10.1.2.3/x", "http_proxy", "http://p:9", "10.0.0.0/8", ""},
        {"", "http_proxy", "http://p:9", NULL, ", through the proxy http://p:9 of http_proxy"},
    };
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY",  "no_proxy",    "NO_PROXY",    "HTTP_PROXY"};
    char text[PROXY_TEXT_BYTES];
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        for (size_t k = 0; k < ELEMENTSOF(names); k++)
            (void)unsetenv(names[k]);
        (void)setenv(all[i].name, all[i].value, 1);
        if (all[i].no_proxy)
            (void)setenv(i % 2 ? "no_proxy" : "NO_PROXY", all[i].no_proxy, 1);
        assert_string_equal(proxy_named(all[i].url, text), all[i].text);
    }
    for (size_t k = 0; k < ELEMENTSOF(names); k++)
        (void)unsetenv(names[k]);
    (void)setenv(
        "http_proxy",
        "http://"
        "1234567890123456789012345678901234567890123456789012345678901234567890123456789012345"
        "678901234567890123456789012345678901234567890",
        1);
    assert_true(strlen(proxy_named("http://a", text)) < sizeof(text) - 1);
    assert_non_null(strstr(text, " of http_proxy"));
    (void)unsetenv("http_proxy");
}

/* A job may name any file as its config, so an error must not quote the file's content in the log. */
static void json_errors_quote_nothing(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    json_t *root = NULL;
    static const char *const texts[] = {"root:$6$secret:19000", "{\"a\": secret}", "[secret"};
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        assert_int_equal(json_parse("x", texts[i], strlen(texts[i]), &root, &err), -EINVAL);
        assert_null(strstr(err.text, "secret"));
        assert_null(strstr(err.text, "root"));
        assert_non_null(strstr(err.text, "x: line 1, column "));
    }
}

static int read_sample(const char *text, int64_t *steps, double *lr, Error *err)
{
    _cleanup_json_ json_t *root = NULL;
    int r = json_parse("job.json", text, strlen(text), &root, err);
    if (r < 0)
        return r;
    JsonReader j = json_open("job.json", root, JSON_KNOWN_KEYS, err);
    JsonReader train = json_get_object(&j, "train", JSON_REQUIRED);
    json_get_int(&train, "steps", JSON_REQUIRED, 1, 100, steps);
    json_get_double(&train, "lr", JSON_OPTIONAL, 0, 1, lr);
    json_close(&train);
    return json_close(&j);
}

static void json_errors_name_file_key_and_value(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"train\": {\"steps\": 0}}", "job.json: train.steps: 0 is not in 1..100"},
        {"{\"train\": {\"steps\": \"x\"}}",
         "job.json: train.steps: expected an integer, got \"x\""},
        {"{\"train\": {}}", "job.json: train.steps: missing"},
        {"{}", "job.json: train: missing"},
        {"{\"train\": {\"steps\": 1, \"stpes\": 2}}",
         "job.json: train.stpes: unknown key (did you mean \"steps\"?)"},
        {"{\"train\": {\"steps\": 1}, \"foo\": 2}", "job.json: foo: unknown key; there are train"},
        {"{\"train\": {\"steps\": 1, \"lr\": 2.5}}", "job.json: train.lr: 2.5 is not in 0..1"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        Error err = ERROR_INIT;
        int64_t steps = 0;
        double lr = 0;
        assert_int_equal(read_sample(cases[i].text, &steps, &lr, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].error);
    }
    Error err = ERROR_INIT;
    int64_t steps = 0;
    double lr = 0.5;
    assert_int_equal(read_sample("{\"train\": {\"steps\": 7}}", &steps, &lr, &err), 0);
    assert_int_equal(steps, 7);
    assert_true(lr == 0.5);
    assert_int_equal(read_sample("{\"train\": {\"steps\": 7, \"steps\": 8}}", &steps, &lr, &err),
                     -EINVAL);
    assert_non_null(strstr(err.text, "job.json: line 1"));
}

static void hashes_match_published_values(void **state)
{
    (void)state;
    char text[HASH_TEXT_BYTES];
    /* XXH3-128 of the empty input, from the xxHash specification. */
    assert_string_equal(hash_format(hash_bytes("", 0), text), "99aa06d3014798d86001c324468d497f");
    Hash back;
    assert_int_equal(hash_parse(text, &back), 0);
    assert_true(hash_equal(back, hash_bytes("", 0)));
    assert_int_equal(hash_parse("zz", &back), -EINVAL);

    /* CRC-32C check values of RFC 3720, appendix B.4. */
    uint8_t zeros[32] = {0}, ones[32];
    memset(ones, 0xff, sizeof(ones));
    assert_int_equal(crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(crc32c(0, ones, 32), 0x62a8ab43);
    assert_int_equal(crc32c(crc32c(0, "12345", 5), "6789", 4), 0xe3069283);

    _cleanup_(hasher_freep) Hasher *hasher = NULL;
    assert_int_equal(hasher_new(&hasher), 0);
    hasher_update(hasher, "ab", 2);
    hasher_update(hasher, "c", 1);
    assert_true(hash_equal(hasher_digest(hasher), hash_bytes("abc", 3)));
}

static void philox_matches_published_vectors(void **state)
{
    (void)state;
    /* Known-answer vectors of the Random123 distribution for philox4x32-10. */
    Philox zero = philox4x32(0, 0, 0);
    assert_int_equal(zero.word[0], 0x6627e8d5);
    assert_int_equal(zero.word[1], 0xe169c58d);
    assert_int_equal(zero.word[2], 0xbc57ac4c);
    assert_int_equal(zero.word[3], 0x9b00dbd8);
    Philox ones = philox4x32(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_int_equal(ones.word[0], 0x408f276d);
    assert_int_equal(ones.word[1], 0x41c83b0e);
    assert_int_equal(ones.word[2], 0xa20bc7c6);
    assert_int_equal(ones.word[3], 0x6d5451fd);
    Philox pi = philox4x32(UINT64_C(0x299f31d0a4093822), UINT64_C(0x0370734413198a2e),
                           UINT64_C(0x85a308d3243f6a88));
    assert_int_equal(pi.word[0], 0xd16cfe09);
    assert_int_equal(pi.word[1], 0x94fdcceb);
    assert_int_equal(pi.word[2], 0x5001e420);
    assert_int_equal(pi.word[3], 0x24126ea1);
}

static double ulps(double a, double b)
{
    double spacing = nextafter(fabs(b), INFINITY) - fabs(b);
    return fabs(a - b) / spacing;
}

static void exact_functions_are_close_to_libm(void **state)
{
    (void)state;
    for (int i = 0; i < 100000; i++) {
        double t = (double)i / 100000.0;
        double x = -700.0 + 1400.0 * t;
        assert_true(ulps(exact_exp(x), exp(x)) < 2.5);
        double y = exp(x);
        assert_true(ulps(exact_log(y), log(y)) < 2.5 || fabs(log(y)) < 1e-3);
        double angle = -1e4 + 2e4 * t;
        assert_true(fabs(exact_sin(angle) - sin(angle)) < 1e-15);
        assert_true(fabs(exact_cos(angle) - cos(angle)) < 1e-15);
    }
    assert_true(isnan(exact_exp(NAN)));
    assert_true(exact_exp(-1000) == 0);

    /* The exact bits of some results: if a bit changes, every run's weights change. */
    double sample[] = {exact_exp(1.0), exact_log(10.0), exact_sin(1.0), exact_cos(1.0)};
    float pair[2];
    exact_normal_pair(0x12345678, 0x9abcdef0, pair);
    assert_true(sample[0] == 0x1.5bf0a8b145769p+1 || ulps(sample[0], exp(1.0)) < 1.5);
    assert_true(isfinite(pair[0]) && isfinite(pair[1]));
}

static void normal_draws_have_the_right_moments(void **state)
{
    (void)state;
    double sum = 0, square = 0, fourth = 0;
    enum { N = 200000 };
    for (uint64_t i = 0; i < N / 4; i++) {
        Philox block = philox4x32(42, 7, i);
        float z[4];
        exact_normal_pair(block.word[0], block.word[1], z);
        exact_normal_pair(block.word[2], block.word[3], z + 2);
        for (int k = 0; k < 4; k++) {
            sum += (double)z[k];
            square += (double)z[k] * (double)z[k];
            fourth += pow((double)z[k], 4);
        }
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(square / N - 1) < 0.02);
    assert_true(fabs(fourth / N - 3) < 0.1);
    float edge[2];
    exact_normal_pair(0, 0, edge);
    assert_true(isfinite(edge[0]) && fabsf(edge[0]) < 7);
}

static void files_appear_whole_or_not_at_all(void **state)
{
    (void)state;
    char folder[] = "/tmp/test-base-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[128], deep[128];
    (void)snprintf(path, sizeof(path), "%s/a", folder);
    (void)snprintf(deep, sizeof(deep), "%s/x/y/z", folder);
    Error err = ERROR_INIT;

    assert_int_equal(folder_make(deep, &err), 0);
    assert_int_equal(folder_make(deep, &err), 0);
    assert_int_equal(file_write(path, "one", 3, FILE_EXCLUSIVE | FILE_SYNC, &err), 0);
    assert_int_equal(file_write(path, "two", 3, FILE_EXCLUSIVE, &err), -EEXIST);
    char *text = NULL;
    size_t n;
    assert_int_equal(file_read(path, 100, &text, &n, &err), 0);
    assert_string_equal(text, "one");
    free(text);
    assert_int_equal(file_read(path, 2, &text, &n, &err), -EFBIG);

    char line[8], name[700];
    (void)snprintf(name, sizeof(name), "%s.lines", path);
    assert_int_equal(file_write(name, "first\nsecond\n", 13, 0, &err), 0);
    assert_int_equal(file_read_line(name, line, sizeof(line)), 0);
    assert_string_equal(line, "first");
    assert_int_equal(file_read_line(name, line, 4), 0);
    assert_string_equal(line, "fir"); /* the line is cut to the size of the buffer */
    assert_int_equal(file_write(name, "", 0, 0, &err), 0);
    assert_int_equal(file_read_line(name, line, sizeof(line)), 0);
    assert_string_equal(line, "");
    assert_int_equal(file_read_line("/nowhere/at/all", line, sizeof(line)), -ENOENT);
    assert_int_equal(file_read_line("/", line, sizeof(line)), -EISDIR);

    setenv("SDTRAIN_FAULT", "file.write=enospc@1", 1);
    assert_int_equal(fault_open(&err), 0);
    assert_int_equal(file_write(path, "three", 5, FILE_SYNC, &err), -ENOSPC);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(file_read(path, 100, &text, &n, &err), 0);
    assert_string_equal(text, "one");
    free(text);
    assert_int_equal(file_write(path, "three", 5, FILE_SYNC, &err), 0);

    assert_int_equal(folder_remove(folder, &err), 0);
    struct stat st;
    assert_int_equal(stat(folder, &st), -1);
    assert_int_equal(folder_remove(folder, &err), 0);
}

/* fd_reserve() accepts a size that fits and refuses 256 TiB, on a disk and in memory. */
static void room_is_made_or_refused(void **state)
{
    (void)state;
    FILE *const files[] = {tmpfile(), fdopen(memfd_create("room", MFD_CLOEXEC), "r+")};
    for (size_t i = 0; i < ELEMENTSOF(files); i++) {
        assert_non_null(files[i]);
        struct stat st;
        int fd = fileno(files[i]), r = fd_reserve(fd, UINT64_C(1) << 48);
        assert_true(r == -ENOSPC || r == -EFBIG || (i == 1 && r == 0)); /* a memfd has no limit */
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(fd_reserve(fd, 10001), 0);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_size, 10001);
        assert_true(i == 0 || st.st_blocks == 0); /* in memory, no page is allocated and cleared */
        assert_int_equal(fclose(files[i]), 0);
    }
}

static void fault_settings_are_checked(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    setenv("SDTRAIN_FAULT", "a=explode", 1);
    assert_int_equal(fault_open(&err), -EINVAL);
    assert_string_equal(err.text, "SDTRAIN_FAULT: a: unknown action explode");
    setenv("SDTRAIN_FAULT", "a=eio@0", 1);
    assert_int_equal(fault_open(&err), -EINVAL);
    unsetenv("SDTRAIN_FAULT");
}

static void arrays_grow_and_keep_what_they_hold(_unused_ void **state)
{
    _cleanup_free_ int *array = NULL;
    size_t room = 0, growths = 0;
    for (int i = 0; i < 1000; i++) {
        const size_t before = room;
        array = memory_grow(array, (size_t)i, &room, sizeof(*array));
        assert_true(room > (size_t)i);
        growths += room != before;
        array[i] = i;
    }
    assert_true(growths < 10); /* otherwise n elements would cost n * n copies */
    for (int i = 0; i < 1000; i++)
        assert_int_equal(array[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_from_outside_are_printable),
        cmocka_unit_test(half_a_character_at_the_end_goes),
        cmocka_unit_test(wrong_bytes_leave_the_rest_readable),
        cmocka_unit_test(long_paths_lose_their_middle),
        cmocka_unit_test(the_environments_proxy_is_named),
        cmocka_unit_test(json_errors_quote_nothing),
        cmocka_unit_test(json_errors_name_file_key_and_value),
        cmocka_unit_test(hashes_match_published_values),
        cmocka_unit_test(philox_matches_published_vectors),
        cmocka_unit_test(exact_functions_are_close_to_libm),
        cmocka_unit_test(normal_draws_have_the_right_moments),
        cmocka_unit_test(files_of_other_kinds_are_named),
        cmocka_unit_test(files_appear_whole_or_not_at_all),
        cmocka_unit_test(room_is_made_or_refused),
        cmocka_unit_test(arrays_grow_and_keep_what_they_hold),
        cmocka_unit_test(fault_settings_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
