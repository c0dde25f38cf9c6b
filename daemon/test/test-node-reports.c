/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-reports.c - what a node reports about its ranks: each field at each stage of a rank, and all kinds of
 * ends. The leader judges failures only by these reports. */
#include "base/clock.h"
#include "daemon/test/testing-node.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <string.h>

static RankReport rank_report(int64_t generation, size_t i)
{
    RanksRecord record = report_of(&n1, "a", generation);
    assert_true(i < record.n_ranks);
    const RankReport report = record.ranks[i];
    ranks_record_clear(&record);
    return report;
}

static void hear(int slot, ChannelMessage m)
{
    writes_message(&n1.machine, slot, m);
    const FakeTrainer *t = trainer_in(&n1.machine, slot);
    t->process->events.heard(t->process->events.userdata);
}

static void say_stage(int slot, int64_t step, TrainStage stage)
{
    hear(slot, (ChannelMessage){.type = CHANNEL_STAGE, .step = step, .stage = stage});
}

static void ends(int slot, int status)
{
    n1.machine.trainers[slot].status = status;
    dies(&n1.machine, slot);
    settle();
}

/* Decides, as the leader, a world on these slots of n1 that resumes at that step. */
static void decide_at(int64_t generation, uint64_t slots, int64_t step)
{
    char key[KEY_MAX];
    WorldRun run = {.node = "n1", .incarnation = n1.incarnation, .slots = slots};
    WorldRecord world = {.generation = generation,
                         .size = __builtin_popcountll(slots),
                         .runs = &run,
                         .n_runs = 1,
                         .resume = {.step = step, .uri = "file:///c/40"}};
    memcpy(world.submission, submission, sizeof(submission));
    _cleanup_free_ char *text = world_record_encode(&world, NULL);
    (void)put(key_of("lab", KEY_WORLDS, "a", key), text, 0);
    settle();
}

/* Lets time pass while etcd answers. */
static void pass_in_contact(uint64_t sec)
{
    for (uint64_t i = 0; i < sec; i++) {
        pass(USEC_PER_SEC);
        renew(&n1.etcd);
        settle();
    }
}

/* ---- stages of a rank ---- */

/* The leader finds the parts of a recovery, and slow ranks, by these times; it judges hangs by step and stage. */
static void each_stage_of_a_life_is_reported_with_its_time(_unused_ void **state)
{
    join(&n1);
    ahead_usec = 500 * USEC_PER_SEC;
    decide_at(3, 4 | 2, 40);
    const uint64_t started_usec = clock_realtime_usec();
    RankReport report = rank_report(3, 1);
    assert_int_equal(report.slot, 2);
    assert_int_equal(report.rank, 1);
    assert_int_equal(report.pid, n1.machine.trainers[2].process->pid);
    assert_int_equal(report.state, RANK_STARTING);
    assert_int_equal(report.step, 40);
    assert_int_equal(report.stage, STAGE_STARTING);
    assert_int_equal(report.started_usec, started_usec);
    assert_int_equal(report.at_usec, started_usec);
    assert_true(report.ready_usec == 0 && report.joined_usec == 0);

    pass(USEC_PER_SEC);
    says(&n1.machine, 1, CHANNEL_HELLO, 0);
    says(&n1.machine, 2, CHANNEL_HELLO, 0);
    settle();
    assert_int_equal(n1.machine.trainers[2].assigned.step, 40);
    assert_string_equal(n1.machine.trainers[2].assigned.assign.resume_uri, "file:///c/40");
    pass(USEC_PER_SEC);
    says(&n1.machine, 2, CHANNEL_READY, 41);
    settle();
    report = rank_report(3, 1);
    assert_int_equal(report.state, RANK_READY);
    assert_int_equal(report.step, 41);
    assert_int_equal(report.stage, STAGE_READY);
    assert_int_equal(report.started_usec, started_usec);
    assert_int_equal(report.ready_usec, started_usec + 2 * USEC_PER_SEC);
    assert_int_equal(report.at_usec, report.ready_usec);

    pass(USEC_PER_SEC);
    say_stage(2, 42, STAGE_LOADING);
    pass(USEC_PER_SEC);
    say_stage(2, 42, STAGE_REDUCING);
    pass(USEC_PER_SEC);
    say_stage(2, 43, STAGE_LOADING);
    settle();
    report = rank_report(3, 1);
    assert_int_equal(report.state, RANK_RUNNING);
    assert_int_equal(report.step, 43);
    assert_int_equal(report.stage, STAGE_LOADING);
    assert_int_equal(report.joined_usec, started_usec + 3 * USEC_PER_SEC);
    assert_int_equal(report.at_usec, started_usec + 5 * USEC_PER_SEC);
    assert_int_equal(report.ready_usec, started_usec + 2 * USEC_PER_SEC);
    assert_int_equal(rank_report(3, 0).state, RANK_STARTING); /* the other rank is unchanged */
    assert_int_equal(rank_report(3, 0).step, 40);
}

