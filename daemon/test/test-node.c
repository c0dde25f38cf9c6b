/* SPDX-License-Identifier: Apache-2.0 */
/* test-node.c - whole nodes in one process, on fakes: a node's record and its lease, the fence, and another history
 * of etcd. A node's name is tested in test-node-name.c, its drain in test-node-drain.c, requests to a node in
 * test-node-requests.c, its work for jobs in test-node-worlds.c. */
#include "daemon/test/testing-node.h"

#include <signal.h>
#include <string.h>

enum { DAY_SEC = 86400 };

/* ---- the record ---- */

static void a_node_registers_when_its_probes_have_answered(_unused_ void **state)
{
    const SlotGpus gpus = {.pci = {"0000:3b:00"}, .n = 1};
    n1.is_probed = false;
    start(&n1);
    grant(&n1.etcd);
    settle();
    assert_false(has_node_key(&n1));
    n1.is_probed = true;
    node_note_health(&n1.manager->node, NODE_SUSPECT, 2, "disk: it is full", &gpus);
    settle();
    NodeRecord record = node_record(&n1);
    assert_int_equal(node_key(&n1)->lease, lease_of(&n1.etcd));
    assert_int_equal(record.incarnation, n1.incarnation);
    assert_int_equal(record.n_slots, 16);
    assert_int_equal(record.verdict, NODE_SUSPECT);
    assert_int_equal(record.bad_slots, 2);
    assert_int_equal(record.n_gpus, 1);
    assert_int_equal(record.memory_bytes, 1 << 30);
    assert_string_equal(record.evidence, "disk: it is full");
    assert_string_equal(record.features,
                        FEATURE_DOCTOR " " FEATURE_EVALS " " FEATURE_SECRETS " " FEATURE_LOGS);
    assert_int_equal(n1.n_registered, 1);
}

static void a_record_that_says_the_same_is_not_put_again(_unused_ void **state)
{
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    int64_t version = node_key(&n1)->version;
    node_note_health(&n1.manager->node, NODE_HEALTHY, 0, "", &gpus);
    renew(&n1.etcd);
    pass(10 * USEC_PER_SEC);
    settle();
    assert_int_equal(node_key(&n1)->version, version);
    node_note_health(&n1.manager->node, NODE_DRAIN, 0, "bad", &gpus);
    settle();
    assert_int_equal(node_key(&n1)->version, version + 1);
}

static void rights_that_are_missing_are_asked_for_again(_unused_ void **state)
{
    char key[KEY_MAX];
    (void)key_of("lab", KEY_SECRETS, ".rights", key);
    start(&n1);
    answer(under_way(&n1.etcd, key), DENIED);
    grant(&n1.etcd);
    settle();
    assert_string_equal(node_record(&n1).features,
                        FEATURE_DOCTOR " " FEATURE_EVALS " " FEATURE_LOGS);
    pass(29 * USEC_PER_SEC);
    assert_int_equal(n_under_way(&n1.etcd), 0);
    pass(USEC_PER_SEC);
    settle();
    assert_string_equal(node_record(&n1).features,
                        FEATURE_DOCTOR " " FEATURE_EVALS " " FEATURE_SECRETS " " FEATURE_LOGS);
    assert_int_equal(n1.n_registered, 1);
}

/* A node reports that its etcd user may write every node's record. If the user may also write specs, the
 * node does not report this: the user is an administrator, or etcd checks no rights at all. */
static void a_shared_user_is_told(_unused_ void **state)
{
    static const struct {
        AnswerKind others, specs;
        bool is_shared;
    } rows[] = {{GIVEN, DENIED, true},
                {GIVEN, GIVEN, false},
                {DENIED, GIVEN, false},
                {GIVEN, LOST_BEFORE, false},
                {LOST_BEFORE, GIVEN, false}};
    char secrets[KEY_MAX], others[KEY_MAX], specs[KEY_MAX];
    (void)key_of("lab", KEY_SECRETS, ".rights", secrets);
    (void)key_of("lab", KEY_NODES, ".rights", others);
    (void)key_of("lab", KEY_SPECS, ".rights", specs);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        nodes_end();
        nodes_begin();
        start(&n1);
        answer(under_way(&n1.etcd, secrets), GIVEN);
        answer(under_way(&n1.etcd, others), rows[i].others);
        assert_int_equal(is_under_way(&n1.etcd, specs), rows[i].others == GIVEN);
        if (rows[i].others == GIVEN)
            answer(under_way(&n1.etcd, specs), rows[i].specs);
        grant(&n1.etcd);
        settle();
        const NodeRecord record = node_record(&n1);
        assert_int_equal(node_knows(&record, FEATURE_SHARED), rows[i].is_shared);
        assert_true(node_knows(&record, FEATURE_LOGS));
    }
}

