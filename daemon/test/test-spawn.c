/* SPDX-License-Identifier: Apache-2.0 */
/* test-spawn.c - what a child inherits of its parent's rights, descriptors and signals; how a child starts without
 * clone3, and after its program's file was replaced. */
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "daemon/process/orphans.h"
#include "daemon/process/spawn.h"
#include "daemon/world/trainer-environment.h"
#include "protocol/channel.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Makes clone3 fail with ENOSYS in this process from now on, as systemd's RestrictNamespaces= does. */
static int take_clone3_away(_unused_ void **state)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ELEMENTSOF(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int status_of(const SpawnRequest *request)
{
    Error err = ERROR_INIT;
    pid_t pid = 0;
    _cleanup_fd_ int pidfd = -EBADF;
    assert_int_equal(spawn_process(request, &pid, &pidfd, &err), 0);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
    return info.si_status;
}

static void a_child_enters_its_cgroup_by_itself(_unused_ void **state)
{
    assert_int_equal(syscall(SYS_clone3, NULL, 0), -1);
    assert_int_equal(errno, ENOSYS);

    /* A folder that looks like a cgroup to the child. */
    char folder[] = "/tmp/test-spawn-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
    Error err = ERROR_INIT;
    assert_int_equal(file_write(path, "", 0, 0, &err), 0);
    const int input = dup(0), opened = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int cgroup = dup2(opened, 0); /* descriptor 0 is valid */
    bool inside = false;
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char[]){"exit 7"}, NULL};
    SpawnRequest request = {.argv = argv,
                            .environment = environ,
                            .output = -EBADF,
                            .channel = -EBADF,
                            .cgroup = cgroup,
                            .ret_inside = &inside};
    pid_t pid = 0;
    _cleanup_fd_ int pidfd = -EBADF;
    assert_int_equal(spawn_process(&request, &pid, &pidfd, &err), 0);
    struct pollfd ends = {.fd = pidfd, .events = POLLIN};
    assert_int_equal(poll(&ends, 1, 60000), 1);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
    assert_int_equal(info.si_status, 7);

    _cleanup_free_ char *text = NULL;
    size_t n = 0;
    assert_int_equal(file_read(path, 100, &text, &n, &err), 0);
    assert_string_equal(text, "0");
    assert_true(inside);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no other child was started */
    assert_int_equal(setenv("SDTRAIN_FAULT", "spawn.cgroup=eio", 1) | fault_open(&err), 0);
    request.environment = environ; /* setenv() may have moved it */
    assert_int_equal(status_of(&request), 7);
    assert_false(inside);
    (void)unsetenv("SDTRAIN_FAULT");
    (void)unlink(path);

    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC) | symlink("/dev/full", path), 0);
    request.output = out[1];
    char said[64] = "";
    const int standard_error = dup(2);
    assert_int_equal(dup2(out[1], 2), 2); /* the child gets its own stderr later */
    const int status = status_of(&request);
    assert_int_equal(dup2(standard_error, 2), 2);
    (void)close(standard_error);
    assert_int_equal(status, SPAWN_EXEC_FAILED);
    assert_true(read(out[0], said, sizeof(said) - 1) > 0);
    assert_string_equal(said, "cannot enter its cgroup: /bin/sh\n");
    (void)unlink(path);
    assert_int_equal(status_of(&request), 7); /* the child runs, though outside the cgroup */
    assert_false(inside);
    (void)close(out[1]), (void)close(out[0]);
    (void)rmdir(folder);
    (void)dup2(input, 0), (void)close(input), (void)close(opened);
}

static void copy_file(const char *from, const char *to)
{
    _cleanup_free_ char *bytes = NULL;
    size_t n = 0;
    assert_int_equal(file_read(from, 1 << 24, &bytes, &n, NULL), 0);
    assert_int_equal(file_write(to, bytes, n, 0, NULL), 0);
    assert_int_equal(chmod(to, 0755), 0);
}

