/* SPDX-License-Identifier: Apache-2.0 */
/* test-run.c - sdtrainer under a daemon that this test plays over a socketpair: which messages sdtrainer sends when,
 * and its exit codes. */
#include "trainer/run.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 12, PATIENCE_MSEC = 60000 };

#define WAVERS "; computed again, all of it is finite this time: the device wavers"

static TestingJob files;
static Hash reference; /* digest of the undisturbed run's last step */

/* ---- the daemon's side ---- */

/* Starts one rank, and sends it `go`. */
static void start_alone(const char *text, int64_t generation, const ChannelMessage *resume)
{
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, generation, 0, 1, resume);
    ChannelMessage ready = rank_expect(rank, CHANNEL_READY);
    assert_int_equal(ready.step, resume ? resume->step : 0);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = generation});
}

/* Commits every save until the rank is done. Returns the rank's last message. */
static ChannelMessage serve_until_done(Rank *rank, int64_t generation)
{
    for (;;) {
        ChannelMessage m = rank_hear(rank);
        if (m.type == CHANNEL_DONE)
            return m;
        if (m.type != CHANNEL_SAVED)
            fail_msg("%s: %s", channel_type_name(m.type), m.text);
        rank_commit(rank, generation);
    }
}

static void check_finished(const ChannelMessage *done)
{
    assert_string_equal(done->end, "finished");
    assert_int_equal(done->step, STEPS);
    assert_true(hash_equal(done->digest, reference));
}

/* ---- cases ---- */

/* The embedding of the empty caption and index.json are checked, since nothing else verifies their bytes at step 0. */
static void data_must_be_what_was_submitted(void **unused)
{
    (void)unused;
    static const char *const names[] = {"empty.npy", "data/index.json"};
    Rank *rank = &ranks[0];
    ranks_look_at_data(files.text);
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        char path[128], *text;
        size_t n;
        Error err = ERROR_INIT;
        (void)snprintf(path, sizeof(path), "%s/%s", files.folder, names[i]);
        assert_int_equal(file_read(path, 1 << 20, &text, &n, &err), 0);
        text[n - 1] ^= 1;
        assert_int_equal(file_write(path, text, n, 0, &err), 0);
        rank_start(rank, NULL);
        rank_assign(rank, files.text, 1, 0, 1, NULL);
        ChannelMessage error = rank_expect(rank, CHANNEL_ERROR);
        assert_int_equal(error.exit_code, EXIT_DATA_CORRUPT);
        assert_non_null(strstr(error.text, names[i]));
        assert_non_null(strstr(error.text, "not what it was when the job was submitted"));
        assert_int_equal(rank_end(rank), EXIT_DATA_CORRUPT);
        text[n - 1] ^= 1;
        assert_int_equal(file_write(path, text, n, 0, &err), 0);
        free(text);
    }
}

static void a_whole_life(void **unused)
{
    (void)unused;
    Rank *rank = &ranks[0];
    start_alone(files.text, 1, NULL);
    ChannelMessage saved = rank_expect(rank, CHANNEL_SAVED);
    /* this save comes before the first step, which waits for the daemon's answer */
    assert_int_equal(saved.step, 0);
    assert_int_equal(rank->step, 0);
    rank_commit(rank, 1);
    saved = rank_expect(rank, CHANNEL_SAVED);
    assert_int_equal(saved.step, STEPS);
    assert_int_equal(rank->step, STEPS);
    rank_commit(rank, 1);
    ChannelMessage done = rank_expect(rank, CHANNEL_DONE);
    reference = done.digest;
    assert_true(hash_equal(saved.digest, reference));
    check_finished(&done);
    assert_int_equal(rank_end(rank), EXIT_DONE);
}

static void leaves_when_told_and_goes_on(void **unused)
{
    (void)unused;
    Rank *rank = &ranks[0];
    _cleanup_free_ char *text = testing_job_text(&files, "leave", "");
    start_alone(text, 1, NULL);
    (void)rank_expect(rank, CHANNEL_SAVED);
    /* this message is sent before the first step */
    rank_say(rank, (ChannelMessage){.type = CHANNEL_STOP, .generation = 1});
    rank_commit(rank, 1);
    ChannelMessage done = serve_until_done(rank, 1);
    assert_string_equal(done.end, "left");
    assert_int_equal(done.step, 1);
    assert_int_equal(rank->saved.step, 1);
    assert_int_equal(rank_end(rank), EXIT_DONE);

    const ChannelMessage resume = rank->saved;
    start_alone(text, 2, &resume);
    done = serve_until_done(rank, 2);
    check_finished(&done);
    assert_int_equal(rank_end(rank), EXIT_DONE);
}

