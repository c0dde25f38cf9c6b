/* SPDX-License-Identifier: Apache-2.0 */
/* test-ctl-show.c - verbs that read: JSON fields, words for people, logs, report and export. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "base/file.h"
#include "ctl/test/testing-ctl.h"
#include "trainer/checkpoint/format/manifest-internal.h"

#include <endian.h>
#include <string.h>

static void put_incident(CtlLab *lab, const char *job, IncidentState state)
{
    IncidentRecord incident = {.state = state,
                               .cause = "trainer-died",
                               .node = "n2",
                               .rank = 1,
                               .generation = 1,
                               .step = 12,
                               .evidence = "signal 9 <killed>",
                               .at_usec = UINT64_C(1700000020000000),
                               .lost_steps = 2,
                               .detect_sec = 0.125,
                               .decide_sec = 0.25,
                               .stop_sec = 0.5,
                               .start_sec = 0.0625,
                               .restore_sec = 0.75,
                               .replay_sec = 1.5};
    (void)snprintf(incident.id, sizeof(incident.id), "%s-1", job);
    (void)snprintf(incident.job, sizeof(incident.job), "%s", job);
    if (state == INCIDENT_RESOLVED) {
        incident.first_step_usec = incident.at_usec + 2000000;
        incident.resolved_usec = incident.at_usec + 2100000;
    }
    CTL_PUT(lab, KEY_INCIDENTS, incident.id, incident_record, incident);
}

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

static json_t *at(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!value)
        fail_msg("no field %s", key);
    return value;
}

static void status_has_the_documented_fields(void **state)
{
    CtlLab *lab = *state;
    ctl_put_running_job(lab, "a");
    put_incident(lab, "a", INCIDENT_RESOLVED);
    ctl_put_text(lab, KEY_INCIDENTS, "a-3", /* of a job that had the name before */
                 "{\"v\":2,\"id\":\"a-3\",\"state\":\"open\",\"job\":\"a\",\"submission\":\"1234\","
                 "\"cause\":\"hang\"}");
    CheckpointsRecord checkpoints = {.commits = {{.step = 10,
                                                  .generation = 1,
                                                  .uri = "file:///x/s/manifest.json",
                                                  .digest = {.high = 1, .low = 2}},
                                                 {.step = 11,
                                                  .generation = 1,
                                                  .uri = "file:///x/bad/manifest.json",
                                                  .struck_out = true}},
                                     .n_commits = 2};
    CTL_PUT(lab, KEY_CHECKPOINTS, "a", checkpoints_record, checkpoints);
    assert_int_equal(ctl_run(lab, "job status a -o json"), 0);

    json_t *j = ctl_json(lab);
    assert_string_equal(json_string_value(at(j, "job")), "a");
    assert_string_equal(json_string_value(at(j, "phase")), "running");
    assert_string_equal(json_string_value(at(j, "reason")), "resizes from 3 to 2");
    assert_int_equal(json_integer_value(at(j, "generation")), 2);
    assert_int_equal(json_integer_value(at(j, "step")), 12);
    assert_int_equal(json_integer_value(at(j, "steps")), 100);
    assert_true(json_real_value(at(j, "loss")) == 0.5);
    assert_int_equal(json_integer_value(at(j, "samples_seen")), 192);
    assert_true(json_real_value(at(j, "samples_per_s")) == 32.0);
    assert_true(json_real_value(at(j, "eta_s")) == 44.0); /* 88 steps of 16 samples */
    assert_true(json_is_real(at(j, "goodput")));

    json_t *world = at(j, "world"), *rank = json_array_get(at(world, "ranks"), 1);
    assert_int_equal(json_integer_value(at(world, "size")), 2);
    assert_int_equal(json_array_size(at(world, "ranks")), 2);
    assert_int_equal(json_integer_value(at(rank, "rank")), 1);
    assert_string_equal(json_string_value(at(rank, "node")), "n2");
    assert_int_equal(json_integer_value(at(rank, "slot")), 0);
    assert_int_equal(json_integer_value(at(rank, "pid")), 4001);
    assert_string_equal(json_string_value(at(rank, "state")), "running");
    assert_int_equal(json_integer_value(at(rank, "step")), 12);

    json_t *checkpoint = at(j, "checkpoint");
    assert_int_equal(json_integer_value(at(checkpoint, "step")), 10);
    assert_string_equal(json_string_value(at(checkpoint, "uri")), "file:///x/s/manifest.json");
    assert_string_equal(json_string_value(at(checkpoint, "digest")),
                        "00000000000000010000000000000002");

    json_t *incident = json_array_get(at(j, "incidents"), 0);
    assert_int_equal(json_array_size(at(j, "incidents")), 1);
    ctl_remove(lab, KEY_INCIDENTS, "a-3");
    assert_string_equal(json_string_value(at(incident, "id")), "a-1");
    assert_true(json_real_value(at(incident, "at")) == 1700000020.0);
    assert_string_equal(json_string_value(at(incident, "cause")), "trainer-died");
    assert_string_equal(json_string_value(at(incident, "node")), "n2");
    assert_int_equal(json_integer_value(at(incident, "rank")), 1);
    assert_string_equal(json_string_value(at(incident, "evidence")), "signal 9 <killed>");
    assert_int_equal(json_integer_value(at(incident, "generation")), 1);
    assert_int_equal(json_integer_value(at(incident, "lost_steps")), 2);
    static const struct {
        const char *key;
        double sec;
    } phases[] = {{"detect_s", 0.125}, {"decide_s", 0.25},  {"stop_s", 0.5},
                  {"start_s", 0.0625}, {"restore_s", 0.75}, {"replay_s", 1.5}};
    for (size_t i = 0; i < ELEMENTSOF(phases); i++)
        assert_true(json_real_value(at(at(incident, "phases"), phases[i].key)) == phases[i].sec);
    json_decref(j);

    assert_int_equal(ctl_run(lab, "job list -o json"), 0);
    j = ctl_json(lab);
    assert_int_equal(json_array_size(j), 1);
    assert_string_equal(json_string_value(at(json_array_get(j, 0), "job")), "a");
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
                               .waits_since_usec = UINT64_C(1700000040000000),
                               .waits_rank = 1,
                               .metrics_lost = 5,
                               .metrics_lost_first = 3,
                               .metrics_lost_last = 9};
    CTL_PUT(lab, KEY_PROGRESS, "a", progress_record, progress);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "unsaved for 1 min ");
    assert_contains(lab->out, "s3://b/c: no answer");
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
    json_t *j = ctl_json(lab), *store = at(j, "store");
    assert_true(json_real_value(at(store, "waits_since")) == 1700000040.0);
    assert_int_equal(json_integer_value(at(store, "waits_rank")), 1);
    assert_string_equal(json_string_value(at(store, "save_error")), "s3://b/c: no answer");
    assert_true(json_real_value(at(j, "next_try_at")) > 1700003600.0);
    assert_int_equal(json_integer_value(at(at(j, "metrics_lost"), "steps")), 5);
    assert_int_equal(json_integer_value(at(at(j, "metrics_lost"), "last")), 9);
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
    assert_true(json_is_null(at(j, "cost")));
    json_decref(j);

    PhaseRecord phase = {.phase = PHASE_RUNNING,
                         .generation = 2,
                         .go = true,
                         .since_usec = 1,
                         .cost = {.rate = INT64_C(72000000), /* a dollar in 50 seconds */
                                  .since_usec = clock_realtime_usec(),
                                  .spent = INT64_C(1234000000),
                                  .lost = 5250000}};
    CTL_PUT(lab, KEY_PHASES, "a", phase_record, phase);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    /* 12 of 100 steps, half a second each, 32 samples a second */
    assert_contains(lab->out, "  cost $1,234, of it $5.25 lost to failures; $0.8800 to the end\n"
                              "    $72.00 an hour, $10.00 per 1,000 steps, $625,000 per epoch of "
                              "1e9 samples\n");
    assert_int_equal(ctl_run(lab, "job status a -o json"), 0);
    j = ctl_json(lab);
    json_t *cost = at(j, "cost");
    double spent = json_real_value(at(cost, "spent"));
    assert_true(spent > 1234 && spent < 1240);
    assert_true(json_real_value(at(cost, "lost")) == 5.25);
    assert_true(json_real_value(at(cost, "per_hour")) == 72);
    assert_true(json_real_value(at(cost, "per_1000_steps")) == 10);
    assert_true(json_real_value(at(cost, "per_billion_samples")) == 625000);
    assert_true(json_real_value(at(cost, "to_end")) == 0.88);
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
    put_incident(lab, "a", INCIDENT_OPEN);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "job a: running (resizes from 3 to 2)\n");
    assert_contains(lab->out, "  step 12 of 100, loss 0.50000, 32.0 samples/s, 44 s to go\n");
    assert_contains(lab->out, "trainer-died of rank 1 on n2 at step 12, generation 1: OPEN\n"
                              "      signal 9 <killed>\n");
    put_incident(lab, "a", INCIDENT_RESOLVED);
    assert_int_equal(ctl_run(lab, "job status a"), 0);
    assert_contains(lab->out, "recovered in 2.00 s, 2 steps again\n");
    assert_contains(lab->out, "detect 0.12 s, decide 0.25 s, stop 0.50 s");
    assert_int_equal(ctl_run(lab, "job list"), 0);
    assert_contains(lab->out, "  2      12/100  32.0       44 s  -      resizes from 3 to 2\n");
    assert_int_equal(ctl_run(lab, "job status none"), 3);
    assert_string_equal(lab->err, "sdctl: no job none in cluster lab; sdctl job list shows all\n");
}

