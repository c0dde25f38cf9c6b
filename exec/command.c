/* SPDX-License-Identifier: Apache-2.0 */
/* command.c - see command.h. */
#include "exec/command.h"

#include "base/cleanup.h"
#include "base/memory.h"
#include "daemon/process/spawn.h"
#include "exec/program-path.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

enum { PIPE_BYTES = 1 << 20 };

static int spawn(Command *c, char **arguments, const char *folder, char *const *environment,
                 int output, Error *err)
{
    const SpawnRequest request = {.argv = arguments,
                                  .environment = environment,
                                  .folder = folder,
                                  .shares_session = true,
                                  .output = output,
                                  .channel = -EBADF,
                                  .cgroup = -EBADF};
    return spawn_process(&request, &c->pid, &c->pidfd, err);
}

int command_start(Command *c, char *const *command, const char *folder, const ExecValues *values,
                  char *const *environment, int *ret_output, Error *err)
{
    char program[PATH_MAX];
    int pipes[2];
    const char *path = exec_environment_find(environment, "PATH");
    int r = exec_find_program(folder, command[0], path ? path : "", program, err);
    if (r < 0)
        return r;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return error_errno(err, -errno, "cannot make a pipe");
    _cleanup_fd_ int from = pipes[0], to = pipes[1];
    (void)fcntl(from, F_SETPIPE_SZ, PIPE_BYTES); /* a smaller pipe only costs speed */
    if (fcntl(from, F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, -errno, "cannot prepare a pipe");
    char **arguments = exec_arguments_new(command, values);
    free(arguments[0]);
    arguments[0] = memory_text(program);
    r = spawn(c, arguments, folder, environment, to, err);
    memory_free_texts(arguments);
    if (r == 0)
        *ret_output = TAKE_FD(from);
    return r;
}

void command_kill(const Command *c)
{
    if (c->pid > 0 && kill(-c->pid, SIGKILL) < 0) /* not reaped yet, so the pid is the command's */
        (void)kill(c->pid, SIGKILL);              /* just after its start it leads no group yet */
}

bool command_reap(Command *c)
{
    siginfo_t info = {0};
    if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
        info.si_pid == 0)
        return false;
    command_kill(c);
    (void)waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG); /* cannot fail: the end was seen */
    c->end = (ExecEnd){info.si_code, info.si_status};
    c->pid = 0;
    c->pidfd = fd_close(c->pidfd);
    return true;
}

void command_clear(Command *c)
{
    command_kill(c);
    c->pidfd = fd_close(c->pidfd);
}
