/* SPDX-License-Identifier: Apache-2.0 */
/* test-runner-reports.c - reports of a program that reach sdtraind and the log, and requests that reach the program. */
#include "exec/test/testing-program.h"
#include "exec/test/testing-runner.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "protocol/exit-code.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>

static void steps_are_passed_on(_unused_ void **state)
{
    ChannelMessage m = {0};
    go(spec("steps", ", \"steps\": 70", ""), 0);
    expect(CHANNEL_STEP, &m);
    assert_int_equal(m.step, 1);
    assert_true(m.loss == 0.5 && m.lr == 2 && isnan(m.grad_norm) && isnan(m.samples_per_sec));
    assert_int_equal(m.steps, 70);
    m = (ChannelMessage){.type = CHANNEL_CHECKPOINT};
    tell(&m);
    expect(CHANNEL_STEP, &m);
    assert_int_equal(m.step, 3);
    assert_true(m.loss == 0.25);
    assert_int_equal(m.samples_seen, 12);
    assert_true(m.samples_per_sec > 0); /* 8 since the last report */
    expect_done("finished");
    /* another rank's steps are stages only */
    go(spec("fill", "", ""), 1);
    expect_done("finished");
}

static uint64_t n_steps; /* messages that step_before_saved() has received */

/* Receives steps, of which some may have been left out, until `saved`. Returns the last one. */
static int64_t step_before_saved(ChannelMessage *saved)
{
    n_steps = 0;
    for (int64_t step = -1;; step = saved->step, n_steps++) {
        next(saved);
        if (saved->type == CHANNEL_SAVED)
            return step;
        assert_int_equal(saved->type, CHANNEL_STEP);
        assert_true(saved->step > step);
    }
}

static void checkpoints_are_registered_once_committed(_unused_ void **state)
{
    ChannelMessage m = {0};
    go(spec("register", "", ""), 0);
    assert_int_equal(step_before_saved(&m), 7);
    assert_int_equal(m.step, 7);
    assert_string_equal(m.uri, "/ckpt/step-7");
    expect(CHANNEL_STEP, &m); /* the program's second checkpoint was read with it */
    assert_int_equal(m.step, 8);
    m = (ChannelMessage){.type = CHANNEL_COMMITTED, .step = 7, .held = {.steps = {5, 6}, .n = 2}};
    tell(&m);
    assert_int_equal(step_before_saved(&m), 9);
    assert_int_equal(m.step, 9);
    m = (ChannelMessage){.type = CHANNEL_REFUSED, .step = 9};
    tell(&m);
    expect_done("finished");
}

/* The step of the checkpoint is not a step of its evaluation, which has not ended when it is asked to leave. */
static void an_evaluation_registers_nothing(_unused_ void **state)
{
    ChannelMessage m = {0};
    runner_checkpoint = "/ckpt/step-7";
    go(eval_spec("evaluate"), 0);
    runner_checkpoint = "";
    expect(CHANNEL_STEP, &m);
    assert_int_equal(m.step, 2);
    m = (ChannelMessage){.type = CHANNEL_STOP};
    tell(&m);
    expect_done("left");
}

static void start_evaluation(int rank)
{
    runner_checkpoint = "/ckpt/step-7";
    go(eval_spec("results"), rank);
    runner_checkpoint = "";
}

static void evaluate(ChannelMessage *ret)
{
    start_evaluation(0);
    expect(CHANNEL_RESULTS, ret);
}

static void results_are_sent_before_the_end(_unused_ void **state)
{
    ChannelMessage m = {0};
    evaluate(&m);
    const EvalResults *of = &m.results;
    assert_int_equal(m.step, 7);
    assert_int_equal(of->n_numbers, 2);
    assert_string_equal(of->numbers[0].name, "fid");
    assert_true(of->numbers[0].value == 11 && of->numbers[1].value == 0.25);
    assert_int_equal(of->n_artifacts, 1);
    assert_string_equal(of->artifacts[0].uri, "/g/1.png");
    assert_string_equal(of->text, "40 images");
    assert_true(of->seconds > 0 && of->seconds < 60);
    m = (ChannelMessage){.type = CHANNEL_COMMITTED, .step = 7};
    tell(&m);
    expect_done("finished");
}

static void results_are_rank_0s(_unused_ void **state)
{
    start_evaluation(1);
    expect_done("finished");
}

