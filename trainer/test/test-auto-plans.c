/* SPDX-License-Identifier: Apache-2.0 */
/* test-auto-plans.c - train.plans "auto": the one plan set of a submission, which rank 0 makes. The device is the
 * emulator, with a cuBLASLt and a cuDNN whose algorithms take other times in each process, so that two processes that
 * tune choose differently. Also tests a job that continues from a manifest with another set.
 * SDTRAIN_AUTO_STARTS: how many submissions are started (default: 4; 100 for the figure). */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/number/hash.h"
#include "base/number/philox.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 2, TEXT_MAX = 1 << 20, SETS_MAX = 8, STARTS = 4, SUBMISSION_BYTES = 33 };

static TestingJob files;

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

/* Sets which of two engines, and which of two kinds of algorithm, the libraries of the next process prefer. */
static void prefer(unsigned which)
{
    const char *const conv = which & 1 ? "1:2900,2:3000" : "1:9000,2:3000";
    const char *const linear = which & 2 ? "0:3000,1:9000" : "0:6000,1:3000";
    assert_int_equal(setenv("FAKE_CUDNN_USEC", conv, 1), 0);
    assert_int_equal(setenv("FAKE_CUBLASLT_USEC", linear, 1), 0);
}

static char *read_text(const char *path)
{
    char *text;
    Error err = ERROR_INIT;
    if (file_read(path, TEXT_MAX, &text, NULL, &err) < 0)
        fail_msg("%s", err.text);
    return text;
}

/* Finds the path of the only set in the job's folder; false: there is none. */
static bool find_set(const char *name, char path[512])
{
    char folder[192];
    int n = 0;
    (void)snprintf(folder, sizeof(folder), "%s/%s/plans", files.folder, name);
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            assert_memory_equal(e->d_name, "auto-", 5);
            (void)snprintf(path, 512, "%s/%s", folder, e->d_name);
            n++;
        }
    if (dir)
        (void)closedir(dir);
    assert_in_range(n, 0, 1);
    return n == 1;
}

/* Reads an object beside the newest manifest. */
static char *saved_object(const ChannelMessage *saved, const char *name)
{
    char path[640];
    const char *at = saved->uri + strlen("file://");
    (void)snprintf(path, sizeof(path), "%.*s/%s", (int)(strrchr(at, '/') - at), at, name);
    return read_text(path);
}

static void begin_rank(int i, const RanksLife *life, const char *text, const char *fault)
{
    rank_start(&ranks[i], fault);
    rank_assign(&ranks[i], text, life->generation, i, life->size,
                life->saved.type == CHANNEL_SAVED ? &life->saved : NULL);
}

/* Waits until all ranks are ready, and sends `go`. Returns false if rank 0 has ended; then the caller kills the other
 * ranks. */
static bool go(RanksLife *life)
{
    ChannelMessage go = {.type = CHANNEL_GO, .generation = life->generation};
    for (int i = 0; i < life->size; i++) {
        ChannelMessage m = {.type = CHANNEL_STAGE};
        while (m.type != CHANNEL_READY) {
            if (rank_is_gone(&ranks[i])) {
                life->lost = true;
                return false;
            }
            m = rank_receive_any(&ranks[i]);
            if (m.type == CHANNEL_RENDEZVOUS)
                memcpy(go.address, m.address, sizeof(go.address));
            if (m.type == CHANNEL_ERROR)
                fail_msg("rank %d: %s", i, m.text);
        }
    }
    for (int i = 0; i < life->size; i++)
        rank_say(&ranks[i], go);
    return true;
}

/* Waits until the rank has stopped itself at a fault point. */
static void await_stop(const Rank *rank)
{
    int status;
    assert_int_equal(waitpid(rank->pid, &status, WUNTRACED), rank->pid);
    assert_true(WIFSTOPPED(status));
}

/* ---- one set ---- */

/* The sets that the tests have seen. digest: the result of a job of one rank whose train.plans names the set. */
static struct {
    char *text;
    Hash digest;
} sets[SETS_MAX];
static int n_sets;

