/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-records.c - whole nodes in one process, on fakes: records that a node shares with other writers, and
 * records of worlds that move while a write is under way. */
#include "base/clock.h"
#include "daemon/test/testing-node.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <string.h>

/* ---- records in etcd ---- */

static CheckpointsRecord checkpoints(void)
{
    char key[KEY_MAX];
    CheckpointsRecord record;
    Error err = ERROR_INIT;
    const StoredKey *k = find(key_of("lab", KEY_CHECKPOINTS, "a", key));
    assert_non_null(k);
    if (checkpoints_record_decode(key, k->value, strlen(k->value), &record, &err) < 0)
        fail_msg("%s", err.text);
    return record;
}

static void expect_commit(size_t i, int64_t generation, int64_t step)
{
    CheckpointsRecord record = checkpoints();
    assert_true(i < record.n_commits);
    assert_int_equal(record.commits[i].generation, generation);
    assert_int_equal(record.commits[i].step, step);
    checkpoints_record_clear(&record);
}

static size_t n_commits(void)
{
    CheckpointsRecord record = checkpoints();
    size_t n = record.n_commits;
    checkpoints_record_clear(&record);
    return n;
}

static ProgressRecord progress(void)
{
    char key[KEY_MAX];
    ProgressRecord record;
    const StoredKey *k = find(key_of("lab", KEY_PROGRESS, "a", key));
    assert_non_null(k);
    assert_int_equal(progress_record_decode(key, k->value, strlen(k->value), &record, NULL), 0);
    return record;
}

static void expect_mark(int64_t generation, int64_t step)
{
    const ProgressRecord record = progress();
    assert_int_equal(record.committed.generation, generation);
    assert_int_equal(record.committed.step, step);
}

/* Writes a commit of another writer, so that the nodes' knowledge of the record is outdated. */
static void another_commits(int64_t generation, int64_t step)
{
    char key[KEY_MAX];
    CheckpointsRecord record = {.n_commits = 1};
    record.commits[0] = (CheckpointCommit){.generation = generation, .step = step};
    (void)snprintf(record.commits[0].uri, sizeof(record.commits[0].uri), "file:///c/other");
    memcpy(record.submission, submission, sizeof(submission));
    _cleanup_free_ char *text = checkpoints_record_encode(&record, NULL);
    (void)put(key_of("lab", KEY_CHECKPOINTS, "a", key), text, 0);
}

/* Decides, as the leader, a world on slots 0 and 1 of n1 that names a commit. */
static void decide_after(int64_t generation, CommitMark committed)
{
    char key[KEY_MAX];
    WorldRun run = {.node = "n1", .incarnation = n1.incarnation, .slots = 3};
    WorldRecord world = {
        .generation = generation, .size = 2, .runs = &run, .n_runs = 1, .committed = committed};
    memcpy(world.submission, submission, sizeof(submission));
    _cleanup_free_ char *text = world_record_encode(&world, NULL);
    (void)put(key_of("lab", KEY_WORLDS, "a", key), text, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_ASSIGN), 1);
}

static void hear(int slot, ChannelMessage m)
{
    writes_message(&n1.machine, slot, m);
    const FakeTrainer *t = trainer_in(&n1.machine, slot);
    t->process->events.heard(t->process->events.userdata);
}

static void report_found(int64_t step, int64_t made_by, bool more)
{
    ChannelMessage m = {.type = CHANNEL_FOUND, .step = step, .made_by = made_by, .more = more};
    (void)snprintf(m.uri, sizeof(m.uri), "file:///c/%lld", (long long)step);
    hear(0, m);
}

/* ---- commits ---- */

static void the_first_of_two_saves_is_the_one_that_counts(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    says(&n1.machine, 0, CHANNEL_SAVED, 20);
    settle();
    assert_int_equal(n_commits(), 1);
    expect_commit(0, 1, 10);
    expect_mark(1, 10);
}