/* A program that was opened before is executed, even after an upgrade has replaced its file. */
static void an_open_program_outlives_its_file(_unused_ void **state)
{
    char folder[] = "/tmp/test-spawn-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/program", folder);
    copy_file("/bin/true", path);
    /* In the child, the channel has the number 3, too. */
    int opened = open(path, O_PATH | O_CLOEXEC), program = 3;
    assert_true(opened == program || (dup3(opened, program, O_CLOEXEC) == 3 && close(opened) == 0));
    _cleanup_fd_ int channel = open("/dev/null", O_RDWR | O_CLOEXEC);
    copy_file("/bin/false", path);

    char *argv[] = {path, NULL};
    SpawnRequest request = {.argv = argv,
                            .environment = environ,
                            .output = -EBADF,
                            .channel = channel,
                            .cgroup = -EBADF};
    assert_int_equal(status_of(&request), 1);
    const int input = dup(0);
    assert_int_equal(dup2(program, 0), 0);
    request.program = 0; /* 0: the path is executed */
    assert_int_equal(status_of(&request), 1);
    assert_int_equal(dup2(input, 0), 0);
    (void)close(input);
    request.program = program;
    assert_int_equal(status_of(&request), 0);
    (void)close(program);

    static const char script[] = "#!/bin/sh\nexit 9\n";
    assert_int_equal(file_write(path, script, strlen(script), 0, NULL), 0);
    assert_int_equal(chmod(path, 0755), 0);
    request.program = open(path, O_PATH | O_CLOEXEC);
    assert_int_equal(status_of(&request), 9);
    (void)close(request.program);
    assert_int_equal(folder_remove(folder, NULL), 0);
}

/* ---- rights ---- */

static const char *oom_file; /* used instead of /proc/self/oom_score_adj */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (strcmp(path, "/proc/self/oom_score_adj") == 0 && oom_file)
        path = oom_file;
    return __real_open(path, flags, mode);
}

/* A child that runs until its channel is closed. */
typedef struct Child {
    pid_t pid;
    int pidfd, channel, output;
} Child;

static const int *lent; /* both ends of the next child's channel; NULL: a new pair is made */

static Child begin(int cgroup, bool *inside)
{
    Child c = {.pidfd = -EBADF};
    char up[8];
    int pair[2], out[2];
    Error err = ERROR_INIT;
    assert_int_equal(lent ? 0 : socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    if (lent)
        memcpy(pair, lent, sizeof(pair));
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char[]){"echo up; read x <&3"}, NULL};
    const SpawnRequest request = {.argv = argv,
                                  .environment = environ,
                                  .output = out[1],
                                  .channel = pair[1],
                                  .cgroup = cgroup,
                                  .ret_inside = inside};
    errno = ENOSYS; /* errno has no meaning after a success */
    assert_int_equal(spawn_process(&request, &c.pid, &c.pidfd, &err), 0);
    (void)close(out[1]), (void)close(pair[1]);
    assert_int_equal(read(out[0], up, sizeof(up)), 3);
    c.channel = pair[0];
    c.output = out[0];
    return c;
}

static void end(Child *c)
{
    siginfo_t info = {0};
    c->channel = fd_close(c->channel);
    c->output = fd_close(c->output);
    assert_int_equal(waitid(P_PIDFD, (id_t)c->pidfd, &info, WEXITED), 0);
    assert_int_equal(info.si_pid, c->pid);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no other child was started */
    c->pidfd = fd_close(c->pidfd);
}

/* Returns a field of /proc/PID/status, read as a hexadecimal number. */
static unsigned long long field(pid_t pid, const char *name)
{
    char path[64], line[300];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    _cleanup_file_ FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            return strtoull(line + strlen(name) + 1, NULL, 16);
    fail_msg("no %s", name);
    return 1;
}

