/* SPDX-License-Identifier: Apache-2.0 */
/* test-process-orphans.c - who is an orphan, whose, and that no other process is ended for one: real processes, and a
 * clock, a cgroup and a SIGKILL that do what the test says. */
#include "base/clock.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "daemon/process/orphans.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static char run_dir[64], other_dir[64];
static const CgroupBase no_cgroups;

/* What stands between the code and the system; shared with children. */
static struct Fake {
    uint64_t late_usec;    /* the clock is ahead */
    uint64_t destroy_usec; /* the end of the cgroups takes so long */
    int destroys[64];      /* what each end of the cgroups says */
    int n_destroys;
    bool nobody_dies; /* SIGKILL is late, and no poll sees an end */
    int n_kills;
    int n_polls;       /* for the end of what was killed */
    int seen_environs; /* so often an environment is seen before it is empty, as in an exec; 0: ever */
    int ends_at_pause; /* at that pause the child `ends` gets SIGKILL */
    pid_t ends;
    int n_pauses;
    pid_t test;
} * fake;

__typeof__(clock_boottime_usec) __real_clock_boottime_usec, __wrap_clock_boottime_usec;
__typeof__(nanosleep) __wrap_nanosleep;
__typeof__(poll) __real_poll;
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_msec); /* glibc's is said not to read */
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
    return began_usec + fake->late_usec; /* it stands but for what the test adds */
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
    if (timeout_msec >= 0) { /* else the keeper waits for its sdtraind */
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

/* What is written on standard error from begin_log() on. */
static int log_file = -1, standard_error = -1;

static void begin_log(void)
{
    log_file = memfd_create("log", MFD_CLOEXEC);
    standard_error = dup(2);
    assert_int_equal(dup2(log_file, 2), 2);
}

static char log_text[16384]; /* of the log that ended last */

static int n_in_log(const char *text)
{
    int n = 0;
    for (const char *at = log_text; (at = strstr(at, text)); at++)
        n++;
    return n;
}

/* Ends it; how often it has that text. */
static int end_log(const char *text)
{
    const ssize_t n = pread(log_file, log_text, sizeof(log_text) - 1, 0);
    assert_int_equal(dup2(standard_error, 2), 2);
    (void)close(standard_error), (void)close(log_file);
    assert_true(n >= 0);
    log_text[n] = '\0';
    return n_in_log(text);
}

/* The parent; -1: it is gone. */
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

/* This code looks at every process there is: with a bug in it, the test must not end any but its own. */
static void check_is_below_the_test(pid_t pid)
{
    bool good = pid > 1 && pid != getpid();
    for (pid_t at = pid; good && at != fake->test;) {
        const pid_t parent = parent_of(at);
        if (parent < 0 && at == pid)
            return;                     /* it is gone */
        at = parent < 0 ? pid : parent; /* one on the way has gone: it has another parent now */
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
        if (pid > 0) /* else it is gone */
            check_is_below_the_test(pid);
        fake->n_kills++;
        if (fake->nobody_dies)
            return 0;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3]);
}

/* ---- processes ---- */

/* Begins a shell that waits for its input, which the test holds, with that mark ("": none). */
static pid_t begin(const char *mark, bool own_session, uid_t uid)
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

static pid_t begin_marked(const char *of, int slot)
{
    char mark[200];
    orphans_mark(mark, sizeof(mark), of, slot);
    return begin(mark, false, 0);
}

static bool lives(pid_t pid)
{
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    return info.si_pid == 0;
}

