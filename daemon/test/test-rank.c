/* SPDX-License-Identifier: Apache-2.0 */
/* test-rank.c - what a rank is started with and how it ends, which rank hangs, and the table of slots; on the seams
 * of testing-machine.h. */
#include "base/clock.h"
#include "daemon/test/testing-machine.h"
#include "daemon/world/hang.h"
#include "daemon/world/local-world.h"

#include <string.h>

enum { INCARNATION = 5 };

static Workload w;
static Machine home;
static Etcd etcd;
static SlotGpus gpus;
static bool knows_secrets;
static DaemonConfig config;
static const char submission[] = "0123456789abcdef0123456789abcdef";
static int n_begun;

static void on_start(_unused_ void *userdata, const Rank *rank)
{
    n_begun++;
    assert_ptr_equal(w.slots.of[rank->slot], rank);
}

static int set_up(_unused_ void **state)
{
    const WorkloadNeeds needs = {.config = &config,
                                 .etcd = &etcd,
                                 .ranks = &home.ranks,
                                 .timers = &home.timers,
                                 .knows_secrets = &knows_secrets,
                                 .gpus = &gpus,
                                 .incarnation = INCARNATION};
    WorkloadEvents events = unheard_events;
    events.rank_started = on_start;
    SpecRecord spec = {.spec = (char *)"{}"};
    config = (DaemonConfig){.cluster = "lab",
                            .node = "n1",
                            .log_dir = "/log",
                            .slots = 2,
                            .lease_sec = 10,
                            .hang_floor_sec = 2,
                            .hang_factor = 10,
                            .startup_sec = 30,
                            .save_sec = 40};
    n_begun = 0;
    memory_begin();
    machine_init(&home);
    workload_init(&w, &needs, &events);
    memcpy(spec.submission, submission, sizeof(submission));
    put_spec(&spec);
    return 0;
}

static int tear_down(_unused_ void **state)
{
    workload_clear(&w);
    machines_end();
    return 0;
}

static void decide(int64_t generation)
{
    WorldRun run = {.node = "n1", .incarnation = INCARNATION, .slots = 3};
    WorldRecord world = {.generation = generation, .size = 2, .runs = &run, .n_runs = 1};
    char key[KEY_MAX];
    memcpy(world.submission, submission, sizeof(submission));
    int64_t at = put(key_of("lab", KEY_WORLDS, "a", key), "a world", 0);
    job_set_world(job_get(&w, "a"), &world, at);
}

static void go(int64_t generation)
{
    PhaseRecord record = {.phase = PHASE_RUNNING, .generation = generation, .go = true};
    memcpy(record.submission, submission, sizeof(submission));
    job_set_phase(job_get(&w, "a"), &record);
}

static void make_ready(int64_t generation)
{
    decide(generation);
    for (int slot = 0; slot < 2; slot++)
        says(&home, slot, CHANNEL_HELLO, 0);
    answer_all();
    says(&home, 0, CHANNEL_RENDEZVOUS, 0);
    for (int slot = 0; slot < 2; slot++)
        says(&home, slot, CHANNEL_READY, 0);
    answer_all();
}

static void run_world(int64_t generation)
{
    make_ready(generation);
    go(generation);
}

static RankReport report_of(int rank)
{
    char key[KEY_MAX];
    RanksRecord record;
    answer_all();
    const StoredKey *k = find(key_ranks("lab", "a", 1, "n1", key));
    assert_non_null(k);
    assert_int_equal(ranks_record_decode(key, k->value, strlen(k->value), &record, NULL), 0);
    const RankReport report = record.ranks[rank];
    ranks_record_clear(&record);
    return report;
}

static void say_stage(int slot, int64_t step, TrainStage stage)
{
    writes_message(&home, slot,
                   (ChannelMessage){.type = CHANNEL_STAGE, .step = step, .stage = stage});
    home.trainers[slot].process->events.heard(home.trainers[slot].process->events.userdata);
}

static void look_for_hangs(void) { hang_check(&w, clock_boottime_usec(), 0); }

static void expect_killed(bool first, bool second)
{
    assert_int_equal(home.trainers[0].killed, first);
    assert_int_equal(home.trainers[1].killed, second);
}

/* ---- a rank's life ---- */

