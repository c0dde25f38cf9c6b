/* SPDX-License-Identifier: Apache-2.0 */
/* test-leaders.c - situations of a leader that no schedule draws, in a whole cluster and in virtual
 * time. */
#include "base/fault.h"
#include "base/memory.h"
#include "base/test/testing.h"
#include "controller/core/step/survey.h"
#include "protocol/exit-code.h"
#include "tests/sim/fleet/fleet.h"
#include "tests/sim/seams/loop.h"

#include <errno.h>
#include <string.h>

enum {
    LEASE_SEC = 10,
    /* a leader that lives this long has shown that it can work with the records */
    PROOF_SEC = 3 * LEASE_SEC
};

static const FleetOptions usual = {
    .seed = 1, .n_members = 3, .n_controllers = 4, .n_nodes = 3, .n_slots = 2};

static const FleetJob small = {.name = "a",
                               .min = 1,
                               .max = 2,
                               .max_failures = 9,
                               .grow_interval_sec = 600,
                               .store_patience_sec = 600,
                               .plan = {.steps = 100000,
                                        .save_steps = 10,
                                        .step_usec = 100 * USEC_PER_MSEC,
                                        .save_usec = 20 * USEC_PER_MSEC,
                                        .restore_usec = 200 * USEC_PER_MSEC}};

/* Ends a case: no rule may have been broken. */
static void end(void)
{
    const Breach *breach = books_broken();
    if (breach)
        fail_msg("%s: %s", breach->invariant, breach->text);
    fleet_close();
}

static void begin(const FleetOptions *options)
{
    fleet_open(options);
    fleet_submit_job(&small);
    assert_true(fleet_run_until_committed("a", 20, 120));
}

/* ---- leaders that die one after the other ---- */

/* Returns the controller that leads, or that is the first candidate and stands still; -1: no such
 * controller within limit_sec. */
static int next_leader(int limit_sec)
{
    for (int i = 0; i < 10 * limit_sec; i++) {
        for (int c = 0; c < usual.n_controllers; c++)
            if (fleet_leader() == c || fleet_stands_still(c))
                return c;
        fleet_run(loops_now_usec() + 100 * USEC_PER_MSEC);
    }
    return -1;
}

static void wait_for_leader(int controller, int limit_sec)
{
    for (int i = 0; i < 100 * limit_sec && fleet_leader() != controller; i++)
        fleet_run(loops_now_usec() + 10 * USEC_PER_MSEC);
    assert_int_equal(fleet_leader(), controller);
}

/* Two leaders die on the same records. Returns the third leader, which stands still. */
static int begin_deaths(void)
{
    for (int i = 0; i < 2; i++) {
        const int leader = next_leader(30);
        assert_int_equal(fleet_leader(), leader);
        fleet_kill_controller(leader);
    }
    const int third = next_leader(30);
    assert_true(third >= 0);
    assert_true(fleet_stands_still(third));
    assert_int_equal(fleet_leader(), -1);
    return third;
}

static int begin_standstill(void)
{
    begin(&usual);
    return begin_deaths();
}

static void who_comes_after_two_deaths_waits(_unused_ void **state)
{
    const int third = begin_standstill();
    const int64_t committed = fleet_committed("a");
    fleet_run_for(PROOF_SEC - 2);
    assert_true(fleet_stands_still(third));
    wait_for_leader(third, 4);
    assert_true(fleet_committed("a") > committed); /* training was not interrupted */
    assert_int_equal(fleet_generation("a"), 1);
    end();
}

/* A leader that stands still decides nothing, so its death does not count against the records. A
 * third death of a deciding leader doubles the pause. The job is at rest here, because a leader
 * notes the newest commit of a training job, which would be a decision. */