/* On a terminal states have colours, and a long reason goes on below itself; elsewhere a line stays a line. */
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
        assert_true(end - line <= 90 + 1 + 9); /* its CR, and a colour */

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
    put_incident(lab, "a", INCIDENT_RESOLVED);
    assert_int_equal(ctl_run(lab, "job events a -o json"), 0);
    static const char *const order[] = {"submitted", "world", "incident", "recovered", "world"};
    json_t *j = ctl_json(lab), *e;
    size_t i, n = 0;
    double last = 0;
    json_array_foreach (j, i, e) {
        const char *event = json_string_value(at(e, "event"));
        assert_true(json_real_value(at(e, "at")) >= last);
        last = json_real_value(at(e, "at"));
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

/* A stop ends what it finds open: nothing was recovered by it. */
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
    put_incident(lab, "a", INCIDENT_OPEN);
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
    put_incident(lab, "a", INCIDENT_RESOLVED);
    put_node(lab, "n2", NULL);
    ctl_put_text(lab, KEY_LEADER, "2", "{\"v\":2,\"name\":\"second\"}");
    ctl_put_text(lab, KEY_LEADER, "1", "{\"v\":2,\"name\":\"first\"}");
    assert_int_equal(ctl_run(lab, "cluster status -o json"), 0);
    json_t *j = ctl_json(lab);
    assert_true(json_is_true(at(j, "ok")));
    assert_int_equal(json_array_size(at(j, "wrong")), 0);
    assert_int_equal(json_array_size(at(j, "advice")), 0);
    json_t *member = json_array_get(at(j, "members"), 0);
    assert_true(json_is_true(at(member, "answers")) && json_is_true(at(member, "leads")));
    assert_true(json_integer_value(at(member, "db_bytes")) > 0);
    assert_string_equal(json_string_value(at(j, "leader")), "second"); /* it came first */
    assert_string_equal(json_string_value(json_array_get(at(j, "standby"), 0)), "first");
    assert_int_equal(json_integer_value(at(j, "nodes")), 2);
    assert_int_equal(json_integer_value(at(at(j, "slots"), "total")), 4);
    assert_int_equal(json_integer_value(at(at(j, "slots"), "used")), 2);
    assert_int_equal(json_integer_value(at(at(j, "slots"), "free")), 2);
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
    assert_string_equal(lab->err, "sdctl: rank 1: its log is on n2 (10.0.0.1) in "
                                  "its log_dir/a/g2/rank1.log; sdtraind  there hands out no "
                                  "logs: it is older, or has no right to (ops/etcd-roles)\n");
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

/* ---- a committed checkpoint of 20 steps with two weight files ---- */

typedef struct Built {
    char *text;
    size_t n_bytes;
} Built;

/* One tensor of two floats. */
static Built safetensors(const char *name, float a, float b)
{
    char header[128];
    Built f;
    const float data[2] = {a, b};
    (void)snprintf(header, sizeof(header),
                   "{\"__metadata__\":{\"format\":\"pt\"},\"%s\":{\"dtype\":\"F32\",\"shape\":[2],"
                   "\"data_offsets\":[0,8]}}",
                   name);
    const uint64_t n = htole64(strlen(header));
    f.n_bytes = 8 + strlen(header) + sizeof(data);
    f.text = malloc(f.n_bytes);
    assert_non_null(f.text);
    memcpy(f.text, &n, 8);
    memcpy(f.text + 8, header, strlen(header));
    memcpy(f.text + 8 + strlen(header), data, sizeof(data));
    return f;
}

/* Writes it below the lab's folder, and forgets the text. */
static void write_object(CtlLab *lab, const char *folder, const char *key, Built f,
                         uint64_t *ret_bytes, Hash *ret_hash)
{
    char path[400];
    Error err = ERROR_INIT;
    (void)snprintf(path, sizeof(path), "%s/%s%s", lab->folder, folder, key);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(folder_make(path, &err), 0);
    *slash = '/';
    assert_int_equal(file_write(path, f.text, f.n_bytes, 0, &err), 0);
    *ret_bytes = f.n_bytes;
    *ret_hash = hash_bytes(f.text, f.n_bytes);
    free(f.text);
}

static Built metrics(int first, int last)
{
    Built f = {.text = calloc(1, 8192)};
    assert_non_null(f.text);
    for (int step = first; step <= last; step++)
        f.n_bytes += (size_t)snprintf(f.text + f.n_bytes, 8192 - f.n_bytes,
                                      "{\"step\":%d,\"loss\":%g,\"lr\":0.1,\"grad_norm\":1}\n",
                                      step, 1.0 / step);
    return f;
}

#define STEP_FOLDER "ck/step-0000000020-o1-g2-00000000/"
#define FIRST_WEIGHTS "unet/diffusion_pytorch_model-00001-of-00002.safetensors"
#define FIRST_METRICS "ck/metrics/metrics-0000000001-0000000010-o1-g2-00000000.jsonl"
#define SECOND_METRICS "ck/metrics/metrics-0000000011-0000000020-o1-g2-00000000.jsonl"

static Built object_of(const ObjectRecord *o)
{
    if (o->kind == OBJECT_WEIGHTS)
        return o->part == 0 ? safetensors("conv.bias", 1, 2) : safetensors("conv.weight", 3, 4);
    Built f = {.n_bytes = o->kind == OBJECT_MOMENTS ? 8 * (size_t)o->count : 2};
    f.text = calloc(1, f.n_bytes);
    assert_non_null(f.text);
    return f;
}

/* The text of a manifest of two weight files of two numbers each, whose objects are written. */
static char *put_objects(CtlLab *lab)
{
    Parameter items[] = {{.n_elements = 2}, {.offset = 2, .n_elements = 2}};
    const ParameterList list = {.items = items, .n_items = 2, .n_elements = 4};
    char folders[2][CHECKPOINT_FOLDER_MAX] = {"step-0000000000-o1-g1-00000000",
                                              "step-0000000015-o1-g1-00000000"};
    uint32_t maxima[2 * MAXIMA_WINDOW] = {0};
    Hash chunks[1] = {{.high = 0}};
    MetricsSegment segments[2];
    Manifest m = {.name = {.step = 20, .owner = 1, .generation = 2},
                  .facts = {.job = "e", .generation = 2, .numerics = "{}"},
                  .scalars = {.step = 20, .loss_scale = 1, .maxima = maxima},
                  .n_tensors = 2,
                  .layout = chunk_layout(4),
                  .chunks = chunks,
                  .metrics_first = 1,
                  .segments = segments,
                  .n_segments = 2,
                  .committed = folders,
                  .n_committed = 2};
    ObjectTable table;
    assert_int_equal(object_table_new(&list, &m.layout, 8, false, &table), 0);
    m.objects = table.records;
    m.n_objects = table.n_records;
    for (size_t i = 0; i < m.n_objects; i++)
        write_object(lab, STEP_FOLDER, m.objects[i].key, object_of(&m.objects[i]),
                     &m.objects[i].n_bytes, &m.objects[i].hash);
    for (int k = 0; k < 2; k++) {
        MetricsSegment *s = &segments[k];
        *s = (MetricsSegment){.first = 10 * k + 1, .last = 10 * k + 10, .n_lines = 10};
        metrics_key_format(&m.name, s->first, s->last, s->key);
        write_object(lab, "ck/", s->key, metrics((int)s->first, (int)s->last), &s->n_bytes,
                     &s->hash);
    }
    m.digest = manifest_state_digest(&m);
    char *text = NULL;
    assert_int_equal(manifest_format(&m, &text), 0);
    object_table_clear(&table);
    return text;
}

static void put_checkpoint(CtlLab *lab, const char *job)
{
    _cleanup_free_ char *text = put_objects(lab);
    ctl_write(lab, STEP_FOLDER "manifest.json", text);
    CheckpointsRecord record = {.commits = {{.step = 20, .generation = 2}}, .n_commits = 1};
    (void)snprintf(record.commits[0].uri, sizeof(record.commits[0].uri),
                   "file://%s/" STEP_FOLDER "manifest.json", lab->folder);
    record.commits[0].hash = hash_bytes(text, strlen(text));
    CTL_PUT(lab, KEY_CHECKPOINTS, job, checkpoints_record, record);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, part)); p += strlen(part))
        n++;
    return n;
}