/* Another writer commits between the node's read and its write: both commits stay, and none is refused. */
static void a_commit_of_another_writer_is_kept(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 2, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    answer(under_way(&n1.etcd, key_of("lab", KEY_WORLDS, "a", key)), GIVEN);
    (void)under_way(&n1.etcd, key_of("lab", KEY_CHECKPOINTS, "a", key));
    another_commits(1, 5);
    settle();
    assert_int_equal(n_commits(), 2);
    expect_commit(0, 1, 5);
    expect_commit(1, 2, 10);
    expect_mark(2, 10);
    assert_int_equal(told(&n1, 0, CHANNEL_COMMITTED), 1);
    assert_int_equal(told(&n1, 0, CHANNEL_REFUSED), 0);
    assert_killed(&n1, 0, false);
}

/* The progress of a new world has the mark of the last commit: a leader that reads only the progress would otherwise
 * resume from before that commit. */
static void progress_of_a_new_world_knows_what_was_committed(_unused_ void **state)
{
    join(&n1);
    decide_after(2, (CommitMark){.generation = 1, .step = 40});
    says(&n1.machine, 0, CHANNEL_READY, 40);
    says(&n1.machine, 0, CHANNEL_STEP, 41);
    settle();
    expect_mark(1, 40);
}

static void the_newest_of_many_found_checkpoints_are_kept(_unused_ void **state)
{
    const int64_t n = RECORD_COMMITS_MAX + 4;
    join(&n1);
    decide_after(3, (CommitMark){0});
    for (int64_t step = 1; step <= n; step++)
        report_found(step, 1 + (step > 10), step < n);
    settle();
    assert_int_equal(n_commits(), RECORD_COMMITS_MAX);
    expect_commit(0, 1, n - RECORD_COMMITS_MAX + 1);
    expect_commit(RECORD_COMMITS_MAX - 1, 2, n); /* generation 2 made this commit */
    expect_mark(2, n);
    assert_int_equal(told(&n1, 0, CHANNEL_COMMITTED), 1);
}

/* The checkpoint that the world's mark names does not exist any more. A found checkpoint counts as newer, so that
 * the missing checkpoint is not requested again. */
static void what_is_found_is_newer_than_a_mark_that_is_not_there(_unused_ void **state)
{
    join(&n1);
    decide_after(3, (CommitMark){.generation = 2, .step = 50});
    report_found(10, 1, false);
    settle();
    assert_int_equal(n_commits(), 1);
    expect_commit(0, 3, 10);
    expect_mark(3, 10);
}

/* ---- progress ---- */

/* The last step is written at once: no later step follows, and the world may be over within the second. */
static void the_last_step_is_told_at_once(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    hear(0, (ChannelMessage){.type = CHANNEL_STEP, .step = 98, .steps = 100});
    settle();
    hear(0, (ChannelMessage){.type = CHANNEL_STEP, .step = 99, .steps = 100});
    settle();
    assert_int_equal(progress().step, 98);
    hear(0, (ChannelMessage){.type = CHANNEL_STEP, .step = 100, .steps = 100});
    settle();
    assert_int_equal(progress().step, 100);
}

/* The time of waits for saves is written with the steps. The leader adds it to the job's phase when the world is
 * over. */
static void waits_for_saves_are_told_with_steps(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    hear(0, (ChannelMessage){.type = CHANNEL_STEP, .step = 9, .steps = 100, .saving_sec = 2.5});
    settle();
    assert_true(progress().saving_sec == 2.5);
}

/* The time since which nothing was saved is converted to realtime only once, since clocks may be set. */
static void since_when_nothing_is_saved_does_not_move(_unused_ void **state)
{
    ChannelMessage step = {.type = CHANNEL_STEP, .step = 5, .steps = 100};
    join(&n1);
    run_world("a", 1, 3, 0);
    step.unsaved_since_usec = clock_boottime_usec() - 5 * USEC_PER_SEC;
    hear(0, step);
    settle();
    const uint64_t since_usec = progress().unsaved_since_usec;
    assert_int_equal(since_usec, clock_realtime_usec() - 5 * USEC_PER_SEC);
    ahead_usec = 86400 * USEC_PER_SEC;
    pass(2 * USEC_PER_SEC);
    step.step++;
    hear(0, step);
    settle();
    assert_int_equal(progress().step, 6);
    assert_int_equal(progress().unsaved_since_usec, since_usec);
}

/* ---- hangs ---- */

