/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c - see feed.h. */
#include "controller/feed/feed.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "cluster/keys.h"
#include "protocol/job.h"

#include <string.h>

typedef union Record {
    NodeRecord node;
    CordonRecord cordon;
    SpecRecord spec;
    DesiredRecord desired;
    WorldRecord world;
    PhaseRecord phase;
    RanksRecord ranks;
    RendezvousRecord rendezvous;
    CheckpointsRecord checkpoints;
    ProgressRecord progress;
    IncidentRecord incident;
    AlertRecord alert;
    RequestRecord request;
} Record;

typedef int (*Decode)(const char *source, const char *text, size_t n_bytes, void *ret, Error *err);
typedef void (*Clear)(void *record);

#define DEFINE_CODEC(prefix)                                                                       \
    static int prefix##_read(const char *source, const char *text, size_t n, void *ret,            \
                             Error *err)                                                           \
    {                                                                                              \
        return prefix##_decode(source, text, n, ret, err);                                         \
    }                                                                                              \
    static void prefix##_drop(void *record) { prefix##_clear(record); }

DEFINE_CODEC(node_record)
DEFINE_CODEC(cordon_record)
DEFINE_CODEC(spec_record)
DEFINE_CODEC(desired_record)
DEFINE_CODEC(world_record)
DEFINE_CODEC(phase_record)
DEFINE_CODEC(ranks_record)
DEFINE_CODEC(rendezvous_record)
DEFINE_CODEC(checkpoints_record)
DEFINE_CODEC(progress_record)
DEFINE_CODEC(incident_record)
DEFINE_CODEC(alert_record)
DEFINE_CODEC(request_record)

#define CODEC(prefix) prefix##_read, prefix##_drop

static const struct {
    EventKind kind;
    bool rewritten; /* the leader rewrites records of this kind and keeps unknown fields */
    Decode decode;
    Clear clear;
    bool is_put_back; /* the leader puts a record of this kind back if it is lost */
} kinds[KEY_KINDS] = {
    [KEY_NODES] = {EVENT_NODE, false, CODEC(node_record)},
    [KEY_CORDONS] = {EVENT_CORDON, true, CODEC(cordon_record)},
    [KEY_SPECS] = {EVENT_SPEC, false, CODEC(spec_record), true},
    [KEY_DESIRED] = {EVENT_DESIRED, true, CODEC(desired_record), true},
    [KEY_WORLDS] = {EVENT_WORLD, false, CODEC(world_record)},
    [KEY_PHASES] = {EVENT_PHASE, true, CODEC(phase_record), true},
    [KEY_RANKS] = {EVENT_RANKS, false, CODEC(ranks_record)},
    [KEY_RENDEZVOUS] = {EVENT_RENDEZVOUS, false, CODEC(rendezvous_record)},
    [KEY_CHECKPOINTS] = {EVENT_CHECKPOINTS, true, CODEC(checkpoints_record), true},
    [KEY_PROGRESS] = {EVENT_PROGRESS, false, CODEC(progress_record)},
    [KEY_INCIDENTS] = {EVENT_INCIDENT, true, CODEC(incident_record)},
    [KEY_ALERTS] = {EVENT_ALERT, true, CODEC(alert_record)},
    [KEY_REQUESTS] = {EVENT_REQUEST, true, CODEC(request_record)},
};

struct Feed {
    char cluster[CLUSTER_NAME_MAX + 1];
    /* key -> the record's text, or true if the leader does not rewrite records of this kind */
    json_t *known;
    json_t *last;   /* key -> the last readable text, for a leader that puts the record back */
    json_t *nodes;  /* names of nodes -> the features in their records */
    json_t *unseen; /* keys that a re-read has not shown yet; NULL outside of a re-read */
    char unseen_key[KEY_MAX];
    Record record;
    Clear clear; /* frees the record's content; NULL: record is empty */
    JobFacts facts;
    int64_t created; /* create revision of the key that is being read */
};

Feed *feed_new(const char *cluster)
{
    Feed *feed = memory_new(Feed);
    feed->known = json_object();
    feed->last = json_object();
    feed->nodes = json_object();
    assert(name_is_valid(cluster));
    (void)snprintf(feed->cluster, sizeof(feed->cluster), "%s", cluster);
    return feed;
}

static void clear_record(Feed *feed)
{
    if (feed->clear)
        feed->clear(&feed->record);
    feed->clear = NULL;
}