static Hash digest_with(const char *set)
{
    char path[160], name[32];
    Error err = ERROR_INIT;
    for (int i = 0; i < n_sets; i++)
        if (strcmp(sets[i].text, set) == 0)
            return sets[i].digest;
    assert_true(n_sets < SETS_MAX);
    (void)snprintf(path, sizeof(path), "%s/named-%d.json", files.folder, n_sets);
    (void)snprintf(name, sizeof(name), "named-%d", n_sets);
    assert_int_equal(file_write(path, set, strlen(set), 0, &err), 0);
    _cleanup_free_ char *text = job_with(name, path);
    RanksLife life = {.generation = 1, .size = 1};
    begin_rank(0, &life, text, NULL);
    assert_true(go(&life));
    ranks_live(&life);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
    sets[n_sets].text = strdup(set);
    sets[n_sets].digest = life.digest;
    return sets[n_sets++].digest;
}

/* Checks that the set in the folder is the same as before, if there was one before. */
static void look_at_set(const char *name, char **seen)
{
    char path[512];
    if (!find_set(name, path))
        return;
    char *text = read_text(path);
    if (*seen)
        assert_string_equal(text, *seen);
    free(*seen);
    *seen = text;
}

static void start_once(int number, const Philox *drawn)
{
    static const char *const faults[] = {NULL, "plans.made=kill", "plans.put=kill",
                                         "canned.compute=kill",
                                         "checkpoint.manifest.before=kill" /* of step 0 */};
    char name[32], submission[SUBMISSION_BYTES], path[512];
    _cleanup_free_ char *seen = NULL;
    (void)snprintf(name, sizeof(name), "start-%d", number);
    (void)snprintf(submission, sizeof(submission), "%032d", number);
    ranks_submission = submission;
    _cleanup_free_ char *text = number % 2 ? job_text(name, "") : job_with(name, "auto");
    RanksLife life = {.size = 1 + (int)(drawn->word[0] % 3)};
    for (int turn = 0;; turn++) {
        life = (RanksLife){.generation = turn + 1, .size = life.size};
        const char *fault =
            turn < 2 ? faults[(drawn->word[1] >> (8 * turn)) % ELEMENTSOF(faults)] : NULL;
        for (int i = 0; i < life.size; i++) {
            prefer(i == 0 ? (unsigned)(number + turn) /* so that each set is made */
                          : drawn->word[2] >> (2 * (turn * RANKS_MAX + i)));
            begin_rank(i, &life, text, i == 0 ? fault : NULL);
        }
        if (go(&life))
            ranks_live(&life);
        if (!life.lost)
            break;
        assert_non_null(fault);
        assert_int_equal(rank_end(&ranks[0]), -SIGKILL);
        (void)ranks_end(NULL);
        assert_int_equal(life.saved.type, CHANNEL_ASSIGN); /* nothing was committed */
        look_at_set(name, &seen);
    }
    for (int i = 0; i < life.size; i++)
        assert_int_equal(rank_end(&ranks[i]), EXIT_DONE);
    _cleanup_free_ char *saved = saved_object(&life.saved, "plans.json");
    if (seen)
        assert_string_equal(saved, seen);
    assert_false(find_set(name, path)); /* removed, since the manifests have the set */
    ranks_submission = "";
    assert_true(hash_equal(life.digest, digest_with(saved)));
}

static void a_submission_has_one_set(void **unused)
{
    (void)unused;
    const char *value = getenv("SDTRAIN_AUTO_STARTS");
    const int n = value ? atoi(value) : STARTS;
    for (int i = 0; i < n; i++) {
        const Philox drawn = philox4x32(26, (uint64_t)i, 0);
        start_once(i, &drawn);
    }
    printf("%d submissions, a set each, %d different sets\n", n, n_sets);
    if (n >= STARTS)
        assert_true(n_sets > 1); /* a job that tunes by itself has another set */
}

/* Rank 0 of a replaced world has made a set. Before rank 0 puts its set, another world puts another set: rank 0 then
 * uses the other world's set. */
