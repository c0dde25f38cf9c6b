/* SPDX-License-Identifier: Apache-2.0 */
/* test-node-requests.c - what a node's record contains, and what a node does at requests and cordons. See
 * test-node.c. */
#include "base/clock.h"
#include "daemon/test/testing-node.h"

#include <string.h>

/* ---- the node's record ---- */

/* The record has all facts by which leaders place ranks. */
static void a_record_says_what_the_node_is(_unused_ void **state)
{
    n1.config.labels = json_pack("{s:s,s:s}", "price", "spot", "rack", "r7");
    (void)snprintf(n1.config.address, sizeof(n1.config.address), "10.0.0.7");
    (void)snprintf(n1.config.log_dir, sizeof(n1.config.log_dir), "/var/log/lab");
    join(&n1);
    NodeRecord record = node_record(&n1);
    assert_string_equal(record.name, "n1");
    assert_string_equal(record.machine_id, n1.config.machine_id);
    assert_string_equal(record.boot_id, "8c5a3f1e-0000-0000-0000-000000000000");
    assert_string_equal(record.address, "10.0.0.7");
    assert_string_equal(record.log_dir, "/var/log/lab");
    assert_string_equal(record.price_class, "spot");
    assert_non_null(strstr(node_key(&n1)->value, "\"rack\":\"r7\""));
    assert_true(*record.version);
    assert_int_equal(record.n_slots, 16);
    assert_int_equal(record.lease_sec, 10);
    assert_int_equal(record.startup_usec, 3600 * USEC_PER_SEC);
    assert_int_equal(record.state, NODE_UP);
    assert_string_equal(record.job, "");
    json_decref(n1.config.labels);
    n1.config.labels = NULL;
}

/* The record names the first world whose ranks live; a world whose ranks have ended is not named. */
static void a_record_names_the_world_that_runs(_unused_ void **state)
{
    submit("b");
    join(&n1);
    run_world("a", 3, 1, 0);
    run_world("b", 5, 2, 0);
    const int64_t of_a = job_find(&n1.manager->workload, "a")->world_revision;
    dies(&n1.machine, 1);
    settle();
    NodeRecord record = node_record(&n1);
    assert_string_equal(record.job, "a");
    assert_int_equal(record.generation, 3);
    assert_int_equal(record.world_revision, of_a);
    dies(&n1.machine, 0);
    settle();
    record = node_record(&n1);
    assert_string_equal(record.job, "");
    assert_true(record.generation == 0 && record.world_revision == 0);
}

static void evidence_that_is_no_text_is_told(_unused_ void **state)
{
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    node_note_health(&n1.manager->node, NODE_SUSPECT, 0, "dmesg: \xff\xfe", &gpus);
    settle();
    assert_string_equal(node_record(&n1).evidence, "dmesg: ??");
    node_note_health(&n1.manager->node, NODE_HEALTHY, 0, "", &gpus);
    settle();
    assert_string_equal(node_record(&n1).evidence, "");
}

/* A drain makes the node's verdict at least "drain". If the probes' verdict is as bad, its evidence stays. */
static void a_drain_does_not_hide_a_worse_verdict(_unused_ void **state)
{
    const SlotGpus gpus = {.n = 0};
    join(&n1);
    node_note_health(&n1.manager->node, NODE_SUSPECT, 0, "warm", &gpus);
    run_world("a", 1, 1, 0);
    drain_signal(n1.manager, "SIGTERM");
    settle();
    assert_int_equal(node_record(&n1).verdict, NODE_DRAIN);
    assert_string_equal(node_record(&n1).evidence, "sdtraind is told to stop");
    node_note_health(&n1.manager->node, NODE_DRAIN, 0, "it is taken away", &gpus);
    settle();
    assert_string_equal(node_record(&n1).evidence, "it is taken away");
}

/* ---- cordons ---- */

/* A quarantine still counts when its time is over: only a check ends it, since until then the node's results may be
 * wrong. */
static void a_quarantine_whose_time_is_over_counts(_unused_ void **state)
{
    char key[KEY_MAX];
    CordonRecord cordon = {.n_causes = 2};
    join(&n1);
    run_world("a", 1, 3, 0);
    cordon.causes[0] = (CordonCause){.owner = CORDON_OPERATOR, .mode = CORDON_DRAIN, .reason = "x"};
    cordon.causes[1] = (CordonCause){.owner = CORDON_JOB,
                                     .job = "a",
                                     .mode = CORDON_QUARANTINE,
                                     .until_usec = clock_realtime_usec() - USEC_PER_SEC,
                                     .reason = "bad sums"};
    _cleanup_free_ char *text = cordon_record_encode(&cordon, NULL);
    (void)put(key_of("lab", KEY_CORDONS, "n1", key), text, 0);
    settle();
    assert_killed(&n1, 0, true);
    assert_killed(&n1, 1, true);
}

/* ---- requests ---- */

static void put_request(const char *id, const char *kind, const char *target,
                        const char *machine_id, const char *of, const char *has_answer)
{
    char key[KEY_MAX];
    RequestRecord request = {.at_usec = 1};
    (void)snprintf(request.answer, sizeof(request.answer), "%s", has_answer);
    (void)snprintf(request.id, sizeof(request.id), "%s", id);
    (void)snprintf(request.kind, sizeof(request.kind), "%s", kind);
    (void)snprintf(request.target, sizeof(request.target), "%s", target);
    (void)snprintf(request.machine_id, sizeof(request.machine_id), "%s", machine_id);
    (void)snprintf(request.submission, sizeof(request.submission), "%s", of);
    _cleanup_free_ char *text = request_record_encode(&request, NULL);
    (void)put(key_of("lab", KEY_REQUESTS, id, key), text, 0);
}

