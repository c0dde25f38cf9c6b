/* SPDX-License-Identifier: Apache-2.0 */
/* test-hang.c - a device that hangs ends its trainer within the deadline, with exit code 80, wherever it hangs, even in
 * a save's copies. A device that breaks during a restore does not make the checkpoint bad.
 *
 * Trainers run on the shadow device, whose lane hangs or breaks at one of the points shadow.hang and shadow.break. The
 * deadline is two seconds (device.impatient). */
#include "trainer/run.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 12, WITHIN_SEC = 30 };

#define IMPATIENT "device.impatient=eio,saver.patience=eio@*,"

static TestingJob files;

/* Starts a world of `size` ranks and waits until it trains. The last rank has the fault. */
static void start(Rank *rank, const char *text, int size, const char *fault)
{
    ChannelMessage go = {.type = CHANNEL_GO, .generation = 1};
    for (int i = 0; i < size; i++)
        rank_start(&rank[i], i == size - 1 ? fault : NULL);
    for (int i = 0; i < size; i++)
        rank_assign(&rank[i], text, 1, i, size, NULL);
    if (size > 1) {
        const ChannelMessage rendezvous = rank_expect(&rank[0], CHANNEL_RENDEZVOUS);
        memcpy(go.address, rendezvous.address, sizeof(go.address));
    }
    for (int i = 0; i < size; i++)
        (void)rank_expect(&rank[i], CHANNEL_READY);
    for (int i = 0; i < size; i++)
        rank_say(&rank[i], go);
    const ChannelMessage saved = rank_expect(&rank[0], CHANNEL_SAVED);
    assert_int_equal(saved.step, 0);
    rank_commit(&rank[0], 1);
}

static void ends_with(Rank *rank, const ChannelMessage *error, int code, const char *text)
{
    if (error->exit_code != code || !strstr(error->text, text) ||
        (code == EXIT_DEVICE_FAULT && !strstr(error->text, "done after 2.000 s")))
        fail_msg("%d after step %d, not %d, %s: %s", error->exit_code, (int)rank->step, code, text,
                 error->text);
    const uint64_t begun = clock_monotonic_usec();
    assert_int_equal(rank_end(rank), code);
    assert_true(clock_monotonic_usec() - begun < WITHIN_SEC * USEC_PER_SEC);
}

/* ---- a lane hangs ---- */

