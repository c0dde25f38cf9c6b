/* SPDX-License-Identifier: Apache-2.0 */
/* test-rank-evaluates.c - ranks that evaluate a checkpoint by themselves, under a daemon that the test plays. */
#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "protocol/grid-notes.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* keys: further keys of "loss" or "grid"; below: checkpoint.uri, or NULL for the folder of the checkpoints. */
static char *job_text(const char *work, const char *keys, const char *below)
{
    const char *device = getenv("SDTRAIN_TEST_DEVICE") ? ", \"device\": \"cuda\"" : "";
    return memory_format(
        "{\"name\": \"measure\", \"kind\": \"eval\", \"of\": {\"job\": \"testing\"},"
        " \"world\": {\"min\": 1, \"max\": 1},"
        " \"%s\": {\"streams\": [{\"uri\": \"%s/data\"}]%s%s},"
        " \"checkpoint\": {\"uri\": \"%s%s\"}}",
        work, files.folder, keys, device, below ? below : files.folder, below ? "" : "/trained");
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

static void assign_work(const char *work, const char *keys, const char *below,
                        const ChannelMessage *from)
{
    _cleanup_free_ char *text = job_text(work, keys, below);
    n_steps = 0;
    told = (ChannelMessage){0};
    rank_start(&ranks[0], NULL);
    rank_assign(&ranks[0], text, GENERATION, 0, 1, from);
}

static void assign(const char *loss, const char *below, const ChannelMessage *from)
{
    assign_work("loss", loss, below, from);
}

static void say_go(void)
{
    (void)expect(CHANNEL_READY);
    rank_say(&ranks[0], (ChannelMessage){.type = CHANNEL_GO, .generation = GENERATION});
}

static void go(const char *loss)
{
    assign(loss, NULL, &saved);
    say_go();
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

static EvalResults results(void)
{
    const ChannelMessage m = expect(CHANNEL_RESULTS);
    assert_int_equal(m.step, saved.step);
    assert_true(m.results.seconds > 0 && m.results.seconds < 60);
    answer(CHANNEL_COMMITTED);
    expect_end("finished");
    return m.results;
}

static EvalResults measure(const char *loss)
{
    go(loss);
    return results();
}

/* Starts a rank that draws six pictures, in three steps, into <folder>/pictures. keys: others, or other values. */
static void draw(const char *keys)
{
    const struct {
        const char *key, *value;
    } usual[] = {{"uri", "pictures"},
                 {"empty_text", "empty.npy"},
                 {"samples", "6"},
                 {"steps", "3"}};
    char all[1024];
    size_t n = (size_t)snprintf(all, sizeof(all), "%s", keys);
    for (size_t i = 0; i < ELEMENTSOF(usual); i++) {
        _cleanup_free_ char *name = memory_format("\"%s\":", usual[i].key);
        if (!strstr(keys, name))
            n +=
                (size_t)snprintf(all + n, sizeof(all) - n, i < 2 ? ", %s \"%s/%s\"" : ", %s %.0s%s",
                                 name, files.folder, usual[i].value);
    }
    assert_true(n < sizeof(all));
    assign_work("grid", all, NULL, &saved);
    say_go();
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
    go(", \"positions\": 1000000");
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
    say_go();
    expect_error(EXIT_DATA_CORRUPT, "manifest.json");
}

/* Reads the grid that the results name. */
static char *grid_of(const EvalResults *of, GridNotes *ret, size_t *ret_bytes)
{
    Error err = ERROR_INIT;
    char *png = NULL;
    assert_int_equal(of->n_numbers, 0);
    assert_int_equal(of->n_artifacts, 1);
    assert_string_equal(of->artifacts[0].name, "grid");
    if (file_read(of->artifacts[0].uri, 1 << 20, &png, ret_bytes, &err) < 0 ||
        grid_notes_get("the grid", png, *ret_bytes, ret, &err) != 1)
        fail_msg("%s", err.text);
    return png;
}

/* Compares what follows the notes. */
static bool same_pixels(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const char *from_a = memmem(a, n_a, "IDAT", 4), *from_b = memmem(b, n_b, "IDAT", 4);
    assert_true(from_a && from_b);
    const size_t n = (size_t)(a + n_a - from_a);
    return n == (size_t)(b + n_b - from_b) && memcmp(from_a, from_b, n) == 0;
}

/* The plain weights are drawn if the job file says so. Guidance needs the data's empty caption, which is there. */
static void a_grid_is_drawn(_unused_ void **state)
{
    static const struct {
        const char *keys, *text;
        bool ema;
    } rows[] = {{"", "6 pictures by the EMA weights", true},
                {", \"weights\": \"ema\"", "6 pictures by the EMA weights", true},
                {", \"weights\": \"weights\"", "6 pictures by the weights", false},
                {", \"guidance\": 1", "6 pictures by the EMA weights", true}};
    _cleanup_free_ char *start =
        memory_format("%s/pictures/measure-step-%010d-", files.folder, STEPS);
    char *pngs[ELEMENTSOF(rows)], uris[ELEMENTSOF(rows)][EVAL_URI_MAX + 1];
    size_t sizes[ELEMENTSOF(rows)];
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        GridNotes notes;
        draw(rows[i].keys);
        const EvalResults of = results();
        assert_string_equal(of.text, rows[i].text);
        assert_memory_equal(of.artifacts[0].uri, start, strlen(start));
        pngs[i] = grid_of(&of, &notes, &sizes[i]);
        (void)stpcpy(uris[i], of.artifacts[0].uri);
        assert_string_equal(notes.job, "testing");
        assert_true(!notes.real && notes.ema == rows[i].ema && notes.step == STEPS);
        assert_true(notes.seed == 1 && notes.n_captions == 6);
        grid_notes_clear(&notes);
        /* each step of a grain of pictures, and each picture that is decoded */
        const int grain = getenv("SDTRAIN_TEST_DEVICE") ? 1 : 4;
        assert_int_equal(told.step, DIV_ROUND_UP(6, grain) * 3 + 6);
        assert_int_equal(told.steps, told.step);
        assert_true(isnan(told.loss) && told.samples_seen == 0);
    }
    /* what is wanted otherwise is another file */
    for (size_t i = 1; i < ELEMENTSOF(rows); i++)
        assert_string_not_equal(uris[i], uris[0]);
    assert_true(sizes[1] == sizes[0] && memcmp(pngs[1], pngs[0], sizes[0]) == 0);
    for (size_t i = 2; i < ELEMENTSOF(rows); i++)
        assert_false(same_pixels(pngs[i], sizes[i], pngs[0], sizes[0]));
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        free(pngs[i]);
}

/* A rank that begins again overwrites its own grid with the same bytes. */
static void a_grid_is_drawn_again(_unused_ void **state)
{
    GridNotes notes[2];
    size_t sizes[2];
    draw("");
    const EvalResults first = results();
    _cleanup_free_ char *before = grid_of(&first, &notes[0], &sizes[0]);
    assert_int_equal(unlink(first.artifacts[0].uri), 0);
    draw("");
    const EvalResults second = results();
    _cleanup_free_ char *after = grid_of(&second, &notes[1], &sizes[1]);
    assert_string_equal(first.artifacts[0].uri, second.artifacts[0].uri);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(before, after, sizes[0]);
    grid_notes_clear(&notes[0]);
    grid_notes_clear(&notes[1]);
}

static void who_draws_leaves_when_it_is_asked_to(_unused_ void **state)
{
    draw(", \"samples\": 400, \"steps\": 900");
    rank_say(&ranks[0], (ChannelMessage){.type = CHANNEL_STOP, .generation = GENERATION});
    expect_end("left");
}

static void what_cannot_be_drawn_is_refused(_unused_ void **state)
{
    static const struct {
        const char *keys, *fault;
        ExitCode code;
        const char *text;
    } rows[] = {
        {", \"steps\": 5000", NULL, EXIT_NEVER_RETRY, "sampling: 5000 steps, not in 1..999"},
        {", \"uri\": \"/proc/nowhere\"", NULL, EXIT_STORE_UNREACHABLE, "grid.uri: "},
        {", \"model\": \"/nowhere\"", NULL, EXIT_NEVER_RETRY, "/nowhere/vae/config.json"},
        {", \"empty_text\": \"/nowhere/empty.npy\"", NULL, EXIT_NEVER_RETRY,
         "grid.streams: data.empty_text"},
        {", \"captions\": [\"a fox\"]", NULL, EXIT_NEVER_RETRY,
         "captions: the data have 7 text tokens, not the hashed embedding's 77"},
        {"", "drawing.latents=eio", EXIT_NON_FINITE, "the network drew what is not finite"},
    };
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        if (rows[i].fault)
            (void)setenv("SDTRAIN_FAULT", rows[i].fault, 1);
        draw(rows[i].keys);
        (void)unsetenv("SDTRAIN_FAULT");
        expect_error(rows[i].code, rows[i].text);
        assert_true(rows[i].fault || n_steps == 0); /* it is known before anything is drawn */
    }
}

