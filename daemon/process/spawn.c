/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.c - see spawn.h. */
#include "daemon/process/spawn.h"

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { FIRST_FREE_FD = 10 }; /* descriptors are moved here or above: the child uses 0 to 3 */

typedef struct ChildFds {
    int null, output, channel, program;
    int cgroup_procs; /* the child moves itself into this cgroup; negative: there is no need to */
} ChildFds;

static _noreturn_ void child_fail(const char *what, const char *path)
{
    (void)!write(STDERR_FILENO, what, strlen(what)); /* there is no other way to report */
    (void)!write(STDERR_FILENO, path, strlen(path));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(SPAWN_EXEC_FAILED);
}

/* Drops the privileges that the service manager gave to sdtraind: ranks are the first to be killed when memory runs
 * out, and hold no capability. */
static void leave_privileges(void)
{
    char text[8] = {0};
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC); /* closed by exec */
    (void)!read(fd, text, sizeof(text));
    if (text[0] == '-')
        (void)!pwrite(fd, "0", 1, 0); /* only lowering the value can be refused */
    /* This fails only on a kernel without ambient capabilities. */
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
}

static bool place(int fd, int at) { return fd < 0 || dup2(fd, at) >= 0; }

/* Runs in the child until exec. Makes system calls only, since other threads' locks may be held for ever in the
 * child. */
static _noreturn_ void child_run(const SpawnRequest *request, ChildFds fds, pid_t parent)
{
    const char *path = request->argv[0];
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        child_fail("cannot tie itself to its parent: ", path);
    if (getppid() != parent)
        _exit(SPAWN_EXEC_FAILED); /* the parent died before the prctl */
    if (fds.cgroup_procs >= 0 && write(fds.cgroup_procs, "0", 1) != 1)
        child_fail("cannot enter its cgroup: ", path);

    leave_privileges();
    struct sigaction act = {.sa_handler = SIG_DFL};
    for (int sig = 1; sig <= SIGRTMAX; sig++)
        (void)sigaction(sig, &act, NULL); /* fails only for SIGKILL and SIGSTOP */
    const sigset_t none = {0};
    (void)sigprocmask(SIG_SETMASK, &none, NULL); /* cannot fail with these arguments */

    if (request->shares_session)
        (void)setpgid(0, 0); /* cannot fail for a fresh child */
    else
        (void)setsid(); /* fails only for a group leader, which a fresh child is not */
    if (!place(fds.null, STDIN_FILENO) || !place(fds.output, STDOUT_FILENO) ||
        !place(fds.output, STDERR_FILENO) || !place(fds.channel, 3))
        child_fail("cannot place descriptors for ", path);
    (void)syscall(SYS_close_range, fds.channel >= 0 ? 4U : 3U, ~0U, CLOSE_RANGE_CLOEXEC);

    if (request->folder && chdir(request->folder) < 0)
        child_fail("cannot enter ", request->folder);
    if (fds.program >= 0) /* fails for a script: its interpreter cannot open a CLOEXEC file */
        (void)syscall(SYS_execveat, fds.program, "", request->argv, request->environment,
                      AT_EMPTY_PATH);
    (void)execve(path, request->argv, request->environment);
    child_fail("cannot execute ", path);
}

static int fork_child(const SpawnRequest *request, ChildFds fds, int cgroup, pid_t *ret_pid,
                      int *ret_pidfd)
{
    struct clone_args args = {
        .flags = CLONE_PIDFD | (cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (uint64_t)MAX(cgroup, 0),
    };
    int r = cgroup >= 0 ? fault("spawn.cgroup") : 0;
    if (r < 0)
        return r;
    pid_t parent = getpid();
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    _cleanup_fd_ int procs = -EBADF;
    if (pid < 0 && errno == ENOSYS) { /* sandboxes that can't inspect clone3 refuse it */
        if (cgroup >= 0 && (procs = openat(cgroup, "cgroup.procs", O_WRONLY | O_CLOEXEC)) < 0)
            return -errno;
        fds.cgroup_procs = procs;
        pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, ret_pidfd, NULL, 0UL);
    }
    if (pid == 0)
        child_run(request, fds, parent);
    *ret_pid = (pid_t)pid;
    return pid < 0 ? -errno : 0;
}

/* Duplicates fd to FIRST_FREE_FD or above. A negative fd means none, and stays negative. */
static int raise_fd(int fd, int *ret)
{
    *ret = fd < 0 ? -EBADF : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
    return fd >= 0 && *ret < 0 ? -errno : 0;
}

int spawn_process(const SpawnRequest *request, pid_t *ret_pid, int *ret_pidfd, Error *err)
{
    _cleanup_fd_ int null = -EBADF, output = -EBADF, channel = -EBADF, program = -EBADF;
    assert(request->argv[0] && request->environment);
    _cleanup_fd_ int opened = open("/dev/null", O_RDWR | O_CLOEXEC);
    int r = opened < 0 ? -errno : raise_fd(opened, &null);
    if (r == 0)
        r = raise_fd(request->output, &output);
    if (r == 0)
        r = raise_fd(request->channel, &channel);
    if (r == 0)
        r = raise_fd(request->program > 0 ? request->program : -EBADF, &program);
    if (r < 0)
        return error_errno(err, r, "cannot prepare descriptors for %s", request->argv[0]);

    ChildFds fds = {null, output, channel, program, -EBADF};
    int pidfd = -EBADF;
    pid_t pid = 0;
    r = fork_child(request, fds, request->cgroup, &pid, &pidfd);
    bool inside = r == 0 && request->cgroup >= 0;
    if (r < 0 && request->cgroup >= 0) {
        log_warning("cannot start a process inside its cgroup (%s); going on without",
                    strerror(-r));
        r = fork_child(request, fds, -EBADF, &pid, &pidfd);
    }
    if (r < 0)
        return error_errno(err, r, "cannot start %s", request->argv[0]);
    *ret_pid = pid;
    *ret_pidfd = pidfd;
    if (request->ret_inside)
        *request->ret_inside = inside;
    return 0;
}