static void results_that_are_not_written_count_for_nothing(_unused_ void **state)
{
    ChannelMessage m = {0};
    evaluate(&m);
    m = (ChannelMessage){.type = CHANNEL_REFUSED, .step = 7};
    tell(&m);
    expect_error(EXIT_RETRY, "the results of the evaluation were not written into etcd");
}

static void results_that_are_not_sent_count_for_nothing(_unused_ void **state)
{
    assert_int_equal(setenv("SDTRAIN_FAULT", "exec.results=eagain@1", 1), 0);
    start_evaluation(0);
    assert_int_equal(unsetenv("SDTRAIN_FAULT"), 0);
    expect_error(EXIT_RETRY, "the results of the evaluation were not written into etcd");
}

/* sdtraind reads nothing while the program reports: a channel that is full would lose the checkpoint and the end. */
static void reports_without_end_fill_neither_channel_nor_log(_unused_ void **state)
{
    char path[300];
    ChannelMessage m = {0};
    _cleanup_free_ char *log = NULL;
    (void)snprintf(path, sizeof(path), "%s/log", folder);
    runner_log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(runner_log >= 0);
    const uint64_t begun_usec = clock_boottime_usec();
    go(spec("flood", "", ""), 0);
    await_file("flooded");
    assert_int_equal(step_before_saved(&m), 3000);
    const uint64_t n_sec = (clock_boottime_usec() - begun_usec) / USEC_PER_SEC + 1;
    assert_in_range(n_steps, 20, 20 * n_sec + 22); /* the first second's come at once */
    expect_done("finished");
    runner_log = fd_close(runner_log);
    assert_int_equal(file_read(path, 1 << 24, &log, NULL, NULL), 0);
    uint64_t n_lines = 0;
    for (const char *at = log; (at = strstr(at, "reports: step ")); at++)
        n_lines++;
    assert_in_range(n_lines, 20, 20 * n_sec + 20);
    assert_non_null(strstr(log, " more reports of the program were not logged"));
}

static void a_checkpoint_waits_for_room_in_the_channel(_unused_ void **state)
{
    ChannelMessage m = {0};
    forget_file("filled");
    runner_room = 1; /* the kernel gives room for a few messages */
    go(spec("fill", "", ""), 0);
    await_file("filled");
    (void)usleep(100000); /* mostly the checkpoint finds no room now */
    assert_true(step_before_saved(&m) >= 1);
    assert_string_equal(m.uri, "/ckpt/full");
    runner_room = -1;
    for (next(&m); m.type == CHANNEL_STEP; next(&m)) {
    }
    assert_int_equal(m.type, CHANNEL_DONE);
    assert_int_equal(m.step, 8);
    assert_int_equal(reap(), 0);
}

static void a_request_to_save_is_passed_on(_unused_ void **state)
{
    ChannelMessage m = {0};
    go(spec("save", "", ""), 0);
    expect(CHANNEL_STEP, &m);
    m = (ChannelMessage){.type = CHANNEL_CHECKPOINT};
    tell(&m);
    expect_done("finished");
}

static void secrets_are_in_no_log(_unused_ void **state)
{
    go(spec("secret", ", \"secrets\": [\"TOKEN\"]", ""), 0);
    expect_error(EXIT_RETRY, "the token is ***");
    assert_string_equal(run.printed, "the token is ***\n");
    go(spec("secret-in-error-file", ", \"secrets\": [\"TOKEN\"]", ""), 0);
    expect_error(EXIT_RETRY, "no access with ***");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "program") == 0)
        return testing_program(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_passed_on),
        cmocka_unit_test(an_evaluation_registers_nothing),
        cmocka_unit_test(results_are_sent_before_the_end),
        cmocka_unit_test(results_are_rank_0s),
        cmocka_unit_test(results_that_are_not_written_count_for_nothing),
        cmocka_unit_test(results_that_are_not_sent_count_for_nothing),
        cmocka_unit_test(checkpoints_are_registered_once_committed),
        cmocka_unit_test(reports_without_end_fill_neither_channel_nor_log),
        cmocka_unit_test(a_checkpoint_waits_for_room_in_the_channel),
        cmocka_unit_test(a_request_to_save_is_passed_on),
        cmocka_unit_test(secrets_are_in_no_log),
    };
    if (runner_tests_begin() < 0)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    runner_tests_end();
    return failed;
}