static void an_answer_about_rights_that_is_lost_is_asked_for_at_once(_unused_ void **state)
{
    char secrets[KEY_MAX], asks[KEY_MAX];
    start(&n1);
    answer(under_way(&n1.etcd, key_of("lab", KEY_SECRETS, ".rights", secrets)), LOST_BEFORE);
    answer(under_way(&n1.etcd, key_log("lab", KEY_ASKS, "n1", ".rights", asks)), LOST_BEFORE);
    grant(&n1.etcd);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_string_equal(node_record(&n1).features,
                        FEATURE_DOCTOR " " FEATURE_EVALS " " FEATURE_SECRETS " " FEATURE_LOGS);
}

static void an_answer_that_is_lost_is_read_again(_unused_ void **state)
{
    char key[KEY_MAX];
    start(&n1);
    settle();
    grant(&n1.etcd);
    answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), LOST_AFTER);
    assert_int_equal(n1.n_registered, 0);
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(n1.n_registered, 1);
    assert_int_equal(n1.n_failed, 0);
}

static void a_record_that_is_refused_is_tried_slowly(_unused_ void **state)
{
    char key[KEY_MAX];
    start(&n1);
    settle();
    grant(&n1.etcd);
    answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), DENIED);
    assert_true(n1.manager->node.refused);
    assert_int_equal(n_under_way(&n1.etcd), 0); /* the node waits before it tries again */
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(n1.n_registered, 1);
    assert_false(n1.manager->node.refused);
}

static void a_record_that_was_removed_is_put_back_and_its_ranks_run_on(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    int64_t before = report_key(&n1, "a", 1)->modified;
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    settle();
    assert_int_equal(n1.etcd.n_lease_checks, 1); /* the lease may have ended */
    assert_int_equal(node_key(&n1)->lease, lease_of(&n1.etcd));
    assert_int_equal(node_record(&n1).incarnation, n1.incarnation);
    assert_killed(&n1, 0, false);
    /* The node's record and the report are put in one revision, since the leader may have moved the ranks' world
     * meanwhile. */
    assert_true(report_key(&n1, "a", 1)->modified > before);
    assert_int_equal(report_key(&n1, "a", 1)->modified, node_key(&n1)->modified);
}

/* The record is removed, and then written by a stranger; the watch lists again and shows both changes at once. */
static void a_key_that_died_and_was_reborn_in_one_batch_counts_as_removed(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    (void)put_node(&n1, "another", 1, 0);
    list_again(&n1.etcd);
    answer_all();
    assert_int_equal(n1.etcd.n_lease_checks, 1);
    assert_int_equal(node_record(&n1).incarnation, n1.incarnation);
    assert_int_equal(node_key(&n1)->lease, lease_of(&n1.etcd));
    assert_int_equal(report_key(&n1, "a", 1)->modified, node_key(&n1)->modified);
    assert_int_equal(n1.n_failed, 0);
}

/* The record is removed, and written by a stranger, while our write is under way: the guard of our write fails. */
static void a_key_is_reborn_while_it_is_written(_unused_ void **state)
{
    char key[KEY_MAX];
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    run_world("a", 1, 3, 0);
    node_note_health(&n1.manager->node, NODE_SUSPECT, 0, "bad", &gpus);
    assert_int_equal(n_under_way(&n1.etcd), 1);
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    (void)put_node(&n1, "another", 1, 0);
    list_again(&n1.etcd);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(node_record(&n1).verdict, NODE_SUSPECT);
    assert_int_equal(node_record(&n1).incarnation, n1.incarnation);
    assert_int_equal(report_key(&n1, "a", 1)->modified, node_key(&n1)->modified);
    assert_int_equal(n1.n_failed, 0);
    assert_killed(&n1, 0, false);
}

/* The record is removed while our write is under way, and the watch shows that only after the write's answer. */
static void a_key_goes_while_it_is_written_and_no_watch_shows_it(_unused_ void **state)
{
    char key[KEY_MAX];
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    run_world("a", 1, 3, 0);
    node_note_health(&n1.manager->node, NODE_SUSPECT, 0, "bad", &gpus);
    n1.etcd.is_blind = true;
    (void)delete_key(key_of("lab", KEY_NODES, "n1", key));
    settle();
    assert_int_equal(node_record(&n1).verdict, NODE_SUSPECT);
    assert_int_equal(report_key(&n1, "a", 1)->modified, node_key(&n1)->modified);
    int64_t version = node_key(&n1)->version;
    n1.etcd.is_blind = false; /* the watch shows the deletion, which is undone */
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_int_equal(node_key(&n1)->version, version);
}

