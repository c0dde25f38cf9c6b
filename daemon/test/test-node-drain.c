/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-drain.c - how a node leaves after a signal; everything is in memory. */
#include "daemon/test/testing-node.h"

#include <signal.h>
#include <string.h>

static void a_drain_waits_for_the_ranks_and_leaves(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    drain_signal(n1.manager, "SIGTERM");
    assert_int_equal(n1.n_draining, 1);
    settle();
    assert_int_equal(node_record(&n1).verdict, NODE_DRAIN);
    for (int i = 0; i < 3; i++) {
        pass(19 * USEC_PER_SEC);
        renew(&n1.etcd);
    }
    assert_killed(&n1, 0, false);
    dies(&n1.machine, 0);
    settle();
    dies(&n1.machine, 1);
    assert_int_equal(node_record(&n1).state, NODE_UP); /* the ranks' reports come first */
    assert_int_equal(n1.n_left_health, 0);
    n1.health_under_way = true;
    settle();
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_int_equal(state_of(&n1, "a", 1, 1), RANK_EXITED);
    assert_int_equal(node_record(&n1).state, NODE_LEFT);
    assert_int_equal(n1.n_left_health, 1);
    assert_int_equal(n1.n_ended, 0);
    n1.health_under_way = false;
    drain_advance(n1.manager);
    assert_int_equal(n1.n_ended, 1);
    assert_true(manager_leaves_nothing(n1.manager));
}

static void a_drain_that_is_asked_for_again_kills_and_leaves_once(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    drain_signal(n1.manager, "SIGTERM");
    settle();
    assert_killed(&n1, 0, false);
    drain_signal(n1.manager, "SIGINT");
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
    drain_signal(n1.manager, "SIGTERM");
    drain_signal(n1.manager, "SIGTERM");
    settle();
    assert_int_equal(n1.n_ended, 0); /* the killed ranks may still live */
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    drain_signal(n1.manager, "SIGTERM");
    assert_int_equal(n1.n_draining, 1);
    assert_int_equal(n1.n_left_health, 1);
    assert_int_equal(node_record(&n1).state, NODE_LEFT);
    assert_true(n1.n_ended >= 1);
}

static void a_drain_kills_at_its_deadline(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    drain_signal(n1.manager, "SIGTERM");
    for (int i = 0; i < 6; i++) {
        assert_killed(&n1, 0, false);
        node_touch(&n1.manager->node);
        drain_advance(n1.manager);
        settle();
        pass(10 * USEC_PER_SEC);
        renew(&n1.etcd);
    }
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
}

static void an_etcd_that_is_away_costs_a_drain_two_seconds(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    n1.etcd.is_cut = true;
    drain_signal(n1.manager, "SIGTERM");
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    pass(USEC_PER_SEC);
    drain_advance(n1.manager); /* no event puts the deadline off */
    node_touch(&n1.manager->node);
    pass(DRAIN_LAST_WORDS_SEC * USEC_PER_SEC - USEC_PER_SEC - 1);
    assert_int_equal(n1.n_ended, 0);
    pass(1);
    assert_int_equal(n1.n_ended, 1);
}

static void a_stopping_node_starts_no_rank_and_tells_no_better_verdict(_unused_ void **state)
{
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    drain_signal(n1.manager, "SIGTERM");
    node_note_health(&n1.manager->node, NODE_ISOLATE, 1, "it burns", &gpus);
    settle();
    assert_int_equal(node_record(&n1).verdict, NODE_ISOLATE);
    assert_string_equal(node_record(&n1).evidence, "it burns");
}

/* The node ends when etcd has acknowledged the record that says `left`. */
static void an_idle_node_leaves_when_its_last_word_is_there(_unused_ void **state)
{
    join(&n1);
    drain_signal(n1.manager, "SIGTERM");
    drain_advance(n1.manager);
    assert_int_equal(n1.n_ended, 0);
    settle();
    assert_int_equal(node_record(&n1).state, NODE_LEFT);
    assert_int_equal(n1.n_ended, 1);
}

