/* SPDX-License-Identifier: Apache-2.0 */
/* test-temporary-folder.c - who shares a folder for temporary files, and when it is removed. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/file.h"
#include "exec/resources/temporary-folder.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char base[] = "/tmp/test-temporary-XXXXXX";

static const char *at(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", base, name);
    return path;
}

static void make(const char *name) { assert_int_equal(file_write(at(name), "1", 1, 0, NULL), 0); }

static bool exists(const char *name)
{
    struct stat st;
    return lstat(at(name), &st) == 0;
}

static int enter(const char *name)
{
    char path[128];
    Error err = ERROR_INIT;
    int fd = temporary_folder_enter(base, "tmp-", name, path, sizeof(path), &err);
    if (fd < 0)
        fail_msg("%s", err.text);
    assert_true(strstr(path, name));
    assert_int_equal(access(path, W_OK), 0);
    return fd;
}

static void test_shared(void **state)
{
    (void)state;
    const int a = enter("1-0-x"), b = enter("1-0-x");
    make("tmp-1-0-x/lock");
    assert_int_equal(temporary_folder_leave(base, "tmp-", a), -EBADF);
    assert_true(exists("tmp-1-0-x/lock"));
    (void)temporary_folder_leave(base, "tmp-", b);
    assert_false(exists("tmp-1-0-x"));
}

static void test_what_nobody_holds(void **state)
{
    (void)state;
    assert_int_equal(mkdir(at("tmp-1-0-x"), 0700), 0);
    assert_int_equal(mkdir(at("tmp-1-0-x/deep"), 0700), 0);
    make("tmp-1-0-x/deep/cache");
    assert_int_equal(mkdir(at("slot0"), 0700), 0);
    make("setup-a");
    make("tmp-file"); /* not a folder */
    assert_int_equal(mkdir(at("elsewhere"), 0700), 0);
    make("elsewhere/kept");
    assert_int_equal(symlink("elsewhere", at("tmp-link")), 0);
    const int other = enter("1-0-other"), fd = enter("2-0-x");
    assert_false(exists("tmp-1-0-x"));
    assert_true(exists("tmp-1-0-other")); /* of another job that runs */
    assert_true(exists("slot0") && exists("setup-a") && exists("tmp-file"));
    assert_true(exists("elsewhere/kept"));
    (void)temporary_folder_leave(base, "tmp-", fd);
    assert_false(exists("tmp-2-0-x"));
    (void)temporary_folder_leave(base, "tmp-", other);
}

/* A holder that is killed holds nothing any more. */
static void test_killed(void **state)
{
    (void)state;
    int ready[2];
    char c;
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)enter("1-0-x");
        (void)!write(ready[1], "x", 1);
        pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void)temporary_folder_leave(base, "tmp-", -EBADF);
    assert_true(exists("tmp-1-0-x"));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    const int fd = enter("2-0-x");
    assert_false(exists("tmp-1-0-x"));
    (void)temporary_folder_leave(base, "tmp-", fd);
    (void)fd_close(ready[0]);
    (void)fd_close(ready[1]);
}

/* The folder is removed between two steps of a holder. */
static void removed_at(const char *fault)
{
    int status;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        Error err = ERROR_INIT;
        if (setenv("SDTRAIN_FAULT", fault, 1) < 0 || fault_open(&err) < 0)
            _exit(1);
        (void)enter("1-0-x");
        _exit(exists("tmp-1-0-x") ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    (void)temporary_folder_leave(base, "tmp-", -EBADF);
    assert_false(exists("tmp-1-0-x"));
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_removed_meanwhile(void **state)
{
    (void)state;
    removed_at("exec.tmp_folder=stop@1"); /* made, and not opened */
    removed_at("exec.tmp_folder=stop@2"); /* opened, and not held */
}

/* The folder that was found is gone when its lock is taken, and another process holds one of its name. */
static void test_of_another_meanwhile(void **state)
{
    (void)state;
    int status;
    (void)fd_close(enter("1-0-x"));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        Error err = ERROR_INIT;
        if (setenv("SDTRAIN_FAULT", "exec.tmp_unheld=stop@1", 1) < 0 || fault_open(&err) < 0)
            _exit(1);
        (void)temporary_folder_leave(base, "tmp-", -EBADF);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    (void)temporary_folder_leave(base, "tmp-", -EBADF);
    const int fd = enter("1-0-x");
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(exists("tmp-1-0-x"));
    (void)temporary_folder_leave(base, "tmp-", fd);
}

/* A process that has entered has a folder that stays, whatever others do at that moment. */
static void test_together(void **state)
{
    (void)state;
    pid_t pids[4];
    for (size_t i = 0; i < ELEMENTSOF(pids); i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] != 0)
            continue;
        char path[128], file[160];
        for (int n = 0; n < 300; n++) {
            Error err = ERROR_INIT;
            int fd = temporary_folder_enter(base, "tmp-", "1-0-x", path, sizeof(path), &err);
            (void)snprintf(file, sizeof(file), "%s/%zu", path, i);
            if (fd < 0 || file_write(file, "1", 1, 0, &err) < 0 || access(file, R_OK) < 0) {
                (void)fprintf(stderr, "%s\n", err.text);
                _exit(1);
            }
            (void)temporary_folder_leave(base, "tmp-", fd);
        }
        _exit(0);
    }
    for (size_t i = 0; i < ELEMENTSOF(pids); i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    assert_false(exists("tmp-1-0-x"));
}

static void test_errors(void **state)
{
    (void)state;
    char path[128];
    Error err = ERROR_INIT;
    assert_int_equal(temporary_folder_enter(at("no"), "tmp-", "1", path, sizeof(path), &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "/no/tmp-1"));
    assert_int_equal(temporary_folder_enter(base, "tmp-", "1", path, 8, &err), -ENAMETOOLONG);
}

/* In /tmp others have folders of that name, too. */
static void test_folders_of_others_stay(void **state)
{
    (void)state;
    char path[128];
    Error err = ERROR_INIT;
    const int fd = enter("1-0-x");
    (void)temporary_folder_leave(base, "try-", -EBADF); /* of another prefix */
    assert_int_equal(mkdir(at("try-1"), 0700), 0);
    (void)temporary_folder_leave(base, "tmp-", fd);
    assert_true(exists("try-1"));
    if (geteuid() == 0) { /* only root can make a folder of another user */
        assert_int_equal(chown(at("try-1"), 1, 1), 0);
        (void)temporary_folder_leave(base, "try-", -EBADF);
        assert_true(exists("try-1"));
        assert_int_equal(temporary_folder_enter(base, "try-", "1", path, sizeof(path), &err),
                         -EPERM);
        assert_int_equal(chown(at("try-1"), 0, 0), 0);
    }
    (void)temporary_folder_leave(base, "try-", -EBADF);
    assert_false(exists("try-1"));
}

static int begin(void **state)
{
    (void)state;
    return folder_make(base, NULL);
}

static int end(void **state)
{
    (void)state;
    return folder_remove(base, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_shared, begin, end),
        cmocka_unit_test_setup_teardown(test_what_nobody_holds, begin, end),
        cmocka_unit_test_setup_teardown(test_killed, begin, end),
        cmocka_unit_test_setup_teardown(test_removed_meanwhile, begin, end),
        cmocka_unit_test_setup_teardown(test_of_another_meanwhile, begin, end),
        cmocka_unit_test_setup_teardown(test_together, begin, end),
        cmocka_unit_test_setup_teardown(test_folders_of_others_stay, begin, end),
        cmocka_unit_test_setup_teardown(test_errors, begin, end),
    };
    if (!mkdtemp(base))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
