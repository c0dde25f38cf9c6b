/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-over.c - what a node reports of worlds that are over: when their ranks are dead, beside the reports of
 * the next world, and when the job is deleted. */
#include "daemon/test/testing-node.h"
#include "protocol/exit-code.h"

#include <signal.h>
#include <string.h>

/* The world has moved a second time, unseen by the node: the report of the dead ranks is refused, and then written
 * again. */
static void the_dead_are_told_again_under_the_next_world(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    const int64_t first = find("/sdtrain/lab/worlds/a")->modified;
    (void)decide("a", 2, 0, 1);
    settle();
    n1.etcd.is_blind = true;
    (void)decide("a", 3, 0, 2);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(killed_of(&n1, "a", 1), 0); /* the report was refused */
    n1.etcd.is_blind = false;
    settle();
    RanksRecord record = report_of(&n1, "a", 1);
    assert_true(record.killed_usec != 0);
    assert_int_equal(record.world_revision, first); /* the revision of the report's world */
    assert_int_equal(record.generation, 1);
    ranks_record_clear(&record);
}

/* A world ends, and its ranks die, while its last report is under way. */
static void
a_report_that_is_refused_at_its_end_is_written_under_the_new_guard(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    says(&n1.machine, 0, CHANNEL_STEP, 1);
    EtcdCall *late = under_way(&n1.etcd, report_key(&n1, "a", 1)->key);
    (void)decide("a", 2, 0, 1);
    show(&n1.etcd);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    answer(late, GIVEN);
    settle();
    assert_true(killed_of(&n1, "a", 1) != 0);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
}

static void one_that_finishes_and_one_that_dies_have_not_finished(_unused_ void **state)
{
    ChannelMessage done = {.type = CHANNEL_DONE, .step = 7, .end = "finished"};
    join(&n1);
    run_world("a", 1, 3, 0);
    writes_message(&n1.machine, 0, done);
    dies(&n1.machine, 0);
    n1.machine.trainers[1].status = -SIGSEGV;
    dies(&n1.machine, 1);
    settle();
    RanksRecord record = report_of(&n1, "a", 1);
    assert_int_equal(record.ranks[0].exit_code, EXIT_DONE);
    assert_false(record.finished || record.left);
    ranks_record_clear(&record);
}

/* Ranks whose slots never became free are reported as exited when their world is over. */
static void ranks_that_never_started_have_ended_with_their_world(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)decide("a", 2, 3, 0);
    settle();
    (void)decide("a", 3, 0, 1);
    settle();
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(n1.machine.n_started, 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(state_of(&n1, "a", 2, i), RANK_EXITED);
    assert_true(killed_of(&n1, "a", 2) != 0);
    LocalJob *job = job_find(&n1.manager->workload, "a");
    assert_true(!job || !job->over); /* both worlds are reported */
}

/* The world's record is put once more, unchanged. The reports of both worlds have the same key, and only the new
 * world is reported under that key. */
static void a_world_that_was_put_once_more_is_reported_alone(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    _cleanup_free_ char *same = strdup(find(key_of("lab", KEY_WORLDS, "a", key))->value);
    const int64_t again = put(key, same, 0);
    settle();
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(n1.machine.n_started, 4);
    RanksRecord record = report_of(&n1, "a", 1);
    assert_int_equal(record.world_revision, again);
    assert_true(record.killed_usec != 0);
    ranks_record_clear(&record);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(state_of(&n1, "a", 1, i), RANK_STARTING);
    assert_null(job_find(&n1.manager->workload, "a")->over);
    (void)put(key, same, 0); /* the next put ends this world before it was reported */
    const int64_t last = put(key, same, 0);
    settle();
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    record = report_of(&n1, "a", 1);
    assert_int_equal(record.world_revision, last);
    ranks_record_clear(&record);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_STARTING);
    assert_null(job_find(&n1.manager->workload, "a")->over);
}

/* A job is submitted again under its name: its first world's reports have the same key as those of the earlier job. */
static void the_first_world_of_a_job_submitted_again_is_reported_alone(_unused_ void **state)
{
    char key[KEY_MAX], report[KEY_MAX];
    bool is_reported = false;
    WorldRun run = {.node = "n1", .incarnation = n1.incarnation, .slots = 3};
    WorldRecord world = {.generation = 1, .size = 2, .runs = &run, .n_runs = 1};
    memset(world.submission, 'f', SUBMISSION_BYTES - 1);
    join(&n1);
    run_world("a", 1, 3, 0);
    n1.machine.trainers[0].status = n1.machine.trainers[1].status = 1;
    dies(&n1.machine, 0);
    dies(&n1.machine, 1); /* etcd does not know yet that both ranks have ended */
    (void)delete_key(report_key(&n1, "a", 1)->key);
    (void)delete_key(key_of("lab", KEY_WORLDS, "a", key));
    _cleanup_free_ char *text = world_record_encode(&world, NULL);
    const int64_t revision = put(key_of("lab", KEY_WORLDS, "a", key), text, 0);
    show(&n1.etcd); /* shows both changes at once */
    (void)key_ranks("lab", "a", 1, "n1", report);
    while (is_under_way(&n1.etcd, report)) {
        answer(under_way(&n1.etcd, report), GIVEN);
        if (!find(report))
            continue;
        RanksRecord now = report_of(&n1, "a", 1);
        is_reported |= now.world_revision == revision;
        assert_true(!is_reported || now.world_revision == revision);
        ranks_record_clear(&now);
    }
    settle();
    assert_int_equal(n1.machine.n_started, 4);
    RanksRecord record = report_of(&n1, "a", 1);
    assert_int_equal(record.world_revision, revision);
    assert_true(record.killed_usec != 0);
    ranks_record_clear(&record);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_STARTING);
    assert_null(job_find(&n1.manager->workload, "a")->over);
}

