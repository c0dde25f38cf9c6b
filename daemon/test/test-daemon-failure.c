/* SPDX-License-Identifier: Apache-2.0 */
/* test-daemon-failure.c - ranks and daemons that fail, as the leader sees them. */
#include "daemon/test/testing-daemon.h"

#include "base/clock.h"
#include "base/file.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENDLESS "\"FAKE_STEPS=1000000\""

/* Starts one node with these slots and this trainer environment, and one job that trains on all slots. */
static LabNode *start_training(Lab *lab, int slots, const char *environment, const char *settings,
                               const char *fault)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), "\"slots\": %d, \"trainer_environment\": [%s]%s%s", slots,
                   environment, *settings ? ", " : "", settings);
    LabNode *node = lab_start_node(lab, 0, text, fault);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, (UINT64_C(1) << slots) - 1}}, 1);
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    return node;
}

static bool some_exited(Lab *lab, const void *userdata)
{
    const LabWhere *w = userdata;
    RanksRecord record;
    if (!lab_ranks(lab, w->job, w->generation, w->node, &record))
        return false;
    for (size_t i = 0; i < record.n_ranks; i++)
        if (record.ranks[i].state == RANK_EXITED)
            return true;
    return false;
}

static RankReport exited_report(Lab *lab, int64_t generation)
{
    RanksRecord record;
    lab_wait(lab, some_exited, &(LabWhere){"a", generation, 0, 0});
    assert_true(lab_ranks(lab, "a", generation, 0, &record));
    for (size_t i = 0; i < record.n_ranks; i++)
        if (record.ranks[i].state == RANK_EXITED)
            return record.ranks[i];
    fail_msg("no rank has exited");
    return (RankReport){0};
}

static const LabWhere here_running = {"a", 1, 0, RANK_RUNNING};

static void test_killed_rank_is_reported_at_once(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)start_training(lab, 2, ENDLESS, "", NULL);
    lab_wait(lab, lab_all_in_state, &here_running);
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));

    uint64_t killed_usec = clock_realtime_usec();
    assert_int_equal(kill(ranks.ranks[1].pid, SIGKILL), 0);
    RankReport report = exited_report(lab, 1);
    uint64_t seen_usec = clock_realtime_usec();
    assert_int_equal(report.rank, 1);
    assert_int_equal(report.exit_code, -SIGKILL);
    assert_false(report.killed);
    assert_string_equal(report.text, "killed by SIGKILL");
    assert_true(report.at_usec >= killed_usec);
    assert_true(report.step > 0);
    /* Usually under 10 ms: no timer delays the report. */
    print_message("exit known to a watcher %.1f ms after the kill\n",
                  (double)(seen_usec - killed_usec) / 1e3);
}

static void expect_exit(const char *at, int code, const char *text, int64_t step)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    char environment[128];
    (void)snprintf(environment, sizeof(environment), ENDLESS ", \"FAKE_AT=%s\"", at);
    (void)start_training(lab, 1, environment, "", NULL);
    RankReport report = exited_report(lab, 1);
    assert_int_equal(report.exit_code, code);
    assert_non_null(strstr(report.text, text));
    assert_int_equal(report.step, step);
    assert_false(report.killed);
    assert_false(report.hung);
}

static void test_error_carries_its_text(_unused_ void **state)
{
    expect_exit("0:7:error84", 84, "the loss is not finite", 7);
}

static void test_exit_carries_the_last_line(_unused_ void **state)
{
    expect_exit("0:3:exit82", 82, "went wrong", 3);
}

static void test_crash_carries_its_signal(_unused_ void **state)
{
    expect_exit("0:3:segv", -SIGSEGV, "SIGSEGV", 3);
}

static void test_lingering_after_error_is_ended(_unused_ void **state)
{
    expect_exit("0:5:linger", 81, "the loss is not finite", 5);
}

static void test_missing_program_says_so(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    char trainer[400], setting[500];
    (void)snprintf(trainer, sizeof(trainer), "%s/not-a-program", lab_folder(lab));
    assert_int_equal(file_write(trainer, "\177ELF", 4, 0, NULL), 0);
    assert_int_equal(chmod(trainer, 0755), 0);
    (void)snprintf(setting, sizeof(setting), "\"startup_sec\": 10, \"trainer\": \"%s\"", trainer);
    (void)start_training(lab, 1, "", setting, NULL);
    RankReport report = exited_report(lab, 1);
    assert_int_equal(report.exit_code, 127);
    assert_non_null(strstr(report.text, "cannot execute"));
}