/* A rank may finish its first step before it has sent any stage. */
static void a_first_step_without_a_word_before_is_a_life_too(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    pass(USEC_PER_SEC);
    says(&n1.machine, 0, CHANNEL_STEP, 7);
    settle();
    const RankReport report = rank_report(1, 0);
    assert_int_equal(report.state, RANK_RUNNING);
    assert_int_equal(report.joined_usec, clock_realtime_usec());
    assert_int_equal(report.step, 7);
    RanksRecord record = report_of(&n1, "a", 1);
    assert_int_equal(record.first_step, 7);
    assert_int_equal(record.first_step_usec, clock_realtime_usec());
    ranks_record_clear(&record);
    pass(USEC_PER_SEC);
    says(&n1.machine, 0, CHANNEL_STEP, 8);
    settle();
    record = report_of(&n1, "a", 1);
    assert_int_equal(record.first_step, 7);
    assert_int_equal(record.first_step_usec, clock_realtime_usec() - USEC_PER_SEC);
    ranks_record_clear(&record);
}

/* A message that no trainer may send is passed over, and the message that follows is read. */
static void words_that_are_none_change_nothing(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    writes(&n1.machine, 0, CHANNEL_TYPES, 5);
    writes(&n1.machine, 0, CHANNEL_GO, 5); /* only the daemon sends this type */
    writes(&n1.machine, 0, CHANNEL_TYPES, 5);
    says(&n1.machine, 0, CHANNEL_STEP, 6);
    settle();
    assert_int_equal(rank_report(1, 0).state, RANK_RUNNING);
    assert_int_equal(rank_report(1, 0).step, 6);
    assert_killed(&n1, 0, false);
}

/* A rank is told at its start how long it may run. Otherwise it would run without a bound until the first regular
 * message. */
static void a_rank_is_told_at_its_start_how_long_it_may_run(_unused_ void **state)
{
    join(&n1);
    (void)decide("a", 1, 1, 0);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_ALIVE), 1);
    assert_int_equal(n1.machine.trainers[0].alive_usec, 10 * USEC_PER_SEC);
}

/* etcd may grant a longer lease than was requested; a rank must not end before its node's lease. */
static void ranks_may_run_as_long_as_the_lease_that_was_granted(_unused_ void **state)
{
    join(&n1);
    lasts(&n1.etcd, 40);
    (void)decide("a", 1, 1, 0);
    settle();
    assert_int_equal(n1.machine.trainers[0].alive_usec, 40 * USEC_PER_SEC);
    pass(3 * USEC_PER_SEC); /* until the timer that was set for the shorter lease is due */
    renew(&n1.etcd);
    const int before = told(&n1, 0, CHANNEL_ALIVE);
    pass(20 * USEC_PER_SEC);
    assert_int_equal(told(&n1, 0, CHANNEL_ALIVE), before + 2);
    assert_int_equal(n1.machine.trainers[0].alive_usec, 40 * USEC_PER_SEC);
}

/* A report names the incarnation of its node, and its world. */
static void a_report_says_whose_it_is(_unused_ void **state)
{
    join(&n1);
    (void)decide("a", 3, 1, 0);
    const int64_t at = decide("a", 4, 6, 0);
    settle();
    dies(&n1.machine, 0);
    settle();
    RanksRecord record = report_of(&n1, "a", 4);
    assert_int_equal(record.incarnation, n1.incarnation);
    assert_int_equal(record.generation, 4);
    assert_int_equal(record.world_revision, at);
    assert_int_equal(record.n_ranks, 2);
    assert_true(record.first_step == 0 && record.first_step_usec == 0);
    assert_true(!record.left && !record.finished);
    ranks_record_clear(&record);
}