/* A requested save begins at once, or as soon as the save in flight is over. */
static void saves_when_asked(void **unused)
{
    (void)unused;
    Rank *rank = &ranks[0];
    _cleanup_free_ char *text = testing_job_text(&files, "asked", "");
    rank_start(rank, "loop.compute=slow@*");
    rank_assign(rank, text, 1, 0, 1, NULL);
    (void)rank_expect(rank, CHANNEL_READY);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = 1});
    (void)rank_expect(rank, CHANNEL_SAVED);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_CHECKPOINT, .generation = 1});
    rank_commit(rank, 1);
    const int64_t first = rank_expect(rank, CHANNEL_SAVED).step;
    assert_in_range(first, 1, STEPS - 6);
    /* the last save is not settled yet */
    rank_say(rank, (ChannelMessage){.type = CHANNEL_CHECKPOINT, .generation = 1});
    while (rank->step < first + 3)
        assert_int_not_equal(rank_receive_any(rank).type, CHANNEL_SAVED);
    rank_commit(rank, 1);
    assert_in_range(rank_expect(rank, CHANNEL_SAVED).step, first + 3, STEPS - 1);
    rank_commit(rank, 1);
    ChannelMessage done = serve_until_done(rank, 1);
    check_finished(&done);
    assert_int_equal(rank_end(rank), EXIT_DONE);
}

/* Kept saves wait for their commits. Each step reports how long all steps before it have waited for saves; the save
 * before the first step is not counted. */
static void counts_how_long_training_waits_for_saves(void **unused)
{
    (void)unused;
    enum { EVERY = 3, HELD_MSEC = 40 };
    Rank *rank = &ranks[0];
    _cleanup_free_ char *plain = testing_job_text(&files, "kept", "");
    plain[strlen(plain) - strlen("}}")] = '\0';
    _cleanup_free_ char *text = memory_format("%s, \"keep_every\": %d}}", plain, EVERY);
    start_alone(text, 1, NULL);
    double before = 0;
    for (ChannelMessage m = {0}; m.type != CHANNEL_DONE;) {
        m = rank_receive_any(rank);
        if (m.type == CHANNEL_SAVED) {
            (void)usleep(HELD_MSEC * 1000); /* delays the commit */
            rank_commit(rank, 1);
        }
        if (m.type != CHANNEL_STEP)
            continue;
        const int64_t n_kept = (m.step - 1) / EVERY;
        if (n_kept == 0)
            assert_true(m.saving_sec == 0);
        assert_true(m.saving_sec >= (double)n_kept * HELD_MSEC / 1000);
        /* training has not waited for a save since the step before */
        if ((m.step - 1) % EVERY != 0)
            assert_true(m.saving_sec - before < HELD_MSEC / 1000.0);
        before = m.saving_sec;
    }
    assert_int_equal(rank->step, STEPS);
    assert_int_equal(rank_end(rank), EXIT_DONE);
}

/* A failed save is reported with each step, and the next save does not wait for the step at which a save is due. */
static void catches_up_after_a_failed_save(void **unused)
{
    (void)unused;
    Rank *rank = &ranks[0];
    _cleanup_free_ char *text = testing_job_text(&files, "late", "");
    rank_start(rank, "checkpoint.manifest.before=eio@2,loop.compute=slow@*");
    rank_assign(rank, text, 1, 0, 1, NULL);
    (void)rank_expect(rank, CHANNEL_READY);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = 1});
    (void)rank_expect(rank, CHANNEL_SAVED);
    /* this request's save will fail */
    rank_say(rank, (ChannelMessage){.type = CHANNEL_CHECKPOINT, .generation = 1});
    rank_commit(rank, 1);
    ChannelMessage saved = rank_expect(rank, CHANNEL_SAVED);
    assert_true(saved.step > 1 && saved.step < STEPS); /* this save was not requested */
    assert_int_equal(rank->told.failed_saves, 1);
    assert_true(rank->told.unsaved_since_usec > 0);
    assert_non_null(strstr(rank->told.save_error, "manifest.json"));
    rank_commit(rank, 1);
    ChannelMessage done = serve_until_done(rank, 1);
    check_finished(&done);
    assert_int_equal(rank->told.failed_saves, 1);
    assert_int_equal(rank->told.unsaved_since_usec, 0);
    assert_string_equal(rank->told.save_error, "");
    assert_int_equal(rank_end(rank), EXIT_DONE);
}

