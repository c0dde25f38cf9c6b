/* SPDX-License-Identifier: Apache-2.0 */
/* test-runner.c - the life of a rank whose program is another's: this test is the daemon at the other end of the
 * channel, and, started as "test-runner program ACTION", the program. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "exec/client/sdtrain-client.h"
#include "exec/test/testing-program.h"
#include "exec/test/testing-runner.h"
#include "exec/test/testing-survivor.h"
#include "protocol/channel.h"
#include "protocol/exec-variables.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

static bool is_alive(pid_t pid) { return kill(pid, 0) == 0; }

/* ---- the tests ---- */

static void the_end_of_a_program_is_reported(_unused_ void **state)
{
    go(spec("end", "", ""), 0);
    expect_done("finished");
    assert_true(exists("exec/shm-0")); /* tells the next start what was in /dev/shm before */
    go(spec("fail", "", ""), 0);
    expect_error(EXIT_RETRY, "KeyError: 'x'");
    assert_string_equal(run.printed, "a first line\nKeyError: 'x'\n");
    go(spec("code", ", \"exit_codes\": {\"3\": \"never-retry\"}", ""), 0);
    expect_error(EXIT_NEVER_RETRY, "exited 3 without a word");
    go(spec("kill", "", ""), 0);
    expect_error(-SIGKILL, "killed by SIGKILL");
}

static void what_can_never_run_ends_before_the_world_goes(_unused_ void **state)
{
    start_runner(0);
    assign_rank(memory_text("{\"name\": \"demo\"}"), 0, "s1");
    expect_error(EXIT_NEVER_RETRY, "the job's spec: world: missing");
    start_runner(0);
    assign_rank(
        memory_text(
            "{\"name\": \"demo\", \"kind\": \"exec\", \"world\": {\"min\": 1, \"max\": 2}, \"exec\": "
            "{\"command\": [\"/nonexistent/a\"], \"dir\": \"/tmp\"}}"),
        0, "s1");
    expect_error(EXIT_NEVER_RETRY, "exec.command: /nonexistent/a: No such file or directory");
    start_runner(0);
    assign_rank(
        memory_text(
            "{\"name\": \"demo\", \"kind\": \"exec\", \"world\": {\"min\": 1, \"max\": 2}, \"exec\": "
            "{\"command\": [\"a\"], \"dir\": \"/nonexistent\"}}"),
        0, "s1");
    expect_error(EXIT_NEVER_RETRY, "exec.dir: /nonexistent: No such file or directory");
    start_runner(0);
    assign_rank(spec("end", ", \"secrets\": [\"NOT_THERE\"]", ""), 0, "s1");
    ChannelMessage m = {0};
    expect(CHANNEL_ERROR, &m);
    assert_int_equal(m.exit_code, EXIT_NEVER_RETRY);
    assert_non_null(strstr(m.text, "exec.secrets: NOT_THERE is not in "));
    assert_int_equal(reap(), EXIT_NEVER_RETRY);
}

static void an_evaluation_needs_a_checkpoint(_unused_ void **state)
{
    start_runner(0);
    assign_rank(eval_spec("end"), 0, "s1");
    expect_error(EXIT_NEVER_RETRY, "the world names no checkpoint to evaluate");
    runner_checkpoint = "/elsewhere/step-7";
    start_runner(0);
    assign_rank(eval_spec("end"), 0, "s1");
    runner_checkpoint = "";
    expect_error(EXIT_NEVER_RETRY, "/elsewhere/step-7: outside of checkpoint.uri");
}

/* Without the address of rank 0 another rank could only wait for ever. */
static void a_rank_that_is_not_told_where_rank_0_is_ends(_unused_ void **state)
{
    ChannelMessage m = {0};
    start_runner(0);
    assign_rank(spec("end", "", ""), 1, "s1");
    expect(CHANNEL_READY, &m);
    m = (ChannelMessage){.type = CHANNEL_GO, .address = "nowhere"};
    tell(&m);
    expect_error(EXIT_RETRY, "go names no address of rank 0");
}

static void any_end_in_a_leave_is_a_leave(_unused_ void **state)
{
    ChannelMessage m = {0};
    go(spec("leave", "", ""), 0);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("left");
    go(spec("leave-well", "", ""), 0);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("left");
    /* the last step makes it the end */
    go(spec("leave", ", \"steps\": 4", ""), 0);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("finished");
}

