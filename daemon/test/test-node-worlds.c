/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-worlds.c - whole nodes in one process, on fakes: what a node does for jobs (worlds that move, records of
 * another generation, phases, slots, two jobs). test-node.c tests the node's own record, test-node-trainers.c the
 * messages to and from its trainers. */
#include "base/clock.h"
#include "daemon/test/testing-node.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <string.h>

static int set_up(_unused_ void **state)
{
    nodes_begin();
    submit("a");
    submit("ab");
    return 0;
}

static void damage(KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    (void)put(key_of("lab", kind, name, key), "{", 0);
}

/* ---- worlds that move ---- */

static void killed_usec_is_told_when_the_last_old_rank_is_dead(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    ahead_usec = 86400 * USEC_PER_SEC;
    (void)decide("a", 2, 3, 0);
    settle();
    dies(&n1.machine, 0);
    settle();
    assert_int_equal(killed_of(&n1, "a", 1), 0);
    assert_int_equal(killed_of(&n1, "a", 2), 0);
    pass(USEC_PER_SEC);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(killed_of(&n1, "a", 1), clock_realtime_usec());
    assert_int_equal(killed_of(&n1, "a", 2), clock_realtime_usec());
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_EXITED);
    assert_int_equal(n1.machine.n_started, 4);
}

/* A node without a rank in the next world reports in the old world's report that its old ranks are dead. */
static void a_node_that_is_left_out_tells_of_its_dead(_unused_ void **state)
{
    join(&n1);
    join(&n2);
    run_world("a", 1, 1, 1);
    (void)decide("a", 2, 0, 1);
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n2, 0, true);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(killed_of(&n1, "a", 1), 0);
    assert_int_equal(node_record(&n1).generation, 0);
    dies(&n1.machine, 0);
    settle();
    assert_true(killed_of(&n1, "a", 1) != 0);
    assert_null(report_key(&n2, "a", 2));
    assert_int_equal(n2.machine.n_started, 1);
    dies(&n2.machine, 0);
    settle();
    assert_int_equal(n2.machine.n_started, 2);
    assert_true(killed_of(&n2, "a", 2) != 0);
}

static void a_world_that_was_deleted_and_reborn_in_one_batch_begins_anew(_unused_ void **state)
{
    join(&n1);
    run_world("a", 9, 3, 0);
    remove_job("a");
    (void)snprintf(submission, sizeof(submission), "fedcba9876543210fedcba9876543210");
    submit("a");
    (void)decide("a", 1, 3, 0);
    list_again(&n1.etcd);
    answer_all();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(n1.machine.n_started, 4);
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    settle();
    assert_string_equal(n1.machine.trainers[0].assigned.assign.submission, submission);
    assert_int_equal(n1.machine.trainers[0].assigned.generation, 1);
    assert_true(killed_of(&n1, "a", 1) != 0);
}

/* When the watch shows nothing, the first write that is refused tells the node that the world has moved. */
static void a_frozen_watch_ends_with_a_refused_write(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    n1.etcd.is_blind = true;
    (void)decide("a", 2, 0, 1);
    settle();
    assert_killed(&n1, 0, false);
    says(&n1.machine, 0, CHANNEL_STEP, 1);
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_READY); /* the refused report was not written */
    n1.etcd.is_blind = false;
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_true(killed_of(&n1, "a", 1) != 0);
}

static void an_older_revision_of_a_world_is_none(_unused_ void **state)
{
    join(&n1);
    run_world("a", 2, 3, 0);
    WorldRun run = {.node = "n1", .incarnation = n1.incarnation, .slots = 3};
    WorldRecord old = {.generation = 1, .size = 2, .runs = &run, .n_runs = 1};
    LocalJob *job = job_find(&n1.manager->workload, "a");
    job_set_world(job, &old, job->world_revision - 1);
    job_lose_world(job, job->world_revision - 1);
    job_set_world(job, &old, job->world_revision);
    assert_killed(&n1, 0, false);
    assert_int_equal(job->local->generation, 2);
}