static void each_further_death_doubles_the_pause(_unused_ void **state)
{
    begin(&usual);
    fleet_want(&small, DESIRED_STOPPED, 0);
    assert_true(fleet_run_until("a", PHASE_STOPPED, 10));
    const int third = begin_deaths();
    fleet_kill_controller(third);
    const int fourth = next_leader(30);
    assert_true(fourth >= 0 && fleet_stands_still(fourth));
    fleet_start_controller(third);
    wait_for_leader(fourth, PROOF_SEC + 2);
    fleet_kill_controller(fourth); /* killed before its first decision */
    assert_int_equal(next_leader(30), third);
    assert_true(fleet_stands_still(third));
    fleet_run_for(2 * PROOF_SEC - 2);
    assert_int_equal(fleet_leader(), -1);
    wait_for_leader(third, 4);
    end();
}

static void settings_that_are_read_again_end_it(_unused_ void **state)
{
    ClusterConfig core = cluster_config_default;
    const int third = begin_standstill();
    core.max_strikes++;
    fleet_configure(third, &core);
    fleet_run_for(1);
    assert_int_equal(fleet_leader(), third);
    assert_false(fleet_stands_still(third));
    end();
}

static void records_that_change_end_it(_unused_ void **state)
{
    const int third = begin_standstill();
    fleet_want(&small, DESIRED_STOPPED, 0);
    assert_true(fleet_run_until("a", PHASE_STOPPED, 10));
    assert_int_equal(fleet_leader(), third);
    end();
}

/* ---- transactions ---- */

static const char *struck; /* the fault point that is to fail once; NULL: it has failed already */

static int strike_once(const char *point)
{
    if (!struck || strcmp(point, struck) != 0)
        return 0;
    struck = NULL;
    return -EIO;
}

/* A transaction fails before or after it is written. Reading everything again shows whether it was
 * written: in the end there is one world, which is told to go once. */
static void a_decision_that_fails_is_made_again(_unused_ void **state)
{
    static const char *const points[] = {"decide.world.before", "decide.world.after",
                                         "decide.phase.before", "decide.phase.after"};
    fault_lend(strike_once);
    for (size_t i = 0; i < ELEMENTSOF(points); i++) {
        struck = points[i];
        begin(&usual);
        assert_null(struck);
        assert_int_equal(fleet_generation("a"), 1);
        end();
    }
    fault_lend(NULL);
}

/* ---- records ---- */

static void put_request(const char *id, const char *kind, const char *target)
{
    RequestRecord request = {.at_usec = loops_now_usec()};
    (void)snprintf(request.id, sizeof(request.id), "%s", id);
    (void)snprintf(request.kind, sizeof(request.kind), "%s", kind);
    (void)snprintf(request.target, sizeof(request.target), "%s", target);
    _cleanup_free_ char *text = request_record_encode(&request, NULL);
    fleet_put_by_hand(KEY_REQUESTS, id, 0, text);
}

static void expect_answer(const char *id, const char *answer)
{
    RequestRecord request;
    _cleanup_free_ char *text = fleet_read(KEY_REQUESTS, id);
    assert_non_null(text);
    assert_int_equal(request_record_decode(id, text, strlen(text), &request, NULL), 0);
    assert_string_equal(request.answer, answer);
    request_record_clear(&request);
}

static void requests_are_answered_and_go(_unused_ void **state)
{
    begin(&usual);
    put_request("r1", "checkpoint", "x");
    put_request("r2", "checkpoint", "a");
    put_request("r3", "check", "n1");
    put_request("r4", "recover", "a");
    fleet_run_for(2);
    expect_answer("r1", "refused: there is no such job");
    expect_answer("r2", "rank 0 saves after its present step"); /* the node's answer */
    expect_answer("r3", "healthy");
    expect_answer("r4", "refused: the job runs");
    fleet_want(&small, DESIRED_STOPPED, 0);
    assert_true(fleet_run_until("a", PHASE_STOPPED, 60));
    fleet_run_for(3601);
    assert_null(fleet_read(KEY_REQUESTS, "r1"));
    assert_null(fleet_read(KEY_REQUESTS, "r2"));
    end();
}