/* Processes that a trainer started die with the trainer, in its process group or not, with a cgroup or without. */
static void expect_no_grandchild(const char *child, const char *settings, const char *fault)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    char environment[128];
    (void)snprintf(environment, sizeof(environment), ENDLESS ", \"FAKE_CHILD=%s\"", child);
    LabNode *node = start_training(lab, 1, environment, settings, fault);
    lab_wait(lab, lab_all_in_state, &here_running);
    int pidfds[8];
    size_t n = lab_marked(node, pidfds, ELEMENTSOF(pidfds));
    assert_int_equal(n, 2);

    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    assert_int_equal(kill(ranks.ranks[0].pid, SIGKILL), 0);
    (void)exited_report(lab, 1);
    assert_true(lab_all_end(pidfds, n, LAB_WAIT_MSEC));

    (void)lab_put_world(lab, "a", 2, (LabRun[]){{0, 1}}, 1); /* the slot can be used again */
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 2, 0, RANK_READY});
}

static void test_grandchild_dies_with_cgroup(_unused_ void **state)
{
    expect_no_grandchild("session", "", NULL);
}

static void test_grandchild_dies_with_group(_unused_ void **state)
{
    expect_no_grandchild("group", "\"cgroup\": \"off\"", NULL);
}

static void test_grandchild_that_left_its_group_dies(_unused_ void **state)
{
    expect_no_grandchild("session", "\"cgroup\": \"off\"", NULL);
}

/* The rank is not in its cgroup: the empty cgroup must not count as the end of the rank's processes. */
static void test_grandchild_outside_its_cgroup_dies(_unused_ void **state)
{
    expect_no_grandchild("session", "", "spawn.cgroup=eio@*");
}

static bool is_later_life(Lab *lab, const void *userdata)
{
    const uint64_t *incarnation = userdata;
    NodeRecord record;
    return lab_node_record(lab, 0, &record) && record.incarnation > *incarnation;
}

/* Returns a pidfd of the parent's child with that program name, or -1. */
static int child_called(pid_t parent, const char *name)
{
    char path[64], line[64] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    _cleanup_file_ FILE *children = fopen(path, "re");
    int pid;
    while (children && fscanf(children, "%d", &pid) == 1) {
        (void)snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        _cleanup_file_ FILE *comm = fopen(path, "re");
        if (comm && fscanf(comm, "%63s", line) == 1 && strcmp(line, name) == 0)
            return (int)syscall(SYS_pidfd_open, pid, 0);
    }
    return -1;
}

static bool has_sleeper(_unused_ Lab *lab, const void *node)
{
    _cleanup_fd_ int pidfd = child_called(((const LabNode *)node)->pid, "sleep");
    return pidfd >= 0;
}

/* A process that has left its group, session and environment dies, too: sdtraind has adopted it as the subreaper. */
static void test_grandchild_without_environment_dies(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node =
        start_training(lab, 2, ENDLESS ", \"FAKE_CHILD=bare\"", "\"cgroup\": \"off\"", NULL);
    lab_wait(lab, lab_all_in_state, &here_running);
    lab_wait(lab, has_sleeper, node);
    int pidfd = child_called(node->pid, "sleep");
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    assert_int_equal(kill(ranks.ranks[0].pid, SIGKILL), 0);
    assert_int_equal(kill(ranks.ranks[1].pid, SIGKILL), 0);
    assert_true(lab_all_end(&pidfd, 1, LAB_WAIT_MSEC));
    (void)lab_put_world(lab, "a", 2, (LabRun[]){{0, 3}}, 1);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 2, 0, RANK_READY});
}

static mode_t mode_of(const char *folder, const char *name)
{
    char path[512];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s%s", folder, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

/* A rank does not see the credentials of sdtraind itself, and other users cannot open sdtraind's lock. */
static void test_what_is_sdtrainds_own(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    assert_int_equal(setenv("CREDENTIALS_DIRECTORY", "/run/credentials/sdtraind.service", 1), 0);
    LabNode *node = start_training(lab, 1, ENDLESS, "", NULL);
    assert_int_equal(unsetenv("CREDENTIALS_DIRECTORY"), 0);
    lab_wait(lab, lab_all_in_state, &here_running);
    RanksRecord ranks;
    char path[64], text[1 << 16];
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", ranks.ranks[0].pid);
    _cleanup_file_ FILE *environment = fopen(path, "re");
    assert_non_null(environment);
    size_t n = fread(text, 1, sizeof(text), environment);
    assert_non_null(memmem(text, n, "SDTRAIN_CHANNEL=3", 17));
    assert_null(memmem(text, n, "CREDENTIALS_DIRECTORY", 21));
    assert_int_equal(mode_of(node->run_dir, ""), 0750);
    assert_int_equal(mode_of(node->run_dir, "/lock"), 0600);
}

/* Another user's process with our mark in its environment is not killed. */
static void test_stranger_with_our_mark_lives(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = lab_start_node(lab, 0, "\"slots\": 1", NULL);
    char mark[600];
    if (geteuid() != 0)
        skip(); /* only root can start another user's process */
    (void)snprintf(mark, sizeof(mark), "SDTRAIN_OWNER=%s:0", node->run_dir);
    pid_t stranger = fork();
    if (stranger == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || setgid(65534) < 0 || setuid(65534) < 0)
            _exit(1);
        (void)execle("/bin/sleep", "sleep", "1000", NULL, (char *[]){mark, NULL});
        _exit(1);
    }
    /* After this kill the keeper and the next sdtraind look for processes with marks. */
    assert_int_equal(kill(node->pid, SIGKILL), 0);
    assert_int_equal(lab_wait_end(lab, node), -SIGKILL);
    NodeRecord before;
    assert_true(lab_node_record(lab, 0, &before));
    (void)lab_spawn_node(lab, 0, "\"slots\": 1", NULL);
    lab_wait(lab, is_later_life, &before.incarnation);
    assert_int_equal(waitpid(stranger, NULL, WNOHANG), 0);
    assert_int_equal(kill(stranger, SIGKILL), 0);
    assert_int_equal(waitpid(stranger, NULL, 0), stranger);
}

