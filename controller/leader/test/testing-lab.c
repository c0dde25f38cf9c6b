/* SPDX-License-Identifier: Apache-2.0 */
/* testing-lab.c - see testing-lab.h. */
#include "controller/leader/test/testing-lab.h"

#include "base/clock.h"
#include "etcd/etcd-wait.h"

#include <string.h>

const char lab_job[LAB_JOB_BYTES] =
    "{\"name\":\"a\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":2},"
    "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
    "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/empty.npy\"},"
    "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":100},"
    "\"checkpoint\":{\"uri\":\"file:///c/\"}}";

static void on_watch(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                     _unused_ bool initial, void *userdata)
{
    Lab *lab = userdata;
    for (size_t i = 0; i < n; i++) {
        const EtcdKeyValue *kv = &events[i].kv;
        if (events[i].kind == ETCD_EVENT_DELETE) {
            (void)json_object_del(lab->texts, kv->key);
            (void)json_object_del(lab->revisions, kv->key);
            continue;
        }
        assert_int_equal(json_object_set_new(lab->texts, kv->key, json_string(kv->value)), 0);
        assert_int_equal(json_object_set_new(lab->revisions, kv->key,
                                             json_integer(kv->mod_revision)),
                         0);
        assert_int_equal(json_object_set_new(lab->versions, kv->key, json_integer(kv->version)), 0);
    }
}

int lab_begin(void **state)
{
    Lab *lab = calloc(1, sizeof(*lab));
    assert_non_null(lab);
    lab->texts = json_object();
    lab->revisions = json_object();
    lab->versions = json_object();
    assert_true(sd_event_new(&lab->event) >= 0);
    lab->server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(lab->server);
    Error err = ERROR_INIT;
    assert_int_equal(etcd_new(lab->event, &options, &lab->etcd, &err), 0);
    assert_int_equal(etcd_watch_prefix(lab->etcd, "/sdtrain/lab/", on_watch, lab, &lab->watch), 0);
    *state = lab;
    return 0;
}

int lab_end(void **state)
{
    Lab *lab = *state;
    lab->watch = etcd_watch_free(lab->watch);
    lab->etcd = etcd_free(lab->etcd);
    lab->server = testing_etcd_stop(lab->server);
    lab->event = sd_event_unref(lab->event);
    json_decref(lab->texts);
    json_decref(lab->revisions);
    json_decref(lab->versions);
    free(lab);
    return 0;
}

/* ---- the store ---- */

const char *text_at(Lab *lab, KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    return json_string_value(json_object_get(lab->texts, key_of("lab", kind, name, key)));
}

int64_t revision_at(Lab *lab, KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    return json_integer_value(json_object_get(lab->revisions, key_of("lab", kind, name, key)));
}

int64_t version_at(Lab *lab, KeyKind kind, const char *name)
{
    char key[KEY_MAX];
    return json_integer_value(json_object_get(lab->versions, key_of("lab", kind, name, key)));
}

