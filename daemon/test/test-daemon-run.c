/* SPDX-License-Identifier: Apache-2.0 */
/* test-daemon-run.c - the normal life of a world, as the leader sees it. */
#include "daemon/test/testing-daemon.h"

#include "base/file.h"

#include <signal.h>
#include <string.h>

/* Returns whether node1's own record names the world with that revision. */
static bool runs_world(Lab *lab, const void *revision)
{
    NodeRecord node;
    return lab_node_record(lab, 1, &node) && strcmp(node.job, "a") == 0 &&
           node.world_revision == *(const int64_t *)revision;
}

static bool has_told_last_step(Lab *lab, _unused_ const void *userdata)
{
    const char *value = lab_value(lab, "/sdtrain/lab/progress/a");
    return value && strstr(value, "\"step\":10,");
}

/* A world of three ranks on two nodes runs from the start to the end: ready, go, steps, saves, finished. */
static void test_world_from_start_to_finish(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    const char *settings = "\"slots\": 2, \"labels\": {\"rack\": \"r7\", \"price\": \"p5-spot\"}, "
                           "\"trainer_environment\": [\"FAKE_SAVE_EVERY=4\"]";
    (void)lab_start_node(lab, 0, settings, NULL);
    (void)lab_start_node(lab, 1, settings, NULL);
    NodeRecord node;
    assert_true(lab_node_record(lab, 0, &node));
    assert_int_equal(node.n_slots, 2);
    assert_string_equal(node.address, "127.0.0.1");
    assert_string_equal(node.price_class, "p5-spot");
    assert_non_null(strstr(lab_value(lab, "/sdtrain/lab/nodes/node0"), "r7"));

    lab_put_spec(lab, "a");
    int64_t revision = lab_put_world(lab, "a", 1, (LabRun[]){{0, 3}, {1, 2}}, 2);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_READY});
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 1, RANK_READY});
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 1, &ranks));
    assert_int_equal(ranks.n_ranks, 1);
    assert_int_equal(ranks.ranks[0].rank, 2);
    assert_int_equal(ranks.ranks[0].slot, 1);
    assert_int_equal(ranks.world_revision, revision);
    assert_true(ranks.ranks[0].pid > 0);
    lab_wait(lab, runs_world, &revision);

    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_has_first_step, &(LabWhere){"a", 1, 0, 0});
    lab_wait(lab, lab_is_finished, &(LabWhere){"a", 1, 0, 0});
    lab_wait(lab, lab_is_finished, &(LabWhere){"a", 1, 1, 0});
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    assert_int_equal(ranks.first_step, 1);
    assert_int_equal(ranks.ranks[0].exit_code, 0);
    assert_true(ranks.ranks[0].started_usec > 0);
    assert_true(ranks.ranks[0].ready_usec >= ranks.ranks[0].started_usec);
    assert_true(ranks.ranks[0].joined_usec >= ranks.ranks[0].ready_usec);

    CheckpointsRecord checkpoints;
    assert_true(lab_checkpoints(lab, "a", &checkpoints));
    assert_int_equal(checkpoints.n_commits, 3); /* steps 4, 8 and the last, 10 */
    assert_int_equal(checkpoints.commits[2].step, 10);
    assert_int_equal(checkpoints.commits[2].generation, 1);
    assert_string_equal(checkpoints.commits[0].uri, "file:///fake/step4-g1/manifest.json");
    /* Progress is written once a second, but the last step at once, since no later step follows. */
    lab_wait(lab, has_told_last_step, NULL);
}

static void finish_with_a_late_rank(Lab *lab, const char *msec, bool killed)
{
    char settings[128];
    (void)snprintf(settings, sizeof(settings),
                   "\"slots\": 1, \"trainer_environment\": [\"FAKE_LAST_MSEC=%s\"]", msec);
    (void)lab_start_node(lab, 0, settings, NULL);
    (void)lab_start_node(lab, 1, settings, NULL);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 1}, {1, 1}}, 2);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_READY});
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 1, RANK_READY});
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_is_finished, &(LabWhere){"a", 1, 0, 0});
    lab_put_phase(lab, "a", 1, PHASE_SUCCEEDED, true, false);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 1, RANK_EXITED});
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 1, &ranks));
    assert_int_equal(ranks.ranks[0].killed, killed);
    assert_int_equal(ranks.ranks[0].exit_code, killed ? -SIGKILL : 0);
}