static void a_rank_that_never_started_says_so(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    (void)decide("a", 2, 3, 0);
    settle();
    assert_int_equal(rank_report(2, 1).state, RANK_STARTING);
    pass(USEC_PER_SEC);
    set_phase("a", (PhaseRecord){.phase = PHASE_STOPPED, .generation = 2});
    settle();
    const RankReport report = rank_report(2, 0);
    assert_int_equal(report.state, RANK_EXITED);
    assert_int_equal(report.exit_code, -SIGKILL);
    assert_true(report.killed && !report.hung);
    assert_int_equal(report.pid, 0);
    assert_int_equal(report.at_usec, clock_realtime_usec());
    assert_string_equal(report.text, "never started: the job is stopped");
    assert_int_equal(rank_report(2, 1).state, RANK_STARTING); /* the killed rank still lives */
    assert_killed(&n1, 1, true);
}

/* The program is notified of each start, step, save and end of a rank, and counts them in its metrics. */
static void the_program_hears_of_starts_steps_saves_and_ends(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    assert_int_equal(n1.n_ranks_started, 2);
    says(&n1.machine, 0, CHANNEL_STEP, 1);
    says(&n1.machine, 0, CHANNEL_STEP, 2);
    says(&n1.machine, 0, CHANNEL_SAVED, 2);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(n1.n_steps, 2);
    assert_int_equal(n1.n_saves, 1);
    assert_int_equal(n1.n_committed, 1);
    ends(1, 70);
    assert_int_equal(n1.n_ranks_ended, 1);
    assert_int_equal(n1.last_end.code, 70);
    remove_job("a");
    settle();
    ends(0, -SIGKILL);
    assert_int_equal(n1.n_ranks_ended, 2);
    assert_string_equal(n1.last_end.text, "the job was removed");
    assert_string_equal(n1.forgotten, "a");
    const int before = n1.n_ticks;
    pass(USEC_PER_SEC);
    assert_int_equal(n1.n_ticks, before + 5);
}

/* ---- starts that fail ---- */

static void a_rank_that_cannot_be_started_is_reported(_unused_ void **state)
{
    join(&n1);
    n1.machine.cannot_start = true;
    (void)decide("a", 1, 3, 0);
    settle();
    assert_int_equal(n1.machine.n_started, 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rank_report(1, i).state, RANK_EXITED);
        assert_int_equal(rank_report(1, i).exit_code, EXIT_RETRY);
        assert_string_equal(rank_report(1, i).text, "cannot start the trainer");
        assert_int_equal(rank_report(1, i).pid, 0);
    }
    assert_int_equal(node_record(&n1).generation, 0); /* no world runs */
    n1.machine.cannot_start = false;
    run_world("a", 2, 3, 0);
    assert_int_equal(n1.machine.n_started, 2);
}

/* A rank that cannot be watched is killed, and reported once. Its slot is free when the rank is dead. */
static void a_rank_whose_end_could_not_be_seen_is_killed(_unused_ void **state)
{
    join(&n1);
    n1.machine.cannot_watch = true;
    (void)decide("a", 1, 1, 0);
    settle();
    assert_killed(&n1, 0, true);
    assert_int_equal(rank_report(1, 0).state, RANK_EXITED);
    assert_int_equal(rank_report(1, 0).exit_code, EXIT_RETRY);
    assert_non_null(strstr(rank_report(1, 0).text, "cannot watch rank 0"));
    n1.machine.cannot_watch = false;
    (void)decide("a", 2, 1, 0);
    settle();
    assert_int_equal(n1.machine.n_started, 1);
    dies(&n1.machine, 0);
    settle();
    assert_int_equal(rank_report(1, 0).exit_code, EXIT_RETRY);
    assert_int_equal(n1.machine.n_started, 2);
    assert_true(killed_of(&n1, "a", 2) != 0);
}

/* ---- hangs ---- */