static void only_the_main_process_is_signalled(_unused_ void **state)
{
    ChannelMessage m = {0};
    forget_file("helper-lives");
    forget_file("helper-waits");
    go(spec("leave-by-signal", "", ""), 0);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("finished"); /* FINISHED=1 */
    assert_true(exists("helper-lives"));
}

static void who_does_not_leave_is_killed(_unused_ void **state)
{
    ChannelMessage m = {0};
    const uint64_t began = clock_boottime_usec();
    go(spec("stay", ", \"leave_s\": 0", ""), 0);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("left");
    assert_true(clock_boottime_usec() - began < 20 * USEC_PER_SEC);
}

static void the_client_for_c_reports_and_receives(_unused_ void **state)
{
    ChannelMessage m = {0};
    runner_held = (ChannelHeld){.steps = {3}, .n = 1};
    go(spec("client", "", ""), 0);
    runner_held.n = 0;
    expect(CHANNEL_STEP, &m);
    assert_true(m.step == 5 && m.loss == 0.5);
    expect(CHANNEL_SAVED, &m);
    m = (ChannelMessage){.type = CHANNEL_COMMITTED, .step = 5, .held = {.steps = {2, 4}, .n = 2}};
    tell(&m);
    m = (ChannelMessage){.type = CHANNEL_CHECKPOINT};
    tell(&m);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("finished");
    /* without sdtrain nothing happens */
    assert_int_equal(unsetenv("SDTRAIN_SOCKET"), 0);
    sdtrain_forked();
    assert_true(!sdtrain_active() && !sdtrain_report("STEP=1") && !sdtrain_save_requested());
    assert_true(sdtrain_leaving() < 0 && sdtrain_checkpoint("/a", 1, 1) == 1);
}

/* The request to leave reaches a process that connects after it. */
static void who_connects_late_is_asked_to_leave_too(_unused_ void **state)
{
    ChannelMessage m = {0};
    forget_file("waits");
    go(spec("late", "", ""), 0);
    await_file("waits");
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("finished");
}

static void silence_is_bounded(_unused_ void **state)
{
    ChannelMessage m = {0};
    go(spec("silent", ", \"silence_s\": 1", ""), 0);
    expect(CHANNEL_STEP, &m);
    expect(CHANNEL_STEP, &m); /* it was heard of for more than a second */
    assert_int_equal(m.step, 2);
    expect(CHANNEL_ERROR, &m);
    assert_int_equal(m.exit_code, -SIGKILL);
    assert_true(m.hung && !m.stuck);
    assert_string_equal(m.text, "no output and no report for 1 s (exec.silence_s)");
    assert_int_equal(reap(), EXIT_RETRY);
}

/* If several ranks are silent, the one that the kernel shows stopped is to blame. */
static void a_program_that_is_stopped_is_known(_unused_ void **state)
{
    ChannelMessage m = {0};
    forget_file("waits");
    go(spec("stopped", ", \"silence_s\": 1", ""), 0);
    expect(CHANNEL_ERROR, &m);
    assert_int_equal(m.exit_code, -SIGKILL);
    assert_true(m.hung && m.stuck);
    assert_string_equal(m.text, "no output and no report for 1 s (exec.silence_s); it was stopped");
    assert_int_equal(reap(), EXIT_RETRY);
}

static bool has_printed(const char *text)
{
    return memmem(run.printed, run.n_printed, text, strlen(text)) != NULL;
}

static void stacks_are_printed_before_the_end(_unused_ void **state)
{
    ChannelMessage m = {0};
    char log[4096] = "";
    runner_log = memfd_create("log", MFD_CLOEXEC);
    go(spec("stacks", ", \"silence_s\": 1", ""), 0);
    expect(CHANNEL_STEP, &m);
    expect(CHANNEL_ERROR, &m);
    assert_true(m.hung && !m.stuck);
    assert_string_equal(m.text,
                        "no output and no report for 1 s (exec.silence_s); it stood in step "
                        "(train.py:33)");
    assert_int_equal(reap(), EXIT_RETRY);
    assert_true(has_printed("load.py"));
    assert_true(pread(runner_log, log, sizeof(log) - 1, 0) > 0);
    assert_non_null(strstr(log, ") sleeps"));
    runner_log = fd_close(runner_log);
}

