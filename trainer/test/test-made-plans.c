/* SPDX-License-Identifier: Apache-2.0 */
/* test-made-plans.c - plan sets from their making to a restore: `sdtrainer plan --plans` on the emulated device with a
 * cuBLASLt and a cuDNN that compute on the host, and jobs that begin with the set, continue with it, or cannot use
 * it. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 2, TEXT_MAX = 1 << 20 };

static TestingJob files;
static char set_path[128], folder[128];
static char *set; /* text of the set that sdtrainer plan made */

/* more: further keys of "train". */
static char *job_text(const char *name, const char *more)
{
    char *train = NULL;
    assert_true(asprintf(&train, ", \"device\": \"cuda\", \"precision\": \"bf16\"%s", more) > 0);
    char *text = testing_job_text_of(&files, name, train, STEPS, 1);
    free(train);
    return text;
}

static char *job_with(const char *name, const char *plans)
{
    char *more = NULL;
    assert_true(asprintf(&more, ", \"plans\": \"%s\"", plans) > 0);
    char *text = job_text(name, more);
    free(more);
    return text;
}

/* Runs sdtrainer <verb> --job FILE with up to two options (NULL: none). Returns the exit code; *ret_said is the
 * output. */
static int run_with(const char *verb, const char *text, const char *const options[4],
                    char **ret_said)
{
    char job[128], log[128], program[512];
    Error err = ERROR_INIT;
    (void)snprintf(job, sizeof(job), "%s/run.json", files.folder);
    (void)snprintf(log, sizeof(log), "%s/run.log", files.folder);
    (void)snprintf(program, sizeof(program), "%s/sdtrainer", getenv("SDTRAIN_BIN"));
    assert_int_equal(file_write(job, text, strlen(text), 0, &err), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        (void)execl(program, program, verb, "--job", job, options[0], options[1], options[2],
                    options[3], (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(file_read(log, TEXT_MAX, ret_said, NULL, &err), 0);
    return WEXITSTATUS(status);
}

static int run(const char *verb, const char *text, const char *option, const char *value,
               char **ret_said)
{
    return run_with(verb, text, (const char *const[4]){option, value}, ret_said);
}

static void expect_run(const char *text, int code, const char *says, const char *says_too)
{
    char *said;
    const int got = run("run", text, NULL, NULL, &said);
    if (got != code || !strstr(said, says) || !strstr(said, says_too))
        fail_msg("exit %d, not %d with \"%s\" and \"%s\": %s", got, code, says, says_too, said);
    free(said);
}

/* Trains one rank until the step `until` is saved (-1: to the end). Returns the rank's digest; ranks[0].saved is the
 * newest save. */
static Hash train(const char *text, int64_t generation, const ChannelMessage *resume, int64_t until)
{
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, generation, 0, 1, resume);
    (void)rank_expect(rank, CHANNEL_READY);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = generation});
    for (;;) {
        const ChannelMessage m = rank_hear(rank);
        if (m.type == CHANNEL_DONE) {
            assert_int_equal(rank_end(rank), EXIT_DONE);
            return m.digest;
        }
        if (m.type != CHANNEL_SAVED)
            fail_msg("%s: %s", channel_type_name(m.type), m.text);
        rank_commit(rank, generation);
        if (rank->saved.step == until) {
            (void)ranks_end(NULL);
            return (Hash){0, 0};
        }
    }
}

