/* SPDX-License-Identifier: Apache-2.0 */
/* test-emulated-runs.c - whole jobs with the CUDA kernels on the emulator: fp32 and bf16, worlds of 1 and 2 ranks, ZeRO
 * 0 to 2, a kill and a restore. All runs of one precision have the digest in tests/golden/cuda-digests.txt, which the
 * same job must have on a GPU.
 *
 * SDTRAIN_BITS=write writes that file: for new kernels, or if bits were changed on purpose. SDTRAIN_RUNS_MODULE names
 * another module than the emulator's. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 6 };

static TestingJob files;
static char digests[256]; /* lines for the golden file, collected by the tests */

/* Runs one life of a world. killed: the visit of loop.compute at which the last rank is killed; 0: never. Returns
 * whether the life finished the job. */
static bool live(const char *text, int64_t generation, int size, int killed, ChannelMessage *saved,
                 Hash *ret)
{
    char fault[64];
    ChannelMessage go = {.type = CHANNEL_GO, .generation = generation};
    (void)snprintf(fault, sizeof(fault), "loop.compute=kill@%d", killed);
    for (int i = 0; i < size; i++)
        rank_start(&ranks[i], killed && i == size - 1 ? fault : NULL);
    for (int i = 0; i < size; i++)
        rank_assign(&ranks[i], text, generation, i, size,
                    saved->type == CHANNEL_SAVED ? saved : NULL);
    if (size > 1) {
        const ChannelMessage rendezvous = rank_expect(&ranks[0], CHANNEL_RENDEZVOUS);
        memcpy(go.address, rendezvous.address, sizeof(go.address));
    }
    for (int i = 0; i < size; i++)
        (void)rank_expect(&ranks[i], CHANNEL_READY);
    for (int i = 0; i < size; i++)
        rank_say(&ranks[i], go);
    for (;;) {
        const ChannelMessage m = rank_hear(&ranks[0]);
        if (m.type == CHANNEL_ERROR)
            return false; /* the rank's peer was killed */
        if (m.type == CHANNEL_DONE) {
            *ret = m.digest;
            break;
        }
        assert_int_equal(m.type, CHANNEL_SAVED);
        *saved = m;
        rank_commit(&ranks[0], generation);
    }
    for (int i = 0; i < size; i++)
        assert_int_equal(rank_end(&ranks[i]), EXIT_DONE);
    return true;
}

static char *job(const char *precision, const char *name, int zero_stage)
{
    char *train = NULL;
    assert_true(asprintf(&train,
                         ", \"device\": \"cuda\", \"precision\": \"%s\", \"zero_stage\": %d%s",
                         precision, zero_stage,
                         strcmp(precision, "bf16") == 0 ? ", \"plans\": \"installed\"" : "") > 0);
    char *text = testing_job_text_of(&files, name, train, STEPS, 2);
    free(train);
    return text;
}

static void one_digest(const char *precision)
{
    char name[32], line[64], word[HASH_TEXT_BYTES];
    Hash digest = {0, 0}, other = {0, 0};
    for (int zero_stage = 0; zero_stage <= 2; zero_stage++) {
        ChannelMessage saved = {0};
        (void)snprintf(name, sizeof(name), "%s-%d", precision, zero_stage);
        _cleanup_free_ char *text = job(precision, name, zero_stage);
        const int size = zero_stage == 0 ? 1 : 2;
        assert_true(live(text, 1, size, 0, &saved, zero_stage == 0 ? &digest : &other));
        if (zero_stage > 0)
            assert_true(hash_equal(other, digest));
    }
    /* Two ranks run, and the second one is killed after the first save; then one rank continues from there. */
    ChannelMessage saved = {0};
    (void)snprintf(name, sizeof(name), "%s-killed", precision);
    _cleanup_free_ char *text = job(precision, name, 1);
    assert_false(live(text, 1, 2, 8, &saved, &other));
    (void)ranks_end(NULL);
    assert_int_equal(saved.type, CHANNEL_SAVED);
    assert_true(live(text, 2, 1, 0, &saved, &other));
    assert_true(hash_equal(other, digest));

    (void)snprintf(line, sizeof(line), "%s %s\n", precision, hash_format(digest, word));
    (void)snprintf(digests + strlen(digests), sizeof(digests) - strlen(digests), "%s", line);
}

static void fp32_has_one_digest(void **state)
{
    (void)state;
    one_digest("fp32");
}

