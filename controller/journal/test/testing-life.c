/* SPDX-License-Identifier: Apache-2.0 */
/* testing-life.c - see testing-life.h. */
#include "controller/journal/test/testing-life.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/test/testing.h"
#include "cluster/keys.h"

#include <string.h>
#include <sys/stat.h>

static const char job_text[] =
    "{\"name\":\"a\",\"kind\":\"train\",\"world\":{\"min\":1,\"max\":2},"
    "\"model\":{\"config\":\"file:///m/config.json\",\"init\":\"random\"},"
    "\"data\":{\"streams\":[{\"uri\":\"file:///d/\"}],\"empty_text\":\"file:///d/empty.npy\"},"
    "\"train\":{\"global_batch\":8,\"grain\":1,\"steps\":100},"
    "\"checkpoint\":{\"uri\":\"file:///c/\"}}";

/* ---- the ledger ---- */

static Life *lives; /* the Life that keeps what is logged */

static void keep_said(_unused_ LogLevel level, const char *text)
{
    const size_t n = strlen(lives->said);
    (void)snprintf(lives->said + n, sizeof(lives->said) - n, "%s\n", text);
}

static void note(Life *s, const Event *event, json_t *line)
{
    assert_non_null(line);
    if (event) {
        json_object_set_new(line, "now", json_integer((json_int_t)event->now_usec));
        json_object_set_new(line, "real", json_integer((json_int_t)event->real_usec));
        if (event->stalled)
            json_object_set_new(line, "stalled", json_true());
    }
    assert_int_equal(json_array_append_new(s->ledger, line), 0);
}

const char *life_part(const Life *s, int n, char ret[128])
{
    (void)snprintf(ret, 128, "%s/part-%d", s->folder, n);
    return ret;
}

/* Gives a new part its second name. */
static void keep_part(Life *s)
{
    struct stat st;
    char name[128];
    if (!s->journal || stat(s->path, &st) < 0 || st.st_ino == s->part)
        return;
    s->part = st.st_ino;
    assert_int_equal(link(s->path, life_part(s, ++s->n_parts, name)), 0);
}

/* Gives each line its own time, so that no two lines of the ledger are equal. */
static void stamp(Life *s, Event *event)
{
    event->now_usec = ++s->now_usec;
    event->real_usec = s->now_usec + UINT64_C(1700000000) * USEC_PER_SEC;
    event->stalled = s->stalled;
    s->stalled = false;
}

static json_t *event_line(const Event *event)
{
    static const char *const outcomes[] = {"done", "refused", "unknown"};
    switch (event->kind) {
    case EVENT_LEADING:
        return json_pack("{s:I}", "leading", (json_int_t)event->term);
    case EVENT_DEPOSED:
        return json_pack("{s:b}", "deposed", 1);
    case EVENT_OUTCOME:
        return json_pack("{s:s, s:I, s:I}", "outcome", outcomes[event->outcome], "id",
                         (json_int_t)event->id, "revision", (json_int_t)event->revision);
    default:
        return json_pack("{s:b}", "tick", 1);
    }
}

static void record_event(Life *s, const Event *event)
{
    note(s, event, event_line(event));
    journal_record_event(s->journal, event);
    keep_part(s);
}

static void record_decision(Life *s, const Event *event, const Decision *d)
{
    note(s, event,
         json_pack("{s:I, s:s, s:o}", "decision", (json_int_t)d->id, "job", d->job, "does",
                   journal_words(d)));
    journal_record_decision(s->journal, event, d);
    keep_part(s);
}

void life_put(Life *s, const char *key, const char *value, size_t n_value)
{
    Event event;
    Error err = ERROR_INIT;
    Actions ignored;
    s->revision++;
    if (feed_event(s->feed, key, value, n_value, value ? 1000 + s->revision : 0, s->revision,
                   &event, &err) != 1)
        fail_msg("%s: %s", key, err.text);
    stamp(s, &event);
    event.lease = s->lease;
    event.more = true;
    json_t *line = json_pack("{s:s, s:I}", "key", key, "revision", (json_int_t)s->revision);
    if (value && strnlen(value, n_value) == n_value &&
        json_object_set_new(line, "value", json_stringn(value, n_value)) < 0)
        json_object_set_new(line, "value", json_string("?")); /* stands for an unreadable value */
    else if (value && strnlen(value, n_value) < n_value)
        json_object_set_new(line, "value", json_string("?"));
    if (value && event.kind == EVENT_SPEC)
        json_object_set_new(line, "created", json_integer(event.created));
    if (s->lease && (event.kind == EVENT_NODE || event.kind == EVENT_RANKS))
        json_object_set_new(line, "lease", json_integer(s->lease));
    note(s, &event, line);
    journal_record_key(s->journal, &event, key, value, n_value);
    keep_part(s);
    cluster_step(s->cluster, &event, &ignored);
}

