/* SPDX-License-Identifier: Apache-2.0 */
/* test-controller.c - real sdcontroller processes on a real etcd; the test writes the records of the nodes. */
#include "base/clock.h"
#include "base/file.h"
#include "controller/journal/replay.h"
#include "controller/leader/execute.h"
#include "controller/leader/test/testing-lab.h"
#include "etcd/etcd-wait.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { CONTROLLERS_MAX = 3 };

static pid_t controllers[CONTROLLERS_MAX];

static void stop_controller(int i, int signal_number)
{
    if (!controllers[i])
        return;
    (void)kill(controllers[i], signal_number);
    (void)kill(controllers[i], SIGCONT);
    assert_int_equal(waitpid(controllers[i], NULL, 0), controllers[i]);
    controllers[i] = 0;
}

static int end_all(void **state)
{
    for (int i = 0; i < CONTROLLERS_MAX; i++)
        stop_controller(i, SIGKILL);
    return lab_end(state);
}

/* ---- programs ---- */

static const char *program(char ret[512])
{
    const char *bin = getenv("SDTRAIN_BIN");
    (void)snprintf(ret, 512, "%s/sdcontroller", bin ? bin : "build/dev/bin");
    return ret;
}

static void start_controller(Lab *lab, int i)
{
    char path[512], name[8], record[512];
    (void)snprintf(name, sizeof(name), "c%d", i);
    (void)snprintf(record, sizeof(record), "%s/record-%d", testing_etcd_folder(lab->server), i);
    (void)program(path);
    const char *endpoints = testing_etcd_endpoints(lab->server);
    pid_t parent = getpid();
    controllers[i] = fork();
    assert_true(controllers[i] >= 0);
    if (controllers[i] > 0)
        return;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    char config[512];
    (void)snprintf(config, sizeof(config), "%s/config-%d.json", testing_etcd_folder(lab->server),
                   i);
    bool has_config = access(config, R_OK) == 0;
    execl(path, path, "--cluster", "lab", "--etcd", endpoints, "--name", name, "--lease-sec", "2",
          "--record", record, has_config ? "--config" : NULL, config, NULL);
    _exit(127);
}

static void write_config(Lab *lab, const char *text)
{
    char path[512];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/config-0.json", testing_etcd_folder(lab->server));
    assert_int_equal(file_write(path, text, strlen(text), 0, &err), 0);
}

static WorldRecord world_of(Lab *lab)
{
    WorldRecord world;
    Error err = ERROR_INIT;
    const char *text = text_at(lab, KEY_WORLDS, "a");
    assert_non_null(text);
    if (world_record_decode("world", text, strlen(text), &world, &err) < 0)
        fail_msg("%s", err.text);
    return world;
}

/* ---- tests ---- */

static void a_job_starts_loses_a_node_and_goes_on(void **state)
{
    Lab *lab = *state;
    start_controller(lab, 0);
    bring_to_running(lab);

    char key[KEY_MAX];
    EtcdOp vanish[] = {
        {.kind = ETCD_DELETE_PREFIX, .key = "/sdtrain/lab/ranks/a/1/n2"},
        {.kind = ETCD_DELETE, .key = key_of("lab", KEY_NODES, "n2", key)},
    };
    Error err = ERROR_INIT;
    assert_int_equal(etcd_txn_wait(lab->etcd, NULL, 0, vanish, 2, NULL, &err), 0);
    wait_for(lab, "a", PHASE_RECOVERING, 2, false);
    WorldRecord world = world_of(lab);
    assert_int_equal(world.size, 1);
    assert_string_equal(world.runs[0].node, "n1");
    assert_int_equal(world.resume.step, 10);
    assert_string_equal(world.resume.uri, "file:///c/10/manifest.json");
    assert_string_equal(world.incident, "a-1");
    world_record_clear(&world);

    put_rank(lab, 2, "n1", (RankReport){.rank = 0, .state = RANK_READY}, 0, true);
    wait_for(lab, "a", PHASE_RECOVERING, 2, true);
    put_rank(lab, 2, "n1", (RankReport){.rank = 0, .state = RANK_RUNNING}, 11, true);
    wait_for(lab, "a", PHASE_RUNNING, 2, true);

    IncidentRecord incident;
    const char *text = text_at(lab, KEY_INCIDENTS, "a-1");
    assert_non_null(text);
    assert_int_equal(incident_record_decode("i", text, strlen(text), &incident, &err), 0);
    assert_string_equal(incident.cause, "node-lost");
    assert_string_equal(incident.node, "n2");
    assert_int_equal(incident.state, INCIDENT_RESOLVED);
    assert_true(incident.first_step_usec > 0 && incident.stop_sec >= 0);
}

