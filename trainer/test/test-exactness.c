/* SPDX-License-Identifier: Apache-2.0 */
/* test-exactness.c - one job in bf16 has one digest with the libraries' kernels, and one digest with the project's own
 * kernels, in all cases: worlds of 1, 2 and 4 ranks on one GPU, whose sums go through the hosts' memory, ZeRO 0 to 2, a
 * restore into another world, ranks killed at five fault points, and memory at other addresses.
 *
 * Each case prints a line of JSON. Without SDTRAIN_EXACT=all only a few cases run, as CI has time for on the emulator.
 * SDTRAIN_RUNS_MODULE and SDTRAIN_RUNS_GPU name another module and GPU, SDTRAIN_EXACT_KINDS="own" leaves out the
 * libraries. To continue a run that has stopped, SDTRAIN_EXACT_DONE=" plans-0 own-3 " names the cases that are done,
 * and SDTRAIN_EXACT_PLANS the file of the plans, which is made if it is missing. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 4 };

static TestingJob files;

/* One world, or two worlds, of which the second continues where the first was lost. */
typedef struct Case {
    const char *name;
    int size, zero_stage;
    const char *fault; /* the point at which rank 0 is killed; NULL: none */
    int visit;
    int then;         /* the size of the second world; 0: there is none */
    const char *held; /* bytes of device memory that are allocated first; NULL: none */
    bool brief;       /* CI runs this case */
} Case;

static const Case cases[] = {
    {"1 rank", 1, 0, NULL, 0, 0, NULL, true},
    {"2 ranks, ZeRO 0", 2, 0, NULL, 0, 0, NULL, false},
    {"2 ranks, ZeRO 1", 2, 1, NULL, 0, 0, NULL, false},
    {"2 ranks, ZeRO 2", 2, 2, NULL, 0, 0, NULL, false},
    {"4 ranks, ZeRO 0", 4, 0, NULL, 0, 0, NULL, false},
    {"4 ranks, ZeRO 1", 4, 1, NULL, 0, 0, NULL, false},
    {"4 ranks, ZeRO 2", 4, 2, NULL, 0, 0, NULL, false},
    {"other addresses, 1 rank", 1, 0, NULL, 0, 0, "1234567", false},
    {"other addresses, 2 ranks, ZeRO 2", 2, 2, NULL, 0, 0, "12345", true},
    {"killed in a step, 4 ranks, then 1", 4, 2, "loop.compute", 4, 1, NULL, false},
    {"killed with a copy of the state, 1 rank, then 4", 1, 0, "checkpoint.copied", 3, 4, NULL,
     false},
    {"killed before an object, 2 ranks, then 1", 2, 1, "checkpoint.object", 24, 1, NULL, true},
    {"killed within an object, 1 rank, then 2", 1, 2, "store.put.half", 40, 2, NULL, false},
    {"killed before the manifest, 2 ranks, then 4", 2, 2, "checkpoint.manifest.before", 3, 4, NULL,
     false},
};

static char *job(const char *name, int zero_stage, const char *plans)
{
    char *train = NULL;
    assert_true(asprintf(&train,
                         ", \"device\": \"cuda\", \"precision\": \"bf16\", \"ema\": {}, "
                         "\"zero_stage\": %d, \"plans\": \"%s\"",
                         zero_stage, plans ? plans : "installed") > 0);
    char *text = testing_job_text_of(&files, name, train, STEPS, 1);
    free(train);
    return text;
}

static void end_as(const RanksLife *life, int code)
{
    for (int i = 0; i < life->size; i++)
        assert_int_equal(rank_end(&ranks[i]), code);
}

/* *ret_from: step of the checkpoint that was restored; 0: none, or the checkpoint of the start. */
static Hash digest_of(const Case *c, const char *text, int64_t *ret_from)
{
    char fault[64];
    *ret_from = 0;
    RanksLife life = {.generation = 1, .size = c->size};
    if (c->held)
        assert_int_equal(setenv("SDTRAIN_CUDA_HOLD", c->held, 1), 0);
    if (c->fault)
        (void)snprintf(fault, sizeof(fault), "%s=kill@%d", c->fault, c->visit);
    ranks_begin(&life, text, 0, c->fault ? fault : NULL);
    ranks_live(&life);
    assert_int_equal(unsetenv("SDTRAIN_CUDA_HOLD"), 0);
    if (c->fault) {
        assert_true(life.lost);
        /* killed by the fault, not by another error */
        assert_int_equal(rank_end(&ranks[0]), -SIGKILL);
        if (life.saved.type != CHANNEL_SAVED || life.saved.step >= STEPS)
            fail_msg("%s: nothing is left to go on from, or to do: step %d", c->name,
                     (int)life.saved.step);
        *ret_from = life.saved.step;
        (void)ranks_end(NULL);
        life = (RanksLife){.generation = 2, .size = c->then, .saved = life.saved};
        ranks_begin(&life, text, 0, NULL);
        ranks_live(&life);
    }
    if (life.lost)
        fail_msg("%s: a rank was lost: %s", c->name, ranks[0].error.text);
    end_as(&life, EXIT_DONE);
    return life.digest;
}

