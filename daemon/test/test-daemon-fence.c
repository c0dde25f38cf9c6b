/* SPDX-License-Identifier: Apache-2.0 */
/* test-daemon-fence.c - lost leases, an etcd that does not answer, worlds that moved, and drains. */
#include "daemon/test/testing-daemon.h"

#include "base/file.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define ENDLESS "\"FAKE_STEPS=1000000\""

static const LabWhere here = {"a", 1, 0, 0};

static LabNode *start_training(Lab *lab, const char *environment, const char *settings,
                               const char *fault)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), "\"slots\": 1, \"trainer_environment\": [%s]%s%s",
                   environment, *settings ? ", " : "", settings);
    LabNode *node = lab_start_node(lab, 0, text, fault);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 1}}, 1);
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    return node;
}

static int pid_of(Lab *lab, int64_t generation)
{
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", generation, 0, &ranks));
    return ranks.ranks[0].pid;
}

static bool has_another_lease(Lab *lab, const void *userdata)
{
    const int64_t *old = userdata;
    int64_t node = lab_lease_of(lab, "/sdtrain/lab/nodes/node0");
    return node != 0 && node != *old && lab_lease_of(lab, "/sdtrain/lab/ranks/a/1/node0") == node;
}

static void revoke_lease(Lab *lab, int64_t lease)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%llx", (long long)lease);
    testing_etcd_ctl(lab_etcd(lab), "lease", "revoke", text, NULL);
}

/* A node that loses its lease registers again under a new lease, with the same incarnation and its ranks running. */
static void test_lost_lease_is_replaced(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)start_training(lab, ENDLESS, "", NULL);
    lab_wait(lab, lab_has_first_step, &here);
    NodeRecord before, after;
    assert_true(lab_node_record(lab, 0, &before));
    int pid = pid_of(lab, 1);
    int64_t lease = lab_lease_of(lab, "/sdtrain/lab/nodes/node0");
    assert_true(lease != 0);
    revoke_lease(lab, lease);
    lab_wait(lab, has_another_lease, &lease);
    assert_true(lab_node_record(lab, 0, &after));
    assert_true(after.incarnation == before.incarnation);
    assert_int_equal(pid_of(lab, 1), pid);
    assert_int_equal(kill(pid, 0), 0);
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    assert_int_equal(ranks.ranks[0].state, RANK_RUNNING);
}

static bool has_progress_beyond(Lab *lab, const void *userdata)
{
    const int64_t *step = userdata;
    const char *value = lab_value(lab, "/sdtrain/lab/progress/a");
    const char *at = value ? strstr(value, "\"step\":") : NULL;
    return at && strtoll(at + strlen("\"step\":"), NULL, 10) > *step;
}

/* etcd is frozen for longer than the lease: the ranks train on. When etcd answers again, the node registers again,
 * and its commits count again. */
static void test_silent_etcd_stops_nothing(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node =
        start_training(lab, ENDLESS ", \"FAKE_SAVE_EVERY=50\"", "\"lease_sec\": 3", NULL);
    lab_wait(lab, lab_has_commits, &(LabCommits){"a", 1});
    int pid = pid_of(lab, 1);
    int pidfds[2];
    size_t n = lab_marked(node, pidfds, ELEMENTSOF(pidfds));
    assert_int_equal(n, 1);

    testing_etcd_freeze(lab_etcd(lab), 0);
    assert_false(lab_all_end(pidfds, n, 5000)); /* no rank has ended within 5 s */
    testing_etcd_thaw(lab_etcd(lab), 0);
    CheckpointsRecord record;
    assert_true(lab_checkpoints(lab, "a", &record));
    lab_wait(lab, lab_has_commits, &(LabCommits){"a", record.n_commits + 2});
    assert_int_equal(pid_of(lab, 1), pid);
    int64_t step = 100;
    lab_wait(lab, has_progress_beyond, &step);
}

/* Ranks are stopped when etcd is silent for longer than fence_sec. */
static void test_fence(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, ENDLESS, "\"lease_sec\": 4, \"fence_sec\": 5", NULL);
    lab_wait(lab, lab_has_first_step, &here);
    int pidfds[2];
    size_t n = lab_marked(node, pidfds, ELEMENTSOF(pidfds));
    testing_etcd_freeze(lab_etcd(lab), 0);
    assert_true(lab_all_end(pidfds, n, LAB_WAIT_MSEC));
    testing_etcd_thaw(lab_etcd(lab), 0);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_EXITED});
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    assert_true(ranks.ranks[0].killed);
    assert_non_null(strstr(ranks.ranks[0].text, "fence_sec"));
}

static bool is_registered(Lab *lab, _unused_ const void *where)
{
    NodeRecord record;
    return lab_node_record(lab, 0, &record);
}

