/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-history.c - what a node stores on its disk about etcd's history and its jobs, across restarts. */
#include "daemon/test/testing-node.h"

#include <string.h>

static HistoryRecord on_disk(void)
{
    HistoryRecord record;
    Error err = ERROR_INIT;
    assert_non_null(n1.file);
    if (history_record_decode("history.json", n1.file, strlen(n1.file), &record, &err) < 0)
        fail_msg("%s", err.text);
    return record;
}

static const JobRun *run_of(const HistoryRecord *record, const char *job)
{
    for (size_t i = 0; i < record->n_runs; i++)
        if (strcmp(record->runs[i].job, job) == 0)
            return &record->runs[i];
    return NULL;
}

static void save_step(int64_t step)
{
    says(&n1.machine, 0, CHANNEL_SAVED, step);
    settle();
}

/* Restores etcd from a snapshot, and starts the node's daemon anew. */
static void restore(void)
{
    const EtcdHistory was = {.cluster = 1, .revision = 200}, now = {.cluster = 1, .revision = 50};
    n1.etcd.history = now;
    n1.etcd.on_history(&was, &now, n1.etcd.userdata);
    restart(&n1, n1.incarnation + 1);
    settle();
    grant(&n1.etcd);
    settle();
}

/* All 64 bits of a cluster's id survive a restart. */
static void the_cluster_is_known_after_a_restart(_unused_ void **state)
{
    const uint64_t cluster = UINT64_C(0xfedcba9876543210);
    join(&n1);
    n1.etcd.history = (EtcdHistory){.cluster = cluster, .revision = 4711};
    run_world("a", 1, 1, 0);
    n1.etcd.history = (EtcdHistory){0};
    restart(&n1, 50);
    assert_true(n1.etcd.history.cluster == cluster);
    assert_int_equal(n1.etcd.history.revision, 4711);
}

/* A known cluster id is kept when etcd's client reports none: before etcd's first answer a client knows no id. */
static void a_cluster_that_is_not_named_is_kept(_unused_ void **state)
{
    join(&n1);
    n1.etcd.history = (EtcdHistory){.cluster = 0xab, .revision = 300};
    run_world("a", 1, 1, 0);
    n1.etcd.history.cluster = 0;
    save_step(10);
    assert_string_equal(on_disk().cluster, "ab");
}

/* Each world and each commit is written at once, since a killed process writes nothing at its end. */
static void each_world_and_each_commit_is_on_the_disk_at_once(_unused_ void **state)
{
    join(&n1);
    run_world("a", 4, 1, 0);
    HistoryRecord record = on_disk();
    assert_int_equal(run_of(&record, "a")->generation, 4);
    assert_int_equal(run_of(&record, "a")->committed.step, 0);
    save_step(10);
    save_step(20);
    record = on_disk();
    assert_int_equal(run_of(&record, "a")->committed.generation, 4);
    assert_int_equal(run_of(&record, "a")->committed.step, 20);
    assert_string_equal(run_of(&record, "a")->submission, submission);
    assert_false(run_of(&record, "a")->told);
}

static void what_was_refused_is_no_commit(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    save_step(10);
    n1.etcd.is_blind = true;
    (void)decide("a", 2, 0, 1);
    save_step(20);
    assert_int_equal(n1.n_refused, 1);
    const HistoryRecord record = on_disk();
    assert_int_equal(run_of(&record, "a")->committed.step, 10);
    assert_int_equal(n1.manager->history.record.runs[0].committed.step, 10);
}

static void an_older_commit_does_not_replace_a_newer_one(_unused_ void **state)
{
    History *history;
    join(&n1);
    run_world("a", 3, 1, 0);
    save_step(20);
    history = &n1.manager->history;
    history_note_commit(history, "a", submission, (CommitMark){.generation = 3, .step = 10});
    history_note_commit(history, "a", submission, (CommitMark){.generation = 2, .step = 90});
    assert_int_equal(history->record.runs[0].committed.generation, 3);
    assert_int_equal(history->record.runs[0].committed.step, 20);
}

/* After a restore the node reports its jobs, through any number of restarts, until the leader starts a newer
 * generation. */