static void what_cannot_be_read_is_written_over(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    (void)put(key_of("lab", KEY_NODES, "n1", key), "{", lease_of(&n1.etcd));
    settle();
    assert_int_equal(node_record(&n1).incarnation, n1.incarnation);
    assert_int_equal(n1.n_failed, 0);
}

/* A cordon of "n10" does not affect "n1". */
static void a_cordon_of_a_longer_name_is_not_ours(_unused_ void **state)
{
    char key[KEY_MAX];
    CordonRecord cordon = {.n_causes = 1};
    cordon.causes[0] =
        (CordonCause){.owner = CORDON_OPERATOR, .mode = CORDON_QUARANTINE, .reason = "bad sums"};
    join(&n1);
    run_world("a", 1, 3, 0);
    _cleanup_free_ char *text = cordon_record_encode(&cordon, NULL);
    (void)put(key_of("lab", KEY_CORDONS, "n10", key), text, 0);
    settle();
    assert_killed(&n1, 0, false);
    (void)put(key_of("lab", KEY_CORDONS, "n1", key), text, 0);
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
}

/* ---- the lease ---- */

static void a_lease_that_is_taken_anew_brings_node_and_ranks_together(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    int64_t first = lease_of(&n1.etcd);
    expire(&n1.etcd);
    assert_null(report_key(&n1, "a", 1));
    notify_lost(&n1.etcd);
    settle();
    assert_false(has_node_key(&n1)); /* the node has no lease */
    grant(&n1.etcd);
    char key[KEY_MAX];
    answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), GIVEN);
    if (!has_node_key(&n1)) /* the node had to read first */
        answer(under_way(&n1.etcd, key), GIVEN);
    assert_int_equal(report_key(&n1, "a", 1)->modified, node_key(&n1)->modified);
    assert_int_equal(report_key(&n1, "a", 1)->lease, lease_of(&n1.etcd));
    assert_int_not_equal(lease_of(&n1.etcd), first);
    assert_int_equal(node_record(&n1).incarnation, n1.incarnation);
    settle();
    assert_killed(&n1, 0, false);
    assert_killed(&n1, 1, false);
    assert_int_equal(n1.n_registered, 1);
    assert_int_equal(n1.n_losses, 1);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_READY);
}

/* After the loss of a lease nothing need be read first: the node's key was deleted with the lease, whatever the
 * watch has shown. */
static void a_new_lease_takes_one_transaction(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    n1.etcd.is_blind = true;
    expire(&n1.etcd);
    notify_lost(&n1.etcd);
    grant(&n1.etcd);
    answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), GIVEN);
    assert_int_equal(node_key(&n1)->lease, lease_of(&n1.etcd));
    settle();
}

/* Ranks that died while the node had no lease are reported under the next lease. */
static void what_ended_without_a_lease_is_told_under_the_next(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    expire(&n1.etcd);
    notify_lost(&n1.etcd);
    (void)decide("a", 2, 0, 1);
    settle();
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    settle();
    assert_null(report_key(&n1, "a", 1));
    grant(&n1.etcd);
    settle();
    assert_int_equal(report_key(&n1, "a", 1)->lease, lease_of(&n1.etcd));
    assert_true(killed_of(&n1, "a", 1) != 0);
    assert_int_equal(state_of(&n1, "a", 1, 0), RANK_EXITED);
    assert_true(has_node_key(&n1));
}

/* The world of the node's ranks has moved while the node had no lease: it registers again only when those ranks are
 * dead. */
static void a_node_comes_back_when_its_old_ranks_are_dead(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    expire(&n1.etcd);
    (void)decide("a", 2, 1, 0);
    notify_lost(&n1.etcd);
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
    grant(&n1.etcd);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_false(has_node_key(&n1));
    dies(&n1.machine, 0);
    pass(USEC_PER_SEC / 2);
    settle();
    assert_false(has_node_key(&n1));
    dies(&n1.machine, 1);
    settle();
    pass(USEC_PER_SEC / 2);
    settle();
    assert_int_equal(node_key(&n1)->lease, lease_of(&n1.etcd));
    assert_int_equal(report_key(&n1, "a", 2)->lease, lease_of(&n1.etcd));
}