/* A world that names another incarnation of the node starts no ranks. */
static void a_world_of_another_incarnation_is_not_ours(_unused_ void **state)
{
    join(&n1);
    n1.incarnation++;
    (void)decide("a", 1, 3, 0);
    settle();
    assert_int_equal(n1.machine.n_started, 0);
    n1.incarnation--;
    (void)decide("a", 2, 3, 0);
    settle();
    assert_int_equal(n1.machine.n_started, 2);
}

static void a_world_that_cannot_be_read_ends_the_ranks_of_the_one_before(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    damage(KEY_WORLDS, "a");
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_true(killed_of(&n1, "a", 1) != 0); /* the guard was the damaged record's revision */
    assert_non_null(job_find(&n1.manager->workload, "a"));
    (void)decide("a", 2, 3, 0);
    settle();
    assert_int_equal(n1.machine.n_started, 4);
}

static void other_records_that_cannot_be_read_change_nothing(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    set_phase("a", (PhaseRecord){.phase = PHASE_SUCCEEDED, .generation = 1});
    settle();
    damage(KEY_PHASES, "a");
    damage(KEY_CORDONS, "n1");
    damage(KEY_REQUESTS, "r1");
    (void)put(key_rendezvous("lab", "a", 1, key), "{", 0);
    settle();
    assert_killed(&n1, 0, false);
    pass(3 * USEC_PER_SEC);
    assert_killed(&n1, 0, true); /* the earlier phase still counts */
}

/* The job's rendezvous is this node's own, and no watch may ever show it: the node forgets it with the job. */
static void a_job_that_is_removed_takes_its_rendezvous_along(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    n1.etcd.is_blind = true;
    remove_job("a");
    show_kind(&n1.etcd, KEY_WORLDS);
    show_kind(&n1.etcd, KEY_PHASES);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    answer_all();
    assert_null(job_find(&n1.manager->workload, "a"));
}

static void a_job_that_is_removed_is_forgotten_when_its_dead_are_told(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    run_world("ab", 1, 12, 0);
    remove_job("a");
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
    assert_killed(&n1, 2, false);
    assert_killed(&n1, 3, false);
    (void)delete_key(key_rendezvous("lab", "a", 1, key));
    dies(&n1.machine, 0);
    settle();
    assert_non_null(job_find(&n1.manager->workload, "a"));
    dies(&n1.machine, 1);
    settle();
    assert_null(job_find(&n1.manager->workload, "a"));
    assert_non_null(job_find(&n1.manager->workload, "ab"));
    assert_true(killed_of(&n1, "a", 1) != 0);
}

/* ---- records of another generation ---- */

static void a_phase_of_another_generation_or_job_lets_nobody_go(_unused_ void **state)
{
    join(&n1);
    make_ready("a", 2, 0);
    let_go("a", 1);
    settle();
    let_go("a", 3);
    settle();
    let_go("a", 20);
    settle();
    char mine[sizeof(submission)];
    memcpy(mine, submission, sizeof(mine));
    memset(submission, 'e', sizeof(submission) - 1);
    let_go("a", 2);
    settle();
    let_go("ab", 2);
    settle();
    memcpy(submission, mine, sizeof(mine));
    set_phase("a", (PhaseRecord){.phase = PHASE_STARTING, .generation = 2});
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_GO), 0);
    let_go("a", 2);
    settle();
    let_go("a", 2);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_GO), 1);
}

/* Each kind of record has its own watch, so a phase may be shown before its world. */
static void a_phase_may_be_known_before_its_world(_unused_ void **state)
{
    join(&n1);
    n1.etcd.is_blind = true;
    (void)decide("a", 1, 1, 0);
    let_go("a", 1);
    show_kind(&n1.etcd, KEY_PHASES);
    assert_int_equal(n1.machine.n_started, 0);
    show_kind(&n1.etcd, KEY_WORLDS);
    settle();
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_READY, 0);
    assert_int_equal(told(&n1, 0, CHANNEL_GO), 1);
}