/* The node is frozen while its lease runs out and the world moves on without it. When the node runs again, it finds
 * the new world and kills the ranks of the old world. */
static void test_lease_gone_and_world_moved(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, ENDLESS, "", NULL);
    (void)lab_start_node(lab, 1, "", NULL);
    lab_wait(lab, lab_has_first_step, &here);
    int pidfds[2];
    size_t n = lab_marked(node, pidfds, ELEMENTSOF(pidfds));

    int64_t lease = lab_lease_of(lab, "/sdtrain/lab/nodes/node0");
    assert_int_equal(kill(node->pid, SIGSTOP), 0);
    revoke_lease(lab, lease);
    (void)lab_put_world(lab, "a", 2, (LabRun[]){{1, 1}}, 1);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 2, 1, RANK_READY});
    assert_int_equal(kill(node->pid, SIGCONT), 0);
    assert_true(lab_all_end(pidfds, n, LAB_WAIT_MSEC));
    lab_wait(lab, lab_is_killed, &(LabWhere){"a", 1, 0, 0});
    lab_wait(lab, is_registered, NULL); /* the ranks' report may come before the node's record */
}

/* The world moves just before the daemon writes a commit: the guard of the write refuses the commit. */
static void test_commit_of_an_old_world_is_refused(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)lab_start_node(lab, 1, "", NULL);
    LabNode *node =
        start_training(lab, ENDLESS ", \"FAKE_SAVE_EVERY=5\"", "", "commit-write=stop@2");
    lab_wait(lab, lab_has_commits, &(LabCommits){"a", 1});
    int status;
    assert_int_equal(waitpid(node->pid, &status, WUNTRACED), node->pid);
    assert_true(WIFSTOPPED(status)); /* the daemon has stopped before its second commit */
    (void)lab_put_world(lab, "a", 2, (LabRun[]){{1, 1}}, 1);
    assert_int_equal(kill(node->pid, SIGCONT), 0);
    lab_wait(lab, lab_is_killed, &(LabWhere){"a", 1, 0, 0});
    CheckpointsRecord record;
    assert_true(lab_checkpoints(lab, "a", &record));
    assert_int_equal(record.n_commits, 1);
    assert_int_equal(record.commits[0].step, 5);
}

/* The answer to each commit is lost: the daemon reads the record again, finds the commit, and does not write it
 * twice. */
static void test_lost_answer_commits_once(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)start_training(lab, "\"FAKE_SAVE_EVERY=5\"", "", "commit-answer-lost=eio@*");
    lab_wait(lab, lab_is_finished, &here);
    CheckpointsRecord record;
    assert_true(lab_checkpoints(lab, "a", &record));
    assert_int_equal(record.n_commits, 2);
    assert_int_equal(record.commits[0].step, 5);
    assert_int_equal(record.commits[1].step, 10);
}

/* Another writer, such as the leader, has written checkpoints/<job>: the commits are added to that writer's
 * record, and unknown fields survive. */
static void test_commit_keeps_what_others_wrote(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    lab_put(lab, "/sdtrain/lab/checkpoints/a", "{\"v\":2,\"commits\":[],\"note\":\"kept\"}");
    (void)start_training(lab, "\"FAKE_SAVE_EVERY=5\"", "", NULL);
    lab_wait(lab, lab_is_finished, &here);
    CheckpointsRecord record;
    assert_true(lab_checkpoints(lab, "a", &record));
    assert_int_equal(record.n_commits, 2);
    assert_non_null(strstr(lab_value(lab, "/sdtrain/lab/checkpoints/a"), "kept"));
}

static bool waits_for_another(Lab *lab, const void *node)
{
    (void)lab; /* the log belongs to the node */
    return lab_log_has(node, "is held under lease") &&
           lab_log_has(node, "by machine ffffffffffffffffffffffffffffffff at 10.0.0.9");
}

static bool is_registered_here(Lab *lab, _unused_ const void *userdata)
{
    NodeRecord record;
    return lab_node_record(lab, 0, &record) && strcmp(record.address, "127.0.0.1") == 0;
}

static bool has_health(Lab *lab, _unused_ const void *userdata)
{
    return lab_value(lab, "/sdtrain/lab/health/node0") != NULL;
}