/* Once the node is registered again, its own record does not wait for old ranks to die. */
static void a_node_that_came_back_tells_its_verdict_while_old_ranks_die(_unused_ void **state)
{
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    run_world("a", 1, 3, 0);
    expire(&n1.etcd);
    notify_lost(&n1.etcd);
    grant(&n1.etcd);
    settle();
    pass(USEC_PER_SEC);
    settle();
    assert_true(has_node_key(&n1));
    (void)decide("a", 2, 0, 1);
    settle();
    assert_killed(&n1, 0, true);
    const int64_t reported = report_key(&n1, "a", 1)->version;
    node_note_health(&n1.manager->node, NODE_SUSPECT, 0, "warm", &gpus);
    settle();
    assert_int_equal(node_record(&n1).verdict, NODE_SUSPECT);
    assert_int_equal(report_key(&n1, "a", 1)->version, reported);
}

/* The guards of the ranks' reports fail, and the watch has not shown why: the node does not register before the
 * watch shows the newer world. */
static void a_node_that_knows_an_old_world_does_not_come_back_with_it(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    n1.etcd.is_blind = true;
    expire(&n1.etcd);
    notify_lost(&n1.etcd);
    (void)decide("a", 2, 0, 1);
    grant(&n1.etcd);
    for (int i = 0; i < 10; i++) {
        settle();
        pass(USEC_PER_SEC / 5);
    }
    assert_false(has_node_key(&n1));
    assert_null(report_key(&n1, "a", 1));
    n1.etcd.is_blind = false;
    settle();
    dies(&n1.machine, 0);
    dies(&n1.machine, 1);
    pass(USEC_PER_SEC);
    settle();
    assert_true(has_node_key(&n1));
    assert_true(killed_of(&n1, "a", 1) != 0);
}

/* ---- the fence ---- */

static void a_fence_fires_heals_and_fires_again(_unused_ void **state)
{
    join(&n1);
    for (int64_t generation = 1; generation <= 2; generation++) {
        run_world("a", generation, 3, 0);
        n1.etcd.is_cut = true;
        renew(&n1.etcd);
        pass(30 * USEC_PER_SEC);
        assert_killed(&n1, 0, false);
        pass(TICK_USEC);
        assert_int_equal(n1.n_fenced, generation);
        assert_killed(&n1, 0, true);
        assert_killed(&n1, 1, true);
        pass(60 * USEC_PER_SEC);
        assert_int_equal(n1.n_fenced, generation); /* one fence for each silence */
        dies(&n1.machine, 0);
        dies(&n1.machine, 1);
        n1.etcd.is_cut = false;
        renew(&n1.etcd);
        settle();
        assert_false(n1.manager->fence.fenced);
    }
}

static void a_word_of_etcd_puts_the_fence_off(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    for (int i = 0; i < 4; i++) {
        pass(29 * USEC_PER_SEC);
        renew(&n1.etcd);
    }
    pass(29 * USEC_PER_SEC);
    says(&n1.machine, 0, CHANNEL_STEP, 1); /* an answer counts as contact */
    settle();
    pass(29 * USEC_PER_SEC);
    set_phase("b", (PhaseRecord){.phase = PHASE_PENDING});
    settle(); /* an event of a watch counts as contact, too */
    pass(29 * USEC_PER_SEC);
    assert_int_equal(n1.n_fenced, 0);
    assert_killed(&n1, 0, false);
}

static void a_write_that_fails_is_no_word_of_etcd(_unused_ void **state)
{
    char key[KEY_MAX];
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    run_world("a", 1, 3, 0);
    n1.etcd.is_cut = true;
    renew(&n1.etcd);
    node_note_health(&n1.manager->node, NODE_SUSPECT, 0, "disk: it is full", &gpus);
    pass(29 * USEC_PER_SEC);
    answer(under_way(&n1.etcd, key_of("lab", KEY_NODES, "n1", key)), LOST_BEFORE);
    pass(USEC_PER_SEC + TICK_USEC);
    assert_int_equal(n1.n_fenced, 1);
    assert_killed(&n1, 0, true);
}

static void a_loop_that_stood_still_looks_before_it_fences(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    stall(3600 * USEC_PER_SEC);
    pass(0);
    assert_int_equal(n1.n_fenced, 0);
    renew(&n1.etcd); /* etcd's answer had waited in the loop */
    pass(USEC_PER_SEC);
    assert_int_equal(n1.n_fenced, 0);
    assert_killed(&n1, 0, false);
}