static void what_lies_there_wins(void **unused)
{
    (void)unused;
    char path[512];
    ranks_submission = "0123456789abcdef0123456789abcdef";
    _cleanup_free_ char *text = job_text("late", "");
    RanksLife life = {.generation = 1, .size = 1};
    prefer(0);
    begin_rank(0, &life, text, "plans.made=stop");
    await_stop(&ranks[0]);
    assert_false(find_set("late", path));
    prefer(3);
    rank_start(&ranks[1], "plans.put=kill");
    rank_assign(&ranks[1], text, 2, 0, 1, NULL);
    assert_int_equal(rank_end(&ranks[1]), -SIGKILL);
    assert_true(find_set("late", path));
    assert_non_null(strstr(path, "/auto-0123456789abcdef0123456789abcdef-emulator-1-91900-1"));
    _cleanup_free_ char *set = read_text(path);
    assert_int_equal(kill(ranks[0].pid, SIGCONT), 0);
    assert_true(go(&life));
    ranks_live(&life);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
    _cleanup_free_ char *saved = saved_object(&life.saved, "plans.json");
    assert_string_equal(saved, set);
    ranks_submission = "";
}

/* ---- what is refused ---- */

static void expect_error(int i, int code, const char *says)
{
    const ChannelMessage error = rank_expect(&ranks[i], CHANNEL_ERROR);
    if (error.exit_code != code || !strstr(error.text, says))
        fail_msg("%d, not %d with \"%s\": %s", (int)error.exit_code, code, says, error.text);
    assert_int_equal(rank_end(&ranks[i]), code);
}

/* A rank on another kind of machine waits for a set of its own kind, and ends when rank 0 puts a set of another
 * kind. */
static void another_kind_of_machine_ends_with_numerics(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = job_text("kinds", "");
    const RanksLife life = {.generation = 1, .size = 2};
    prefer(0);
    begin_rank(0, &life, text, "plans.made=stop");
    await_stop(&ranks[0]);
    assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", "/nonexistent", 1), 0);
    begin_rank(1, &life, text, "plans.wait=stop");
    assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 1), 0);
    await_stop(&ranks[1]); /* rank 1 has searched once */
    assert_int_equal(kill(ranks[0].pid, SIGCONT), 0);
    (void)rank_expect(&ranks[0], CHANNEL_RENDEZVOUS);
    (void)rank_expect(&ranks[0], CHANNEL_READY);
    assert_int_equal(kill(ranks[1].pid, SIGCONT), 0);
    expect_error(1, EXIT_NUMERICS, "rank 0 computes by the plans plans/auto--emulator-1-91900-1");
}

static void nobody_waits_for_ever(void **unused)
{
    (void)unused;
    _cleanup_free_ char *text = job_text("alone", "");
    const RanksLife life = {.generation = 1, .size = 2};
    ranks_startup_usec = 1000000;
    begin_rank(1, &life, text, NULL);
    expect_error(1, EXIT_RETRY, "rank 0 has put no plan set plans/auto--emulator-1-91900-1");
    ranks_startup_usec = 0;
}

/* If a set cannot be put or read, this start fails, and the next start makes the set. */
static void a_store_that_fails_costs_a_start(void **unused)
{
    (void)unused;
    static const struct {
        const char *fault, *says;
        int code;
    } cases[] = {
        {"store.put.half=enospc", "plans/auto--emulator", EXIT_STORE_UNREACHABLE},
        {"store.put.before=eio", "plans/auto--emulator", EXIT_STORE_UNREACHABLE},
        {"plans.made=enomem", "plans/auto--emulator", EXIT_RETRY},
    };
    char path[512];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/a-file", files.folder);
    assert_int_equal(file_write(path, "", 0, 0, &err), 0);
    _cleanup_free_ char *text = job_text("store", ""), *nowhere = job_text("a-file/below", "");
    RanksLife life = {.generation = 1, .size = 1};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        begin_rank(0, &life, text, cases[i].fault);
        expect_error(0, cases[i].code, cases[i].says);
        assert_false(find_set("store", path));
        life.generation++;
    }
    begin_rank(0, &life, text, NULL);
    assert_true(go(&life));
    ranks_live(&life);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);

    life = (RanksLife){.generation = 1, .size = 1};
    begin_rank(0, &life, nowhere, NULL); /* no later start can succeed after this error */
    expect_error(0, EXIT_NEVER_RETRY, "Not a directory");
}

