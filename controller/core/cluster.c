/* SPDX-License-Identifier: Apache-2.0 */
/* cluster.c - memory and the order of a step: observe, settle, decide once, say when to wake.
 *
 * Entry points: cluster_init(), cluster_step(). Guarantees: total; at most one decision a step; at
 * most one decision under way per job and one for the rest of the cluster. */
#include "controller/core/admission.h"
#include "controller/core/check.h"
#include "controller/core/cluster-decisions.h"
#include "controller/core/cluster-internal.h"
#include "controller/core/cost.h"
#include "controller/core/decide.h"
#include "controller/core/observe.h"
#include "controller/core/presence.h"
#include "controller/core/quarantine.h"
#include "controller/core/tables.h"
#include "controller/core/text.h"

#include <string.h>

const ClusterConfig cluster_config_default = {
    .ttl_usec = 10 * USEC_PER_SEC,
    .grace_usec = 500 * USEC_PER_MSEC,
    .start_deadline_usec = 60 * USEC_PER_SEC,
    .leave_deadline_usec = 120 * USEC_PER_SEC,
    .hang_wait_usec = 2 * USEC_PER_SEC,
    .max_strikes = 5,
    .strike_window_usec = 600 * USEC_PER_SEC,
    .quarantine_usec = 3600 * USEC_PER_SEC,
    .incidents_kept = 100,
    .queue_patience_usec = 600 * USEC_PER_SEC,
    .escalate_usec = 300 * USEC_PER_SEC,
};

/* Hands out parts of the caller's memory; with a NULL base it only counts. */
typedef struct Parts {
    char *base;
    size_t used;
} Parts;

static void *take(Parts *parts, size_t n, size_t bytes)
{
    size_t at = ROUND_UP(parts->used, (size_t)16);
    parts->used = at + n * bytes;
    return parts->base ? parts->base + at : NULL;
}

static void lay_out(Cluster *c, Parts *parts, const ClusterLimits *l)
{
    size_t nodes = (size_t)l->nodes, jobs = (size_t)l->jobs;
    c->nodes = take(parts, nodes, sizeof(CoreNode));
    c->cordons = take(parts, nodes, sizeof(NodeCordons));
    c->doubted = take(parts, nodes, sizeof(DoubtedRecord));
    c->cordoned = take(parts, nodes, sizeof(int));
    c->by_name = take(parts, nodes, sizeof(int));
    c->jobs = take(parts, jobs, sizeof(CoreJob));
    c->by_arrival = take(parts, jobs, sizeof(int));
    c->runs = take(parts, nodes * jobs, sizeof(Run));
    c->reports = take(parts, (size_t)l->reports, sizeof(NodeRanks));
    c->incidents = take(parts, (size_t)l->incidents, sizeof(Incident));
    c->alerts = take(parts, (size_t)l->incidents, sizeof(Alert));
    c->requests = take(parts, (size_t)l->requests, sizeof(Request));
    c->scratch.left_out = take(parts, nodes, sizeof(bool));
    c->scratch.ran_before = take(parts, nodes, sizeof(bool));
    c->scratch.free_slots = take(parts, nodes, sizeof(uint64_t));
    c->scratch.plan_nodes = take(parts, nodes, sizeof(int));
    c->scratch.plan_runs = take(parts, nodes, sizeof(WorldRun));
}

size_t cluster_bytes(const ClusterLimits *limits)
{
    Cluster nowhere;
    Parts parts = {.used = sizeof(Cluster)};
    lay_out(&nowhere, &parts, limits);
    return parts.used;
}

/* Only reads pages that are zero already, which costs no memory: of a large table in calloc()ed memory only the used
 * part is ever backed by pages. */
static void make_zero(char *memory, size_t bytes)
{
    enum { BLOCK_BYTES = 4096 };
    static const char zero[BLOCK_BYTES];
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
        size_t n = MIN(bytes - at, (size_t)BLOCK_BYTES);
        if (memcmp(memory + at, zero, n) != 0)
            memset(memory + at, 0, n);
    }
}

Cluster *cluster_init(void *memory, const ClusterLimits *limits, const ClusterConfig *config)
{
    assert(limits->nodes > 0 && limits->jobs > 0 && limits->reports > 0);
    assert(limits->incidents > config->incidents_kept && limits->requests > 0);
    make_zero(memory, cluster_bytes(limits));
    Cluster *c = memory;
    Parts parts = {.base = memory, .used = sizeof(Cluster)};
    lay_out(c, &parts, limits);
    c->limits = *limits;
    c->config = *config;
    c->first_free_report = -1;
    c->began_usec = USEC_INFINITY;
    assert(parts.used == cluster_bytes(limits)); /* what was counted is what was handed out */
    return c;
}

void cluster_configure(Cluster *c, const ClusterConfig *config)
{
    c->config = *config;
    c->config.incidents_kept = MIN(config->incidents_kept, c->limits.incidents - 1);
    assert(c->config.incidents_kept < c->limits.incidents);
    admission_update(c);
    cost_update(c);
}

int64_t cluster_dropped(const Cluster *c) { return c->dropped; }

uint64_t cluster_hold_until(const Cluster *c)
{
    return c->now_usec < c->hold_until_usec ? c->hold_until_usec : 0;
}

bool cluster_due(const Cluster *c, Scratch *s, uint64_t at_usec)
{
    assert(s->wake_usec > c->now_usec); /* else somebody waits for what is due */
    if (c->now_usec >= at_usec)
        return true;
    s->wake_usec = MIN(s->wake_usec, at_usec);
    return false;
}

