/* SPDX-License-Identifier: Apache-2.0 */
/* test-access-check.c - stores that can be used, stores that cannot be used, a store that another machine does not see,
 * and a store that hangs. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "base/file.h"
#include "store/access-check.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/test-try-XXXXXX";

static StoreTry try_one(const char *name, StoreTryKind kind, const char *marker)
{
    StoreTry t = {.kind = kind};
    (void)snprintf(t.uri, sizeof(t.uri), "file://%s/%s", folder, name);
    (void)snprintf(t.marker, sizeof(t.marker), "%s", marker);
    store_try_all(&t, 1, 30 * USEC_PER_SEC);
    return t;
}

static bool exists(const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void make(const char *name)
{
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(folder_make(path, NULL), 0);
}

static void a_good_store_is_left_as_it_was(_unused_ void **state)
{
    char path[200];
    make("good");
    assert_int_equal(try_one("good", STORE_TRY_WRITE, "").r, 0);
    (void)snprintf(path, sizeof(path), "%s/good", folder);
    assert_int_equal(rmdir(path), 0); /* fails unless the folder is empty */
    assert_int_equal(try_one("new", STORE_TRY_WRITE, "").r, 0);
    assert_false(exists("new")); /* the try made the folder, and removed it again */
    StoreTry t = try_one("new", STORE_TRY_MARK, "m");
    assert_int_equal(t.r, -ENOENT);
    assert_true(t.is_missing);
    assert_false(exists("new"));
}

static void what_is_wrong_is_said(_unused_ void **state)
{
    char path[200];
    StoreTry t = try_one("data", STORE_TRY_READ, "");
    assert_int_equal(t.r, -ENOENT);
    assert_non_null(strstr(t.error.text, "/data/index.json"));
    make("data");
    (void)snprintf(path, sizeof(path), "%s/data/index.json", folder);
    assert_int_equal(file_write(path, "{}", 2, 0, NULL), 0);
    assert_int_equal(try_one("data", STORE_TRY_READ, "").r, 0);
    t = try_one("data/index.json/x", STORE_TRY_WRITE, "");
    assert_int_equal(t.r, -ENOTDIR);
    assert_non_null(strstr(t.error.text, "data/index.json/x"));
    t = (StoreTry){.kind = STORE_TRY_READ, .uri = "s3://bucket/x"};
    assert_int_equal(setenv("AWS_CA_BUNDLE", "/none", 1), 0);
    store_try_all(&t, 1, 30 * USEC_PER_SEC);
    assert_int_equal(unsetenv("AWS_CA_BUNDLE"), 0);
    assert_int_equal(t.r, -EINVAL);
    assert_non_null(
        strstr(t.error.text, "AWS_CA_BUNDLE: cannot read /none")); /* nothing is left out */
}

static void a_marker_shows_another_folder(_unused_ void **state)
{
    make("shared");
    make("local");
    assert_int_equal(try_one("shared", STORE_TRY_MARK, ".mark").r, 0);
    assert_true(exists("shared/.mark"));
    StoreTry seen = try_one("shared", STORE_TRY_WRITE, ".mark");
    assert_true(seen.r == 0 && !seen.lacks_marker);
    StoreTry other = try_one("local", STORE_TRY_WRITE, ".mark");
    assert_true(other.r == 0 && other.lacks_marker);
    assert_int_equal(try_one("shared", STORE_TRY_UNMARK, ".mark").r, 0);
    assert_false(exists("shared/.mark"));
}

static void the_end_of_a_long_text_is_kept(_unused_ void **state)
{
    char words[64];
    StoreTry t = {.error.text = "cannot write it: 403"};
    assert_string_equal(store_try_words(&t, 20, words), "cannot write it: 403");
    assert_string_equal(store_try_words(&t, 16, words), "...write it: 403");
    (void)snprintf(t.error.text, sizeof(t.error.text), "cannot write \u00fcber: 403");
    assert_string_equal(store_try_words(&t, 12, words), "...ber: 403");
    assert_string_equal(store_try_words(&t, 13, words), "...\u00fcber: 403");
    (void)snprintf(t.error.text, sizeof(t.error.text), "PUT http://1:2/: 403 Denied: f\u00fcr uns");
    assert_string_equal(store_try_words(&t, 15, words), "...403 Denied: ");
    (void)snprintf(t.error.text, sizeof(t.error.text),
                   "PUT http://1:2/: 403 Denied: f\u00fcr uns, f\u00fcr alle, f\u00fcr immer");
    assert_string_equal(store_try_words(&t, 16, words), "...403 Denied: f");
    assert_string_equal(store_try_words(&t, 17, words), "...403 Denied: f");
    assert_string_equal(store_try_words(&t, 18, words), "...403 Denied: f\u00fc");
}

