/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-progress.c - the record of a job's progress, which is written for rank 0's steps, waits and commits. */
#include "base/clock.h"
#include "daemon/test/testing-node.h"
#include "daemon/world/progress.h"

#include <math.h>
#include <string.h>

static const StoredKey *progress_key(void)
{
    char key[KEY_MAX];
    return find(key_of("lab", KEY_PROGRESS, "a", key));
}

static ProgressRecord progress(void)
{
    ProgressRecord record;
    const StoredKey *k = progress_key();
    assert_non_null(k);
    assert_int_equal(progress_record_decode(k->key, k->value, strlen(k->value), &record, NULL), 0);
    return record;
}

static void expect_mark(int64_t generation, int64_t step)
{
    const ProgressRecord record = progress();
    assert_int_equal(record.committed.generation, generation);
    assert_int_equal(record.committed.step, step);
}

static void hear(ChannelMessage m)
{
    writes_message(&n1.machine, 0, m);
    const FakeTrainer *t = trainer_in(&n1.machine, 0);
    t->process->events.heard(t->process->events.userdata);
    settle();
}

static void say_step(int64_t step)
{
    hear((ChannelMessage){.type = CHANNEL_STEP, .step = step, .steps = 1000, .loss = 0.5});
}

static void say_wait(TrainStage stage, int64_t step, int waits_rank, uint64_t waited_sec)
{
    hear((ChannelMessage){.type = CHANNEL_STAGE,
                          .stage = stage,
                          .step = step,
                          .waits_rank = waits_rank,
                          .waited_usec = waited_sec * USEC_PER_SEC});
}

static void say_saved(int64_t step)
{
    says(&n1.machine, 0, CHANNEL_SAVED, step);
    settle();
}

/* Runs a world of one rank on n1 that resumes at step 40, the last committed step. */
static void resume(void)
{
    char key[KEY_MAX];
    WorldRun run = {.node = "n1", .incarnation = n1.incarnation, .slots = 1};
    WorldRecord world = {.generation = 2,
                         .size = 1,
                         .runs = &run,
                         .n_runs = 1,
                         .resume = {.step = 40, .uri = "file:///c/40"},
                         .committed = {.generation = 1, .step = 40}};
    join(&n1);
    memcpy(world.submission, submission, sizeof(submission));
    _cleanup_free_ char *text = world_record_encode(&world, NULL);
    (void)put(key_of("lab", KEY_WORLDS, "a", key), text, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_HELLO, 0);
    settle();
    says(&n1.machine, 0, CHANNEL_READY, 40);
    settle();
    let_go("a", 2);
    settle();
    assert_int_equal(told(&n1, 0, CHANNEL_GO), 1);
}

/* ---- before the first step ---- */

static void a_commit_before_the_first_step_is_at_the_step_of_its_world(_unused_ void **state)
{
    resume();
    say_saved(40);
    const ProgressRecord record = progress();
    assert_int_equal(record.generation, 2);
    assert_int_equal(record.step, 40);
    assert_true(isnan(record.loss));
    assert_int_equal(record.at_usec, clock_realtime_usec());
    expect_mark(2, 40);
    say_step(41);
    assert_int_equal(progress().step, 41);
    expect_mark(2, 40);
}

/* A wait before the first step keeps the mark of the last commit: a leader that reads only the progress would
 * otherwise resume from before that commit. */
static void a_wait_before_the_first_step_keeps_what_is_committed(_unused_ void **state)
{
    resume();
    say_wait(STAGE_LOADING, 41, 3, PROGRESS_WAIT_SEC);
    const ProgressRecord record = progress();
    assert_int_equal(record.generation, 2);
    assert_int_equal(record.step, 41);
    assert_true(isnan(record.loss));
    assert_int_equal(record.waits_rank, 3);
    expect_mark(1, 40);
}

/* ---- waits ---- */