void put_text(Lab *lab, const char *key, const char *value, int64_t lease)
{
    Error err = ERROR_INIT;
    EtcdOp op = {.kind = value ? ETCD_PUT : ETCD_DELETE,
                 .key = key,
                 .value = value,
                 .lease = lease};
    if (etcd_txn_wait(lab->etcd, NULL, 0, &op, 1, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

PhaseRecord phase_of(Lab *lab, const char *job)
{
    PhaseRecord phase = {0};
    Error err = ERROR_INIT;
    const char *text = text_at(lab, KEY_PHASES, job);
    if (text && phase_record_decode("phase", text, strlen(text), &phase, &err) < 0)
        fail_msg("%s", err.text);
    return phase;
}

bool is_in(Lab *lab, const char *job, JobPhase phase, int64_t generation, bool go)
{
    PhaseRecord p = phase_of(lab, job);
    return text_at(lab, KEY_PHASES, job) && p.phase == phase && p.generation == generation &&
           p.go == go;
}

void wait_for(Lab *lab, const char *job, JobPhase phase, int64_t generation, bool go)
{
    TESTING_RUN_UNTIL(lab->event, is_in(lab, job, phase, generation, go));
}

bool leads(Lab *lab, const char *name)
{
    /* The lowest create revision leads; it equals the mod revision unless the key was put again. */
    const char *key, *best = NULL;
    json_t *value;
    int64_t lowest = INT64_MAX;
    json_object_foreach (lab->texts, key, value) {
        int64_t revision = json_integer_value(json_object_get(lab->revisions, key));
        if (strncmp(key, "/sdtrain/lab/leader/", 20) == 0 && revision < lowest) {
            lowest = revision;
            best = json_string_value(value);
        }
    }
    return best && strstr(best, name);
}

int count_candidates(Lab *lab)
{
    const char *key;
    json_t *value;
    int n = 0;
    json_object_foreach (lab->texts, key, value)
        n += strncmp(key, "/sdtrain/lab/leader/", 20) == 0;
    return n;
}

/* ---- the node side ---- */

void put_node(Lab *lab, const char *name, uint64_t incarnation)
{
    char key[KEY_MAX];
    NodeRecord node = {.machine_id = "m", .incarnation = incarnation, .n_slots = 1};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    PUT(lab, node_record, &node, key_of("lab", KEY_NODES, name, key));
}

void put_job(Lab *lab, const char *name, const char *text, int min, int max)
{
    char key[KEY_MAX];
    _cleanup_free_ char *copy = strdup(text);
    SpecRecord spec = {.spec = copy, .submitted_usec = 1};
    PUT(lab, spec_record, &spec, key_of("lab", KEY_SPECS, name, key));
    DesiredRecord desired = {.min = min, .max = max};
    PUT(lab, desired_record, &desired, key_of("lab", KEY_DESIRED, name, key));
}

/* Writes the report of the one rank that a node of these tests runs. */
void put_rank(Lab *lab, int64_t generation, const char *node, RankReport report, int64_t first_step,
              bool old_is_dead)
{
    char key[KEY_MAX];
    uint64_t now = clock_realtime_usec();
    report.at_usec = report.started_usec = report.ready_usec = now;
    RanksRecord record = {.incarnation = 1,
                          .generation = generation,
                          .world_revision = revision_at(lab, KEY_WORLDS, "a"),
                          .ranks = &report,
                          .n_ranks = 1,
                          .killed_usec = old_is_dead ? now : 0,
                          .first_step = first_step,
                          .first_step_usec = first_step ? now : 0};
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    PUT(lab, ranks_record, &record, key_ranks("lab", "a", generation, node, key));
}

void commit(Lab *lab, int64_t step, int64_t generation)
{
    char key[KEY_MAX];
    CheckpointsRecord record = {
        .commits = {{.step = step, .generation = generation, .uri = "file:///c/10/manifest.json"}},
        .n_commits = 1};
    PUT(lab, checkpoints_record, &record, key_of("lab", KEY_CHECKPOINTS, "a", key));
}

/* Simulates the world of that generation on both nodes, from its record to its first step. */
void train(Lab *lab, int64_t generation, int64_t first_step)
{
    bool first = generation == 1;
    JobPhase phase = first ? PHASE_STARTING : PHASE_RECOVERING;
    wait_for(lab, "a", phase, generation, false);
    put_rank(lab, generation, "n1", (RankReport){.rank = 0, .state = RANK_READY}, 0, !first);
    put_rank(lab, generation, "n2", (RankReport){.rank = 1, .state = RANK_READY}, 0, !first);
    wait_for(lab, "a", phase, generation, true);
    put_rank(lab, generation, "n1", (RankReport){.rank = 0, .state = RANK_RUNNING}, first_step,
             !first);
    wait_for(lab, "a", PHASE_RUNNING, generation, true);
}

void bring_to_running(Lab *lab)
{
    put_node(lab, "n1", 1);
    put_node(lab, "n2", 1);
    put_job(lab, "a", lab_job, 1, 2);
    train(lab, 1, 1);
    commit(lab, 10, 1);
}