/* Reads the plans of the newest checkpoint. */
static char *saved_plans(void)
{
    char path[512], *text;
    Error err = ERROR_INIT;
    const char *at = ranks[0].saved.uri + strlen("file://");
    assert_true(snprintf(path, sizeof(path), "%.*s/plans.json", (int)(strrchr(at, '/') - at), at) <
                (int)sizeof(path));
    if (file_read(path, TEXT_MAX, &text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    return text;
}

/* Writes the set to a file, with `what` replaced by `by`. */
static void put_set(const char *path, const char *what, const char *by)
{
    Error err = ERROR_INIT;
    const char *at = strstr(set, what);
    char *changed = NULL;
    assert_non_null(at);
    assert_true(asprintf(&changed, "%.*s%s%s", (int)(at - set), set, by, at + strlen(what)) > 0);
    assert_int_equal(file_write(path, changed, strlen(changed), 0, &err), 0);
    free(changed);
}

/* ---- cases ---- */

static void a_set_is_made(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char *said;
    _cleanup_free_ char *text = job_text("made", "");
    if (run("plan", text, "--plans", set_path, &said) != EXIT_DONE)
        fail_msg("%s", said);
    assert_non_null(strstr(said, "plan of linear bf16 "));
    free(said);
    assert_int_equal(file_read(set_path, TEXT_MAX, &set, NULL, &err), 0);
    assert_non_null(strstr(set, "\"linear bf16 "));
    assert_non_null(strstr(set, "\"conv bf16 "));
    assert_non_null(strstr(set, " backward_weight\":{\"algorithm\":{"));
    assert_non_null(strstr(set, "\"dw\":\"bf16\",\"engine\":2,\"knobs\":{\"2\":1},"
                                "\"variant\":\"plain\",\"workspace\":4099}"));
    assert_non_null(strstr(set, "\"dw\":\"f32\",\"variant\":\"plain\",\"workspace\":"));

    _cleanup_free_ char *fp32 =
        testing_job_text_of(&files, "fp32", ", \"device\": \"cuda\"", STEPS, 1);
    assert_int_equal(run("plan", fp32, "--plans", set_path, &said), EXIT_NEVER_RETRY);
    assert_non_null(strstr(said, "train.precision"));
    free(said);

    /* Nothing is tuned if the file cannot be written. */
    static const char *const bad[] = {"/nonexistent/set.json", "/tmp"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        assert_int_equal(run("plan", text, "--plans", bad[i], &said), EXIT_NEVER_RETRY);
        assert_non_null(strstr(said, bad[i]));
        assert_null(strstr(said, "plan of "));
        free(said);
    }
}

/* The fake libraries report the times in `value` for their engines and algorithms, whatever the clock shows. sdtrainer
 * chooses the fastest deterministic algorithm, or an algorithm that is hardly slower and needs less workspace. Engine 2
 * needs a workspace, and so does id 1 with split products. */
static void the_fastest_is_taken(void **unused)
{
    (void)unused;
    static const struct {
        const char *variable, *value, *has, *lacks;
    } cases[] = {
        {"FAKE_CUDNN_USEC", "1:3027,2:3000", "\"engine\":1,", "\"engine\":2,"},
        {"FAKE_CUDNN_USEC", "1:3033,2:3000", "\"engine\":2,", "\"engine\":1,"},
        {"FAKE_CUDNN_USEC", "1:2900,2:3000,3:1", "\"engine\":1,", "\"engine\":3,"},
        {"FAKE_CUBLASLT_USEC", "0:3000,1:9000", "\"id\":0,", "\"id\":1,"},
        {"SDTRAIN_CUDA_TUNE_SEC", "0", "\"engine\":2,", "\"engine\":1,"},
    };
    char path[160], *said;
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/tuned.json", files.folder);
    _cleanup_free_ char *text = job_text("tuned", "");
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char *made;
        assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
        if (run("plan", text, "--plans", path, &said) != EXIT_DONE)
            fail_msg("%s", said);
        assert_int_equal(unsetenv(cases[i].variable), 0);
        assert_int_equal(file_read(path, TEXT_MAX, &made, NULL, &err), 0);
        if (!strstr(made, cases[i].has) || strstr(made, cases[i].lacks))
            fail_msg("%s=%s: %s", cases[i].variable, cases[i].value, made);
        assert_int_equal(strstr(said, ", untimed: ") != NULL, i == ELEMENTSOF(cases) - 1);
        free(made);
        free(said);
    }
}

/* Runs sdtrainer plan --from, which must end with the code. Returns how many operations it tuned. */
static int plan_from(const char *from, const char *to, int code, char **ret_said)
{
    char *said;
    int n = 0;
    _cleanup_free_ char *text = job_text("kept", "");
    const int got =
        run_with("plan", text, (const char *const[4]){"--plans", to, "--from", from}, &said);
    if (got != code)
        fail_msg("exit %d, not %d: %s", got, code, said);
    for (const char *at = said; (at = strstr(at, "plan of ")); at++)
        n++;
    if (ret_said)
        *ret_said = said;
    else
        free(said);
    return n;
}

static void known_plans_are_kept(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char from[160], to[160], *made;
    (void)snprintf(from, sizeof(from), "%s/from.json", files.folder);
    (void)snprintf(to, sizeof(to), "%s/to.json", files.folder);
    /* From now on, tuning chooses another engine. */
    assert_int_equal(setenv("FAKE_CUDNN_USEC", "1:2900,2:3000", 1), 0);
    assert_int_equal(plan_from(set_path, to, EXIT_DONE, NULL), 0);
    assert_int_equal(file_read(to, TEXT_MAX, &made, NULL, &err), 0);
    assert_string_equal(made, set);
    free(made);

    /* One entry of each kind is of another job, so this job's entry is made. */
    put_set(from, "\"conv bf16 ", "\"conv bf16 0");
    assert_int_equal(plan_from(from, to, EXIT_DONE, NULL), 1);
    assert_int_equal(file_read(to, TEXT_MAX, &made, NULL, &err), 0);
    assert_non_null(strstr(made, "\"conv bf16 0"));
    assert_non_null(strstr(made, "\"engine\":1,"));
    assert_true(strlen(made) > strlen(set));
    free(made);
    put_set(from, "\"linear bf16 ", "\"linear bf16 0");
    assert_int_equal(plan_from(from, to, EXIT_DONE, NULL), 1);
    assert_int_equal(file_read(to, TEXT_MAX, &made, NULL, &err), 0);
    assert_non_null(strstr(made, "\"linear bf16 0"));
    assert_null(strstr(made, "\"engine\":1,"));
    assert_null(strstr(made, "\"tuned\""));
    free(made);

    put_set(from, "\"sms\":1", "\"sms\":1,\"tuned\":false");
    assert_int_equal(plan_from(from, to, EXIT_DONE, NULL), 0);
    assert_int_equal(file_read(to, TEXT_MAX, &made, NULL, &err), 0);
    assert_non_null(strstr(made, "\"tuned\":false"));
    free(made);
    assert_int_equal(unsetenv("FAKE_CUDNN_USEC"), 0);
}

static void a_set_that_cannot_be_kept_is_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *what, *by, *says;
        int code;
    } cases[] = {
        {"\"cudnn\":9", "\"cudnn\":8", "refused.json: the plans are for cuDNN 8", EXIT_NUMERICS},
        {"\"sms\":1", "\"sms\":132", "refused.json: the plans are for GPU emulator (emulated, 132",
         EXIT_NEVER_RETRY},
        {"\"operations\":{", "\"operations\":{,", "refused.json: plans: line 1", EXIT_NEVER_RETRY},
        {"\"engine\":2,\"knobs\":{\"2\":1}", "\"engine\":3,\"knobs\":{}",
         "does not give the same bits each time", EXIT_NEVER_RETRY},
    };
    Error err = ERROR_INIT;
    char from[160], to[160], *said;
    (void)snprintf(from, sizeof(from), "%s/refused.json", files.folder);
    (void)snprintf(to, sizeof(to), "%s/not-made.json", files.folder);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        put_set(from, cases[i].what, cases[i].by);
        assert_int_equal(plan_from(from, to, cases[i].code, &said), 0);
        if (!strstr(said, cases[i].says))
            fail_msg("%s", said);
        free(said);
    }
    assert_int_equal(file_write(from, "{\"plain\":true,\"version\":1}", 26, 0, &err), 0);
    (void)plan_from(from, to, EXIT_NEVER_RETRY, &said);
    assert_non_null(strstr(said, "refused.json: a plain set has no plans"));
    free(said);
    assert_int_equal(unlink(from), 0);
    (void)plan_from(from, to, EXIT_NEVER_RETRY, &said);
    assert_non_null(strstr(said, "--from "));
    free(said);
    assert_int_equal(access(to, F_OK), -1);

    _cleanup_free_ char *text = job_text("usage", "");
    assert_int_equal(run("plan", text, "--from", set_path, &said), 2);
    assert_non_null(strstr(said, "--from SET is for --plans FILE"));
    free(said);
}

