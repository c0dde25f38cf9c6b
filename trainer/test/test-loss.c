/* SPDX-License-Identifier: Apache-2.0 */
/* test-loss.c - trainers that measure the loss of a checkpoint, under a daemon that the test plays. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATION = 7, STEPS = 4, POSITIONS = 10, PATIENCE_MSEC = 60000 };

static TestingJob files;
static ChannelMessage saved; /* the checkpoint that is evaluated; it has EMA weights */
static int64_t n_steps;      /* `step` messages of the evaluation */
static ChannelMessage told;  /* the newest one */

/* On the CUDA kernels the network computes in bf16, by plans. */
static void train(void)
{
    const char *device = getenv("SDTRAIN_TEST_DEVICE");
    const bool bf16 = device && strncmp(device, "emulated", 8) == 0;
    RanksLife life = {.generation = 1, .size = 1};
    _cleanup_free_ char *keys =
        memory_format(", \"ema\": {\"decay\": 0.5, \"start_step\": 1}%s",
                      bf16 ? ", \"device\": \"cuda\", \"precision\": \"bf16\", "
                             "\"plans\": \"installed\""
                           : "");
    _cleanup_free_ char *text = testing_job_text_of(&files, "trained", keys, STEPS, STEPS);
    ranks_steps = STEPS;
    ranks_begin(&life, text, 0, NULL);
    ranks_live(&life);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
    saved = life.saved;
    assert_int_equal(saved.step, STEPS);
}

/* loss: further keys of "loss"; below: checkpoint.uri, or NULL for the folder of the checkpoints. */
static char *job_text(const char *loss, const char *below)
{
    const char *device = getenv("SDTRAIN_TEST_DEVICE") ? ", \"device\": \"cuda\"" : "";
    return memory_format(
        "{\"name\": \"measure\", \"kind\": \"eval\", \"of\": {\"job\": \"testing\"},"
        " \"world\": {\"min\": 1, \"max\": 1},"
        " \"loss\": {\"streams\": [{\"uri\": \"%s/data\"}]%s%s},"
        " \"checkpoint\": {\"uri\": \"%s%s\"}}",
        files.folder, loss, device, below ? below : files.folder, below ? "" : "/trained");
}

/* Receives the next message that is neither stage nor step. */
static ChannelMessage hear(void)
{
    Error err = ERROR_INIT;
    for (;;) {
        ChannelMessage m = {0};
        struct pollfd p = {.fd = ranks[0].fd, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MSEC) != 1)
            fail_msg("the rank says nothing more");
        if (channel_receive(ranks[0].fd, &m, &err) < 0)
            fail_msg("%s", err.text);
        if (m.type == CHANNEL_STAGE)
            continue;
        if (m.type != CHANNEL_STEP)
            return m;
        assert_true(m.step > told.step);
        told = m;
        n_steps++;
    }
}

static ChannelMessage expect(ChannelType type)
{
    const ChannelMessage m = hear();
    if (m.type != type)
        fail_msg("%s instead of %s: %s", channel_type_name(m.type), channel_type_name(type),
                 m.type == CHANNEL_ERROR ? m.text : "");
    return m;
}

static void assign(const char *loss, const char *below, const ChannelMessage *from)
{
    _cleanup_free_ char *text = job_text(loss, below);
    n_steps = 0;
    told = (ChannelMessage){0};
    rank_start(&ranks[0], NULL);
    rank_assign(&ranks[0], text, GENERATION, 0, 1, from);
}

static void go(const char *loss)
{
    assign(loss, NULL, &saved);
    (void)expect(CHANNEL_READY);
    rank_say(&ranks[0], (ChannelMessage){.type = CHANNEL_GO, .generation = GENERATION});
}

static void answer(ChannelType type)
{
    rank_say(&ranks[0],
             (ChannelMessage){.type = type, .generation = GENERATION, .step = saved.step});
}

static void expect_end(const char *end)
{
    const ChannelMessage m = expect(CHANNEL_DONE);
    assert_string_equal(m.end, end);
    assert_int_equal(m.step, saved.step);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
}

static void expect_error(ExitCode code, const char *text)
{
    const ChannelMessage m = expect(CHANNEL_ERROR);
    if (m.exit_code != (int)code || !strstr(m.text, text))
        fail_msg("exit %d instead of %d: %s", m.exit_code, (int)code, m.text);
    assert_int_equal(rank_end(&ranks[0]), code);
}