/* A report under way says that a rank of an older world lives. If etcd executed this report after the report that the
 * older ranks are dead, the rank would seem to live again. So the dead ranks are reported after the answer to it. */
static void older_ranks_are_told_dead_after_what_was_on_its_way(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    dies(&n1.machine, 0);
    EtcdCall *late = under_way(&n1.etcd, report_key(&n1, "a", 1)->key);
    (void)decide("a", 2, 1, 0);
    show(&n1.etcd);
    dies(&n1.machine, 1);
    char key[KEY_MAX];
    (void)key_ranks("lab", "a", 2, "n1", key);
    while (is_under_way(&n1.etcd, key))
        answer(under_way(&n1.etcd, key), GIVEN);
    assert_int_equal(killed_of(&n1, "a", 2), 0);
    answer(late, GIVEN);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_EXITED);
    assert_true(killed_of(&n1, "a", 2) != 0);
}

/* The answer to an earlier report is lost, and etcd may still execute that report. Until its outcome is known, the
 * older ranks are not reported as dead. */
static void older_ranks_are_told_dead_after_what_may_still_come(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    dies(&n1.machine, 0);
    (void)snprintf(key, sizeof(key), "%s", report_key(&n1, "a", 1)->key);
    answer(under_way(&n1.etcd, key), LATE);
    (void)decide("a", 2, 1, 0);
    show(&n1.etcd);
    dies(&n1.machine, 1);
    (void)key_ranks("lab", "a", 2, "n1", key);
    while (is_under_way(&n1.etcd, key))
        answer(under_way(&n1.etcd, key), GIVEN);
    assert_int_equal(killed_of(&n1, "a", 2), 0);
    come_late();
    pass(5 * USEC_PER_SEC);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_EXITED);
    assert_true(killed_of(&n1, "a", 2) != 0);
}

/* Etcd has the last report of the world's ranks: nothing is written again for a job that is deleted. */
static void a_world_whose_end_was_told_goes_with_its_job(_unused_ void **state)
{
    char key[KEY_MAX], report[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    (void)snprintf(report, sizeof(report), "%s", report_key(&n1, "a", 1)->key);
    (void)delete_key(report);
    (void)delete_key(key_of("lab", KEY_WORLDS, "a", key));
    (void)delete_key(key_of("lab", KEY_PHASES, "a", key));
    settle();
    workload_advance(&n1.manager->workload);
    settle();
    assert_true(!find(report) || !find(report)->value);
    assert_true(!job_find(&n1.manager->workload, "a") ||
                !job_find(&n1.manager->workload, "a")->over);
}

/* The world's record is removed before the end of the last rank is reported. The end is reported all the same, since
 * the client that deletes the job waits for it. */
static void an_end_that_was_not_told_is_told_after_the_world(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    dies(&n1.machine, 0);
    EtcdCall *first = under_way(&n1.etcd, report_key(&n1, "a", 1)->key);
    dies(&n1.machine, 1);
    answer(first, GIVEN);
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_READY);
    (void)delete_key(key_of("lab", KEY_WORLDS, "a", key));
    answer(under_way(&n1.etcd, report_key(&n1, "a", 1)->key),
           GIVEN); /* refused: there is no world */
    show(&n1.etcd);
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_EXITED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_dead_are_told_again_under_the_next_world),
        CASE(a_report_that_is_refused_at_its_end_is_written_under_the_new_guard),
        CASE(one_that_finishes_and_one_that_dies_have_not_finished),
        CASE(ranks_that_never_started_have_ended_with_their_world),
        CASE(a_world_that_was_put_once_more_is_reported_alone),
        CASE(the_first_world_of_a_job_submitted_again_is_reported_alone),
        CASE(older_ranks_are_told_dead_after_what_was_on_its_way),
        CASE(older_ranks_are_told_dead_after_what_may_still_come),
        CASE(a_world_whose_end_was_told_goes_with_its_job),
        CASE(an_end_that_was_not_told_is_told_after_the_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