Feed *feed_free(Feed *feed)
{
    if (!feed)
        return NULL;
    clear_record(feed);
    json_decref(feed->known);
    json_decref(feed->last);
    json_decref(feed->nodes);
    json_decref(feed->unseen);
    free(feed);
    return NULL;
}

const char *feed_text(const Feed *feed, const char *key)
{
    return json_string_value(json_object_get(feed->known, key));
}

const char *feed_last(const Feed *feed, const char *key)
{
    return json_string_value(json_object_get(feed->last, key));
}

/* Drops the texts of a job that has lost all of its records: the job was removed, and the core forgets it. While any
 * record is left, the texts are still needed. */
static void forget_last(Feed *feed, const char *name)
{
    static const KeyKind all[] = {KEY_SPECS, KEY_DESIRED, KEY_WORLDS, KEY_PHASES, KEY_CHECKPOINTS};
    char key[KEY_MAX];
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        if (json_object_get(feed->known, key_of(feed->cluster, all[i], name, key)))
            return;
    for (int kind = 0; kind < KEY_KINDS; kind++)
        if (kinds[kind].is_put_back) /* no error if the key was never read */
            (void)json_object_del(feed->last, key_of(feed->cluster, (KeyKind)kind, name, key));
}

static void remember(Feed *feed, const char *key, bool rewritten, const char *value, size_t n)
{
    if (feed->unseen)
        (void)json_object_del(feed->unseen, key); /* no error if the key is new */
    if (!value) {
        (void)json_object_del(feed->known, key); /* fails if the key was never read */
        return;
    }
    json_t *text = rewritten ? json_stringn(value, n) : json_true();
    (void)json_object_set_new(feed->known, key,
                              text ? text : json_true()); /* cannot fail: keys are ASCII */
}

bool feed_node_knows(const Feed *feed, const char *node, const char *feature)
{
    NodeRecord record = {0};
    const char *text = json_string_value(json_object_get(feed->nodes, node));
    (void)snprintf(record.features, sizeof(record.features), "%s", text ? text : "");
    return node_knows(&record, feature);
}

/* True when text is printable ASCII. An id with another byte would not fit into the JSON in which known keys and the
 * journal are kept. */
static bool is_ascii(const char *text)
{
    while (*text >= ' ' && *text < 0x7f)
        text++;
    return !*text;
}

/* Parses the part of a key after the kind: a name, or job/generation/node. */
static int parse_rest(KeyKind kind, const char *rest, Event *ret)
{
    if (kind == KEY_RANKS)
        return key_parse_ranks(rest, ret->name, RECORD_JOB_MAX + 1, &ret->generation, ret->node,
                               sizeof(ret->node));
    if (kind == KEY_RENDEZVOUS)
        return key_parse_rendezvous(rest, ret->name, RECORD_JOB_MAX + 1, &ret->generation);
    if (strlen(rest) >= sizeof(ret->name) || strchr(rest, '/'))
        return -EINVAL;
    memcpy(ret->name, rest, strlen(rest) + 1);
    const bool is_id = kind == KEY_INCIDENTS || kind == KEY_ALERTS || kind == KEY_REQUESTS;
    return (is_id ? is_ascii(ret->name) : name_is_valid(ret->name)) ? 0 : -EINVAL;
}

static void read_training(const Job *job, JobFacts *facts)
{
    facts->n_grains = job->train.n_grains;
    facts->needs_gpu = job->train.device == JOB_DEVICE_CUDA;
    facts->steps = job->train.steps;
    facts->stop_if_diverging = job->train.stop_if_diverging;
    facts->keep_last = job->checkpoint.keep_last;
    facts->keep_every = job->checkpoint.keep_every;
}

static void read_program(const Job *job, const SpecRecord *spec, JobFacts *facts)
{
    facts->is_program = true;
    facts->program = spec->program;
    facts->per_node = job->world.per_node;
    facts->progress_usec = (uint64_t)job->recovery.progress_sec * USEC_PER_SEC;
    facts->n_grains = RECORD_RANKS_MAX;
    facts->needs_gpu = job->exec.device == JOB_DEVICE_CUDA;
    facts->steps = job->exec.steps;
    /* The program removes its checkpoints; if its job file does not say which, all are there. */
    facts->keep_last = job->checkpoint.keep_last ?: RECORD_COMMITS_MAX;
}

/* An evaluation by sdtrainer itself. */
static void read_own_eval(const Job *job, JobFacts *facts)
{
    facts->n_grains = 1;
    facts->needs_gpu = job->train.device == JOB_DEVICE_CUDA;
    facts->keep_last = RECORD_COMMITS_MAX;
}

