/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-show.c - verbs that read: JSON fields, output for people, logs. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "base/file.h"
#include "ctl/test/testing-ctl.h"

#include <string.h>

static void put_node(CtlLab *lab, const char *name, const char *log_dir)
{
    NodeRecord node = {.machine_id = "1", .incarnation = 1, .n_slots = 2, .address = "10.0.0.1"};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    if (log_dir) {
        FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%36s", node.boot_id), 1);
        assert_int_equal(fclose(file), 0);
        (void)snprintf(node.log_dir, sizeof(node.log_dir), "%s", log_dir);
    }
    CTL_PUT(lab, KEY_NODES, name, node_record, node);
}

static void status_has_the_documented_fields(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    ctl_put_incident(lab, "a", INCIDENT_RESOLVED);
    ctl_put_text(lab, KEY_INCIDENTS, "a-3", /* the incident of an earlier job named a */
                 "{\"v\":2,\"id\":\"a-3\",\"state\":\"open\",\"job\":\"a\",\"submission\":\"1234\","
                 "\"cause\":\"hang\"}");
    CheckpointsRecord checkpoints = {.commits = {{.step = 10,
                                                  .generation = 1,
                                                  .uri = "file:///x/s/manifest.json",
                                                  .digest = {.high = 1, .low = 2},
                                                  .plans = "00112233445566778899aabbccddeeff"},
                                                 {.step = 11,
                                                  .generation = 1,
                                                  .uri = "file:///x/bad/manifest.json",
                                                  .struck_out = true}},
                                     .n_commits = 2};
    CTL_PUT(lab, KEY_CHECKPOINTS, "a", checkpoints_record, checkpoints);
    assert_int_equal(ctl_run(lab, "job status a -o json"), 0);

    json_t *j = ctl_json(lab);
    assert_string_equal(json_string_value(ctl_at(j, "job")), "a");
    assert_string_equal(json_string_value(ctl_at(j, "phase")), "running");
    assert_string_equal(json_string_value(ctl_at(j, "reason")), "resizes from 3 to 2");
    assert_int_equal(json_integer_value(ctl_at(j, "generation")), 2);
    assert_int_equal(json_integer_value(ctl_at(j, "step")), 12);
    assert_int_equal(json_integer_value(ctl_at(j, "steps")), 100);
    assert_true(json_real_value(ctl_at(j, "loss")) == 0.5);
    assert_int_equal(json_integer_value(ctl_at(j, "samples_seen")), 192);
    assert_true(json_real_value(ctl_at(j, "samples_per_s")) == 32.0);
    /* 88 steps of 16 samples are left, and the job trains 32 samples a second. */
    assert_true(json_real_value(ctl_at(j, "eta_s")) == 44.0);
    assert_true(json_is_real(ctl_at(j, "goodput")));

    json_t *world = ctl_at(j, "world"), *rank = json_array_get(ctl_at(world, "ranks"), 1);
    assert_int_equal(json_integer_value(ctl_at(world, "size")), 2);
    assert_int_equal(json_array_size(ctl_at(world, "ranks")), 2);
    assert_int_equal(json_integer_value(ctl_at(rank, "rank")), 1);
    assert_string_equal(json_string_value(ctl_at(rank, "node")), "n2");
    assert_int_equal(json_integer_value(ctl_at(rank, "slot")), 0);
    assert_int_equal(json_integer_value(ctl_at(rank, "pid")), 4001);
    assert_string_equal(json_string_value(ctl_at(rank, "state")), "running");
    assert_int_equal(json_integer_value(ctl_at(rank, "step")), 12);

    json_t *checkpoint = ctl_at(j, "checkpoint");
    assert_int_equal(json_integer_value(ctl_at(checkpoint, "step")), 10);
    assert_string_equal(json_string_value(ctl_at(checkpoint, "uri")), "file:///x/s/manifest.json");
    assert_string_equal(json_string_value(ctl_at(checkpoint, "digest")),
                        "00000000000000010000000000000002");
    assert_string_equal(json_string_value(ctl_at(checkpoint, "plans")),
                        "00112233445566778899aabbccddeeff");

    json_t *incident = json_array_get(ctl_at(j, "incidents"), 0);
    assert_int_equal(json_array_size(ctl_at(j, "incidents")), 1);
    ctl_remove(lab, KEY_INCIDENTS, "a-3");
    assert_string_equal(json_string_value(ctl_at(incident, "id")), "a-1");
    assert_true(json_real_value(ctl_at(incident, "at")) == 1700000020.0);
    assert_string_equal(json_string_value(ctl_at(incident, "cause")), "trainer-died");
    assert_string_equal(json_string_value(ctl_at(incident, "node")), "n2");
    assert_int_equal(json_integer_value(ctl_at(incident, "rank")), 1);
    assert_string_equal(json_string_value(ctl_at(incident, "evidence")), "signal 9 <killed>");
    assert_int_equal(json_integer_value(ctl_at(incident, "generation")), 1);
    assert_int_equal(json_integer_value(ctl_at(incident, "lost_steps")), 2);
    static const struct {
        const char *key;
        double sec;
    } phases[] = {{"detect_s", 0.125}, {"decide_s", 0.25},  {"stop_s", 0.5},
                  {"start_s", 0.0625}, {"restore_s", 0.75}, {"replay_s", 1.5}};
    for (size_t i = 0; i < ELEMENTSOF(phases); i++)
        assert_true(json_real_value(ctl_at(ctl_at(incident, "phases"), phases[i].key)) ==
                    phases[i].sec);
    json_decref(j);

    assert_int_equal(ctl_run(lab, "job list -o json"), 0);
    j = ctl_json(lab);
    assert_int_equal(json_array_size(j), 1);
    assert_string_equal(json_string_value(ctl_at(json_array_get(j, 0), "job")), "a");
    json_decref(j);
}

