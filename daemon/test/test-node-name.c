/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-name.c - which writer has a node's name: a stranger beside a node whose lease lives, a node without a
 * lease beside a machine with a lease, and a restarted sdtraind. */
#include "daemon/node/occupant.h"
#include "daemon/test/testing-node.h"

#include <string.h>

static void assert_is_ours(const TestNode *n)
{
    const NodeRecord record = node_record(n);
    assert_int_equal(record.incarnation, n->incarnation);
    assert_string_equal(record.machine_id, n->config.machine_id);
    assert_int_equal(node_key(n)->lease, lease_of(&n->etcd));
}

/* ---- the rule of occupant.h ---- */

static void who_is_the_tenant(_unused_ void **state)
{
    static const struct {
        OccupantFacts facts;
        Occupant is;
    } rows[] = {
        /* our lease lives, and our record was under it */
        {{.lease = 1, .has_our_words = true, .own_lease = 1, .held_lease = 1}, OCCUPANT_OURS},
        {{.lease = 1, .own_lease = 1, .held_lease = 1}, OCCUPANT_STRANGER},
        {{.lease = 0, .own_lease = 1, .held_lease = 1}, OCCUPANT_STRANGER},
        {{.lease = 2, .own_lease = 1, .held_lease = 1}, OCCUPANT_STRANGER},
        {{.lease = 2, .has_our_words = true, .own_lease = 1, .held_lease = 1}, OCCUPANT_STRANGER},
        {{.lease = 2, .own_lease = 1, .held_lease = 1, .last_lease = 2}, OCCUPANT_STRANGER},
        /* the node starts, and has not put its record under its lease yet */
        {{.lease = 1, .has_our_words = true, .own_lease = 1}, OCCUPANT_OURS},
        {{.lease = 1, .own_lease = 1}, OCCUPANT_NOBODY},
        {{.lease = 0, .own_lease = 1}, OCCUPANT_NOBODY},
        {{.lease = 2, .own_lease = 1}, OCCUPANT_HOLDER},
        {{.lease = 2, .has_our_words = true, .own_lease = 1}, OCCUPANT_HOLDER},
        {{.lease = 2, .own_lease = 1, .last_lease = 2}, OCCUPANT_LAST_LIFE},
        {{.lease = 2, .own_lease = 1, .last_lease = 3}, OCCUPANT_HOLDER},
        /* the node has lost its lease */
        {{.lease = 2, .own_lease = 0, .held_lease = 1}, OCCUPANT_HOLDER},
        {{.lease = 1, .own_lease = 0, .held_lease = 1}, OCCUPANT_NOBODY},
        {{.lease = 0, .own_lease = 0, .held_lease = 1}, OCCUPANT_NOBODY},
        {{.lease = 2, .own_lease = 3, .held_lease = 1}, OCCUPANT_HOLDER},
        {{.lease = 1, .own_lease = 3, .held_lease = 1}, OCCUPANT_NOBODY},
    };
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        if (occupant_judge(&rows[i].facts) != rows[i].is)
            fail_msg("row %zu is %d", i, (int)occupant_judge(&rows[i].facts));
}

/* ---- a stranger beside a node whose lease lives ---- */

static void a_strangers_record_is_written_over_and_told(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    assert_int_equal(node_record(&n1).stranger_revision, 0);
    const int64_t lease = foreign_lease();
    const int64_t revision = put_node(&n1, n1.config.machine_id, n1.incarnation + 1, lease);
    settle();
    assert_is_ours(&n1);
    assert_int_equal(node_record(&n1).verdict, NODE_HEALTHY);
    assert_int_equal(node_record(&n1).stranger_lease, lease);
    assert_int_equal(node_record(&n1).stranger_revision, revision);
    assert_int_equal(node_record(&n1).generation, 1);
    assert_int_equal(n1.n_failed + n1.n_ended, 0);
    assert_killed(&n1, 0, false);
    assert_killed(&n1, 1, false);
    assert_int_not_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
}