static void what_is_told_is_told_until_a_world_lies_beyond(_unused_ void **state)
{
    join(&n1);
    run_world("a", 7, 1, 0);
    save_step(10);
    assert_int_equal(node_record(&n1).n_runs, 0);
    remove_job("a");
    restore();
    assert_int_equal(node_record(&n1).n_runs, 1);
    (void)delete_key(node_key(&n1)->key);
    restart(&n1, n1.incarnation + 1);
    settle();
    grant(&n1.etcd);
    settle();
    assert_int_equal(node_record(&n1).n_runs, 1);
    assert_int_equal(node_record(&n1).runs[0].generation, 7);
    assert_int_equal(node_record(&n1).runs[0].committed.step, 10);
    (void)decide("a", 7, 1, 0); /* generation 7 is not newer than the reported generation */
    settle();
    assert_int_equal(node_record(&n1).n_runs, 1);
    n1.machine.trainers[0].killed = true;
    (void)decide("a", 8, 1, 0);
    settle();
    assert_int_equal(node_record(&n1).n_runs, 0);
    const HistoryRecord record = on_disk();
    assert_false(run_of(&record, "a")->told);
}

/* After a restore all jobs are reported; a new world of one job ends only the report of that job. */
static void each_job_is_told_by_itself(_unused_ void **state)
{
    submit("ab");
    join(&n1);
    run_world("ab", 3, 2, 0);
    run_world("a", 7, 1, 0);
    remove_job("a");
    remove_job("ab");
    restore();
    assert_int_equal(node_record(&n1).n_runs, 2);
    (void)decide("a", 8, 1, 0);
    settle();
    assert_int_equal(node_record(&n1).n_runs, 1);
    assert_string_equal(node_record(&n1).runs[0].job, "ab");
    assert_int_equal(node_record(&n1).runs[0].generation, 3);
}

/* The node keeps as many jobs as a record holds; a further job replaces the oldest. */
static void the_oldest_of_many_jobs_is_forgotten(_unused_ void **state)
{
    char name[8];
    join(&n1);
    History *history = &n1.manager->history;
    for (int i = 0; i <= RECORD_RUNS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "j%d", i);
        history_note_world(history, name, submission, 10 + i);
    }
    const HistoryRecord record = on_disk();
    assert_int_equal(record.n_runs, RECORD_RUNS_MAX);
    for (int i = 0; i < RECORD_RUNS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "j%d", i + 1);
        assert_string_equal(record.runs[i].job, name);
        assert_int_equal(record.runs[i].generation, 11 + i);
    }
    history_note_world(history, "j3", submission, 99); /* j3 is kept already: no job is replaced */
    assert_int_equal(history->record.n_runs, RECORD_RUNS_MAX);
    assert_non_null(run_of(&history->record, "j1"));
}

static const char *running = ""; /* names of running jobs, each followed by a space */

static bool runs(_unused_ void *userdata, const char *job)
{
    char word[16];
    (void)snprintf(word, sizeof(word), "%s ", job);
    return strstr(running, word) != NULL;
}

/* In a full table running jobs stay, however old they are, and a job without a place is not kept. */
static void a_job_that_runs_is_not_forgotten_for_another(_unused_ void **state)
{
    char name[8];
    join(&n1);
    History *history = &n1.manager->history;
    history->needs.runs = runs;
    running = "j0 j1 j3 ";
    for (int i = 0; i < RECORD_RUNS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "j%d", i);
        history_note_world(history, name, submission, 10 + i);
    }
    history_note_world(history, "k0", submission, 1);
    history_note_commit(history, "k1", submission, (CommitMark){.generation = 1, .step = 5});
    HistoryRecord record = on_disk();
    assert_int_equal(record.n_runs, RECORD_RUNS_MAX);
    assert_int_equal(run_of(&record, "j0")->generation, 10);
    assert_int_equal(run_of(&record, "j1")->generation, 11);
    assert_int_equal(run_of(&record, "j3")->generation, 13);
    assert_null(run_of(&record, "j2"));
    assert_null(run_of(&record, "j4"));
    assert_string_equal(record.runs[RECORD_RUNS_MAX - 2].job, "k0");
    assert_string_equal(record.runs[RECORD_RUNS_MAX - 1].job, "k1");

    running = "j0 j1 j3 j5 j6 j7 k0 k1 ";
    history_note_world(history, "l", submission, 1);
    history_note_commit(history, "l", submission, (CommitMark){.generation = 1, .step = 5});
    const HistoryRecord later = on_disk();
    assert_memory_equal(&later.runs, &record.runs, sizeof(record.runs));
    history_note_world(history, "k1", submission, 7); /* a job that is kept is still updated */
    history_note_world(history, "j0", "fedcba9876543210fedcba9876543210", 2);
    record = on_disk();
    assert_int_equal(run_of(&record, "k1")->generation, 7);
    assert_int_equal(run_of(&record, "j0")->generation, 2);
    assert_int_equal(record.n_runs, RECORD_RUNS_MAX);
}