static void what_the_store_costs_is_told(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    ProgressRecord progress = {.generation = 2,
                               .step = 12,
                               .steps = 100,
                               .unsaved_since_usec = clock_realtime_usec() - 61 * USEC_PER_SEC,
                               .save_error = "s3://b/c: no answer",
                               .save_next_bytes = 34125000000,
                               .save_free_bytes = 12000000000,
                               .waits_since_usec = UINT64_C(1700000040000000),
                               .waits_rank = 1,
                               .metrics_lost = 5,
                               .metrics_lost_first = 3,
                               .metrics_lost_last = 9};
    CTL_PUT(lab, KEY_PROGRESS, "a", progress_record, progress);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "unsaved for 1 min ");
    assert_contains(lab->out, "s3://b/c: no answer");
    assert_contains(lab->out, "  22.1 GB are missing: 12.0 GB free, the next checkpoint has 34.1 "
                              "GB; free that much in checkpoint.uri, or start ");
    assert_contains(lab->out, "rank 1 has waited for data for ");
    assert_contains(lab->out, "metrics of 5 steps between 3 and 9 are lost; nothing else is");
    assert_null(strstr(lab->out, "tries again"));

    PhaseRecord phase = {.phase = PHASE_RECOVERING,
                         .generation = 2,
                         .since_usec = clock_realtime_usec(),
                         .pause_usec = 3540 * USEC_PER_SEC,
                         .reason = "pauses 3540 s after store-unreachable"};
    CTL_PUT(lab, KEY_PHASES, "a", phase_record, phase);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "tries again in 5");
    assert_int_equal(ctl_run(lab, "job status a -o json"), 0);
    json_t *j = ctl_json(lab), *store = ctl_at(j, "store");
    assert_true(json_real_value(ctl_at(store, "waits_since")) == 1700000040.0);
    assert_int_equal(json_integer_value(ctl_at(store, "waits_rank")), 1);
    assert_int_equal(json_integer_value(ctl_at(store, "next_bytes")), 34125000000);
    assert_int_equal(json_integer_value(ctl_at(store, "free_bytes")), 12000000000);
    assert_string_equal(json_string_value(ctl_at(store, "save_error")), "s3://b/c: no answer");
    assert_true(json_real_value(ctl_at(j, "next_try_at")) > 1700003600.0);
    assert_int_equal(json_integer_value(ctl_at(ctl_at(j, "metrics_lost"), "steps")), 5);
    assert_int_equal(json_integer_value(ctl_at(ctl_at(j, "metrics_lost"), "last")), 9);
    json_decref(j);

    progress.save_next_bytes = 700000;
    CTL_PUT(lab, KEY_PROGRESS, "a", progress_record, progress);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "  store: 12.0 GB free, the next checkpoint has 0.7 MB\n");
    progress.save_next_bytes = 0; /* as on S3, where the size is unknown */
    CTL_PUT(lab, KEY_PROGRESS, "a", progress_record, progress);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_null(strstr(lab->out, "the next checkpoint"));
    assert_int_equal(ctl_run(lab, "job status a -o json"), 0);
    j = ctl_json(lab);
    assert_true(json_is_null(ctl_at(ctl_at(j, "store"), "free_bytes")));
    json_decref(j);
}

