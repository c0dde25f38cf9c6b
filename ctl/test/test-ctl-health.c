/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-health.c - `sdctl node check|uncordon|status` against a real etcd; the test plays the node. */
#include "base/test/testing.h"

#include "ctl/test/testing-ctl.h"

#include <string.h>

static void put_node(CtlLab *lab)
{
    CTL_PUT(lab, KEY_NODES, "n1", node_record,
            ((NodeRecord){.name = "n1", .machine_id = "m", .n_slots = 8, .bad_slots = 4}));
}

static void put_health(CtlLab *lab)
{
    HealthRecord health = {.node = "n1",
                           .machine_id = "m",
                           .verdict = NODE_DRAIN,
                           .evidence = "gpu: a row waits for a reset",
                           .cure = "a reset",
                           .bad_slots = 4,
                           .since_usec = 1700000000000000,
                           .at_usec = 1700000060000000,
                           .n_probes = 2};
    health.probes[0] = (HealthProbeRecord){.name = "gpu",
                                           .verdict = NODE_DRAIN,
                                           .text = "a row waits for a reset",
                                           .cure = "a reset",
                                           .at_usec = 1700000060000000};
    health.probes[1] = (HealthProbeRecord){.name = "kernel-log", .text = "all is read"};
    CTL_PUT(lab, KEY_HEALTH, "n1", health_record, health);
}

/* Answers the request of the running sdctl, as the node would do. Returns the request with its answer. */
static RequestRecord answer_of(CtlLab *lab, const char *node, const char *kind, const char *words)
{
    char id[64];
    _cleanup_free_ char *text = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    RequestRecord request;
    Error err = ERROR_INIT;
    assert_int_equal(request_record_decode(id, text, strlen(text), &request, &err), 0);
    assert_string_equal(request.kind, kind);
    assert_string_equal(request.target, node);
    (void)snprintf(request.answer, sizeof(request.answer), "%s", words);
    CTL_PUT(lab, KEY_REQUESTS, id, request_record, request);
    return request;
}

static void answer(CtlLab *lab, const char *kind, const char *words)
{
    (void)answer_of(lab, "n1", kind, words);
}

static void a_check_is_asked_for_and_shown(void **state)
{
    CtlLab *lab = *state;
    assert_int_equal(ctl_run(lab, "node check n1"), 3);
    assert_contains(lab->err, "node n1 is not here: nobody can check it");
    assert_int_equal(ctl_run(lab, "node check ../n1"), 3);
    put_node(lab);
    put_health(lab);
    assert_int_equal(ctl_run(lab, "node check n1 --timeout 0.1"), 4);
    assert_contains(lab->err, "node n1 did not answer within 0.1 s");

    ctl_begin(lab, "node check n1");
    answer(lab, "check", "drain: gpu: a row waits for a reset");
    assert_int_equal(ctl_finish(lab), 1); /* 1: the node is not fit */
    assert_contains(lab->out, "node n1: drain: gpu: a row waits for a reset\n");
    assert_contains(lab->out, "cleared by a reset");
    assert_contains(lab->out, "slots not to be used: 2\n");
    assert_contains(lab->out, "kernel-log");
    ctl_begin(lab, "node check n1 --clear -o json");
    answer(lab, "clear", "healthy");
    assert_int_equal(ctl_finish(lab), 0);
    json_t *j = ctl_json(lab), *health = json_object_get(j, "health");
    assert_string_equal(json_string_value(json_object_get(j, "answer")), "healthy");
    assert_int_equal(json_array_size(json_object_get(health, "probes")), 2);
    json_decref(j);

    assert_int_equal(ctl_run(lab, "node status n1"), 0);
    assert_contains(lab->out, "drain since ");
    assert_contains(lab->out, "a row waits for a reset");
    assert_int_equal(ctl_run(lab, "node status n1 -o json"), 0);
    j = ctl_json(lab);
    assert_string_equal(json_string_value(json_object_get(j, "bad_slots")), "2");
    health = json_object_get(j, "health");
    assert_string_equal(json_string_value(json_object_get(health, "cleared_by")), "a reset");
    json_decref(j);
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "node n1: slots not to be used: 2");
}