static void say_computing(int slot, int64_t step)
{
    hear(slot, (ChannelMessage){.type = CHANNEL_STAGE, .step = step, .stage = STAGE_COMPUTING});
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

static void who_waits_to_be_let_go_keeps_nobody_waiting(_unused_ void **state)
{
    n1.config.startup_sec = 20;
    join(&n1);
    (void)decide("a", 1, 3, 0);
    settle();
    for (int slot = 0; slot < 2; slot++) {
        says(&n1.machine, slot, CHANNEL_HELLO, 0);
        settle();
        says(&n1.machine, slot, CHANNEL_READY, 0);
    }
    settle();
    say_computing(0, 0);
    pass_in_contact(25);
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, false);
}

static void a_rank_of_another_job_keeps_nobody_waiting(_unused_ void **state)
{
    n1.config.startup_sec = 20;
    submit("b");
    join(&n1);
    run_world("a", 1, 1, 0);
    run_world("b", 1, 2, 0);
    say_computing(0, 50);
    for (int i = 0; i < 5; i++) {
        say_computing(1, i);
        pass_in_contact(5);
    }
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, false);
}

/* A rank that is killed in a long step has not hung, since it did not end by itself. */
static void who_is_killed_in_a_long_step_has_not_hung(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    pass_in_contact(9);
    set_phase("a", (PhaseRecord){.phase = PHASE_STOPPED, .generation = 1});
    settle();
    dies(&n1.machine, 0);
    settle();
    RanksRecord record = report_of(&n1, "a", 1);
    assert_true(record.ranks[0].killed && !record.ranks[0].hung);
    assert_non_null(strstr(record.ranks[0].text, "the job is stopped"));
    ranks_record_clear(&record);
}

/* ---- reports that are put with the node's record ---- */

/* A put of the node's record and its ranks' reports arrives late, after the end of a rank was reported: the rank stays
 * reported as ended. */
static void what_was_put_with_the_node_and_comes_late_brings_no_rank_back(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    expire(&n1.etcd);
    notify_lost(&n1.etcd);
    grant(&n1.etcd);
    answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), LATE);
    dies(&n1.machine, 0);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    come_late();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(node_key(&n1)->lease, lease_of(&n1.etcd));
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_READY);
    assert_killed(&n1, 1, false);
}

/* The answer to the node's put is lost: the node reads the reports of all its worlds, then puts its record and the
 * reports together. */
static void a_node_whose_answer_is_lost_comes_back_with_its_ranks(_unused_ void **state)
{
    char key[KEY_MAX];
    submit("b");
    join(&n1);
    run_world("a", 1, 3, 0);
    run_world("b", 1, 12, 0);
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key), GIVEN);
    answer(under_way(&n1.etcd, key), LOST_BEFORE);
    dies(&n1.machine, 2);
    settle();
    assert_false(has_node_key(&n1));
    pass(USEC_PER_SEC / 5);
    answer(under_way(&n1.etcd, key), GIVEN);
    assert_int_equal(report_key(&n1, "a", 1)->modified, node_key(&n1)->modified);
    assert_int_equal(report_key(&n1, "b", 1)->modified, node_key(&n1)->modified);
    assert_int_equal(state_of(&n1, "b", 1, 0), RANK_EXITED);
    /* The next report is guarded by the revision of the node's put. */
    says(&n1.machine, 1, CHANNEL_STEP, 1);
    answer(under_way(&n1.etcd, report_key(&n1, "a", 1)->key), GIVEN);
    assert_int_not_equal(report_key(&n1, "a", 1)->modified, node_key(&n1)->modified);
    settle();
    assert_killed(&n1, 0, false);
}

/* With more worlds than fit into one transaction, the other reports stay as they are at first, and all reports are
 * written again. */
static void a_node_whose_slots_have_a_job_each_comes_back_with_all(_unused_ void **state)
{
    enum { JOBS = RECORD_SLOTS_MAX };
    char name[JOBS][8], key[KEY_MAX];
    int n_with = 0;
    n1.config.slots = JOBS;
    join(&n1);
    for (int i = 0; i < JOBS; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "j%d", i);
        submit(name[i]);
        run_world(name[i], 1, UINT64_C(1) << i, 0);
    }
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key), GIVEN); /* the node has read the key */
    answer(under_way(&n1.etcd, key), GIVEN);
    for (int i = 0; i < JOBS; i++)
        n_with += report_key(&n1, name[i], 1)->modified == node_key(&n1)->modified;
    assert_int_equal(n_with, 59);
    for (int i = 0; i < JOBS; i++)
        dies(&n1.machine, i);
    settle();
    for (int i = 0; i < JOBS; i++) {
        const StoredKey *report = report_key(&n1, name[i], 1);
        assert_non_null(report);
        assert_int_equal(report->lease, lease_of(&n1.etcd));
        assert_int_equal(state_of(&n1, name[i], 1, 0), RANK_EXITED);
    }
}