static bool is_done(const char *key)
{
    char word[40];
    const char *done = getenv("SDTRAIN_EXACT_DONE");
    (void)snprintf(word, sizeof(word), " %s ", key);
    return done && strstr(done, word);
}

/* plans: path of the file of plans. */
static void have_one_digest(const char *kind, const char *plans)
{
    const char *which = getenv("SDTRAIN_EXACT");
    const bool all = which && strcmp(which, "all") == 0;
    Hash first = {0, 0};
    int n_run = 0, n_other = 0;
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const Case *c = &cases[i];
        char name[32], word[HASH_TEXT_BYTES];
        (void)snprintf(name, sizeof(name), "%s-%zu", kind, i);
        if ((!all && !c->brief) || is_done(name))
            continue;
        _cleanup_free_ char *text = job(name, c->zero_stage, plans);
        const uint64_t began = clock_monotonic_usec();
        int64_t from;
        const Hash digest = digest_of(c, text, &from);
        first = n_run++ == 0 ? digest : first;
        const bool equal = hash_equal(digest, first);
        n_other += !equal;
        printf("{\"kind\": \"%s\", \"key\": \"%s\", \"case\": \"%s\", \"digest\": \"%s\", "
               "\"equal\": %s, "
               "\"restored_step\": %lld, \"seconds\": %.2f}\n",
               kind, name, c->name, hash_format(digest, word), equal ? "true" : "false",
               (long long)from, (double)(clock_monotonic_usec() - began) * 1e-6);
        (void)fflush(stdout);
    }
    if (n_other > 0)
        fail_msg("%s: %d cases have another digest than the first", kind, n_other);
}

static bool wanted(const char *kind)
{
    const char *kinds = getenv("SDTRAIN_EXACT_KINDS");
    return !kinds || strstr(kinds, kind);
}

static int make_plans(const char *path)
{
    char program[512], at[128];
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = job("made", 0, NULL);
    (void)snprintf(at, sizeof(at), "%s/made.json", files.folder);
    (void)snprintf(program, sizeof(program), "%s/sdtrainer", getenv("SDTRAIN_BIN"));
    assert_int_equal(file_write(at, text, strlen(text), 0, &err), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(STDERR_FILENO, STDOUT_FILENO); /* this test's output has no other lines */
        (void)execl(program, program, "plan", "--job", at, "--plans", path, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void by_the_libraries(void **state)
{
    (void)state;
    char path[512];
    const char *kept = getenv("SDTRAIN_EXACT_PLANS");
    if (!wanted("plans"))
        skip();
    (void)snprintf(path, sizeof(path), "%s/plans.json", files.folder);
    if (kept)
        (void)snprintf(path, sizeof(path), "%s", kept);
    if (access(path, F_OK) < 0)
        assert_int_equal(make_plans(path), EXIT_DONE);
    have_one_digest("plans", path);
}

static void by_the_projects_own_kernels(void **state)
{
    (void)state;
    static const char plain[] = "{\"plain\":true,\"version\":1}";
    char path[128];
    Error err = ERROR_INIT;
    if (!wanted("own"))
        skip();
    (void)snprintf(path, sizeof(path), "%s/plain.json", files.folder);
    assert_int_equal(file_write(path, plain, strlen(plain), 0, &err), 0);
    have_one_digest("own", path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(by_the_libraries, ranks_end),
        cmocka_unit_test_teardown(by_the_projects_own_kernels, ranks_end),
    };
    const char *module = getenv("SDTRAIN_RUNS_MODULE");
    if (setenv("SDTRAIN_CUDA_MODULE", module ? module : EMULATED_MODULE, 1) < 0 ||
        (!module && setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 0) < 0))
        return 1;
    /* The emulator is slow with the project's own kernels, and test-emulated-runs tests some of them. */
    if (!module && setenv("SDTRAIN_EXACT_KINDS", access(FAKES, F_OK) == 0 ? "plans" : "own", 0) < 0)
        return 1;
    ranks_gpu = getenv("SDTRAIN_RUNS_GPU") ?: "0000:3b:00";
    ranks_steps = STEPS;
    testing_job_open(&files);
    ranks_look_at_data(files.text);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