/* A job that continues does not need the set of train.plans: the set's file is removed before the job continues. */
static void a_job_goes_on_with_the_set_it_began_with(void **unused)
{
    (void)unused;
    char copy[160];
    (void)snprintf(copy, sizeof(copy), "%s/copy.json", files.folder);
    put_set(copy, "{", "{");
    _cleanup_free_ char *whole = job_with("whole", set_path), *text = job_with("same", copy);
    const Hash reference = train(whole, 1, NULL, -1);
    _cleanup_free_ char *plans = saved_plans();
    assert_string_equal(plans, set);

    (void)train(text, 1, NULL, 1);
    const ChannelMessage saved = ranks[0].saved;
    assert_int_equal(unlink(copy), 0);
    const Hash digest = train(text, 2, &saved, -1);
    assert_true(hash_equal(digest, reference));
    _cleanup_free_ char *again = saved_plans();
    assert_string_equal(again, set);
}

static void a_set_that_does_not_fit_is_refused(void **unused)
{
    (void)unused;
    Error err = ERROR_INIT;
    char bad[160];
    (void)snprintf(bad, sizeof(bad), "%s/bad.json", files.folder);
    _cleanup_free_ char *text = job_with("bad", bad);
    expect_run(text, EXIT_NEVER_RETRY, "train.plans", "bad.json");
    put_set(bad, "\"operations\":{", "\"operations\":{,");
    expect_run(text, EXIT_NEVER_RETRY, "train.plans", "bad.json: plans: line 1");
    put_set(bad, "\"cublaslt\":1", "\"cublaslt\":2");
    expect_run(text, EXIT_NUMERICS, "the plans are for cuBLASLt 2", "and this machine's is 1");
    put_set(bad, "\"sms\":1", "\"sms\":132");
    expect_run(text, EXIT_NEVER_RETRY, "the plans are for GPU emulator (emulated, 132", "");
    put_set(bad, "\"custom\":0", "\"custom\":9");
    expect_run(text, EXIT_NEVER_RETRY, "linear bf16 ",
               "the plan's algorithm.custom is 9, and cuBLASLt reads 0 in algorithm.opaque");
    put_set(bad, "\"linear bf16 ", "\"linear bf16 0");
    expect_run(text, EXIT_NEVER_RETRY, ": sdtrainer plan --job FILE --plans FILE", "linear bf16 ");
    put_set(bad, " forward\":", " backward\":");
    expect_run(text, EXIT_NEVER_RETRY, " forward: sdtrainer plan --job FILE --plans FILE",
               "conv bf16 ");
    put_set(bad, "\"engine\":2,\"knobs\":{\"2\":1}", "\"engine\":3,\"knobs\":{}");
    expect_run(text, EXIT_NEVER_RETRY, "does not give the same bits each time", "conv bf16 ");
    assert_int_equal(file_write(bad, "{\"plain\":true,\"version\":1}", 26, 0, &err), 0);
    expect_run(text, EXIT_DONE, "", "");
}

