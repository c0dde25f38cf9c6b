/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - see model.h. */
#include "ctl/model.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/admission.h"
#include "cluster/cordon.h"
#include "ctl/suggestion.h"
#include "protocol/channel.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Model *model_new(const char *cluster)
{
    Model *m = memory_new(Model);
    (void)snprintf(m->cluster, sizeof(m->cluster), "%s", cluster);
    return m;
}

static void job_clear(ModelJob *job)
{
    spec_record_clear(&job->spec);
    desired_record_clear(&job->desired);
    world_record_clear(&job->world);
    phase_record_clear(&job->phase);
    checkpoints_record_clear(&job->checkpoints);
    progress_record_clear(&job->progress);
    for (size_t i = 0; i < job->n_ranks; i++)
        ranks_record_clear(&job->ranks[i]);
    free(job->ranks);
    free(job->desired_text);
}

Model *model_free(Model *m)
{
    if (!m)
        return NULL;
    for (size_t i = 0; i < m->n_jobs; i++)
        job_clear(&m->jobs[i]);
    for (size_t i = 0; i < m->n_nodes; i++)
        node_record_clear(&m->nodes[i]);
    for (size_t i = 0; i < m->n_cordons; i++)
        cordon_record_clear(&m->cordons[i]);
    for (size_t i = 0; i < m->n_health; i++)
        health_record_clear(&m->health[i]);
    for (size_t i = 0; i < m->n_incidents; i++)
        incident_record_clear(&m->incidents[i]);
    free(m->jobs);
    free(m->nodes);
    free(m->cordons);
    free(m->health);
    for (size_t i = 0; i < m->n_requests; i++)
        request_record_clear(&m->requests[i]);
    free(m->incidents);
    free(m->requests);
    free(m->alerts);
    free(m);
    return NULL;
}

/* Returns the index of the element whose text at this offset is name, or n if there is none. */
static size_t find(const void *array, size_t n, size_t size, size_t offset, const char *name)
{
    size_t i = 0;
    while (i < n && strcmp((const char *)array + i * size + offset, name) != 0)
        i++;
    return i;
}