static void a_wait_is_told_when_it_is_long_and_until_it_ends(_unused_ void **state)
{
    resume();
    say_step(41);
    pass(2 * USEC_PER_SEC);
    say_wait(STAGE_LOADING, 42, 3, PROGRESS_WAIT_SEC - 1);
    assert_int_equal(progress().waits_since_usec, 0);
    say_wait(STAGE_LOADING, 42, 3, PROGRESS_WAIT_SEC);
    const uint64_t since_usec = clock_realtime_usec() - PROGRESS_WAIT_SEC * USEC_PER_SEC;
    assert_int_equal(progress().waits_since_usec, since_usec);
    assert_int_equal(progress().step, 41); /* the wait does not change the step */
    assert_int_equal(progress().at_usec, clock_realtime_usec());
    assert_true(progress().loss == 0.5);
    const int64_t version = progress_key()->version;
    pass(2 * USEC_PER_SEC);
    say_wait(STAGE_LOADING, 42, 3, PROGRESS_WAIT_SEC + 1); /* this wait was already reported */
    assert_int_equal(progress_key()->version, version);
    say_wait(STAGE_LOADING, 42, 5, PROGRESS_WAIT_SEC + 2); /* rank 0 now waits for rank 5 */
    assert_int_equal(progress().waits_rank, 5);
    assert_int_equal(progress().waits_since_usec, since_usec);
    pass(2 * USEC_PER_SEC);
    say_step(42);
    assert_int_equal(progress().waits_since_usec, 0);
    assert_int_equal(progress().step, 42);
    pass(2 * USEC_PER_SEC);
    say_wait(STAGE_LOADING, 43, 5, PROGRESS_WAIT_SEC); /* a new wait is reported again */
    assert_int_equal(progress().waits_rank, 5);
    assert_int_equal(progress().waits_since_usec,
                     clock_realtime_usec() - PROGRESS_WAIT_SEC * USEC_PER_SEC);
}

/* All ranks wait for the same rank, so only the wait of rank 0 is written. */
static void waits_of_other_ranks_are_no_progress(_unused_ void **state)
{
    const ChannelMessage wait = {.type = CHANNEL_STAGE,
                                 .stage = STAGE_LOADING,
                                 .step = 1,
                                 .waits_rank = 1,
                                 .waited_usec = 100 * USEC_PER_SEC};
    join(&n1);
    run_world("a", 1, 3, 0);
    writes_message(&n1.machine, 1, wait);
    n1.machine.trainers[1].process->events.heard(n1.machine.trainers[1].process->events.userdata);
    settle();
    pass(2 * USEC_PER_SEC);
    settle();
    assert_null(progress_key());
}

static void a_save_that_all_wait_for_is_told_until_a_step_is_done(_unused_ void **state)
{
    resume();
    say_step(41);
    pass(2 * USEC_PER_SEC);
    say_wait(STAGE_SAVING, 41, 0, PROGRESS_WAIT_SEC + 4);
    const uint64_t since_usec = clock_realtime_usec() - (PROGRESS_WAIT_SEC + 4) * USEC_PER_SEC;
    assert_int_equal(progress().unsaved_since_usec, since_usec);
    assert_string_equal(progress().save_error, "all ranks wait for the save of step 41");
    assert_int_equal(progress().waits_since_usec, 0);
    pass(2 * USEC_PER_SEC);
    say_wait(STAGE_SAVING, 41, 0, PROGRESS_WAIT_SEC + 9);
    assert_int_equal(progress().unsaved_since_usec, since_usec);
    pass(2 * USEC_PER_SEC);
    say_step(42);
    assert_int_equal(progress().unsaved_since_usec, 0);
    assert_string_equal(progress().save_error, "");
}

/* ---- steps ---- */

/* A step's record has all fields of that step, and none of an earlier step. */
static void a_step_is_told_whole(_unused_ void **state)
{
    ChannelMessage step = {.type = CHANNEL_STEP,
                           .step = 41,
                           .steps = 1000,
                           .loss = 0.25,
                           .grad_norm = 1.5,
                           .lr = 0.125,
                           .samples_per_sec = 64,
                           .step_sec = 0.5,
                           .saving_sec = 2,
                           .samples_seen = 4096,
                           .unsaved_since_usec = clock_boottime_usec() - USEC_PER_SEC,
                           .save_error = "it is full",
                           .save_next_bytes = 340,
                           .save_free_bytes = 120,
                           .diverging_since = 30,
                           .diverging = "loss",
                           .metrics_lost = 5,
                           .metrics_lost_first = 11,
                           .metrics_lost_last = 19};
    resume();
    hear(step);
    ProgressRecord record = progress();
    assert_int_equal(record.generation, 2);
    assert_int_equal(record.step, 41);
    assert_int_equal(record.steps, 1000);
    assert_true(record.loss == 0.25 && record.grad_norm == 1.5 && record.lr == 0.125);
    assert_true(record.samples_per_sec == 64 && record.step_sec == 0.5 && record.saving_sec == 2);
    assert_int_equal(record.samples_seen, 4096);
    assert_int_equal(record.at_usec, clock_realtime_usec());
    assert_int_equal(record.unsaved_since_usec, clock_realtime_usec() - USEC_PER_SEC);
    assert_string_equal(record.save_error, "it is full");
    assert_true(record.save_next_bytes == 340 && record.save_free_bytes == 120);
    assert_int_equal(record.diverging_since, 30);
    assert_string_equal(record.diverging, "loss");
    assert_int_equal(record.metrics_lost, 5);
    assert_int_equal(record.metrics_lost_first, 11);
    assert_int_equal(record.metrics_lost_last, 19);
    pass(2 * USEC_PER_SEC);
    say_step(42);
    record = progress();
    assert_string_equal(record.save_error, "");
    assert_string_equal(record.diverging, "");
    assert_true(record.unsaved_since_usec == 0 && record.diverging_since == 0);
    assert_int_equal(record.metrics_lost, 0);
}