/* A rank that hangs before it has named a step is reported at the step of its world. */
static void a_rank_that_hangs_at_its_start_is_at_the_step_of_its_world(_unused_ void **state)
{
    n1.config.startup_sec = 20;
    join(&n1);
    decide_at(1, 1, 40);
    pass_in_contact(21);
    assert_killed(&n1, 0, true);
    RankReport report = rank_report(1, 0);
    assert_true(report.hung && report.state == RANK_STARTING);
    assert_int_equal(report.step, 40);
    assert_int_equal(report.stage, STAGE_STARTING);
    ends(0, -SIGKILL);
    report = rank_report(1, 0);
    assert_true(report.hung && !report.killed);
    assert_int_equal(report.state, RANK_EXITED);
    assert_int_equal(report.step, 40);
    assert_non_null(strstr(report.text, "no progress since step 40, starting"));
}

static void a_rank_that_hangs_in_a_step_is_at_that_step(_unused_ void **state)
{
    n1.config.startup_sec = 20;
    join(&n1);
    run_world("a", 1, 1, 0);
    say_stage(0, 5, STAGE_LOADING);
    say_stage(0, 6, STAGE_GATHERING);
    pass_in_contact(21);
    const RankReport report = rank_report(1, 0);
    assert_true(report.hung);
    assert_int_equal(report.step, 6);
    assert_int_equal(report.stage, STAGE_GATHERING);
}

static void say_stages(TrainStage stage0, TrainStage stage1)
{
    n1.config.startup_sec = 20;
    join(&n1);
    run_world("a", 1, 3, 0);
    say_stage(0, 5, stage0);
    say_stage(1, 5, stage1);
}

/* When two ranks are at the same step, the rank that still computes hangs; the other rank only waits for it. */
static void of_one_step_who_is_at_an_earlier_stage_hangs(_unused_ void **state)
{
    say_stages(STAGE_REDUCING, STAGE_COMPUTING);
    pass_in_contact(20);
    while (!n1.machine.trainers[1].killed)
        pass(TICK_USEC);
    assert_killed(&n1, 0, false);
    pass(TICK_USEC); /* no rank is further behind any more */
    assert_killed(&n1, 0, true);
}

static void who_are_equally_far_hang_together(_unused_ void **state)
{
    say_stages(STAGE_GATHERING, STAGE_GATHERING);
    pass_in_contact(21);
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
    assert_true(rank_report(1, 0).hung && rank_report(1, 1).hung);
}

/* A killed rank does not count as hung, though a process that waits for its driver takes long to die. */
static void a_rank_that_was_killed_does_not_hang(_unused_ void **state)
{
    n1.config.startup_sec = 2;
    join(&n1);
    run_world("a", 1, 3, 0);
    pass(USEC_PER_SEC);
    set_phase("a", (PhaseRecord){.phase = PHASE_STOPPED, .generation = 1});
    settle();
    assert_killed(&n1, 0, true);
    pass(USEC_PER_SEC + USEC_PER_SEC / 2);
    settle();
    assert_false(rank_report(1, 0).hung);
    ends(0, -SIGKILL);
    assert_true(rank_report(1, 0).killed && !rank_report(1, 0).hung);
    assert_int_equal(rank_report(1, 0).exit_code, -SIGKILL);
    assert_string_equal(rank_report(1, 0).text, "the job is stopped");
}

/* ---- ends ---- */

/* A rank that ends by SIGKILL after a silence as long as the granted lease counts as hung: its dead-man timer
 * follows that lease. */
static void who_ends_by_sigkill_has_hung_when_a_lease_has_passed(_unused_ void **state)
{
    join(&n1);
    lasts(&n1.etcd, 40);
    run_world("a", 1, 3, 0);
    pass_in_contact(29);
    ends(0, -SIGKILL); /* killed by another process */
    assert_false(rank_report(1, 0).hung);
    assert_string_equal(rank_report(1, 0).text, "its last line");
    pass_in_contact(2);
    ends(1, -SIGKILL);
    assert_true(rank_report(1, 1).hung && !rank_report(1, 1).killed);
    assert_non_null(strstr(rank_report(1, 1).text, "its dead-man timer ended it"));
}