static void a_drain_waits_for_the_reports_of_worlds_that_are_over(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)decide("a", 2, 0, 1);
    settle();
    drain_signal(n1.manager, "SIGTERM");
    settle();
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    assert_int_equal(n1.n_left_health, 0);
    settle();
    assert_true(killed_of(&n1, "a", 1) != 0);
    assert_int_equal(n1.n_left_health, 1);
    assert_int_equal(n1.n_ended, 1);
}

/* A rank that waits for its slot is not started any more, and is reported as exited. */
static void a_second_signal_ends_ranks_that_wait_for_their_slot(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)decide("a", 2, 3, 0);
    settle();
    drain_signal(n1.manager, "SIGTERM");
    drain_signal(n1.manager, "SIGTERM");
    settle();
    assert_int_equal(state_of(&n1, "a", 2, 0), RANK_EXITED);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_int_equal(n1.machine.n_started, 2);
    assert_int_equal(n1.n_ended, 1);
}

/* The node's record reports the lost slot before the rank counts as exited, and before the node leaves. */
static void a_drain_tells_of_a_slot_that_it_cannot_clear(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    drain_signal(n1.manager, "SIGTERM");
    drain_signal(n1.manager, "SIGTERM");
    settle();
    pass(2 * USEC_PER_SEC);
    assert_int_equal(n1.n_left_health, 0);
    settle();
    assert_int_equal(node_record(&n1).lost_slots, 1);
    assert_int_equal(node_record(&n1).state, NODE_LEFT);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_int_equal(n1.n_ended, 1);
    assert_false(manager_leaves_nothing(n1.manager)); /* the keeper still has work */
}

/* After a failed put it is unknown what etcd has stored: the drain waits only until the record is read again. */
static void a_drain_goes_on_when_the_records_of_its_dead_were_read(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 1, 0);
    dies(&n1.machine, 0);
    settle();
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key), GIVEN);
    answer(under_way(&n1.etcd, key), LOST_BEFORE);
    drain_signal(n1.manager, "SIGTERM");
    assert_int_equal(n1.n_left_health, 0);
    answer(under_way(&n1.etcd, report_key(&n1, "a", 1)->key), GIVEN);
    assert_int_equal(n1.n_left_health, 1);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(node_record(&n1).state, NODE_LEFT);
    assert_int_equal(n1.n_ended, 1);
}

/* The lease ends after the record said `left`, and the record vanishes with it. The node puts the record again under
 * a new lease before it ends. */
static void a_lease_that_ends_at_the_last_word_is_taken_anew(_unused_ void **state)
{
    join(&n1);
    n1.health_under_way = true;
    drain_signal(n1.manager, "SIGTERM");
    settle();
    assert_int_equal(node_record(&n1).state, NODE_LEFT);
    expire(&n1.etcd);
    notify_lost(&n1.etcd);
    n1.health_under_way = false;
    drain_advance(n1.manager);
    assert_int_equal(n1.n_ended, 0);
    grant(&n1.etcd);
    settle();
    assert_int_equal(node_record(&n1).state, NODE_LEFT);
    assert_int_equal(n1.n_ended, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_drain_waits_for_the_ranks_and_leaves),
        CASE(a_drain_that_is_asked_for_again_kills_and_leaves_once),
        CASE(a_drain_kills_at_its_deadline),
        CASE(an_etcd_that_is_away_costs_a_drain_two_seconds),
        CASE(a_stopping_node_starts_no_rank_and_tells_no_better_verdict),
        CASE(an_idle_node_leaves_when_its_last_word_is_there),
        CASE(a_drain_waits_for_the_reports_of_worlds_that_are_over),
        CASE(a_second_signal_ends_ranks_that_wait_for_their_slot),
        CASE(a_drain_tells_of_a_slot_that_it_cannot_clear),
        CASE(a_drain_goes_on_when_the_records_of_its_dead_were_read),
        CASE(a_lease_that_ends_at_the_last_word_is_taken_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