static void test_name_of_another_machine_is_waited_for(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    NodeRecord other = {.name = "node0",
                        .machine_id = "ffffffffffffffffffffffffffffffff",
                        .boot_id = "b",
                        .incarnation = 1,
                        .address = "10.0.0.9",
                        .n_slots = 1,
                        .version = "0.2.0"};
    _cleanup_free_ char *text = NULL;
    text = node_record_encode(&other, NULL);
    _cleanup_free_ char *granted =
        testing_etcd_ask(lab_etcd(lab), 0, "lease", "grant", "600", NULL);
    char lease[32] = "--lease=";
    assert_non_null(granted);
    assert_int_equal(sscanf(granted, "lease %16[0-9a-f]", lease + strlen(lease)), 1);
    testing_etcd_ctl(lab_etcd(lab), "put", lease, "/sdtrain/lab/nodes/node0", text, NULL);
    LabNode *node = lab_spawn_node(lab, 0, "", NULL);
    lab_wait(lab, waits_for_another, node);
    NodeRecord still;
    assert_true(lab_node_record(lab, 0, &still));
    assert_string_equal(still.address, "10.0.0.9");
    assert_null(lab_value(lab, "/sdtrain/lab/health/node0")); /* another machine has this name */
    testing_etcd_ctl(lab_etcd(lab), "lease", "revoke", lease + strlen("--lease="), NULL);
    lab_wait(lab, is_registered_here, NULL);
    lab_wait(lab, has_health, NULL);
}

static bool is_put_back_after(Lab *lab, const void *revision)
{
    static const char key[] = "/sdtrain/lab/nodes/node0";
    NodeRecord record;
    return lab_revision_of(lab, key) > *(const int64_t *)revision && lab_value(lab, key) &&
           lab_node_record(lab, 0, &record) && strcmp(record.address, "127.0.0.1") == 0 &&
           lab_lease_of(lab, key) != 0;
}

/* A daemon puts its record if no client keeps a record under the node's name alive: the record is damaged, is a copy
 * without a lease, or is missing. The test covers a daemon that starts and a daemon whose ranks run on. */
static void test_record_of_nobody_is_replaced(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    static const char key[] = "/sdtrain/lab/nodes/node0";
    static const char stranger[] =
        "{\"v\":2,\"name\":\"node0\",\"machine_id\":\"ffffffffffffffffffffffffffffffff\","
        "\"incarnation\":1,\"slots\":1,\"state\":\"up\"}";
    int64_t revision = lab_put(lab, key, "{\"v\":2}");
    LabNode *node = lab_spawn_node(lab, 0, "\"trainer_environment\": [" ENDLESS "]", NULL);
    lab_wait(lab, is_put_back_after, &revision);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 1}}, 1);
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_has_first_step, &here);
    int pid = pid_of(lab, 1);
    for (int i = 0; i < 3; i++) {
        NodeRecord before, after;
        assert_true(lab_node_record(lab, 0, &before));
        revision = i == 2 ? lab_delete(lab, key) : lab_put(lab, key, i == 0 ? "{}" : stranger);
        lab_wait(lab, is_put_back_after, &revision);
        assert_true(lab_node_record(lab, 0, &after));
        assert_true(after.incarnation == before.incarnation);
        assert_int_equal(pid_of(lab, 1), pid);
        assert_int_equal(kill(pid, 0), 0);
    }
    assert_true(lab_log_has(node, "which nobody keeps alive, is written over"));
    assert_true(
        lab_log_has(node, "another writer has put /sdtrain/lab/nodes/node0, under lease 0"));
    NodeRecord told;
    assert_true(lab_node_record(lab, 0, &told));
    assert_true(told.stranger_revision > 0);
}

static void test_second_daemon_in_a_run_dir_is_refused(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *first = lab_start_node(lab, 0, "", NULL);
    LabNode copy = *first;
    LabNode *second = lab_spawn_node(lab, 0, "", NULL); /* with the same run_dir */
    assert_int_equal(lab_wait_end(lab, second), 1);
    assert_true(lab_log_has(second, "another sdtraind holds it"));
    second->pid = copy.pid;
    second->pidfd = copy.pidfd;
}

static bool is_draining(Lab *lab, _unused_ const void *userdata)
{
    NodeRecord record;
    return lab_node_record(lab, 0, &record) && record.verdict == NODE_DRAIN;
}

static bool is_left(Lab *lab, _unused_ const void *userdata)
{
    NodeRecord record;
    return lab_node_record(lab, 0, &record) && record.state == NODE_LEFT;
}

/* At SIGTERM the record asks for a drain, the leader tells rank 0 to leave, and the record ends as `left`. */
static void test_drain(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, ENDLESS, "", NULL);
    lab_wait(lab, lab_has_first_step, &here);
    assert_int_equal(kill(node->pid, SIGTERM), 0);
    lab_wait(lab, is_draining, NULL);
    lab_put_phase(lab, "a", 1, PHASE_RESIZING, true, true);
    assert_int_equal(lab_wait_end(lab, node), 0);
    lab_wait(lab, is_left, NULL);
    lab_wait(lab, lab_has_left, &here);
    CheckpointsRecord record;
    assert_true(lab_checkpoints(lab, "a", &record));
}