static void a_child_has_signals_session_and_descriptors_of_its_own(_unused_ void **state)
{
    char path[64];
    int n = 0;
    sigset_t some, before;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGRTMAX, SIG_IGN);
    (void)sigemptyset(&some);
    (void)sigaddset(&some, SIGTERM);
    (void)sigaddset(&some, SIGCHLD);
    assert_int_equal(sigprocmask(SIG_BLOCK, &some, &before), 0);
    const int inherited = fcntl(2, F_DUPFD, 5); /* without CLOEXEC, as libraries may do */
    Child c = begin(-EBADF, NULL);
    assert_int_equal(field(c.pid, "SigBlk"), 0);
    assert_int_equal(field(c.pid, "SigIgn"), 0);
    assert_int_equal(getsid(c.pid), c.pid);
    assert_int_equal(getpgid(c.pid), c.pid);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)c.pid);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    /* Descriptors above 9 are the shell's own, and are not counted. */
    for (struct dirent *entry; (entry = readdir(folder));)
        n += entry->d_name[0] != '.' && strtol(entry->d_name, NULL, 10) <= 9;
    (void)closedir(folder);
    assert_in_range(n, 4, 4);
    assert_true(fcntl(c.pidfd, F_GETFD) & FD_CLOEXEC);
    end(&c);
    (void)close(inherited);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGHUP, SIG_DFL);
    (void)signal(SIGRTMAX, SIG_DFL);
}

/* A negative oom_score_adj is not inherited, so that ranks are killed before sdtraind when memory runs out. A value
 * of 0 or more is inherited. */
static void a_low_oom_score_is_not_inherited(_unused_ void **state)
{
    static const struct {
        const char *ours, *its;
    } cases[] = {{"-900\n", "0900\n"}, {"-1", "01"}, {"0\n", "0\n"}, {"500\n", "500\n"}};
    char file[] = "/tmp/test-spawn-XXXXXX"; /* pwrite() replaces only the first byte */
    const int fd = mkstemp(file);
    assert_true(fd >= 0);
    (void)close(fd);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *text = NULL;
        size_t n;
        assert_int_equal(file_write(file, cases[i].ours, strlen(cases[i].ours), 0, NULL), 0);
        oom_file = file;
        Child c = begin(-EBADF, NULL);
        oom_file = NULL;
        assert_int_equal(file_read(file, 100, &text, &n, NULL), 0);
        assert_string_equal(text, cases[i].its);
        end(&c);
    }
    oom_file = "/not/there"; /* without the file a child runs as well */
    Child c = begin(-EBADF, NULL);
    oom_file = NULL;
    end(&c);
    (void)unlink(file);
}

/* Checks a child's capabilities in a process like the sdtraind that systemd starts: a user without rights, and one
 * capability that programs inherit. Returns 0 if the child has none. */
static int look_at_capabilities(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = 1u << CAP_KILL, .permitted = 1u << CAP_KILL, .inheritable = 1u << CAP_KILL}};
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setuid(65534) < 0 ||
        syscall(SYS_capset, &header, data) < 0 ||
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0) < 0)
        return 9;
    if (field(getpid(), "CapAmb") == 0)
        return 8;
    Child c = begin(-EBADF, NULL);
    const bool none =
        field(c.pid, "CapAmb") == 0 && field(c.pid, "CapEff") == 0 && field(c.pid, "CapPrm") == 0;
    end(&c);
    return none ? 0 : 7;
}

static void a_child_has_no_capability(_unused_ void **state)
{
    int status = 0;
    if (geteuid() != 0)
        skip();
    const pid_t pid = fork();
    if (pid == 0)
        _exit(look_at_capabilities());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 9)
        skip(); /* a container without capabilities */
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A child is killed when its parent ends. The test keeps the other end of the channel open, so that its closing is
 * not what ends the child. */