/* The object under the set's key is checked like any other set. */
static void a_bad_set_is_named(void **unused)
{
    (void)unused;
    static const struct {
        const char *what, *by, *says;
    } cases[] = {
        {"\"operations\":{", "\"operations\":{,", "train.plans \"auto\": plans: line 1"},
        {"\"sms\":1", "\"sms\":132", "the plans are for GPU emulator (emulated, 132"},
        {"\"linear bf16 ", "\"linear bf16 0", "linear bf16 "},
    };
    char path[512];
    Error err = ERROR_INIT;
    _cleanup_free_ char *text = job_text("bad", "");
    RanksLife life = {.generation = 1, .size = 1};
    begin_rank(0, &life, text, "plans.put=kill");
    assert_int_equal(rank_end(&ranks[0]), -SIGKILL);
    assert_true(find_set("bad", path));
    _cleanup_free_ char *set = read_text(path);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const char *at = strstr(set, cases[i].what);
        _cleanup_free_ char *changed = NULL;
        assert_non_null(at);
        assert_true(asprintf(&changed, "%.*s%s%s", (int)(at - set), set, cases[i].by,
                             at + strlen(cases[i].what)) > 0);
        assert_int_equal(file_write(path, changed, strlen(changed), 0, &err), 0);
        life.generation++;
        begin_rank(0, &life, text, NULL);
        expect_error(0, EXIT_NEVER_RETRY, cases[i].says);
    }
}

/* Without libraries the set is plain, and all ranks use it. */
static void without_libraries_the_set_is_plain(void **unused)
{
    (void)unused;
    assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", "/nonexistent", 1), 0);
    _cleanup_free_ char *text = job_text("plain", ""), *own = job_with("own", "installed");
    RanksLife life = {.generation = 1, .size = 2};
    for (int i = 0; i < 2; i++)
        begin_rank(i, &life, text, NULL);
    assert_true(go(&life));
    ranks_live(&life);
    for (int i = 0; i < 2; i++)
        assert_int_equal(rank_end(&ranks[i]), EXIT_DONE);
    _cleanup_free_ char *saved = saved_object(&life.saved, "plans.json");
    assert_string_equal(saved, "{\"plain\":true,\"version\":1}");
    const Hash digest = life.digest;
    life = (RanksLife){.generation = 1, .size = 1};
    begin_rank(0, &life, own, NULL);
    assert_true(go(&life));
    ranks_live(&life);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
    assert_true(hash_equal(life.digest, digest));
    assert_int_equal(setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 1), 0);
}

/* Rank 0 times only the operations that the installed set lacks. An installed set for other libraries is passed
 * over. */
static void the_installed_set_is_kept(void **unused)
{
    (void)unused;
    char folder[160], path[192];
    Error err = ERROR_INIT;
    assert_true(n_sets > 0);
    (void)snprintf(folder, sizeof(folder), "%s/installed", files.folder);
    (void)snprintf(path, sizeof(path), "%s/emulator.json", folder);
    assert_int_equal(folder_make(folder, &err), 0);
    assert_int_equal(setenv("SDTRAIN_CUDA_PLANS", folder, 1), 0);
    for (unsigned i = 0; i < 4; i += 2) {
        char name[32];
        const bool fits = i < 2;
        const char *installed = sets[i % 2].text, *at = strstr(installed, "\"cudnn\":9");
        _cleanup_free_ char *other = NULL;
        assert_non_null(at);
        assert_true(asprintf(&other, "%.*s\"cudnn\":%d%s", (int)(at - installed), installed,
                             fits ? 9 : 8, at + strlen("\"cudnn\":9")) > 0);
        assert_int_equal(file_write(path, other, strlen(other), 0, &err), 0);
        (void)snprintf(name, sizeof(name), "installed-%u", i);
        _cleanup_free_ char *text = job_text(name, "");
        prefer(strstr(installed, "\"engine\":1,") ? 0 : 3);
        RanksLife life = {.generation = 1, .size = 1};
        begin_rank(0, &life, text, NULL);
        assert_true(go(&life));
        ranks_live(&life);
        assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
        _cleanup_free_ char *saved = saved_object(&life.saved, "plans.json");
        assert_int_equal(strcmp(saved, installed) == 0, fits);
    }
    assert_int_equal(unsetenv("SDTRAIN_CUDA_PLANS"), 0);
}

/* ---- another set for a history ---- */