/* The slot is lost two seconds after SIGKILL if any process still lives, even if the trainer itself has ended
 * meanwhile. */
static void what_a_killed_trainer_leaves_has_the_rest_of_its_time(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    n1.machine.trainers[0].leaves = true;
    (void)decide("a", 2, 0, 1);
    settle();
    pass(RANK_KILL_CONFIRM_MSEC * USEC_PER_MSEC - USEC_PER_SEC);
    dies(&n1.machine, 0);
    pass(USEC_PER_SEC - 1);
    assert_int_equal(n1.manager->workload.slots.lost, 0);
    pass(1);
    assert_int_equal(n1.manager->workload.slots.lost, 1);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 1);
    n1.machine.trainers[0].leaves = false;
    dies(&n1.machine, 0);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 0);
}

static void a_rank_that_is_done_is_at_the_step_that_it_names(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    says(&n1.machine, 0, CHANNEL_STEP, 89);
    hear(0, (ChannelMessage){.type = CHANNEL_DONE, .step = 90, .end = "finished"});
    ends(0, 0);
    assert_int_equal(rank_report(1, 0).step, 90);
    assert_int_equal(rank_report(1, 0).exit_code, EXIT_DONE);
    assert_string_equal(rank_report(1, 0).text, "finished");
    assert_true(n1.last_end.finished && !n1.last_end.left);
}

/* A rank that is killed twice is reported with the first reason. */
static void a_rank_that_is_killed_twice_was_killed_for_the_first_reason(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    set_phase("a", (PhaseRecord){.phase = PHASE_FAILED, .generation = 1});
    settle();
    drain_signal(n1.manager, "SIGTERM");
    drain_signal(n1.manager, "SIGTERM");
    ends(0, -SIGKILL);
    assert_string_equal(rank_report(1, 0).text, "the job is failed");
}

/* A rank that named its error, and was killed because it did not exit, is reported with its error and not as killed. */
static void a_rank_that_named_its_error_was_not_killed_by_us(_unused_ void **state)
{
    ChannelMessage error = {.type = CHANNEL_ERROR,
                            .step = 12,
                            .stage = STAGE_JOINING,
                            .exit_code = EXIT_PEER_LOST,
                            .unmet = 2,
                            .text = "rank 1 did not come"};
    join(&n1);
    run_world("a", 1, 1, 0);
    hear(0, error);
    pass(USEC_PER_SEC);
    assert_killed(&n1, 0, true);
    ends(0, -SIGKILL);
    const RankReport report = rank_report(1, 0);
    assert_int_equal(report.exit_code, EXIT_PEER_LOST);
    assert_false(report.killed || report.hung);
    assert_string_equal(report.text, "rank 1 did not come");
    assert_int_equal(report.step, 12);
    assert_int_equal(report.stage, STAGE_JOINING);
    assert_int_equal(report.unmet, 2);
    assert_int_equal(report.at_usec, clock_realtime_usec());
}

/* A trainer that has closed its channel is not killed because a message to it fails: the trainer's exit
 * follows, and explains more. */
static void a_trainer_that_hung_up_is_not_killed_by_a_word(_unused_ void **state)
{
    join(&n1);
    make_ready("a", 1, 0);
    hangs_up(&n1.machine, 0);
    let_go("a", 1);
    settle();
    assert_killed(&n1, 0, false);
    ends(0, 70);
    assert_int_equal(rank_report(1, 0).exit_code, 70);
    assert_false(rank_report(1, 0).killed);
}

static void a_peer_that_cannot_be_is_none(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    hear(0, (ChannelMessage){.type = CHANNEL_ERROR, .exit_code = 70, .unmet = -5, .text = "x"});
    hear(1,
         (ChannelMessage){.type = CHANNEL_ERROR, .exit_code = 70, .unmet = 1 << 30, .text = "x"});
    ends(0, 70);
    ends(1, 70);
    assert_int_equal(rank_report(1, 0).unmet, 0);
    assert_int_equal(rank_report(1, 1).unmet, RECORD_RANKS_MAX);
}