static void a_child_does_not_outlive_its_parent(_unused_ void **state)
{
    int up[2], pair[2], status = 0;
    pid_t child = 0;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        lent = pair;
        const Child c = begin(-EBADF, NULL);
        (void)!write(up[1], &c.pid, sizeof(c.pid));
        pause();
        _exit(0);
    }
    assert_int_equal(read(up[0], &child, sizeof(child)), sizeof(child));
    struct pollfd ends = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_int_equal(poll(&ends, 1, 60000), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const int fds[] = {up[0], up[1], pair[0], pair[1], ends.fd};
    for (size_t k = 0; k < ELEMENTSOF(fds); k++)
        (void)close(fds[k]);
}

/* A child whose cgroup refuses it, here a folder that is not a cgroup, runs outside, and `inside` says so. */
static void without_its_cgroup_a_child_runs_and_it_is_told(_unused_ void **state)
{
    bool inside = true;
    _cleanup_fd_ int folder = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    Child c = begin(folder, &inside);
    assert_false(inside);
    end(&c);
    inside = true;
    c = begin(-EBADF, &inside);
    assert_false(inside);
    end(&c);
}

/* Descriptor 0 is valid in a daemon without standard descriptors, and no descriptor is left open. */
static void descriptor_0_is_one_and_none_is_left(_unused_ void **state)
{
    char text[16] = "";
    bool inside = true;
    int out[2], pair[2];
    const int input = dup(0), first = dup(0);
    (void)close(first);
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char[]){"echo up >&3; echo up"}, NULL};
    SpawnRequest request = {
        .argv = argv, .environment = environ, .output = 0, .channel = -EBADF, .cgroup = -EBADF};
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    request.channel = pair[1];
    assert_int_equal(dup2(out[1], 0), 0);
    assert_int_equal(status_of(&request), 0);
    assert_int_equal(read(out[0], text, sizeof(text)), 3);
    assert_int_equal(recv(pair[0], text, sizeof(text), MSG_DONTWAIT), 3);
    request.channel = 0;
    request.output = out[1];
    assert_int_equal(dup2(pair[1], 0), 0);
    assert_int_equal(status_of(&request), 0);
    assert_int_equal(recv(pair[0], text, sizeof(text), MSG_DONTWAIT), 3);
    for (size_t i = 0; i < 2; i++)
        (void)close(out[i]), (void)close(pair[i]);

    request.channel = request.output = -EBADF;
    argv[2] = (char[]){"read x; exit 5"}; /* standard input exists, and is empty */
    assert_int_equal(close(0), 0);
    errno = EIO;
    assert_int_equal(status_of(&request), 5);
    const int folder = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(folder, 0);
    Child c = begin(0, &inside); /* the folder is not a cgroup */
    assert_false(inside);
    end(&c);
    assert_int_equal(dup2(input, 0), 0);
    assert_int_equal(dup(0), first);
    (void)close(first), (void)close(input);
}

/* ---- failures ---- */

static const SpawnRequest *refused; /* the request that try_without() spawns */
static int refused_output[2];

/* Spawns the request in a process in which the system call `number` fails with errno `error` if `second` is its second
 * argument; second -1: with any argument. Returns the errno of spawn_process(), or the exit status of the child. */