static void what_is_never_done_is_the_devices(void **unused)
{
    (void)unused;
    static const struct {
        const char *name, *fault, *text;
    } cases[] = {
        {"grain", IMPATIENT "shadow.hang=eio@12000", "computing a grain: "},
        {"last-grain", IMPATIENT "shadow.hang.in=eio@70", "computing step 3: "},
        {"maxima", IMPATIENT "shadow.hang.compute=eio@30", "computing step 5: "},
        {"squares", IMPATIENT "shadow.hang.compute=eio@32", "reducing the gradients of step 5: "},
        {"norm", IMPATIENT "shadow.hang.state_squares=eio@6", "reducing the gradients of step 6: "},
        {"update", IMPATIENT "shadow.hang.state_update=eio@6", "computing a grain: "},
        {"last-update", IMPATIENT "shadow.hang.state_update=eio@12", "step 12 could not be saved"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i += RANKS_MAX) {
        const size_t n = MIN(ELEMENTSOF(cases) - i, (size_t)RANKS_MAX);
        for (size_t k = 0; k < n; k++) { /* several jobs at the same time */
            _cleanup_free_ char *text = testing_job_text(&files, cases[i + k].name, "");
            start(&ranks[k], text, 1, cases[i + k].fault);
        }
        for (size_t k = 0; k < n; k++) {
            const ChannelMessage error = rank_expect(&ranks[k], CHANNEL_ERROR);
            ends_with(&ranks[k], &error, EXIT_DEVICE_FAULT, cases[i + k].text);
        }
    }
}

static void a_canned_grain_that_hangs_is_the_devices(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = testing_job_text(&files, "canned", "");
    rank_start(&ranks[0], IMPATIENT "shadow.hang=eio@100");
    rank_assign(&ranks[0], text, 1, 0, 1, NULL);
    const ChannelMessage error = rank_expect(&ranks[0], CHANNEL_ERROR);
    ends_with(&ranks[0], &error, EXIT_DEVICE_FAULT, "the canned grain: ");
}

/* In each case a copy to or from the device hangs before training begins. */
static void a_start_that_hangs_is_the_devices(void **unused)
{
    (void)unused;
    static const struct {
        const char *fault, *text;
    } cases[] = {
        {IMPATIENT "shadow.hang.compute=eio@1", "sending the noise schedule: "},
        {IMPATIENT "shadow.hang.compute=eio@2", "sending the noise schedule: "},
        {IMPATIENT "shadow.hang.compute=eio@3", "sending the initial weights: "},
        {IMPATIENT "shadow.hang.compute=eio@4", "the canned grain: fetching its gradients: "},
        {IMPATIENT "shadow.hang.compute=eio@6", "the canned grain: fetching its maxima: "},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i += RANKS_MAX) {
        const size_t n = MIN(ELEMENTSOF(cases) - i, (size_t)RANKS_MAX);
        for (size_t k = 0; k < n; k++) { /* several jobs at the same time */
            char name[32];
            (void)snprintf(name, sizeof(name), "start-%zu", i + k);
            _cleanup_free_ char *text = testing_job_text(&files, name, "");
            rank_start(&ranks[k], cases[i + k].fault);
            rank_assign(&ranks[k], text, 1, 0, 1, NULL);
        }
        for (size_t k = 0; k < n; k++) {
            const ChannelMessage error = rank_expect(&ranks[k], CHANNEL_ERROR);
            ends_with(&ranks[k], &error, EXIT_DEVICE_FAULT, cases[i + k].text);
        }
    }
}

/* The device hangs in work that a collective waits for. The rank must blame its device, although -ETIMEDOUT of a comm
 * is a peer's fault. The peer reports that it lost this rank. */
static void a_rank_that_hangs_blames_its_device(void **unused)
{
    (void)unused;
    static const struct {
        const char *train, *fault, *text;
    } cases[] = {
        {", \"zero_stage\": 0", IMPATIENT "shadow.hang.comm=eio@20", "the gradients"},
        {", \"zero_stage\": 1", IMPATIENT "shadow.hang.comm=eio@20", "the weights"},
        {", \"zero_stage\": 1", IMPATIENT "shadow.hang.comm=eio@41", "the gradients"},
        {", \"zero_stage\": 2", IMPATIENT "shadow.hang.comm=eio@40", "reducing grain"},
        {", \"zero_stage\": 2", IMPATIENT "shadow.hang=eio@5000", "computing a grain: "},
        {", \"zero_stage\": 0", IMPATIENT "shadow.hang.state_update=eio@5", "computing a grain: "},
        {", \"zero_stage\": 1", IMPATIENT "shadow.hang.state_update=eio@5",
         "the weights of step 5"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "collective-%zu", i);
        _cleanup_free_ char *text = testing_job_text(&files, name, cases[i].train);
        start(&ranks[0], text, 2, cases[i].fault);
        const ChannelMessage own = rank_expect(&ranks[1], CHANNEL_ERROR);
        ends_with(&ranks[1], &own, EXIT_DEVICE_FAULT, cases[i].text);
        const ChannelMessage other = rank_expect(&ranks[0], CHANNEL_ERROR);
        assert_int_equal(other.exit_code, EXIT_PEER_LOST);
        (void)rank_end(
            &ranks
                [0]); /* ThreadSanitizer, which does not know Gloo's locks, has another exit code */
    }
}

/* The copies of a save hang on the device. The next update waits for the copies, so it hangs, too. After the last save
 * there is no update, so only the save fails. In both cases the error is the device's, not the store's. */
static void a_saves_copy_that_hangs_is_the_devices(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        int every, step; /* step: the newest step that is reported */
        const char *text;
    } cases[] = {
        {"copies", 4, 5, "computing a grain: "},
        {"last-copies", STEPS, STEPS, "the device hangs: step 12 could not be saved"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        _cleanup_free_ char *text =
            testing_job_text_of(&files, cases[i].name, "", STEPS, cases[i].every);
        start(&ranks[i], text, 1, IMPATIENT "shadow.hang.out=eio@40");
    }
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const ChannelMessage error = rank_expect(&ranks[i], CHANNEL_ERROR);
        assert_int_equal(ranks[i].step, cases[i].step);
        assert_int_equal(ranks[i].saved.step, 0);
        ends_with(&ranks[i], &error, EXIT_DEVICE_FAULT, cases[i].text);
    }
}

