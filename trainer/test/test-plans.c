/* SPDX-License-Identifier: Apache-2.0 */
/* test-plans.c - jobs on a device that chooses its algorithms: they continue with the algorithms that they began with,
 * or not at all.
 *
 * The device is the shadow module; SDTRAIN_SHADOW sets which algorithms it has (kernels/test/shadow/shadow.h). */
#include "base/file.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 6 };

static TestingJob files;

static void shadow(const char *options)
{
    assert_int_equal(setenv("SDTRAIN_SHADOW", options, 1), 0);
}

static char *job_text(const char *name)
{
    return testing_job_text_of(&files, name, ", \"device\": \"cuda\"", STEPS, 3);
}

/* Trains one rank to the end, and commits its saves. Returns the digest. */
static Hash train(const char *text, int64_t generation, const ChannelMessage *resume)
{
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, generation, 0, 1, resume);
    (void)rank_expect(rank, CHANNEL_READY);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = generation});
    for (;;) {
        const ChannelMessage m = rank_hear(rank);
        if (m.type == CHANNEL_DONE) {
            assert_string_equal(m.end, "finished");
            assert_int_equal(rank_end(rank), EXIT_DONE);
            return m.digest;
        }
        if (m.type != CHANNEL_SAVED)
            fail_msg("%s: %s", channel_type_name(m.type), m.text);
        rank_commit(rank, generation);
    }
}

/* Trains one rank until step 3 is saved, and kills it. Returns the save. */
static ChannelMessage begin(const char *text)
{
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, 1, 0, 1, NULL);
    (void)rank_expect(rank, CHANNEL_READY);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = 1});
    while (rank->saved.step < 3) {
        (void)rank_expect(rank, CHANNEL_SAVED);
        rank_commit(rank, 1);
    }
    const ChannelMessage saved = rank->saved;
    (void)ranks_end(NULL);
    return saved;
}

static void path_of(const ChannelMessage *saved, const char *name, char path[512])
{
    const char *at = saved->uri + strlen("file://");
    assert_true(snprintf(path, 512, "%.*s/%s", (int)(strrchr(at, '/') - at), at, name) < 512);
}

static void expect_refusal(const char *text, const ChannelMessage *resume, int code,
                           const char *says)
{
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, 2, 0, 1, resume);
    const ChannelMessage error = rank_expect(rank, CHANNEL_ERROR);
    if (error.exit_code != code || !strstr(error.text, says))
        fail_msg("%d: %s", (int)error.exit_code, error.text);
    assert_int_equal(rank_end(rank), code);
}

/* ---- cases ---- */

/* Without the checkpoint's plans the second life would choose the algorithm b. */
static void it_goes_on_with_the_plans_it_began_with(void **unused)
{
    (void)unused;
    char path[512], *object;
    size_t n;
    Error err = ERROR_INIT;
    _cleanup_free_ char *whole = job_text("whole"), *text = job_text("same");
    shadow("plans=a");
    const Hash reference = train(whole, 1, NULL);
    shadow("plans=a/b");
    const ChannelMessage saved = begin(text);
    path_of(&saved, "plans.json", path);
    assert_int_equal(file_read(path, 1000, &object, &n, &err), 0);
    assert_string_equal(object, "{\"conv\":\"a\"}");
    free(object);

    shadow("plans=b/a");
    const Hash digest = train(text, 2, &saved);
    assert_true(hash_equal(digest, reference));
    path_of(&ranks[0].saved, "plans.json", path); /* later checkpoints have the same plans */
    assert_int_equal(ranks[0].saved.step, STEPS);
    assert_int_equal(file_read(path, 1000, &object, &n, &err), 0);
    assert_string_equal(object, "{\"conv\":\"a\"}");
    free(object);
}

static void a_device_that_cannot_is_refused(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = job_text("cannot");
    shadow("plans=a");
    const ChannelMessage saved = begin(text);
    shadow("plans=b");
    expect_refusal(text, &saved, EXIT_NUMERICS,
                   "the plans of the checkpoint of step 3: conv: this device cannot replay");
    shadow("");
    expect_refusal(text, &saved, EXIT_NUMERICS, "has no plans");
}

/* A job that began without plans has other numerics than a job with plans. */
static void a_checkpoint_without_plans_is_refused_by_numerics(void **unused)
{
    (void)unused;
    char path[512];
    _cleanup_free_ char *text = job_text("without");
    shadow("");
    const ChannelMessage saved = begin(text);
    path_of(&saved, "plans.json", path);
    assert_int_equal(access(path, F_OK), -1);
    shadow("plans=a");
    expect_refusal(
        text, &saved, EXIT_NUMERICS,
        "the numerics of this rank differ from the checkpoint's: plans was missing, is \"");
}

static void ranks_that_choose_otherwise_do_not_train_together(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = job_text("two");
    ChannelMessage go = {.type = CHANNEL_GO, .generation = 1};
    for (int i = 0; i < 2; i++) {
        shadow(i == 0 ? "plans=a/b" : "plans=b/a");
        rank_start(&ranks[i], NULL);
        rank_assign(&ranks[i], text, 1, i, 2, NULL);
    }
    const ChannelMessage rendezvous = rank_expect(&ranks[0], CHANNEL_RENDEZVOUS);
    memcpy(go.address, rendezvous.address, sizeof(go.address));
    for (int i = 0; i < 2; i++)
        (void)rank_expect(&ranks[i], CHANNEL_READY);
    for (int i = 0; i < 2; i++)
        rank_say(&ranks[i], go);
    const ChannelMessage error = rank_expect(&ranks[1], CHANNEL_ERROR);
    assert_int_equal(error.exit_code, EXIT_NUMERICS);
    assert_non_null(
        strstr(error.text, "the numerics of this rank differ from rank 0's: plans was \""));
    assert_non_null(strstr(error.text, "; in the plans conv was \"a\", is \"b\""));
    assert_int_equal(rank_end(&ranks[1]), EXIT_NUMERICS);
}