static void a_rank_begins_with_what_is_its_own(_unused_ void **state)
{
    ahead_usec = 77 * USEC_PER_SEC;
    decide(1);
    assert_int_equal(n_begun, 2);
    assert_string_equal(newest_log_dir, "/log");
    assert_string_equal(newest_log_job, "a");
    assert_int_equal(newest_log_generation, 1);
    assert_int_equal(newest_log_rank, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(home.trainers[i].n_told[CHANNEL_ALIVE], 1);
        assert_int_equal(home.trainers[i].alive_usec, 10 * USEC_PER_SEC);
        const RankReport report = report_of(i);
        assert_int_equal(report.pid, w.slots.of[i]->process.pid);
        assert_int_equal(report.started_usec, clock_realtime_usec());
        assert_memory_equal(w.slots.submissions[i], submission, sizeof(submission));
    }
}

static void who_cannot_be_started_or_watched_is_told_and_leaves_nothing(_unused_ void **state)
{
    home.cannot_watch = true;
    decide(1);
    expect_killed(true, true);
    assert_int_equal(n_begun, 0);
    home.cannot_watch = false;
    dies(&home, 0);
    dies(&home, 1);
    assert_string_equal(report_of(0).text, "cannot watch rank 0: No space left on device");
    home.cannot_start = true; /* machines_end() checks that the rank's log is freed */
    decide(2);
    answer_all();
    assert_null(w.slots.of[0]);
}

/* A rank that was silent for three quarters of the lease, and was killed by a SIGKILL that the daemon did not send,
 * has hung: its dead-man timer sent the signal. */
static void the_dead_mans_timer_is_known_by_its_time(_unused_ void **state)
{
    run_world(1);
    home.trainers[0].leaves = true;
    pass(7500 * USEC_PER_MSEC);
    home.trainers[0].status = home.trainers[1].status = -SIGKILL;
    dies(&home, 0);
    assert_true(home.trainers[0].deafened);
    assert_false(report_of(0).hung);
    pass(1);
    dies(&home, 1);
    assert_true(report_of(1).hung);
    assert_non_null(strstr(report_of(1).text, "stood still for 7.5 s"));
    workload_send_alive(&w); /* sends nothing to a rank that has ended */
    assert_int_equal(home.trainers[0].n_told[CHANNEL_ALIVE], 1);
}

static void another_end_after_a_silence_is_none_of_the_timers(_unused_ void **state)
{
    run_world(1);
    pass(8 * USEC_PER_SEC);
    home.trainers[0].status = 82;
    dies(&home, 0);
    assert_false(report_of(0).hung);
    rank_kill(w.slots.of[1], "the test says so");
    dies(&home, 1);
    assert_false(report_of(1).hung);
    assert_string_equal(report_of(1).text, "the test says so");
}

static void who_does_not_take_what_it_is_told_is_killed(_unused_ void **state)
{
    make_ready(1);
    home.trainers[0].deaf = home.trainers[1].hung_up = true;
    go(1);
    expect_killed(true, false); /* rank 1 has closed its channel: its end follows */
    dies(&home, 0);
    assert_non_null(
        strstr(report_of(0).text, "it does not take what it is told (go): cannot send"));
    hangs_up(&home, 1);
    pass(RANK_LAST_WORDS_MSEC * USEC_PER_MSEC);
    expect_killed(true, true);
    dies(&home, 1);
    assert_string_equal(report_of(1).text, "it said that it would exit, and did not");
}

/* A rank's last line is read from the pipe at its end, and only the first reason to kill a rank is reported. */
static void the_first_reason_and_the_last_line_are_told(_unused_ void **state)
{
    run_world(1);
    prints(&home, 0, "the last cry");
    home.trainers[0].status = 70;
    home.trainers[0].leaves = true;
    dies(&home, 0);
    assert_string_equal(report_of(0).text, "the last cry");
    rank_kill(w.slots.of[0], "it has ended");
    assert_false(w.slots.of[0]->killing);
    slots_kill_all(&w.slots, "100% first");
    rank_kill(w.slots.of[1], "second");
    dies(&home, 1);
    assert_string_equal(report_of(1).text, "100% first");
}

/* slots_end() kills all ranks, and waits for each rank except those that have survived SIGKILL. */
static void the_end_of_all_waits_for_who_can_end(_unused_ void **state)
{
    run_world(1);
    rank_kill(w.slots.of[0], "the test says so");
    pass(RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC);
    assert_int_equal(w.slots.lost, 1);
    assert_int_equal(slots_busy(&w.slots), 3);
    assert_true(slots_have_living(&w.slots));
    slots_end(&w.slots);
    expect_killed(true, true);
    assert_int_equal(home.n_awaited, 1);
    assert_true(!w.slots.of[0] && !w.slots.of[1] && w.slots.lost == 1);
    w.slots.lost = 0;
}