static void bf16_has_one_digest(void **state)
{
    (void)state;
    one_digest("bf16");
}

/* A trap is always the program's fault, and a GPU that breaks is the node's fault: in the canned grain and in a
 * step. */
static void a_kernel_that_traps_ends_the_rank(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        int code;
    } cases[] = {
        {"emulated.kernel=efault", EXIT_ABORTED},
        {"emulated.kernel=efault@4000", EXIT_ABORTED},
        {"emulated.kernel=eio@4000", EXIT_DEVICE_FAULT},
    };
    if (getenv("SDTRAIN_RUNS_MODULE"))
        skip(); /* only the emulator has this fault point */
    _cleanup_free_ char *text = job("fp32", "trapped", 0);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        bool ready = false;
        rank_start(&ranks[0], cases[i].fault);
        rank_assign(&ranks[0], text, 1, 0, 1, NULL);
        ChannelMessage m = rank_hear(&ranks[0]);
        while (m.type == CHANNEL_READY || m.type == CHANNEL_SAVED) {
            if (m.type == CHANNEL_READY)
                rank_say(&ranks[0], (ChannelMessage){.type = CHANNEL_GO, .generation = 1});
            else
                rank_commit(&ranks[0], 1);
            ready = true;
            m = rank_hear(&ranks[0]);
        }
        assert_int_equal(m.type, CHANNEL_ERROR);
        assert_int_equal(m.exit_code, cases[i].code);
        assert_int_equal(ready, i > 0);
        if (!strstr(m.text, "_kernel") || !strstr(m.text, "the emulated GPU is broken"))
            fail_msg("%s", m.text);
        assert_int_equal(rank_end(&ranks[0]), cases[i].code);
    }
}

/* Memory is missing for the network, or for the state. The text shows which settings need less. */
static void too_little_memory_says_what_needs_less(void **state)
{
    (void)state;
    static const char *const faults[] = {"emulated.allocate=enomem", "emulated.allocate=enomem@20"};
    if (getenv("SDTRAIN_RUNS_MODULE"))
        skip(); /* only the emulator has this fault point */
    _cleanup_free_ char *text = job("fp32", "small", 0);
    for (size_t i = 0; i < ELEMENTSOF(faults); i++) {
        rank_start(&ranks[0], faults[i]);
        rank_assign(&ranks[0], text, 1, 0, 1, NULL);
        const ChannelMessage m = rank_expect(&ranks[0], CHANNEL_ERROR);
        assert_int_equal(m.exit_code, EXIT_RETRY);
        if (!strstr(m.text, "has no memory for ") || !strstr(m.text, "of 1 ranks needs ") ||
            !strstr(m.text, " are workspace"))
            fail_msg("%s", m.text);
        assert_int_equal(rank_end(&ranks[0]), EXIT_RETRY);
    }
}

static void the_digests_are_golden(void **state)
{
    (void)state;
    char path[512];
    Error err = ERROR_INIT;
    _cleanup_free_ char *golden = NULL;
    const char *how = getenv("SDTRAIN_BITS");
    (void)snprintf(path, sizeof(path), "%s/tests/golden/cuda-digests.txt",
                   getenv("SDTRAIN_SOURCE"));
    if (how && strcmp(how, "write") == 0)
        assert_int_equal(file_write(path, digests, strlen(digests), 0, &err), 0);
    assert_int_equal(file_read(path, sizeof(digests), &golden, NULL, &err), 0);
    assert_string_equal(golden, digests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_kernel_that_traps_ends_the_rank, ranks_end),
        cmocka_unit_test_teardown(too_little_memory_says_what_needs_less, ranks_end),
        cmocka_unit_test_teardown(fp32_has_one_digest, ranks_end),
        cmocka_unit_test_teardown(bf16_has_one_digest, ranks_end),
        cmocka_unit_test(the_digests_are_golden),
    };
    const char *module = getenv("SDTRAIN_RUNS_MODULE");
    if (setenv("SDTRAIN_CUDA_MODULE", module ? module : EMULATED_MODULE, 1) < 0)
        return 1;
    ranks_gpu = getenv("SDTRAIN_RUNS_GPU") ?: "0000:3b:00";
    ranks_steps = STEPS;
    testing_job_open(&files);
    ranks_look_at_data(files.text);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    testing_job_close(&files);
    return failed;
}