/* However sdtraind ends, no process of its ranks outlives it. */
static void expect_no_orphan(int signal, const char *settings)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, 2, ENDLESS ", \"FAKE_CHILD=session\"", settings, NULL);
    lab_wait(lab, lab_all_in_state, &here_running);
    int pidfds[8];
    size_t n = lab_marked(node, pidfds, ELEMENTSOF(pidfds));
    assert_int_equal(n, 4);
    assert_int_equal(kill(node->pid, signal), 0);
    assert_true(lab_all_end(pidfds, n, LAB_WAIT_MSEC));
    assert_int_equal(lab_wait_end(lab, node), -signal);

    /* The next sdtraind registers the node again, and starts no rank of the old world. */
    NodeRecord before;
    assert_true(lab_node_record(lab, 0, &before));
    (void)lab_spawn_node(lab, 0, "\"slots\": 2", NULL);
    lab_wait(lab, is_later_life, &before.incarnation);
    n = lab_marked(node, pidfds, ELEMENTSOF(pidfds));
    assert_int_equal(n, 0);
}

static void test_no_orphan_after_kill(_unused_ void **state) { expect_no_orphan(SIGKILL, ""); }

static void test_no_orphan_after_kill_without_cgroup(_unused_ void **state)
{
    expect_no_orphan(SIGKILL, "\"cgroup\": \"off\"");
}

static void test_no_orphan_after_crash(_unused_ void **state) { expect_no_orphan(SIGABRT, ""); }

/* A frozen daemon cannot stop its ranks: their dead-man timers end them. */
static void test_frozen_daemon_ends_its_ranks(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, 2, ENDLESS, "\"lease_sec\": 2", NULL);
    lab_wait(lab, lab_all_in_state, &here_running);
    int pidfds[8];
    size_t n = lab_marked(node, pidfds, ELEMENTSOF(pidfds));
    assert_int_equal(n, 2);
    assert_int_equal(kill(node->pid, SIGSTOP), 0);
    assert_true(lab_all_end(pidfds, n, LAB_WAIT_MSEC));
    assert_int_equal(kill(node->pid, SIGCONT), 0);
    RankReport report = exited_report(lab, 1);
    assert_int_equal(report.exit_code, -SIGKILL);
}

static bool has_hung(Lab *lab, const void *userdata)
{
    const int *rank = userdata;
    RanksRecord record;
    if (!lab_ranks(lab, "a", 1, 0, &record))
        return false;
    for (size_t i = 0; i < record.n_ranks; i++)
        if (record.ranks[i].hung && record.ranks[i].state == RANK_EXITED)
            return record.ranks[i].rank == *rank;
    return false;
}

/* A rank that makes no progress is found by the time of its own steps, and killed; other ranks are not blamed. */
static void test_stopped_rank_is_found(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)start_training(lab, 2, ENDLESS ", \"FAKE_STEP_MSEC=20\", \"FAKE_AT=1:20:stop\"",
                         "\"hang_floor_sec\": 4", NULL);
    const int rank = 1;
    uint64_t began_usec = clock_boottime_usec();
    lab_wait(lab, has_hung, &rank);
    print_message("found %.1f s after the start\n",
                  (double)(clock_boottime_usec() - began_usec) / 1e6);
    RanksRecord record;
    assert_true(lab_ranks(lab, "a", 1, 0, &record));
    assert_int_equal(record.ranks[1].step, 20);
    assert_int_equal(record.ranks[1].stage, 5); /* the stage "computing" */
    assert_int_equal(record.ranks[0].state, RANK_RUNNING);
    assert_false(record.ranks[1].killed);
    assert_non_null(strstr(record.ranks[1].text, "no progress since step 20, computing"));
}

