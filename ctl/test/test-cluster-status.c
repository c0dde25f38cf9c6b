/* SPDX-License-Identifier: Apache-2.0 */
/* test-cluster-status.c - the faults that `sdctl cluster status` reports: nodes that are lost, closed or missing, a job
 * that has shrunk, members that are down, no quorum. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "ctl/test/testing-ctl.h"

#include <string.h>

static void put_node(CtlLab *lab, const char *name)
{
    NodeRecord node = {.machine_id = "1", .incarnation = 1, .n_slots = 1};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    CTL_PUT(lab, KEY_NODES, name, node_record, node);
}

static void put_cordon(CtlLab *lab, const char *name, CordonMode mode, const char *reason)
{
    CordonRecord cordon = {.n_causes = 1, .causes = {{.mode = mode, .since_usec = 1}}};
    (void)snprintf(cordon.node, sizeof(cordon.node), "%s", name);
    (void)snprintf(cordon.causes[0].reason, sizeof(cordon.causes[0].reason), "%s", reason);
    CTL_PUT(lab, KEY_CORDONS, name, cordon_record, cordon);
}

static void each_thing_that_is_wrong_says_what_to_do(void **state)
{
    (void)state;
    CtlLab *lab = ctl_lab_start(true);
    ctl_put_running_job(lab, "a");
    DesiredRecord desired = {.min = 1, .max = 4}; /* nobody has requested fewer ranks */
    CTL_PUT(lab, KEY_DESIRED, "a", desired_record, desired);
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\"}");
    put_node(lab, "n1");
    put_node(lab, "n2");
    put_node(lab, "n3");
    put_cordon(lab, "n1", CORDON_DRAIN, "kernel update");
    put_cordon(lab, "n3", CORDON_DRAIN, "fan");
    PhaseRecord phase = {.phase = PHASE_RUNNING,
                         .generation = 2,
                         .worlds = {{.generation = 1, .size = 3}, {.generation = 2, .size = 2}},
                         .n_worlds = 2};
    CTL_PUT(lab, KEY_PHASES, "a", phase_record, phase);
    IncidentRecord lost = {.id = "a-1",
                           .job = "a",
                           .cause = "node-lost",
                           .node = "n4",
                           .generation = 1,
                           .state = INCIDENT_RESOLVED,
                           .at_usec = clock_realtime_usec()};
    CTL_PUT(lab, KEY_INCIDENTS, "a-1", incident_record, lost);
    CTL_PUT(lab, KEY_HEALTH, "n4", health_record, ((HealthRecord){.node = "n4", .at_usec = 1}));

    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "! job a runs on 2 ranks; it had 3\n    it grows again by itself");
    assert_contains(lab->out, "! node n4 is lost: nobody has heard of it since ");
    assert_contains(lab->out, "    on n4: systemctl status sdtraind");
    assert_contains(lab->out, "          n1 is being drained: kernel update\n");
    assert_contains(lab->out, "          n3 is drained: fan\n");
    assert_contains(lab->out, "cluster lab: 2 things are wrong, see above\n");

    put_node(lab, "n4");
    ctl_put_phase(lab, "a", PHASE_FAILED, "bad-job: no such column");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_memory_equal(lab->out,
                        "! job a has failed: bad-job: no such column\n    sdctl job logs a", 60);
    assert_contains(lab->out, "cluster lab: 1 thing is wrong, see above\n");
    (void)ctl_lab_stop(lab);
}

/* A lack of room in the store is reported with advice, both before the next save and after a save has failed because of
 * the lack. */
static void a_store_without_room_says_what_makes_some(void **state)
{
    (void)state;
    CtlLab *lab = ctl_lab_start(true);
    ctl_put_running_job(lab, "a");
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\"}");
    put_node(lab, "n1");
    put_node(lab, "n2");
    ProgressRecord progress = {.generation = 2,
                               .step = 12,
                               .steps = 100,
                               .save_next_bytes = 34125000000,
                               .save_free_bytes = 34125000000};
    CTL_PUT(lab, KEY_PROGRESS, "a", progress_record, progress);
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_null(strstr(lab->out, "missing"));
    progress.save_free_bytes -= 300000;
    CTL_PUT(lab, KEY_PROGRESS, "a", progress_record, progress);
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "! job a: 0.3 MB are missing: 34.1 GB free, the next checkpoint has "
                              "34.1 GB\n    free that much in checkpoint.uri, or ");
    static const struct {
        const char *said;
        bool is_short;
    } cases[] = {
        {"nothing was saved since step 5: 0.3 MB are missing in file:///full (34.1 MB free", true},
        {"nothing was saved since step 5: s3://b/a has no room for 34.1 MB: lower", true},
        {"nothing was saved since step 5: cannot write /a: No space left on device", true},
        {"nothing was saved since step 5: cannot write /a: Disk quota exceeded", true},
        {"nothing was saved since step 5: s3://b/a: no answer for 300 s", false},
    };
    progress.unsaved_since_usec = 1;
    CTL_PUT(lab, KEY_PROGRESS, "a", progress_record, progress);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        IncidentRecord incident = {.id = "a-1",
                                   .job = "a",
                                   .cause = "store-trouble",
                                   .rank = -1,
                                   .generation = 2,
                                   .state = INCIDENT_OPEN,
                                   .at_usec = 1};
        (void)snprintf(incident.evidence, sizeof(incident.evidence), "%s", cases[i].said);
        CTL_PUT(lab, KEY_INCIDENTS, "a-1", incident_record, incident);
        assert_int_equal(ctl_run(lab, "cluster status"), 0);
        assert_contains(lab->out, cases[i].said);
        assert_int_equal(!!strstr(lab->out, "    training goes on unsaved: free what it names"),
                         cases[i].is_short);
        assert_int_equal(!strstr(lab->out, "recovers by itself"), cases[i].is_short);
        assert_null(strstr(lab->out, "! job a: "));
    }
    (void)ctl_lab_stop(lab);
}