/* It was killed; and is reaped. */
static void expect_killed(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void finish(pid_t pid)
{
    assert_true(lives(pid));
    assert_int_equal(kill(pid, SIGKILL), 0);
    expect_killed(pid);
}

static int set_up(_unused_ void **state)
{
    *fake = (struct Fake){.test = getpid()};
    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/test-orphans-XXXXXX");
    assert_non_null(mkdtemp(run_dir));
    (void)snprintf(other_dir, sizeof(other_dir), "%s2", run_dir);
    return 0;
}

static int tear_down(_unused_ void **state) { return folder_remove(run_dir, NULL); }

/* ---- handed to us ---- */

static pid_t started; /* by sdtraind for another slot */
static bool is_ours(void *userdata, pid_t pid)
{
    assert_ptr_equal(userdata, &started);
    return pid == started;
}

static void only_orphans_of_the_slot_are_killed(_unused_ void **state)
{
    const pid_t of_5 = begin_marked(run_dir, 5), of_50 = begin_marked(run_dir, 50);
    const pid_t of_0 = begin_marked(run_dir, 0);
    started = begin_marked(run_dir, 5);
    assert_true(orphans_is_marked(of_0, run_dir, 0) && !orphans_is_marked(of_50, run_dir, 0));
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 1);
    expect_killed(of_5);
    assert_true(lives(of_50) && lives(of_0) && lives(started));
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 0);
    assert_int_equal(orphans_kill_adopted(run_dir, 50, is_ours, &started), 1);
    expect_killed(of_50);
    finish(of_0);
    finish(started);
}

/* For a moment of an exec the kernel shows no environment: what was seen before counts. */
static void who_executes_is_not_of_another_slot(_unused_ void **state)
{
    const pid_t of_5 = begin_marked(run_dir, 5);
    started = 0;
    fake->seen_environs = 2; /* once */
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 1);
    fake->seen_environs = 0;
    expect_killed(of_5);
}

/* Whoever has no mark may be of any slot; whoever is another's child was not handed to us. */
static void a_child_without_a_mark_is_of_any_slot(_unused_ void **state)
{
    char mark[200], script[300], number[16] = "";
    int out[2];
    const pid_t bare = begin("", false, 0);
    started = begin("", false, 0);
    orphans_mark(mark, sizeof(mark), run_dir, 5);
    (void)snprintf(script, sizeof(script), "/bin/sh -c 'echo $$; read x' <&4 & wait");
    assert_int_equal(pipe(out), 0);
    int in[2];
    assert_int_equal(pipe(in), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        char *const argv[] = {(char *)"/bin/sh", (char *)"-c", script, NULL};
        char *const environment[] = {mark, (char *)"PATH=/usr/bin:/bin", NULL};
        if (dup2(out[1], 1) < 0 || dup2(in[0], 4) < 0)
            _exit(9);
        (void)execve(argv[0], argv, environment);
        _exit(9);
    }
    assert_true(read(out[0], number, sizeof(number) - 1) > 1);
    const pid_t grandchild = (pid_t)strtol(number, NULL, 10);
    assert_true(orphans_is_marked(grandchild, run_dir, 5));
    assert_int_equal(orphans_kill_adopted(run_dir, 7, is_ours, &started), 1);
    expect_killed(bare);
    finish(started);
    started = parent;
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 0);
    finish(parent);
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 1); /* now it is ours */
    expect_killed(grandchild);
    for (int i = 0; i < 2; i++)
        (void)close(out[i]), (void)close(in[i]);
}

/* Anybody may write any mark into his own environment. */
static void a_strangers_mark_is_none(_unused_ void **state)
{
    char mark[200];
    if (geteuid() != 0)
        skip();
    orphans_mark(mark, sizeof(mark), run_dir, 5);
    const pid_t stranger = begin(mark, false, 65534);
    assert_false(orphans_is_marked(stranger, run_dir, 5));
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, NULL), 0);
    finish(stranger);
    assert_false(orphans_is_marked(stranger, run_dir, 5)); /* it is gone */
}