#define PUT(s, prefix, record, key)                                                                \
    do {                                                                                           \
        _cleanup_free_ char *_text = NULL;                                                         \
        _text = prefix##_encode(record, NULL);                                                     \
        life_put(s, key, _text, strlen(_text));                                                    \
    } while (0)

static void carry_out(Life *s, const Decision *d)
{
    char key[KEY_MAX];
    s->n_decisions++;
    const int64_t id = d->id;
    if (d->put_world) {
        PUT(s, world_record, &d->world, key_of("lab", KEY_WORLDS, d->job, key));
        s->world_revision = s->revision;
    }
    if (d->put_phase)
        PUT(s, phase_record, &d->phase, key_of("lab", KEY_PHASES, d->job, key));
    if (d->put_incident)
        PUT(s, incident_record, &d->incident, key_of("lab", KEY_INCIDENTS, d->incident.id, key));
    for (int i = 0; i < d->n_cordons; i++)
        PUT(s, cordon_record, &d->cordons[i], key_of("lab", KEY_CORDONS, d->cordons[i].node, key));
    for (int i = 1; i <= 2 && d->remove_generation; i++) {
        const char *node = i == 1 ? "n1" : "n2";
        life_put(s, key_ranks("lab", "a", d->remove_generation, node, key), NULL, 0);
    }
    if (d->remove_incident[0])
        life_put(s, key_of("lab", KEY_INCIDENTS, d->remove_incident, key), NULL, 0);
    s->held_id = id;
    if (!s->holds)
        life_tell(s, (Event){.kind = EVENT_OUTCOME,
                             .id = id,
                             .outcome = OUTCOME_DONE,
                             .revision = s->revision});
}

void life_tell(Life *s, Event event)
{
    Actions *actions = calloc(1, sizeof(*actions));
    assert_non_null(actions);
    do {
        stamp(s, &event);
        record_event(s, &event);
        cluster_step(s->cluster, &event, actions);
        if (actions->decision.id) {
            record_decision(s, &event, &actions->decision);
            Decision *copy = malloc(sizeof(*copy));
            assert_non_null(copy);
            *copy = actions->decision;
            WorldRun runs[2];
            assert_true(copy->world.n_runs <= 2);
            if (copy->put_world)
                memcpy(runs, copy->world.runs, copy->world.n_runs * sizeof(*runs));
            copy->world.runs = runs;
            carry_out(s, copy);
            free(copy);
        }
        event = (Event){.kind = EVENT_TICK};
    } while (actions->again);
    free(actions);
}

/* ---- begin and end ---- */

void life_begin_core(Life *s)
{
    s->feed = feed_free(s->feed);
    free(s->memory);
    s->memory = calloc(1, cluster_bytes(&s->head.limits));
    assert_non_null(s->memory);
    s->feed = feed_new("lab");
    s->cluster = cluster_init(s->memory, &s->head.limits, &s->head.config);
}

/* Returns the numbers of events and decisions that the journal, when it was freed, logged as not written. */
json_t *life_end_journal(Life *s)
{
    long long events = 0, decisions = 0;
    s->said[0] = '\0';
    s->journal = journal_free(s->journal);
    const char *at = strstr(s->said, "record: ");
    if (at)
        assert_int_equal(sscanf(at, "record: %lld %*s and %lld", &events, &decisions), 2);
    assert_true(!at || events + decisions > 0);
    return json_pack("{s:b, s:I, s:I}", "restart", 1, "lost_events", (json_int_t)events,
                     "lost_decisions", (json_int_t)decisions);
}

int life_open(Life *s, uint64_t max_bytes)
{
    Error err = ERROR_INIT;
    json_t *restart = life_end_journal(s);
    json_object_set_new(restart, "config", journal_config_json(&s->head.config));
    note(s, NULL, restart);
    life_begin_core(s);
    int r = journal_new(s->path, max_bytes, &s->head, &s->journal, &err);
    if (r < 0 && (!s->may_fail || !strstr(err.text, s->path)))
        fail_msg("%s", err.text);
    keep_part(s);
    return r;
}