static void ends_when_refused(void **unused)
{
    (void)unused;
    Rank *rank = &ranks[0];
    _cleanup_free_ char *text = testing_job_text(&files, "refused", "");
    start_alone(text, 1, NULL);
    (void)rank_expect(rank, CHANNEL_SAVED);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_REFUSED, .generation = 1, .step = 0});
    ChannelMessage error = rank_expect(rank, CHANNEL_ERROR);
    assert_int_equal(error.exit_code, EXIT_RETRY);
    assert_non_null(strstr(error.text, "refused"));
    assert_int_equal(rank->step, 0);
    assert_int_equal(rank_end(rank), EXIT_RETRY);
}

/* A job that begins anew in the folder of another submission ends with the code that says whose fault it is. */
static void another_jobs_folder_is_not_its_own(void **unused)
{
    (void)unused;
    Rank *rank = &ranks[0];
    _cleanup_free_ char *text = testing_job_text(&files, "taken", "");
    ranks_submission = "0123456789abcdef0123456789abcdef";
    start_alone(text, 1, NULL);
    (void)rank_expect(rank, CHANNEL_SAVED);
    rank->fd = fd_close(rank->fd);
    assert_int_equal(rank_end(rank), EXIT_RETRY);

    ranks_submission = "fedcba9876543210fedcba9876543210";
    start_alone(text, 1, NULL);
    ChannelMessage error = rank_expect(rank, CHANNEL_ERROR);
    ranks_submission = "";
    assert_int_equal(error.exit_code, EXIT_NOT_OWNER);
    assert_int_equal(rank_end(rank), EXIT_NOT_OWNER);
}

static void ends_with_its_daemon(void **unused)
{
    (void)unused;
    Rank *rank = &ranks[0];
    _cleanup_free_ char *text = testing_job_text(&files, "orphan", "");
    rank_start(rank, NULL);
    rank->fd = fd_close(rank->fd); /* the daemon closes the channel before it sends assign */
    assert_int_equal(rank_end(rank), EXIT_RETRY);
    rank_start(rank, NULL);
    rank_assign(rank, text, 1, 0, 1, NULL);
    (void)rank_expect(rank, CHANNEL_READY);
    rank->fd = fd_close(rank->fd); /* the daemon closes the channel before it sends go */
    assert_int_equal(rank_end(rank), EXIT_RETRY);
    start_alone(text, 1, NULL);
    (void)rank_expect(rank, CHANNEL_SAVED);
    rank->fd = fd_close(rank->fd); /* the daemon closes the channel before it answers */
    assert_int_equal(rank_end(rank), EXIT_RETRY);
}

/* Checks the error that a rank reports when it is assigned this job, and its exit code. */
static void refuses(const char *text, const ChannelMessage *resume, ExitCode code, const char *word)
{
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, 3, 0, 1, resume);
    ChannelMessage error = rank_expect(rank, CHANNEL_ERROR);
    assert_int_equal(error.exit_code, code);
    assert_int_equal(error.generation, 3);
    if (!strstr(error.text, word))
        fail_msg("\"%s\" does not name %s", error.text, word);
    assert_int_equal(rank_end(rank), code);
}

static void says_what_is_wrong(void **unused)
{
    (void)unused;
    _cleanup_free_ char *stage = testing_job_text(&files, "bad", ", \"zero_stage\": 3");
    _cleanup_free_ char *text = testing_job_text(&files, "wrong", "");
    _cleanup_free_ char *seed = testing_job_text(&files, "wrong", ", \"seed\": 18");
    refuses("{", NULL, EXIT_NEVER_RETRY, "line 1");
    refuses(stage, NULL, EXIT_NEVER_RETRY, "train.zero_stage");

    start_alone(text, 3, NULL);
    ChannelMessage resume = rank_expect(&ranks[0], CHANNEL_SAVED);
    (void)ranks_end(NULL);
    refuses(seed, &resume, EXIT_NEVER_RETRY, "job identity");
    resume.hash.low ^= 1;
    refuses(text, &resume, EXIT_DATA_CORRUPT, "manifest.json");
    (void)snprintf(resume.uri, sizeof(resume.uri),
                   "%s/step-0000000009-o1-g1-00000000/manifest.json", files.folder);
    refuses(text, &resume, EXIT_DATA_CORRUPT, "step-0000000009-o1-g1-00000000");
}