#define FIND(list, member, name)                                                                   \
    find(m->list, m->n_##list, sizeof(*m->list), offsetof(typeof(*m->list), member), name)

ModelJob *model_job(const Model *m, const char *name)
{
    size_t i = FIND(jobs, name, name);
    return i < m->n_jobs ? &m->jobs[i] : NULL;
}

const NodeRecord *model_node(const Model *m, const char *name)
{
    size_t i = FIND(nodes, name, name);
    return i < m->n_nodes ? &m->nodes[i] : NULL;
}

bool model_is_admitted(const Model *m, const NodeRecord *node)
{
    const char *list = m->n_candidates > 0 ? m->candidates[0].record.admit : "";
    return admission_allows(list, node->name, node->machine_id);
}

const NodeRecord *model_shared_user(const Model *m)
{
    if (m->n_candidates == 0 || *m->candidates[0].record.admit)
        return NULL; /* there is no leader, or the leader's list names the admitted nodes */
    for (size_t i = 0; i < m->n_nodes; i++)
        if (node_knows(&m->nodes[i], FEATURE_SHARED))
            return &m->nodes[i];
    return NULL;
}

const HealthRecord *model_health(const Model *m, const char *node)
{
    size_t i = FIND(health, node, node);
    return i < m->n_health ? &m->health[i] : NULL;
}

const CordonRecord *model_cordon(const Model *m, const char *node)
{
    size_t i = FIND(cordons, node, node);
    return i < m->n_cordons ? &m->cordons[i] : NULL;
}

const CordonCause *model_cause(const Model *m, const char *node, const char *job)
{
    const CordonRecord *record = model_cordon(m, node);
    const NodeRecord *here = model_node(m, node);
    return record
               ? cordon_strongest(record, here ? here->machine_id : "", job, clock_realtime_usec())
               : NULL;
}

/* Inserts a zeroed element at index `at` of the array and returns the element. */
static void *insert(void **array, size_t *n, size_t size, size_t at)
{
    char *grown = memory_resize(*array, *n + 1, size);
    memmove(grown + (at + 1) * size, grown + at * size, (*n - at) * size);
    memset(grown + at * size, 0, size);
    *array = grown;
    (*n)++;
    return grown + at * size;
}

static void drop(void *array, size_t *n, size_t size, size_t at)
{
    char *a = array;
    memmove(a + at * size, a + (at + 1) * size, (*n - at - 1) * size);
    (*n)--;
}

/* For a put, returns the element at index i, adding it if i equals *n. For a deletion, removes the element and returns
 * NULL. */
static void *place(void **array, size_t *n, size_t size, size_t i, bool put)
{
    if (put)
        return i < *n ? (char *)*array + i * size : insert(array, n, size, i);
    if (i < *n)
        drop(*array, n, size, i);
    return NULL;
}

#define PLACE(list, member, name)                                                                  \
    place((void **)&m->list, &m->n_##list, sizeof(*m->list), FIND(list, member, name), f->put)

static ModelJob *job_of(Model *m, const char *name)
{
    ModelJob *job = model_job(m, name);
    if (job)
        return job;
    size_t at = 0;
    while (at < m->n_jobs && strcmp(m->jobs[at].name, name) < 0)
        at++;
    job = insert((void **)&m->jobs, &m->n_jobs, sizeof(*job), at);
    (void)snprintf(job->name, sizeof(job->name), "%s", name);
    return job;
}

typedef struct Fed { /* the parts of one event */
    const EtcdEvent *event;
    const char *key, *text;
    size_t n;
    bool put;
    Error err;
} Fed;

#define DECODE(prefix, at)                                                                         \
    ({                                                                                             \
        prefix##_clear(at);                                                                        \
        memset(at, 0, sizeof(*(at)));                                                              \
        f->put ? prefix##_decode(f->key, f->text, f->n, at, &f->err) : 0;                          \
    })

static int feed_ranks(Model *m, Fed *f, const char *rest)
{
    char name[RECORD_JOB_MAX + 1], node[NODE_NAME_MAX + 1];
    int64_t generation;
    int r = key_parse_ranks(rest, name, sizeof(name), &generation, node, sizeof(node));
    if (r < 0)
        return r;
    ModelJob *job = job_of(m, name);
    size_t i = 0;
    while (i < job->n_ranks &&
           (job->ranks[i].generation != generation || strcmp(job->ranks[i].node, node) != 0))
        i++;
    if (!f->put) {
        if (i < job->n_ranks) {
            ranks_record_clear(&job->ranks[i]);
            drop(job->ranks, &job->n_ranks, sizeof(*job->ranks), i);
        }
        return 0;
    }
    if (i == job->n_ranks)
        (void)insert((void **)&job->ranks, &job->n_ranks, sizeof(*job->ranks), i);
    return DECODE(ranks_record, &job->ranks[i]);
}

static int feed_node(Model *m, Fed *f, const char *name)
{
    size_t at = 0;
    while (at < m->n_nodes && strcmp(m->nodes[at].name, name) < 0)
        at++;
    bool known = at < m->n_nodes && strcmp(m->nodes[at].name, name) == 0;
    if (!f->put) {
        if (known)
            drop(m->nodes, &m->n_nodes, sizeof(*m->nodes), at);
        return 0;
    }
    if (!known)
        (void)insert((void **)&m->nodes, &m->n_nodes, sizeof(*m->nodes), at);
    int r = DECODE(node_record, &m->nodes[at]);
    /* The name in the key counts, not the name in the record. */
    (void)snprintf(m->nodes[at].name, sizeof(m->nodes[at].name), "%s", name);
    return r;
}

static int feed_cordon(Model *m, Fed *f, const char *name)
{
    CordonRecord *cordon = PLACE(cordons, node, name);
    if (!cordon)
        return 0;
    int r = DECODE(cordon_record, cordon);
    /* The name in the key counts, not the name in the record. */
    (void)snprintf(cordon->node, sizeof(cordon->node), "%s", name);
    if (r < 0) { /* an unreadable record counts as a cordon */
        cordon->causes[0] = (CordonCause){.mode = CORDON_CORDON};
        cordon->n_causes = 1;
    }
    return r;
}

static int feed_health(Model *m, Fed *f, const char *name)
{
    HealthRecord *health = PLACE(health, node, name);
    if (!health)
        return 0;
    int r = DECODE(health_record, health);
    /* The name in the key counts, not the name in the record. */
    (void)snprintf(health->node, sizeof(health->node), "%s", name);
    return r;
}

static int feed_incident(Model *m, Fed *f, const char *id)
{
    size_t i = FIND(incidents, id, id);
    if (i < m->n_incidents) {
        incident_record_clear(&m->incidents[i]);
        drop(m->incidents, &m->n_incidents, sizeof(*m->incidents), i);
    }
    if (!f->put)
        return 0;

    IncidentRecord record = {0};
    int r = incident_record_decode(f->key, f->text, f->n, &record, &f->err);
    if (r < 0)
        return r;
    size_t at = 0;
    while (at < m->n_incidents && m->incidents[at].at_usec <= record.at_usec)
        at++;
    *(IncidentRecord *)insert((void **)&m->incidents, &m->n_incidents, sizeof(record), at) = record;
    return 0;
}

static int feed_job(Model *m, Fed *f, KeyKind kind, const char *name)
{
    ModelJob *job = job_of(m, name);
    int r;
    switch (kind) {
    case KEY_SPECS:
        job->spec_revision = f->put ? f->event->kv.mod_revision : 0;
        job->arrival = f->put ? f->event->kv.create_revision : 0;
        r = DECODE(spec_record, &job->spec);
        job->has_spec = f->put && r == 0; /* a record of another version counts as missing */
        job->has_foreign_spec = f->put && r == -EPROTONOSUPPORT;
        return r;
    case KEY_DESIRED:
        job->desired_revision = f->put ? f->event->kv.mod_revision : 0;
        free(job->desired_text);
        job->desired_text = f->put ? memory_bytes(f->text, f->n) : NULL;
        r = DECODE(desired_record, &job->desired);
        job->has_desired = f->put && r == 0;
        job->bad_desired = f->put && r < 0;
        return r;
    case KEY_WORLDS:
        job->has_world = f->put;
        job->world_revision = f->put ? f->event->kv.mod_revision : 0;
        return DECODE(world_record, &job->world);
    case KEY_PHASES:
        r = DECODE(phase_record, &job->phase);
        job->has_phase = f->put && r == 0;
        job->bad_phase = f->put && r < 0;
        return r;
    case KEY_CHECKPOINTS:
        return DECODE(checkpoints_record, &job->checkpoints);
    case KEY_PROGRESS:
        job->has_progress = f->put;
        return DECODE(progress_record, &job->progress);
    default:
        return 0;
    }
}

static int feed_request(Model *m, Fed *f, const char *id)
{
    RequestRecord *request = PLACE(requests, id, id);
    return request ? DECODE(request_record, request) : 0;
}

static int feed_alert(Model *m, Fed *f, const char *id)
{
    size_t i = FIND(alerts, id, id);
    if (i < m->n_alerts)
        drop(m->alerts, &m->n_alerts, sizeof(*m->alerts), i);
    if (!f->put)
        return 0;
    AlertRecord record = {0};
    int r = alert_record_decode(f->key, f->text, f->n, &record, &f->err);
    if (r < 0)
        return r;
    (void)snprintf(record.id, sizeof(record.id), "%s", id);
    *(AlertRecord *)insert((void **)&m->alerts, &m->n_alerts, sizeof(record), m->n_alerts) = record;
    return 0;
}

/* Keeps the candidates sorted by create revision: the lowest is the leader. */
static int feed_candidate(Model *m, Fed *f)
{
    size_t at = FIND(candidates, key, f->key);
    if (at < m->n_candidates)
        drop(m->candidates, &m->n_candidates, sizeof(Candidate), at);
    if (!f->put)
        return 0;

    Candidate new = {.create_revision = f->event->kv.create_revision};
    (void)snprintf(new.key, sizeof(new.key), "%s", f->key);
    int r = leader_record_decode(f->key, f->text, f->n, &new.record, &f->err);
    if (r < 0) /* the candidate may be the leader, although its record is of another version */
        (void)snprintf(new.record.name, sizeof(new.record.name), "unknown");
    for (at = 0; at < m->n_candidates; at++)
        if (m->candidates[at].create_revision > new.create_revision)
            break;
    if (at == MODEL_CANDIDATES_MAX)
        return r;
    if (m->n_candidates == MODEL_CANDIDATES_MAX)
        m->n_candidates--;
    memmove(&m->candidates[at + 1], &m->candidates[at], (m->n_candidates - at) * sizeof(Candidate));
    m->candidates[at] = new;
    m->n_candidates++;
    return r;
}

int model_feed(Model *m, const EtcdEvent *event)
{
    KeyKind kind;
    const char *rest;
    if (key_parse(m->cluster, event->kv.key, &kind, &rest) < 0)
        return 0;
    Fed fed = {.event = event,
               .key = event->kv.key,
               .text = event->kv.value,
               .n = event->kv.n_value,
               .put = event->kind == ETCD_EVENT_PUT};
    int r = 0;
    switch (kind) {
    case KEY_LEADER:
        r = feed_candidate(m, &fed);
        break;
    case KEY_NODES:
        r = feed_node(m, &fed, rest);
        break;
    case KEY_CORDONS:
        r = feed_cordon(m, &fed, rest);
        break;
    case KEY_RANKS:
        r = feed_ranks(m, &fed, rest);
        break;
    case KEY_INCIDENTS:
        r = feed_incident(m, &fed, rest);
        break;
    case KEY_REQUESTS:
        r = feed_request(m, &fed, rest);
        break;
    case KEY_ALERTS:
        r = feed_alert(m, &fed, rest);
        break;
    case KEY_HEALTH:
        r = feed_health(m, &fed, rest);
        break;
    case KEY_RENDEZVOUS:
        break;
    default:
        r = feed_job(m, &fed, kind, rest);
    }
    if (r < 0) {
        if (m->n_complaints < MODEL_COMPLAINTS_MAX)
            (void)snprintf(m->complaints[m->n_complaints], sizeof(m->complaints[0]), "%.250s",
                           fed.err.text);
        m->n_complaints++;
    }
    return 0;
}

int model_read(CtlClient *client, Model **ret, Error *err)
{
    char prefix[KEY_MAX];
    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    int r = client_get(client, key_prefix(client->cluster, -1, prefix), true, &answer, err);
    if (r < 0)
        return r;
    *ret = model_new(client->cluster);
    for (size_t i = 0; i < answer->n_kvs; i++)
        (void)model_feed(*ret, &(EtcdEvent){.kind = ETCD_EVENT_PUT, .kv = answer->kvs[i]});
    return 0;
}

int model_open(const ClientOptions *options, Model **ret, Error *err)
{
    CtlClient client = {0};
    int r = client_open(options, &client, err);
    if (r == 0)
        r = model_read(&client, ret, err);
    client_close(&client);
    return r;
}

bool model_has_lost_spec(const ModelJob *job)
{
    return !job->has_spec && (job->has_world || job->has_phase);
}

bool model_is_shown(const ModelJob *job) { return job->has_spec || model_has_lost_spec(job); }

const char *model_submission(const ModelJob *job)
{
    return job->has_spec    ? job->spec.submission
           : job->has_phase ? job->phase.submission
                            : job->world.submission;
}

const char *model_reason(const ModelJob *job, char ret[MODEL_REASON_BYTES])
{
    if (!model_has_lost_spec(job))
        (void)snprintf(ret, MODEL_REASON_BYTES, "%s",
                       job->has_phase   ? job->phase.reason
                       : job->bad_phase ? "its phase cannot be read here"
                                        : "no controller has looked at it yet");
    else if (job->has_foreign_spec)
        (void)snprintf(ret, MODEL_REASON_BYTES,
                       "specs/%s is of another version than this sdctl reads: use that version's",
                       job->name);
    else
        (void)snprintf(ret, MODEL_REASON_BYTES,
                       "its job file is lost, so nothing is decided about it and it keeps its "
                       "slots: sdctl job start -f FILE, with the file as it was, gives it back; "
                       "sdctl job delete %s gives it up",
                       job->name);
    return ret;
}

int model_find_any_job(const Model *m, const char *name, ModelJob **ret, Error *err)
{
    ModelJob *job = model_job(m, name);
    if (!job || !model_is_shown(job))
        return suggest_job(m, name, err);
    *ret = job;
    return 0;
}

int model_find_job(const Model *m, const char *name, ModelJob **ret, Error *err)
{
    char why[MODEL_REASON_BYTES];
    int r = model_find_any_job(m, name, ret, err);
    if (r == 0 && !(*ret)->has_spec)
        return error_set(err, -ENOENT, "job %s: %s", name, model_reason(*ret, why));
    return r;
}

const AlertRecord *model_alert(const Model *m, const IncidentRecord *incident)
{
    for (size_t i = 0; i < m->n_alerts; i++)
        if (strcmp(m->alerts[i].id, incident->id) == 0 &&
            m->alerts[i].incident_usec == incident->at_usec)
            return &m->alerts[i];
    return NULL;
}

static bool waits(const ModelJob *job)
{
    return job->has_spec && job->has_desired && model_phase(job) == PHASE_PENDING &&
           job->desired.state == DESIRED_RUNNING;
}

int model_place(const Model *m, const ModelJob *job, int *ret_of)
{
    int place = 1;
    *ret_of = 0;
    for (size_t i = 0; i < m->n_jobs; i++) {
        const ModelJob *other = &m->jobs[i];
        if (!waits(other))
            continue;
        *ret_of += 1;
        int more = other->desired.priority - job->desired.priority;
        place += other != job && (more > 0 || (more == 0 && other->arrival < job->arrival));
    }
    return waits(job) ? place : 0;
}

Crowd model_crowd(const Model *m)
{
    const LeaderRecord nobody = {0};
    const LeaderRecord *leader = m->n_candidates ? &m->candidates[0].record : &nobody;
    Crowd c = {.jobs = (int)m->n_jobs,
               .max_jobs = leader->max_jobs,
               .nodes = (int)m->n_nodes,
               .max_nodes = leader->max_nodes};
    for (size_t i = 0; i < m->n_jobs; i++)
        c.ended += model_has_ended(&m->jobs[i]);
    return c;
}

const RankReport *model_rank(const ModelJob *job, int rank)
{
    for (size_t i = 0; i < job->n_ranks; i++)
        for (size_t k = 0;
             job->ranks[i].world_revision == job->world_revision && k < job->ranks[i].n_ranks; k++)
            if (job->ranks[i].ranks[k].rank == rank)
                return &job->ranks[i].ranks[k];
    return NULL;
}

static bool progress_is_present(const ModelJob *job)
{
    return job->has_progress &&
           (!job->has_world || job->progress.generation == job->world.generation);
}

int64_t model_resumed_step(const ModelJob *job)
{
    const PhaseRecord *phase = &job->phase;
    const PastWorld *newest = phase->n_worlds ? &phase->worlds[phase->n_worlds - 1] : NULL;
    const RankReport *rank0 = model_rank(job, 0);
    if (!job->world.resume.adopt)
        return job->world.resume.step;
    bool has_trained =
        job->has_phase && phase->phase >= PHASE_RUNNING && phase->phase != PHASE_RECOVERING;
    if (has_trained && newest && newest->generation == job->world.generation)
        return newest->step;
    return rank0 && rank0->state == RANK_READY && rank0->stage == STAGE_READY ? rank0->step : -1;
}

int64_t model_step(const ModelJob *job)
{
    const CheckpointCommit *commit = checkpoints_latest(&job->checkpoints);
    int64_t saved = commit ? commit->step : job->has_world ? MAX(0, model_resumed_step(job)) : 0;
    return progress_is_present(job) ? MAX(job->progress.step, saved) : saved;
}

JobPhase model_phase(const ModelJob *job)
{
    return job->has_phase ? job->phase.phase : PHASE_PENDING;
}

bool model_has_ended(const ModelJob *job)
{
    JobPhase phase = model_phase(job);
    return phase == PHASE_SUCCEEDED || phase == PHASE_FAILED || phase == PHASE_STOPPED;
}

bool model_is_program(const ModelJob *job)
{
    return job->has_spec && !hash_equal(job->spec.program, (Hash){0});
}

const char *model_kind(const ModelJob *job)
{
    if (!job->has_spec || !job->spec.spec)
        return job_kind_name(JOB_TRAIN);
    _cleanup_json_ json_t *file = json_loads(job->spec.spec, 0, NULL);
    return job_kind_name(json_object_get(file, "of") ? JOB_EVAL
                         : model_is_program(job)     ? JOB_EXEC
                                                     : JOB_TRAIN);
}

int model_refuse_program(const ModelJob *job, Error *err)
{
    const char *kind = model_kind(job);
    if (strcmp(kind, job_kind_name(JOB_TRAIN)) == 0)
        return 0;
    return error_set(err, -EINVAL, "job %s: kind: \"%s\": %s", job->name, kind,
                     strcmp(kind, "eval") == 0 ? "it has no checkpoints of its own"
                                               : "only its program can read its checkpoints");
}

/* Returns the mean seconds per step of the present world, over all its steps; 0: unknown. */
static double mean_step_sec(const ModelJob *job)
{
    const ProgressRecord *p = &job->progress;
    for (size_t i = 0; i < job->n_ranks; i++) {
        const RanksRecord *r = &job->ranks[i];
        if (r->world_revision == job->world_revision && r->generation == p->generation &&
            r->first_step > 0 && p->step > r->first_step && p->at_usec > r->first_step_usec)
            return (double)(p->at_usec - r->first_step_usec) * 1e-6 /
                   (double)(p->step - r->first_step);
    }
    return 0;
}

/* Returns how many seconds the steps of the present world have taken. A negative value: the time is unknown, or the
 * phase record includes it already. */
static double kept_sec(const ModelJob *job)
{
    const ProgressRecord *p = &job->progress;
    const PhaseRecord *phase = &job->phase;
    const double step_sec = mean_step_sec(job);
    if (phase->phase != PHASE_RUNNING || !job->has_world || !progress_is_present(job) ||
        p->at_usec <= MAX(phase->started_usec, phase->since_usec) || step_sec <= 0)
        return -1;
    return (double)MAX(0, p->step - MAX(0, model_resumed_step(job))) * step_sec;
}

static double since_start(const ModelJob *job)
{
    return (double)(job->progress.at_usec - job->phase.started_usec) * 1e-6;
}

/* The leader writes the goodput when a phase changes; between two changes, this function adds the time of
 * the present world's steps. */
double model_goodput(const ModelJob *job)
{
    const PhaseRecord *phase = &job->phase;
    if (!job->has_phase || phase->started_usec == 0)
        return NAN;
    const double kept = kept_sec(job);
    if (kept >= 0)
        return MIN(1.0, (phase->useful_sec + kept) / since_start(job));
    return phase->goodput > 0 ? phase->goodput : NAN;
}

double model_saving(const ModelJob *job)
{
    const PhaseRecord *phase = &job->phase;
    if (!job->has_phase || phase->started_usec == 0)
        return 0;
    const double kept = kept_sec(job), sec = job->progress.saving_sec;
    if (kept >= 0)
        return MIN(1.0, (phase->saving_sec + (sec > 0 ? MIN(sec, kept) : 0)) / since_start(job));
    return phase->saving;
}

bool model_is_incident_of(const IncidentRecord *i, const ModelJob *job)
{
    return strcmp(i->job, job->name) == 0 && strcmp(i->submission, model_submission(job)) == 0;
}

bool model_ended_world(const IncidentRecord *i) { return report_ended_world(i); }

const ProgressRecord *model_progress(const ModelJob *job)
{
    return progress_is_present(job) && !model_has_ended(job) ? &job->progress : NULL;
}

uint64_t model_next_try_usec(const ModelJob *job)
{
    const PhaseRecord *phase = &job->phase;
    return job->has_phase && phase->pause_usec ? phase->since_usec + phase->pause_usec : 0;
}

double model_recovery_sec(const IncidentRecord *i) { return report_recovery_sec(i); }