/* Makes a world whose rank 0 is on n1. Its rank on n2 is ready and may go, but lacks the address of rank 0. */
static void make_pair_ready(int64_t generation)
{
    (void)decide("a", generation, 1, 1);
    let_go("a", generation);
    settle();
    says(&n2.machine, 0, CHANNEL_HELLO, 0);
    settle();
    says(&n2.machine, 0, CHANNEL_READY, 0);
    settle();
    assert_int_equal(told(&n2, 0, CHANNEL_GO), 0);
}

static void a_rendezvous_of_another_generation_is_no_address(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    join(&n2);
    make_pair_ready(10);
    set_rendezvous("a", 1, "127.0.0.1:1");
    settle();
    set_rendezvous("a", 11, "127.0.0.1:11");
    settle();
    set_rendezvous("ab", 10, "127.0.0.1:2");
    settle();
    assert_int_equal(told(&n2, 0, CHANNEL_GO), 0);
    set_rendezvous("a", 10, "127.0.0.1:10");
    (void)delete_key(key_rendezvous("lab", "a", 1, key));
    settle();
    assert_int_equal(told(&n2, 0, CHANNEL_GO), 1);
    assert_string_equal(n2.machine.trainers[0].address, "127.0.0.1:10");
}

static void a_deletion_of_another_generations_rendezvous_is_not_ours(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    join(&n2);
    set_rendezvous("a", 1, "127.0.0.1:1");
    (void)decide("a", 10, 1, 1);
    set_rendezvous("a", 10, "127.0.0.1:10");
    settle();
    (void)delete_key(key_rendezvous("lab", "a", 1, key));
    settle();
    let_go("a", 10);
    settle();
    says(&n2.machine, 0, CHANNEL_HELLO, 0);
    settle();
    says(&n2.machine, 0, CHANNEL_READY, 0);
    assert_int_equal(told(&n2, 0, CHANNEL_GO), 1);
}

/* A rendezvous older than its world is of an earlier job of that name, whose generations had the same numbers. */
static void a_rendezvous_older_than_its_world_is_anothers(_unused_ void **state)
{
    join(&n1);
    join(&n2);
    set_rendezvous("a", 1, "127.0.0.1:1");
    settle();
    make_pair_ready(1);
    set_rendezvous("a", 1, "127.0.0.1:2");
    settle();
    assert_int_equal(told(&n2, 0, CHANNEL_GO), 1);
    assert_string_equal(n2.machine.trainers[0].address, "127.0.0.1:2");
}

/* The answer to a node's own put may come before the watch shows an older change. */
static void an_older_rendezvous_does_not_replace_a_newer_one(_unused_ void **state)
{
    join(&n1);
    join(&n2);
    (void)decide("a", 2, 2, 1);
    settle();
    n1.etcd.is_blind = true;
    set_rendezvous("a", 1, "127.0.0.1:1");
    says(&n1.machine, 1, CHANNEL_HELLO, 0);
    says(&n1.machine, 1, CHANNEL_RENDEZVOUS, 0);
    says(&n1.machine, 1, CHANNEL_READY, 0);
    settle();
    n1.etcd.is_blind = false;
    settle();
    LocalJob *job = job_find(&n1.manager->workload, "a");
    const RendezvousRecord older = {.address = "127.0.0.1:1"};
    job_set_rendezvous(job, 1, job->rendezvous_revision - 1, &older);
    job_set_rendezvous(job, 2, job->rendezvous_revision - 1, NULL); /* an old deletion */
    let_go("a", 2);
    settle();
    assert_int_equal(told(&n1, 1, CHANNEL_GO), 1);
    assert_string_equal(n1.machine.trainers[1].address, "127.0.0.1:4000");
}