static void cost_is_shown_where_there_are_prices(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_null(strstr(lab->out, "cost"));
    assert_int_equal(ctl_run(lab, "job status a -o json"), 0);
    json_t *j = ctl_json(lab);
    assert_true(json_is_null(ctl_at(j, "cost")));
    json_decref(j);

    PhaseRecord phase = {.phase = PHASE_RUNNING,
                         .generation = 2,
                         .go = true,
                         .since_usec = 1,
                         .cost = {.rate = INT64_C(72000000), /* $72 an hour: $1 in 50 seconds */
                                  .since_usec = clock_realtime_usec(),
                                  .spent = INT64_C(1234000000),
                                  .lost = 5250000}};
    CTL_PUT(lab, KEY_PHASES, "a", phase_record, phase);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    /* The job is at step 12 of 100. A step takes half a second, and the job trains 32 samples a second. */
    assert_contains(lab->out, "  cost $1,234, of it $5.25 lost to failures; $0.8800 to the end\n"
                              "    $72.00 an hour, $10.00 per 1,000 steps, $625,000 per epoch of "
                              "1e9 samples\n");
    assert_int_equal(ctl_run(lab, "job status a -o json"), 0);
    j = ctl_json(lab);
    json_t *cost = ctl_at(j, "cost");
    double spent = json_real_value(ctl_at(cost, "spent"));
    assert_true(spent > 1234 && spent < 1240);
    assert_true(json_real_value(ctl_at(cost, "lost")) == 5.25);
    assert_true(json_real_value(ctl_at(cost, "per_hour")) == 72);
    assert_true(json_real_value(ctl_at(cost, "per_1000_steps")) == 10);
    assert_true(json_real_value(ctl_at(cost, "per_billion_samples")) == 625000);
    assert_true(json_real_value(ctl_at(cost, "to_end")) == 0.88);
    json_decref(j);

    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    assert_int_equal(ctl_run(lab, "job report a --out %s/cost.html", lab->folder), 0);
    (void)snprintf(path, sizeof(path), "%s/cost.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "<b>$5.25</b><span>of it lost to failures</span>");
    assert_contains(page, "<b>$10.00</b><span>per 1,000 steps</span>");
    assert_contains(page, "<b>$625,000</b><span>per epoch of 1e9 samples</span>");

    phase.phase = PHASE_SUCCEEDED;
    phase.cost.since_usec = 0;
    CTL_PUT(lab, KEY_PHASES, "a", phase_record, phase);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "  cost $1,234, of it $5.25 lost to failures\n\n");
    assert_null(strstr(lab->out, "an hour"));
}

static void people_read_culprit_cause_and_evidence(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    ctl_put_incident(lab, "a", INCIDENT_OPEN);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "job a: running (resizes from 3 to 2)\n");
    assert_contains(lab->out, "  step 12 of 100, loss 0.50000, 32.0 samples/s, 44 s to go\n");
    assert_contains(lab->out, "trainer-died of rank 1 on n2 at step 12, generation 1: OPEN\n"
                              "      signal 9 <killed>\n");
    ctl_put_incident(lab, "a", INCIDENT_RESOLVED);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "recovered in 2.00 s, 2 steps again\n");
    assert_contains(lab->out, "detect 0.12 s, decide 0.25 s, stop 0.50 s");
    assert_int_equal(ctl_run(lab, "job list"), 0);
    assert_contains(lab->out, "  2      12/100  32.0       44 s  -      resizes from 3 to 2\n");
    assert_int_equal(ctl_run(lab, "job status none"), 3);
    assert_string_equal(lab->err, "sdctl: no job none in cluster lab; sdctl job list shows all\n");
}

/* On a terminal, states have colours, and a long reason is folded within its column. Elsewhere each row is one line. */
static void tables_fit_the_terminal(void **state)
{
    CtlLab *lab = *state;
    static const char reason[] = "waits for job first, which comes first and needs 24 slots, 3 are "
                                 "free; n3 is cordoned";
    ctl_put_running_job(lab, "t");
    ctl_put_phase(lab, "t", PHASE_FAILED, reason);
    assert_int_equal(ctl_run(lab, "job list"), 0);
    assert_contains(lab->out, reason);
    assert_null(strchr(lab->out, '\033'));

    assert_int_equal(setenv("TERM", "xterm", 1), 0);
    assert_int_equal(ctl_run_on_terminal(lab, 90, "job list"), 0);
    assert_contains(lab->out, "\033[31mfailed\033[0m");
    assert_null(strstr(lab->out, reason));
    assert_contains(lab->out, "waits for job first");
    assert_contains(lab->out, "n3 is cordoned");
    for (char *line = lab->out, *end; (end = strchr(line, '\n')); line = end + 1)
        assert_true(end - line <= 90 + 1 + 9); /* 90 columns, CR, colour sequences */

    assert_int_equal(setenv("NO_COLOR", "1", 1), 0);
    assert_int_equal(ctl_run_on_terminal(lab, 400, "job list"), 0);
    assert_null(strchr(lab->out, '\033'));
    assert_contains(lab->out, reason);
    assert_int_equal(unsetenv("NO_COLOR"), 0);
    assert_int_equal(setenv("TERM", "dumb", 1), 0);
    assert_int_equal(ctl_run_on_terminal(lab, 90, "job list"), 0);
    assert_null(strchr(lab->out, '\033'));
    ctl_remove(lab, KEY_SPECS, "t");
    ctl_remove(lab, KEY_PHASES, "t");
    ctl_remove(lab, KEY_WORLDS, "t");
}

