/* SPDX-License-Identifier: Apache-2.0 */
/* test-process.c - the processes of a slot, real ones, without cgroups: what is told of them, and that nothing of them
 * is left. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test/testing.h"
#include "daemon/process/process.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static sd_event *event;
static RankSessions sessions;
static const CgroupBase no_cgroups;
static ProcessNeeds needs = {.cgroups = &no_cgroups, .sessions = &sessions};
static int n_heard, n_moved;
static int slot = 5; /* of the programs that begin */
static int output;   /* the far end of the program's output */

static void on_heard(void *userdata)
{
    Process *p = userdata;
    n_heard++;
    process_deafen(p);
}
static void on_moved(_unused_ void *userdata) { n_moved++; }

/* Children of this program that belong to other slots: there are none. */
static bool is_ours(_unused_ void *userdata, _unused_ pid_t pid) { return false; }

static void begin(Process *p, const char *script)
{
    static const ProcessEvents no_events = {.heard = on_heard, .moved = on_moved};
    ProcessEvents events = no_events;
    char mark[128];
    int pair[2];
    Error err = ERROR_INIT;
    orphans_mark(mark, sizeof(mark), "/test-process", slot);
    char *const argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)script, NULL};
    char *const environment[] = {mark, (char *)"PATH=/usr/bin:/bin", NULL};
    n_heard = n_moved = 0;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    output = pair[0];
    const ProcessProgram program = {.argv = argv, .environment = environment, .output = pair[1]};
    if (process_start(&needs, slot, &program, p, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(sessions.of[slot], p->pid);
    events.userdata = p;
    assert_true(process_watch(p, &events) >= 0);
}

static void run_until_heard(void)
{
    const uint64_t until = clock_boottime_usec() + 30 * USEC_PER_SEC;
    while (!n_heard && clock_boottime_usec() < until)
        assert_true(sd_event_run(event, USEC_PER_SEC) >= 0);
}

static void run_until_moved(void)
{
    const uint64_t until = clock_boottime_usec() + 30 * USEC_PER_SEC;
    while (!n_moved && clock_boottime_usec() < until)
        assert_true(sd_event_run(event, USEC_PER_SEC) >= 0);
    assert_true(n_moved > 0);
}

/* The group dies of SIGKILL at its own pace, and is reaped here, as sdtraind does at SIGCHLD. */
static void run_until_gone(const Process *p)
{
    const uint64_t until = clock_boottime_usec() + 20 * USEC_PER_SEC;
    while (!process_is_gone(p, "/test-process", is_ours, NULL)) {
        (void)waitpid(-1, NULL, WNOHANG); /* the program itself is reaped before */
        if (sd_event_run(event, 10 * USEC_PER_MSEC) < 0 || clock_boottime_usec() > until)
            fail_msg("something lives on");
    }
}

static void end(Process *p)
{
    char rest[64];
    run_until_gone(p);
    /* Nobody has the other end any more, this process neither. */
    assert_int_equal(fcntl(output, F_SETFL, O_NONBLOCK), 0);
    while (read(output, rest, sizeof(rest)) > 0)
        ;
    assert_int_equal(read(output, rest, sizeof(rest)), 0);
    output = fd_close(output);
    process_retire(p);
    assert_int_equal(sessions.of[slot], 0);
    assert_int_equal(p->channel, -EBADF);
    process_close(p);
}

static void its_end_ends_what_it_has_started(_unused_ void **state)
{
    Process p;
    siginfo_t info;
    begin(&p, "sleep 1000 & exit 3");
    run_until_moved();
    assert_false(process_is_gone(&p, "/test-process", is_ours, NULL));
    assert_true(process_reap(&p, &info));
    assert_int_equal(info.si_code, CLD_EXITED);
    assert_int_equal(info.si_status, 3);
    assert_true(p.exited);
    assert_false(process_reap(&p, &info)); /* once */
    end(&p);
}

static void is_killed(Process *p)
{
    siginfo_t info;
    assert_false(process_reap(p, &info));
    process_kill(p);
    process_await_exit(p, 20000);
    assert_true(process_reap(p, &info));
    assert_int_equal(info.si_code, CLD_KILLED);
    assert_int_equal(info.si_status, SIGKILL);
    end(p);
}

static void a_kill_ends_all_of_it(_unused_ void **state)
{
    Process p;
    char up[8];
    begin(&p, "sleep 1000 & echo up; sleep 1000");
    assert_int_equal(read(output, up, sizeof(up)), 3);
    is_killed(&p);
}

/* Before the child has made its session there is no group of its number. */
static void a_kill_may_come_at_once(_unused_ void **state)
{
    for (int i = 0; i < 50; i++) {
        Process p;
        begin(&p, "exec sleep 1000");
        is_killed(&p);
    }
}

/* Without cgroups the mark alone tells whose a process is. */
static void slot_1_is_not_slot_10(_unused_ void **state)
{
    Process p;
    char up[8];
    slot = 10;
    begin(&p, "echo up; sleep 1000; :"); /* an exec would hide its environment for a moment */
    assert_int_equal(read(output, up, sizeof(up)), 3);
    assert_true(orphans_is_marked(p.pid, "/test-process", 10));
    assert_false(orphans_is_marked(p.pid, "/test-process", 1));
    assert_false(orphans_is_marked(p.pid, "/test-process", 0));
    assert_false(orphans_is_marked(p.pid, "/test-process", 100));
    assert_false(orphans_is_marked(p.pid, "/test", 10));
    assert_true(orphans_is_marked(p.pid, "/test-process", -1));
    is_killed(&p);
    slot = 5;
}

/* It has left the group; its mark tells. */
static void a_session_of_its_own_does_not_save_it(_unused_ void **state)
{
    Process p;
    begin(&p, "setsid sleep 1000 & exec sleep 1000");
    char name[64] = "", path[64];
    const uint64_t until = clock_boottime_usec() + 30 * USEC_PER_SEC;
    pid_t other = 0;
    for (pid_t pid = p.pid + 1; !other && clock_boottime_usec() < until; pid++) {
        if (pid > p.pid + 1000)
            pid = p.pid + 1;
        if (getsid(pid) == pid && orphans_is_marked(pid, "/test-process", slot))
            other = pid;
    }
    assert_true(other > 0);
    is_killed(&p);
    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)other);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!read(fd, name, sizeof(name) - 1);
    assert_string_not_equal(name, "sleep\n");
}

static void its_channel_is_heard_until_that_is_over(_unused_ void **state)
{
    Process p;
    siginfo_t info;
    char text[8] = "";
    begin(&p, "echo hello >&3; echo again >&3; read line <&3");
    run_until_heard();
    assert_int_equal(send(p.channel, "\n", 1, 0), 1);
    run_until_moved();
    assert_int_equal(n_heard, 1); /* not again */
    assert_int_equal(recv(p.channel, text, sizeof(text), MSG_DONTWAIT), 6);
    assert_memory_equal(text, "hello\n", 6);
    assert_true(process_reap(&p, &info));
    end(&p);
}

static int set_up(_unused_ void **state)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* as sdtraind */
    assert_true(sd_event_new(&event) >= 0);
    needs.event = event;
    return 0;
}

static int tear_down(_unused_ void **state)
{
    event = sd_event_unref(event);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_end_ends_what_it_has_started),
        cmocka_unit_test(a_kill_ends_all_of_it),
        cmocka_unit_test(a_kill_may_come_at_once),
        cmocka_unit_test(slot_1_is_not_slot_10),
        cmocka_unit_test(a_session_of_its_own_does_not_save_it),
        cmocka_unit_test(its_channel_is_heard_until_that_is_over),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