/* The node's put succeeds, but its answer is lost: all reports that were put with the node's record have new
 * revisions. */
static void a_node_whose_put_is_done_and_not_heard_of_goes_on(_unused_ void **state)
{
    char key[KEY_MAX];
    const SlotGpus gpus = {.n = 0};
    submit("b");
    join(&n1);
    run_world("a", 1, 3, 0);
    run_world("b", 1, 12, 0);
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key), GIVEN);
    answer(under_way(&n1.etcd, key), LOST_AFTER);
    for (int i = 0; i < 5; i++) {
        settle();
        pass(USEC_PER_SEC / 5);
    }
    settle();
    node_note_health(&n1.manager->node, NODE_SUSPECT, 0, "warm", &gpus);
    settle();
    assert_int_equal(node_record(&n1).verdict, NODE_SUSPECT);
    assert_true(node_is_settled(&n1.manager->node));
    dies(&n1.machine, 0);
    dies(&n1.machine, 2);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_int_equal(state_of(&n1, "b", 1, 0), RANK_EXITED);
    assert_killed(&n1, 1, false);
    assert_killed(&n1, 3, false);
}

/* The report's own write has failed, and its retry still waits when the node reads the report. */
static void a_record_is_read_for_the_node_while_its_retry_waits(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_STEP, 1);
    answer(under_way(&n1.etcd, report_key(&n1, "a", 1)->key), LOST_BEFORE);
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key), GIVEN);
    const EtcdCall *read = under_way(&n1.etcd, report_key(&n1, "a", 1)->key);
    pass(USEC_PER_SEC / 2); /* longer than the pause before the retry */
    assert_ptr_equal(under_way(&n1.etcd, report_key(&n1, "a", 1)->key), read);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_true(has_node_key(&n1));
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_RUNNING);
    assert_true(workload_is_reported(&n1.manager->workload));
}

/* The world ends while its report is put with the node's record. */
static void a_world_that_ends_while_it_is_put_with_the_node_is_told_as_dead(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key), GIVEN);
    EtcdCall *with_ranks = under_way(&n1.etcd, key);
    (void)decide("a", 2, 0, 1);
    show(&n1.etcd);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    answer(with_ranks, GIVEN); /* the guard of the world fails */
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_true(has_node_key(&n1));
    assert_true(killed_of(&n1, "a", 1) != 0);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
}

/* A world that is over does not repeat its reads, and drops the progress that waits for the next second. */
static void a_world_that_is_over_asks_for_nothing_more(_unused_ void **state)
{
    char spec[KEY_MAX], secret[KEY_MAX];
    join(&n1);
    (void)delete_key(key_of("lab", KEY_SPECS, "a", spec));
    (void)decide("a", 1, 3, 0);
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key_of("lab", KEY_SECRETS, "a", secret)), LOST_BEFORE);
    answer(under_way(&n1.etcd, spec), GIVEN);
    (void)decide("a", 2, 0, 1);
    settle();
    for (int i = 0; i < 9; i++) { /* 1.8 s in all; a slot is lost after 2 s */
        pass(USEC_PER_SEC / 5);
        assert_int_equal(n_under_way(&n1.etcd), 0);
    }
    assert_int_equal(n1.machine.n_started, 2);
}

static void a_world_that_is_over_writes_nothing_but_its_end(_unused_ void **state)
{
    char worlds[KEY_MAX], rendezvous[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_STEP, 1);
    settle();
    says(&n1.machine, 0, CHANNEL_STEP, 2); /* the progress waits for the next second */
    says(&n1.machine, 0, CHANNEL_SAVED, 2);
    answer(under_way(&n1.etcd, key_of("lab", KEY_WORLDS, "a", worlds)), LOST_BEFORE);
    says(&n1.machine, 0, CHANNEL_RENDEZVOUS, 0);
    answer(under_way(&n1.etcd, key_rendezvous("lab", "a", 1, rendezvous)), LOST_BEFORE);
    (void)decide("a", 2, 0, 1);
    settle();
    for (int i = 0; i < 15; i++) {
        pass(USEC_PER_SEC / 10);
        assert_int_equal(n_under_way(&n1.etcd), 0);
    }
    assert_int_equal(progress().step, 1);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_true(killed_of(&n1, "a", 1) != 0);
}

