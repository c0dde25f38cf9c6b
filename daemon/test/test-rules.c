/* SPDX-License-Identifier: Apache-2.0 */
/* test-rules.c - the pure functions: the watchdog of progress, the ranks and slots of a world, how a rank ended, the
 * fence. */
#include "base/test/testing.h"
#include "daemon/world/exit.h"
#include "daemon/world/fence-rule.h"
#include "daemon/world/plan.h"
#include "daemon/world/watchdog.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define MSEC UINT64_C(1000)
#define SEC UINT64_C(1000000)

static const WatchdogLimits limits = {.floor_usec = 2 * SEC,
                                      .startup_usec = 600 * SEC,
                                      .save_usec = 300 * SEC,
                                      .factor = 10};

/* ---- watchdog ---- */

static uint64_t train(Watchdog *w, uint64_t now, int steps, uint64_t step_usec)
{
    for (int i = 0; i < steps; i++) {
        watchdog_note_stage(w, w->step + 1, STAGE_COMPUTING, now);
        now += step_usec / 2;
        watchdog_note_stage(w, w->step, STAGE_REDUCING, now);
        now += step_usec - step_usec / 2;
    }
    return now;
}

static void test_watchdog_learns_the_pace(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 600 * SEC);
    watchdog_note_stage(&w, 0, STAGE_READY, 5 * SEC);
    assert_true(watchdog_bound_usec(&w, &limits) == USEC_INFINITY);
    assert_false(watchdog_is_hung(&w, &limits, 100000 * SEC));

    uint64_t now = train(&w, 10 * SEC, 8, 200 * MSEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 2 * SEC); /* 10 x 0.2 s = the floor */
    assert_false(watchdog_is_hung(&w, &limits, now + 2 * SEC));
    assert_true(watchdog_is_hung(&w, &limits, now + 2 * SEC + 1));
    watchdog_note_stage(&w, w.step, STAGE_REDUCING, now); /* in a collective the bound is doubled */
    assert_false(watchdog_is_hung(&w, &limits, now + 4 * SEC));
    assert_true(watchdog_is_hung(&w, &limits, now + 4 * SEC + 1));

    /* Only the derived bound is doubled in a collective, not floor. */
    now = train(&w, now, WATCHDOG_WINDOW, 10 * MSEC);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 3 * SEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 2 * SEC);
}

/* The first steps of a world are bounded by the first steps of the world before. Otherwise a partition in the second
 * step would cost startup_sec, ten minutes. */
/* A standstill is found once, after half of the bound of a rank that computes, whatever the rank does. */
static void test_watchdog_finds_a_standstill(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    watchdog_note_stage(&w, 0, STAGE_READY, 5 * SEC);
    assert_false(watchdog_finds_standstill(&w, &limits, 100000 * SEC));
    (void)train(&w, 5 * SEC, 10, SEC / 5);
    const uint64_t now = w.changed_usec;
    assert_false(watchdog_finds_standstill(&w, &limits, now)); /* the bound is 2 s */
    assert_false(watchdog_finds_standstill(&w, &limits, now + SEC));
    assert_true(watchdog_finds_standstill(&w, &limits, now + SEC + 1));
    assert_false(watchdog_finds_standstill(&w, &limits, now + 3 * SEC));
    watchdog_forgive(&w, 5 * SEC); /* the observer stood still: it is the same standstill */
    assert_false(watchdog_finds_standstill(&w, &limits, now + 9 * SEC));
    watchdog_note_stage(&w, w.step, STAGE_GATHERING, now + 10 * SEC);
    assert_false(watchdog_finds_standstill(&w, &limits, now + 11 * SEC));
    assert_true(watchdog_finds_standstill(&w, &limits, now + 11 * SEC + 1));
}

static void test_watchdog_first_steps(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 1, 4 * SEC);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 600 * SEC); /* the bound of the first step */
    now = train(&w, now, 1, 200 * MSEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 40 * SEC); /* 10 x the longest step */
    assert_int_equal(watchdog_first_usec(&w), 0);
    now = train(&w, now, 2, 200 * MSEC);
    assert_int_equal(watchdog_first_usec(&w), 4 * SEC);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 4 * SEC); /* 2 x 2 s in a collective */

    watchdog_start(&w, 4 * SEC, now); /* the next generation */
    watchdog_note_stage(&w, 5, STAGE_STARTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 600 * SEC);
    watchdog_note_stage(&w, 5, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 40 * SEC);
    watchdog_start(&w, 100 * SEC, now); /* startup_sec limits the derived bound */
    watchdog_note_stage(&w, 5, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 600 * SEC);
}