/* Another error ends a trainer whose device computes a grain for ever: the end does not wait for the grain. */
static void an_end_does_not_wait_for_what_hangs(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = testing_job_text(&files, "end", "");
    start(&ranks[0], text, 1, IMPATIENT "shadow.hang=eio@11000,loop.compute=enomem@18");
    const ChannelMessage error = rank_expect(&ranks[0], CHANNEL_ERROR);
    ends_with(&ranks[0], &error, EXIT_NEVER_RETRY, "compute failed");
}

/* ---- a restore ---- */

/* Runs a job without a cluster, from the newest checkpoint that verifies. Returns the exit code. */
static int run_alone(const char *job, const char *fault)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/sdtrainer", getenv("SDTRAIN_BIN"));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        if (setenv("SDTRAIN_FAULT", fault, 1) < 0 || !freopen("/dev/null", "w", stdout))
            _exit(126);
        (void)execl(path, path, "run", "--job", job, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A checkpoint is not passed over because of errors of the device. The same errors of a store would mean a bad
 * checkpoint. */
static void a_device_that_fails_in_a_restore_blames_no_checkpoint(void **unused)
{
    (void)unused;
    static const struct {
        const char *fault;
        int code;
    } cases[] = {
        {IMPATIENT "shadow.break.in=eio@10", EXIT_DEVICE_FAULT},
        {IMPATIENT "shadow.break.in=efault@10", -SIGABRT},
        {IMPATIENT "shadow.hang.in=eio@10", EXIT_DEVICE_FAULT},
        {IMPATIENT "shadow.break.out=eio", EXIT_DEVICE_FAULT},
        {IMPATIENT "shadow.hang.out=eio", EXIT_DEVICE_FAULT},
        {"", EXIT_DONE},
    };
    char path[128];
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = testing_job_text(&files, "restored", ", \"device\": \"cuda\"");
    (void)snprintf(path, sizeof(path), "%s/restored.json", files.folder);
    assert_int_equal(file_write(path, text, strlen(text), 0, &err), 0);
    assert_int_equal(run_alone(path, ""), EXIT_DONE);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const int code = run_alone(path, cases[i].fault);
        if (code != cases[i].code)
            fail_msg("%s: %d, not %d", cases[i].fault, code, cases[i].code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_is_never_done_is_the_devices, ranks_end),
        cmocka_unit_test_teardown(a_canned_grain_that_hangs_is_the_devices, ranks_end),
        cmocka_unit_test_teardown(a_start_that_hangs_is_the_devices, ranks_end),
        cmocka_unit_test_teardown(a_rank_that_hangs_blames_its_device, ranks_end),
        cmocka_unit_test_teardown(a_saves_copy_that_hangs_is_the_devices, ranks_end),
        cmocka_unit_test_teardown(an_end_does_not_wait_for_what_hangs, ranks_end),
        cmocka_unit_test(a_device_that_fails_in_a_restore_blames_no_checkpoint),
    };
    if (setenv("SDTRAIN_CUDA_MODULE", SHADOW_MODULE, 1) < 0 ||
        setenv("SDTRAIN_TEST_DEVICE", "shadow", 1) < 0)
        return 1;
    ranks_gpu = "0000:3b:00";
    ranks_steps = STEPS;
    testing_job_open(&files);
    ranks_look_at_data(files.text);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