/* Progress is written at most once a second, with the newest step. */
static void steps_are_told_once_a_second(_unused_ void **state)
{
    resume();
    say_step(41);
    const int64_t version = progress_key()->version;
    for (int64_t step = 42; step <= 50; step++) {
        pass(USEC_PER_SEC / 10);
        say_step(step);
    }
    assert_int_equal(progress_key()->version, version);
    assert_int_equal(progress().step, 41);
    pass(USEC_PER_SEC / 10);
    settle();
    assert_int_equal(progress_key()->version, version + 1);
    assert_int_equal(progress().step, 50);
    pass(5 * USEC_PER_SEC); /* no new step: no write */
    settle();
    assert_int_equal(progress_key()->version, version + 1);
    say_step(51);
    assert_int_equal(progress().step, 51);
}

/* ---- commits ---- */

/* A commit that waits for an operator must not stop the reports of steps. */
static void steps_are_told_while_a_commit_cannot_be_written(_unused_ void **state)
{
    char world[KEY_MAX], commits[KEY_MAX];
    resume();
    say_step(41);
    pass(2 * USEC_PER_SEC);
    says(&n1.machine, 0, CHANNEL_SAVED, 41);
    answer(under_way(&n1.etcd, key_of("lab", KEY_WORLDS, "a", world)), GIVEN);
    (void)under_way(&n1.etcd, key_of("lab", KEY_CHECKPOINTS, "a", commits));
    (void)put(commits, "{\"v\":1000}", 0); /* a record of a later version comes first */
    settle();
    pass(2 * USEC_PER_SEC);
    say_step(42);
    assert_int_equal(progress().step, 42);
    assert_int_equal(n1.n_committed, 0);
    (void)delete_key(commits);
    pass(2 * USEC_PER_SEC);
    settle();
    assert_int_equal(n1.n_committed, 1);
    expect_mark(2, 41);
    assert_int_equal(progress().step, 42);
}

/* A step is not written while a commit is under way: the step's record would be written after the commit, with the
 * mark from before the commit. */
static void no_step_is_told_while_a_commit_is_under_way(_unused_ void **state)
{
    char world[KEY_MAX], commits[KEY_MAX];
    resume();
    say_step(41);
    pass(2 * USEC_PER_SEC);
    says(&n1.machine, 0, CHANNEL_SAVED, 41);
    answer(under_way(&n1.etcd, key_of("lab", KEY_WORLDS, "a", world)), GIVEN);
    EtcdCall *commit = under_way(&n1.etcd, key_of("lab", KEY_CHECKPOINTS, "a", commits));
    says(&n1.machine, 0, CHANNEL_STEP, 42);
    pass(2 * USEC_PER_SEC);
    assert_int_equal(n_under_way(&n1.etcd), 1);
    answer(commit, GIVEN);
    expect_mark(2, 41);
    assert_int_equal(progress().step, 41);
    settle();
    expect_mark(2, 41);
    assert_int_equal(progress().step, 42);
}

/* The steps that follow a commit are reported after the commit. */
static void steps_are_told_after_a_commit(_unused_ void **state)
{
    resume();
    for (int64_t step = 41; step <= 45; step++) {
        says(&n1.machine, 0, CHANNEL_STEP, step);
        says(&n1.machine, 0, CHANNEL_SAVED, step);
        settle();
        pass(2 * USEC_PER_SEC);
        settle();
        assert_int_equal(progress().step, step);
        expect_mark(2, step);
    }
    assert_int_equal(n1.n_committed, 5);
}