/* A cluster's services can fill an environment; the mark lies behind it. */
static void a_mark_is_found_behind_a_long_environment(_unused_ void **state)
{
    enum { N = 40, EACH = 4000 };
    static char texts[N][EACH];
    char *environment[N + 2], mark[200], up[8];
    int out[2], in[2];
    for (size_t i = 0; i < N; i++) {
        memset(texts[i], 'x', EACH - 1);
        texts[i][1] = '=';
        environment[i] = texts[i];
    }
    orphans_mark(mark, sizeof(mark), run_dir, 5);
    environment[N] = mark;
    environment[N + 1] = NULL;
    assert_int_equal(pipe2(out, O_CLOEXEC) | pipe2(in, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        char *const argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)"echo up; read x", NULL};
        if (dup2(in[0], 0) >= 0 && dup2(out[1], 1) >= 0)
            (void)execve(argv[0], argv, environment);
        _exit(9);
    }
    assert_int_equal(read(out[0], up, sizeof(up)), 3);
    assert_true(orphans_is_marked(pid, run_dir, 5));
    assert_false(orphans_is_marked(pid, run_dir, 50));
    finish(pid);
    for (int i = 0; i < 2; i++)
        (void)close(out[i]), (void)close(in[i]);
}

/* A daemon without a standard input, which ends and begins for years. */
static void descriptor_0_is_one_and_none_is_left(_unused_ void **state)
{
    Error err = ERROR_INIT;
    int status = 0, fd = -1;
    pid_t left = begin_marked(run_dir, 5);
    const int input = dup(0), first = dup(0);
    assert_int_equal(close(first) | close(0), 0);
    started = 0;
    assert_true(orphans_is_marked(left, run_dir, 5));
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 1);
    expect_killed(left);
    assert_int_equal(orphans_lock(run_dir, &fd, &err), 0);
    assert_int_equal(fd, 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, &err), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        RankSessions *sessions;
        pid_t keeper;
        _exit(orphans_keep(run_dir, &no_cgroups, &sessions, &keeper, NULL) < 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(waitpid(-1, &status, 0) > 0); /* its keeper */
    assert_int_equal(status, 0);
    assert_int_equal(dup2(input, 0), 0);
    assert_int_equal(dup(0), first);
    assert_int_equal(close(first) | close(input), 0);
}

/* ---- of an earlier life ---- */

static void what_an_earlier_life_left_ends_and_nothing_else(_unused_ void **state)
{
    Error err = ERROR_INIT;
    const pid_t left[] = {begin_marked(run_dir, 0), begin_marked(run_dir, 63)};
    const pid_t others = begin_marked(other_dir, 0), bare = begin("", true, 0);
    begin_log();
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, &err), 0);
    assert_int_equal(end_log("that an earlier life left in"), 1);
    assert_true(fake->n_polls > 0);
    assert_string_equal(err.text, "");
    assert_int_equal(fake->n_destroys, 1);
    assert_true(fake->n_kills >= 2); /* one that is still dying is killed again */
    expect_killed(left[0]);
    expect_killed(left[1]);
    finish(others);
    finish(bare);
}

/* A sdtraind that a rank has started, by whatever way, ends the others. */
static void who_looks_does_not_end_itself(_unused_ void **state)
{
    char mark[200];
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        orphans_mark(mark, sizeof(mark), run_dir, 5);
        char *const argv[] = {(char *)"test-process-orphans", run_dir, NULL};
        char *const environment[] = {mark, NULL};
        (void)execve("/proc/self/exe", argv, environment);
        _exit(9);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void expect_clear(int r, int n_destroys, const char *text)
{
    Error err = ERROR_INIT;
    const pid_t left = begin_marked(run_dir, 3);
    fake->n_destroys = 0;
    begin_log();
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, &err), r);
    assert_int_equal(end_log("waiting for its end, at most 40 s"), n_destroys > 1);
    assert_int_equal(fake->n_destroys, n_destroys);
    assert_string_equal(err.text, text);
    expect_killed(left); /* whatever became of the cgroups */
}

