/* SPDX-License-Identifier: Apache-2.0 */
/* test-shared-memory.c - what is a leftover of a killed program, and what is not: files that were there before, and
 * those that a living process has open or mapped. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "exec/resources/shared-memory.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[] = "/tmp/test-shm-XXXXXX";
static char shm[64], list[64];

static const char *at(const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", shm, name);
    return path;
}

static void make(const char *name)
{
    assert_int_equal(file_write(at(name), "12345678", 8, 0, NULL), 0);
}

static bool exists(const char *name) { return access(at(name), F_OK) == 0; }

static int clear(void)
{
    Error err = ERROR_INIT;
    int r = shared_memory_clear(shm, list, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    return r;
}

static void note(void)
{
    Error err = ERROR_INIT;
    if (shared_memory_note(shm, list, &err) < 0)
        fail_msg("%s", err.text);
}

/* Starts a process that has the file open or mapped until it is killed. */
static pid_t hold(const char *name, bool mapped)
{
    int ready[2];
    char c;
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(at(name), O_RDWR);
        if (fd < 0)
            _exit(1);
        if (mapped && (mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED || close(fd) < 0))
            _exit(1);
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void nothing_is_removed_before_the_first_start(_unused_ void **state)
{
    make("old");
    assert_int_equal(clear(), 0);
    assert_true(exists("old"));
}

static void leftovers_go_and_nothing_else(_unused_ void **state)
{
    make("old");
    make("000000_locals.bak");
    note();
    make("000000_locals"); /* a name that begins another */
    make("sem.mp-1");
    make("open");
    make("mapped");
    assert_int_equal(mkdir(at("folder"), 0700), 0);
    assert_int_equal(symlink("/etc/passwd", at("link")), 0);
    const pid_t opens = hold("open", false), maps = hold("mapped", true);
    assert_int_equal(clear(), 2);
    assert_true(exists("old") && exists("000000_locals.bak") && exists("open") && exists("mapped"));
    assert_true(exists("folder") && exists("link"));
    assert_false(exists("000000_locals") || exists("sem.mp-1"));
    end(opens);
    end(maps);
    assert_int_equal(clear(), 2); /* nobody has them now */
    assert_false(exists("open") || exists("mapped"));
}

static void each_start_begins_a_new_list(_unused_ void **state)
{
    make("of-another-program");
    note();
    assert_int_equal(clear(), 0);
    assert_true(exists("of-another-program"));
    assert_int_equal(unlink(at("of-another-program")), 0);
    note();
    make("of-another-program"); /* the same name, made anew */
    assert_int_equal(clear(), 1);
}

static void a_folder_that_is_not_there_is_named(_unused_ void **state)
{
    Error err = ERROR_INIT;
    assert_int_equal(shared_memory_note("/nonexistent", list, &err), -ENOENT);
    assert_int_equal(strncmp(err.text, "/nonexistent: ", 14), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_removed_before_the_first_start),
        cmocka_unit_test(leftovers_go_and_nothing_else),
        cmocka_unit_test(each_start_begins_a_new_list),
        cmocka_unit_test(a_folder_that_is_not_there_is_named),
    };
    if (!mkdtemp(folder))
        return 1;
    (void)snprintf(shm, sizeof(shm), "%s/shm", folder);
    (void)snprintf(list, sizeof(list), "%s/list", folder);
    if (folder_make(shm, NULL) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)folder_remove(folder, NULL);
    return failed;
}