/* After the job has succeeded, a rank that has not exited yet gets time to exit, but not for ever. */
static void test_late_ranks(_unused_ void **state)
{
    {
        _cleanup_(lab_stopp) Lab *lab = lab_start();
        finish_with_a_late_rank(lab, "200", false);
    }
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    finish_with_a_late_rank(lab, "600000", true);
}

/* The world moves while ranks train: the old ranks are dead, and reported as killed, before the new ranks are ready. */
static void test_world_moves(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    const char *settings = "\"slots\": 2, \"trainer_environment\": [\"FAKE_STEPS=1000000\"]";
    (void)lab_start_node(lab, 0, settings, NULL);
    (void)lab_start_node(lab, 1, settings, NULL);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 3}, {1, 3}}, 2);
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_has_first_step, &(LabWhere){"a", 1, 0, 0});
    RanksRecord old;
    assert_true(lab_ranks(lab, "a", 1, 0, &old));
    int old_pid = old.ranks[0].pid;

    /* node1 has no part in the new world, but must still report that its old ranks are dead. */
    (void)lab_put_world(lab, "a", 2, (LabRun[]){{0, 3}}, 1);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 2, 0, RANK_READY});
    lab_wait(lab, lab_is_killed, &(LabWhere){"a", 2, 0, 0});
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 1, RANK_EXITED});
    lab_wait(lab, lab_is_killed, &(LabWhere){"a", 1, 1, 0});
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_EXITED});
    assert_int_equal(kill(old_pid, 0), -1);
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 2, 0, &ranks));
    assert_true(ranks.killed_usec > 0);
    assert_true(lab_ranks(lab, "a", 1, 1, &ranks));
    assert_true(ranks.ranks[0].killed);
    assert_int_equal(ranks.ranks[0].exit_code, -SIGKILL);

    /* The `go` of the old generation does not start the new one. */
    lab_put_phase(lab, "a", 2, PHASE_STARTING, true, false);
    lab_wait(lab, lab_has_first_step, &(LabWhere){"a", 2, 0, 0});
    lab_put_phase(lab, "a", 2, PHASE_STOPPED, true, false);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 2, 0, RANK_EXITED});
}

/* A world record that cannot be decoded still replaces the present world: the old ranks are killed and reported. */
static void test_world_that_cannot_be_read(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)lab_start_node(lab, 0, "\"trainer_environment\": [\"FAKE_STEPS=1000000\"]", NULL);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 1}}, 1);
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_has_first_step, &(LabWhere){"a", 1, 0, 0});
    (void)lab_put(lab, "/sdtrain/lab/worlds/a", "{\"v\":2,");
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_EXITED});
    lab_wait(lab, lab_is_killed, &(LabWhere){"a", 1, 0, 0});
}

static void put_rendezvous(Lab *lab, const char *key)
{
    RendezvousRecord record = {.address = "127.0.0.1:1"};
    _cleanup_free_ char *text = NULL;
    text = rendezvous_record_encode(&record, NULL);
    lab_put(lab, key, text);
}

/* The rendezvous record of a deleted job has a higher generation, and the node has not seen its deletion yet. The
 * ranks of a new job of that name meet all the same. */
static void test_rendezvous_of_a_deleted_job(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)lab_start_node(lab, 0, "\"slots\": 1", NULL);
    (void)lab_start_node(lab, 1, "\"slots\": 1", NULL);
    lab_put_spec(lab, "a");
    put_rendezvous(lab, "/sdtrain/lab/rendezvous/a/5");
    put_rendezvous(lab, "/sdtrain/lab/rendezvous/a/1");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 1}, {1, 1}}, 2);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_READY});
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 1, RANK_READY});
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_is_finished, &(LabWhere){"a", 1, 0, 0});
    lab_wait(lab, lab_is_finished, &(LabWhere){"a", 1, 1, 0});
}