/* A stranger wrote the report once, so a write was refused. After the refusal is resolved, a later lost answer does
 * not count as a refusal. */
static void a_refusal_is_forgotten_when_it_was_made_good(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    const char *key = report_key(&n1, "a", 1)->key;
    _cleanup_free_ char *same = strdup(report_key(&n1, "a", 1)->value);
    (void)put(key, same, lease_of(&n1.etcd));
    says(&n1.machine, 0, CHANNEL_STEP, 1);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_RUNNING);
    for (int slot = 1; slot >= 0; slot--) {
        dies(&n1.machine, slot);
        answer(under_way(&n1.etcd, key), LOST_BEFORE);
        pass(5 * USEC_PER_SEC);
        settle();
        assert_int_equal(state_of(&n1, "a", 1, (size_t)slot), RANK_EXITED);
        if (slot > 0)
            assert_killed(&n1, 0, false);
    }
    RanksRecord record = report_of(&n1, "a", 1);
    assert_false(record.ranks[0].killed);
    ranks_record_clear(&record);
}

/* A report that changes while it is put with the node's record is written again after that record. */
static void what_ends_while_it_is_put_with_the_node_is_told_after_it(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key), GIVEN);
    dies(&n1.machine, 0);
    assert_int_equal(n_under_way(&n1.etcd), 1);
    answer(under_way(&n1.etcd, key), GIVEN);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_READY);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_true(workload_is_reported(&n1.manager->workload));
}

/* A report is refused because its key expired with the lease, not because its world moved. Once the loss of the
 * lease is known, the refusal kills no rank. */
static void a_report_that_is_refused_because_the_lease_ended_kills_nobody(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    char key[KEY_MAX];
    (void)snprintf(key, sizeof(key), "%s", report_key(&n1, "a", 1)->key);
    dies(&n1.machine, 1);
    EtcdCall *report = under_way(&n1.etcd, key);
    expire(&n1.etcd);
    notify_lost(&n1.etcd);
    answer(report, GIVEN);
    settle();
    assert_killed(&n1, 0, false);
    grant(&n1.etcd);
    settle();
    assert_killed(&n1, 0, false);
    assert_int_equal(report_key(&n1, "a", 1)->lease, lease_of(&n1.etcd));
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_EXITED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_first_of_two_saves_is_the_one_that_counts),
        CASE(a_commit_of_another_writer_is_kept),
        CASE(progress_of_a_new_world_knows_what_was_committed),
        CASE(the_newest_of_many_found_checkpoints_are_kept),
        CASE(what_is_found_is_newer_than_a_mark_that_is_not_there),
        CASE(the_last_step_is_told_at_once),
        CASE(waits_for_saves_are_told_with_steps),
        CASE(since_when_nothing_is_saved_does_not_move),
        CASE(who_waits_to_be_let_go_keeps_nobody_waiting),
        CASE(a_rank_of_another_job_keeps_nobody_waiting),
        CASE(who_is_killed_in_a_long_step_has_not_hung),
        CASE(what_was_put_with_the_node_and_comes_late_brings_no_rank_back),
        CASE(a_node_whose_answer_is_lost_comes_back_with_its_ranks),
        CASE(a_node_whose_slots_have_a_job_each_comes_back_with_all),
        CASE(a_node_whose_put_is_done_and_not_heard_of_goes_on),
        CASE(a_record_is_read_for_the_node_while_its_retry_waits),
        CASE(what_ends_while_it_is_put_with_the_node_is_told_after_it),
        CASE(a_world_that_ends_while_it_is_put_with_the_node_is_told_as_dead),
        CASE(a_world_that_is_over_asks_for_nothing_more),
        CASE(a_world_that_is_over_writes_nothing_but_its_end),
        CASE(a_refusal_is_forgotten_when_it_was_made_good),
        CASE(a_report_that_is_refused_because_the_lease_ended_kills_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