static void events_come_in_the_order_of_time(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    ctl_put_incident(lab, "a", INCIDENT_RESOLVED);
    assert_int_equal(ctl_run(lab, "job events a -o json"), 0);
    static const char *const order[] = {"submitted", "world", "incident", "recovered", "world"};
    json_t *j = ctl_json(lab), *e;
    size_t i, n = 0;
    double last = 0;
    json_array_foreach (j, i, e) {
        const char *event = json_string_value(ctl_at(e, "event"));
        assert_true(json_real_value(ctl_at(e, "at")) >= last);
        last = json_real_value(ctl_at(e, "at"));
        if (strcmp(event, "checkpoint") == 0)
            continue;
        assert_true(n < ELEMENTSOF(order));
        assert_string_equal(event, order[n++]);
    }
    assert_int_equal(n, ELEMENTSOF(order));
    json_decref(j);
    assert_int_equal(ctl_run(lab, "job events a"), 0);
    assert_contains(lab->out, "2 ranks, resizes from 3 to 2\n");
    assert_int_equal(ctl_run(lab, "job events none"), 3);
}

/* An incident that was ended by a stop of the job is not shown as recovered. */
static void what_a_stop_ends_was_not_recovered(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "s");
    ctl_put_text(
        lab, KEY_INCIDENTS, "s-1",
        "{\"v\":2,\"id\":\"s-1\",\"state\":\"resolved\",\"ended\":true,\"job\":\"s\","
        "\"cause\":\"hang\",\"at_usec\":1700000020000000,\"resolved_usec\":1700000030000000}");
    assert_int_equal(ctl_run(lab, "job status s"), 0);
    assert_contains(lab->out, ": ended with the job\n");
    assert_int_equal(ctl_run(lab, "job events s"), 0);
    assert_contains(lab->out, "ended ");
    assert_null(strstr(lab->out, "recovered"));
    ctl_remove(lab, KEY_INCIDENTS, "s-1");
    ctl_remove(lab, KEY_SPECS, "s");
    ctl_remove(lab, KEY_WORLDS, "s");
    ctl_remove(lab, KEY_PHASES, "s");
}