/* Measures the time from a rank's exit report to the next world's record, which is one transaction. */
static void a_dead_rank_is_answered_at_once(void **state)
{
    Lab *lab = *state;
    start_controller(lab, 0);
    bring_to_running(lab);
    uint64_t begun = clock_boottime_usec();
    put_rank(lab, 1, "n2", (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9}, 0,
             false);
    wait_for(lab, "a", PHASE_RECOVERING, 2, false);
    print_message("exit report to the new world seen: %.1f ms\n",
                  (double)(clock_boottime_usec() - begun) / 1e3);
    assert_int_equal(version_at(lab, KEY_WORLDS, "a"), 2);
    assert_int_equal(revision_at(lab, KEY_WORLDS, "a"), revision_at(lab, KEY_PHASES, "a"));
    assert_int_equal(revision_at(lab, KEY_WORLDS, "a"), revision_at(lab, KEY_INCIDENTS, "a-1"));
    assert_int_equal(revision_at(lab, KEY_WORLDS, "a"), revision_at(lab, KEY_CORDONS, "n2"));
}

static void another_controller_takes_over_without_a_new_generation(void **state)
{
    Lab *lab = *state;
    start_controller(lab, 0);
    TESTING_RUN_UNTIL(lab->event, leads(lab, "c0"));
    start_controller(lab, 1);
    TESTING_RUN_UNTIL(lab->event, count_candidates(lab) == 2);
    bring_to_running(lab);

    stop_controller(0, SIGKILL);
    TESTING_RUN_UNTIL(lab->event, leads(lab, "c1"));
    /* The new leader decides about the next failure, as generation 2. */
    put_rank(lab, 1, "n2", (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9}, 0,
             false);
    wait_for(lab, "a", PHASE_RECOVERING, 2, false);
    assert_int_equal(version_at(lab, KEY_WORLDS, "a"), 2);
}

static void a_controller_that_is_told_to_stop_gives_way_at_once(void **state)
{
    Lab *lab = *state;
    start_controller(lab, 0);
    TESTING_RUN_UNTIL(lab->event, leads(lab, "c0"));
    start_controller(lab, 1);
    TESTING_RUN_UNTIL(lab->event, count_candidates(lab) == 2);
    (void)kill(controllers[0], SIGTERM);
    int status;
    assert_int_equal(waitpid(controllers[0], &status, 0), controllers[0]);
    controllers[0] = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    TESTING_RUN_UNTIL(lab->event, count_candidates(lab) == 1);
    assert_true(leads(lab, "c1"));
}

/* A leader that was frozen past its lease continues with a decision to make: its write must fail. */
static void a_deposed_leader_cannot_write(void **state)
{
    Lab *lab = *state;
    start_controller(lab, 0);
    TESTING_RUN_UNTIL(lab->event, leads(lab, "c0"));
    start_controller(lab, 1);
    TESTING_RUN_UNTIL(lab->event, count_candidates(lab) == 2);
    bring_to_running(lab);

    (void)kill(controllers[0], SIGSTOP);
    TESTING_RUN_UNTIL(lab->event, leads(lab, "c1"));
    put_rank(lab, 1, "n2", (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9}, 0,
             false);
    wait_for(lab, "a", PHASE_RECOVERING, 2, false);
    (void)kill(controllers[0], SIGCONT);
    TESTING_RUN_UNTIL(lab->event, count_candidates(lab) == 2); /* c0 is a candidate again */
    assert_true(leads(lab, "c1"));
    assert_true(is_in(lab, "a", PHASE_RECOVERING, 2, false));
    assert_int_equal(version_at(lab, KEY_WORLDS, "a"), 2);
}

typedef struct Outcomes {
    int n_done, n_refused;
} Outcomes;