/* A server that accepts connections but sends nothing blocks only its own try: the other store's result is returned. */
static void a_store_that_hangs_holds_nobody_up(_unused_ void **state)
{
    char endpoint[64];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 8) == 0 &&
                getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", ntohs(a.sin_port));
    assert_int_equal(setenv("AWS_ENDPOINT_URL", endpoint, 1), 0);
    assert_int_equal(setenv("AWS_ACCESS_KEY_ID", "k", 1), 0);
    assert_int_equal(setenv("AWS_SECRET_ACCESS_KEY", "s", 1), 0);
    assert_int_equal(setenv("AWS_REGION", "r", 1), 0);
    StoreTry both[2] = {{.kind = STORE_TRY_READ, .uri = "s3://bucket/x"},
                        {.kind = STORE_TRY_WRITE}};
    make("beside");
    (void)snprintf(both[1].uri, sizeof(both[1].uri), "%s/beside", folder);
    const uint64_t began = clock_boottime_usec();
    store_try_all(both, 2, 2 * USEC_PER_SEC);
    assert_true(clock_boottime_usec() - began < 20 * USEC_PER_SEC); /* allows for a busy machine */
    assert_int_equal(both[0].r, -ETIMEDOUT);
    assert_string_equal(both[0].error.text, "not done within 2 s: it hangs, or answers slowly");
    assert_int_equal(both[1].r, 0);
    (void)close(fd); /* resets the connection, which ends the try's thread */
}

/* The deadline for requests of stores: store_try_begin() always sets it; store_requests_within() sets it only if the
 * operator has not set it. */
static void requests_are_bounded(_unused_ void **state)
{
    static const char name[] = "SDTRAIN_S3_DEADLINE_SEC";
    char seconds[16];
    (void)snprintf(seconds, sizeof(seconds), "%d", STORE_TRY_REQUEST_SEC);
    assert_int_equal(unsetenv(name), 0);
    store_requests_within(7);
    assert_string_equal(getenv(name), "7");
    store_requests_within(8);
    assert_string_equal(getenv(name), "7");
    store_try_begin();
    assert_string_equal(getenv(name), seconds);
    assert_int_equal(unsetenv(name), 0);
}

static void end_otherwise(void) { _exit(9); }

/* If a try hangs, the program ends with _exit(), because the try's thread may still use what exit() destroys. Otherwise
 * it ends with exit(). */
static void who_hangs_is_left_at_the_end(_unused_ void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 8) == 0 &&
                getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    for (int hangs = 0; hangs < 2; hangs++) {
        (void)fflush(NULL);
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            StoreTry t = {.kind = STORE_TRY_READ, .uri = "s3://bucket/x"};
            char endpoint[64];
            (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", ntohs(a.sin_port));
            (void)setenv("AWS_ENDPOINT_URL", endpoint, 1);
            (void)setenv("AWS_ACCESS_KEY_ID", "k", 1);
            (void)setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
            (void)setenv("AWS_REGION", "r", 1);
            if (atexit(end_otherwise) != 0)
                _exit(1);
            if (hangs)
                store_try_all(&t, 1, 0);
            store_try_exit(t.r == (hangs ? -ETIMEDOUT : 0) ? 3 : 4);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), hangs ? 3 : 9);
    }
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_store_is_left_as_it_was),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(a_marker_shows_another_folder),
        cmocka_unit_test(the_end_of_a_long_text_is_kept),
        cmocka_unit_test(requests_are_bounded),
        cmocka_unit_test(who_hangs_is_left_at_the_end),
        cmocka_unit_test(a_store_that_hangs_holds_nobody_up),
    };
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)folder_remove(folder, NULL);
    store_try_exit(failed);
}