/* Rights that the leader lacks in etcd are reported as faults, because the leader reports them in its record. */
static void what_the_leader_may_not_write_is_wrong(void **state)
{
    (void)state;
    CtlLab *lab = ctl_lab_start(true);
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"c1\",\"lacks\":\"worlds secrets\"}");
    ctl_put_text(lab, KEY_LEADER, "2", "{\"v\":2,\"name\":\"c2\",\"lacks\":\"alerts\"}");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out,
                    "! the leader may not write worlds in etcd: what it decides with them fails\n"
                    "    /usr/share/sdtrain/etcd-roles brings its role up to date");
    assert_contains(
        lab->out,
        "! the leader may not write secrets in etcd and leaves them out: worlds get no secret");
    assert_contains(lab->out, "cluster lab: 2 things are wrong, see above\n");
    assert_null(strstr(lab->out, "alerts")); /* rights of a waiting controller are not reported */
    (void)ctl_lab_stop(lab);
}

static bool sees_no_quorum(CtlLab *lab, const char *endpoints)
{
    int code = ctl_run(lab, "cluster status --etcd %s", endpoints);
    return code == 5 && strstr(lab->out, "no quorum");
}

static void members_are_asked_one_by_one(void **state)
{
    (void)state;
    CtlLab *lab = ctl_lab_start(false);
    TestingEtcd *server = testing_etcd_start(3, 0);
    const char *endpoints = testing_etcd_endpoints(server);
    char words[256];
    assert_int_equal(ctl_run(lab, "cluster status --etcd %s", endpoints), 0);
    (void)snprintf(words, sizeof(words), "3 of 3 members answer, %s leads; its database has ",
                   testing_etcd_endpoint(server, testing_etcd_leader(server)));
    assert_contains(lab->out, words);

    const size_t leader = testing_etcd_leader(server), other = (leader + 1) % 3;
    testing_etcd_kill(server, other);
    assert_int_equal(ctl_run(lab, "cluster status --etcd %s", endpoints), 0);
    (void)snprintf(words, sizeof(words),
                   "! etcd member %s does not answer: ", testing_etcd_endpoint(server, other));
    assert_memory_equal(lab->out, words, strlen(words));
    assert_contains(lab->out, "    start it before another one fails");
    assert_contains(lab->out, "  etcd    2 of 3 members answer, ");

    testing_etcd_kill(server, leader);
    for (int i = 0; i < 20 && !sees_no_quorum(lab, endpoints); i++)
        continue; /* without a pause, because each run of sdctl takes seconds */
    assert_memory_equal(lab->out,
                        "! etcd has no quorum: 1 of 3 members answers, and sees no leader\n", 65);
    assert_contains(lab->out, "    start the others: until then nothing is decided");
    assert_contains(lab->out, ": 3 things are wrong, see above\n");
    assert_contains(lab->err, "cannot reach etcd at ");
    assert_int_equal(ctl_run(lab, "cluster status -o json --etcd %s", endpoints), 5);
    json_t *j = ctl_json(lab);
    assert_true(json_is_false(json_object_get(j, "ok")));
    assert_int_equal(json_array_size(json_object_get(j, "members")), 3);
    assert_null(json_object_get(j, "leader")); /* the leader is unknown without a quorum */
    json_decref(j);
    (void)testing_etcd_stop(server);
    (void)ctl_lab_stop(lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thing_that_is_wrong_says_what_to_do),
        cmocka_unit_test(a_store_without_room_says_what_makes_some),
        cmocka_unit_test(what_the_leader_may_not_write_is_wrong),
        cmocka_unit_test(members_are_asked_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