static void a_rendezvous_that_was_deleted_is_no_address(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    join(&n2);
    (void)decide("a", 10, 1, 1);
    set_rendezvous("a", 10, "127.0.0.1:10");
    settle();
    (void)delete_key(key_rendezvous("lab", "a", 10, key));
    settle();
    let_go("a", 10);
    settle();
    says(&n2.machine, 0, CHANNEL_HELLO, 0);
    settle();
    says(&n2.machine, 0, CHANNEL_READY, 0);
    settle();
    assert_int_equal(told(&n2, 0, CHANNEL_GO), 0);
}

static void a_key_that_names_no_job_is_none(_unused_ void **state)
{
    join(&n1);
    (void)decide("a/b", 1, 1, 0);
    (void)decide("A B", 1, 1, 0);
    settle();
    assert_int_equal(n1.machine.n_started, 0);
    assert_int_equal(n1.manager->workload.n_jobs, 0);
}

/* ---- phases that end ranks ---- */

static void a_pause_ends_the_ranks_of_its_world(_unused_ void **state)
{
    PhaseRecord pause = {.phase = PHASE_RECOVERING, .generation = 1, .pause_usec = USEC_PER_SEC};
    join(&n1);
    run_world("a", 2, 3, 0);
    set_phase("a", pause); /* a phase of the world before */
    settle();
    assert_killed(&n1, 0, false);
    char mine[sizeof(submission)];
    memcpy(mine, submission, sizeof(mine));
    memset(submission, 'e', sizeof(submission) - 1);
    pause.generation = 2;
    set_phase("a", pause); /* a phase of another job of that name */
    settle();
    assert_killed(&n1, 0, false);
    memcpy(submission, mine, sizeof(mine));
    set_phase("a", pause);
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
}

static void phases_that_end_a_job_end_its_ranks_and_others_do_not(_unused_ void **state)
{
    const bool ends[PHASE_COUNT] = {
        [PHASE_PENDING] = true, [PHASE_STOPPED] = true, [PHASE_FAILED] = true};
    int64_t generation = 0;
    join(&n1);
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        if (phase == PHASE_SUCCEEDED)
            continue;
        run_world("a", ++generation, 1, 0);
        set_phase("a", (PhaseRecord){.phase = (JobPhase)phase, .generation = generation});
        settle();
        assert_killed(&n1, 0, ends[phase]);
        n1.machine.trainers[0].killed = true;
        if (!ends[phase]) {
            (void)decide("a", ++generation, 0, 1);
            settle();
        }
        dies(&n1.machine, 0);
        settle();
    }
}

/* After the job has succeeded its ranks have two seconds to exit. The same phase again does not restart that time. */
static void an_equal_record_does_not_restart_a_deadline(_unused_ void **state)
{
    const PhaseRecord done = {.phase = PHASE_SUCCEEDED, .generation = 1};
    join(&n1);
    run_world("a", 1, 3, 0);
    set_phase("a", done);
    settle();
    for (int i = 0; i < 9; i++) {
        assert_killed(&n1, 0, false);
        pass(TICK_USEC);
        set_phase("a", done);
        settle();
    }
    assert_killed(&n1, 0, false);
    pass(2 * TICK_USEC);
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
}

/* ---- slots ---- */

static void slot_1_is_not_slot_10(_unused_ void **state)
{
    const uint64_t both = 1 << 1 | 1 << 10;
    join(&n1);
    run_world("a", 1, both, 0);
    dies(&n1.machine, 10);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_READY);
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_EXITED);
    assert_non_null(n1.machine.trainers[1].process);
    (void)decide("a", 2, both, 0);
    settle();
    assert_killed(&n1, 1, true);
    assert_killed(&n1, 10, false); /* a new rank of world 2 */
    assert_int_equal(n1.machine.n_started, 3);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(n1.machine.n_started, 4);
    RanksRecord record = report_of(&n1, "a", 2);
    assert_int_equal(record.ranks[0].slot, 1);
    assert_int_equal(record.ranks[1].slot, 10);
    assert_int_equal(record.ranks[1].rank, 1);
    ranks_record_clear(&record);
}

