/* SPDX-License-Identifier: Apache-2.0 */
/* test-shadow-runs.c - whole jobs on shadow devices end with the digest that one rank has on the CPU. The world's size
 * (1 to 4 ranks), the ZeRO stage (0 to 2), saves and kills are drawn from a seed.
 *
 * SDTRAIN_SHADOW_RUNS=200 test-shadow-runs      seeds 1..200 (8 by default)
 * SDTRAIN_SHADOW_SEED=77 test-shadow-runs       from that seed on, one by default */
#include "trainer/run.h"

#include "base/number/philox.h"
#include "base/test/testing.h"
#include "trainer/test/testing-job.h"
#include "trainer/test/testing-ranks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 20, RUNS = 8, KILLS_MAX = 2 };

static TestingJob files;
static Hash reference;

/* The points at which a rank is killed, and the largest visit that is drawn. */
static const struct {
    const char *point;
    uint32_t visits;
} points[] = {
    {"loop.compute", 40}, {"checkpoint.copied", 4},          {"checkpoint.object", 12},
    {"saver.saved", 4},   {"checkpoint.manifest.before", 3}, {"store.put.half", 12},
    {"saver.saved", 2},   {"checkpoint.settle", 3},
};

/* The orders of the lanes in a life; see ShadowSchedule. */
static const char *const schedules[] = {
    "", ",late", ",drawn", ",late=compute", ",late=out/comm", ",drawn", ",late=in/out"};

typedef struct Draws {
    uint64_t seed, n;
} Draws;

static uint32_t draw(Draws *draws, uint32_t below)
{
    return philox4x32(draws->seed, 0, draws->n++).word[0] % below;
}

static void run_seed(uint64_t seed)
{
    char name[32], shadow[64];
    Draws draws = {.seed = seed};
    _cleanup_free_ char *train = NULL, *text = NULL;
    (void)snprintf(name, sizeof(name), "seed-%llu", (unsigned long long)seed);
    assert_true(asprintf(&train, ", \"device\": \"cuda\", \"zero_stage\": %u", draw(&draws, 3)) >
                0);
    text = testing_job_text_of(&files, name, train, STEPS, 2 + (int)draw(&draws, 7));
    const uint32_t n_kills = draw(&draws, KILLS_MAX + 1);

    RanksLife life = {0};
    for (uint32_t i = 0;; i++) {
        char fault[64];
        const uint32_t k = draw(&draws, ELEMENTSOF(points));
        (void)snprintf(fault, sizeof(fault), "%s=kill@%u", points[k].point,
                       1 + draw(&draws, points[k].visits));
        (void)snprintf(shadow, sizeof(shadow), "seed=%llu%s", (unsigned long long)(seed * 8 + i),
                       schedules[(seed + i) % ELEMENTSOF(schedules)]);
        assert_int_equal(setenv("SDTRAIN_SHADOW", shadow, 1), 0);
        life =
            (RanksLife){.generation = i + 1, .size = 1 + (int)draw(&draws, 4), .saved = life.saved};
        print_message("seed %llu: %d ranks%s, from step %d, %s, %s\n", (unsigned long long)seed,
                      life.size, train, (int)life.saved.step, shadow,
                      i < n_kills ? fault : "no fault");
        ranks_begin(&life, text, life.size - 1, i < n_kills ? fault : NULL);
        ranks_live(&life);
        if (!life.lost)
            break;
        if (i >= n_kills)
            fail_msg("a rank was lost: %s", ranks[0].error.text);
        (void)ranks_end(NULL);
    }
    assert_true(hash_equal(life.digest, reference));
    for (int i = 0; i < life.size; i++)
        assert_int_equal(rank_end(&ranks[i]), EXIT_DONE);
}

/* Runs one rank on a device that ignores some waits. Returns whether its digest is the reference's. */
static bool survives(uint64_t seed, const char *drop)
{
    char shadow[64], name[64];
    (void)snprintf(shadow, sizeof(shadow), "seed=%llu,drop=%s", (unsigned long long)seed, drop);
    (void)snprintf(name, sizeof(name), "%s-%llu", drop, (unsigned long long)seed);
    _cleanup_free_ char *text =
        testing_job_text_of(&files, name, ", \"device\": \"cuda\"", STEPS, 5);
    assert_int_equal(setenv("SDTRAIN_SHADOW", shadow, 1), 0);
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, 1, 0, 1, NULL);
    ChannelMessage m;
    bool same = false;
    while (!rank_is_gone(rank)) {
        m = rank_receive_any(rank);
        if (m.type == CHANNEL_READY)
            rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = 1});
        if (m.type == CHANNEL_SAVED)
            rank_commit(rank, 1);
        same = same || (m.type == CHANNEL_DONE && hash_equal(m.digest, reference));
    }
    (void)rank_end(rank); /* the exit code depends on the check that found the error */
    return same;
}

/* If a program forgets a wait, its results show the error. */
static void forgotten_waits_are_found(void **state)
{
    (void)state;
    static const char *const drops[] = {"waits", "awaits", "waits,late", "awaits,late"};
    for (size_t i = 0; i < ELEMENTSOF(drops); i++) {
        const bool late = strstr(drops[i], "late"); /* found with any seed */
        const int n_seeds = late ? 1 : 3;
        int n_found = 0;
        for (uint64_t seed = 1; seed <= (uint64_t)n_seeds; seed++)
            n_found += !survives(seed, drops[i]);
        print_message("forgotten %s: found by %d of %d seeds\n", drops[i], n_found, n_seeds);
        assert_in_range(n_found, 1, n_seeds);
    }
}

static uint64_t number(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : usual;
}

static void the_cpus_digest(void **state)
{
    (void)state;
    _cleanup_free_ char *text = testing_job_text_of(&files, "reference", "", STEPS, 100);
    Rank *rank = &ranks[0];
    rank_start(rank, NULL);
    rank_assign(rank, text, 1, 0, 1, NULL);
    (void)rank_expect(rank, CHANNEL_READY);
    rank_say(rank, (ChannelMessage){.type = CHANNEL_GO, .generation = 1});
    for (;;) {
        const ChannelMessage m = rank_hear(rank);
        if (m.type == CHANNEL_DONE) {
            reference = m.digest;
            break;
        }
        assert_int_equal(m.type, CHANNEL_SAVED);
        rank_commit(rank, 1);
    }
    assert_int_equal(rank_end(rank), EXIT_DONE);
}

static void every_seed_has_it(void **state)
{
    (void)state;
    const uint64_t first = number("SDTRAIN_SHADOW_SEED", 1);
    const uint64_t n = number("SDTRAIN_SHADOW_RUNS", first > 1 ? 1 : RUNS);
    for (uint64_t seed = first; seed < first + n; seed++)
        run_seed(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_cpus_digest, ranks_end),
        cmocka_unit_test_teardown(every_seed_has_it, ranks_end),
        cmocka_unit_test_teardown(forgotten_waits_are_found, ranks_end),
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