static void on_outcome(int r, _unused_ const Error *err, const EtcdTxnResult *result,
                       void *userdata)
{
    Outcomes *o = userdata;
    assert_int_equal(r, 0);
    o->n_done += result->succeeded;
    o->n_refused += !result->succeeded;
}

static void every_guard_is_compared(void **state)
{
    Lab *lab = *state;
    put_text(lab, "/sdtrain/lab/leader/1", "c", 0);
    put_text(lab, "/sdtrain/lab/worlds/a", "{}", 0);
    TESTING_RUN_UNTIL(lab->event, revision_at(lab, KEY_WORLDS, "a") > 0);
    _cleanup_(feed_freep) Feed *feed = NULL;
    feed = feed_new("lab");
    Target target = {lab->etcd, feed, "lab", "/sdtrain/lab/leader/1", NULL, NULL};
    Decision good = {.id = 1,
                     .term = revision_at(lab, KEY_LEADER, "1"),
                     .job = "a",
                     .world_revision = revision_at(lab, KEY_WORLDS, "a"),
                     .checkpoints_revision = REVISION_ANY,
                     .put_phase = true};
    Decision bad[6];
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        bad[i] = good;
    bad[0].term--;
    bad[1].world_revision--;
    bad[2].phase_revision = 77;
    bad[3].desired_revision = 77;
    bad[4].checkpoints_revision = 77;
    bad[5].n_cordons = bad[5].cordons[0].n_causes = 1;
    (void)snprintf(bad[5].cordons[0].node, sizeof(bad[5].cordons[0].node), "n1");
    bad[5].cordon_revisions[0] = 77;

    Outcomes o = {0};
    Error err = ERROR_INIT;
    for (size_t i = 0; i < ELEMENTSOF(bad); i++)
        assert_int_equal(execute(&target, &bad[i], on_outcome, &o, NULL, &err), 0);
    TESTING_RUN_UNTIL(lab->event, o.n_refused + o.n_done == (int)ELEMENTSOF(bad));
    assert_int_equal(o.n_done, 0);
    assert_null(text_at(lab, KEY_PHASES, "a"));
    assert_int_equal(execute(&target, &good, on_outcome, &o, NULL, &err), 0);
    TESTING_RUN_UNTIL(lab->event, o.n_done == 1);
}

static void what_it_does_not_know_is_kept_or_ignored(void **state)
{
    Lab *lab = *state;
    char key[KEY_MAX];
    put_text(lab, "/sdtrain/lab/nodes/bad", "{\"v\":2,", 0);
    put_text(lab, "/sdtrain/lab/nodes/newer", "{\"v\":2}", 0);
    put_text(lab, "/sdtrain/lab/nodes/UPPER", "{\"v\":2}", 0);
    put_text(lab, "/sdtrain/lab/novel/x", "1", 0);
    start_controller(lab, 0);
    bring_to_running(lab);

    /* A later version's field in the phase record survives the leader's next write. */
    _cleanup_json_ json_t *phase = json_loads(text_at(lab, KEY_PHASES, "a"), 0, NULL);
    assert_int_equal(json_object_set_new(phase, "color", json_string("red")), 0);
    _cleanup_free_ char *text = json_dumps(phase, 0);
    put_text(lab, key_of("lab", KEY_PHASES, "a", key), text, 0);
    put_rank(lab, 1, "n2", (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9}, 0,
             false);
    wait_for(lab, "a", PHASE_RECOVERING, 2, false);
    assert_non_null(strstr(text_at(lab, KEY_PHASES, "a"), "\"color\":\"red\""));
}

static void a_bad_job_file_fails_in_the_parsers_words(void **state)
{
    Lab *lab = *state;
    start_controller(lab, 0);
    put_node(lab, "n1", 1);
    put_job(lab, "a", "{\"name\":\"a\",\"wrold\":{}}", 1, 2);
    wait_for(lab, "a", PHASE_FAILED, 0, false);
    PhaseRecord phase = phase_of(lab, "a");
    assert_non_null(strstr(phase.reason, "/sdtrain/lab/specs/a: "));
}

