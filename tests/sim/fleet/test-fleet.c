/* SPDX-License-Identifier: Apache-2.0 */
/* test-fleet.c - production controllers and daemons in one process, in virtual time: a job runs
 * through a fault and ends. */
#include "base/log.h"
#include "base/test/testing.h"
#include "controller/core/step/survey.h"
#include "tests/sim/fleet/fleet.h"
#include "tests/sim/seams/loop.h"

#include <string.h>

static const FleetOptions usual = {
    .seed = 1, .n_members = 3, .n_controllers = 2, .n_nodes = 3, .n_slots = 2};

/* Submits a job once the controllers know each node, so that its first world need not grow. */
static void submit(int max, int64_t steps)
{
    fleet_run_for(5);
    fleet_submit("a", 1, max, steps);
}

static void a_job_succeeds(_unused_ void **state)
{
    fleet_open(&usual);
    submit(4, 100);
    assert_true(fleet_run_until("a", PHASE_SUCCEEDED, 120));
    assert_int_equal(fleet_generation("a"), 1);
    assert_int_equal(fleet_committed("a"), 100);
    fleet_close();
}

static void it_survives_a_leader(_unused_ void **state)
{
    fleet_open(&usual);
    submit(6, 400);
    assert_true(fleet_run_until_committed("a", 50, 120));
    const int first = fleet_leader();
    assert_true(first >= 0);
    fleet_kill_controller(first);
    assert_true(fleet_run_until("a", PHASE_SUCCEEDED, 300));
    assert_int_equal(fleet_leader(), 1 - first);
    assert_int_equal(fleet_generation("a"), 1); /* training was not interrupted */
    fleet_close();
}

static void it_survives_a_daemon(_unused_ void **state)
{
    fleet_open(&usual);
    submit(6, 400);
    assert_true(fleet_run_until_committed("a", 50, 120));
    fleet_kill_daemon(1);
    assert_true(fleet_run_until_committed("a", 100, 120));
    const int64_t generation = fleet_generation("a");
    assert_true(generation > 1);
    fleet_start_daemon(1);
    assert_true(fleet_run_until("a", PHASE_SUCCEEDED, 300));
    assert_true(fleet_generation("a") >= generation);
    assert_int_equal(fleet_committed("a"), 400);
    fleet_close();
}

/* A stranger writes a node's record four times a second, for twenty seconds; meanwhile a leader is
 * killed. The job trains on. */
static void it_survives_a_stranger(_unused_ void **state)
{
    fleet_open(&usual);
    submit(6, 1000);
    assert_true(fleet_run_until_committed("a", 50, 120));
    fleet_let_stranger_in();
    fleet_run_for(1);
    for (int i = 0; i < 80; i++) {
        fleet_forge_node(1);
        fleet_run(loops_now_usec() + 250 * USEC_PER_MSEC);
        if (i == 40)
            fleet_kill_controller(fleet_leader());
        assert_int_equal(fleet_generation("a"), 1);
    }
    _cleanup_free_ char *text = fleet_read(KEY_NODES, fleet_node_name(1));
    assert_non_null(strstr(text, "\"stranger_lease\":"));
    const int leader = fleet_leader();
    assert_true(leader >= 0);
    const IncidentRecord *incident = NULL, *record;
    for (int i = 0; cluster_survey_incident(fleet_core(leader), i, &record); i++)
        if (record && strcmp(record->cause, "node-contested") == 0)
            incident = record;
    assert_non_null(incident);
    assert_string_equal(incident->node, fleet_node_name(1));
    assert_int_equal(incident->state, INCIDENT_OPEN);
    fleet_run_for(40); /* longer than three times the lease of ten seconds */
    assert_int_equal(incident->state, INCIDENT_RESOLVED);
    assert_true(fleet_run_until("a", PHASE_SUCCEEDED, 300));
    assert_int_equal(fleet_generation("a"), 1);
    fleet_close();
}

/* A rank that exits with status 0 (for example because a library calls exit()) without a report
 * that it is done counts as failed. */
static void a_rank_that_ends_without_a_word_is_not_done(_unused_ void **state)
{
    fleet_open(&usual);
    submit(6, 100);
    assert_true(fleet_run_until_committed("a", 50, 120));
    assert_true(trainer_exit(1, 0, 0, NULL));
    assert_true(fleet_run_until("a", PHASE_SUCCEEDED, 300));
    assert_int_equal(fleet_committed("a"), 100);
    assert_int_equal(fleet_generation("a"), 2);
    const IncidentRecord *incident = cluster_find_incident(fleet_core(fleet_leader()), "a-1");
    assert_non_null(incident);
    assert_non_null(strstr(incident->evidence, "exited 0 without having said that it was done"));
    assert_string_equal(incident->node, fleet_node_name(1));
    fleet_close();
}

static uint64_t play(uint64_t seed)
{
    FleetOptions options = usual;
    options.seed = seed;
    fleet_open(&options);
    submit(6, 200);
    (void)fleet_run_until_committed("a", 20, 120);
    fleet_kill_daemon((int)(seed % 3));
    (void)fleet_run_until_committed("a", 60, 120);
    fleet_kill_controller(fleet_leader());
    fleet_start_daemon((int)(seed % 3));
    assert_true(fleet_run_until("a", PHASE_SUCCEEDED, 300));
    const uint64_t digest = fleet_digest();
    fleet_close();
    return digest;
}

static void a_seed_has_one_history(_unused_ void **state)
{
    for (uint64_t seed = 1; seed <= 5; seed++)
        assert_int_equal(play(seed), play(seed));
    assert_int_not_equal(play(1), play(2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_job_succeeds),
                                       cmocka_unit_test(it_survives_a_leader),
                                       cmocka_unit_test(it_survives_a_daemon),
                                       cmocka_unit_test(it_survives_a_stranger),
                                       cmocka_unit_test(
                                           a_rank_that_ends_without_a_word_is_not_done),
                                       cmocka_unit_test(a_seed_has_one_history)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