static void cgroups_that_stay_are_tried_again(_unused_ void **state)
{
    static const int busy[] = {-EBUSY, -ETIMEDOUT, -EBUSY, 0};
    memcpy(fake->destroys, busy, sizeof(busy));
    expect_clear(0, 4, "");
    fake->destroys[0] = -EIO;
    expect_clear(-EIO, 1, "the cgroup stays");
    for (size_t i = 0; i < ELEMENTSOF(fake->destroys); i++)
        fake->destroys[i] = -EBUSY;
    fake->destroy_usec = 10 * USEC_PER_SEC;
    expect_clear(-EBUSY, 4, "the cgroup stays"); /* 40 s */
}

static void what_survives_sigkill_is_told(_unused_ void **state)
{
    Error err = ERROR_INIT;
    const pid_t left = begin_marked(run_dir, 3);
    fake->nobody_dies = true;
    fake->destroy_usec = 20 * USEC_PER_SEC;
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "a process of an earlier life survives SIGKILL"));
    assert_int_equal(fake->n_kills, 2 * 20); /* 20 rounds, two looks within 40 s */
    assert_int_equal(fake->n_polls, 2 * 20);
    fake->n_kills = 0;
    fake->late_usec = fake->destroy_usec = 0;
    fake->destroys[0] = fake->destroys[1] = -EACCES; /* said first, and the other is still tried */
    fake->n_destroys = 0;
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, &err), -EACCES);
    assert_int_equal(fake->n_kills, 20);
    fake->nobody_dies = false;
    finish(left);
}

/* ---- the lock ---- */

/* Another process locks run_dir; with hands_on, it ends and a child of it, the keeper, has the lock on. */
static pid_t begin_lock(bool hands_on)
{
    int up[2];
    pid_t keeper = 0;
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        int fd;
        if (orphans_lock(run_dir, &fd, NULL) < 0)
            _exit(9);
        keeper = hands_on ? fork() : getpid();
        (void)!write(up[1], &keeper, keeper ? sizeof(keeper) : 0);
        if (keeper == 0 || !hands_on)
            pause();
        _exit(0);
    }
    assert_int_equal(read(up[0], &keeper, sizeof(keeper)), sizeof(keeper));
    if (hands_on)
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(up[0]), (void)close(up[1]);
    return keeper;
}

static void expect_refused(const char *text, uint64_t sec)
{
    Error err = ERROR_INIT;
    int fd = -5;
    fake->late_usec = 0;
    begin_log();
    assert_int_equal(orphans_lock(run_dir, &fd, &err), -EBUSY);
    assert_int_equal(end_log("waiting for the keeper of an earlier life"), sec > 5);
    assert_int_equal(fd, -5);
    assert_non_null(strstr(err.text, text));
    assert_int_equal(fake->late_usec, sec * USEC_PER_SEC + 100 * USEC_PER_MSEC);
}