/* Starts a world of `size` ranks, and sends `go` to all of them. Rank `of` has the fault. */
static void start_world_of(const char *text, int64_t generation, int size, int of,
                           const char *fault)
{
    char address[CHANNEL_ADDRESS_MAX] = "";
    for (int i = 0; i < size; i++)
        rank_start(&ranks[i], i == of ? fault : NULL);
    for (int i = 0; i < size; i++)
        rank_assign(&ranks[i], text, generation, i, size, NULL);
    ChannelMessage rendezvous = rank_expect(&ranks[0], CHANNEL_RENDEZVOUS);
    memcpy(address, rendezvous.address, sizeof(address));
    ChannelMessage go = {.type = CHANNEL_GO, .generation = generation};
    memcpy(go.address, address, sizeof(go.address));
    for (int i = 0; i < size; i++)
        (void)rank_expect(&ranks[i], CHANNEL_READY);
    for (int i = 0; i < size; i++)
        rank_say(&ranks[i], go);
}

static void start_world(const char *text, int64_t generation, int size, const char *fault)
{
    start_world_of(text, generation, size, size - 1, fault);
}

static void three_ranks_train_the_same(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = testing_job_text(&files, "three", ", \"zero_stage\": 2");
    start_world(text, 1, 3, NULL);
    for (int i = 0; i < 3; i++) {
        ChannelMessage done = serve_until_done(&ranks[i], 1);
        check_finished(&done);
        assert_int_equal(rank_end(&ranks[i]), EXIT_DONE);
    }
}

/* One gradient of one rank is not a number: all ranks report the same, and the rank with that grain computes it again.
 * The second time the grain is not poisoned. Then the device is not checked, although it would seem broken. */
static void poison(const char *name, int of, const char *fault, const char *grain)
{
    _cleanup_free_ char *text = testing_job_text(&files, name, "");
    start_world_of(text, 1, 3, of, fault);
    (void)rank_expect(&ranks[0], CHANNEL_SAVED);
    rank_commit(&ranks[0], 1);
    for (int i = 0; i < 3; i++) {
        ChannelMessage error = rank_expect(&ranks[i], CHANNEL_ERROR);
        assert_int_equal(error.exit_code, EXIT_NON_FINITE);
        assert_int_equal(error.step, 3);
        assert_non_null(strstr(error.text, "step 4"));
        assert_non_null(strstr(error.text, grain));
        assert_non_null(strstr(error.text, "shard."));
        if (i != of)
            assert_string_equal(error.text, ranks[of == 0].error.text);
        assert_true(!strstr(error.text, WAVERS) == (i != of));
        assert_int_equal(error.stage, i != of ? STAGE_STARTING : STAGE_LEAVING);
        assert_int_equal(rank_end(&ranks[i]), EXIT_NON_FINITE);
    }
    assert_int_equal(ranks[0].step, 3);
}

static void what_is_not_finite_stops_all_alike(void **unused)
{
    (void)unused;
    /* The first rank visits the fault point once per step, the last rank twice per step; step 1 is computed twice. So
     * the 9th visit of the last rank and the 5th visit of the first rank are in step 4. */
    poison("poisoned", 2, "loop.nan=eio@9,device.broken=eio@*", "grain 2");
    poison("poisoned-first", 0, "loop.nan=eio@5,device.broken=eio@*", "grain 0");
}

