/* SPDX-License-Identifier: Apache-2.0 */
/* test-process.c - the processes of a slot, real ones: what is reported of them, and that none is left; without
 * cgroups, and with fake cgroups. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "daemon/process/process.h"
#include "daemon/process/spawn.h"

#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static sd_event *event;
static RankSessions sessions;
static const CgroupBase no_cgroups;
static ProcessNeeds needs = {.cgroups = &no_cgroups, .sessions = &sessions};
static int n_heard, n_moved;
static int slot = 5; /* the slot of the programs that are started */
static int output;   /* our end of the pipe for the program's output */

/* ---- the fake kernel ---- */

static const CgroupBase some_cgroups = {.path = "/cgroups"};
static struct Kernel {
    bool refuses;           /* a slot's cgroup cannot be made */
    bool keeps_out;         /* the program is not in its cgroup, as if the cgroup had refused it */
    int populated;          /* result of cgroup_is_populated() */
    int kill_r, remove_r;   /* results of cgroup_kill_slot(), cgroup_remove_slot() */
    int folder, events;     /* descriptors of the cgroup that was made last */
    int n_kills, n_removed; /* numbers of kills and removals of cgroups */
    int n_signals;          /* number of signals sent by kill() */
    int group_errno;        /* errno with which kill() fails for a group; 0: none */
    int n_adds, fails_at;   /* number of sources added; number of the refused source */
    sd_event_io_handler_t handler; /* handler of the cgroup's events */
    void *userdata;
    int n_warnings;
} kernel;

__typeof__(cgroup_make_slot) __wrap_cgroup_make_slot;
__typeof__(cgroup_kill_slot) __wrap_cgroup_kill_slot;
__typeof__(cgroup_remove_slot) __wrap_cgroup_remove_slot;
__typeof__(cgroup_is_populated) __wrap_cgroup_is_populated;
__typeof__(spawn_process) __real_spawn_process, __wrap_spawn_process;
__typeof__(sd_event_add_io) __real_sd_event_add_io, __wrap_sd_event_add_io;
__typeof__(kill) __real_kill, __wrap_kill;

int __wrap_cgroup_make_slot(const CgroupBase *base, int of, int *ret_folder, int *ret_events,
                            Error *err)
{
    assert_ptr_equal(base, &some_cgroups);
    assert_int_equal(of, slot);
    if (kernel.refuses)
        return error_set(err, -EACCES, "no cgroup for a slot");
    *ret_folder = kernel.folder = eventfd(0, EFD_CLOEXEC);
    *ret_events = kernel.events = 0;
    (void)close(0);
    return eventfd(0, EFD_CLOEXEC); /* returns descriptor 0 */
}

int __wrap_cgroup_kill_slot(const CgroupBase *base, int of)
{
    assert_ptr_equal(base, &some_cgroups);
    assert_int_equal(of, slot);
    kernel.n_kills++;
    return kernel.kill_r;
}

int __wrap_cgroup_remove_slot(const CgroupBase *base, int of)
{
    assert_ptr_equal(base, &some_cgroups);
    assert_int_equal(of, slot);
    kernel.n_removed++;
    return kernel.remove_r;
}

int __wrap_cgroup_is_populated(int events)
{
    assert_int_equal(events, kernel.events);
    return kernel.populated;
}

int __wrap_spawn_process(const SpawnRequest *request, pid_t *ret_pid, int *ret_pidfd, Error *err)
{
    SpawnRequest outside = *request;
    assert_int_equal(request->cgroup, kernel.folder);
    outside.cgroup = -EBADF;
    const int r = __real_spawn_process(&outside, ret_pid, ret_pidfd, err);
    *request->ret_inside = request->cgroup >= 0 && !kernel.keeps_out;
    return r;
}

int __wrap_sd_event_add_io(sd_event *e, sd_event_source **ret, int fd, uint32_t events,
                           sd_event_io_handler_t handler, void *userdata)
{
    if (++kernel.n_adds == kernel.fails_at)
        return -ENOSPC;
    if (fd == kernel.events) {
        assert_int_equal(events, EPOLLPRI);
        kernel.handler = handler;
        kernel.userdata = userdata;
    }
    return __real_sd_event_add_io(e, ret, fd, events, handler, userdata);
}