static int try_without(long number, long second, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, second < 0 ? 1 : 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)second, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    if (second < 0) /* skips the check of the argument */
        code[2] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
    struct sock_fprog program = {.len = ELEMENTSOF(code), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return 99;
    pid_t pid = 0;
    int pidfd = -EBADF, status = 0;
    const int r = spawn_process(refused, &pid, &pidfd, NULL);
    if (r < 0)
        return -r;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static void expect_refusal(long number, long second, int error, int wanted, const char *said)
{
    char text[200] = "", *argv[] = {(char[]){"/bin/true"}, NULL};
    int status = 0;
    assert_int_equal(pipe2(refused_output, O_CLOEXEC), 0);
    _cleanup_fd_ int channel = open("/dev/null", O_RDWR | O_CLOEXEC);
    const SpawnRequest request = {.argv = argv,
                                  .environment = environ,
                                  .output = refused_output[1],
                                  .channel = channel,
                                  .cgroup = -EBADF};
    refused = &request;
    const pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(refused_output[1], 2); /* the child may print before it gets its own stderr */
        _exit(try_without(number, second, error));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
    (void)close(refused_output[1]);
    assert_int_equal(read(refused_output[0], text, sizeof(text) - 1), strlen(said));
    assert_string_equal(text, said);
    (void)close(refused_output[0]);
}

/* A child that could outlive sdtraind, or that would keep other descriptors, does not execute its program. */
static void what_cannot_be_made_ready_does_not_begin(_unused_ void **state)
{
    expect_refusal(SYS_prctl, SIGKILL, EPERM, SPAWN_EXEC_FAILED,
                   "cannot tie itself to its parent: /bin/true\n");
    expect_refusal(SYS_getppid, -1, 0, SPAWN_EXEC_FAILED, ""); /* as if the parent had died */
#ifdef SYS_dup2
    for (int fd = 0; fd <= 3; fd++)
        expect_refusal(SYS_dup2, fd, EMFILE, SPAWN_EXEC_FAILED,
                       "cannot place descriptors for /bin/true\n");
#endif
    expect_refusal(SYS_clone3, -1, EAGAIN, EAGAIN, "");
    expect_refusal(SYS_getpgid, -1, EPERM, 0, ""); /* no call fails: the child runs */
}

/* Each attempt may open one more descriptor than the attempt before; with too few descriptors no child is started. */
static void without_descriptors_nothing_is_started(_unused_ void **state)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {(char[]){"/bin/true"}, NULL};
        const SpawnRequest request = {.argv = argv,
                                      .environment = environ,
                                      .program = open("/bin/true", O_PATH | O_CLOEXEC),
                                      .output = 0,
                                      .channel = 1,
                                      .cgroup = -EBADF};
        for (int fd = request.program + 1; fd < 100; fd++)
            (void)close(fd);
        for (rlim_t most = 10; most <= 14; most++) {
            const struct rlimit limit = {most, 100};
            pid_t child;
            int pidfd = -EBADF;
            Error err = ERROR_INIT;
            if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
                _exit(9);
            const int r = spawn_process(&request, &child, &pidfd, &err);
            if (most < 14 && (r >= 0 || !strstr(err.text, "cannot prepare descriptors")))
                _exit((int)most);
            if (most == 14 && (r < 0 || waitpid(child, NULL, 0) != child))
                _exit((int)most);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void what_cannot_be_executed_says_so(_unused_ void **state)
{
    char text[200] = "", *argv[] = {(char[]){"/not/there"}, NULL};
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const SpawnRequest request = {.argv = argv,
                                  .environment = environ,
                                  .output = out[1],
                                  .channel = -EBADF,
                                  .cgroup = -EBADF};
    assert_int_equal(status_of(&request), SPAWN_EXEC_FAILED);
    assert_true(read(out[0], text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "cannot execute /not/there\n");
    (void)close(out[0]), (void)close(out[1]);
}

static bool has(char *const *environment, const char *variable)
{
    for (; *environment; environment++)
        if (strcmp(*environment, variable) == 0)
            return true;
    return false;
}

/* A trainer gets neither the variables that systemd sets for a service nor the variable of fault points. */
static void a_trainers_environment_is_the_daemons_but_for_what_is_its_own(_unused_ void **state)
{
    static char *const ours[] = {(char *)"PATH=/bin",
                                 (char *)"SDTRAIN_FAULT=x",
                                 (char *)"SDTRAIN_LOG=debug",
                                 (char *)"SDTRAIN_S3_KEY=k",
                                 (char *)"NOTIFY_SOCKET=/n",
                                 (char *)"WATCHDOG_USEC=1",
                                 (char *)"LISTEN_FDS=1",
                                 (char *)"JOURNAL_STREAM=1:2",
                                 (char *)"INVOCATION_ID=a",
                                 (char *)"MAINPID=1",
                                 (char *)"OMP_DYNAMIC=true",
                                 (char *)"CREDENTIALS_DIRECTORY=/c",
                                 (char *)"LISTENER=y",
                                 (char *)"SDTRAIN_SLOT=7",
                                 NULL};
    static const char *const wanted[] = {"PATH=/bin",
                                         "SDTRAIN_LOG=debug",
                                         "SDTRAIN_S3_KEY=k",
                                         "LISTENER=y",
                                         "SDTRAIN_SLOT=3",
                                         "SDTRAIN_CHANNEL=3",
                                         "OMP_DYNAMIC=false",
                                         PATHS_READ_VARIABLE "=[\"/d\"]",
                                         PATHS_WRITE_VARIABLE "=[\"/c\"]",
                                         "MINE=1"};
    static const DaemonConfig config = {.run_dir = "/run/lab"};
    DaemonConfig with = config;
    with.paths_read = json_pack("[s]", "/d");
    with.paths_write = json_pack("[s]", "/c");
    with.trainer_environment = json_pack("[s]", "MINE=1");
    _cleanup_(trainer_environment_freep) char **made = trainer_environment_new(ours, &with, 3);
    size_t n = 0;
    while (made[n])
        n++;
    assert_int_equal(n, ELEMENTSOF(wanted) + 1); /* one more: the mark of the slot */
    for (size_t i = 0; i < ELEMENTSOF(wanted); i++)
        assert_true(has(made, wanted[i]));
    _cleanup_(trainer_environment_freep) char **of_no_slot =
        trainer_environment_new(ours, &config, -1);
    assert_false(has(of_no_slot, "SDTRAIN_CHANNEL=3"));
    json_decref(with.paths_read);
    json_decref(with.paths_write);
    json_decref(with.trainer_environment);
}

/* In a cluster with many services, each adds some variables to the environment; the mark, which comes last, is still
 * there. */
static void nothing_of_a_large_environment_is_left_out(_unused_ void **state)
{
    enum { N = 3000 };
    static char texts[N][16];
    static char *ours[N + 1];
    char mark[100];
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "A%zu=%zu", i, i);
        ours[i] = texts[i];
    }
    DaemonConfig config = {.run_dir = "/run/lab"};
    config.trainer_environment = json_array();
    config.paths_read = json_pack("[s]", "/d");
    config.paths_write = json_pack("[s]", "/c");
    for (int i = 0; i < CONFIG_ENVIRONMENT_MAX; i++)
        (void)json_array_append_new(config.trainer_environment, json_string("MINE=1"));
    _cleanup_(trainer_environment_freep) char **made = trainer_environment_new(ours, &config, 3);
    for (size_t i = 0; i < N; i++)
        assert_string_equal(made[i], ours[i]);
    orphans_owner_tag(mark, sizeof(mark), "/run/lab", 3);
    assert_true(has(made, mark) && has(made, "MINE=1"));
    size_t n = N;
    while (made[n])
        n++;
    assert_int_equal(n, N + 6 + CONFIG_ENVIRONMENT_MAX);
    json_decref(config.trainer_environment);
    json_decref(config.paths_read);
    json_decref(config.paths_write);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainers_environment_is_the_daemons_but_for_what_is_its_own),
        cmocka_unit_test(nothing_of_a_large_environment_is_left_out),
        cmocka_unit_test(an_open_program_outlives_its_file),
        cmocka_unit_test(a_child_has_signals_session_and_descriptors_of_its_own),
        cmocka_unit_test(a_low_oom_score_is_not_inherited),
        cmocka_unit_test(a_child_has_no_capability),
        cmocka_unit_test(a_child_does_not_outlive_its_parent),
        cmocka_unit_test(without_its_cgroup_a_child_runs_and_it_is_told),
        cmocka_unit_test(descriptor_0_is_one_and_none_is_left),
        cmocka_unit_test(what_cannot_be_made_ready_does_not_begin),
        cmocka_unit_test(without_descriptors_nothing_is_started),
        cmocka_unit_test(what_cannot_be_executed_says_so),
        cmocka_unit_test_setup(a_child_enters_its_cgroup_by_itself, take_clone3_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
