/* SPDX-License-Identifier: Apache-2.0 */
/* exec-check.c - see exec-check.h. */
#include "trainer/exec-check.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 8, ANSWER_MAX = 4096 };

static int spawn(ExecCheck *check, int write_end)
{
    const char *argv[ARGUMENTS_MAX + 1] = {check->runner, "look"};
    size_t n = 2;
    if (check->user && check->socket) {
        argv[n++] = "--user";
        argv[n++] = check->user;
        argv[n++] = "--socket";
        argv[n++] = check->socket;
    }
    if (check->secrets) {
        argv[n++] = "--secrets";
        argv[n++] = check->secrets;
    }
    assert(n <= ARGUMENTS_MAX);
    posix_spawn_file_actions_t actions;
    int r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return -r;
    for (int fd = STDOUT_FILENO; r == 0 && fd <= STDERR_FILENO; fd++)
        r = posix_spawn_file_actions_adddup2(&actions, write_end, fd);
    if (r == 0)
        r = posix_spawn(&check->pid, check->runner, &actions, NULL, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions); /* always returns 0 */
    return -r;
}

void exec_check_begin(ExecCheck *check)
{
    int fds[2];
    check->pid = 0;
    check->end_usec = clock_boottime_usec() + EXEC_CHECK_SEC * USEC_PER_SEC;
    check->output = -EBADF;
    if (pipe2(fds, O_CLOEXEC) < 0) {
        check->r = -errno;
        return;
    }
    check->output = fds[0];
    check->r = spawn(check, fds[1]);
    (void)fd_close(fds[1]);
}

/* Returns the bytes of the child's output, which is bounded by time and size. */
static size_t read_answer(const ExecCheck *check, char ret[ANSWER_MAX])
{
    size_t n = 0;
    for (uint64_t now_usec; (now_usec = clock_boottime_usec()) < check->end_usec;) {
        struct pollfd fd = {.fd = check->output, .events = POLLIN};
        if (poll(&fd, 1, (int)((check->end_usec - now_usec) / USEC_PER_MSEC) + 1) <= 0)
            continue;
        const ssize_t more = read(check->output, ret + n, ANSWER_MAX - 1 - n);
        if (more <= 0)
            break;
        n += (size_t)more;
        assert(n < ANSWER_MAX);
    }
    ret[n] = '\0';
    while (n > 0 && ret[n - 1] == '\n')
        ret[--n] = '\0';
    return n;
}

static json_t *error_json(const char *text)
{
    json_t *error = json_pack("{s:s}", "error", text);
    return error ? error : json_pack("{s:s}", "error", "its text is not UTF-8");
}

json_t *exec_check_end(ExecCheck *check)
{
    char text[ANSWER_MAX];
    if (check->r < 0) {
        (void)snprintf(text, sizeof(text), "%.400s: %s", check->runner, strerror(-check->r));
        (void)fd_close(check->output);
        return error_json(text);
    }
    assert(check->pid > 0);
    const size_t n = read_answer(check, text);
    (void)fd_close(check->output);
    (void)kill(check->pid, SIGKILL); /* the child is not yet reaped */
    (void)waitpid(check->pid, NULL, 0);
    json_t *answer = json_loads(text, 0, NULL);
    if (json_is_object(answer))
        return answer;
    json_decref(answer);
    const char *newline = strrchr(text, '\n');
    return error_json(n == 0 ? "no answer" : newline ? newline + 1 : text);
}