static void say_done(int slot, const char *text)
{
    ChannelMessage m = {.type = CHANNEL_DONE, .step = 7};
    (void)snprintf(m.end, sizeof(m.end), "%s", text);
    writes_message(&n1.machine, slot, m);
    dies(&n1.machine, slot);
}

static void one_that_leaves_and_one_that_dies_have_not_left(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    say_done(0, "left");
    settle();
    RanksRecord record = report_of(&n1, "a", 1);
    assert_int_equal(record.ranks[0].state, RANK_EXITED);
    assert_int_equal(record.ranks[0].exit_code, EXIT_DONE);
    assert_false(record.left);
    ranks_record_clear(&record);
    n1.machine.trainers[1].status = -SIGSEGV;
    dies(&n1.machine, 1);
    settle();
    record = report_of(&n1, "a", 1);
    assert_int_equal(record.ranks[1].state, RANK_EXITED);
    assert_int_equal(record.ranks[1].exit_code, -SIGSEGV);
    assert_false(record.left || record.finished || record.ranks[1].killed);
    ranks_record_clear(&record);
}

static void all_that_leave_have_left_and_all_that_finish_have_finished(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    say_done(0, "left");
    say_done(1, "left");
    settle();
    RanksRecord record = report_of(&n1, "a", 1);
    assert_true(record.left && !record.finished);
    ranks_record_clear(&record);
    run_world("a", 2, 3, 0);
    say_done(0, "finished");
    say_done(1, "finished");
    settle();
    record = report_of(&n1, "a", 2);
    assert_true(record.finished && !record.left);
    ranks_record_clear(&record);
}

/* The node's record names a lost slot before the slot's rank counts as exited. Otherwise the leader would place a
 * rank on a slot that holds a live process. */
static void a_lost_slot_is_in_the_record_before_its_rank_has_ended(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)decide("a", 2, 0, 1);
    settle();
    dies(&n1.machine, 1);
    settle();
    pass(2 * USEC_PER_SEC);
    answer(under_way(&n1.etcd, node_key(&n1)->key), LOST_BEFORE);
    assert_int_equal(node_record(&n1).lost_slots, 0);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_READY);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 1);
    assert_true(report_key(&n1, "a", 1)->modified > node_key(&n1)->modified);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    dies(&n1.machine, 0);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 0);
}

/* The node's record under way was sent before the slot was lost, so its acknowledgement does not report the loss. */
static void a_record_that_was_under_way_does_not_tell_of_a_lost_slot(_unused_ void **state)
{
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    run_world("a", 1, 1 << 10, 0);
    (void)decide("a", 2, 0, 1);
    settle();
    n1.etcd.is_cut = true;
    node_note_health(&n1.manager->node, NODE_SUSPECT, 0, "bad", &gpus);
    pass(2 * USEC_PER_SEC);
    assert_int_equal(n1.manager->workload.slots.lost, 1 << 10);
    answer(under_way(&n1.etcd, node_key(&n1)->key), GIVEN);
    assert_int_equal(node_record(&n1).lost_slots, 0);
    n1.etcd.is_cut = false;
    const LocalWorld *over = job_find(&n1.manager->workload, "a")->over;
    assert_int_equal(over->local_ranks[0].report.state, RANK_READY);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 1 << 10);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_null(job_find(&n1.manager->workload, "a")->over);
}

/* ---- two jobs ---- */

static void two_jobs_on_a_node_are_apart(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    run_world("ab", 4, 2, 0);
    (void)decide("a", 2, 1, 0);
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, false);
    dies(&n1.machine, 0);
    settle();
    assert_int_equal(n1.machine.n_started, 3);
    set_phase("a", (PhaseRecord){.phase = PHASE_STOPPED, .generation = 2});
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, false);
    dies(&n1.machine, 0);
    settle();
    assert_string_equal(node_record(&n1).job, "ab");
    assert_int_equal(node_record(&n1).generation, 4);
}