static void etcd_may_go_away_for_a_while(void **state)
{
    Lab *lab = *state;
    start_controller(lab, 0);
    bring_to_running(lab);
    testing_etcd_kill(lab->server, 0);
    testing_etcd_restart(lab->server, 0);
    testing_etcd_wait_healthy(lab->server, 0);
    put_rank(lab, 1, "n2", (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9}, 0,
             false);
    wait_for(lab, "a", PHASE_RECOVERING, 2, false);
    assert_int_equal(version_at(lab, KEY_WORLDS, "a"), 2);
}

static void delete_the_job(Lab *lab)
{
    char key[KEY_MAX];
    DesiredRecord desired = {.state = DESIRED_DELETED, .min = 1, .max = 2};
    PUT(lab, desired_record, &desired, key_of("lab", KEY_DESIRED, "a", key));
    wait_for(lab, "a", PHASE_STOPPED, 1, false);
    RankReport over = {.state = RANK_EXITED, .exit_code = -9, .killed = true};
    put_rank(lab, 1, "n1", over, 1, false);
    over.rank = 1;
    put_rank(lab, 1, "n2", over, 0, false);
    TESTING_RUN_UNTIL(lab->event, !text_at(lab, KEY_SPECS, "a"));
}

static void a_deleted_job_leaves_nothing(void **state)
{
    Lab *lab = *state;
    char key[KEY_MAX];
    start_controller(lab, 0);
    bring_to_running(lab);
    RendezvousRecord rendezvous = {.address = "127.0.0.1:1"};
    PUT(lab, rendezvous_record, &rendezvous, key_rendezvous("lab", "a", 1, key));
    delete_the_job(lab);

    const char *left;
    json_t *value;
    json_object_foreach (lab->texts, left, value)
        if (!strstr(left, "/nodes/") && !strstr(left, "/leader/"))
            fail_msg("%s is left", left);
}

typedef struct Replayed {
    int n_events, n_decisions, n_differences;
} Replayed;

static int on_report(const ReplayReport *r, void *userdata)
{
    Replayed *seen = userdata;
    seen->n_events += r->kind == REPLAY_EVENT;
    seen->n_decisions += r->kind == REPLAY_DECISION;
    seen->n_differences += r->differs;
    return 0;
}

static Replayed replay_record(Lab *lab, int i)
{
    char path[512];
    Replayed seen = {0};
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/record-%d", testing_etcd_folder(lab->server), i);
    if (journal_replay(path, on_report, &seen, &err) < 0)
        fail_msg("%s", err.text);
    return seen;
}

/* A replay of the journal of a leader that was killed, and a replay of the next leader's journal, make the recorded
 * decisions. */
static void what_was_recorded_is_decided_again(void **state)
{
    Lab *lab = *state;
    start_controller(lab, 0);
    TESTING_RUN_UNTIL(lab->event, leads(lab, "c0"));
    start_controller(lab, 1);
    TESTING_RUN_UNTIL(lab->event, count_candidates(lab) == 2);
    bring_to_running(lab);
    put_rank(lab, 1, "n2", (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9}, 0,
             false);
    wait_for(lab, "a", PHASE_RECOVERING, 2, false);
    stop_controller(0, SIGKILL);
    TESTING_RUN_UNTIL(lab->event, leads(lab, "c1"));
    put_rank(lab, 2, "n1", (RankReport){.rank = 0, .state = RANK_READY}, 0, true);
    put_rank(lab, 2, "n2", (RankReport){.rank = 1, .state = RANK_READY}, 0, true);
    wait_for(lab, "a", PHASE_RECOVERING, 2, true);
    put_rank(lab, 2, "n1", (RankReport){.rank = 0, .state = RANK_RUNNING}, 11, true);
    wait_for(lab, "a", PHASE_RUNNING, 2, true);
    stop_controller(1, SIGTERM);

    Replayed first = replay_record(lab, 0), second = replay_record(lab, 1);
    assert_int_equal(first.n_differences, 0);
    assert_true(first.n_decisions >= 4); /* decisions: starting, go, running, recovering */
    assert_int_equal(second.n_differences, 0);
    assert_true(second.n_decisions >= 2); /* decisions: go, running */
    assert_true(second.n_events > second.n_decisions);
}

static bool record_has(Lab *lab, int i, const char *words)
{
    char path[512];
    _cleanup_free_ char *text = NULL;
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/record-%d", testing_etcd_folder(lab->server), i);
    return file_read(path, 1 << 24, &text, NULL, &err) == 0 && strstr(text, words);
}