int __wrap_kill(pid_t pid, int signal)
{
    kernel.n_signals += signal != 0;
    if (pid >= 0 || !kernel.group_errno)
        return __real_kill(pid, signal);
    errno = kernel.group_errno;
    return -1;
}

static void on_log(_unused_ LogLevel level, _unused_ const char *text) { kernel.n_warnings++; }

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static void on_message(void *userdata)
{
    Process *p = userdata;
    n_heard++;
    process_deafen(p);
}
static void on_moved(_unused_ void *userdata) { n_moved++; }

/* Returns whether the child belongs to another slot; no child does. */
static bool is_ours(_unused_ void *userdata, _unused_ pid_t pid) { return false; }

static void begin(Process *p, const char *script)
{
    static const ProcessEvents no_events = {.heard = on_message, .moved = on_moved};
    ProcessEvents events = no_events;
    char mark[128];
    int pair[2];
    Error err = ERROR_INIT;
    orphans_owner_tag(mark, sizeof(mark), "/test-process", slot);
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
    int64_t priority = 0;
    assert_true(sd_event_source_get_priority(p->exit_source, &priority) >= 0);
    /* The end of the program is handled before other events. */
    assert_int_equal(priority, SD_EVENT_PRIORITY_IMPORTANT);
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

/* Waits until the killed group has ended, and reaps its processes here, as sdtraind does at SIGCHLD. */
static void run_until_gone(const Process *p)
{
    const uint64_t until = clock_boottime_usec() + 20 * USEC_PER_SEC;
    while (!process_is_gone(p, "/test-process", is_ours, NULL)) {
        (void)waitpid(-1, NULL, WNOHANG); /* the program itself was reaped before */
        if (sd_event_run(event, 10 * USEC_PER_MSEC) < 0 || clock_boottime_usec() > until)
            fail_msg("something lives on");
    }
}

static void end(Process *p)
{
    char rest[64];
    run_until_gone(p);
    /* No process has the other end of the pipe any more, this process included. */
    assert_int_equal(fcntl(output, F_SETFL, O_NONBLOCK), 0);
    while (read(output, rest, sizeof(rest)) > 0)
        ;
    assert_int_equal(read(output, rest, sizeof(rest)), 0);
    output = fd_close(output);
    const int fds[] = {p->pidfd, p->channel, p->cgroup, p->cgroup_events};
    process_retire(p);
    for (size_t i = 0; i < ELEMENTSOF(fds); i++)
        assert_true(fds[i] < 0 || !is_open(fds[i]));
    assert_int_equal(sessions.of[slot], 0);
    assert_true(p->pidfd == -EBADF && p->channel == -EBADF);
    assert_true(p->cgroup == -EBADF && p->cgroup_events == -EBADF);
    assert_true(!p->exit_source && !p->channel_source && !p->cgroup_source);
    process_close(p);
}

/* Reaps the program, once; then no process has its pid any more. */
static void reap(Process *p, int code, int status)
{
    siginfo_t info;
    assert_true(process_reap(p, &info));
    assert_int_equal(info.si_code, code);
    assert_int_equal(info.si_status, status);
    assert_true(p->exited);
    assert_null(p->exit_source);
    assert_int_equal(waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG), -1);
    assert_false(process_reap(p, &info));
}

static void its_end_ends_what_it_has_started(_unused_ void **state)
{
    Process p;
    begin(&p, "sleep 1000 & exit 3");
    run_until_moved();
    assert_false(process_is_gone(&p, "/test-process", is_ours, NULL));
    reap(&p, CLD_EXITED, 3);
    end(&p);
}