/* ---- hangs ---- */

static void who_hangs_is_reported_and_killed(_unused_ void **state)
{
    run_world(1);
    say_stage(0, 7, STAGE_COMPUTING);
    say_stage(1, 7, STAGE_COMPUTING);
    pass(30 * USEC_PER_SEC);
    look_for_hangs();
    expect_killed(false, false);
    pass(1);
    look_for_hangs();
    expect_killed(true, true);
    for (int i = 0; i < 2; i++) {
        const RankReport report = report_of(i); /* reported before the rank's end */
        assert_true(report.hung && report.state != RANK_EXITED);
        assert_int_equal(report.step, 7);
        assert_int_equal(report.stage, STAGE_COMPUTING);
    }
    dies(&home, 0);
    assert_string_equal(report_of(0).text, "no progress since step 7, computing");
}

static void expect_hangs(int64_t step0, TrainStage stage0, int64_t step1, TrainStage stage1,
                         bool first, bool second)
{
    run_world(1);
    say_stage(0, step0, stage0);
    say_stage(1, step1, stage1);
    pass(31 * USEC_PER_SEC);
    look_for_hangs();
    expect_killed(first, second);
}

static void only_who_is_furthest_behind_hangs(_unused_ void **state)
{
    expect_hangs(7, STAGE_REDUCING, 7, STAGE_COMPUTING, false, true);
    look_for_hangs(); /* a rank that is being killed excuses no other rank */
    expect_killed(true, true);
}

static void a_step_is_further_than_any_stage(_unused_ void **state)
{
    expect_hangs(8, STAGE_LOADING, 7, STAGE_GATHERING, false, true);
}

static void nobody_waits_for_who_has_ended(_unused_ void **state)
{
    run_world(1);
    say_stage(0, 7, STAGE_COMPUTING);
    say_stage(1, 6, STAGE_COMPUTING);
    home.trainers[1].leaves = true;
    dies(&home, 1);
    pass(31 * USEC_PER_SEC);
    look_for_hangs();
    expect_killed(true, false);
}

static void nobody_waits_for_who_is_ready(_unused_ void **state)
{
    expect_hangs(7, STAGE_COMPUTING, 0, STAGE_READY, true, false);
}

static void what_the_node_stood_still_is_forgiven(_unused_ void **state)
{
    run_world(1);
    say_stage(0, 7, STAGE_COMPUTING);
    say_stage(1, 7, STAGE_COMPUTING);
    pass(32 * USEC_PER_SEC);
    hang_check(&w, clock_boottime_usec(), 5 * USEC_PER_SEC);
    look_for_hangs();
    expect_killed(false, false);
    pass(4 * USEC_PER_SEC);
    look_for_hangs();
    expect_killed(true, true);
}

static void a_lost_rank_of_a_world_that_is_gone_is_no_matter(_unused_ void **state)
{
    run_world(1);
    decide(2);
    dies(&home, 1);
    pass(RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC);
    answer_all();
    workload_note_node_written(&w);
    answer_all();
    assert_null(w.slots.of[0]->local);
    pass(20 * USEC_PER_SEC);
    look_for_hangs();
    workload_send_alive(&w);
    dies(&home, 0);
    assert_int_equal(w.slots.lost, 0);
    assert_int_equal(report_of(0).exit_code, -SIGKILL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_rank_begins_with_what_is_its_own),
        CASE(who_cannot_be_started_or_watched_is_told_and_leaves_nothing),
        CASE(the_dead_mans_timer_is_known_by_its_time),
        CASE(another_end_after_a_silence_is_none_of_the_timers),
        CASE(who_does_not_take_what_it_is_told_is_killed),
        CASE(the_first_reason_and_the_last_line_are_told),
        CASE(the_end_of_all_waits_for_who_can_end),
        CASE(who_hangs_is_reported_and_killed),
        CASE(only_who_is_furthest_behind_hangs),
        CASE(a_step_is_further_than_any_stage),
        CASE(nobody_waits_for_who_has_ended),
        CASE(nobody_waits_for_who_is_ready),
        CASE(what_the_node_stood_still_is_forgiven),
        CASE(a_lost_rank_of_a_world_that_is_gone_is_no_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