/* Runs a job whose weights grow about 99-fold in each step (weight decay with lr 10), until the job fails. */
static ChannelMessage diverge(const char *name, const char *fault)
{
    static const char usual[] = "\"lr\": 1e-3, \"warmup_steps\": 2",
                      exploding[] = "\"lr\": 10, \"weight_decay\": 10, \"warmup_steps\": 0";
    _cleanup_free_ char *text = testing_job_text_of(&files, name, "", 40, 100);
    const char *at = strstr(text, usual);
    assert_non_null(at);
    _cleanup_free_ char *bad =
        memory_format("%.*s%s%s", (int)(at - text), text, exploding, at + strlen(usual));
    Rank *rank = &ranks[0];
    ranks_steps = 40;
    rank_start(rank, fault);
    rank_assign(rank, bad, 1, 0, 1, NULL);
    (void)rank_expect(rank, CHANNEL_READY);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = 1});
    (void)rank_expect(rank, CHANNEL_SAVED);
    rank_commit(rank, 1);
    ChannelMessage error = {0};
    bool leaves = false; /* whether the rank has reported STAGE_LEAVING */
    while (error.type != CHANNEL_ERROR) {
        error = rank_receive_any(rank);
        leaves |= error.type == CHANNEL_STAGE && error.stage == STAGE_LEAVING;
    }
    assert_true(leaves || !fault || !strstr(fault, "slow"));
    assert_int_equal(error.exit_code, EXIT_NON_FINITE);
    assert_int_equal(error.stage, STAGE_LEAVING);
    assert_int_equal(rank_end(rank), EXIT_NON_FINITE);
    ranks_steps = STEPS;
    return error;
}

static void what_makes_it_so_is_named(void **unused)
{
    (void)unused;
    const ChannelMessage error = diverge("diverges", "loop.late=slow@1");
    if (!strstr(error.text, "; computed again, first is linear 1x4x4 24->16 "
                            "up_blocks.0.resnets.1.conv_shortcut.weight: its result ("))
        fail_msg("%s", error.text);
    /* A record has room for this part of the text. */
    assert_in_range(strstr(error.text, " values)") - error.text, 1, 255 - 8);
}

static void who_has_no_time_to_look_says_so(void **unused)
{
    (void)unused;
    const ChannelMessage error = diverge("late", "loop.late=eio@1");
    assert_non_null(strstr(error.text, "nobody knows what is first: no time was left at "));
}

static void a_device_fault_is_ones_own(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = testing_job_text(&files, "device", "");
    start_world(text, 1, 2, "loop.compute=eio@7");
    (void)rank_expect(&ranks[0], CHANNEL_SAVED);
    rank_commit(&ranks[0], 1);
    ChannelMessage own = rank_expect(&ranks[1], CHANNEL_ERROR);
    assert_int_equal(own.exit_code, EXIT_DEVICE_FAULT);
    assert_int_equal(rank_end(&ranks[1]), EXIT_DEVICE_FAULT);
    ChannelMessage other = rank_expect(&ranks[0], CHANNEL_ERROR);
    assert_int_equal(other.exit_code, EXIT_PEER_LOST);
    assert_int_equal(rank_end(&ranks[0]), EXIT_PEER_LOST);
}

/* After a trap or an illegal address the process ends as if the kernel had ended it, and reports the cause. */
static void a_program_that_went_wrong_on_its_device_dies_by_signal(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = testing_job_text(&files, "trap", "");
    Rank *rank = &ranks[0];
    rank_start(rank, "loop.compute=efault@3");
    rank_assign(rank, text, 1, 0, 1, NULL);
    (void)rank_expect(rank, CHANNEL_READY);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = 1});
    (void)rank_expect(rank, CHANNEL_SAVED);
    rank_commit(rank, 1);
    ChannelMessage error = rank_expect(rank, CHANNEL_ERROR);
    assert_int_equal(error.exit_code, -SIGABRT);
    assert_non_null(strstr(error.text, "compute failed: Bad address"));
    assert_int_equal(rank_end(rank), -SIGABRT);
}

/* The device fails before the rank is ready, in the grain that every rank computes first. */
static void a_device_that_fails_at_once_is_ones_own(void **unused)
{
    (void)unused;
    static const struct {
        const char *fault;
        int code;
    } cases[] = {{"canned.compute=eio", EXIT_DEVICE_FAULT}, {"canned.compute=enomem", EXIT_RETRY}};
    _cleanup_free_ char *text = testing_job_text(&files, "canned", "");
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        rank_start(&ranks[0], cases[i].fault);
        rank_assign(&ranks[0], text, 1, 0, 1, NULL);
        ChannelMessage error = rank_expect(&ranks[0], CHANNEL_ERROR);
        assert_int_equal(error.exit_code, cases[i].code);
        assert_non_null(strstr(error.text, "the canned grain: compute failed"));
        assert_int_equal(rank_end(&ranks[0]), cases[i].code);
    }
}

/* A module in place of CUDA refuses in every way. A node that lacks what the job needs is excluded only for this
 * job. */
