/* SPDX-License-Identifier: Apache-2.0 */
/* test-keeper.c - only one sdtraind has a run_dir, and its keeper ends the processes that sdtraind leaves. */
#include "base/clock.h"
#include "base/file.h"
#include "daemon/test/testing-orphans.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

__typeof__(poll) __real_poll;

/* ---- the lock ---- */

/* Starts a process that locks run_dir. With hands_on that process ends, and its child, the keeper, still has the
 * lock. Returns the process that has the lock. */
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
    expect_locked_after(keeper, 11, 0); /* a wait of 1.0 s is not logged */
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
        sessions->of[63] = bare; /* set after the keeper's start */
        sessions->of[7] = stranger;
        (void)!write(up[1], &keeper, sizeof(keeper));
        pause();
        _exit(0);
    }
    assert_int_equal(read(up[0], ret_keeper, sizeof(*ret_keeper)), sizeof(*ret_keeper));
    (void)close(up[0]), (void)close(up[1]);
    return pid;
}

/* Ranks are killed when their sdtraind has ended, ranks with a mark and ranks with only a session. No other process
 * is killed. */
static void the_keeper_ends_ranks_when_sdtraind_has_ended(_unused_ void **state)
{
    char text[64];
    int status = 0;
    pid_t keeper = 0;
    const pid_t marked = begin_marked(run_dir, 1), bare = begin("", true, 0);
    const pid_t others = begin("", true, 0), of_others = begin_marked(other_dir, 1);
    const pid_t stranger = geteuid() == 0 ? begin("", true, 65534) : 0; /* another user's process */
    begin_log();
    const pid_t sdtraind = begin_sdtraind(bare, stranger, &keeper);
    for (int i = 0; i < 60000 && state_of(keeper) != 'S'; i++)
        assert_int_equal(__real_poll(NULL, 0, 1), 0); /* the keeper sleeps, and does not spin */
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
    expect_killed(marked); /* reaps the rank: a session exists as long as its leader is a zombie */
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

/* Runs as a separate program: starts a keeper and prints the keeper's command line. */
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
    assert_true(waitpid(-1, &status, 0) > 0); /* reaps the keeper */
    assert_string_equal(text, its);
    if (strcmp(its, "sdtraind-keeper") == 0 && more)
        assert_null(memmem(text, sizeof(text), more, strlen(more)));
}

/* The keeper has its own name in lists of processes; a command line too short for the name stays as it is. */
static void the_keeper_has_a_name(_unused_ void **state)
{
    expect_name("/usr/bin/sdtraind", "--config", "sdtraind-keeper", false);
    expect_name("sdtraind", "--config", "sdtraind-keeper", false);
    expect_name("0123456789abcde", NULL, "sdtraind-keeper", false);
    expect_name("0123456789abcd", NULL, "0123456789abcd", false);
    expect_name("x", NULL, "x", false);
    expect_name("/usr/bin/sdtraind", "--config", "/usr/bin/sdtraind", true);
}

int main(void)
{
    const char *show = getenv("SHOW");
    orphans_begin(getpid());
    if (show) /* the_keeper_has_a_name() has started this process */
        return show_keeper(strcmp(show, "renamed") == 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* as sdtraind does */
#define CASE(name) cmocka_unit_test_setup_teardown(name, orphans_set_up, orphans_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(one_sdtraind_has_a_run_dir),    CASE(a_keeper_is_waited_for_longer),
        CASE(a_lock_that_cannot_be_is_told), CASE(the_keeper_ends_ranks_when_sdtraind_has_ended),
        CASE(the_keeper_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