static RanksLife adopt(const char *text, const ChannelMessage *from, int64_t generation,
                       bool adopts)
{
    RanksLife life = {.generation = generation, .size = 1, .saved = *from};
    ranks_adopt = adopts;
    begin_rank(0, &life, text, NULL);
    ranks_adopt = false;
    return life;
}

static Hash adopted(const char *text, const ChannelMessage *from, int64_t generation, bool adopts,
                    ChannelMessage *ret_saved)
{
    RanksLife life = adopt(text, from, generation, adopts);
    assert_true(go(&life));
    ranks_live(&life);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
    *ret_saved = life.saved;
    return life.digest;
}

/* A new job continues from a manifest that was made with another set. If the job names a set, the job computes with the
 * named set, and its manifests record the change. A job that names no set keeps the manifest's set. */
static void a_named_set_takes_the_manifests_place(void **unused)
{
    (void)unused;
    const int k = 1;
    assert_true(k < n_sets);
    char expected[160], was[HASH_TEXT_BYTES], is[HASH_TEXT_BYTES];
    (void)snprintf(expected, sizeof(expected), "\"plan_changes\": \"1 %s %s\"",
                   hash_format(hash_bytes(sets[0].text, strlen(sets[0].text)), was),
                   hash_format(hash_bytes(sets[k].text, strlen(sets[k].text)), is));
    char zero[160], one[160];
    (void)snprintf(zero, sizeof(zero), "%s/named-0.json", files.folder);
    (void)snprintf(one, sizeof(one), "%s/named-%d.json", files.folder, k);
    _cleanup_free_ char *first = job_with("first", zero), *other = job_with("other", one),
                        *same = job_with("same", zero), *keeps = job_text("keeps", "");
    RanksLife life = {.generation = 1, .size = 1};
    begin_rank(0, &life, first, NULL);
    assert_true(go(&life));
    while (life.saved.type != CHANNEL_SAVED || life.saved.step < 1) {
        (void)rank_expect(&ranks[0], CHANNEL_SAVED);
        life.saved = ranks[0].saved;
        rank_commit(&ranks[0], 1);
    }
    (void)ranks_end(NULL);
    const ChannelMessage from = life.saved;
    ChannelMessage saved;

    const Hash changed = adopted(other, &from, 1, true, &saved);
    _cleanup_free_ char *manifest = saved_object(&saved, "manifest.json");
    _cleanup_free_ char *plans = saved_object(&saved, "plans.json");
    assert_non_null(strstr(manifest, expected));
    assert_string_equal(plans, sets[k].text);

    /* When the job continues by itself, it keeps this set, whatever the set's file holds, and records the same
     * history. */
    _cleanup_free_ char *again = job_with("other", zero);
    ChannelMessage saved_again;
    const Hash digest = adopted(again, &saved, 2, false, &saved_again);
    assert_true(hash_equal(digest, changed));

    assert_true(hash_equal(adopted(same, &from, 1, true, &saved), sets[0].digest));
    _cleanup_free_ char *same_manifest = saved_object(&saved, "manifest.json");
    assert_null(strstr(same_manifest, "plan_changes"));
    assert_true(hash_equal(adopted(keeps, &from, 1, true, &saved), sets[0].digest));

    /* A job that saves into the folder of the manifest, and so takes the folder over, uses the named set, too. */
    _cleanup_free_ char *own = job_with("first", one);
    ranks_submission = "fedcba9876543210fedcba9876543210";
    assert_true(hash_equal(adopted(own, &from, 2, true, &saved), changed));
    ranks_submission = "";
    _cleanup_free_ char *own_manifest = saved_object(&saved, "manifest.json");
    assert_non_null(strstr(own_manifest, expected));
}

/* `sdtrainer plan --from MANIFEST` writes the set of a checkpoint, so that another job gets the same bits. A set that
 * does not verify is refused. */