static void test_rank_that_never_starts_is_found(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)start_training(lab, 1, "\"FAKE_DEAF=1\"", "\"startup_sec\": 1", NULL);
    const int rank = 0;
    lab_wait(lab, has_hung, &rank);
}

static bool has_lost_slot(Lab *lab, const void *userdata)
{
    const uint64_t *slots = userdata;
    NodeRecord record;
    return lab_node_record(lab, 0, &record) && record.lost_slots == *slots;
}

/* Each check reports that a process still lives, as if it were in state D: the slot is lost. */
static void test_unconfirmed_kill_loses_the_slot(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, 1, ENDLESS, "", "kill-confirm=eio@*");
    lab_wait(lab, lab_all_in_state, &here_running);
    (void)lab_put_world(lab, "a", 2, (LabRun[]){{0, 1}}, 1);
    const uint64_t lost = 1;
    lab_wait(lab, has_lost_slot, &lost);
    RankReport report = exited_report(lab, 2); /* the new world does not wait for the slot */
    assert_int_equal(report.exit_code, 75);
    assert_non_null(strstr(report.text, "survives SIGKILL"));
    lab_wait(lab, lab_is_killed, &(LabWhere){"a", 1, 0, 0});
    assert_true(lab_log_has(node, "slot 0 is lost"));
}

/* The process in a lost slot ends only after its world is over and forgotten. Then the slot is free, and a later
 * world need not wait for anything. */
static void test_lost_slot_clears_without_a_trace(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)start_training(lab, 1, ENDLESS, "", "kill-send=eio@1");
    (void)lab_start_node(lab, 1, "", NULL);
    lab_wait(lab, lab_all_in_state, &here_running);
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    pid_t pid = ranks.ranks[0].pid;
    (void)lab_put_world(lab, "a", 2, (LabRun[]){{1, 1}}, 1); /* a world on the other node */
    const uint64_t lost = 1, none = 0;
    lab_wait(lab, has_lost_slot, &lost);
    RankReport report = exited_report(lab, 1);
    assert_non_null(strstr(report.text, "survives SIGKILL"));
    lab_wait(lab, lab_is_killed, &(LabWhere){"a", 1, 0, 0});

    assert_int_equal(kill(pid, SIGKILL), 0);
    lab_wait(lab, has_lost_slot, &none);
    (void)lab_put_world(lab, "a", 3, (LabRun[]){{0, 1}}, 1); /* the slot can be used again */
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 3, 0, RANK_READY});
}

static bool log_is_bounded(const LabNode *node, int64_t max_bytes)
{
    char path[500];
    int64_t total = 0;
    for (int i = 0; i < 2; i++) {
        struct stat st;
        (void)snprintf(path, sizeof(path), "%s/a/g1/rank0.log%s", node->log_dir, i ? ".1" : "");
        assert_int_equal(stat(path, &st), 0);
        total += st.st_size;
    }
    return total <= max_bytes && total >= max_bytes / 4;
}

static void test_log_is_bounded(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, 1, "\"FAKE_PRINT=1000000\"", "\"log_bytes\": 65536", NULL);
    lab_wait(lab, lab_is_finished, &here_running);
    assert_true(log_is_bounded(node, 65536));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_rank_is_reported_at_once),
        cmocka_unit_test(test_error_carries_its_text),
        cmocka_unit_test(test_exit_carries_the_last_line),
        cmocka_unit_test(test_crash_carries_its_signal),
        cmocka_unit_test(test_lingering_after_error_is_ended),
        cmocka_unit_test(test_missing_program_says_so),
        cmocka_unit_test(test_grandchild_dies_with_cgroup),
        cmocka_unit_test(test_grandchild_dies_with_group),
        cmocka_unit_test(test_grandchild_that_left_its_group_dies),
        cmocka_unit_test(test_grandchild_outside_its_cgroup_dies),
        cmocka_unit_test(test_grandchild_without_environment_dies),
        cmocka_unit_test(test_what_is_sdtrainds_own),
        cmocka_unit_test(test_stranger_with_our_mark_lives),
        cmocka_unit_test(test_no_orphan_after_kill),
        cmocka_unit_test(test_no_orphan_after_kill_without_cgroup),
        cmocka_unit_test(test_no_orphan_after_crash),
        cmocka_unit_test(test_frozen_daemon_ends_its_ranks),
        cmocka_unit_test(test_stopped_rank_is_found),
        cmocka_unit_test(test_rank_that_never_starts_is_found),
        cmocka_unit_test(test_unconfirmed_kill_loses_the_slot),
        cmocka_unit_test(test_lost_slot_clears_without_a_trace),
        cmocka_unit_test(test_log_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
