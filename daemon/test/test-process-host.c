/* SPDX-License-Identifier: Apache-2.0 */
/* test-process-host.c - a slot's program that runs below a host: this test is sdtraind, and starts a host for each
 * connection, as systemd does. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/test/testing.h"
#include "daemon/process/host-look.h"
#include "daemon/process/host.h"
#include "daemon/process/process.h"
#include "daemon/process/spawn.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { WAIT_MSEC = 30000, SLOT = 5 };

static char folder[] = "/tmp/test-host-XXXXXX", path[64], run_dir[64];
static sd_event *event;
static RankSessions sessions;
static const CgroupBase no_cgroups;
static ProcessNeeds needs = {.cgroups = &no_cgroups, .sessions = &sessions};
static int listener, output, n_heard, n_moved;
static pid_t host;
static bool is_bad_host; /* the next host ends at once */
static int opened;       /* the program that the request has; 0: none */

/* ---- systemd ---- */

static void listen_again(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 8), 0);
}

/* Starts a host whose program is this script. */
static void start_host(const char *script)
{
    const int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(connection >= 0);
    host = fork();
    assert_true(host >= 0);
    if (host == 0) {
        char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char *)script, NULL};
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close_range(3, (unsigned)connection - 1,
                          0); /* also the other end of the connection */
        (void)close_range((unsigned)connection + 1, ~0U, 0);
        if (is_bad_host)
            _exit(3);
        _exit(host_run(connection, argv, "STATE=/of/the/unit"));
    }
    (void)close(connection);
}

static int host_status(void)
{
    int status;
    assert_int_equal(waitpid(host, &status, 0), host);
    return status;
}

/* ---- sdtraind ---- */

static void on_message(_unused_ void *userdata) { n_heard++; }
static void on_moved(_unused_ void *userdata) { n_moved++; }
static bool is_ours(_unused_ void *userdata, _unused_ pid_t pid) { return false; }
static bool is_gone(const Process *p) { return process_is_gone(p, run_dir, is_ours, NULL); }