/* The Manager counts every job that has a world as running. */
static void a_world_holds_its_jobs_place(_unused_ void **state)
{
    char name[8];
    join(&n1);
    History *history = &n1.manager->history;
    run_world("a", 3, 1, 0);
    for (int i = 0; i < 2 * RECORD_RUNS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "j%d", i);
        history_note_world(history, name, submission, 1);
    }
    const HistoryRecord record = on_disk();
    assert_int_equal(record.n_runs, RECORD_RUNS_MAX);
    assert_int_equal(run_of(&record, "a")->generation, 3);
    assert_null(run_of(&record, "j8"));
}

/* A new submission of a job begins with its own generations and no commit; the other jobs stay in their order. */
static void a_job_that_is_submitted_again_begins_at_nothing(_unused_ void **state)
{
    join(&n1);
    History *history = &n1.manager->history;
    history_note_world(history, "x", submission, 1);
    history_note_world(history, "a", submission, 9);
    history_note_commit(history, "a", submission, (CommitMark){.generation = 9, .step = 70});
    history_note_world(history, "y", submission, 2);
    history_note_world(history, "a", "fedcba9876543210fedcba9876543210", 1);
    const HistoryRecord record = on_disk();
    assert_int_equal(record.n_runs, 3);
    assert_string_equal(record.runs[0].job, "x");
    assert_string_equal(record.runs[1].job, "y");
    assert_int_equal(record.runs[1].generation, 2);
    assert_string_equal(record.runs[2].job, "a");
    assert_int_equal(record.runs[2].generation, 1);
    assert_int_equal(record.runs[2].committed.step, 0);
}

static void a_file_that_is_damaged_is_none(_unused_ void **state)
{
    n1.file = strdup("{\"cluster\": \"ab\", \"runs\": [");
    join(&n1);
    assert_int_equal(node_record(&n1).n_runs, 0);
    run_world("a", 1, 1, 0);
    const HistoryRecord record = on_disk();
    assert_int_equal(record.n_runs, 1);
    assert_int_equal(run_of(&record, "a")->generation, 1);
}

/* A node without a state folder stores nothing, and still runs. */
static void without_a_folder_nothing_is_written(_unused_ void **state)
{
    memset(n1.config.state_dir, 0, sizeof(n1.config.state_dir));
    join(&n1);
    run_world("a", 1, 1, 0);
    save_step(10);
    assert_null(n1.file);
    assert_int_equal(n1.n_committed, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_cluster_is_known_after_a_restart),
        CASE(a_cluster_that_is_not_named_is_kept),
        CASE(each_world_and_each_commit_is_on_the_disk_at_once),
        CASE(what_was_refused_is_no_commit),
        CASE(an_older_commit_does_not_replace_a_newer_one),
        CASE(what_is_told_is_told_until_a_world_lies_beyond),
        CASE(each_job_is_told_by_itself),
        CASE(the_oldest_of_many_jobs_is_forgotten),
        CASE(a_job_that_runs_is_not_forgotten_for_another),
        CASE(a_world_holds_its_jobs_place),
        CASE(a_job_that_is_submitted_again_begins_at_nothing),
        CASE(a_file_that_is_damaged_is_none),
        CASE(without_a_folder_nothing_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