static void whatever_a_stranger_writes_is_written_over(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    static const char *const texts[] = {"{", "", "{\"v\":99}"};
    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        int64_t revision =
            put(key_of("lab", KEY_NODES, "n1", key), texts[i], i == 0 ? 0 : foreign_lease());
        settle();
        assert_is_ours(&n1);
        assert_int_equal(node_record(&n1).stranger_revision, revision);
        pass(2 * USEC_PER_SEC);
    }
    /* Records with another machine's id, with our own content, under our own lease, and with an earlier incarnation. */
    (void)put_node(&n1, "another", 1, foreign_lease());
    settle();
    assert_is_ours(&n1);
    pass(2 * USEC_PER_SEC);
    (void)put_node(&n1, n1.config.machine_id, n1.incarnation, foreign_lease());
    settle();
    assert_is_ours(&n1);
    pass(2 * USEC_PER_SEC);
    (void)put_node(&n1, n1.config.machine_id, n1.incarnation + 1, lease_of(&n1.etcd));
    settle();
    assert_is_ours(&n1);
    pass(2 * USEC_PER_SEC);
    (void)put_node(&n1, n1.config.machine_id, n1.incarnation - 1, foreign_lease());
    settle();
    assert_is_ours(&n1);
    assert_int_equal(n1.n_failed, 0);
}

/* Our record is put back at most once a second, however fast the stranger writes. */
static void a_record_is_put_back_at_most_once_a_second(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 1, 0);
    const int64_t lease = foreign_lease();
    int n_ours = 0;
    for (int i = 0; i < 100; i++) { /* for ten seconds */
        (void)put_node(&n1, n1.config.machine_id, n1.incarnation + 1, lease);
        settle();
        n_ours += node_key(&n1)->lease == lease_of(&n1.etcd);
        pass(100 * USEC_PER_MSEC);
        settle();
    }
    assert_in_range(n_ours, 1, 10);
    pass(USEC_PER_SEC);
    settle();
    assert_is_ours(&n1);
    assert_killed(&n1, 0, false);
}

/* When the guard of the put fails, the next try does not wait for a second, in which a leader might accept the
 * stranger's record. */
static void a_race_with_the_stranger_is_run_again(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 1, 0);
    const int64_t lease = foreign_lease();
    (void)put_node(&n1, n1.config.machine_id, n1.incarnation + 1, lease);
    show(&n1.etcd);
    answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), GIVEN); /* the key is read */
    for (int i = 0; i < 5; i++) {
        (void)put_node(&n1, n1.config.machine_id, n1.incarnation + 1, lease);
        answer(under_way(&n1.etcd, key), GIVEN); /* the guard of the put fails */
        assert_int_equal(node_key(&n1)->lease, lease);
        pass(20 * USEC_PER_MSEC);
        answer(under_way(&n1.etcd, key), GIVEN); /* the key is read again */
    }
    settle();
    assert_is_ours(&n1);
    assert_killed(&n1, 0, false);
}

static void a_stranger_that_has_gone_is_forgotten(_unused_ void **state)
{
    join(&n1);
    const int64_t lease = foreign_lease();
    (void)put_node(&n1, n1.config.machine_id, n1.incarnation + 1, lease);
    settle();
    for (int i = 0; i < 28; i++) { /* nearly three times lease_sec, which is 10 */
        pass(USEC_PER_SEC);
        renew(&n1.etcd);
        settle();
    }
    assert_int_equal(node_record(&n1).stranger_lease, lease);
    /* The stranger writes once more. */
    (void)put_node(&n1, n1.config.machine_id, n1.incarnation + 1, lease);
    settle();
    for (int i = 0; i < 28; i++) {
        pass(USEC_PER_SEC);
        renew(&n1.etcd);
        settle();
    }
    assert_int_equal(node_record(&n1).stranger_lease, lease);
    pass(3 * USEC_PER_SEC);
    settle();
    assert_int_equal(node_record(&n1).stranger_lease, 0);
    assert_int_equal(node_record(&n1).stranger_revision, 0);
}