static void the_cluster_says_what_is_wrong_first(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    ctl_put_incident(lab, "a", INCIDENT_OPEN);
    put_node(lab, "n1", NULL);
    ctl_put_text(lab, KEY_NODES, "n7", "{\"v\":2,\"name\":\"n7\"}");
    ctl_put_text(lab, KEY_NODES, "n8", "{\"v\":3,\"name\":\"n8\"}");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_memory_equal(lab->out, "! no controller leads", 21);
    assert_contains(lab->out, "! record /sdtrain/lab/nodes/n7: machine_id: ");
    assert_contains(lab->out, "! record /sdtrain/lab/nodes/n8: v: record version 3 is newer than "
                              "2");
    assert_contains(lab->out, "! node n2 is missing; job a has ranks there\n    its ranks go ");
    assert_contains(lab->out, "! incident a-1 is open: trainer-died on n2: signal 9 <killed>\n");
    assert_contains(lab->out, "cluster lab: 5 things are wrong, see above\n");

    ctl_put_text(lab, KEY_CORDONS, "n9", "{\"v\":9}");
    assert_int_equal(ctl_run(lab, "node list"), 0);
    assert_contains(lab->out, "\nn9    gone   0/0   unknown, cordon  -\n");
    assert_int_equal(ctl_run(lab, "cluster status"), 0);
    assert_contains(lab->out, "          n9 is cordoned\n");
    ctl_remove(lab, KEY_CORDONS, "n9");
    ctl_remove(lab, KEY_NODES, "n7");
    ctl_remove(lab, KEY_NODES, "n8");
    ctl_put_incident(lab, "a", INCIDENT_RESOLVED);
    put_node(lab, "n2", NULL);
    ctl_put_text(lab, KEY_LEADER, "2", "{\"v\":2,\"name\":\"second\"}");
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"first\"}");
    assert_int_equal(ctl_run(lab, "cluster status -o json"), 0);
    json_t *j = ctl_json(lab);
    assert_true(json_is_true(ctl_at(j, "ok")));
    assert_int_equal(json_array_size(ctl_at(j, "wrong")), 0);
    assert_int_equal(json_array_size(ctl_at(j, "advice")), 0);
    json_t *member = json_array_get(ctl_at(j, "members"), 0);
    assert_true(json_is_true(ctl_at(member, "answers")) && json_is_true(ctl_at(member, "leads")));
    assert_true(json_integer_value(ctl_at(member, "db_bytes")) > 0);
    /* Controller "second" leads, because its key was created first. */
    assert_string_equal(json_string_value(ctl_at(j, "leader")), "second");
    assert_string_equal(json_string_value(json_array_get(ctl_at(j, "standby"), 0)), "first");
    assert_int_equal(json_integer_value(ctl_at(j, "nodes")), 2);
    assert_int_equal(json_integer_value(ctl_at(ctl_at(j, "slots"), "total")), 4);
    assert_int_equal(json_integer_value(ctl_at(ctl_at(j, "slots"), "used")), 2);
    assert_int_equal(json_integer_value(ctl_at(ctl_at(j, "slots"), "free")), 2);
    json_decref(j);
    assert_int_equal(ctl_run(lab, "node list"), 0);
    assert_contains(lab->out, "n1    up     1/2   healthy  a\n");
    assert_int_equal(ctl_run(lab, "node status n2"), 0);
    assert_contains(lab->out, "  slot 0   rank 1 of job a\n");
    ctl_remove(lab, KEY_NODES, "n1");
    ctl_remove(lab, KEY_NODES, "n2");
}

static void logs_are_read_where_they_lie(void **state)
{
    CtlLab *lab = *state;
    char log_dir[128];
    (void)snprintf(log_dir, sizeof(log_dir), "%s/logs1", lab->folder);
    ctl_put_running_job(lab, "a");
    put_node(lab, "n1", log_dir);
    put_node(lab, "n2", NULL);
    ctl_write(lab, "logs1/a/g1/rank0.log", "of the past\n");
    ctl_write(lab, "logs1/a/g2/rank0.log.1", "first\nsec");
    ctl_write(lab, "logs1/a/g2/rank0.log", "ond\nthird");
    assert_int_equal(ctl_run(lab, "job logs a"), 0);
    assert_string_equal(lab->out, "first\nsecond\nthird\n");
    assert_string_equal(lab->err,
                        "sdctl: rank 1: its log is on n2 (10.0.0.1) in "
                        "its log_dir/a/g2/rank1.log; sdtraind  there hands out no "
                        "logs: it is older, or has no right to (/usr/share/sdtrain/etcd-roles)\n");
    assert_int_equal(ctl_run(lab, "job logs a --generation 1"), 0);
    assert_string_equal(lab->out, "of the past\n");
    assert_int_equal(ctl_run(lab, "job logs a --rank 2"), 3);
    assert_string_equal(lab->err, "sdctl: job a has 2 ranks, no rank 2\n");

    ctl_begin(lab, "job logs a --rank 0 --follow");
    ctl_write(lab, "logs1/a/g2/rank0.log", "another file\n");
    ctl_put_phase(lab, "a", PHASE_SUCCEEDED, "finished");
    assert_int_equal(ctl_finish(lab), 0);
    assert_contains(lab->out, "another file\n");
    ctl_remove(lab, KEY_NODES, "n1");
    assert_int_equal(ctl_run(lab, "job logs a --rank 0"), 0);
    assert_string_equal(lab->err, "sdctl: rank 0: its log is on n1, which is not registered now\n");
    ctl_remove(lab, KEY_NODES, "n2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_has_the_documented_fields),
        cmocka_unit_test(what_the_store_costs_is_told),
        cmocka_unit_test(cost_is_shown_where_there_are_prices),
        cmocka_unit_test(people_read_culprit_cause_and_evidence),
        cmocka_unit_test(tables_fit_the_terminal),
        cmocka_unit_test(events_come_in_the_order_of_time),
        cmocka_unit_test(what_a_stop_ends_was_not_recovered),
        cmocka_unit_test(the_cluster_says_what_is_wrong_first),
        cmocka_unit_test(logs_are_read_where_they_lie),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}