static void one_sdtraind_has_a_run_dir(_unused_ void **state)
{
    Error err = ERROR_INIT;
    struct stat st;
    int fd = -1;
    char path[100];
    (void)snprintf(run_dir + strlen(run_dir), 5, "/new");
    const pid_t other = begin_lock(false);
    assert_int_equal(stat(run_dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0750);
    (void)snprintf(path, sizeof(path), "%s/lock", run_dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    expect_refused("another sdtraind holds it", 5);
    finish(other);
    fake->n_pauses = 0;
    assert_int_equal(orphans_lock(run_dir, &fd, &err), 0);
    assert_int_equal(fake->n_pauses, 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    (void)close(fd);
    *strrchr(run_dir, '/') = '\0';
}

static void expect_locked_after(pid_t keeper, int n_pauses, int told)
{
    Error err = ERROR_INIT;
    int fd = -1;
    fake->late_usec = 0;
    fake->ends = keeper;
    fake->ends_at_pause = fake->n_pauses + n_pauses;
    begin_log();
    assert_int_equal(orphans_lock(run_dir, &fd, &err), 0);
    assert_int_equal(end_log("waiting for the keeper of an earlier life, at most 40 s"), told);
    assert_int_equal(fake->n_pauses, fake->ends_at_pause);
    (void)close(fd);
}

static void a_keeper_is_waited_for_longer(_unused_ void **state)
{
    const pid_t keeper = begin_lock(true);
    expect_refused("the keeper of an earlier life holds it", 40);
    expect_locked_after(keeper, 11, 0); /* 1.0 s is no time to speak of */
    expect_locked_after(begin_lock(true), 12, 1);
}

static void a_lock_that_cannot_be_is_told(_unused_ void **state)
{
    Error err = ERROR_INIT;
    char path[100];
    int fd;
    (void)snprintf(path, sizeof(path), "%s/lock", run_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(orphans_lock(run_dir, &fd, &err), -EISDIR);
    (void)snprintf(path, sizeof(path), "%s/lock/below", run_dir);
    assert_int_equal(file_write(path, "", 0, 0, &err), 0);
    assert_int_equal(orphans_lock(path, &fd, &err), -ENOTDIR);
}

/* ---- the keeper ---- */

static void read_own(pid_t pid, const char *name, char *ret, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, ret, size - 1);
    ret[MAX(n, 0)] = '\0';
    (void)close(fd);
}

static char state_of(pid_t pid)
{
    char text[512];
    read_own(pid, "stat", text, sizeof(text));
    const char *end = strrchr(text, ')');
    return end ? end[2] : '?';
}

static pid_t begin_sdtraind(pid_t bare, pid_t stranger, pid_t *ret_keeper)
{
    int up[2];
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        RankSessions *sessions;
        pid_t keeper;
        if (orphans_keep(run_dir, &no_cgroups, &sessions, &keeper, NULL) < 0)
            _exit(9);
        sessions->of[63] = bare; /* told after the keeper's start */
        sessions->of[7] = stranger;
        (void)!write(up[1], &keeper, sizeof(keeper));
        pause();
        _exit(0);
    }
    assert_int_equal(read(up[0], ret_keeper, sizeof(*ret_keeper)), sizeof(*ret_keeper));
    (void)close(up[0]), (void)close(up[1]);
    return pid;
}

/* Ranks end with their sdtraind, those with a mark and those with a session alone; nobody else does. */
static void the_keeper_ends_ranks_when_sdtraind_has_ended(_unused_ void **state)
{
    char text[64];
    int status = 0;
    pid_t keeper = 0;
    const pid_t marked = begin_marked(run_dir, 1), bare = begin("", true, 0);
    const pid_t others = begin("", true, 0), of_others = begin_marked(other_dir, 1);
    const pid_t stranger = geteuid() == 0 ? begin("", true, 65534) : 0; /* of another user */
    begin_log();
    const pid_t sdtraind = begin_sdtraind(bare, stranger, &keeper);
    for (int i = 0; i < 60000 && state_of(keeper) != 'S'; i++)
        assert_int_equal(__real_poll(NULL, 0, 1), 0); /* it waits, and does not spin */
    assert_int_equal(state_of(keeper), 'S');
    assert_int_equal(getsid(keeper), keeper);
    read_own(keeper, "comm", text, sizeof(text));
    assert_string_equal(text, "sdtraind-keeper\n");
    if (strlen(program_invocation_name) > strlen("sdtraind-keeper")) {
        read_own(keeper, "cmdline", text, sizeof(text));
        assert_string_equal(text, "sdtraind-keeper");
    }
    assert_int_equal(kill(keeper, SIGTERM) | kill(keeper, SIGINT) | kill(keeper, SIGHUP), 0);
    assert_true(lives(marked) && lives(bare));
    assert_int_equal(fake->n_destroys, 0);

    fake->destroys[0] = -EBUSY;
    assert_int_equal(kill(sdtraind, SIGKILL), 0);
    expect_killed(sdtraind);
    expect_killed(marked); /* reaped: a session is there as long as its leader is a zombie */
    expect_killed(bare);
    assert_int_equal(waitpid(keeper, &status, 0), keeper);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(fake->n_destroys > 0);
    assert_int_equal(end_log("keeper: "), 0);
    assert_int_equal(n_in_log("the cgroup stays; waiting for its end, at most 600 s"), 1);
    if (stranger)
        finish(stranger);
    finish(others);
    finish(of_others);
}

/* In a program of its own, which begins a keeper and tells what the command line of that is. */
static int show_keeper(bool is_renamed)
{
    static char other[] = "a name of another program";
    RankSessions *sessions;
    pid_t keeper;
    char text[64] = "", dir[] = "/not/there";
    if (is_renamed)
        program_invocation_name = other;
    if (orphans_keep(dir, &no_cgroups, &sessions, &keeper, NULL) < 0)
        return 9;
    for (int i = 0; i < 60000 && state_of(keeper) != 'S'; i++)
        (void)__real_poll(NULL, 0, 1);
    read_own(keeper, "cmdline", text, sizeof(text));
    (void)!write(1, text, sizeof(text));
    return 0;
}

static void expect_name(const char *name, const char *more, const char *its, bool is_renamed)
{
    char text[65] = "";
    int out[2], status = 0;
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        char *const argv[] = {(char *)name, (char *)more, NULL};
        char *const environment[] = {(char *)(is_renamed ? "SHOW=renamed" : "SHOW=keeper"), NULL};
        if (dup2(out[1], 1) >= 0)
            (void)execve("/proc/self/exe", argv, environment);
        _exit(9);
    }
    (void)close(out[1]);
    assert_int_equal(read(out[0], text, sizeof(text) - 1), sizeof(text) - 1);
    (void)close(out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(waitpid(-1, &status, 0) > 0); /* the keeper */
    assert_string_equal(text, its);
    if (strcmp(its, "sdtraind-keeper") == 0 && more)
        assert_null(memmem(text, sizeof(text), more, strlen(more)));
}

/* People see the keeper in the list of processes; a name that has no room stays. */
static void the_keeper_has_a_name(_unused_ void **state)
{
    expect_name("/usr/bin/sdtraind", "--config", "sdtraind-keeper", false);
    expect_name("sdtraind", "--config", "sdtraind-keeper", false);
    expect_name("0123456789abcde", NULL, "sdtraind-keeper", false);
    expect_name("0123456789abcd", NULL, "0123456789abcd", false);
    expect_name("x", NULL, "x", false);
    expect_name("/usr/bin/sdtraind", "--config", "/usr/bin/sdtraind", true);
}

int main(int argc, char **argv)
{
    fake = mmap(NULL, sizeof(*fake), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *show = getenv("SHOW");
    if (show) { /* the_keeper_has_a_name() */
        fake->test = getpid();
        return show_keeper(strcmp(show, "renamed") == 0);
    }
    if (argc > 1) { /* who_looks_does_not_end_itself() */
        fake->test = getppid();
        return orphans_clear(argv[1], &no_cgroups, NULL) < 0;
    }
    fake->test = getpid();
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* as sdtraind */
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(only_orphans_of_the_slot_are_killed),
        CASE(who_executes_is_not_of_another_slot),
        CASE(a_child_without_a_mark_is_of_any_slot),
        CASE(a_strangers_mark_is_none),
        CASE(a_mark_is_found_behind_a_long_environment),
        CASE(descriptor_0_is_one_and_none_is_left),
        CASE(what_an_earlier_life_left_ends_and_nothing_else),
        CASE(who_looks_does_not_end_itself),
        CASE(cgroups_that_stay_are_tried_again),
        CASE(what_survives_sigkill_is_told),
        CASE(one_sdtraind_has_a_run_dir),
        CASE(a_keeper_is_waited_for_longer),
        CASE(a_lock_that_cannot_be_is_told),
        CASE(the_keeper_ends_ranks_when_sdtraind_has_ended),
        CASE(the_keeper_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
