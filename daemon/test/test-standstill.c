/* SPDX-License-Identifier: Apache-2.0 */
/* test-standstill.c - what processes of a session do, as the log has it. */
#include "daemon/process/standstill.h"

#include "base/clock.h"
#include "base/macro.h"
#include "base/test/testing.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { WAIT_MSEC = 30000 };

static pid_t session;

/* Starts a session of two processes that sleep; the second is named `name`. */
static void start(const char *name)
{
    int begun[2];
    char byte;
    assert_int_equal(pipe(begun), 0);
    session = fork();
    if (session == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)setsid();
        if (fork() == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)prctl(PR_SET_NAME, name);
        }
        (void)!write(begun[1], "x", 1);
        for (;;)
            (void)pause();
    }
    (void)close(begun[1]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(read(begun[0], &byte, 1), 1);
    (void)close(begun[0]);
}

static void end(void)
{
    assert_int_equal(kill(-session, SIGKILL), 0);
    assert_int_equal(waitpid(session, NULL, 0), session);
}

/* Waits until just n lines contain the text. */
static void await_lines(const char *text, size_t n)
{
    static char lines[STANDSTILL_LINES][STANDSTILL_LINE];
    const uint64_t until_usec = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    for (;;) {
        size_t found = 0, n_lines = standstill_look(session, lines, STANDSTILL_LINES);
        for (size_t i = 0; i < n_lines; i++)
            found += strstr(lines[i], text) != NULL;
        if (n_lines == 2 && found == n)
            return;
        if (clock_boottime_usec() > until_usec)
            fail_msg("%zu lines, %zu with %s: %s", n_lines, found, text, n_lines ? lines[0] : "");
        (void)usleep(1000);
    }
}

static void each_process_has_a_line(_unused_ void **state)
{
    char own[32], one[1][STANDSTILL_LINE];
    start("a (b) ) c");
    (void)snprintf(own, sizeof(own), "process %d (", (int)session);
    await_lines("sleeps", 2);
    await_lines(own, 1);
    await_lines(" (a (b) ) c) sleeps", 1); /* a name may hold anything */
    await_lines(", 1 thread, 0.", 2);
    assert_int_equal(standstill_look(session, one, 1), 1); /* no more than fits */
    end();
}

static void the_state_is_named(_unused_ void **state)
{
    start("x");
    assert_int_equal(kill(session, SIGSTOP), 0);
    await_lines("is stopped", 1);
    assert_int_equal(standstill_state(session), 'T');
    assert_int_equal(kill(session, SIGCONT), 0);
    await_lines("is stopped", 0);
    assert_int_equal(standstill_state(session), 'S');
    end();
    assert_int_equal(standstill_state(session), '?');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_process_has_a_line),
        cmocka_unit_test(the_state_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