void life_configure(Life *s, const ClusterConfig *config)
{
    Event event = {0};
    stamp(s, &event);
    s->head.config = *config;
    cluster_configure(s->cluster, config);
    note(s, &event, json_pack("{s:o}", "config", journal_config_json(config)));
    journal_record_config(s->journal, &event, config);
    keep_part(s);
}

int life_setup(void **state)
{
    Life *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    (void)snprintf(s->folder, sizeof(s->folder), "/tmp/sdtrain-journal-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    (void)snprintf(s->path, sizeof(s->path), "%s/events.jsonl", s->folder);
    (void)snprintf(s->old_path, sizeof(s->old_path), "%s.1", s->path);
    s->head = (JournalHead){
        .cluster = "lab",
        .version = "0.2.0",
        .config = cluster_config_default,
        .limits = {.nodes = 16, .jobs = 4, .reports = 64, .incidents = 6, .requests = 8}};
    s->head.config.incidents_kept = 5;
    s->head.config.max_strikes = 0;
    s->now_usec = clock_boottime_usec() +
                  1000 * USEC_PER_SEC; /* a journal that cannot begin uses this clock */
    s->ledger = json_array();
    lives = s;
    log_lend(keep_said);
    life_begin_core(s);
    *state = s;
    return 0;
}

int life_teardown(void **state)
{
    Life *s = *state;
    Error err = ERROR_INIT;
    s->journal = journal_free(s->journal);
    s->feed = feed_free(s->feed);
    free(s->memory);
    json_decref(s->ledger);
    log_lend(NULL);
    assert_int_equal(folder_remove(s->folder, &err), 0);
    free(s);
    return 0;
}

void life_put_node(Life *s, const char *name)
{
    char key[KEY_MAX];
    NodeRecord node = {.machine_id = "m", .incarnation = 1, .n_slots = 1};
    (void)snprintf(node.name, sizeof(node.name), "%s", name);
    PUT(s, node_record, &node, key_of("lab", KEY_NODES, name, key));
}

static void put_rank(Life *s, int64_t generation, const char *node, RankReport report,
                     int64_t first_step)
{
    char key[KEY_MAX];
    report.at_usec = report.ready_usec = s->now_usec;
    RanksRecord record = {.incarnation = 1,
                          .generation = generation,
                          .world_revision = s->world_revision,
                          .ranks = &report,
                          .n_ranks = 1,
                          .killed_usec = generation > 1 ? s->now_usec : 0,
                          .first_step = first_step,
                          .first_step_usec = first_step ? s->now_usec : 0};
    (void)snprintf(record.node, sizeof(record.node), "%s", node);
    PUT(s, ranks_record, &record, key_ranks("lab", "a", generation, node, key));
}

void life_tick(Life *s)
{
    s->now_usec += 10 * USEC_PER_MSEC;
    life_tell(s, (Event){.kind = EVENT_TICK});
}

static void bring_up(Life *s, int64_t generation)
{
    put_rank(s, generation, "n1", (RankReport){.rank = 0, .state = RANK_READY}, 0);
    put_rank(s, generation, "n2", (RankReport){.rank = 1, .state = RANK_READY}, 0);
    life_tick(s);
    put_rank(s, generation, "n1", (RankReport){.rank = 0, .state = RANK_RUNNING}, 10 * generation);
    life_tick(s);
}

void life_begin_job(Life *s)
{
    char key[KEY_MAX];
    _cleanup_free_ char *copy = strdup(job_text);
    life_put_node(s, "n1");
    life_put_node(s, "n2");
    life_tell(s, (Event){.kind = EVENT_LEADING, .term = 7});
    SpecRecord spec = {.spec = copy, .submitted_usec = 1};
    PUT(s, spec_record, &spec, key_of("lab", KEY_SPECS, "a", key));
    DesiredRecord desired = {.min = 1, .max = 2};
    PUT(s, desired_record, &desired, key_of("lab", KEY_DESIRED, "a", key));
    s->now_usec += USEC_PER_SEC; /* the leader decides go after a grace: a node may have vanished */
    life_tick(s);
    bring_up(s, 1);
}

void life_lose_a_rank(Life *s, int64_t generation)
{
    s->now_usec += 120 * USEC_PER_SEC;
    put_rank(s, generation, "n2",
             (RankReport){.rank = 1, .state = RANK_EXITED, .exit_code = -9, .text = "gone"}, 0);
    life_tick(s);
    bring_up(s, generation + 1);
}