static void a_report_shows_every_mark(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    ctl_put_running_job(lab, "r");
    put_incident(lab, "r", INCIDENT_RESOLVED);
    put_checkpoint(lab, "r");
    ctl_put_phase(lab, "r", PHASE_SUCCEEDED, "<!-- end -->{{job}} & \"done\"");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html", lab->folder), 0);
    (void)snprintf(path, sizeof(path), "%s/r.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);

    assert_contains(page, "<!DOCTYPE html>");
    assert_int_equal(count(page, "class=\"saved\""), 3);
    assert_contains(page, "checkpoint of step 10</title>");
    assert_contains(page, "checkpoint of step 20</title>");
    assert_int_equal(count(page, "<g class=\"failure\">"), 1);
    assert_contains(page, "2 steps were trained again");
    assert_contains(page, "signal 9 &lt;killed&gt;");
    assert_null(strstr(page, "<killed>"));
    /* A text from outside is no mark of the template, and all marks of the template are filled. */
    assert_contains(page, "(&lt;!-- end --&gt;{{job}} &amp; &quot;done&quot;)");
    assert_int_equal(count(page, "{{"), 1);
    assert_int_equal(count(page, "<!--"), 0);
    assert_contains(page, "<b id=\"goodput\">75.0 %</b><span>goodput</span>");
    assert_contains(page, "<title>restore 0.750 s</title>");
    assert_contains(page, "<title>first step 0.312 s</title>"); /* 2 s less what is known */
    assert_contains(page, "<title>replay 1.500 s</title>");
    assert_contains(page, "generation 2: 2 ranks from step 10: resizes from 3 to 2</title>");
    assert_contains(page, "step-0000000020-o1-g2-00000000/manifest.json");
    assert_contains(page, "prefers-color-scheme:dark");
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "http://"));
    assert_null(strstr(page, "https://"));
    assert_null(strstr(page, "The same job, run alone"));
}