static void begin(Process *p, const char *script, uid_t user)
{
    static const ProcessEvents events = {.heard = on_message, .moved = on_moved};
    char mark[128];
    int pair[2];
    Error err = ERROR_INIT;
    orphans_owner_tag(mark, sizeof(mark), run_dir, SLOT);
    char *environment[] = {(char[]){"PATH=/usr/bin:/bin"}, (char[]){"STATE=/of/sdtraind"}, mark,
                           NULL};
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    output = pair[0];
    const ProcessProgram program = {.environment = environment,
                                    .output = pair[1],
                                    .program = opened,
                                    .host = path,
                                    .host_user = user};
    n_heard = n_moved = 0;
    if (process_start(&needs, SLOT, &program, p, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(p->pid == 0 && p->host >= 0);
    assert_int_equal(process_watch(p, &events), 0);
    start_host(script);
}

static void run_once(void) { assert_true(sd_event_run(event, 20 * USEC_PER_MSEC) >= 0); }

static siginfo_t await_end(Process *p)
{
    siginfo_t info, again;
    const uint64_t until_usec = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    do { /* nothing is received before the loop has said that something moved */
        assert_true(clock_boottime_usec() < until_usec);
        run_once();
    } while (n_moved == 0 || !process_reap(p, &info));
    assert_false(process_reap(p, &again)); /* the end is reported once */
    return info;
}

static void await_gone(Process *p)
{
    siginfo_t info;
    const uint64_t until_usec = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    while (!is_gone(p)) {
        assert_true(clock_boottime_usec() < until_usec);
        run_once();
        (void)process_reap(p, &info); /* receives what the host has sent */
    }
    process_retire(p);
}

static void await_pid(Process *p)
{
    siginfo_t info;
    const uint64_t until_usec = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    while (p->pid == 0) {
        assert_true(clock_boottime_usec() < until_usec);
        run_once();
        assert_false(process_reap(p, &info));
    }
}

/* Reads the next line that the program prints. */
static char *read_line(void)
{
    static char line[200];
    size_t n = 0;
    while (n < sizeof(line) - 1 && read(output, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = '\0';
    return line;
}

static void await_death(pid_t pid)
{
    const uint64_t until_usec = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    while (kill(pid, 0) == 0) {
        (void)waitpid(pid, NULL, WNOHANG); /* this test is the subreaper */
        assert_true(clock_boottime_usec() < until_usec);
        (void)usleep(2000);
    }
}

static void expect_end(Process *p, int code, int status)
{
    const siginfo_t info = await_end(p);
    assert_int_equal(info.si_code, code);
    assert_int_equal(info.si_status, status);
}

static int set_up(_unused_ void **state)
{
    is_bad_host = false;
    return sd_event_new(&event) < 0 || (needs.event = event, listen_again(), 0);
}

static int tear_down(_unused_ void **state)
{
    event = sd_event_unref(event);
    (void)close(listener);
    (void)close(output);
    return unlink(path);
}

/* ---- the tests ---- */

static void a_program_runs_below_its_host(_unused_ void **state)
{
    Process p;
    char text[32];
    begin(&p, "echo $STATE; echo $$; echo word >&3; read x <&3; exit 7", getuid());
    assert_string_equal(read_line(), "/of/the/unit");
    const pid_t pid = atoi(read_line());
    await_pid(&p);
    assert_int_equal(p.pid, pid);
    const uint64_t until_usec = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    while (n_heard == 0 && clock_boottime_usec() < until_usec)
        run_once();
    assert_int_equal(recv(p.channel, text, sizeof(text), MSG_DONTWAIT), 5);
    assert_int_equal(send(p.channel, "x", 1, 0), 1); /* the shell reads a byte of each packet */
    assert_int_equal(send(p.channel, "\n", 1, 0), 1);
    expect_end(&p, CLD_EXITED, 7);
    await_gone(&p);
    assert_int_equal(host_status(), 0);
}

/* An upgrade does not change the program of a running sdtraind. */
static void the_open_program_is_executed(_unused_ void **state)
{
    Process p;
    _cleanup_fd_ int program = open("/bin/false", O_PATH | O_CLOEXEC);
    assert_true(program > 0);
    opened = program;
    begin(&p, "exit 9", getuid());
    opened = 0;
    expect_end(&p, CLD_EXITED, 1);
    await_gone(&p);
    assert_int_equal(host_status(), 0);
}

static void a_kill_reaches_all_processes(_unused_ void **state)
{
    Process p;
    begin(&p, "setsid sh -c 'echo $$; sleep 600' & echo; read x <&3", getuid());
    pid_t child = atoi(read_line());
    child = child ? child : atoi(read_line()); /* the empty line may come first */
    assert_true(child > 1);
    await_pid(&p);
    process_kill(&p);
    expect_end(&p, CLD_KILLED, SIGKILL);
    await_gone(&p);
    await_death(child);
    assert_int_equal(host_status(), 0);
}

/* A process that the program leaves behind is killed without a request. */
static void nothing_of_an_ended_program_lives_on(_unused_ void **state)
{
    Process p;
    begin(&p, "setsid sleep 600 & echo $!; exit 3", getuid());
    const pid_t child = atoi(read_line());
    expect_end(&p, CLD_EXITED, 3);
    await_gone(&p);
    await_death(child);
    assert_int_equal(host_status(), 0);
}

static void a_program_dies_with_its_host(_unused_ void **state)
{
    Process p;
    begin(&p, "echo $$; read x <&3", getuid());
    const pid_t pid = atoi(read_line());
    await_pid(&p);
    assert_int_equal(kill(host, SIGKILL), 0);
    expect_end(&p, CLD_KILLED, SIGKILL);
    await_death(pid);
    await_gone(&p);
    (void)host_status();
}

static void a_program_dies_with_the_connection(_unused_ void **state)
{
    Process p;
    begin(&p, "setsid sh -c 'echo $$; sleep 600' & trap '' TERM; sleep 600", getuid());
    const pid_t child = atoi(read_line());
    process_close(&p); /* as at the death of sdtraind */
    assert_int_equal(host_status(), 0);
    assert_int_equal(kill(child, 0), -1);
    await_death(child);
}

/* A host that stands still does not let its slot pass for clear. */
static void a_host_that_stands_still_is_not_gone(_unused_ void **state)
{
    Process p;
    siginfo_t info;
    begin(&p, "echo $$; read x <&3", getuid());
    const pid_t pid = atoi(read_line());
    await_pid(&p);
    assert_int_equal(kill(host, SIGSTOP), 0);
    assert_int_equal(waitpid(host, NULL, WUNTRACED), host);
    process_kill(&p);
    run_once();
    assert_false(process_reap(&p, &info));
    assert_false(is_gone(&p));
    assert_int_equal(kill(pid, 0), 0);
    assert_int_equal(kill(host, SIGCONT), 0);
    expect_end(&p, CLD_KILLED, SIGKILL);
    await_gone(&p);
    assert_int_equal(host_status(), 0);
}

static void a_host_that_cannot_start_is_told(_unused_ void **state)
{
    Process p;
    is_bad_host = true;
    begin(&p, "exit 0", getuid());
    expect_end(&p, CLD_EXITED, SPAWN_EXEC_FAILED);
    assert_string_equal(read_line(), "its host has ended before it started the program: journalctl "
                                     "-u 'sdtrain-exec@*' shows why");
    await_gone(&p);
    (void)host_status();
}

/* A program of another user than the settings name ends at once. */
static void a_host_of_another_user_is_refused(_unused_ void **state)
{
    Process p;
    begin(&p, "read x <&3", getuid() + 1);
    expect_end(&p, CLD_EXITED, SPAWN_EXEC_FAILED);
    await_gone(&p);
    assert_int_equal(host_status(), 0);
}

static void without_a_socket_nothing_is_started(_unused_ void **state)
{
    static char *environment[] = {NULL};
    char none[80];
    Process p;
    Error err = ERROR_INIT;
    (void)snprintf(none, sizeof(none), "%s/none", folder);
    const ProcessProgram program = {.environment = environment,
                                    .output = open("/dev/null", O_WRONLY | O_CLOEXEC),
                                    .host = none};
    assert_int_equal(process_start(&needs, SLOT, &program, &p, &err), -ENOENT);
    assert_non_null(strstr(err.text, none));
    process_close(&p);
    output = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* ---- a look without a rank ---- */

/* Serves the next connection in a process of its own, which ends with the host. */
static pid_t serve_one(const char *script)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        start_host(script);
        _exit(host_status() == 0 ? 0 : 1);
    }
    return pid;
}

static int look(const char *script, uid_t user, char ret[HOST_LOOK_MAX], Error *err)
{
    char *environment[] = {(char[]){"PATH=/usr/bin:/bin"}, (char[]){"ASKED=it"}, NULL};
    int status;
    const pid_t pid = serve_one(script);
    const int r = host_look(path, user, environment, ret, err);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return r;
}

static void a_unit_is_tried_without_a_rank(_unused_ void **state)
{
    char text[HOST_LOOK_MAX];
    Error err = ERROR_INIT;
    output = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (look("echo $ASKED; sleep 0.1; echo more", getuid(), text, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(text, "it\nmore\n");
    assert_int_equal(look("yes | head -c 100000", getuid(), text, &err), 0);
    assert_int_equal(strlen(text), HOST_LOOK_MAX - 1); /* what is too much is dropped */
    assert_int_equal(look("exit 3", getuid(), text, &err), -ENODATA);
    assert_string_equal(text, "");
    assert_int_equal(look("sleep 1; echo late", getuid() + 1, text, &err), -EPERM);
    assert_non_null(strstr(err.text, path));
    is_bad_host = true;
    assert_int_equal(look("echo never", getuid(), text, &err), -ENODATA);
    is_bad_host = false;
    assert_int_equal(host_look("/none", getuid(), (char *[]){NULL}, text, &err), -ENOENT);
}

/* ---- messages ---- */

static void only_messages_of_this_version_are_taken(_unused_ void **state)
{
    static const char *const bad[] = {
        "started",        "started 1 2",   "begun 1 2 3 ",
        "started x 2 3 ", "kill\0 1 2 3 ", "started 1 2 3",
    };
    int pair[2];
    uid_t user;
    HostMessage m;
    HostRequest request;
    output = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(host_receive(pair[0], &m, &user), -EAGAIN);
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        const size_t n = i == 4 ? 13 : strlen(bad[i]);
        assert_int_equal(send(pair[1], bad[i], n, 0), (ssize_t)n);
        const int r = host_receive(pair[0], &m, &user);
        if (r != (i == 5 ? 0 : -EBADMSG))
            fail_msg("%s: %d", bad[i], r);
    }
    const HostMessage all = {
        .type = HOST_STARTED, .pid = 7, .code = -2, .status = 9, .cgroup = "/a b/c"};
    assert_int_equal(host_send(pair[1], &all), 0);
    assert_int_equal(host_receive(pair[0], &m, &user), 0);
    assert_true(m.type == HOST_STARTED && m.pid == 7 && m.code == -2 && m.status == 9);
    assert_string_equal(m.cgroup, "/a b/c");

    char *many[HOST_ENVIRONMENT_MAX + 2] = {NULL};
    for (size_t i = 0; i <= HOST_ENVIRONMENT_MAX; i++)
        many[i] = (char *)"A=1";
    assert_int_equal(host_send_request(pair[1], many, 0, 0, 0), -E2BIG);
    many[HOST_ENVIRONMENT_MAX] = NULL;
    assert_int_equal(host_send_request(pair[1], many, 0, 0, 0), 0);
    assert_int_equal(host_receive_request(pair[0], &request), 0);
    assert_string_equal(request.environment[HOST_ENVIRONMENT_MAX - 1], "A=1");
    assert_null(request.environment[HOST_ENVIRONMENT_MAX]);
    assert_true(request.channel > 2 && request.output > 2 && request.program < 0);
    host_request_clear(&request);
    assert_int_equal(host_send(pair[1], &all), 0); /* no request: it has no descriptors */
    assert_int_equal(host_receive_request(pair[0], &request), -EBADMSG);
    (void)close(pair[1]);
    assert_int_equal(host_receive(pair[0], &m, &user), -EPIPE);
    (void)close(pair[0]);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_program_runs_below_its_host),        CASE(the_open_program_is_executed),
        CASE(a_kill_reaches_all_processes),         CASE(nothing_of_an_ended_program_lives_on),
        CASE(a_program_dies_with_its_host),         CASE(a_program_dies_with_the_connection),
        CASE(a_host_that_stands_still_is_not_gone), CASE(a_host_that_cannot_start_is_told),
        CASE(a_host_of_another_user_is_refused),    CASE(without_a_socket_nothing_is_started),
        CASE(a_unit_is_tried_without_a_rank),       CASE(only_messages_of_this_version_are_taken),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!mkdtemp(folder))
        return 1;
    (void)snprintf(path, sizeof(path), "%s/socket", folder);
    (void)snprintf(run_dir, sizeof(run_dir), "%s/run", folder);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
