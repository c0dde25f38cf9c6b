/* test-ctl-health.c - `sdctl node check|uncordon|status` against a real etcd; the test plays the node. */
#include "base/testing.h"

#include "ctl/testing-ctl.h"

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

/* What the node answers to what sdctl, begun before, has asked it. */
static void answer(CtlLab *lab, const char *kind, const char *words)
{
    char id[64];
    _cleanup_free_ char *text = ctl_wait_any(lab, KEY_REQUESTS, id, sizeof(id));
    RequestRecord request = {.target = "n1"};
    char wanted[64];
    (void)snprintf(wanted, sizeof(wanted), "\"kind\":\"%s\"", kind);
    assert_contains(text, wanted);
    assert_contains(text, "\"target\":\"n1\"");
    (void)snprintf(request.id, sizeof(request.id), "%.39s", id);
    (void)snprintf(request.kind, sizeof(request.kind), "%s", kind);
    (void)snprintf(request.answer, sizeof(request.answer), "%s", words);
    CTL_PUT(lab, KEY_REQUESTS, id, request_record, request);
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
    assert_int_equal(ctl_finish(lab), 1); /* not fit */
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

static void quarantine(CtlLab *lab)
{
    CTL_PUT(lab, KEY_CORDONS, "n1", cordon_record,
            ((CordonRecord){.node = "n1", .mode = CORDON_QUARANTINE, .reason = "xid 79"}));
}

static void a_quarantine_ends_with_a_good_check(void **state)
{
    CtlLab *lab = *state;
    quarantine(lab); /* the node is gone: nobody can say */
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

    quarantine(lab); /* by force: what a reset would have cured is forgotten first */
    ctl_begin(lab, "node uncordon n1 --force");
    answer(lab, "clear", "drain: gpu: a row waits for a reset");
    assert_int_equal(ctl_finish(lab), 0);
    assert_contains(lab->err, "it may be quarantined again");
    assert_null(ctl_get(lab, KEY_CORDONS, "n1"));

    assert_int_equal(ctl_run(lab, "node cordon n1"), 0); /* an operator's own needs no check */
    assert_int_equal(ctl_run(lab, "node uncordon n1"), 0);
}

static int start(void **state)
{
    *state = ctl_lab_start(true);
    return 0;
}

static int stop(void **state)
{
    *state = ctl_lab_stop(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_check_is_asked_for_and_shown, start, stop),
        cmocka_unit_test_setup_teardown(a_quarantine_ends_with_a_good_check, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