const Run *job_runs(const Cluster *c, const CoreJob *job)
{
    return &c->runs[(size_t)job_index(c, job) * (size_t)c->limits.nodes];
}

int job_index(const Cluster *c, const CoreJob *job)
{
    assert(job >= c->jobs && job < c->jobs + c->limits.jobs);
    return (int)(job - c->jobs);
}

/* Nodes' records count, too: world and phase may both be lost, or an old copy of them put back. */
int64_t job_newest_generation(const CoreJob *job)
{
    int64_t newest = MAX(job->ran_generation, MAX(job->world.generation, job->phase.generation));
    int64_t written = MAX(job->progress.generation, job->reported_generation);
    return MAX(newest, MAX(written, checkpoints_mark(&job->checkpoints).generation));
}

/* True when no decision is under way and the watch has shown the last write. */
static bool is_settled(const Cluster *c, int64_t in_flight, int64_t awaited)
{
    return in_flight == 0 && awaited <= c->seen_revision;
}

/* The slots of a world under way are not in the records yet: nobody else may plan meanwhile. */
static bool another_plans(const Cluster *c, const CoreJob *job)
{
    for (int i = 0; i < c->limits.jobs; i++) {
        const CoreJob *other = &c->jobs[i];
        if (other != job && other->used && other->in_flight_places_world &&
            !is_settled(c, other->in_flight, other->awaited_revision))
            return true;
    }
    return false;
}

static bool decide(Cluster *c, Scratch *s, Decision *d)
{
    for (int i = 0; i < c->n_by_arrival; i++) {
        CoreJob *job = job_at(c, c->by_arrival[i]);
        if (!is_settled(c, job->in_flight, job->awaited_revision) || another_plans(c, job) ||
            !decide_job(c, s, job, d))
            continue;
        assert(job->used && job->in_flight == 0);
        job->in_flight = d->id = ++c->last_id;
        job->in_flight_places_world = d->put_world;
        job->in_flight_removes = d->remove_generation;
        text_copy(d->job, sizeof(d->job), job->name);
        decision_check(c, job, d);
        return true;
    }
    if (is_settled(c, c->cluster_in_flight, c->cluster_awaited) && decide_cluster(c, s, d)) {
        c->cluster_in_flight = d->id = ++c->last_id;
        decision_check(c, NULL, d);
        return true;
    }
    return false;
}

static void learn_outcome(Cluster *c, const Event *ev)
{
    bool done = ev->outcome == OUTCOME_DONE;
    if (c->cluster_in_flight == ev->id) {
        c->cluster_in_flight = 0;
        c->cluster_awaited = done ? ev->revision : c->cluster_awaited;
        return;
    }
    for (int i = 0; i < c->limits.jobs; i++) {
        CoreJob *job = job_at(c, i);
        if (!job->used || job->in_flight != ev->id)
            continue;
        job->in_flight = 0;
        if (done && !job->in_flight_removes) /* a removal that found nothing shows nothing */
            job->awaited_revision = ev->revision;
        if (done && job->in_flight_removes && job->in_flight_removes == job->oldest_generation)
            job->oldest_generation++;
    }
}

static void learn_leadership(Cluster *c, int64_t term)
{
    c->term = term;
    c->observe_until_usec = c->now_usec + c->config.ttl_usec;
    c->uninvited_usec = c->now_usec;
    c->unnamed_lost = 0;
    c->knows_summary = false;
    c->cluster_in_flight = 0;
    for (int i = 0; i < c->limits.jobs; i++)
        job_at(c, i)->in_flight = 0; /* decisions of an earlier term lose by its guard */
}

void cluster_step(Cluster *c, const Event *ev, Actions *ret)
{
    assert(ev->kind < EVENT_KINDS);
    Scratch *s = &c->scratch;
    c->now_usec = MAX(c->now_usec, ev->now_usec);
    c->real_usec = ev->real_usec;
    /* A journal's snapshot is in no order of time. */
    c->began_usec = MIN(c->began_usec, ev->now_usec);
    s->wake_usec = USEC_INFINITY;
    ret->read = ret->again = false;
    ret->decision.id = 0;

    if (ev->stalled) /* keep observing, stop acting */
        c->observe_until_usec = MAX(c->observe_until_usec, c->now_usec + c->config.grace_usec);
    if (ev->kind == EVENT_OUTCOME)
        learn_outcome(c, ev);
    else if (ev->kind == EVENT_LEADING)
        learn_leadership(c, ev->term);
    else if (ev->kind == EVENT_DEPOSED)
        learn_leadership(c, 0);
    else if (ev->kind != EVENT_TICK)
        observe(c, s, ev);

    if (!ev->more) {
        observe_settle(c, s);
        ret->read = tables_have_room(c);
        presence_update_hold(c, s);
        health_update_trust(c);
        if (c->term != 0) {
            memset(&ret->decision, 0, offsetof(Decision, cordons));
            ret->decision.world_revision = ret->decision.phase_revision = REVISION_ANY;
            ret->decision.checkpoints_revision = ret->decision.desired_revision = REVISION_ANY;
            ret->decision.term = c->term;
            ret->again = decide(c, s, &ret->decision);
            if (!ret->again)
                ret->decision.id = 0;
        }
    }
    ret->wake_usec = ret->again ? c->now_usec : s->wake_usec;
    assert(ret->again == (ret->decision.id > 0));
    assert(ret->wake_usec >= c->now_usec);
}
