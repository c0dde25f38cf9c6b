/* SPDX-License-Identifier: Apache-2.0 */
/* test-testing.c - what a failed assertion does in a child of a test. */
#include "base/test/testing.h"

#include "base/macro.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* The child would otherwise run the tests that are left, and end with 0 or 1. */
static void a_failed_assertion_aborts_a_child(_unused_ void **state)
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(null, 1), (void)dup2(null, 2);
        assert_int_equal(1, 2);
        _exit(3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_failed_assertion_aborts_a_child)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
