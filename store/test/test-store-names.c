/* SPDX-License-Identifier: Apache-2.0 */
/* test-store-names.c - the exact limits of names of stores and objects, the free space of a folder, the names of
 * folders that lie in one that the user may not read, and objects that cannot be removed. */
#include "base/file.h"
#include "base/test/testing.h"
#include "store/backend.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

/* A relative path has a bound together with the present folder: a path that was cut would name another folder. */
static void relative_paths_have_bounds(_unused_ void **state)
{
    char path[PATH_MAX + 1], cwd[PATH_MAX];
    assert_int_equal(chdir(folder), 0);
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    const size_t most = PATH_MAX - 1 - strlen(cwd) - 1;
    memset(path, '/', most);
    path[0] = 'a';
    (void)snprintf(path + most - 1, 2, "b");
    assert_int_equal(open_it(path), 0);
    (void)snprintf(path + most - 1, 3, "bc");
    assert_int_equal(open_it(path), -ENAMETOOLONG);
    assert_int_equal(chdir("/"), 0);
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

/* Removal goes on behind an object that cannot be removed; the error names the first such object. */
static void removal_goes_on(_unused_ void **state)
{
    static const char *const keys[] = {"kept/a", "kept/x", "kept/b"};
    Error err = ERROR_INIT;
    char path[64];
    uint64_t n;
    _cleanup_(store_freep) Store *store = NULL;
    assert_int_equal(store_open(folder, &store, &err), 0);
    for (size_t i = 0; i < 3; i += 2) { /* a folder is not an object */
        (void)snprintf(path, sizeof(path), "%s/%s", folder, keys[i]);
        assert_int_equal(folder_make(path, &err), 0);
    }
    (void)snprintf(path, sizeof(path), "%s/kept/x", folder);
    assert_int_equal(file_write(path, "xyz", 3, 0, &err), 0);
    assert_int_equal(store_delete_many(store, keys, ELEMENTSOF(keys), &err), -EISDIR);
    assert_non_null(strstr(err.text, "/kept/a: "));
    assert_int_equal(store_head(store, "kept/x", &n, &err), -ENOENT);
}

static int n_syncfs;

/* Takes the place of the C library's function in this program. */
int syncfs(int fd)
{
    n_syncfs++;
    return (int)syscall(SYS_syncfs, fd);
}

/* Puts an object into the folder, and returns how many file systems were synced; -1: the put failed. */
static int put_into(const char *path)
{
    Error err = ERROR_INIT;
    _cleanup_(store_freep) Store *store = NULL;
    char text[] = "text";
    const struct iovec part = {text, sizeof(text)};
    n_syncfs = 0;
    if (store_open(path, &store, &err) < 0 || store_put(store, "a/b", &part, 1, 0, &err) < 0)
        return -1;
    return n_syncfs;
}

/* The name of a folder must be on the disk before an object in the folder counts as durable. A user who may not read
 * the parent cannot sync the parent, so the file system is synced: once for each folder that a store meets. */
static void a_parent_that_cannot_be_read_is_synced_with_its_file_system(_unused_ void **state)
{
    enum { NOBODY = 65534 };
    char closed[64], mine[80];
    int status;
    (void)snprintf(closed, sizeof(closed), "%s/closed", folder);
    (void)snprintf(mine, sizeof(mine), "%s/mine", closed);
    assert_int_equal(mkdir(closed, 0755), 0);
    assert_int_equal(mkdir(mine, 0755), 0);
    assert_int_equal(put_into(folder), 0); /* each parent of this folder can be read */
    const bool root = geteuid() == 0;
    assert_true(!root || (chown(mine, NOBODY, NOBODY) == 0 && chmod(folder, 0755) == 0));
    assert_int_equal(chmod(closed, 0311), 0);

    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(root && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0) ? 100 : put_into(mine));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(chmod(closed, 0755), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_have_bounds),
        cmocka_unit_test(folders_have_bounds),
        cmocka_unit_test(relative_paths_have_bounds),
        cmocka_unit_test(keys_have_bounds),
        cmocka_unit_test(prefixes_may_end_anywhere),
        cmocka_unit_test(the_nearest_folder_tells_the_room),
        cmocka_unit_test(a_uri_names_one_object),
        cmocka_unit_test(removal_goes_on),
        cmocka_unit_test(a_parent_that_cannot_be_read_is_synced_with_its_file_system),
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