static void is_killed(Process *p)
{
    siginfo_t info;
    assert_false(process_reap(p, &info));
    process_kill(p);
    process_await_exit(p, 20000);
    reap(p, CLD_KILLED, SIGKILL);
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

/* A kill may come right after the start, before the child has made its session and thereby its group. */
static void a_kill_may_come_at_once(_unused_ void **state)
{
    for (int i = 0; i < 50; i++) {
        Process p;
        begin(&p, "exec sleep 1000");
        is_killed(&p);
    }
}

/* Without cgroups only the mark shows which slot a process belongs to. */
static void slot_1_is_not_slot_10(_unused_ void **state)
{
    Process p;
    char up[8];
    slot = 10;
    /* The `:` keeps the shell from an exec, which would hide the mark for a moment. */
    begin(&p, "echo up; sleep 1000; :");
    assert_int_equal(read(output, up, sizeof(up)), 3);
    assert_true(orphans_has_owner_tag(p.pid, "/test-process", 10));
    assert_false(orphans_has_owner_tag(p.pid, "/test-process", 1));
    assert_false(orphans_has_owner_tag(p.pid, "/test-process", 0));
    assert_false(orphans_has_owner_tag(p.pid, "/test-process", 100));
    assert_false(orphans_has_owner_tag(p.pid, "/test", 10));
    assert_true(orphans_has_owner_tag(p.pid, "/test-process", -1));
    is_killed(&p);
    slot = 5;
}

/* A process that has left the group is killed, too: its mark shows its slot. */
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
        if (getsid(pid) == pid && orphans_has_owner_tag(pid, "/test-process", slot))
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
    char text[8] = "";
    begin(&p, "echo hello >&3; echo again >&3; read line <&3");
    run_until_heard();
    assert_int_equal(send(p.channel, "\n", 1, 0), 1);
    run_until_moved();
    assert_int_equal(n_heard, 1); /* `heard` is not called again */
    assert_int_equal(recv(p.channel, text, sizeof(text), MSG_DONTWAIT), 6);
    assert_memory_equal(text, "hello\n", 6);
    reap(&p, CLD_EXITED, 0);
    end(&p);
}

/* ---- in a cgroup ---- */

static void a_cgroup_tells_of_its_end_and_is_killed_and_removed(_unused_ void **state)
{
    Process p;
    char up[8];
    const int input = dup(0);
    needs.cgroups = &some_cgroups;
    kernel.populated = 1;
    begin(&p, "echo up; exec sleep 1000");
    assert_int_equal(read(output, up, sizeof(up)), 3); /* by now the program leads its group */
    assert_int_equal(p.cgroup, kernel.folder);
    assert_int_equal(p.cgroup_events, 0); /* descriptor 0 is valid */
    assert_ptr_equal(kernel.userdata, &p);
    assert_int_equal(kernel.handler(p.cgroup_source, 0, EPOLLPRI, &p), 0);
    assert_int_equal(n_moved, 0);
    kernel.populated = 0;
    assert_int_equal(kernel.handler(p.cgroup_source, 0, EPOLLPRI, &p), 0);
    assert_int_equal(n_moved, 1);

    kernel.group_errno = ESRCH; /* as if the program had moved to another group */
    assert_false(process_is_gone(&p, "/test-process", is_ours, NULL)); /* p is not reaped */
    kernel.group_errno = 0;
    process_kill(&p);
    assert_int_equal(kernel.n_kills, 1);
    assert_int_equal(kernel.n_signals, 1);
    process_await_exit(&p, 20000);
    reap(&p, CLD_KILLED, SIGKILL);
    assert_int_equal(kernel.n_kills, 2); /* the second kill is for the children of the program */
    const int n_signals = kernel.n_signals;
    process_kill(&p);
    assert_int_equal(kernel.n_kills, 3);
    assert_int_equal(kernel.n_signals, n_signals); /* the pid may belong to another process */

    kernel.group_errno = EPERM;
    assert_false(process_is_gone(&p, "/test-process", is_ours, NULL));
    kernel.group_errno = 0;
    kernel.populated = 1;
    assert_false(process_is_gone(&p, "/test-process", is_ours, NULL));
    kernel.populated = -EIO;
    assert_false(process_is_gone(&p, "/test-process", is_ours, NULL));
    kernel.populated = 0;
    kernel.remove_r = -ENOENT;
    end(&p);
    assert_int_equal(kernel.n_removed, 1);
    assert_int_equal(kernel.n_warnings, 0);
    assert_int_equal(dup2(input, 0), 0);
    (void)close(input);
}

/* A process of the program's group that lives outside the cgroup still holds the slot. */
static void a_group_that_lives_holds_the_slot(_unused_ void **state)
{
    Process p;
    char up[8];
    const int input = dup(0);
    needs.cgroups = &some_cgroups;
    begin(&p, "sleep 1000 & echo up; exec sleep 1000");
    assert_int_equal(read(output, up, sizeof(up)), 3);
    kernel.kill_r = -EIO;
    process_kill(&p);
    assert_int_equal(kernel.n_warnings, 1);
    process_await_exit(&p, 20000);
    reap(&p, CLD_KILLED, SIGKILL);
    assert_int_equal(kernel.n_warnings, 2);
    errno = ESRCH; /* errno has no meaning after a success */
    assert_false(process_is_gone(&p, "/test-process", is_ours, NULL)); /* a child is not reaped */
    kernel.remove_r = -EBUSY;
    end(&p);
    assert_int_equal(kernel.n_warnings, 3);
    kernel.n_warnings = 0;
    assert_int_equal(dup2(input, 0), 0);
    (void)close(input);
}

