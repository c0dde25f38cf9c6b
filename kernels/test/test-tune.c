/* SPDX-License-Identifier: Apache-2.0 */
/* test-tune.c - tests which candidate is chosen by the emulated device's clock, which these candidates advance. */
#include "base/clock.h"
#include "base/test/testing.h"
#include "kernels/cuda/plans/tune.h"
#include "kernels/test/emulator/emulated-stream.h"
#include "kernels/test/emulator/emulated.h"

#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = 4 };

/* A table of candidates, and a record of what was done with them. */
typedef struct Case {
    CudaCompute *compute;
    double usec[CANDIDATES];
    int64_t workspace[CANDIDATES];
    int late_every;    /* n: each n-th run of any candidate takes 50 times as long; 0: none */
    int refuses;       /* a candidate that does not run; -1: none */
    int breaks;        /* a candidate that breaks the device; -1: none */
    int wrong;         /* a bit for each candidate that check() rejects */
    int checks_broken; /* a candidate, counted from 1, whose check finds the device broken; 0: none */
    int runs[CANDIDATES], all;
} Case;

static bool start(void *userdata, int i)
{
    Case *c = userdata;
    if (i == c->refuses)
        return false;
    if (i == c->breaks)
        cuda_device_break(c->compute->device, "it fell off the bus");
    c->runs[i]++;
    const bool late = c->late_every && ++c->all % c->late_every == 0;
    cuda_compute_stream(c->compute->device)->usec += c->usec[i] * (late ? 50 : 1);
    return true;
}

static int check(void *userdata, int i, Error *err)
{
    const Case *c = userdata;
    if (c->wrong)
        assert_int_equal(c->runs[i], 0); /* the check comes before any run */
    if (i + 1 == c->checks_broken)
        return error_set(err, -EIO, "the check found it broken");
    return !(c->wrong >> i & 1);
}

static int choose(Case *c, Error *err)
{
    TuneCandidate candidates[CANDIDATES];
    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = DATA_BF16};
    Device *device;
    *err = (Error)ERROR_INIT;
    if (emulated_device_open(&options, &device, err) < 0)
        fail_msg("%s", err->text);
    c->compute = cuda_compute(device);
    for (int i = 0; i < CANDIDATES; i++)
        candidates[i].workspace_bytes = c->workspace[i];
    const Tuning tuning = {c->compute, "an operation", candidates, CANDIDATES, start, c, check};
    const int best = tune_choose(&tuning, err);
    device = device_free(device);
    return best;
}

static void the_fastest_is_taken(void **state)
{
    (void)state;
    Error err;
    Case c = {.usec = {400, 300, 200, 350}, .workspace = {0, 1, 2, 0}, .refuses = -1, .breaks = -1};
    assert_int_equal(choose(&c, &err), 2);
}

/* The candidate with the least workspace is chosen among those that are at most 1 % slower than the fastest; among
 * candidates with equal workspaces the library's order decides. */
static void less_workspace_is_worth_one_per_cent(void **state)
{
    (void)state;
    Error err;
    Case c = {.usec = {1009, 1011, 1000, 1009},
              .workspace = {5, 0, 9, 5},
              .refuses = -1,
              .breaks = -1};
    assert_int_equal(choose(&c, &err), 0);
    c.workspace[3] = 4;
    assert_int_equal(choose(&c, &err), 3);
    c.usec[0] = c.usec[3] = 1011;
    assert_int_equal(choose(&c, &err), 2);
}

/* An occasional delayed round does not change the median; it would change a mean or the slowest round. */
static void a_late_round_does_not_count(void **state)
{
    (void)state;
    Error err;
    for (int every = 4; every < 12; every++) {
        Case c = {.usec = {3000, 2500, 2900, 2800},
                  .late_every = every,
                  .refuses = -1,
                  .breaks = -1};
        const int best = choose(&c, &err);
        assert_int_equal(best, 1);
    }
}

/* A candidate that is far slower than the fastest one before it has only its two warm runs. Each other candidate is
 * also timed, in five rounds of at most 64 runs. */
static void runs_are_bounded(void **state)
{
    (void)state;
    Error err;
    Case c = {.usec = {100, 1, 301, 9000}, .refuses = -1, .breaks = -1};
    assert_int_equal(choose(&c, &err), 1);
    assert_int_equal(c.runs[0], 2 + 5 * 20);
    assert_int_equal(c.runs[1], 2 + 5 * 64);
    assert_int_equal(c.runs[2], 2);
    assert_int_equal(c.runs[3], 2);
}