/* If this machine's library refuses an entry, whoever wrote it, the error names the operation, and nothing runs. */
static void an_entry_that_cannot_be_replayed_is_named(void **unused)
{
    (void)unused;
    static const char engine[] =
        "\"engine\":2,\"knobs\":{\"2\":1},\"variant\":\"plain\",\"workspace\":4099";
    static const char split[] = "\"split_k\":1,\"stages\":0,\"swizzling\":0,\"tile\":20},"
                                "\"variant\":\"plain\",\"workspace\":0";
    static const char of_conv[] = "\"knobs\":{\"2\":1},\"variant\":\"plain\"";
    static const char of_linear[] = "\"tile\":20},\"variant\":\"plain\"";
    static const struct {
        const char *what, *by, *says, *says_too;
    } cases[] = {
        {engine, "\"engine\":99,\"knobs\":{},\"workspace\":0", "conv bf16 ", "engine 99"},
        {engine, "\"engine\":2,\"knobs\":{\"2\":9},\"workspace\":0", "conv bf16 ", "engine 2 with"},
        {engine, "\"engine\":2,\"knobs\":{\"77\":1},\"workspace\":0", "conv bf16 ", "knob 77"},
        {engine, "\"engine\":2,\"workspace\":0", "conv bf16 ", "knobs"},
        {"\"dw\":\"bf16\"", "\"dw\":\"f32\"", "conv bf16 ", "backward_weight: dw: f32"},
        {"\"dw\":\"f32\"", "\"dw\":\"bf16\"", "linear bf16 ", "backward_weight: dw: bf16"},
        {of_conv, "\"knobs\":{\"2\":1},\"variant\":\"fused\"", "conv bf16 ",
         "variant: fused: this module has only the plain one: sdtrainer plan"},
        {of_linear, "\"tile\":20},\"variant\":\"fused\"", "linear bf16 ", "variant: fused"},
        {"\"reduction\":0", "\"reduction\":1", "linear bf16 ", "reduction: 1"},
        {split, "\"split_k\":4,\"stages\":0,\"swizzling\":0,\"tile\":20},\"workspace\":0",
         "linear bf16 ", "the plan's algorithm.split_k is 4"},
        {"\"opaque\":\"", "\"opaque\":\"0", "linear bf16 ", "algorithm.opaque: 129 characters"},
    };
    char bad[160];
    (void)snprintf(bad, sizeof(bad), "%s/entry.json", files.folder);
    _cleanup_free_ char *text = job_with("entry", bad);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        put_set(bad, cases[i].what, cases[i].by);
        expect_run(text, EXIT_NEVER_RETRY, cases[i].says, cases[i].says_too);
    }
}