static void a_node_that_is_cordoned_for_one_job_runs_the_other(_unused_ void **state)
{
    char key[KEY_MAX];
    CordonRecord cordon = {.node = "n1", .n_causes = 1};
    cordon.causes[0] = (CordonCause){.owner = CORDON_JOB,
                                     .job = "a",
                                     .mode = CORDON_QUARANTINE,
                                     .reason = "numerics"};
    memcpy(cordon.causes[0].machine_id, n2.config.machine_id, 33);
    join(&n1);
    run_world("a", 1, 1, 0);
    run_world("ab", 1, 2, 0);
    _cleanup_free_ char *of_another = cordon_record_encode(&cordon, NULL);
    (void)put(key_of("lab", KEY_CORDONS, "n1", key), of_another, 0);
    settle();
    assert_killed(&n1, 0, false);
    memcpy(cordon.causes[0].machine_id, n1.config.machine_id, 33);
    cordon.causes[0].mode = CORDON_DRAIN;
    _cleanup_free_ char *drain = cordon_record_encode(&cordon, NULL);
    (void)put(key, drain, 0);
    settle();
    assert_killed(&n1, 0, false); /* only the leader acts on a drain */
    cordon.causes[0].mode = CORDON_QUARANTINE;
    _cleanup_free_ char *ours = cordon_record_encode(&cordon, NULL);
    (void)put(key, ours, 0);
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, false);
}

static void both_jobs_come_back_with_a_new_lease(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    run_world("ab", 1, 2, 0);
    expire(&n1.etcd);
    notify_lost(&n1.etcd);
    settle();
    grant(&n1.etcd);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(report_key(&n1, "a", 1)->lease, lease_of(&n1.etcd));
    assert_int_equal(report_key(&n1, "ab", 1)->lease, lease_of(&n1.etcd));
    assert_killed(&n1, 0, false);
    assert_killed(&n1, 1, false);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(killed_usec_is_told_when_the_last_old_rank_is_dead),
        CASE(a_node_that_is_left_out_tells_of_its_dead),
        CASE(a_world_that_was_deleted_and_reborn_in_one_batch_begins_anew),
        CASE(a_frozen_watch_ends_with_a_refused_write),
        CASE(an_older_revision_of_a_world_is_none),
        CASE(a_world_of_another_incarnation_is_not_ours),
        CASE(a_world_that_cannot_be_read_ends_the_ranks_of_the_one_before),
        CASE(other_records_that_cannot_be_read_change_nothing),
        CASE(a_job_that_is_removed_takes_its_rendezvous_along),
        CASE(a_job_that_is_removed_is_forgotten_when_its_dead_are_told),
        CASE(a_phase_of_another_generation_or_job_lets_nobody_go),
        CASE(a_phase_may_be_known_before_its_world),
        CASE(a_rendezvous_of_another_generation_is_no_address),
        CASE(a_deletion_of_another_generations_rendezvous_is_not_ours),
        CASE(a_rendezvous_older_than_its_world_is_anothers),
        CASE(an_older_rendezvous_does_not_replace_a_newer_one),
        CASE(a_rendezvous_that_was_deleted_is_no_address),
        CASE(a_key_that_names_no_job_is_none),
        CASE(a_pause_ends_the_ranks_of_its_world),
        CASE(phases_that_end_a_job_end_its_ranks_and_others_do_not),
        CASE(an_equal_record_does_not_restart_a_deadline),
        CASE(slot_1_is_not_slot_10),
        CASE(one_that_leaves_and_one_that_dies_have_not_left),
        CASE(all_that_leave_have_left_and_all_that_finish_have_finished),
        CASE(a_lost_slot_is_in_the_record_before_its_rank_has_ended),
        CASE(a_record_that_was_under_way_does_not_tell_of_a_lost_slot),
        CASE(two_jobs_on_a_node_are_apart),
        CASE(a_node_that_is_cordoned_for_one_job_runs_the_other),
        CASE(both_jobs_come_back_with_a_new_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