static void test_watchdog_follows_slow_steps(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 20, 30 * SEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_LOADING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 300 * SEC);

    /* One slow step among fast ones does not change the bound, which follows the median. */
    watchdog_start(&w, 0, SEC);
    now = train(&w, 10 * SEC, 9, SEC);
    now = train(&w, now, 1, 100 * SEC);
    now = train(&w, now, 5, SEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 10 * SEC);
}

/* The last WATCHDOG_WINDOW steps count, each once; older steps do not. */
static void test_watchdog_looks_at_a_window(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 2 * WATCHDOG_WINDOW + 1, SEC);
    now = train(&w, now, WATCHDOG_WINDOW / 2 + 1, 9 * SEC);
    now = train(&w, now, WATCHDOG_WINDOW / 2, SEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 90 * SEC);
    now = train(&w, now, 1, SEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 10 * SEC);
}

static void test_watchdog_times_rank0_by_finished_steps(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = 10 * SEC;
    for (int step = 1; step <= 6; step++) {
        watchdog_note_stage(&w, step, STAGE_COMPUTING, now);
        now += SEC;
        watchdog_note_step(&w, step, now);
    }
    assert_int_equal(watchdog_bound_usec(&w, &limits), 10 * SEC);
    assert_false(watchdog_is_hung(&w, &limits, now + 10 * SEC));
    assert_true(watchdog_is_hung(&w, &limits, now + 10 * SEC + 1));
}

/* A step of rank 0 counts once, though stages name that step, too. The first step of rank 0 is not timed, since its
 * beginning is unknown. */
static void test_watchdog_counts_rank0s_steps_once(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = 10 * SEC;
    watchdog_note_stage(&w, 41, STAGE_COMPUTING, now);
    watchdog_note_step(&w, 41, now += 20 * SEC);
    for (int step = 42; step <= 44; step++) {
        assert_int_equal(watchdog_first_usec(&w), 0);
        watchdog_note_stage(&w, step, STAGE_COMPUTING, now + 400 * MSEC);
        watchdog_note_step(&w, step, now += SEC);
    }
    assert_int_equal(watchdog_first_usec(&w), SEC);
    watchdog_note_stage(&w, 45, STAGE_COMPUTING, now + 400 * MSEC);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 10 * SEC);
}

/* The time of joining does not count as a step: ranks may wait for the last rank as long as a start takes. */
static void test_watchdog_times_no_step_by_the_joining_before_it(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    watchdog_note_stage(&w, 40, STAGE_READY, 2 * SEC);
    watchdog_note_stage(&w, 41, STAGE_JOINING, 3 * SEC);
    uint64_t now = train(&w, 200 * SEC, WATCHDOG_STEPS_MIN + 1, SEC);
    assert_int_equal(watchdog_first_usec(&w), SEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 10 * SEC);
}

static void test_watchdog_same_words_are_no_progress(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 10, 200 * MSEC);
    watchdog_note_stage(&w, w.step, STAGE_GATHERING, now);
    for (int i = 0; i < 100; i++)
        watchdog_note_stage(&w, w.step, STAGE_GATHERING, now + (uint64_t)i * 100 * MSEC);
    assert_true(watchdog_is_hung(&w, &limits, now + 5 * SEC));
}

/* A store does not answer for two minutes: a rank that waits for data, and each rank that waits for that rank,
 * report their wait twice a second and have not hung. A rank that is stopped meanwhile is found as fast as ever. */
static void test_watchdog_lets_ranks_wait_for_data(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 10, 200 * MSEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_REDUCING, now);
    for (int i = 0; i < 240; i++, now += 500 * MSEC) {
        assert_false(watchdog_is_hung(&w, &limits, now));
        watchdog_note_stage(&w, w.step, STAGE_REDUCING, now);
        watchdog_note_wait(&w, (uint64_t)i * 500 * MSEC, now);
    }
    now -= 500 * MSEC;
    watchdog_note_wait(&w, 239 * 500 * MSEC, now + SEC); /* the same wait again is not progress */
    assert_false(watchdog_is_hung(&w, &limits, now + 4 * SEC));
    assert_true(watchdog_is_hung(&w, &limits, now + 4 * SEC + 1));

    watchdog_note_stage(&w, w.step, STAGE_LOADING, now); /* the rank is stopped after this stage */
    assert_true(watchdog_is_hung(&w, &limits, now + 2 * SEC + 1));
    watchdog_note_stage(&w, w.step, STAGE_COMPUTING, now); /* a new wait counts from 0 */
    watchdog_note_wait(&w, 0, now);
    watchdog_note_wait(&w, 500 * MSEC, now + 2 * SEC);
    assert_false(watchdog_is_hung(&w, &limits, now + 3 * SEC));
}