/* A truncated set is refused: as train.plans, and as the file with the GPU's own name. A truncated file of another GPU
 * is passed over, as a folder of sets may hold anything. */
static void a_set_that_was_cut_short_is_refused(void **unused)
{
    (void)unused;
    char cut[160], sets[160], path[192], own[192];
    Error err = ERROR_INIT;
    const size_t whole = strlen(set), lengths[] = {0, 1, whole / 2, whole - 1};
    (void)snprintf(cut, sizeof(cut), "%s/cut.json", files.folder);
    (void)snprintf(sets, sizeof(sets), "%s/cut-sets", files.folder);
    (void)snprintf(path, sizeof(path), "%s/another.json", sets);
    (void)snprintf(own, sizeof(own), "%s/emulator.json", sets);
    assert_int_equal(folder_make(sets, &err), 0);
    _cleanup_free_ char *text = job_with("cut", cut), *found = job_with("found", "installed");
    for (size_t i = 0; i < ELEMENTSOF(lengths); i++) {
        assert_int_equal(file_write(cut, set, lengths[i], 0, &err), 0);
        expect_run(text, EXIT_NEVER_RETRY, "train.plans", "cut.json: plans");
    }
    assert_int_equal(setenv("SDTRAIN_CUDA_PLANS", sets, 1), 0);
    assert_int_equal(file_write(own, set, whole / 2, 0, &err), 0);
    expect_run(found, EXIT_NEVER_RETRY, "cut-sets/emulator.json", "");
    assert_int_equal(rename(own, path), 0);
    expect_run(found, EXIT_DONE, "computes only with its own kernels", "");
    assert_int_equal(unsetenv("SDTRAIN_CUDA_PLANS"), 0);
}

/* A job does not continue if the machine has another cuDNN. */
static void a_job_does_not_go_on_with_another_library(void **unused)
{
    (void)unused;
    static const char *const links[][2] = {
        {FAKES "/libcublasLt.so.13", "libcublasLt.so.13"},
        {FAKES "-tests/newer/libcudnn.so.9", "libcudnn.so.9"},
    };
    char libraries[160], path[192];
    Error err = ERROR_INIT;
    (void)snprintf(libraries, sizeof(libraries), "%s/libraries", files.folder);
    assert_int_equal(folder_make(libraries, &err), 0);
    for (size_t i = 0; i < ELEMENTSOF(links); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", libraries, links[i][1]);
        assert_int_equal(symlink(links[i][0], path), 0);
    }
    _cleanup_free_ char *text = job_with("library", set_path);
    (void)train(text, 1, NULL, 1);
    const ChannelMessage saved = ranks[0].saved;
    assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", libraries, 1), 0);
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, 2, 0, 1, &saved);
    const ChannelMessage error = rank_expect(rank, CHANNEL_ERROR);
    if (error.exit_code != EXIT_NUMERICS ||
        !strstr(error.text, "the plans are for cuDNN 91900 and this machine's is 92400"))
        fail_msg("%d: %s", (int)error.exit_code, error.text);
    assert_int_equal(rank_end(rank), EXIT_NUMERICS);
    assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 1), 0);
}