/* After SIGHUP the next death is judged by the new settings, and a replay uses them. */
static void settings_change_while_it_runs(void **state)
{
    Lab *lab = *state;
    write_config(lab, "{\"max_strikes\": 9}");
    start_controller(lab, 0);
    bring_to_running(lab);
    write_config(lab, "{\"max_strikes\": 1, \"lease_sec\": 3}");
    assert_int_equal(kill(controllers[0], SIGHUP), 0);
    TESTING_RUN_UNTIL(lab->event, record_has(lab, 0, "{\"config\":{\"ttl_usec\":2000000,"));
    put_rank(lab, 1, "n2", (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9}, 0,
             false);
    wait_for(lab, "a", PHASE_RECOVERING, 2, false);
    assert_non_null(strstr(text_at(lab, KEY_CORDONS, "n2"), "quarantine"));
    stop_controller(0, SIGTERM);
    Replayed seen = replay_record(lab, 0);
    assert_int_equal(seen.n_differences, 0);
}

/* A record that had no place is not written again by any program: the controller must read the record again. */
static void what_did_not_fit_starts_when_there_is_room(void **state)
{
    Lab *lab = *state;
    char text[sizeof(lab_job)];
    write_config(lab, "{\"max_jobs\": 1}");
    start_controller(lab, 0);
    bring_to_running(lab);
    (void)snprintf(text, sizeof(text), "{\"name\":\"b\"%s", lab_job + strlen("{\"name\":\"a\""));
    put_job(lab, "b", text, 1, 2);
    delete_the_job(lab);
    wait_for(lab, "b", PHASE_STARTING, 1, false);
    stop_controller(0, SIGTERM);
    assert_int_equal(replay_record(lab, 0).n_differences, 0);
}

/* Reports are added and removed with every generation: a reload must not take a used entry for a free one. With two
 * nodes the core has room for eight reports. */
static void a_reload_leaves_what_it_knows_alone(void **state)
{
    enum { GENERATIONS = 12 };
    Lab *lab = *state;
    char written[128];
    write_config(lab, "{\"max_nodes\": 2, \"max_strikes\": 0}");
    start_controller(lab, 0);
    bring_to_running(lab);
    for (int64_t generation = 1; generation < GENERATIONS; generation++) {
        (void)snprintf(written, sizeof(written),
                       "{\"max_nodes\": 2, \"max_strikes\": 0, \"quarantine_sec\": %d}",
                       1000 + (int)generation);
        write_config(lab, written);
        assert_int_equal(kill(controllers[0], SIGHUP), 0);
        (void)snprintf(written, sizeof(written), "\"quarantine_usec\":%d000000",
                       1000 + (int)generation);
        TESTING_RUN_UNTIL(lab->event, record_has(lab, 0, written));
        put_rank(lab, generation, "n2",
                 (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9}, 0, true);
        train(lab, generation + 1, 10 + generation);
    }
    (void)kill(controllers[0], SIGTERM);
    int status;
    assert_int_equal(waitpid(controllers[0], &status, 0), controllers[0]);
    controllers[0] = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(replay_record(lab, 0).n_differences, 0);
}

#define WITH_LAB(test) cmocka_unit_test_setup_teardown(test, lab_begin, end_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_LAB(a_job_starts_loses_a_node_and_goes_on),
        WITH_LAB(a_dead_rank_is_answered_at_once),
        WITH_LAB(another_controller_takes_over_without_a_new_generation),
        WITH_LAB(a_controller_that_is_told_to_stop_gives_way_at_once),
        WITH_LAB(a_deposed_leader_cannot_write),
        WITH_LAB(every_guard_is_compared),
        WITH_LAB(what_it_does_not_know_is_kept_or_ignored),
        WITH_LAB(a_bad_job_file_fails_in_the_parsers_words),
        WITH_LAB(etcd_may_go_away_for_a_while),
        WITH_LAB(a_deleted_job_leaves_nothing),
        WITH_LAB(what_did_not_fit_starts_when_there_is_room),
        WITH_LAB(what_was_recorded_is_decided_again),
        WITH_LAB(settings_change_while_it_runs),
        WITH_LAB(a_reload_leaves_what_it_knows_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
