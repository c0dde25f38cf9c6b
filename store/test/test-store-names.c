/* SPDX-License-Identifier: Apache-2.0 */
/* test-store-names.c - the exact limits of names of stores and objects, and the free space of a folder. */
#include "base/file.h"
#include "base/test/testing.h"
#include "store/backend.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/test-names-XXXXXX";

/* Returns `begin` followed by n letters, with a '/' after each hundred. */
static char *name_new(const char *begin, size_t n)
{
    char *name = calloc(strlen(begin) + n + 1, 1);
    assert_non_null(name);
    char *at = stpcpy(name, begin);
    for (size_t i = 0; i < n; i++)
        at[i] = i % 101 == 100 && i + 1 < n ? '/' : 'k';
    return name;
}

static int open_it(const char *uri)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    return store_open(uri, &store, &err);
}

static int open_new(const char *begin, size_t n)
{
    _cleanup_free_ char *uri = name_new(begin, n);
    return open_it(uri);
}

static void buckets_have_bounds(_unused_ void **state)
{
    static const char *const good[] = {
        "s3://abc",
        "s3://1.2.3",
        "s3://1.2.3.4.5",
        "s3://1.2.3.x",
        "s3://a.b.c.d",
        "s3://0a9.z-1",
        "s3://a12345678901234567890123456789012345678901234567890123456789012", /* 63 characters */
        "s3://abc/a b",
    };
    static const char *const bad[] = {
        "s3://ab",        "s3://1.2.3.4",   "s3://.abc",    "s3://abc-",      "s3://a/b",
        "s3://abc/a\x1f", "s3://abc/a\x7f", "s3://abc/\nb", "s3://9.0.0.9/x",
    };
    for (size_t i = 0; i < ELEMENTSOF(good); i++)
        assert_int_equal(open_it(good[i]), 0);
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(open_it(bad[i]), -EINVAL);
    assert_int_equal(open_new("s3://abc/", STORE_KEY_MAX), 0);
    assert_int_equal(open_new("s3://abc/", STORE_KEY_MAX + 1), -EINVAL);
}

/* A folder's path must leave room for a key and the name of a temporary file. */
static void folders_have_bounds(_unused_ void **state)
{
    const size_t most = PATH_MAX - STORE_KEY_MAX - 32 - 1;
    assert_int_equal(open_new("/", most - 1), 0);
    assert_int_equal(open_new("/", most), -ENAMETOOLONG);
    assert_int_equal(open_new("file:///", most - 1), 0);
    assert_int_equal(open_new("", PATH_MAX), -ENAMETOOLONG);
    assert_int_equal(open_it("/..a"), 0);
    assert_int_equal(open_it("/.a"), 0);
    assert_int_equal(open_it("a.b/c"), 0);
}

static bool is_good(const char *begin, size_t n)
{
    _cleanup_free_ char *key = name_new(begin, n);
    return store_key_is_good(key);
}

static void keys_have_bounds(_unused_ void **state)
{
    static const char *const good[] = {"a", "a b", "..a", ".a", "a..", "a/...", ".pu", "a.put-"};
    static const char *const bad[] = {"",      "a//b", "a/..", "./a",  "a\x1f",
                                      "a\x7f", "a/",   "/a",   "a/./b"};
    char part[NAME_MAX + 2];
    for (size_t i = 0; i < ELEMENTSOF(good); i++)
        assert_true(store_key_is_good(good[i]));
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_false(store_key_is_good(bad[i]));
    assert_false(store_key_is_good(STORE_TEMPORARY));
    assert_false(store_key_is_good("a/" STORE_TEMPORARY "b"));
    assert_true(is_good("", STORE_KEY_MAX));
    assert_false(is_good("", STORE_KEY_MAX + 1));
    memset(part, 'k', sizeof(part));
    part[NAME_MAX + 1] = '\0';
    assert_false(store_key_is_good(part));
    part[NAME_MAX] = '\0';
    assert_true(store_key_is_good(part));
}

/* The last part of a prefix may be incomplete; the other parts must be valid. */
static void prefixes_may_end_anywhere(_unused_ void **state)
{
    static const char *const good[] = {"", "a", "a/", "a/.", ".", "..", "a/.pu"};
    static const char *const bad[] = {"/", "a//", "../", "a/./b", "a\n", STORE_TEMPORARY "/"};
    _cleanup_(store_freep) Store *store = NULL;
    Error err = ERROR_INIT;
    StoreList list;
    assert_int_equal(store_open(folder, &store, &err), 0);
    for (size_t i = 0; i < ELEMENTSOF(good); i++) {
        assert_int_equal(store_list(store, good[i], 9, &list, &err), 0);
        store_list_clear(&list);
    }
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(store_list(store, bad[i], 9, &list, &err), -EINVAL);
}

static int free_bytes(const char *uri, uint64_t *ret)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    assert_int_equal(store_open(uri, &store, &err), 0);
    return store_free_bytes(store, ret, &err);
}

/* For a path that does not exist, the free space is that of its nearest parent folder that exists: 0 below /proc, more
 * on the root's file system. */
static void the_nearest_folder_tells_the_room(_unused_ void **state)
{
    uint64_t n = 77;
    assert_int_equal(free_bytes("/proc", &n), 0);
    assert_int_equal(n, 0);
    n = 77;
    assert_int_equal(free_bytes("/proc/none/nor/this", &n), 0);
    assert_int_equal(n, 0);
    n = 77;
    assert_int_equal(free_bytes("/not-there/x", &n), 0);
    assert_int_not_equal(n, 77);
    n = 77;
    assert_int_equal(free_bytes("/dev/null/x/y", &n), -ENOTDIR);
    assert_int_equal(free_bytes("s3://abc/x", &n), -EOPNOTSUPP);
    assert_int_equal(n, 77);
}

static void a_uri_names_one_object(_unused_ void **state)
{
    Error err = ERROR_INIT;
    char *text = NULL, path[64];
    size_t n;
    (void)snprintf(path, sizeof(path), "%s/r", folder);
    assert_int_equal(file_write(path, "xyz", 3, 0, NULL), 0);
    assert_int_equal(store_get_uri(path, 10, &text, &n, &err), 0);
    assert_int_equal(n, 3);
    free(text);
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(store_get_uri("r", 10, &text, &n, &err), 0);
    assert_int_equal(n, 3);
    free(text);
    assert_int_equal(store_get_uri("/r", 10, &text, &n, &err),
                     -EINVAL); /* the root folder is not a store */
    assert_non_null(strstr(err.text, "the root folder is not a store"));
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_have_bounds),
        cmocka_unit_test(folders_have_bounds),
        cmocka_unit_test(keys_have_bounds),
        cmocka_unit_test(prefixes_may_end_anywhere),
        cmocka_unit_test(the_nearest_folder_tells_the_room),
        cmocka_unit_test(a_uri_names_one_object),
    };
    if (!mkdtemp(folder))
        return 1;
    (void)setenv("AWS_ACCESS_KEY_ID", "k", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    (void)setenv("AWS_REGION", "r", 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)folder_remove(folder, NULL);
    return failed;
}