/* A damaged record of commits is overwritten: no history can be read from it, so none is lost. */
static void commits_that_are_damaged_are_written_anew(_unused_ void **state)
{
    char key[KEY_MAX];
    CheckpointsRecord record;
    Error err = ERROR_INIT;
    resume();
    (void)put(key_of("lab", KEY_CHECKPOINTS, "a", key), "{", 0);
    say_saved(41);
    assert_int_equal(n1.n_committed, 1);
    const StoredKey *k = find(key);
    assert_int_equal(checkpoints_record_decode(key, k->value, strlen(k->value), &record, &err), 0);
    assert_int_equal(record.n_commits, 1);
    assert_string_equal(record.submission, submission);
    assert_int_equal(record.commits[0].at_usec, clock_realtime_usec());
    assert_string_equal(record.commits[0].uri, "file:///c/41");
    assert_string_equal(record.commits[0].plans, "00000000000000000000000000000041");
    checkpoints_record_clear(&record);
}

/* A field of a later version stays in the commits of the same submission, and is dropped from those of another
 * submission. */
static void unknown_fields_stay_with_their_job(_unused_ void **state)
{
    char key[KEY_MAX], text[400];
    resume();
    (void)snprintf(text, sizeof(text), "{\"v\":2,\"submission\":\"%s\",\"commits\":[],\"later\":7}",
                   submission);
    (void)put(key_of("lab", KEY_CHECKPOINTS, "a", key), text, 0);
    say_saved(41);
    assert_int_equal(n1.n_committed, 1);
    assert_non_null(strstr(find(key)->value, "\"later\":7"));
    (void)put(
        key,
        "{\"v\":2,\"submission\":\"eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\",\"commits\":[],\"later\":7}",
        0);
    say_saved(42);
    assert_int_equal(n1.n_committed, 2);
    assert_null(strstr(find(key)->value, "later"));
}

static void a_commit_of_a_job_that_was_removed_is_refused(_unused_ void **state)
{
    char key[KEY_MAX];
    resume();
    n1.etcd.is_blind = true;
    remove_job("a");
    say_saved(41);
    assert_int_equal(n1.n_refused, 1);
    assert_null(find(key_of("lab", KEY_CHECKPOINTS, "a", key)));
    assert_killed(&n1, 0, true);
}

/* The checkpoints that were found make one commit, and each later save makes another. */
static void a_save_after_what_was_found_is_one_commit(_unused_ void **state)
{
    char key[KEY_MAX];
    CheckpointsRecord record;
    Error err = ERROR_INIT;
    resume();
    hear((ChannelMessage){
        .type = CHANNEL_FOUND, .step = 41, .made_by = 1, .more = true, .uri = "file:///c/41"});
    hear((ChannelMessage){.type = CHANNEL_FOUND, .step = 42, .made_by = 1, .uri = "file:///c/42"});
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(n1.n_committed, 1);
    for (int64_t step = 50; step < 50 + 2 * RECORD_COMMITS_MAX; step++)
        say_saved(step);
    const StoredKey *k = find(key_of("lab", KEY_CHECKPOINTS, "a", key));
    assert_int_equal(checkpoints_record_decode(key, k->value, strlen(k->value), &record, &err), 0);
    assert_int_equal(record.n_commits, RECORD_COMMITS_MAX);
    for (int i = 0; i < RECORD_COMMITS_MAX; i++)
        assert_int_equal(record.commits[i].step, 50 + RECORD_COMMITS_MAX + i);
    checkpoints_record_clear(&record);
    assert_int_equal(told(&n1, 0, CHANNEL_COMMITTED), 1 + 2 * RECORD_COMMITS_MAX);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_commit_before_the_first_step_is_at_the_step_of_its_world),
        CASE(a_wait_before_the_first_step_keeps_what_is_committed),
        CASE(a_wait_is_told_when_it_is_long_and_until_it_ends),
        CASE(waits_of_other_ranks_are_no_progress),
        CASE(a_save_that_all_wait_for_is_told_until_a_step_is_done),
        CASE(a_step_is_told_whole),
        CASE(steps_are_told_once_a_second),
        CASE(steps_are_told_while_a_commit_cannot_be_written),
        CASE(no_step_is_told_while_a_commit_is_under_way),
        CASE(steps_are_told_after_a_commit),
        CASE(commits_that_are_damaged_are_written_anew),
        CASE(unknown_fields_stay_with_their_job),
        CASE(a_commit_of_a_job_that_was_removed_is_refused),
        CASE(a_save_after_what_was_found_is_one_commit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