/* Tuning needs the memory of the operation's tensors; training needs the plans' workspace. */
static void too_little_memory_is_told(void **unused)
{
    (void)unused;
    char path[160], *said;
    (void)snprintf(path, sizeof(path), "%s/none.json", files.folder);
    _cleanup_free_ char *text = job_text("memory", ""), *planned = job_with("memory-run", set_path);
    assert_int_equal(setenv("SDTRAIN_FAULT", "emulated.allocate=enomem@3", 1), 0);
    assert_int_equal(run("plan", text, "--plans", path, &said), EXIT_RETRY);
    if (!strstr(said, "has no memory for ") || !strstr(said, " bf16 ") ||
        !strstr(said, " forward:"))
        fail_msg("%s", said);
    free(said);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(setenv("SDTRAIN_FAULT", "emulated.allocate=enomem", 1), 0);
    expect_run(planned, EXIT_RETRY, "has no memory for ", " are workspace");
    /* The memory that SDTRAIN_CUDA_HOLD holds is allocated before everything else. */
    assert_int_equal(setenv("SDTRAIN_CUDA_HOLD", "1234567", 1), 0);
    expect_run(planned, EXIT_NEVER_RETRY, "has no memory for 1234567 bytes", "");
    assert_int_equal(setenv("SDTRAIN_CUDA_HOLD", "1 MB", 1), 0);
    expect_run(planned, EXIT_NEVER_RETRY, "SDTRAIN_CUDA_HOLD=1 MB is not a number of bytes", "");
    assert_int_equal(unsetenv("SDTRAIN_CUDA_HOLD"), 0);
    assert_int_equal(unsetenv("SDTRAIN_FAULT"), 0);
}

/* A job that began with the project's own kernels continues with them, even if there is a set now. */
static void a_folder_of_sets_is_looked_at(void **unused)
{
    (void)unused;
    char path[160];
    Error err = ERROR_INIT;
    _cleanup_free_ char *undisturbed = job_with("undisturbed", "installed"),
                        *plain = job_with("plain", "installed");
    const Hash reference = train(undisturbed, 1, NULL, -1);
    (void)train(plain, 1, NULL, 1);
    const ChannelMessage saved = ranks[0].saved;
    assert_int_equal(folder_make(folder, &err), 0);
    assert_int_equal(setenv("SDTRAIN_CUDA_PLANS", folder, 1), 0);
    _cleanup_free_ char *none = job_with("none", "installed"), *one = job_with("one", "installed");
    expect_run(none, EXIT_DONE, "computes only with its own kernels",
               "has no plans for GPU emulator");

    (void)snprintf(path, sizeof(path), "%s/another.json", folder);
    put_set(path, "\"device\":\"emulator\"", "\"device\":\"another\"");
    (void)train(one, 1, NULL, -1);
    _cleanup_free_ char *plans = saved_plans();
    assert_non_null(strstr(plans, "\"device\":\"another\""));
    assert_true(hash_equal(train(plain, 2, &saved, -1), reference));

    (void)snprintf(path, sizeof(path), "%s/emulator.json", folder);
    put_set(path, "\"cudnn\":9", "\"cudnn\":8");
    _cleanup_free_ char *other = job_with("other", "installed");
    expect_run(other, EXIT_NUMERICS, "emulator.json: the plans are for cuDNN 8", "");
    assert_int_equal(unsetenv("SDTRAIN_CUDA_PLANS"), 0);
}

/* If the folder has no set for the GPU, no library is opened, whatever its version. With a set the libraries are
 * opened, and the log names them; a set for another version is refused, and the error has the libraries' folders. */