#define MACHINE_1 "11111111111111111111111111111111"
#define MACHINE_2 "22222222222222222222222222222222"

static void quarantine_machine(CtlLab *lab, const char *node, const char *machine_id)
{
    CordonRecord record = {
        .n_causes = 1,
        .causes = {{.owner = CORDON_MACHINE, .mode = CORDON_QUARANTINE, .reason = "xid 79"}}};
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    (void)snprintf(record.causes[0].machine_id, sizeof(record.causes[0].machine_id), "%s",
                   machine_id);
    CTL_PUT(lab, KEY_CORDONS, node, cordon_record, record);
}

static void quarantine(CtlLab *lab) { quarantine_machine(lab, "n1", ""); }

static void a_quarantine_ends_with_a_good_check(void **state)
{
    CtlLab *lab = *state;
    quarantine(lab); /* the node is not registered, so it cannot check itself */
    assert_int_equal(ctl_run(lab, "node uncordon n1"), 3);
    assert_contains(lab->err, "node n1 stays in quarantine (--force lets it in unchecked)");
    assert_int_equal(ctl_run(lab, "node uncordon n1 --force"), 0);
    assert_contains(lab->err, "let in unchecked");
    assert_null(ctl_get(lab, KEY_CORDONS, "n1"));

    put_node(lab);
    quarantine(lab);
    ctl_begin(lab, "node uncordon n1");
    answer(lab, "check", "isolate: gpu: lost");
    assert_int_equal(ctl_finish(lab), 1);
    assert_contains(lab->err, "node n1 stays in quarantine, its check says: isolate: gpu: lost");
    _cleanup_free_ char *kept = ctl_get(lab, KEY_CORDONS, "n1");
    assert_non_null(kept);

    ctl_begin(lab, "node uncordon n1");
    answer(lab, "check", "suspect: clock: nobody knows");
    assert_int_equal(ctl_finish(lab), 0);
    assert_contains(lab->out, "node n1 may have ranks again\n");
    assert_null(ctl_get(lab, KEY_CORDONS, "n1"));

    quarantine(lab); /* with --force the node first forgets faults that only a reset repairs */
    ctl_begin(lab, "node uncordon n1 --force");
    answer(lab, "clear", "drain: gpu: a row waits for a reset");
    assert_int_equal(ctl_finish(lab), 0);
    assert_contains(lab->err, "it may be quarantined again");
    assert_null(ctl_get(lab, KEY_CORDONS, "n1"));

    /* An operator's cordon ends without a check. */
    assert_int_equal(ctl_run(lab, "node cordon n1"), 0);
    assert_int_equal(ctl_run(lab, "node uncordon n1"), 0);
}

/* A cordon of the operator is kept beside a quarantine, and uncordon still requires the check. */
static void a_cordon_does_not_replace_a_quarantine(void **state)
{
    CtlLab *lab = *state;
    put_node(lab);
    quarantine(lab);
    assert_int_equal(ctl_run(lab, "node cordon n1 --reason mine"), 0);
    _cleanup_free_ char *both = ctl_get(lab, KEY_CORDONS, "n1");
    assert_contains(both, "\"mode\":\"quarantine\"");
    assert_contains(both, "\"reason\":\"mine\"");
    ctl_begin(lab, "node uncordon n1");
    answer(lab, "check", "isolate: gpu: lost");
    assert_int_equal(ctl_finish(lab), 1);
    _cleanup_free_ char *kept = ctl_get(lab, KEY_CORDONS, "n1");
    assert_string_equal(kept, both);
}

static void put_machine(CtlLab *lab, const char *name, const char *machine_id)
{
    NodeRecord node = {.incarnation = 1, .n_slots = 1};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    (void)snprintf(node.machine_id, sizeof(node.machine_id), "%s", machine_id);
    CTL_PUT(lab, KEY_NODES, name, node_record, node);
}

