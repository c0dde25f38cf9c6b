/* SPDX-License-Identifier: Apache-2.0 */
/* test-process-orphans.c - which processes are orphans, of which slot and run_dir; no other process is killed. */
#include "base/clock.h"
#include "daemon/test/testing-orphans.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* ---- orphans that became our children ---- */

static pid_t started; /* a child that sdtraind started for another slot */
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
    assert_true(orphans_has_owner_tag(of_0, run_dir, 0) &&
                !orphans_has_owner_tag(of_50, run_dir, 0));
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 1);
    expect_killed(of_5);
    assert_true(lives(of_50) && lives(of_0) && lives(started));
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 0);
    assert_int_equal(orphans_kill_adopted(run_dir, 50, is_ours, &started), 1);
    expect_killed(of_50);
    finish(of_0);
    finish(started);
}

/* A mark that was read counts, even if the kernel shows no environment at the next read, as in the middle of an
 * exec. */
static void who_executes_is_not_of_another_slot(_unused_ void **state)
{
    const pid_t of_5 = begin_marked(run_dir, 5);
    started = 0;
    fake->seen_environs = 2; /* only the first read shows the environment */
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 1);
    fake->seen_environs = 0;
    expect_killed(of_5);
}

/* A child without a mark may belong to any slot, and is killed. A child of another process was not adopted by the
 * test, and is not killed. */
static void a_child_without_a_mark_is_of_any_slot(_unused_ void **state)
{
    char mark[200], script[300], number[16] = "";
    int out[2];
    const pid_t bare = begin("", false, 0);
    started = begin("", false, 0);
    orphans_owner_tag(mark, sizeof(mark), run_dir, 5);
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
    assert_true(orphans_has_owner_tag(grandchild, run_dir, 5));
    assert_int_equal(orphans_kill_adopted(run_dir, 7, is_ours, &started), 1);
    expect_killed(bare);
    finish(started);
    started = parent;
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 0);
    finish(parent);
    /* The grandchild has become a child of this process. */
    assert_int_equal(orphans_kill_adopted(run_dir, 5, is_ours, &started), 1);
    expect_killed(grandchild);
    for (int i = 0; i < 2; i++)
        (void)close(out[i]), (void)close(in[i]);
}

/* Another user's mark does not count, since every user may write any mark into his own environment. */
static void a_strangers_mark_is_none(_unused_ void **state)
{
    char mark[200];
    if (geteuid() != 0)
        skip();
    orphans_owner_tag(mark, sizeof(mark), run_dir, 5);
    const pid_t stranger = begin(mark, false, 65534);
    assert_false(orphans_has_owner_tag(stranger, run_dir, 5));
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, NULL), 0);
    finish(stranger);
    assert_false(orphans_has_owner_tag(stranger, run_dir, 5)); /* the process has ended */
}

/* A cluster's services can add many variables to an environment; the mark is found behind all of them. */
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
    orphans_owner_tag(mark, sizeof(mark), run_dir, 5);
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
    assert_true(orphans_has_owner_tag(pid, run_dir, 5));
    assert_false(orphans_has_owner_tag(pid, run_dir, 50));
    finish(pid);
    for (int i = 0; i < 2; i++)
        (void)close(out[i]), (void)close(in[i]);
}

/* Descriptor 0 is valid in a daemon without standard input, and repeated starts and ends leak no descriptor. */
static void descriptor_0_is_one_and_none_is_left(_unused_ void **state)
{
    Error err = ERROR_INIT;
    int status = 0, fd = -1;
    pid_t left = begin_marked(run_dir, 5);
    const int input = dup(0), first = dup(0);
    assert_int_equal(close(first) | close(0), 0);
    started = 0;
    assert_true(orphans_has_owner_tag(left, run_dir, 5));
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
    assert_true(waitpid(-1, &status, 0) > 0); /* reaps the keeper */
    assert_int_equal(status, 0);
    assert_int_equal(dup2(input, 0), 0);
    assert_int_equal(dup(0), first);
    assert_int_equal(close(first) | close(input), 0);
}

/* ---- processes of an earlier life ---- */

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
    assert_true(fake->n_kills >= 2); /* a process that has not ended yet is killed again */
    expect_killed(left[0]);
    expect_killed(left[1]);
    finish(others);
    finish(bare);
}

/* A sdtraind that itself carries the mark, because a rank has started it, does not kill itself. */
static void who_looks_does_not_end_itself(_unused_ void **state)
{
    char mark[200];
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        orphans_owner_tag(mark, sizeof(mark), run_dir, 5);
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
    expect_killed(left); /* the process is killed even if the cgroups cannot be removed */
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
    expect_clear(-EBUSY, 4, "the cgroup stays"); /* 4 tries of 10 s */
}

static void what_survives_sigkill_is_told(_unused_ void **state)
{
    Error err = ERROR_INIT;
    const pid_t left = begin_marked(run_dir, 3);
    fake->nobody_dies = true;
    fake->destroy_usec = 20 * USEC_PER_SEC;
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "a process of an earlier life survives SIGKILL"));
    assert_int_equal(fake->n_kills, 2 * 20); /* 20 rounds in each of two tries within 40 s */
    assert_int_equal(fake->n_polls, 2 * 20);
    fake->n_kills = 0;
    fake->late_usec = fake->destroy_usec = 0;
    fake->destroys[0] = fake->destroys[1] = -EACCES; /* cgroups fail, processes are still killed */
    fake->n_destroys = 0;
    assert_int_equal(orphans_clear(run_dir, &no_cgroups, &err), -EACCES);
    assert_int_equal(fake->n_kills, 20);
    fake->nobody_dies = false;
    finish(left);
}

int main(int argc, char **argv)
{
    if (argc > 1) { /* who_looks_does_not_end_itself() has started this process */
        orphans_begin(getppid());
        return orphans_clear(argv[1], &no_cgroups, NULL) < 0;
    }
    orphans_begin(getpid());
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* as sdtraind does */
#define CASE(name) cmocka_unit_test_setup_teardown(name, orphans_set_up, orphans_tear_down)
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