static void libraries_are_opened_for_plans_alone(void **unused)
{
    (void)unused;
    char sets[160], path[192];
    Error err = ERROR_INIT;
    (void)snprintf(sets, sizeof(sets), "%s/no-sets", files.folder);
    (void)snprintf(path, sizeof(path), "%s/another.json", sets);
    assert_int_equal(folder_make(sets, &err), 0);
    put_set(path, "\"sms\":1", "\"sms\":132");
    static const char *const libraries[] = {FAKES "-tests/older:" FAKES, FAKES};
    _cleanup_free_ char *opens = job_with("opens", "installed"),
                        *other = job_with("opens-other", "installed");
    for (size_t i = 0; i < ELEMENTSOF(libraries); i++) {
        char name[32], *said;
        (void)snprintf(name, sizeof(name), "opens-none-%zu", i);
        _cleanup_free_ char *text = job_with(name, "installed");
        assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", libraries[i], 1), 0);
        assert_int_equal(setenv("SDTRAIN_CUDA_PLANS", i == 0 ? "/nonexistent" : sets, 1), 0);
        if (run("run", text, NULL, NULL, &said) != EXIT_DONE)
            fail_msg("%s", said);
        assert_non_null(strstr(said, " has no plans for GPU emulator"));
        assert_null(strstr(said, "cuBLASLt"));
        free(said);
    }
    put_set(path, "{", "{");
    expect_run(opens, EXIT_DONE, "cuDNN 91900 of " FAKES, "cuBLASLt ");
    (void)snprintf(path, sizeof(path), "%s/emulator.json", sets);
    put_set(path, "\"cudnn\":91900", "\"cudnn\":91902");
    expect_run(other, EXIT_NUMERICS,
               "emulator.json: the plans are for cuDNN 91902 and this machine's is 91900",
               "(cuDNN in " FAKES ", cuBLASLt in " FAKES ")");
    assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", libraries[0], 1), 0);
    expect_run(other, EXIT_NUMERICS, "libcudnn.so.9", "version 91800");
    assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 1), 0);
    assert_int_equal(unsetenv("SDTRAIN_CUDA_PLANS"), 0);
    assert_int_equal(unlink(path), 0);
}

/* The libraries' notes about determinism are believed until the canned grain's two passes differ. The error names the
 * first operation that differs, with its layer and plan: the last bit of one element is enough, whether or not the loss
 * or a maximum shows it. */
static void a_plan_that_wavers_is_named(void **unused)
{
    (void)unused;
    static const struct {
        const char *variable, *value, *layer, *plan;
    } cases[] = {
        {"FAKE_CUDNN_WAVER", "forward:1", " conv_in.weight: its result has other bits",
         "cuDNN, by the plan of conv bf16 n1 8x8 4->8 k3 s1 forward: {\"engine\":"},
        {"FAKE_CUDNN_WAVER", "weight:1", " conv_out.weight: the gradient of its weight has other ",
         "cuDNN, by the plan of conv bf16 n1 8x8 8->4 k3 s1 backward_weight: "
         "{\"dw\":\"bf16\",\"engine\":2"},
        {"FAKE_CUDNN_WAVER", "data:2", ".weight: the gradient of its input has other bits",
         " backward_data: {\"engine\":"},
        {"FAKE_CUBLASLT_WAVER", "2", " time_embedding.linear_2.weight: its result has other bits",
         "cuBLASLt, by the plan of linear bf16 1x32->32 forward: {\"algorithm\":{"},
    };
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "wavers-%zu", i);
        _cleanup_free_ char *text = job_with(name, set_path);
        assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
        expect_run(text, EXIT_NUMERICS, cases[i].layer, cases[i].plan);
        assert_int_equal(unsetenv(cases[i].variable), 0);
    }
}

/* Writes the set with the operation's entry replaced by "own_kernels", as the error's text advises. */
static void put_set_without(const char *path, const char *operation)
{
    Error err = ERROR_INIT;
    json_t *root = json_loads(set, 0, NULL);
    assert_non_null(root);
    json_t *operations = json_object_get(root, "operations");
    assert_non_null(json_object_get(operations, operation));
    assert_int_equal(json_object_set_new(operations, operation,
                                         json_pack("{s:b}", "own_kernels", 1)),
                     0);
    char *text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    assert_int_equal(file_write(path, text, strlen(text), 0, &err), 0);
    free(text);
    json_decref(root);
}

/* An operation that makes a NaN of finite numbers is reported with its layer and plan, and the remedy in the text
 * works. */