/* sdtraind has found that the rank hangs. */
static void a_hang_is_explained(_unused_ void **state)
{
    static const struct {
        const char *action, *where;
    } cases[] = {{"stacks", "no progress since step 1; it stood in step (train.py:33)"},
                 {"no-stacks", "no progress since step 1"},
                 {"wait", "no progress since step 1"}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ChannelMessage m = {0};
        forget_file("waits");
        go(spec(cases[i].action, "", ""), 0);
        expect(CHANNEL_STEP, &m);
        m = (ChannelMessage){.type = CHANNEL_HUNG, .text = "no progress since step 1"};
        tell(&m);
        expect(CHANNEL_ERROR, &m);
        assert_int_equal(m.exit_code, -SIGKILL);
        assert_true(m.hung && !m.stuck);
        assert_string_equal(m.text, cases[i].where);
        assert_int_equal(reap(), EXIT_RETRY);
    }
}

/* NCCL's flight record is waited for, if somebody makes one. */
static void a_flight_record_is_written(_unused_ void **state)
{
    static const struct {
        const char *action;
        bool is_written;
    } cases[] = {{"flight", true}, {"no-flight", false}, {"deaf-flight", false}};
    _cleanup_free_ char *file = memory_format("%s/flight-0", folder);
    _cleanup_free_ char *environment =
        memory_format(", \"env\": {\"TORCH_NCCL_DEBUG_INFO_PIPE_FILE\": \"%s/pipe-\", "
                      "\"TORCH_FR_DUMP_TEMP_FILE\": \"%s/flight-\", "
                      "\"TORCH_NCCL_DEBUG_INFO_TEMP_FILE\": \"/nowhere/\"}",
                      folder, folder);
    _cleanup_free_ char *named =
        memory_format("no progress since step 1; its flight record is %s", file);
    /* an older record is not taken for the new one */
    assert_int_equal(file_write(file, "old", 3, 0, NULL), 0);
    for (size_t i = ELEMENTSOF(cases); i-- > 0;) {
        ChannelMessage m = {0};
        _cleanup_free_ char *record = NULL;
        go(spec(cases[i].action, environment, ""), 0);
        expect(CHANNEL_STEP, &m);
        m = (ChannelMessage){.type = CHANNEL_HUNG, .text = "no progress since step 1"};
        tell(&m);
        expect(CHANNEL_ERROR, &m);
        assert_true(m.hung && !m.stuck);
        assert_string_equal(m.text, cases[i].is_written ? named : "no progress since step 1");
        assert_int_equal(reap(), EXIT_RETRY);
        assert_int_equal(file_read(file, 100, &record, NULL, NULL), 0);
        assert_string_equal(record, cases[i].is_written ? "recordrecord" : "old");
    }
}

/* A program that hangs although it is asked to leave has not left. */
static void a_hang_in_a_leave_is_a_hang(_unused_ void **state)
{
    ChannelMessage m = {0};
    forget_file("waits");
    go(spec("stay", "", ""), 0);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    m = (ChannelMessage){.type = CHANNEL_HUNG, .text = "no progress since step 1"};
    tell(&m);
    expect_error(-SIGKILL, "no progress since step 1");
}

/* The rank hangs before its program has begun. */
static void a_hang_before_the_start_ends_the_rank(_unused_ void **state)
{
    ChannelMessage m = {0};
    start_runner(0);
    assign_rank(spec("end", "", ""), 0, "s1");
    expect(CHANNEL_RENDEZVOUS, &m);
    expect(CHANNEL_READY, &m);
    m = (ChannelMessage){.type = CHANNEL_HUNG, .text = "not ready"};
    tell(&m);
    expect_error(-SIGKILL, "not ready");
}

static void tell_lease(uint64_t left_msec)
{
    ChannelMessage m = {.type = CHANNEL_ALIVE,
                        .alive_usec = 600 * USEC_PER_SEC,
                        .lease_usec = clock_boottime_usec() + left_msec * USEC_PER_MSEC};
    tell(&m);
}

/* The program is dead before the node's lease may have ended: another world may run from then on. */
static void the_fence_ends_a_program_in_time(_unused_ void **state)
{
    ChannelMessage m = {0};
    go(spec("stopped", ", \"fence_s\": 0", ""), 0);
    const uint64_t end_usec = clock_boottime_usec() + 1200 * USEC_PER_MSEC;
    tell_lease(600);
    tell_lease(1200); /* renewed */
    expect(CHANNEL_ERROR, &m);
    assert_int_equal(m.exit_code, EXIT_RETRY);
    assert_false(m.hung);
    assert_string_equal(m.text,
                        "no word from etcd, and the node's lease may have ended (exec.fence_s)");
    assert_true(clock_boottime_usec() < end_usec);
    assert_int_equal(reap(), EXIT_RETRY);
}