static void test_drain_deadline(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, ENDLESS, "\"drain_sec\": 1", NULL);
    lab_wait(lab, lab_has_first_step, &here);
    assert_int_equal(kill(node->pid, SIGTERM), 0);
    assert_int_equal(lab_wait_end(lab, node), 0); /* the leader does not tell rank 0 to leave */
    lab_wait(lab, is_left, NULL);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_EXITED});
}

static void test_second_signal_leaves_at_once(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = start_training(lab, ENDLESS, "\"drain_sec\": 3600", NULL);
    lab_wait(lab, lab_has_first_step, &here);
    assert_int_equal(kill(node->pid, SIGINT), 0);
    lab_wait(lab, is_draining, NULL);
    assert_int_equal(kill(node->pid, SIGINT), 0);
    assert_int_equal(lab_wait_end(lab, node), 0);
    lab_wait(lab, is_left, NULL);
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    assert_int_equal(ranks.ranks[0].state, RANK_EXITED);
    assert_true(ranks.ranks[0].killed);
}

static void put_cordon(Lab *lab, const CordonRecord *cordon)
{
    _cleanup_free_ char *text = NULL;
    text = cordon_record_encode(cordon, NULL);
    lab_put(lab, "/sdtrain/lab/cordons/node0", text);
}

static int64_t lab_step(Lab *lab)
{
    const char *value = lab_value(lab, "/sdtrain/lab/progress/a");
    const char *at = value ? strstr(value, "\"step\":") : NULL;
    return at ? strtoll(at + strlen("\"step\":"), NULL, 10) : 0;
}

static void test_quarantine_and_removal_kill(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)start_training(lab, ENDLESS, "", NULL);
    lab_wait(lab, lab_has_first_step, &here);
    /* A cause against another machine that had the name, or for another job, kills no rank. */
    CordonRecord cordon = {.node = "node0",
                           .n_causes = 2,
                           .causes = {{.owner = CORDON_MACHINE,
                                       .machine_id = "ffffffffffffffffffffffffffffffff",
                                       .mode = CORDON_QUARANTINE},
                                      {.owner = CORDON_JOB, .job = "b", .mode = CORDON_QUARANTINE},
                                      {.owner = CORDON_JOB,
                                       .job = "a",
                                       .mode = CORDON_QUARANTINE,
                                       .reason = "bad memory"}}};
    put_cordon(lab, &cordon);
    int64_t step = lab_step(lab);
    lab_wait(lab, has_progress_beyond, &step);
    cordon.n_causes = 3; /* the third cause is for this job */
    put_cordon(lab, &cordon);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_EXITED});

    (void)lab_put_world(lab, "a", 2, (LabRun[]){{0, 1}}, 1);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 2, 0, RANK_READY});
    lab_delete(lab, "/sdtrain/lab/worlds/a");
    lab_wait(lab, lab_is_killed, &(LabWhere){"a", 2, 0, 0});
}

static bool has_reloaded(_unused_ Lab *lab, const void *userdata)
{
    return lab_log_has(userdata, "configuration reloaded");
}

static void test_reload(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = lab_start_node(lab, 0, "", NULL);
    char path[400];
    _cleanup_free_ char *text = NULL;
    (void)snprintf(path, sizeof(path), "%s/config.json", node->folder);
    size_t n;
    assert_int_equal(file_read(path, 1 << 16, &text, &n, NULL), 0);
    _cleanup_free_ char *edited = NULL;
    assert_true(asprintf(&edited,
                         "%.*s, \"drain_sec\": 5, \"slots\": 7, \"labels\": {\"a\": \"b7\"}}",
                         (int)n - 1, text) > 0);
    assert_int_equal(file_write(path, edited, strlen(edited), 0, NULL), 0);
    assert_int_equal(kill(node->pid, SIGHUP), 0);
    lab_wait(lab, has_reloaded, node);
    assert_true(lab_log_has(node, "slots changed; it takes effect when sdtraind restarts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_lease_is_replaced),
        cmocka_unit_test(test_silent_etcd_stops_nothing),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_lease_gone_and_world_moved),
        cmocka_unit_test(test_commit_of_an_old_world_is_refused),
        cmocka_unit_test(test_lost_answer_commits_once),
        cmocka_unit_test(test_commit_keeps_what_others_wrote),
        cmocka_unit_test(test_name_of_another_machine_is_waited_for),
        cmocka_unit_test(test_record_of_nobody_is_replaced),
        cmocka_unit_test(test_second_daemon_in_a_run_dir_is_refused),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_deadline),
        cmocka_unit_test(test_second_signal_leaves_at_once),
        cmocka_unit_test(test_quarantine_and_removal_kill),
        cmocka_unit_test(test_reload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