static void ask(const char *id, const char *kind, const char *target, const char *machine_id,
                const char *of)
{
    put_request(id, kind, target, machine_id, of, "");
    settle();
}

static void expect_answer(const char *id, const char *text)
{
    char key[KEY_MAX];
    RequestRecord request;
    Error err = ERROR_INIT;
    const StoredKey *k = find(key_of("lab", KEY_REQUESTS, id, key));
    assert_int_equal(request_record_decode(k->key, k->value, strlen(k->value), &request, &err), 0);
    assert_string_equal(request.answer, text);
    request_record_clear(&request);
}

static void a_node_answers_what_means_its_machine(_unused_ void **state)
{
    join(&n1);
    ask("r1", "check", "n1", "", "");
    assert_int_equal(n1.n_checks, 1);
    ask("r2", "check", "n2", "", "");
    ask("r3", "check", "n1", n2.config.machine_id, "");
    ask("r4", "check", "n10", "", "");
    assert_int_equal(n1.n_checks, 1);
    ask("r5", "clear", "n1", n1.config.machine_id, "");
    assert_int_equal(n1.n_checks, 1);
    assert_int_equal(n1.n_clears, 1);
    ask("r6", "doctor", "", "", ""); /* a request to all nodes */
    ask("r7", "doctor", "n1", "", "");
    ask("r8", "doctor", "n2", "", "");
    assert_int_equal(n1.n_doctors, 2);
    char key[KEY_MAX];
    const StoredKey *k = find(key_of("lab", KEY_REQUESTS, "r1", key));
    EtcdKeyValue kv = {.key = k->key,
                       .value = k->value,
                       .n_value = strlen(k->value),
                       .mod_revision = k->modified};
    requests_answer(&n1.etcd, &kv, "healthy");
    settle();
    expect_answer("r1", "healthy");
    assert_int_equal(n1.n_checks, 1); /* the answer is not a new request */
}

static void a_checkpoint_is_asked_of_rank_0_of_that_submission(_unused_ void **state)
{
    join(&n1);
    ask("r1", "checkpoint", "a", "", submission);
    expect_answer("r1", ""); /* rank 0 is elsewhere: another node answers */
    (void)decide("a", 1, 3, 0);
    settle();
    ask("r2", "checkpoint", "a", "", submission);
    expect_answer("r2", "refused: the job does not train now");
    run_world("a", 2, 12, 0);
    ask("r3", "checkpoint", "a", "", "fedcba9876543210fedcba9876543210");
    expect_answer("r3", "");
    assert_int_equal(n1.machine.trainers[2].n_told[CHANNEL_CHECKPOINT], 0);
    ask("r4", "checkpoint", "a", "", submission);
    expect_answer("r4", "rank 0 saves after its present step");
    assert_int_equal(n1.machine.trainers[2].n_told[CHANNEL_CHECKPOINT], 1);
    assert_int_equal(n1.machine.trainers[3].n_told[CHANNEL_CHECKPOINT], 0);
    list_again(&n1.etcd);
    settle();
    assert_int_equal(n1.machine.trainers[2].n_told[CHANNEL_CHECKPOINT], 1);
    dies(&n1.machine, 2);
    ask("r5", "checkpoint", "a", "", submission);
    expect_answer("r5", "refused: the job does not train now");
}

/* A request that is withdrawn, or answered by another writer, while our answer is under way stays as it is. */
static void an_answer_is_to_the_request_that_was_read(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    run_world("a", 1, 3, 0);
    put_request("r1", "checkpoint", "a", "", submission, "");
    show(&n1.etcd);
    (void)delete_key(key_of("lab", KEY_REQUESTS, "r1", key));
    settle();
    assert_null(find(key));
    put_request("r2", "checkpoint", "a", "", submission, "");
    show(&n1.etcd);
    put_request("r2", "checkpoint", "a", "", submission, "it is too late");
    settle();
    expect_answer("r2", "it is too late");
}

/* A probe's answer may contain bytes that are not text; they are replaced. */
static void an_answer_that_is_no_text_is_given(_unused_ void **state)
{
    char key[KEY_MAX];
    join(&n1);
    ask("r1", "check", "n1", "", "");
    const StoredKey *k = find(key_of("lab", KEY_REQUESTS, "r1", key));
    EtcdKeyValue kv = {.key = k->key,
                       .value = k->value,
                       .n_value = strlen(k->value),
                       .mod_revision = k->modified};
    requests_answer(&n1.etcd, &kv, "dmesg: \xff");
    settle();
    expect_answer("r1", "dmesg: ?");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, nodes_set_up, nodes_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_record_says_what_the_node_is),
        CASE(a_record_names_the_world_that_runs),
        CASE(evidence_that_is_no_text_is_told),
        CASE(a_drain_does_not_hide_a_worse_verdict),
        CASE(a_quarantine_whose_time_is_over_counts),
        CASE(an_answer_that_is_no_text_is_given),
        CASE(a_node_answers_what_means_its_machine),
        CASE(a_checkpoint_is_asked_of_rank_0_of_that_submission),
        CASE(an_answer_is_to_the_request_that_was_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