static int incidents(void)
{
    const IncidentRecord *incident;
    int n = 0;
    for (int i = 0; cluster_survey_incident(fleet_core(fleet_leader()), i, &incident); i++)
        n += incident != NULL;
    return n;
}

/* At most incidents_kept resolved incidents are kept: the oldest are removed. */
static void old_incidents_go(_unused_ void **state)
{
    FleetOptions options = usual;
    options.limits =
        (ClusterLimits){.nodes = 8, .jobs = 4, .reports = 32, .incidents = 2, .requests = 16};
    options.core = cluster_config_default;
    options.core.incidents_kept = 1;
    begin(&options);
    for (int i = 1; i <= 3; i++) {
        const int64_t generation = fleet_generation("a");
        int node = 0;
        while (!trainer_exit(node, 0, EXIT_RETRY, "once more"))
            node++;
        for (int k = 0; k < 60 && fleet_generation("a") == generation; k++)
            fleet_run_for(1);
        assert_int_equal(fleet_generation("a"), generation + 1);
        assert_true(fleet_run_until_committed("a", fleet_committed("a") + 20, 60));
    }
    assert_int_equal(incidents(), 1);
    assert_null(fleet_read(KEY_INCIDENTS, "a-1"));
    _cleanup_free_ char *newest = fleet_read(KEY_INCIDENTS, "a-3");
    assert_non_null(newest);
    end();
}

static void what_does_not_fit_is_read_again(_unused_ void **state)
{
    FleetOptions options = usual;
    FleetJob other = small;
    options.limits =
        (ClusterLimits){.nodes = 8, .jobs = 1, .reports = 32, .incidents = 256, .requests = 16};
    other.name = "b";
    options.lease_sec = 3 * LEASE_SEC; /* the lease is longer than the cut below */
    options.core = cluster_config_default;
    options.core.ttl_usec = 3 * LEASE_SEC * USEC_PER_SEC;
    begin(&options);
    fleet_submit_job(&other);
    fleet_run_for(30);
    assert_false(books_job("b")->has_phase);
    fleet_want(&small, DESIRED_DELETED, 0);
    for (int i = 0; i < 600 && books_job("a")->has_phase; i++)
        fleet_run(loops_now_usec() + 100 * USEC_PER_MSEC);
    const int leader = fleet_leader();
    fleet_cut(fleet_machine(false, leader), true, true); /* the first try gets no answer */
    fleet_run(loops_now_usec() + 6200 * USEC_PER_MSEC);
    fleet_cut(fleet_machine(false, leader), false, false);
    assert_true(fleet_run_until("b", PHASE_RUNNING, 60));
    assert_int_equal(fleet_leader(), leader);
    end();
}

/* A script wrote the file of one job under the name of another job: the job with that name
 * fails. */
static void a_file_below_another_name_is_a_bad_one(_unused_ void **state)
{
    begin(&usual);
    _cleanup_free_ char *file = fleet_read(KEY_SPECS, "a"), *wish = fleet_read(KEY_DESIRED, "a");
    fleet_put_by_hand(KEY_SPECS, "b", 0, file);
    fleet_put_by_hand(KEY_DESIRED, "b", 0, wish);
    assert_true(fleet_run_until("b", PHASE_FAILED, 10));
    assert_non_null(strstr(books_job("b")->phase.reason, "\"a\" is not the name in the key"));
    const int64_t committed = fleet_committed("a");
    assert_true(fleet_run_until_committed("a", committed + 20, 60));
    assert_int_equal(fleet_generation("a"), 1);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_after_two_deaths_waits),
        cmocka_unit_test(each_further_death_doubles_the_pause),
        cmocka_unit_test(settings_that_are_read_again_end_it),
        cmocka_unit_test(records_that_change_end_it),
        cmocka_unit_test(a_decision_that_fails_is_made_again),
        cmocka_unit_test(requests_are_answered_and_go),
        cmocka_unit_test(old_incidents_go),
        cmocka_unit_test(what_does_not_fit_is_read_again),
        cmocka_unit_test(a_file_below_another_name_is_a_bad_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
