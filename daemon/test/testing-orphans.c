/* SPDX-License-Identifier: Apache-2.0 */
/* testing-orphans.c - see testing-orphans.h. */
#include "daemon/test/testing-orphans.h"

#include "base/clock.h"
#include "base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

char run_dir[64], other_dir[64];
const CgroupBase no_cgroups;
Fake *fake;

__typeof__(clock_boottime_usec) __real_clock_boottime_usec, __wrap_clock_boottime_usec;
__typeof__(nanosleep) __wrap_nanosleep;
__typeof__(poll) __real_poll;
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_msec); /* glibc's fds is write-only */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
__typeof__(cgroup_destroy) __wrap_cgroup_destroy;
__typeof__(syscall) __real_syscall, __wrap_syscall;
__typeof__(kill) __real_kill, __wrap_kill;

uint64_t __wrap_clock_boottime_usec(void)
{
    static uint64_t began_usec;
    if (!began_usec)
        began_usec = __real_clock_boottime_usec();
    return began_usec + fake->late_usec; /* the clock moves only by late_usec */
}

int __wrap_nanosleep(const struct timespec *pause, _unused_ struct timespec *left)
{
    fake->late_usec += (uint64_t)pause->tv_nsec / 1000;
    if (++fake->n_pauses == fake->ends_at_pause) {
        assert_int_equal(kill(fake->ends, SIGKILL), 0);
        assert_int_equal(waitpid(fake->ends, NULL, 0), fake->ends);
    }
    return 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (fake->seen_environs > 0 && strstr(path, "/environ") && --fake->seen_environs == 0) {
        fake->seen_environs = 1;
        path = "/dev/null";
    }
    return __real_open(path, flags, mode);
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_msec)
{
    if (timeout_msec >= 0) { /* else the keeper waits for the end of its sdtraind */
        fake->n_polls++;
        if (n != 1 || fds->fd < 0 || timeout_msec != 100)
            _exit(98);
    }
    return fake->nobody_dies ? 0 : __real_poll(fds, n, timeout_msec);
}

int __wrap_cgroup_destroy(const CgroupBase *base, Error *err)
{
    if (base != &no_cgroups)
        _exit(97);
    const int r = fake->destroys[MIN((size_t)fake->n_destroys, ELEMENTSOF(fake->destroys) - 1)];
    fake->n_destroys++;
    fake->late_usec += fake->destroy_usec;
    return r < 0 ? error_set(err, r, "the cgroup stays") : 0;
}

/* From begin_log() to end_log(): the file that gets standard error, and the original standard error. */
static int log_file = -1, standard_error = -1;

void begin_log(void)
{
    log_file = memfd_create("log", MFD_CLOEXEC);
    standard_error = dup(2);
    assert_int_equal(dup2(log_file, 2), 2);
}

static char log_text[16384]; /* the text of the log that ended last */

int n_in_log(const char *text)
{
    int n = 0;
    for (const char *at = log_text; (at = strstr(at, text)); at++)
        n++;
    return n;
}

/* Ends the log. Returns how often the log contains that text. */
int end_log(const char *text)
{
    const ssize_t n = pread(log_file, log_text, sizeof(log_text) - 1, 0);
    assert_int_equal(dup2(standard_error, 2), 2);
    (void)close(standard_error), (void)close(log_file);
    assert_true(n >= 0);
    log_text[n] = '\0';
    return n_in_log(text);
}

/* Returns the parent of a process; -1: the process has ended. */
static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    pid_t parent = -1;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[MAX(n, 0)] = '\0';
    const char *end = strrchr(text, ')');
    return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

/* Ends the program if pid is not a descendant of the test. The tested code looks at all processes of the machine,
 * and a bug in it must not kill a process outside the test. */
static void check_is_below_the_test(pid_t pid)
{
    bool good = pid > 1 && pid != getpid();
    for (pid_t at = pid; good && at != fake->test;) {
        const pid_t parent = parent_of(at);
        if (parent < 0 && at == pid)
            return;                     /* the process has ended */
        at = parent < 0 ? pid : parent; /* an ancestor has ended: follows the new parents */
        good = at > 1 || at == fake->test;
    }
    if (!good) {
        fprintf(stderr, "process %d is to be killed, which is not of the test\n", (int)pid);
        _exit(99);
    }
}

int __wrap_kill(pid_t pid, int signal)
{
    check_is_below_the_test(pid);
    return __real_kill(pid, signal);
}

static pid_t pid_of(long pidfd)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%ld", pidfd);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[MAX(n, 0)] = '\0';
    const char *at = strstr(text, "\nPid:");
    return at ? (pid_t)strtol(at + 5, NULL, 10) : -1;
}

long __wrap_syscall(long number, ...)
{
    long a[4];
    va_list ap;
    va_start(ap, number);
    for (size_t i = 0; i < ELEMENTSOF(a); i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number == SYS_pidfd_send_signal) {
        const pid_t pid = pid_of(a[0]);
        if (pid > 0) /* else the process has ended */
            check_is_below_the_test(pid);
        fake->n_kills++;
        if (fake->nobody_dies)
            return 0;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3]);
}

/* ---- processes ---- */

/* Starts a shell with that mark ("": none), which waits for input from the test. */
pid_t begin(const char *mark, bool own_session, uid_t uid)
{
    char up[8];
    int out[2];
    static int in[2] = {-1, -1};
    if (in[0] < 0)
        assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        char text[200];
        (void)snprintf(text, sizeof(text), "%s", mark);
        char *const argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)"echo up; read x", NULL};
        char *const environment[] = {(char *)"A=1", *text ? text : (char *)"B=2", (char *)"C=3",
                                     NULL};
        if ((own_session && setsid() < 0) || dup2(in[0], 0) < 0 || dup2(out[1], 1) < 0 ||
            (uid && setuid(uid) < 0))
            _exit(9);
        (void)execve(argv[0], argv, environment);
        _exit(9);
    }
    assert_true(pid > 0);
    (void)close(out[1]);
    assert_int_equal(read(out[0], up, sizeof(up)), 3);
    (void)close(out[0]);
    return pid;
}

pid_t begin_marked(const char *of, int slot)
{
    char mark[200];
    orphans_owner_tag(mark, sizeof(mark), of, slot);
    return begin(mark, false, 0);
}

bool lives(pid_t pid)
{
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == 0;
}

/* Checks that the process was killed by SIGKILL, and reaps it. */
void expect_killed(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

void finish(pid_t pid)
{
    assert_true(lives(pid));
    assert_int_equal(kill(pid, SIGKILL), 0);
    expect_killed(pid);
}

int orphans_set_up(_unused_ void **state)
{
    *fake = (struct Fake){.test = getpid()};
    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/test-orphans-XXXXXX");
    assert_non_null(mkdtemp(run_dir));
    (void)snprintf(other_dir, sizeof(other_dir), "%s2", run_dir);
    return 0;
}

int orphans_tear_down(_unused_ void **state) { return folder_remove(run_dir, NULL); }

void orphans_begin(pid_t test)
{
    fake = mmap(NULL, sizeof(*fake), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(fake != MAP_FAILED);
    fake->test = test;
}