static void a_device_that_does_not_open_says_whose_fault_it_is(void **unused)
{
    (void)unused;
    static const struct {
        const char *gpu, *module, *fault, *text;
        int code;
    } cases[] = {
        {"", MODULE_GOOD, NULL, "this rank's slot has no GPU that sdtraind knows of",
         EXIT_NUMERICS},
        {"0000:3b:00", "", NULL, "no CUDA module: ", EXIT_NUMERICS},
        {"0000:3b:00", MODULE_OTHER_VERSION, NULL, "another version", EXIT_NUMERICS},
        {"0000:3b:00", MODULE_GOOD, NULL, "the stub has no GPU 0 at 0000:3b:00", EXIT_NUMERICS},
        {"0000:3b:00", MODULE_GOOD, "module.stub=enomem", "the stub has no GPU", EXIT_NEVER_RETRY},
        {"0000:3b:00", MODULE_GOOD, "module.stub=eagain", "the stub has no GPU", EXIT_RETRY},
        {"0000:3b:00", MODULE_GOOD, "module.stub=eio", "the stub has no GPU", EXIT_DEVICE_FAULT},
        {"0000:3b:00", MODULE_GOOD, "module.stub=efault", "the stub has no GPU", EXIT_ABORTED},
    };
    _cleanup_free_ char *text = testing_job_text(&files, "gpu", ", \"device\": \"cuda\"");
    const char *gpu = ranks_gpu, *before = getenv("SDTRAIN_CUDA_MODULE");
    _cleanup_free_ char *module = before ? strdup(before) : NULL;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ranks_gpu = cases[i].gpu;
        assert_int_equal(setenv("SDTRAIN_CUDA_MODULE", cases[i].module, 1), 0);
        rank_start(&ranks[0], cases[i].fault);
        rank_assign(&ranks[0], text, 1, 0, 1, NULL);
        ChannelMessage error = rank_expect(&ranks[0], CHANNEL_ERROR);
        if (error.exit_code != cases[i].code || !strstr(error.text, "train.device \"cuda\": ") ||
            !strstr(error.text, cases[i].text))
            fail_msg("%d: %s", error.exit_code, error.text);
        assert_int_equal(rank_end(&ranks[0]), cases[i].code);
    }
    ranks_gpu = gpu;
    assert_int_equal(module ? setenv("SDTRAIN_CUDA_MODULE", module, 1)
                            : unsetenv("SDTRAIN_CUDA_MODULE"),
                     0);
}