static void a_report_shows_what_is_given_to_it(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    ctl_put_running_job(lab, "r");
    put_checkpoint(lab, "r");
    (void)snprintf(path, sizeof(path), "%s/grid.png", lab->folder);
    assert_int_equal(file_write(path, "\x89PNG\r\n\x1a\nxy", 10, 0, &err), 0);
    assert_int_equal(
        ctl_run(lab,
                "job report r --out %s/r.html --grid %s --alone 00000000000000000000000000000000",
                lab->folder, path),
        0);
    (void)snprintf(path, sizeof(path), "%s/r.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "src=\"data:image/png;base64,iVBORw0KGgp4eQ==\"");
    assert_contains(page, "equal: the same bits"); /* as the record's */
    assert_int_equal(
        ctl_run(lab, "job report r --out %s/r.html --alone 11111111111111111111111111111111",
                lab->folder),
        0);
    free(TAKE_PTR(page));
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, ">different<");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html --alone 123", lab->folder), 1);
    assert_contains(lab->err, "--alone 123: a digest has 32 hexadecimal digits");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html --grid %s/r.html", lab->folder,
                             lab->folder),
                     1);
    assert_contains(lab->err, "not a PNG");
}

static void a_report_says_which_metrics_are_lost(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *page = NULL;
    Error err = ERROR_INIT;
    ctl_put_running_job(lab, "r");
    put_checkpoint(lab, "r");
    ctl_write(lab, SECOND_METRICS, "{\"step\":11}\n");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html", lab->folder), 0);
    assert_contains(lab->err, SECOND_METRICS ": its hash is ");
    (void)snprintf(path, sizeof(path), "%s/r.html", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &page, &n, &err), 0);
    assert_contains(page, "The metrics of 10 steps between 11 and 20 are lost: ");
    assert_contains(page, SECOND_METRICS ": its hash is ");
    assert_contains(page, "checkpoint of step 10</title>");
    ctl_write(lab, FIRST_METRICS, "");
    assert_int_equal(ctl_run(lab, "job report r --out %s/r.html", lab->folder), 0);
    assert_contains(lab->err, "the metrics of 20 steps between 1 and 20 are lost: ");
    assert_int_equal(ctl_run(lab, "job report r --out %s/no/r.html", lab->folder), 3);
    assert_contains(lab->err, "/no/r.html");
}