/* A quarantine belongs to a machine. Another machine that gets the node's name is not checked and does not end the
 * quarantine. The quarantined machine is checked under its new name, and the quarantine under the old name ends. */
static void a_quarantine_is_of_its_machine(void **state)
{
    CtlLab *lab = *state;
    quarantine_machine(lab, "n1", MACHINE_1);
    put_machine(lab, "n1", MACHINE_2);
    /* The node is not checked, because its machine is not in quarantine. */
    assert_int_equal(ctl_run(lab, "node uncordon n1"), 0);
    assert_contains(lab->out, "another machine that had this name");
    _cleanup_free_ char *held = ctl_get(lab, KEY_CORDONS, "n1");
    assert_non_null(held);
    assert_int_equal(ctl_run(lab, "node status n1"), 0);
    assert_contains(lab->out, "of machine " MACHINE_1 ", which had this name: xid 79");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "machine " MACHINE_1 ", which was node n1, is in quarantine");

    put_machine(lab, "n9", MACHINE_1);
    ctl_begin(lab, "node uncordon n9");
    RequestRecord request = answer_of(lab, "n9", "check", "healthy");
    assert_string_equal(request.machine_id, MACHINE_1);
    assert_int_equal(ctl_finish(lab), 0);
    assert_null(ctl_get(lab, KEY_CORDONS, "n1"));
}

/* A cordon record that cannot be read keeps the node out until a person removes the record with --force. */
static void a_damaged_record_is_removed_by_force(void **state)
{
    CtlLab *lab = *state;
    put_node(lab);
    ctl_put_text(lab, KEY_CORDONS, "n1", "{\"v\":2,\"causes\":7}");
    assert_int_equal(ctl_run(lab, "node cordon n1"), 1);
    assert_contains(lab->err, "sdctl node uncordon n1 --force removes it");
    assert_int_equal(ctl_run(lab, "node uncordon n1"), 1);
    assert_int_equal(ctl_run(lab, "node uncordon n1 --force"), 0);
    assert_null(ctl_get(lab, KEY_CORDONS, "n1"));
}

static void put_lost(CtlLab *lab, const char *name, uint64_t left_usec)
{
    HealthRecord health = {.at_usec = 1700000000000000, .left_usec = left_usec};
    (void)snprintf(health.node, sizeof(health.node), "%s", name);
    CTL_PUT(lab, KEY_HEALTH, name, health_record, health);
}

/* Lost nodes stay in the lists, can be cordoned, and are removed by `node forget`. */
static void a_lost_node_stays_until_it_is_forgotten(void **state)
{
    CtlLab *lab = *state;
    put_node(lab);
    put_lost(lab, "n2", 0);
    put_lost(lab, "n3", 1700000001000000); /* node n3 left in order */
    IncidentRecord loss = {.id = "node-n2-5",
                           .cause = "node-lost",
                           .node = "n2",
                           .evidence = "its lease ran out; it ran 2 ranks of job a",
                           .at_usec = 1700000002000000};
    CTL_PUT(lab, KEY_INCIDENTS, "node-n2-5", incident_record, loss);
    assert_int_equal(ctl_run(lab, "node list"), 0);
    assert_contains(lab->out, "n2    lost ");
    assert_contains(lab->out, "it ran 2 ranks of job a");
    assert_contains(lab->out, "n3    left ");
    assert_int_equal(ctl_run(lab, "node status n2"), 0);
    assert_contains(lab->out, "node n2: lost");
    assert_contains(lab->out, "it ran 2 ranks of job a");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "node n2 is lost");
    assert_null(strstr(lab->out, "node n3 is lost"));

    assert_int_equal(ctl_run(lab, "node cordon n2 --reason seen"), 0);
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_null(strstr(lab->out, "node n2 is lost"));
    assert_int_equal(ctl_run(lab, "node forget n1"), 1);
    assert_contains(lab->err, "node n1 is here");
    assert_int_equal(ctl_run(lab, "node forget n2"), 0);
    assert_null(ctl_get(lab, KEY_HEALTH, "n2"));
    assert_null(ctl_get(lab, KEY_CORDONS, "n2"));
    char id[64];
    _cleanup_free_ char *request = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    assert_contains(request, "\"kind\":\"forget\"");
    assert_contains(request, "\"target\":\"n2\"");
    assert_int_equal(ctl_run(lab, "node forget n2"), 3);
}