static void test_watchdog_forgives_its_own_sleep(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 10, 200 * MSEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    watchdog_forgive(&w, 60 * SEC);
    assert_false(watchdog_is_hung(&w, &limits, now + 61 * SEC));
    assert_true(watchdog_is_hung(&w, &limits, now + 63 * SEC));
}

/* Time that is forgiven before the first step does not change the time of any step. */
static void test_watchdog_forgives_before_the_first_step(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    watchdog_forgive(&w, 60 * SEC);
    (void)train(&w, 1000 * SEC, WATCHDOG_STEPS_MIN + 1, SEC);
    assert_int_equal(watchdog_first_usec(&w), SEC);
}

/* The median counts each measured step once, and no other step. */
static void test_watchdog_takes_the_median_of_what_was(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 1, 3 * SEC);
    now = train(&w, now, 1, SEC);
    now = train(&w, now, 1, 2 * SEC);
    watchdog_note_stage(&w, w.step + 1, STAGE_COMPUTING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 20 * SEC);
    assert_int_equal(watchdog_first_usec(&w), 3 * SEC);
    (void)train(&w, now + 100 * SEC, 1, SEC); /* this step is not among the first */
    assert_int_equal(watchdog_first_usec(&w), 3 * SEC);
}

/* Step 0 is a step like any other: step 1 is timed from the end of step 0, and only finished steps are timed. */
static void test_watchdog_times_from_step_0(_unused_ void **state)
{
    Watchdog w;
    uint64_t now = 10 * SEC;
    watchdog_start(&w, 0, SEC);
    watchdog_note_step(&w, 0, now);
    for (int step = 1; step <= WATCHDOG_STEPS_MIN; step++) {
        assert_int_equal(watchdog_first_usec(&w), 0);
        watchdog_note_stage(&w, step, STAGE_COMPUTING, now + 400 * MSEC);
        watchdog_note_step(&w, step, now += SEC);
    }
    assert_int_equal(watchdog_first_usec(&w), SEC);
}

static void test_watchdog_saving_has_its_own_bound(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 10, 200 * MSEC);
    watchdog_note_stage(&w, w.step, STAGE_SAVING, now);
    assert_false(watchdog_is_hung(&w, &limits, now + 300 * SEC));
    assert_true(watchdog_is_hung(&w, &limits, now + 300 * SEC + 1));
}

/* The stages of joining and restoring are bounded by startup_sec, whatever the time of a step. */
static void test_watchdog_joining_has_the_time_of_a_start(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = train(&w, 10 * SEC, 10, 200 * MSEC);
    watchdog_note_stage(&w, w.step, STAGE_JOINING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 600 * SEC);
    watchdog_note_stage(&w, w.step, STAGE_RESTORING, now);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 600 * SEC);
}

static void test_watchdog_same_step_is_no_progress(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    uint64_t now = 10 * SEC;
    watchdog_note_stage(&w, 1, STAGE_COMPUTING, now);
    for (int step = 1; step <= 6; step++)
        watchdog_note_step(&w, step, now += SEC);
    for (int i = 1; i <= 10; i++)
        watchdog_note_step(&w, 6, now + (uint64_t)i * SEC);
    assert_true(watchdog_is_hung(&w, &limits, now + 10 * SEC + 1));
}

/* Several steps between two messages count as so many steps, since messages may be missed. Time in which the node
 * itself stood still does not count. */