static void without_a_fence_the_lease_is_not_looked_at(_unused_ void **state)
{
    ChannelMessage m = {0};
    forget_file("waits");
    go(spec("late", "", ""), 0);
    tell_lease(0);
    await_file("waits");
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("finished");
}

/* A runner that stands still is ended by its timer, and the kernel ends the program with it. */
static void a_runner_that_stands_still_keeps_the_fence(_unused_ void **state)
{
    int status;
    forget_file("waits");
    go(spec("late", ", \"fence_s\": 0", ""), 0);
    await_file("waits");
    tell_lease(900);
    tell_lease(900); /* once this one is read, the timer is set by the one before */
    await_read();
    assert_int_equal(kill(run.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(run.pid, &status, 0), run.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    (void)close(run.channel);
    (void)close(run.output);
}

/* A program that waits for a driver survives SIGKILL: sdtraind is told once, and the runner ends without it. */
static void a_program_that_survives_sigkill_is_named(_unused_ void **state)
{
    char byte;
    ChannelMessage m = {0};
    spare_program(true);
    go(spec("stay", ", \"leave_s\": 0", ""), 0);
    spare_program(false);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect(CHANNEL_ERROR, &m);
    assert_int_equal(m.exit_code, -SIGKILL);
    assert_true(m.hung);
    assert_string_equal(m.text, "its process survives SIGKILL");
    assert_int_equal(waitid(P_PID, (id_t)run.pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
    assert_int_equal(recv(run.channel, &byte, 1, 0), 0);
    assert_int_equal(reap(), EXIT_RETRY);
}

/* A program that vanishes between `ready` and `go` ends the job as one that was never there. */
static void a_program_that_vanishes_is_named(_unused_ void **state)
{
    ChannelMessage m = {0};
    char dir[300], *text;
    (void)snprintf(dir, sizeof(dir), "%s/dir", folder);
    assert_int_equal(folder_make(dir, NULL), 0);
    text = memory_format(
        "{\"name\": \"demo\", \"kind\": \"exec\", \"world\": {\"min\": 1, \"max\": 2}, \"exec\": "
        "{\"command\": [\"/bin/true\"], \"dir\": \"%s\"}}",
        dir);
    start_runner(0);
    assign_rank(text, 1, "s1");
    expect(CHANNEL_READY, &m);
    assert_int_equal(rmdir(dir), 0);
    m = (ChannelMessage){.type = CHANNEL_GO, .address = "127.0.0.1:29999"};
    tell(&m);
    expect(CHANNEL_ERROR, &m);
    assert_int_equal(m.exit_code, EXIT_NEVER_RETRY);
    assert_non_null(strstr(m.text, "exec.dir: "));
    assert_non_null(strstr(m.text, "/dir: No such file or directory"));
    assert_int_equal(reap(), EXIT_NEVER_RETRY);
}

static void nothing_of_the_group_stays(_unused_ void **state)
{
    go(spec("child", "", ""), 0);
    expect_done("finished");
    const char *number = strstr(run.printed, "child ");
    assert_non_null(number);
    const pid_t child = (pid_t)atoi(number + 6);
    const uint64_t until = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    while (is_alive(child)) { /* it has got SIGKILL: it was in the program's group */
        (void)waitpid(child, NULL, WNOHANG);
        assert_true(clock_boottime_usec() < until);
        (void)usleep(2000);
    }
}

static void the_setup_runs_once_for_a_submission(_unused_ void **state)
{
    ChannelMessage m = {0};
    char *setup = memory_format(", \"setup\": [\"%s\", \"program\", \"setup\"]", self);
    forget_file("setup");
    for (int i = 0; i < 3; i++) { /* twice for s1, once for s2 */
        start_runner(0);
        assign_rank(spec("end", setup, ""), 1, i < 2 ? "s1" : "s2");
        expect(CHANNEL_READY, &m);
        (void)close(run.channel);
        run.channel = -EBADF;
        int status;
        assert_int_equal(waitpid(run.pid, &status, 0), run.pid);
        (void)close(run.output);
        struct stat st;
        char path[300];
        (void)snprintf(path, sizeof(path), "%s/setup", folder);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, i < 2 ? 2 : 4);
    }
    free(setup);
    setup = memory_format(", \"setup\": [\"%s\", \"program\", \"code\"]", self);
    start_runner(0);
    assign_rank(spec("end", setup, ""), 1, "s3");
    expect_error(EXIT_RETRY, "exec.setup: exited 3 without a word");
    free(setup);
}

static void the_environment_is_the_nodes_and_ours(_unused_ void **state)
{
    ChannelMessage m = {0};
    go(spec("print-environment", ", \"env\": {\"MINE\": \"${WORLD_SIZE}\"}", ""), 1);
    expect(CHANNEL_DONE, &m);
    assert_int_equal(reap(), 0);
    static const char *const there[] = {
        "NODE_SAYS=hello\n",       "SDTRAIN_OWNER=/run/x:0\n", "MINE=2\n",      "RANK=1\n",
        "MASTER_ADDR=127.0.0.1\n", "MASTER_PORT=29999\n",      "GROUP_RANK=1\n"};
    for (size_t i = 0; i < ELEMENTSOF(there); i++)
        if (!strstr(run.printed, there[i]))
            fail_msg("%s is missing in:\n%s", there[i], run.printed);
    assert_null(strstr(run.printed, EXEC_SECRETS_VARIABLE));
    assert_null(strstr(run.printed, "SDTRAIN_LOG"));
}

static pid_t child_of(pid_t parent)
{
    char path[100], text[64] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    (void)file_read_line(path, text, sizeof(text));
    return (pid_t)atoi(text);
}

/* However a runner dies, its program does not live on. */
static void a_program_dies_with_its_runner(_unused_ void **state)
{
    ChannelMessage m = {0};
    for (int how = 0; how < 3; how++) {
        forget_file("waits");
        go(spec("wait", "", ""), 0);
        await_file("waits");
        expect(CHANNEL_STEP, &m);
        const pid_t child = child_of(run.pid);
        assert_true(child > 0 && is_alive(child));
        if (how == 0) {
            assert_int_equal(kill(run.pid, SIGKILL), 0);
        } else if (how == 1) {
            (void)close(run.channel); /* sdtraind has died */
            run.channel = -EBADF;
        } else {
            m = (ChannelMessage){.type = CHANNEL_ALIVE,
                                 .alive_usec = 50000}; /* sdtraind stands still */
            tell(&m);
        }
        assert_int_equal(reap(), how == 1 ? EXIT_RETRY : -SIGKILL);
        const uint64_t until = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
        while (is_alive(child)) {
            (void)waitpid(child, NULL, WNOHANG); /* this test is the subreaper */
            assert_true(clock_boottime_usec() < until);
            (void)usleep(2000);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "program") == 0)
        return testing_program(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_program_is_reported),
        cmocka_unit_test(what_can_never_run_ends_before_the_world_goes),
        cmocka_unit_test(an_evaluation_needs_a_checkpoint),
        cmocka_unit_test(a_rank_that_is_not_told_where_rank_0_is_ends),
        cmocka_unit_test(any_end_in_a_leave_is_a_leave),
        cmocka_unit_test(only_the_main_process_is_signalled),
        cmocka_unit_test(who_does_not_leave_is_killed),
        cmocka_unit_test(the_client_for_c_reports_and_receives),
        cmocka_unit_test(who_connects_late_is_asked_to_leave_too),
        cmocka_unit_test(silence_is_bounded),
        cmocka_unit_test(stacks_are_printed_before_the_end),
        cmocka_unit_test(a_hang_is_explained),
        cmocka_unit_test(a_flight_record_is_written),
        cmocka_unit_test(a_hang_in_a_leave_is_a_hang),
        cmocka_unit_test(a_hang_before_the_start_ends_the_rank),
        cmocka_unit_test(a_program_that_is_stopped_is_known),
        cmocka_unit_test(the_fence_ends_a_program_in_time),
        cmocka_unit_test(without_a_fence_the_lease_is_not_looked_at),
        cmocka_unit_test(a_runner_that_stands_still_keeps_the_fence),
        cmocka_unit_test(a_program_that_survives_sigkill_is_named),
        cmocka_unit_test(a_program_that_vanishes_is_named),
        cmocka_unit_test(nothing_of_the_group_stays),
        cmocka_unit_test(the_setup_runs_once_for_a_submission),
        cmocka_unit_test(the_environment_is_the_nodes_and_ours),
        cmocka_unit_test(a_program_dies_with_its_runner),
    };
    if (runner_tests_begin() < 0)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_tests_end();
    return failed;
}