/* Our own record is not a stranger's, even if the answer to its put was lost. */
static void a_record_of_our_own_is_no_strangers(_unused_ void **state)
{
    char key[KEY_MAX];
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    node_note_health(&n1.manager->node, NODE_DRAIN, 0, "bad", &gpus);
    answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), LOST_AFTER);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_is_ours(&n1);
    assert_int_equal(node_record(&n1).verdict, NODE_DRAIN);
    assert_int_equal(node_record(&n1).stranger_revision, 0);
    /* A record that was removed is put back, and no stranger is reported. */
    (void)delete_key(key);
    settle();
    assert_is_ours(&n1);
    assert_int_equal(node_record(&n1).stranger_revision, 0);
}

/* ---- a node without a lease, beside a machine that has one ---- */

static void one_that_begins_waits_for_another_ones_lease(_unused_ void **state)
{
    (void)snprintf(n2.config.node, sizeof(n2.config.node), "n1");
    join(&n1);
    int64_t before = node_key(&n1)->modified;
    start(&n2);
    grant(&n2.etcd);
    settle();
    for (int i = 0; i < 60; i++) {
        pass(USEC_PER_SEC);
        renew(&n1.etcd);
        renew(&n2.etcd);
        settle();
    }
    assert_true(n2.manager->node.yields);
    assert_int_equal(n2.n_registered + n2.n_failed + n2.n_ended, 0);
    assert_int_equal(node_key(&n1)->modified, before);
    assert_int_equal(node_record(&n1).stranger_revision, 0);

    expire(&n1.etcd);
    n1.etcd.is_cut = true;
    settle(); /* the watch shows the end of the record: n2 needs no timer */
    assert_int_equal(n2.n_registered, 1);
    assert_false(n2.manager->node.yields);
    assert_is_ours(&n2);
}

/* If the watch shows nothing, the waiting node reads the key each second. */
static void one_that_waits_looks_again(_unused_ void **state)
{
    const int64_t lease = foreign_lease();
    (void)put_node(&n1, n1.config.machine_id, 1, lease);
    start(&n1);
    grant(&n1.etcd);
    settle();
    assert_true(n1.manager->node.yields);
    n1.etcd.is_blind = true;
    (void)end_lease(lease);
    settle();
    assert_false(has_node_key(&n1));
    pass(USEC_PER_SEC);
    settle();
    assert_is_ours(&n1);
    assert_int_equal(n1.n_registered, 1);
}

/* The content of a record counts for nothing: neither its machine id nor its time proves that it is ours. */
static void one_that_begins_believes_no_words(_unused_ void **state)
{
    const int64_t lease = foreign_lease();
    const int64_t revision = put_node(&n1, n1.config.machine_id, n1.incarnation - 1, lease);
    start(&n1);
    grant(&n1.etcd);
    settle();
    pass(5 * USEC_PER_SEC);
    settle();
    assert_int_equal(node_key(&n1)->modified, revision);
    assert_int_equal(n1.n_registered, 0);
    (void)put_node(&n1, n1.config.machine_id, n1.incarnation, 0); /* a record without a lease */
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(n1.n_registered, 1);
    assert_int_equal(node_record(&n1).stranger_revision, 0);
}

/* The node's lease ended while it was cut off from etcd, and another machine has got the name. */
static void a_name_that_is_lost_ends_the_ranks_until_it_is_free(_unused_ void **state)
{
    (void)snprintf(n2.config.node, sizeof(n2.config.node), "n1");
    join(&n1);
    run_world("a", 1, 3, 0);
    n1.etcd.is_cut = true;
    expire(&n1.etcd);
    join(&n2);
    assert_is_ours(&n2);
    n1.etcd.is_cut = false;
    notify_lost(&n1.etcd);
    grant(&n1.etcd);
    answer_all();
    assert_true(n1.manager->node.yields);
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
    assert_is_ours(&n2);
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_is_ours(&n2);
    expire(&n2.etcd);
    n2.etcd.is_cut = true;
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_is_ours(&n1);
    assert_false(n1.manager->node.yields);
    assert_int_equal(n1.n_failed + n1.n_ended, 0);
}