static EvalResults measure(const char *loss)
{
    go(loss);
    const ChannelMessage m = expect(CHANNEL_RESULTS);
    assert_int_equal(m.step, saved.step);
    assert_true(m.results.seconds > 0 && m.results.seconds < 60);
    answer(CHANNEL_COMMITTED);
    expect_end("finished");
    return m.results;
}

static void both_are_measured(_unused_ void **state)
{
    const EvalResults both = measure(", \"positions\": 10"),
                      weights = measure(", \"positions\": 10, \"weights\": \"weights\""),
                      ema = measure(", \"positions\": 10, \"weights\": \"ema\"");
    assert_int_equal(both.n_numbers, 2);
    assert_string_equal(both.numbers[0].name, "loss");
    assert_string_equal(both.numbers[1].name, "ema_loss");
    assert_int_equal(weights.n_numbers, 1);
    assert_int_equal(ema.n_numbers, 1);
    assert_string_equal(weights.numbers[0].name, "loss");
    assert_string_equal(ema.numbers[0].name, "ema_loss");
    /* the same doubles each time */
    assert_memory_equal(&both.numbers[0].value, &weights.numbers[0].value, sizeof(double));
    assert_memory_equal(&both.numbers[1].value, &ema.numbers[0].value, sizeof(double));
    assert_true(both.numbers[0].value != both.numbers[1].value);
    for (size_t i = 0; i < 2; i++)
        assert_true(both.numbers[i].value > 0.1 && both.numbers[i].value < 10);
}

/* The last `step` counts all samples, and its loss is the result. */
static void its_progress_is_told(_unused_ void **state)
{
    const EvalResults of = measure(", \"positions\": 10, \"weights\": \"weights\"");
    assert_true(n_steps >= 1);
    assert_int_equal(told.step, POSITIONS);
    assert_int_equal(told.steps, POSITIONS);
    assert_int_equal(told.samples_seen, POSITIONS);
    assert_true(told.loss == of.numbers[0].value && told.samples_per_sec > 0);
    (void)measure(", \"positions\": 10");
    assert_int_equal(told.steps, 2 * POSITIONS);
    assert_int_equal(told.step, 2 * POSITIONS);
}

/* The mean is over all positions: of fewer it is another one. */
static void each_position_counts(_unused_ void **state)
{
    const double one = measure(", \"positions\": 1, \"weights\": \"weights\"").numbers[0].value,
                 two = measure(", \"positions\": 2, \"weights\": \"weights\"").numbers[0].value;
    assert_true(one != two && fabs(2 * two - one) > 1e-3);
}

static void results_that_are_not_written_count_for_nothing(_unused_ void **state)
{
    go(", \"positions\": 2");
    (void)expect(CHANNEL_RESULTS);
    answer(CHANNEL_REFUSED);
    expect_error(EXIT_RETRY, "the results of the evaluation were not written into etcd");
}

static void it_leaves_when_it_is_asked_to(_unused_ void **state)
{
    assign(", \"positions\": 1000000", NULL, &saved);
    (void)expect(CHANNEL_READY);
    rank_say(&ranks[0], (ChannelMessage){.type = CHANNEL_GO, .generation = GENERATION});
    rank_say(&ranks[0], (ChannelMessage){.type = CHANNEL_STOP, .generation = GENERATION});
    expect_end("left");
}

static void what_it_cannot_evaluate_is_refused(_unused_ void **state)
{
    ChannelMessage damaged = saved;
    assign("", NULL, NULL);
    expect_error(EXIT_NEVER_RETRY, "an evaluation without a checkpoint");
    assign("", "/elsewhere", &saved);
    expect_error(EXIT_NEVER_RETRY, "is not below checkpoint.uri /elsewhere");
    damaged.hash.low ^= 1;
    assign("", NULL, &damaged);
    (void)expect(CHANNEL_READY);
    rank_say(&ranks[0], (ChannelMessage){.type = CHANNEL_GO, .generation = GENERATION});
    expect_error(EXIT_DATA_CORRUPT, "manifest.json");
}

static int set_up(_unused_ void **state)
{
    testing_job_open(&files);
    ranks_gpu = getenv("SDTRAIN_TEST_DEVICE") ? "0000:3b:00" : "";
    train();
    return 0;
}

static int tear_down(void **state)
{
    (void)ranks_end(state);
    testing_job_close(&files);
    return 0;
}

#define CASE(test) cmocka_unit_test_teardown(test, ranks_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(both_are_measured),
        CASE(its_progress_is_told),
        CASE(each_position_counts),
        CASE(results_that_are_not_written_count_for_nothing),
        CASE(it_leaves_when_it_is_asked_to),
        CASE(what_it_cannot_evaluate_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