/* A program outside its cgroup is known by its mark: the empty cgroup says nothing about it. */
static void who_is_in_no_cgroup_is_known_by_its_mark(_unused_ void **state)
{
    Process p;
    const int input = dup(0);
    needs.cgroups = &some_cgroups;
    kernel.keeps_out = true;
    begin(&p, "exec sleep 1000");
    assert_true(p.cgroup == -EBADF && p.cgroup_events == -EBADF);
    assert_false(is_open(kernel.folder) || is_open(kernel.events));
    assert_null(kernel.handler);
    is_killed(&p);
    assert_int_equal(kernel.n_kills, 0);
    assert_int_equal(kernel.n_removed, 1);
    assert_int_equal(kernel.n_warnings, 0);
    assert_int_equal(dup2(input, 0), 0);
    (void)close(input);
}

static void without_its_cgroup_nothing_begins(_unused_ void **state)
{
    Process p;
    int pair[2];
    Error err = ERROR_INIT;
    needs.cgroups = &some_cgroups;
    kernel.refuses = true;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    const ProcessProgram program = {.output = pair[1]};
    assert_int_equal(process_start(&needs, slot, &program, &p, &err), -EACCES);
    assert_string_equal(err.text, "no cgroup for a slot");
    assert_int_equal(sessions.of[slot], 0);
    process_close(&p);
    assert_false(is_open(pair[1]) || p.channel >= 0);
    (void)close(pair[0]);
}

/* Just after its start the program leads no group yet; then the program itself gets the signal. */
static void without_its_group_the_program_is_killed(_unused_ void **state)
{
    Process p;
    begin(&p, "exec sleep 1000");
    kernel.group_errno = ESRCH;
    process_kill(&p);
    assert_int_equal(kernel.n_signals, 2);
    process_await_exit(&p, 20000);
    reap(&p, CLD_KILLED, SIGKILL);
    kernel.group_errno = 0;
    end(&p);
}

/* Each refused event source is reported, and no further source is added: a process that is not watched would be
 * lost. */
static void each_source_that_is_refused_is_told(_unused_ void **state)
{
    for (int i = 1; i <= 3; i++) {
        Process p = {.needs = &needs, .pidfd = eventfd(0, EFD_CLOEXEC), .cgroup = -EBADF};
        const ProcessEvents events = {.userdata = &p, .heard = on_message, .moved = on_moved};
        p.channel = eventfd(0, EFD_CLOEXEC);
        p.cgroup_events = eventfd(0, EFD_CLOEXEC);
        kernel.n_adds = 0;
        kernel.fails_at = i;
        assert_int_equal(process_watch(&p, &events), -ENOSPC);
        assert_int_equal(kernel.n_adds, i);
        process_close(&p);
        assert_true(!p.exit_source && !p.channel_source && !p.cgroup_source);
    }
}

static int before_each(_unused_ void **state)
{
    kernel = (struct Kernel){.folder = -EBADF, .events = -EBADF};
    needs.cgroups = &no_cgroups;
    log_lend(on_log);
    return 0;
}

static int set_up(_unused_ void **state)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); /* as sdtraind does */
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
#define CASE(name) cmocka_unit_test_setup(name, before_each)
    const struct CMUnitTest tests[] = {
        CASE(its_end_ends_what_it_has_started),
        CASE(a_kill_ends_all_of_it),
        CASE(a_kill_may_come_at_once),
        CASE(slot_1_is_not_slot_10),
        CASE(a_session_of_its_own_does_not_save_it),
        CASE(its_channel_is_heard_until_that_is_over),
        CASE(a_cgroup_tells_of_its_end_and_is_killed_and_removed),
        CASE(a_group_that_lives_holds_the_slot),
        CASE(who_is_in_no_cgroup_is_known_by_its_mark),
        CASE(without_its_cgroup_nothing_begins),
        CASE(without_its_group_the_program_is_killed),
        CASE(each_source_that_is_refused_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