static int plan_from(const char *text, const char *to, const char *from)
{
    char job[160], program[512];
    Error err = ERROR_INIT;
    (void)snprintf(job, sizeof(job), "%s/plan.json", files.folder);
    (void)snprintf(program, sizeof(program), "%s/sdtrainer", getenv("SDTRAIN_BIN"));
    assert_int_equal(file_write(job, text, strlen(text), 0, &err), 0);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl(program, program, "plan", "--job", job, "--plans", to, "--from", from,
                    (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_checkpoints_set_is_taken_out(void **unused)
{
    (void)unused;
    char to[160], path[640];
    Error err = ERROR_INIT;
    (void)snprintf(to, sizeof(to), "%s/taken.json", files.folder);
    _cleanup_free_ char *text = job_text("taken", "");
    RanksLife life = {.generation = 1, .size = 1};
    prefer(0);
    begin_rank(0, &life, text, NULL);
    assert_true(go(&life));
    ranks_live(&life);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
    _cleanup_free_ char *saved = saved_object(&life.saved, "plans.json");
    char hash[HASH_TEXT_BYTES];
    /* The daemon receives the hash of the same set. */
    assert_string_equal(life.saved.plans, hash_format(hash_bytes(saved, strlen(saved)), hash));
    prefer(3);
    assert_int_equal(plan_from(text, to, life.saved.uri), EXIT_DONE);
    _cleanup_free_ char *taken = read_text(to);
    assert_string_equal(taken, saved);
    (void)snprintf(path, sizeof(path), "%.*s/plans.json",
                   (int)(strrchr(life.saved.uri, '/') - life.saved.uri), life.saved.uri);
    assert_int_equal(plan_from(text, to, path), EXIT_DONE); /* copied unchanged */
    _cleanup_free_ char *copied = read_text(to);
    assert_string_equal(copied, saved);

    const char *file = path + strlen("file://");
    assert_int_equal(file_write(file, saved, strlen(saved) - 1, 0, &err), 0);
    assert_int_equal(plan_from(text, to, life.saved.uri), EXIT_DATA_CORRUPT);
    assert_int_equal(plan_from(text, to, "file:///nonexistent/step/manifest.json"),
                     EXIT_NEVER_RETRY);
}

/* If the plans differ, everything else in the numerics must be equal. */
static void other_numerics_are_refused_all_the_same(void **unused)
{
    (void)unused;
    char plain[160], one[160];
    Error err = ERROR_INIT;
    (void)snprintf(plain, sizeof(plain), "%s/plain.json", files.folder);
    (void)snprintf(one, sizeof(one), "%s/named-1.json", files.folder);
    assert_int_equal(file_write(plain, "{\"plain\":true,\"version\":1}", 26, 0, &err), 0);
    _cleanup_free_ char *by_plain = job_with("by-plain", plain), *other = job_with("more", one);
    RanksLife life = {.generation = 1, .size = 1};
    begin_rank(0, &life, by_plain, NULL);
    assert_true(go(&life));
    ranks_live(&life);
    assert_int_equal(rank_end(&ranks[0]), EXIT_DONE);
    (void)adopt(other, &life.saved, 1, true);
    expect_error(0, EXIT_NUMERICS, "differ from the checkpoint's in more than the plans");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_submission_has_one_set, ranks_end),
        cmocka_unit_test_teardown(what_lies_there_wins, ranks_end),
        cmocka_unit_test_teardown(another_kind_of_machine_ends_with_numerics, ranks_end),
        cmocka_unit_test_teardown(nobody_waits_for_ever, ranks_end),
        cmocka_unit_test_teardown(a_store_that_fails_costs_a_start, ranks_end),
        cmocka_unit_test_teardown(a_bad_set_is_named, ranks_end),
        cmocka_unit_test_teardown(without_libraries_the_set_is_plain, ranks_end),
        cmocka_unit_test_teardown(the_installed_set_is_kept, ranks_end),
        cmocka_unit_test_teardown(a_named_set_takes_the_manifests_place, ranks_end),
        cmocka_unit_test_teardown(a_checkpoints_set_is_taken_out, ranks_end),
        cmocka_unit_test_teardown(other_numerics_are_refused_all_the_same, ranks_end),
    };
    if (setenv("SDTRAIN_CUDA_MODULE", EMULATED_MODULE, 1) < 0 ||
        setenv("SDTRAIN_CUDA_LIBRARIES", FAKES, 1) < 0 ||
        setenv("SDTRAIN_CUDA_PLANS", "/nonexistent", 1) < 0)
        return 1;
    ranks_gpu = "0000:3b:00";
    ranks_steps = STEPS;
    testing_job_open(&files);
    ranks_look_at_data(files.text);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    for (int i = 0; i < n_sets; i++)
        free(sets[i].text);
    return failed;
}