/* The node's administrator says what may be read and written. A path that may be written may be read. */
static void paths_are_those_of_the_node(_unused_ void **state)
{
    static const struct {
        const char *read, *write; /* below the folder */
        const char *keys, *refused;
    } rows[] = {
        {"", "/pictures", "", NULL},
        {"/data", "", "", NULL},
        {"/data", "/pictures", "", "checkpoint.uri: "},
        {"/trained", "/pictures", "", "grid.streams: "},
        {"", "/trained", "", "grid.uri: "},
        {"", "", ", \"model\": \"/elsewhere\"", "grid.model: /elsewhere is not under paths_read"},
        {"", "", ", \"empty_text\": \"/else/empty.npy\"", "grid.empty_text: "},
    };
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        _cleanup_free_ char *read = memory_format("[\"%s%s\"]", files.folder, rows[i].read);
        _cleanup_free_ char *write = memory_format("[\"%s%s\"]", files.folder, rows[i].write);
        (void)setenv(PATHS_READ_VARIABLE, read, 1);
        (void)setenv(PATHS_WRITE_VARIABLE, write, 1);
        draw(rows[i].keys);
        (void)unsetenv(PATHS_READ_VARIABLE);
        (void)unsetenv(PATHS_WRITE_VARIABLE);
        if (rows[i].refused)
            expect_error(EXIT_NEVER_RETRY, rows[i].refused);
        else
            (void)results();
    }
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
        CASE(a_grid_is_drawn),
        CASE(a_grid_is_drawn_again),
        CASE(who_draws_leaves_when_it_is_asked_to),
        CASE(what_cannot_be_drawn_is_refused),
        CASE(paths_are_those_of_the_node),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