static bool has_told_an_address(Lab *lab, _unused_ const void *userdata)
{
    return lab_value(lab, "/sdtrain/lab/rendezvous/a/1") != NULL;
}

/* A job is deleted and submitted again under its name, and a node observes the new world before the deletion of the
 * old phase: each kind of key has its own watch. Generations begin at 1 again. */
static void test_stale_phase_of_a_deleted_job(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)lab_start_node(lab, 0, "\"slots\": 3", NULL);
    lab_submit(lab, "11111111111111111111111111111111");
    lab_put_phase(lab, "a", 7, PHASE_FAILED, true, false);
    lab_submit(lab, "22222222222222222222222222222222");
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 3}}, 1);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_READY});
    lab_wait(lab, has_told_an_address, NULL);

    /* The phases of the predecessor's generation 1 (go, leave, failed) must not affect this job's generation 1. */
    static const JobPhase phases[] = {PHASE_STARTING, PHASE_RESIZING, PHASE_FAILED};
    lab_submit(lab, "11111111111111111111111111111111");
    for (size_t i = 0; i < ELEMENTSOF(phases); i++)
        lab_put_phase(lab, "a", 1, phases[i], true, phases[i] == PHASE_RESIZING);
    /* The end of another job shows that the node has read the phases that were written before. */
    lab_put_spec(lab, "b");
    lab_put_phase(lab, "b", 1, PHASE_STOPPED, false, false);
    (void)lab_put_world(lab, "b", 1, (LabRun[]){{0, 4}}, 1);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"b", 1, 0, RANK_EXITED});
    RanksRecord ranks;
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    assert_int_equal(ranks.ranks[0].state, RANK_READY);
    assert_int_equal(ranks.ranks[1].state, RANK_READY);

    lab_submit(lab, "22222222222222222222222222222222");
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_is_finished, &(LabWhere){"a", 1, 0, 0});
}

static bool is_known(Lab *lab, _unused_ const void *userdata)
{
    return lab_value(lab, "/sdtrain/lab/nodes/node1") != NULL;
}

/* The address of rank 0 in etcd may be from an earlier world or an earlier job of that name. The rank waits for the
 * address of the present world. */
static void test_stale_rendezvous(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    put_rendezvous(lab, "/sdtrain/lab/rendezvous/a/1");
    LabNode *node =
        lab_start_node(lab, 0, "\"slots\": 2, \"trainer_environment\": [\"FAKE_SAY=1\"]", NULL);
    lab_put(lab, "/sdtrain/lab/nodes/node1", /* the node of rank 0; no such node runs */
            "{\"v\":2,\"name\":\"node1\",\"machine_id\":\"m\",\"incarnation\":1,\"address\":\"a\","
            "\"slots\":1,\"state\":\"up\",\"verdict\":\"healthy\"}");
    lab_wait(lab, is_known, NULL);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{1, 1}, {0, 1}}, 2);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"a", 1, 0, RANK_READY});
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    /* Phases are read in order: when the ranks of job b end, the node has read the phase of job a. */
    lab_put_phase(lab, "b", 1, PHASE_STOPPED, false, false);
    lab_put_spec(lab, "b");
    (void)lab_put_world(lab, "b", 1, (LabRun[]){{0, 2}}, 1);
    lab_wait(lab, lab_all_in_state, &(LabWhere){"b", 1, 0, RANK_EXITED});

    lab_put(lab, "/sdtrain/lab/rendezvous/a/1", "{\"v\":2,\"address\":\"127.0.0.1:2\"}");
    lab_wait(lab, lab_is_finished, &(LabWhere){"a", 1, 0, 0});
    _cleanup_free_ char *text = NULL;
    char path[400];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/a/g1/rank1.log", node->log_dir);
    assert_int_equal(file_read(path, 1 << 16, &text, NULL, &err), 0);
    assert_string_equal(text, "meets at 127.0.0.1:2\n");
}