static void what_does_not_run_is_passed_over(void **state)
{
    (void)state;
    Error err;
    Case c = {.usec = {400, 300, 200, 350}, .refuses = 2, .breaks = -1};
    assert_int_equal(choose(&c, &err), 1);

    Case broken = {.usec = {400, 300, 200, 350}, .refuses = -1, .breaks = 1};
    assert_int_equal(choose(&broken, &err), -EIO);
    assert_string_equal(err.text, "an operation: it fell off the bus");
    assert_int_equal(broken.runs[2], 0);

    const DeviceOptions options = {.kind = DEVICE_CUDA, .threads = 1, .type = DATA_BF16};
    Device *device;
    assert_int_equal(emulated_device_open(&options, &device, &err), 0);
    Case none = {.compute = cuda_compute(device), .refuses = 0, .breaks = -1};
    TuneCandidate candidate;
    const Tuning tuning = {none.compute, "an operation", &candidate, 1, start, &none};
    assert_int_equal(tune_choose(&tuning, &err), -EINVAL);
    assert_string_equal(err.text, "an operation: none of 1 algorithms runs");
    device = device_free(device);
}

/* A wrong candidate is never chosen, however fast it is, and is not timed. */
static void what_is_wrong_is_never_taken(void **state)
{
    (void)state;
    Error err;
    Case c = {.usec = {400, 300, 200, 350}, .refuses = -1, .breaks = -1, .wrong = 1 << 2};
    assert_int_equal(choose(&c, &err), 1);
    assert_int_equal(c.runs[2], 0);
    assert_true(c.runs[3] > 0);

    Case late = {.usec = {400, 300, 200, 350}, .refuses = -1, .breaks = -1, .wrong = 3};
    assert_int_equal(setenv("SDTRAIN_CUDA_TUNE_SEC", "0", 1), 0);
    assert_int_equal(choose(&late, &err), 2);
    assert_int_equal(late.runs[0] + late.runs[1] + late.runs[3], 0);
    Case none = {.usec = {400, 300, 200, 350}, .refuses = -1, .breaks = -1, .wrong = 15};
    assert_int_equal(choose(&none, &err), -EINVAL);
    assert_int_equal(unsetenv("SDTRAIN_CUDA_TUNE_SEC"), 0);
    assert_int_equal(choose(&none, &err), -EINVAL);
    assert_string_equal(err.text,
                        "an operation: none of 4 algorithms runs and gives what it should");

    Case broken = {.usec = {400, 300, 200, 350}, .refuses = -1, .breaks = -1, .checks_broken = 2};
    assert_int_equal(choose(&broken, &err), -EIO);
    assert_int_equal(broken.runs[2], 0);
}

/* When the time for tuning is over, the first candidate that runs is chosen. */
static void the_whole_is_bounded(void **state)
{
    (void)state;
    Error err;
    Case c = {.usec = {400, 300, 200, 350}, .refuses = 0, .breaks = -1};
    assert_int_equal(setenv("SDTRAIN_CUDA_TUNE_SEC", "0", 1), 0);
    assert_int_equal(choose(&c, &err), 1);
    assert_int_equal(c.runs[1], 1);
    assert_int_equal(c.runs[2], 0);

    CudaCompute compute = {.tuned = 0};
    assert_int_equal(tune_candidates_max(&compute), 2); /* two, because the first may refuse */
    assert_int_equal(unsetenv("SDTRAIN_CUDA_TUNE_SEC"), 0);
    assert_int_equal(tune_candidates_max(&compute), TUNE_CANDIDATES_MAX);
    compute =
        (CudaCompute){.tuned = 1, .tune_began_usec = clock_monotonic_usec() - 301 * 1000000ull};
    assert_int_equal(tune_candidates_max(&compute), 2);
    /* The seconds in the device's options take precedence over the variable. */
    compute.tune_sec = 302;
    assert_int_equal(tune_candidates_max(&compute), TUNE_CANDIDATES_MAX);
    assert_int_equal(setenv("SDTRAIN_CUDA_TUNE_SEC", "1000", 1), 0);
    compute.tune_sec = 300;
    assert_int_equal(tune_candidates_max(&compute), 2);
    static const char *const bad[] = {"", "1s", "-1", "100000000"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        assert_int_equal(setenv("SDTRAIN_CUDA_TUNE_SEC", bad[i], 1), 0);
        assert_int_equal(choose(&c, &err), 2);
    }
    assert_int_equal(unsetenv("SDTRAIN_CUDA_TUNE_SEC"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_is_taken),
        cmocka_unit_test(less_workspace_is_worth_one_per_cent),
        cmocka_unit_test(a_late_round_does_not_count),
        cmocka_unit_test(runs_are_bounded),
        cmocka_unit_test(what_does_not_run_is_passed_over),
        cmocka_unit_test(what_is_wrong_is_never_taken),
        cmocka_unit_test(the_whole_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