static void a_plan_that_makes_a_nan_has_a_way_on(void **unused)
{
    (void)unused;
    static const struct {
        const char *variable, *value, *layer, *library, *operation;
    } cases[] = {
        {"FAKE_CUDNN_NAN", "forward:1", " conv_in.weight: its result (1 of 512 values), ", "cuDNN",
         "conv bf16 n1 8x8 4->8 k3 s1 forward"},
        {"FAKE_CUDNN_NAN", "weight:1",
         " conv_out.weight: the gradient of its weight (1 of 288 values), ", "cuDNN",
         "conv bf16 n1 8x8 8->4 k3 s1 backward_weight"},
        {"FAKE_CUDNN_NAN", "data:1",
         " conv_out.weight: the gradient of its input (1 of 512 values), ", "cuDNN",
         "conv bf16 n1 8x8 8->4 k3 s1 backward_data"},
        {"FAKE_CUBLASLT_NAN", "2", " time_embedding.linear_2.weight: its result (1 of 32 values), ",
         "cuBLASLt", "linear bf16 1x32->32 forward"},
    };
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/left.json", files.folder);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        char name[32], says[320];
        (void)snprintf(name, sizeof(name), "nan-%zu", i);
        _cleanup_free_ char *text = job_with(name, set_path);
        assert_int_equal(setenv(cases[i].variable, cases[i].value, 1), 0);
        (void)snprintf(says, sizeof(says),
                       "%s%s, by the plan of %s; our own kernels make it finite: "
                       "\"own_kernels\":true in that entry",
                       cases[i].layer, cases[i].library, cases[i].operation);
        expect_run(text, EXIT_NON_FINITE, "; computed again, first is ", says);
        assert_int_equal(unsetenv(cases[i].variable), 0);

        (void)snprintf(name, sizeof(name), "left-%zu", i);
        put_set_without(path, cases[i].operation);
        _cleanup_free_ char *other = job_with(name, path);
        expect_run(other, EXIT_DONE, "our own kernels, which are slow, compute ",
                   cases[i].operation);
    }
}

static void a_failing_product_ends_the_rank(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = job_with("failing", set_path);
    assert_int_equal(setenv("FAKE_CUBLASLT_FAIL", "cublasLtMatmul", 1), 0);
    expect_run(text, EXIT_DEVICE_FAULT, " forward: cuBLASLt: CUBLAS_STATUS_EXECUTION_FAILED",
               "GPU emulator: linear bf16 ");
    assert_int_equal(unsetenv("FAKE_CUBLASLT_FAIL"), 0);

    /* The GPU counts as at fault although nothing has run yet: otherwise one bad node could end the job. */
    assert_int_equal(setenv("FAKE_CUBLASLT_FAIL", "cublasLtCreate", 1), 0);
    expect_run(text, EXIT_DEVICE_FAULT, "cuBLASLt gives no handle: CUBLAS_STATUS_EXECUTION_FAILED",
               "GPU emulator: ");
    assert_int_equal(unsetenv("FAKE_CUBLASLT_FAIL"), 0);

    _cleanup_free_ char *other = job_with("failing-too", set_path);
    assert_int_equal(setenv("FAKE_CUDNN_FAIL", "1", 1), 0);
    expect_run(other, EXIT_DEVICE_FAULT,
               " forward: cuDNN: running it: CUDNN_STATUS_EXECUTION_FAILED",
               "GPU emulator: conv bf16 ");
    assert_int_equal(unsetenv("FAKE_CUDNN_FAIL"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_is_made),
        cmocka_unit_test(the_fastest_is_taken),
        cmocka_unit_test(known_plans_are_kept),
        cmocka_unit_test(a_set_that_cannot_be_kept_is_refused),
        cmocka_unit_test_teardown(a_job_goes_on_with_the_set_it_began_with, ranks_end),
        cmocka_unit_test_teardown(a_set_that_does_not_fit_is_refused, ranks_end),
        cmocka_unit_test(an_entry_that_cannot_be_replayed_is_named),
        cmocka_unit_test(a_set_that_was_cut_short_is_refused),
        cmocka_unit_test_teardown(a_job_does_not_go_on_with_another_library, ranks_end),
        cmocka_unit_test(too_little_memory_is_told),
        cmocka_unit_test_teardown(a_folder_of_sets_is_looked_at, ranks_end),
        cmocka_unit_test(libraries_are_opened_for_plans_alone),
        cmocka_unit_test(a_plan_that_wavers_is_named),
        cmocka_unit_test(a_plan_that_makes_a_nan_has_a_way_on),
        cmocka_unit_test(a_failing_product_ends_the_rank),
    };
    if (setenv("SDTRAIN_CUDA_MODULE", EMULATED_MODULE, 1) < 0 ||
        setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 1) < 0)
        return 1;
    ranks_gpu = "0000:3b:00";
    ranks_steps = STEPS;
    testing_job_open(&files);
    ranks_look_at_data(files.text);
    (void)snprintf(set_path, sizeof(set_path), "%s/set.json", files.folder);
    (void)snprintf(folder, sizeof(folder), "%s/sets", files.folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    free(set);
    return failed;
}