static bool has_answered(Lab *lab, _unused_ const void *userdata)
{
    const char *value = lab_value(lab, "/sdtrain/lab/requests/r1");
    return value && strstr(value, "saves");
}

/* At `leave` only rank 0 is told; it saves, and reports that it left. A request for a checkpoint is served. */
static void test_leave_and_checkpoint_request(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    (void)lab_start_node(lab, 0, "\"trainer_environment\": [\"FAKE_STEPS=1000000\"]", NULL);
    lab_put_spec(lab, "a");
    (void)lab_put_world(lab, "a", 1, (LabRun[]){{0, 1}}, 1);
    lab_put_phase(lab, "a", 1, PHASE_STARTING, true, false);
    lab_wait(lab, lab_has_first_step, &(LabWhere){"a", 1, 0, 0});

    RequestRecord request = {.id = "r1", .kind = "checkpoint", .target = "a"};
    _cleanup_free_ char *text = NULL;
    text = request_record_encode(&request, NULL);
    lab_put(lab, "/sdtrain/lab/requests/r1", text);
    lab_wait(lab, lab_has_commits, &(LabCommits){"a", 1});
    lab_put_phase(lab, "a", 1, PHASE_STOPPING, true, true);
    lab_wait(lab, lab_has_left, &(LabWhere){"a", 1, 0, 0});
    CheckpointsRecord record;
    RanksRecord ranks;
    assert_true(lab_checkpoints(lab, "a", &record));
    assert_true(lab_ranks(lab, "a", 1, 0, &ranks));
    assert_false(ranks.finished);
    assert_int_equal(checkpoints_latest(&record)->step, ranks.ranks[0].step);
    assert_string_equal(ranks.ranks[0].text, "left");
    lab_wait(lab, has_answered, NULL);
}

/* Returns whether all ranks have joined, including ranks that are done already. */
static bool have_joined(Lab *lab, const void *generation)
{
    RanksRecord ranks;
    if (!lab_ranks(lab, "a", *(const int64_t *)generation, 0, &ranks))
        return false;
    for (size_t i = 0; i < ranks.n_ranks; i++)
        if (ranks.ranks[i].joined_usec == 0)
            return false;
    return true;
}

/* With sixteen ranks that send a message at every step, sdtraind's memory stays small. */
static void test_resident_memory(_unused_ void **state)
{
    _cleanup_(lab_stopp) Lab *lab = lab_start();
    LabNode *node = lab_start_node(lab, 0,
                                   "\"slots\": 16, \"trainer_environment\": [\"FAKE_STEPS=200\", "
                                   "\"FAKE_SAVE_EVERY=20\", \"FAKE_PRINT=100000\"]",
                                   NULL);
    lab_put_spec(lab, "a");
    for (int64_t generation = 1; generation <= 3; generation++) {
        (void)lab_put_world(lab, "a", generation, (LabRun[]){{0, 0xffff}}, 1);
        lab_put_phase(lab, "a", generation, PHASE_STARTING, true, false);
        lab_wait(lab, have_joined, &generation);
    }
    lab_wait(lab, lab_is_finished, &(LabWhere){"a", 3, 0, 0});
    int64_t bytes = lab_resident_bytes(node);
    print_message("resident: %.1f MB\n", (double)bytes / 1e6);
#ifndef __SANITIZE_ADDRESS__
    assert_true(bytes <= 30 * 1000 * 1000);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_world_from_start_to_finish),
        cmocka_unit_test(test_late_ranks),
        cmocka_unit_test(test_world_moves),
        cmocka_unit_test(test_world_that_cannot_be_read),
        cmocka_unit_test(test_rendezvous_of_a_deleted_job),
        cmocka_unit_test(test_stale_phase_of_a_deleted_job),
        cmocka_unit_test(test_stale_rendezvous),
        cmocka_unit_test(test_leave_and_checkpoint_request),
        cmocka_unit_test(test_resident_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