static void export_joins_the_weight_files(void **state)
{
    CtlLab *lab = *state;
    char path[200];
    size_t n;
    _cleanup_free_ char *file = NULL;
    Error err = ERROR_INIT;
    ctl_put_running_job(lab, "e");
    assert_int_equal(ctl_run(lab, "job export e --out %s/e.safetensors", lab->folder), 3);
    assert_string_equal(
        lab->err, "sdctl: job e has no checkpoint yet; sdctl job checkpoint e has it save one\n");
    put_checkpoint(lab, "e");
    assert_int_equal(ctl_run(lab, "job export e --out %s/e.safetensors", lab->folder), 0);
    (void)snprintf(path, sizeof(path), "%s/e.safetensors", lab->folder);
    assert_int_equal(file_read(path, 1 << 20, &file, &n, &err), 0);

    uint64_t n_header;
    memcpy(&n_header, file, 8);
    n_header = le64toh(n_header);
    assert_int_equal(n_header % 8, 0);
    assert_int_equal(n, 8 + n_header + 16);
    json_t *header = json_loadb(file + 8, n_header, 0, NULL);
    json_t *offsets = at(at(header, "conv.weight"), "data_offsets");
    assert_int_equal(json_integer_value(json_array_get(offsets, 0)), 8);
    assert_int_equal(json_integer_value(json_array_get(offsets, 1)), 16);
    assert_string_equal(json_string_value(at(at(header, "__metadata__"), "format")), "pt");
    json_decref(header);
    const float expected[] = {1, 2, 3, 4};
    assert_memory_equal(file + 8 + n_header, expected, sizeof(expected));

    assert_int_equal(ctl_run(lab, "job export e --ema --out %s/e.safetensors", lab->folder), 3);
    assert_string_equal(lab->err, "sdctl: the checkpoint of step 20 has no averaged weights: "
                                  "train.ema.start_step is not reached\n");
    Hash hash;
    write_object(lab, STEP_FOLDER, FIRST_WEIGHTS, safetensors("conv.bias", 1, 3), &n, &hash);
    assert_int_equal(ctl_run(lab, "job export e --out %s/f.safetensors", lab->folder), 1);
    assert_contains(lab->err, FIRST_WEIGHTS ": its hash is not what the manifest says\n");
    (void)snprintf(path, sizeof(path), "%s/f.safetensors", lab->folder);
    assert_int_equal(access(path, F_OK), -1);
    (void)snprintf(path, sizeof(path), "%s/f.safetensors.part", lab->folder);
    assert_int_equal(access(path, F_OK), -1);
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
        cmocka_unit_test(a_report_shows_every_mark),
        cmocka_unit_test(a_report_says_which_metrics_are_lost),
        cmocka_unit_test(a_report_shows_what_is_given_to_it),
        cmocka_unit_test(export_joins_the_weight_files),
    };
    return cmocka_run_group_tests(tests, ctl_setup, ctl_teardown);
}