/* A job that no node could compute is at fault itself. */
static void a_device_that_nobody_has_is_the_jobs_fault(void **unused)
{
    (void)unused;
    static const struct {
        const char *train, *key;
    } cases[] = {
        {", \"device\": \"cpu\", \"precision\": \"bf16\"",
         "train.precision: bf16 needs train.device \"cuda\""},
        {", \"device\": \"cuda\", \"reduction\": \"float\"",
         "train.reduction: \"float\" is for CPUs"},
        {", \"device\": \"cuda\", \"precision\": \"fp16\"",
         "train.precision: fp16 needs a loss scale"},
        {", \"device\": \"gpu\"", "train.device: gpu is not one of cpu, cuda"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *text = testing_job_text(&files, "nobody", cases[i].train);
        rank_start(&ranks[0], NULL);
        rank_assign(&ranks[0], text, 1, 0, 1, NULL);
        ChannelMessage error = rank_expect(&ranks[0], CHANNEL_ERROR);
        assert_int_equal(error.exit_code, EXIT_NEVER_RETRY);
        if (!strstr(error.text, cases[i].key))
            fail_msg("%s", error.text);
        assert_int_equal(rank_end(&ranks[0]), EXIT_NEVER_RETRY);
    }
}

/* Waits until the rank reports that it has waited for at least usec. Returns the rank that it waits for. */
static int hear_waiting(const Rank *rank, uint64_t usec)
{
    uint64_t before = 0;
    for (;;) {
        Error err = ERROR_INIT;
        ChannelMessage m = {0};
        struct pollfd p = {.fd = rank->fd, .events = POLLIN};
        if (poll(&p, 1, PATIENCE_MSEC) != 1 || channel_receive(rank->fd, &m, &err) < 0)
            fail_msg("process %d says nothing more after %.1f s", (int)rank->pid,
                     (double)before * 1e-6);
        if (m.type != CHANNEL_STAGE)
            continue;
        before = m.waited_usec;
        if (before >= usec)
            return m.waits_rank;
    }
}

/* While the loader of the last rank gets no more data, all ranks report that they wait for this rank. */
static void all_say_that_one_waits_for_data(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = testing_job_text(&files, "starved", "");
    start_world(text, 1, 3, "loader.fill=stall@4");
    (void)rank_expect(&ranks[0], CHANNEL_SAVED);
    rank_commit(&ranks[0], 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(hear_waiting(&ranks[i], 1500 * USEC_PER_MSEC), 2);
}

static void a_lost_peer_is_not_ones_own_fault(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = testing_job_text(&files, "lost", "");
    start_world(text, 1, 2, NULL);
    /* both ranks wait for the answer to this message, or for each other */
    (void)rank_expect(&ranks[0], CHANNEL_SAVED);
    assert_int_equal(kill(ranks[1].pid, SIGKILL), 0);
    assert_int_equal(rank_end(&ranks[1]), -SIGKILL);
    rank_commit(&ranks[0], 1);
    ChannelMessage error = rank_expect(&ranks[0], CHANNEL_ERROR);
    assert_int_equal(error.exit_code, EXIT_PEER_LOST);
    assert_int_equal(rank_end(&ranks[0]), EXIT_PEER_LOST);
}

/* This rank notices the peer's end first, but cannot continue because of its own device. */
static void a_broken_device_explains_more_than_a_lost_peer(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = testing_job_text(&files, "broken", "");
    start_world(text, 1, 2, "device.broken=eio");
    (void)rank_expect(&ranks[0], CHANNEL_SAVED);
    assert_int_equal(kill(ranks[0].pid, SIGKILL), 0);
    assert_int_equal(rank_end(&ranks[0]), -SIGKILL);
    ChannelMessage error = rank_expect(&ranks[1], CHANNEL_ERROR);
    assert_int_equal(error.exit_code, EXIT_DEVICE_FAULT);
    assert_string_equal(error.text, "the device is broken: Input/output error");
    assert_int_equal(rank_end(&ranks[1]), EXIT_DEVICE_FAULT);
}

int main(void)
{
    if (getenv("SDTRAIN_TEST_DEVICE"))
        ranks_gpu = "0000:3b:00";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(data_must_be_what_was_submitted, ranks_end),
        cmocka_unit_test_teardown(a_whole_life, ranks_end), /* sets `reference` */
        cmocka_unit_test_teardown(leaves_when_told_and_goes_on, ranks_end),
        cmocka_unit_test_teardown(saves_when_asked, ranks_end),
        cmocka_unit_test_teardown(counts_how_long_training_waits_for_saves, ranks_end),
        cmocka_unit_test_teardown(catches_up_after_a_failed_save, ranks_end),
        cmocka_unit_test_teardown(ends_when_refused, ranks_end),
        cmocka_unit_test_teardown(another_jobs_folder_is_not_its_own, ranks_end),
        cmocka_unit_test_teardown(ends_with_its_daemon, ranks_end),
        cmocka_unit_test_teardown(says_what_is_wrong, ranks_end),
        cmocka_unit_test_teardown(three_ranks_train_the_same, ranks_end),
        cmocka_unit_test_teardown(what_is_not_finite_stops_all_alike, ranks_end),
        cmocka_unit_test_teardown(what_makes_it_so_is_named, ranks_end),
        cmocka_unit_test_teardown(who_has_no_time_to_look_says_so, ranks_end),
        cmocka_unit_test_teardown(a_device_fault_is_ones_own, ranks_end),
        cmocka_unit_test_teardown(a_device_that_fails_at_once_is_ones_own, ranks_end),
        cmocka_unit_test_teardown(a_program_that_went_wrong_on_its_device_dies_by_signal,
                                  ranks_end),
        cmocka_unit_test_teardown(a_device_that_does_not_open_says_whose_fault_it_is, ranks_end),
        cmocka_unit_test_teardown(a_device_that_nobody_has_is_the_jobs_fault, ranks_end),
        cmocka_unit_test_teardown(all_say_that_one_waits_for_data, ranks_end),
        cmocka_unit_test_teardown(a_lost_peer_is_not_ones_own_fault, ranks_end),
        cmocka_unit_test_teardown(a_broken_device_explains_more_than_a_lost_peer, ranks_end),
    };
    testing_job_open(&files);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