static void read_followed(const Job *job, JobFacts *facts)
{
    facts->is_eval = true;
    facts->every_steps = job->of.every_steps;
    memcpy(facts->of_job, job->of.job, sizeof(facts->of_job));
}

/* A job file that does not parse is an event, too: the job fails with the parser's error text. */
static void read_job_file(Feed *feed, const char *key, const char *name)
{
    const SpecRecord *spec = &feed->record.spec;
    JobFacts *facts = &feed->facts;
    Error err = ERROR_INIT;
    _cleanup_(job_freep) Job *job = NULL;
    memset(facts, 0, sizeof(*facts));
    facts->arrival = feed->created;
    memcpy(facts->submission, spec->submission, sizeof(facts->submission));
    memcpy(facts->resume_uri, spec->resume_uri, sizeof(facts->resume_uri));
    int r = job_parse_any(key, spec->spec, strlen(spec->spec), &job, &err);
    if (r == 0 && strcmp(job->name, name) != 0)
        r = error_set(&err, -EINVAL, "%s: name: \"%s\" is not the name in the key", key, job->name);
    if (r == 0 && job_is_program(job) && hash_equal(spec->program, (Hash){0}))
        r = error_set(&err, -EINVAL, "%s: program: the record programs/%s is missing", key, name);
    if (r < 0) {
        (void)snprintf(facts->refused, sizeof(facts->refused), "%.255s", err.text);
        return;
    }
    if (job_is_program(job))
        read_program(job, spec, facts);
    else if (job->kind == JOB_EVAL)
        read_own_eval(job, facts);
    else
        read_training(job, facts);
    if (job->kind == JOB_EVAL)
        read_followed(job, facts);
    facts->priority = job->priority;
    facts->min = job->world.min;
    facts->max = job->world.max;
    facts->max_failures = job->recovery.max_failures_at_same_step;
    facts->grow_interval_usec = (uint64_t)job->recovery.grow_interval_sec * USEC_PER_SEC;
    facts->store_patience_usec = (uint64_t)job->recovery.store_patience_sec * USEC_PER_SEC;
}

int feed_event(Feed *feed, const char *key, const char *value, size_t n_value, int64_t created,
               int64_t revision, Event *ret, Error *err)
{
    KeyKind kind;
    const char *rest;
    clear_record(feed);
    memset(ret, 0, sizeof(*ret));
    if (key_parse(feed->cluster, key, &kind, &rest) < 0 || !kinds[kind].decode)
        return 0;
    if (parse_rest(kind, rest, ret) < 0)
        return error_set(err, -EINVAL, "%s: not a key of that kind", key);
    remember(feed, key, kinds[kind].rewritten, value, n_value);
    ret->kind = kinds[kind].kind;
    ret->revision = revision;
    ret->created = feed->created = created;
    if (kind == KEY_NODES)
        (void)json_object_del(feed->nodes, ret->name); /* no error if the node is new */
    if (!value) {
        if (kinds[kind].is_put_back || kind == KEY_WORLDS)
            forget_last(feed, ret->name);
        return 1;
    }

    int r = kinds[kind].decode(key, value, n_value, &feed->record, err);
    if (r < 0) {
        ret->health = r == -EPROTONOSUPPORT ? RECORD_FOREIGN : RECORD_DAMAGED;
        return 1;
    }
    feed->clear = kinds[kind].clear;
    ret->record = &feed->record;
    /* The result is ignored: texts of a decoded record are UTF-8, and a node that is not stored has no features. */
    if (kind == KEY_NODES)
        (void)json_object_set_new(feed->nodes, ret->name, json_string(feed->record.node.features));
    if (kinds[kind].is_put_back)
        (void)json_object_set_new(feed->last, key, json_stringn(value, n_value));
    if (kind == KEY_SPECS) {
        read_job_file(feed, key, ret->name);
        ret->record = &feed->facts;
    }
    return 1;
}

void feed_mark(Feed *feed)
{
    json_decref(feed->unseen);
    feed->unseen = json_copy(feed->known);
}

const char *feed_next_unseen(Feed *feed)
{
    const char *key = feed->unseen ? json_object_iter_key(json_object_iter(feed->unseen)) : NULL;
    if (!key) {
        json_decref(feed->unseen);
        feed->unseen = NULL;
        return NULL;
    }
    (void)snprintf(feed->unseen_key, sizeof(feed->unseen_key), "%s", key);
    (void)json_object_del(feed->unseen, key); /* cannot fail: the key was found above */
    return feed->unseen_key;
}