/* The last output of a trainer is read from the pipe before the trainer's end is judged. */
static void the_last_line_of_a_trainer_is_read_before_its_end_is_judged(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    prints(&n1.machine, 0, "cuda: out of memory");
    ends(0, 70);
    assert_int_equal(rank_report(1, 0).exit_code, 70);
    assert_string_equal(rank_report(1, 0).text, "cuda: out of memory");
}

/* A report is valid UTF-8, whatever bytes a trainer prints. */
static void bytes_that_are_no_text_are_reported(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    prints(&n1.machine, 0, "bad \xff\xfe bytes");
    ends(0, 70);
    assert_string_equal(rank_report(1, 0).text, "bad ?? bytes");
    hear(1, (ChannelMessage){.type = CHANNEL_ERROR, .exit_code = 70, .text = "cut \xc3"});
    ends(1, 70);
    assert_string_equal(rank_report(1, 1).text, "cut ");
    assert_int_equal(rank_report(1, 1).state, RANK_EXITED);
}

/* A rank that leaves has no more steps to do, so save_sec bounds its end. */
static void a_rank_that_is_done_has_the_time_of_a_save_to_end(_unused_ void **state)
{
    n1.config.startup_sec = 20;
    n1.config.save_sec = 60;
    join(&n1);
    run_world("a", 1, 1, 0);
    hear(0, (ChannelMessage){.type = CHANNEL_DONE, .step = 90, .end = "left"});
    pass_in_contact(59);
    assert_killed(&n1, 0, false);
    pass_in_contact(2);
    assert_killed(&n1, 0, true);
    ends(0, -SIGKILL);
    assert_int_equal(rank_report(1, 0).step, 90);
    assert_int_equal(rank_report(1, 0).stage, STAGE_LEAVING);
    assert_true(rank_report(1, 0).hung);
}

/* Each rank in a lost slot is reported as exited, also a rank of a world that is over. */
static void each_rank_in_a_lost_slot_is_reported_as_ended(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)decide("a", 2, 0, 1);
    settle();
    pass(2 * USEC_PER_SEC);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 3);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rank_report(1, i).state, RANK_EXITED);
        assert_int_equal(rank_report(1, i).exit_code, -SIGKILL);
        assert_true(rank_report(1, i).killed);
        assert_string_equal(rank_report(1, i).text, "it survives SIGKILL; the slot is lost");
    }
    assert_true(killed_of(&n1, "a", 1) != 0);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 1);
    dies(&n1.machine, 0);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(each_stage_of_a_life_is_reported_with_its_time),
        CASE(a_first_step_without_a_word_before_is_a_life_too),
        CASE(words_that_are_none_change_nothing),
        CASE(a_rank_is_told_at_its_start_how_long_it_may_run),
        CASE(ranks_may_run_as_long_as_the_lease_that_was_granted),
        CASE(a_report_says_whose_it_is),
        CASE(a_rank_that_never_started_says_so),
        CASE(the_program_hears_of_starts_steps_saves_and_ends),
        CASE(a_rank_that_cannot_be_started_is_reported),
        CASE(a_rank_whose_end_could_not_be_seen_is_killed),
        CASE(a_rank_that_hangs_at_its_start_is_at_the_step_of_its_world),
        CASE(a_rank_that_hangs_in_a_step_is_at_that_step),
        CASE(of_one_step_who_is_at_an_earlier_stage_hangs),
        CASE(who_are_equally_far_hang_together),
        CASE(a_rank_that_was_killed_does_not_hang),
        CASE(who_ends_by_sigkill_has_hung_when_a_lease_has_passed),
        CASE(what_a_killed_trainer_leaves_has_the_rest_of_its_time),
        CASE(a_rank_that_is_done_is_at_the_step_that_it_names),
        CASE(a_rank_that_is_killed_twice_was_killed_for_the_first_reason),
        CASE(a_rank_that_named_its_error_was_not_killed_by_us),
        CASE(a_trainer_that_hung_up_is_not_killed_by_a_word),
        CASE(a_peer_that_cannot_be_is_none),
        CASE(the_last_line_of_a_trainer_is_read_before_its_end_is_judged),
        CASE(bytes_that_are_no_text_are_reported),
        CASE(a_rank_that_is_done_has_the_time_of_a_save_to_end),
        CASE(each_rank_in_a_lost_slot_is_reported_as_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