/* A jump of the realtime clock ends nothing: realtime is shown to people, and no deadline uses it. */
static void a_clock_that_jumps_a_day_ends_nothing(_unused_ void **state)
{
    join(&n1);
    run_world("a", 1, 3, 0);
    ahead_usec = DAY_SEC * USEC_PER_SEC;
    pass(USEC_PER_SEC);
    says(&n1.machine, 0, CHANNEL_STEP, 1);
    renew(&n1.etcd);
    pass(5 * USEC_PER_SEC);
    settle();
    assert_int_equal(n1.n_fenced, 0);
    assert_killed(&n1, 0, false);
    RanksRecord record = report_of(&n1, "a", 1);
    assert_true(record.first_step_usec > DAY_SEC * USEC_PER_SEC);
    ranks_record_clear(&record);
    drain_signal(n1.manager, "SIGTERM");
    ahead_usec = 2 * DAY_SEC * USEC_PER_SEC;
    pass(USEC_PER_SEC);
    assert_killed(&n1, 0, false);
}

/* ---- another history ---- */

static void another_history_ends_the_node_and_is_told_by_the_next(_unused_ void **state)
{
    join(&n1);
    run_world("a", 7, 3, 0);
    says(&n1.machine, 0, CHANNEL_SAVED, 10);
    settle();
    assert_int_equal(n1.n_committed, 1);
    assert_int_equal(node_record(&n1).n_runs, 0);
    const EtcdHistory was = {.cluster = 1, .revision = 200}, now = {.cluster = 1, .revision = 50};
    n1.etcd.history = now;
    n1.etcd.on_history(&was, &now, n1.etcd.userdata);
    assert_int_equal(n1.n_ended, 1);
    assert_true(n1.manager->history_is_over);
    assert_true(manager_leaves_nothing(n1.manager));
    assert_killed(&n1, 0, true);
    remove_job("a");
    restart(&n1, 50);
    assert_int_equal(n1.etcd.history.revision, 50);
    settle();
    grant(&n1.etcd);
    settle();
    NodeRecord record = node_record(&n1);
    assert_int_equal(record.incarnation, 50);
    assert_int_equal(record.n_runs, 1);
    assert_string_equal(record.runs[0].job, "a");
    assert_int_equal(record.runs[0].generation, 7);
    assert_int_equal(record.runs[0].committed.generation, 7);
    assert_int_equal(record.runs[0].committed.step, 10);
    history_note_world(&n1.manager->history, "a", submission, 3); /* an older generation */
    assert_int_equal(n1.manager->history.record.runs[0].generation, 7);
    run_world("a", 8, 3, 0); /* a newer generation */
    assert_int_equal(node_record(&n1).n_runs, 0);
}

/* Another history before the registration ends nothing: no rank runs, and nothing of the old history is in use. */
static void another_history_before_a_node_is_registered_ends_nothing(_unused_ void **state)
{
    start(&n1);
    const EtcdHistory was = {.cluster = 1, .revision = 200}, now = {.cluster = 1, .revision = 50};
    n1.etcd.history = now;
    n1.etcd.on_history(&was, &now, n1.etcd.userdata);
    assert_int_equal(n1.n_ended, 0);
    grant(&n1.etcd);
    settle();
    assert_int_equal(n1.n_registered, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_node_registers_when_its_probes_have_answered),
        CASE(a_record_that_says_the_same_is_not_put_again),
        CASE(rights_that_are_missing_are_asked_for_again),
        CASE(a_shared_user_is_told),
        CASE(an_answer_about_rights_that_is_lost_is_asked_for_at_once),
        CASE(an_answer_that_is_lost_is_read_again),
        CASE(a_record_that_is_refused_is_tried_slowly),
        CASE(a_record_that_was_removed_is_put_back_and_its_ranks_run_on),
        CASE(a_key_that_died_and_was_reborn_in_one_batch_counts_as_removed),
        CASE(a_key_is_reborn_while_it_is_written),
        CASE(a_key_goes_while_it_is_written_and_no_watch_shows_it),
        CASE(what_cannot_be_read_is_written_over),
        CASE(a_cordon_of_a_longer_name_is_not_ours),
        CASE(a_lease_that_is_taken_anew_brings_node_and_ranks_together),
        CASE(a_new_lease_takes_one_transaction),
        CASE(what_ended_without_a_lease_is_told_under_the_next),
        CASE(a_node_comes_back_when_its_old_ranks_are_dead),
        CASE(a_node_that_came_back_tells_its_verdict_while_old_ranks_die),
        CASE(a_node_that_knows_an_old_world_does_not_come_back_with_it),
        CASE(a_fence_fires_heals_and_fires_again),
        CASE(a_word_of_etcd_puts_the_fence_off),
        CASE(a_write_that_fails_is_no_word_of_etcd),
        CASE(a_loop_that_stood_still_looks_before_it_fences),
        CASE(a_clock_that_jumps_a_day_ends_nothing),
        CASE(another_history_ends_the_node_and_is_told_by_the_next),
        CASE(another_history_before_a_node_is_registered_ends_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