/* Ranks of one world can get different jobs only if a daemon confuses two submissions. */
static void ranks_of_two_jobs_tell_the_key(void **unused)
{
    (void)unused;
    static const char *const drops[] = {", \"device\": \"cuda\", \"caption_drop\": 0.1",
                                        ", \"device\": \"cuda\", \"caption_drop\": 0.2"};
    ChannelMessage go = {.type = CHANNEL_GO, .generation = 1};
    shadow("");
    for (int i = 0; i < 2; i++) {
        _cleanup_free_ char *text = testing_job_text_of(&files, "jobs", drops[i], STEPS, 3);
        rank_start(&ranks[i], NULL);
        rank_assign(&ranks[i], text, 1, i, 2, NULL);
    }
    const ChannelMessage rendezvous = rank_expect(&ranks[0], CHANNEL_RENDEZVOUS);
    memcpy(go.address, rendezvous.address, sizeof(go.address));
    for (int i = 0; i < 2; i++)
        (void)rank_expect(&ranks[i], CHANNEL_READY);
    for (int i = 0; i < 2; i++)
        rank_say(&ranks[i], go);
    const ChannelMessage error = rank_expect(&ranks[1], CHANNEL_ERROR);
    assert_int_equal(error.exit_code, EXIT_NEVER_RETRY);
    assert_non_null(strstr(error.text, "the job's identity differs from rank 0's: "
                                       "train.caption_drop was 0.1, is 0.2"));
    assert_int_equal(rank_end(&ranks[1]), EXIT_NEVER_RETRY);
}

/* If the object with a checkpoint's plans is damaged or missing, the rank reports corrupt data; the leader then goes
 * back to the checkpoint before. */
static void a_bad_object_is_the_checkpoints_fault(void **unused)
{
    (void)unused;
    char path[512];
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = job_text("bad");
    shadow("plans=a");
    const ChannelMessage saved = begin(text);
    path_of(&saved, "plans.json", path);
    assert_int_equal(file_write(path, "{\"conv\":\"c\"}", 12, 0, &err), 0);
    expect_refusal(text, &saved, EXIT_DATA_CORRUPT, "plans.json");
    assert_int_equal(unlink(path), 0);
    expect_refusal(text, &saved, EXIT_DATA_CORRUPT, "plans.json");
}

/* Runs a job without a cluster. */
static int run_alone(const char *text)
{
    char job[128], program[512];
    Error err = ERROR_INIT;
    (void)snprintf(job, sizeof(job), "%s/alone.json", files.folder);
    assert_int_equal(file_write(job, text, strlen(text), 0, &err), 0);
    const char *bin = getenv("SDTRAIN_BIN");
    assert_non_null(bin);
    (void)snprintf(program, sizeof(program), "%s/sdtrainer", bin);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl(program, program, "run", "--job", job, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A run continues from the newest checkpoint whose plans verify, and plans the network with them. */
static void a_run_goes_back_to_the_one_before(void **unused)
{
    (void)unused;
    char path[512], command[600];
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = job_text("alone");
    shadow("plans=a");
    assert_int_equal(run_alone(text), EXIT_DONE);
    /* the checkpoint of the last step */
    (void)snprintf(command, sizeof(command), "ls -d %s/alone/step-%010d-*/plans.json", files.folder,
                   STEPS);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    assert_non_null(fgets(path, sizeof(path), list));
    assert_int_equal(pclose(list), 0);
    path[strcspn(path, "\n")] = '\0';
    assert_int_equal(file_write(path, "{\"conv\":\"b\"}", 12, 0, &err), 0);
    shadow("plans=b/a");
    assert_int_equal(run_alone(text), EXIT_DONE);
    shadow("plans=b");
    assert_int_equal(run_alone(text), EXIT_NUMERICS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(it_goes_on_with_the_plans_it_began_with, ranks_end),
        cmocka_unit_test_teardown(a_device_that_cannot_is_refused, ranks_end),
        cmocka_unit_test_teardown(a_checkpoint_without_plans_is_refused_by_numerics, ranks_end),
        cmocka_unit_test_teardown(ranks_that_choose_otherwise_do_not_train_together, ranks_end),
        cmocka_unit_test_teardown(ranks_of_two_jobs_tell_the_key, ranks_end),
        cmocka_unit_test_teardown(a_bad_object_is_the_checkpoints_fault, ranks_end),
        cmocka_unit_test_teardown(a_run_goes_back_to_the_one_before, ranks_end),
    };
    if (setenv("SDTRAIN_CUDA_MODULE", SHADOW_MODULE, 1) < 0)
        return 1;
    ranks_gpu = "0000:3b:00";
    ranks_steps = STEPS;
    testing_job_open(&files);
    ranks_look_at_data(files.text);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