/* A node that waits for its name ends at once after a signal: it has no record to change. */
static void one_that_waits_leaves_at_once(_unused_ void **state)
{
    const int64_t lease = foreign_lease();
    const int64_t revision = put_node(&n1, n1.config.machine_id, 1, lease);
    start(&n1);
    grant(&n1.etcd);
    settle();
    drain_signal(n1.manager, "SIGTERM");
    settle();
    assert_int_equal(n1.n_ended, 1);
    assert_int_equal(node_key(&n1)->modified, revision);
}

/* ---- the next life ---- */

/* A restarted sdtraind recognises the record of the previous sdtraind by its lease: the clock may be wrong. */
static void the_next_life_knows_the_lease_of_the_last_one(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    const int64_t lease = lease_of(&n1.etcd);
    restart(&n1, n1.incarnation - 3); /* the clock was set back */
    settle();
    grant(&n1.etcd);
    settle();
    assert_int_equal(n1.n_registered, 1);
    assert_is_ours(&n1);
    assert_false(end_lease(lease)); /* the node has revoked the lease, and the reports vanished */
    assert_null(report_key(&n1, "a", 1));
    assert_int_equal(node_record(&n1).stranger_revision, 0);

    const int64_t second = lease_of(&n1.etcd);
    restart(&n1, n1.incarnation + 1);
    settle();
    grant(&n1.etcd);
    settle();
    assert_is_ours(&n1);
    assert_false(end_lease(second));
}

/* If the lease of the previous sdtraind cannot be revoked, the record is overwritten. */
static void the_next_life_goes_on_if_a_lease_cannot_be_ended(_unused_ void **state)
{
    static const AnswerKind kinds[] = {DENIED, LOST_BEFORE, LOST_AFTER};
    for (size_t i = 0; i < ELEMENTSOF(kinds); i++) {
        nodes_end();
        nodes_begin();
        join(&n1);
        restart(&n1, n1.incarnation + 1);
        settle();
        grant(&n1.etcd);
        while (!is_under_way(&n1.etcd, "lease")) {
            char key[KEY_MAX];
            answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), GIVEN);
        }
        answer(under_way(&n1.etcd, "lease"), kinds[i]);
        settle();
        assert_int_equal(n1.n_registered, 1);
        assert_is_ours(&n1);
    }
}

/* Without its file the daemon does not know that the previous daemon of this node wrote the record: it waits until the
 * lease has ended. */
static void a_life_without_a_memory_waits(_unused_ void **state)
{
    join(&n1);
    const int64_t lease = lease_of(&n1.etcd);
    free(n1.file);
    n1.file = NULL;
    restart(&n1, n1.incarnation + 1);
    settle();
    grant(&n1.etcd);
    settle();
    pass(3 * USEC_PER_SEC);
    settle();
    assert_int_equal(n1.n_registered, 0);
    assert_true(end_lease(lease));
    settle();
    assert_int_equal(n1.n_registered, 1);
    assert_is_ours(&n1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(who_is_the_tenant),
        CASE(a_strangers_record_is_written_over_and_told),
        CASE(whatever_a_stranger_writes_is_written_over),
        CASE(a_record_is_put_back_at_most_once_a_second),
        CASE(a_race_with_the_stranger_is_run_again),
        CASE(a_stranger_that_has_gone_is_forgotten),
        CASE(a_record_of_our_own_is_no_strangers),
        CASE(one_that_begins_waits_for_another_ones_lease),
        CASE(one_that_waits_looks_again),
        CASE(one_that_begins_believes_no_words),
        CASE(a_name_that_is_lost_ends_the_ranks_until_it_is_free),
        CASE(one_that_waits_leaves_at_once),
        CASE(the_next_life_knows_the_lease_of_the_last_one),
        CASE(the_next_life_goes_on_if_a_lease_cannot_be_ended),
        CASE(a_life_without_a_memory_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