static void test_watchdog_counts_a_step_as_one(_unused_ void **state)
{
    Watchdog w;
    watchdog_start(&w, 0, SEC);
    watchdog_note_stage(&w, 1, STAGE_COMPUTING, 10 * SEC);
    watchdog_note_step(&w, 1, 11 * SEC);
    watchdog_note_step(&w, 5, 15 * SEC); /* this message counts as 4 steps */
    watchdog_forgive(&w, 60 * SEC);
    watchdog_note_step(&w, 6, 76 * SEC);
    watchdog_note_step(&w, 7, 77 * SEC);
    assert_int_equal(watchdog_first_usec(&w), SEC);
    assert_int_equal(watchdog_bound_usec(&w, &limits), 10 * SEC);
}

/* ---- plan ---- */

static void test_plan_gives_ranks_in_slot_order(_unused_ void **state)
{
    WorldRun runs[] = {{.node = "a", .incarnation = 1, .slots = 0x5},
                       {.node = "b", .incarnation = 2, .slots = 0xa},
                       {.node = "a", .incarnation = 1, .slots = 0x2}};
    WorldRecord world = {.generation = 3, .size = 5, .runs = runs, .n_runs = 3};
    PlannedRank local_ranks[RECORD_SLOTS_MAX];
    size_t n;
    Error err = ERROR_INIT;
    assert_int_equal(plan_ranks(&world, "a", 1, 8, local_ranks, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_int_equal(local_ranks[0].slot, 0);
    assert_int_equal(local_ranks[1].slot, 2);
    assert_int_equal(local_ranks[1].rank, 1);
    assert_int_equal(local_ranks[2].slot, 1);
    assert_int_equal(local_ranks[2].rank, 4);
    assert_int_equal(plan_ranks(&world, "b", 2, 8, local_ranks, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(local_ranks[0].rank, 2);
    assert_int_equal(plan_ranks(&world, "c", 1, 8, local_ranks, &n, &err), 0);
    assert_int_equal(n, 0);
    /* The world names an incarnation of node a from before a restart. */
    assert_int_equal(plan_ranks(&world, "a", 9, 8, local_ranks, &n, &err), 0);
    assert_int_equal(n, 0);
    (void)snprintf(runs[1].node, sizeof(runs[1].node), "ab"); /* "ab" is not "a" */
    runs[1].incarnation = 1;
    assert_int_equal(plan_ranks(&world, "a", 1, 8, local_ranks, &n, &err), 0);
    assert_int_equal(n, 3);
}

static void test_plan_refuses_impossible_worlds(_unused_ void **state)
{
    WorldRun runs[] = {{.node = "a", .incarnation = 1, .slots = 0x4},
                       {.node = "a", .incarnation = 1, .slots = 0x4}};
    WorldRecord world = {.generation = 3, .size = 1, .runs = runs, .n_runs = 1};
    PlannedRank local_ranks[RECORD_SLOTS_MAX];
    size_t n;
    Error err = ERROR_INIT;
    assert_int_equal(plan_ranks(&world, "a", 1, 2, local_ranks, &n, &err), -EINVAL);
    assert_non_null(strstr(err.text, "slot 2, which does not exist"));
    world.n_runs = world.size = 2;
    assert_int_equal(plan_ranks(&world, "a", 1, 8, local_ranks, &n, &err), -EINVAL);
    assert_non_null(strstr(err.text, "is taken"));
    world.n_runs = 1;
    assert_int_equal(plan_ranks(&world, "a", 1, 8, local_ranks, &n, &err), -EINVAL);
    assert_non_null(strstr(err.text, "size is 2"));
    runs[0].slots = 0x7;
    assert_int_equal(plan_ranks(&world, "a", 1, 8, local_ranks, &n, &err), -EINVAL);
    assert_non_null(strstr(err.text, "slots for 3 ranks"));
}

/* ---- exits ---- */

static void test_exit_is_judged(_unused_ void **state)
{
    const LastWords none = {0}, finished = {.done = true, .text = "finished"},
                    left = {.done = true, .text = "left"},
                    error = {.error = true, .exit_code = 84, .text = "loss is nan"};
    ExitVerdict v = exit_judge(CLD_EXITED, 0, &finished, "bye", NULL);
    assert_int_equal(v.code, 0);
    assert_true(v.finished && !v.left);
    v = exit_judge(CLD_EXITED, 0, &left, "bye", NULL);
    assert_true(v.left && !v.finished);
    v = exit_judge(CLD_EXITED, 0, &none, "bye", NULL); /* a library's exit(0) is not a success */
    assert_int_equal(v.code, 75);
    assert_string_equal(v.text, "exited 0 without having said that it was done");
    assert_false(v.finished || v.left || v.hung);
    /* The reason for a kill does not count if the rank ended by itself. */
    v = exit_judge(CLD_EXITED, 82, &none, "shard 3 is bad", "it lingers");
    assert_string_equal(v.text, "shard 3 is bad");
    v = exit_judge(CLD_KILLED, SIGRTMIN + 3, &none, "", NULL);
    assert_string_equal(v.text, "killed by SIGRT");
    v = exit_judge(CLD_EXITED, 82, &none, "shard 3 is bad", NULL);
    assert_int_equal(v.code, 82);
    assert_string_equal(v.text, "shard 3 is bad");
    v = exit_judge(CLD_EXITED, 82, &none, "", NULL);
    assert_string_equal(v.text, "exited 82 (data-corrupt) without a word");
    v = exit_judge(CLD_KILLED, SIGKILL, &none,
                   "2026-11-21T17:05:39.289Z info sdtrainer: indexing file:///data", NULL);
    assert_string_equal(v.text, "killed by SIGKILL");
    static const char *const went_on[] = {
        "2026-11-21T17:05:39.289Z error sdtrainer: the checkpoint of step 95 failed, training goes "
        "on: "
        "cannot write file:///c/moments/c000000.bin: No space left on device STEP=95",
        "2026-11-21T17:05:39.289Z warning sdtrainer: old checkpoints stay for now: no answer",
        "2026-11-21T17:05:39.289Z debug sdtrainer: asks again"};
    for (size_t i = 0; i < ELEMENTSOF(went_on); i++) {
        v = exit_judge(CLD_KILLED, SIGKILL, &none, went_on[i], NULL);
        assert_string_equal(v.text, "killed by SIGKILL");
    }
    v = exit_judge(CLD_EXITED, 83, &none,
                   "2026-11-21T17:05:39.289Z error sdtrainer: step 95 could not be saved", NULL);
    assert_non_null(strstr(v.text, "step 95 could not be saved"));
    v = exit_judge(CLD_KILLED, SIGKILL, &none,
                   "2026-11-21T17:05:39.289Z error sdtrainer: the checkpoint of step 95 failed, "
                   "training goes on: "
                   "/ck/g4: No space left on device STEP=95",
                   NULL);
    assert_string_equal(v.text, "killed by SIGKILL");
    v = exit_judge(CLD_EXITED, 78, &none,
                   "2026-11-21T17:05:39.289Z warning sdtrainer: attempt 2 failed: 503", NULL);
    assert_string_equal(v.text, "exited 78 (never-retry) without a word");
    v = exit_judge(CLD_EXITED, 78, &none,
                   "2026-11-21T17:05:39.289Z error sdtrainer: config: no such key", NULL);
    assert_string_equal(v.text, "2026-11-21T17:05:39.289Z error sdtrainer: config: no such key");
    v = exit_judge(CLD_KILLED, SIGKILL, &none, "x, training goes on: y",
                   NULL); /* the line is not of sdtrainer's log */
    assert_string_equal(v.text, "x, training goes on: y");
    v = exit_judge(CLD_DUMPED, SIGABRT, &none, "", NULL);
    assert_int_equal(v.code, -SIGABRT);
    assert_string_equal(v.text, "killed by SIGABRT, core dumped");
    v = exit_judge(CLD_KILLED, SIGKILL, &none, "x", "generation 4 replaces it");
    assert_string_equal(v.text, "generation 4 replaces it");
    /* The trainer sent `error` before it was killed. */
    v = exit_judge(CLD_KILLED, SIGKILL, &error, "x", "it lingers");
    assert_int_equal(v.code, 84);
    assert_string_equal(v.text, "loss is nan");
    v = exit_judge(CLD_KILLED, SIGSEGV, &finished, "", NULL); /* a crash after `done` was sent */
    assert_int_equal(v.code, -SIGSEGV);
    assert_false(v.finished);
}

static void test_text_is_made_utf8(_unused_ void **state)
{
    char good[] = "gr\xc3\xbc\xc3\x9f", cut[] = "gr\xc3", bytes[] = "a\xff\xfe z";
    exit_repair_text(good);
    exit_repair_text(cut);
    exit_repair_text(bytes);
    assert_string_equal(good, "gr\xc3\xbc\xc3\x9f");
    assert_string_equal(cut, "gr");
    assert_string_equal(bytes, "a?? z");
}

/* A text that is too long keeps its end, which says what is wrong and is shown as the job's reason. */
static void test_long_words_keep_their_end(_unused_ void **state)
{
    char words[1500], text[EXIT_TEXT_BYTES];
    for (int n = 1; n < 400; n++) {
        char folder[900] = "";
        for (int i = 0; i < n; i++)
            memcpy(folder + 2 * i, "\xc3\xa9", 3);
        (void)snprintf(words, sizeof(words),
                       "/data/%s/shard.00000.mds is truncated: 191366 bytes, index.json says 7",
                       folder);
        exit_copy_text(text, words, "");
        assert_int_equal(strncmp(text, "/data/", 6), 0);
        assert_non_null(
            strstr(text, "/shard.00000.mds is truncated: 191366 bytes, index.json says 7"));
        assert_true(strlen(text) <= 191);
        char repaired[EXIT_TEXT_BYTES];
        memcpy(repaired, text, sizeof(text));
        exit_repair_text(repaired);
        assert_string_equal(repaired, text);
    }
    /* The manifest's folder is kept, since the leader recognises the checkpoint by it. */
    char manifest[300];
    (void)snprintf(manifest, sizeof(manifest), "file:///%0150d/step-15/manifest.json", 1);
    (void)snprintf(words, sizeof(words),
                   "file:///%0150d/step-15/unet/x.safetensors: its hash differs from %0100d", 1, 2);
    exit_copy_text(text, words, manifest);
    *strrchr(manifest, '/') = '\0';
    assert_non_null(strstr(text, manifest));
    exit_copy_text(text, words, "");
    assert_null(strstr(text, manifest));
    memset(words, 'a', sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    exit_copy_text(text, words, ""); /* without a path the end is cut */
    assert_int_equal(strlen(text), EXIT_TEXT_BYTES - 1);
    memset(words, 'a', 254);
    memcpy(words + 254, "\xc3\xa9 b", 5);
    exit_copy_text(text, words, "");
    assert_int_equal(strlen(text), 254); /* the cut is before the é, not inside it */
}

/* ---- fence ---- */

static void test_fence_is_due(_unused_ void **state)
{
    assert_false(fence_is_due(100 * SEC, 99 * SEC, 600 * SEC, 0));
    assert_false(fence_is_due(699 * SEC, 99 * SEC, 600 * SEC, 0));
    assert_true(fence_is_due(699 * SEC + 1, 99 * SEC, 600 * SEC, 0));
    assert_false(fence_is_due(699 * SEC + 1, 99 * SEC, 600 * SEC, 5 * SEC));
    assert_false(fence_is_due(50 * SEC, 99 * SEC, 1, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watchdog_learns_the_pace),
        cmocka_unit_test(test_watchdog_finds_a_standstill),
        cmocka_unit_test(test_watchdog_first_steps),
        cmocka_unit_test(test_watchdog_follows_slow_steps),
        cmocka_unit_test(test_watchdog_looks_at_a_window),
        cmocka_unit_test(test_watchdog_times_rank0_by_finished_steps),
        cmocka_unit_test(test_watchdog_counts_rank0s_steps_once),
        cmocka_unit_test(test_watchdog_times_no_step_by_the_joining_before_it),
        cmocka_unit_test(test_watchdog_same_words_are_no_progress),
        cmocka_unit_test(test_watchdog_lets_ranks_wait_for_data),
        cmocka_unit_test(test_watchdog_forgives_its_own_sleep),
        cmocka_unit_test(test_watchdog_forgives_before_the_first_step),
        cmocka_unit_test(test_watchdog_takes_the_median_of_what_was),
        cmocka_unit_test(test_watchdog_times_from_step_0),
        cmocka_unit_test(test_watchdog_saving_has_its_own_bound),
        cmocka_unit_test(test_watchdog_joining_has_the_time_of_a_start),
        cmocka_unit_test(test_watchdog_same_step_is_no_progress),
        cmocka_unit_test(test_watchdog_counts_a_step_as_one),
        cmocka_unit_test(test_plan_gives_ranks_in_slot_order),
        cmocka_unit_test(test_plan_refuses_impossible_worlds),
        cmocka_unit_test(test_exit_is_judged),
        cmocka_unit_test(test_text_is_made_utf8),
        cmocka_unit_test(test_long_words_keep_their_end),
        cmocka_unit_test(test_fence_is_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
