/* SPDX-License-Identifier: Apache-2.0 */
/* testing-runner.c - see testing-runner.h. */
#include "exec/test/testing-runner.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/memory.h"
#include "exec/runner.h"
#include "protocol/exec-variables.h"
#include "protocol/exit-code.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

char folder[] = "/tmp/test-runner-XXXXXX";
char self[PATH_MAX];
int runner_log = -EBADF, runner_room = -1;
const char *runner_checkpoint = "";
ChannelHeld runner_held;
TestedRunner run;

void start_runner(int slot)
{
    int pair[2], out[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    run = (TestedRunner){.channel = pair[0], .output = out[0]};
    assert_int_equal(fcntl(out[0], F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(fcntl(pair[0], F_SETFL, O_NONBLOCK), 0);
    (void)fflush(NULL);
    run.pid = fork();
    assert_true(run.pid >= 0);
    if (run.pid == 0) {
        char dir[200], number[40], secrets[200];
        Error err = ERROR_INIT;
        (void)setsid();
        if (fault_open(&err) < 0)
            _exit(98);
        (void)dup2(out[1], STDOUT_FILENO);
        if (runner_log >= 0)
            (void)dup2(runner_log, STDERR_FILENO);
        if (runner_room >= 0)
            (void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &runner_room, sizeof(runner_room));
        (void)close(pair[0]);
        (void)snprintf(dir, sizeof(dir), EXEC_DIR_VARIABLE "=%s/exec", folder);
        (void)snprintf(secrets, sizeof(secrets), EXEC_SECRETS_VARIABLE "=%s/secrets", folder);
        (void)snprintf(number, sizeof(number), "SDTRAIN_SLOT=%d", slot);
        char *const environment[] = {dir,
                                     number,
                                     secrets,
                                     (char[]){"NODE_SAYS=hello"},
                                     (char[]){"SDTRAIN_OWNER=/run/x:0"},
                                     (char[]){"SDTRAIN_LOG=debug"},
                                     NULL};
        _exit(runner_run(pair[1], environment));
    }
    (void)close(pair[1]);
    (void)close(out[1]);
}

static void drain(void)
{
    ssize_t n;
    while ((n = read(run.output, run.printed + run.n_printed,
                     sizeof(run.printed) - 1 - run.n_printed)) > 0)
        run.n_printed += (size_t)n;
    run.printed[run.n_printed] = '\0';
}

void next(ChannelMessage *m)
{
    const uint64_t until = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    for (;;) {
        Error err = ERROR_INIT;
        channel_message_clear(m);
        drain();
        int r = channel_receive(run.channel, m, &err);
        if (r == 0 && m->type != CHANNEL_STAGE)
            return;
        if (r == 0)
            continue;
        if (r != -EAGAIN || clock_boottime_usec() > until)
            fail_msg("no message: %s", err.text);
        struct pollfd p = {.fd = run.channel, .events = POLLIN};
        (void)poll(&p, 1, 50);
    }
}

void expect(ChannelType type, ChannelMessage *m)
{
    next(m);
    if (m->type != type)
        fail_msg("%s (%s) instead of %s", channel_type_name(m->type),
                 m->type == CHANNEL_ERROR ? m->text : "", channel_type_name(type));
}

void tell(ChannelMessage *m)
{
    Error err = ERROR_INIT;
    m->generation = run.generation;
    if (channel_send(run.channel, m, &err) < 0)
        fail_msg("%s", err.text);
}

char *spec(const char *action, const char *more, const char *keys)
{
    return memory_format(
        "{\"name\": \"demo\", \"kind\": \"exec\", \"world\": {\"min\": 1, \"max\": 2}, "
        "\"checkpoint\": {\"uri\": \"/ckpt\"}, \"exec\": {\"command\": [\"%s\", \"program\", \"%s\"], "
        "\"dir\": \"%s\"%s}%s}",
        self, action, folder, more, keys);
}

char *eval_spec(const char *action)
{
    return memory_format(
        "{\"name\": \"demo\", \"kind\": \"eval\", \"of\": {\"job\": \"other\"}, \"world\": {\"min\": 1, \"max\": 2}, "
        "\"checkpoint\": {\"uri\": \"/ckpt\"}, \"exec\": {\"command\": [\"%s\", \"program\", \"%s\"], "
        "\"dir\": \"%s\", \"steps\": 5}}",
        self, action, folder);
}

void assign_rank(char *text, int rank, const char *submission)
{
    ChannelMessage m = {0};
    expect(CHANNEL_HELLO, &m);
    assert_int_equal(m.pid, run.pid);
    run.generation = 4;
    m = (ChannelMessage){.type = CHANNEL_ASSIGN,
                         .assign = {.rank = rank,
                                    .world_size = 2,
                                    .job = "demo",
                                    .node = "n1",
                                    .spec = text,
                                    .bind_address = "127.0.0.1"}};
    (void)snprintf(m.assign.submission, sizeof(m.assign.submission), "%s", submission);
    (void)snprintf(m.assign.resume_uri, sizeof(m.assign.resume_uri), "%s", runner_checkpoint);
    m.assign.resume_step = *runner_checkpoint ? 7 : 0;
    tell(&m);
    free(text);
}

void go(char *text, int rank)
{
    ChannelMessage m = {0};
    start_runner(0);
    assign_rank(text, rank, "s1");
    if (rank == 0)
        expect(CHANNEL_RENDEZVOUS, &m);
    expect(CHANNEL_READY, &m);
    m = (ChannelMessage){.type = CHANNEL_GO, .address = "127.0.0.1:29999", .held = runner_held};
    tell(&m);
}

int reap(void)
{
    int status;
    assert_int_equal(waitpid(run.pid, &status, 0), run.pid);
    drain();
    (void)close(run.channel);
    (void)close(run.output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void expect_error(int code, const char *text)
{
    ChannelMessage m = {0};
    expect(CHANNEL_ERROR, &m);
    assert_int_equal(m.exit_code, code);
    assert_string_equal(m.text, text);
    assert_int_equal(reap(), code < 0 ? EXIT_RETRY : code);
}

void expect_done(const char *end)
{
    ChannelMessage m = {0};
    expect(CHANNEL_DONE, &m);
    assert_string_equal(m.end, end);
    assert_int_equal(reap(), 0);
}

bool exists(const char *name)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

void await_file(const char *name)
{
    const uint64_t until = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    while (!exists(name)) {
        if (clock_boottime_usec() > until)
            fail_msg("%s does not appear", name);
        (void)usleep(2000);
    }
}

void await_read(void)
{
    const uint64_t until = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    for (int unread = 1; unread > 0; (void)usleep(2000)) {
        assert_int_equal(ioctl(run.channel, SIOCOUTQ, &unread), 0);
        if (clock_boottime_usec() > until)
            fail_msg("%d bytes are not read", unread);
    }
}

void forget_file(const char *name)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    (void)unlink(path);
}

static int keep_secrets(void)
{
    char path[300];
    (void)snprintf(path, sizeof(path), "%s/secrets", folder);
    int r = file_write(path, "TOKEN=hunter2secret\n", 20, 0, NULL);
    return r < 0 ? r : chmod(path, 0600);
}

int runner_tests_begin(void)
{
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0 || !mkdtemp(folder) || keep_secrets() < 0)
        return -1;
    self[n] = '\0';
    (void)signal(SIGPIPE, SIG_IGN);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    return 0;
}

void runner_tests_end(void) { (void)folder_remove(folder, NULL); }