/* If the leader admits all nodes and a node uses the etcd user of all nodes, cluster status prints a note. */
static void a_shared_user_beside_an_open_list_is_noted(void **state)
{
    CtlLab *lab = *state;
    NodeRecord node = {.machine_id = "1", .incarnation = 1, .n_slots = 2};
    CTL_PUT(lab, KEY_NODES, "n1", node_record, node);
    ctl_put_text(lab, KEY_LEADER, "2", "{\"v\":2,\"name\":\"c2\"}");
    (void)ctl_run(lab, "cluster status");
    assert_null(strstr(lab->out, "note "));
    (void)snprintf(node.features, sizeof(node.features), "doctor shared");
    CTL_PUT(lab, KEY_NODES, "n2", node_record, node);
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "\n  note    n2 and who else holds etcd's user of all nodes may "
                              "register nodes of any name, and they get ranks");
    (void)ctl_run(lab, "cluster status -o json");
    assert_contains(lab->out, "\"notes\": [\n");
    ctl_put_text(lab, KEY_LEADER, "2", "{\"v\":2,\"name\":\"c2\",\"admit\":\"n*\"}");
    (void)ctl_run(lab, "cluster status");
    assert_null(strstr(lab->out, "note "));
}

/* Nodes that the leader's list does not admit are shown as not admitted. The list of a waiting controller is
 * ignored. */
static void a_node_off_the_list_is_shown(void **state)
{
    CtlLab *lab = *state;
    NodeRecord node = {.machine_id = "1", .incarnation = 1, .n_slots = 2};
    CTL_PUT(lab, KEY_NODES, "gpu-1", node_record, node);
    CTL_PUT(lab, KEY_NODES, "evil", node_record, node);
    ctl_put_text(lab, KEY_LEADER, "2", "{\"v\":2,\"name\":\"c2\",\"admit\":\"gpu-*,own@1\"}");
    /* This controller does not lead, so its list is ignored. */
    ctl_put_text(lab, KEY_LEADER, "3", "{\"v\":2,\"name\":\"c3\",\"admit\":\"evil\"}");
    assert_int_equal(ctl_run(lab, "node list"), 0);
    assert_contains(lab->out,
                    "evil   up     0/2   healthy, not admitted  -    it gets no rank: name "
                    "it in admit");
    assert_contains(lab->out, "gpu-1  up     0/2   healthy                -");
    assert_int_equal(ctl_run(lab, "node status evil"), 0);
    assert_contains(lab->out, "\n  not admitted: it gets no rank");
    assert_int_equal(ctl_run(lab, "node status evil -o json"), 0);
    assert_contains(lab->out, "\"admitted\": false");
    assert_int_equal(ctl_run(lab, "node status gpu-1 -o json"), 0);
    assert_contains(lab->out, "\"admitted\": true");
    ctl_remove(lab, KEY_LEADER, "2");
    assert_int_equal(ctl_run(lab, "node status evil -o json"), 0);
    assert_contains(lab->out, "\"admitted\": true");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_check_is_asked_for_and_shown, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(a_quarantine_ends_with_a_good_check, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(a_cordon_does_not_replace_a_quarantine, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(a_quarantine_is_of_its_machine, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(a_damaged_record_is_removed_by_force, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(a_node_off_the_list_is_shown, ctl_setup, ctl_teardown),
        cmocka_unit_test_setup_teardown(a_shared_user_beside_an_open_list_is_noted, ctl_setup,
                                        ctl_teardown),
        cmocka_unit_test_setup_teardown(a_lost_node_stays_until_it_is_forgotten, ctl_setup,
                                        ctl_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
