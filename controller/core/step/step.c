/* SPDX-License-Identifier: Apache-2.0 */
/* step.c - the order of a step: observe, settle, decide once, set the time to wake.
 *
 * Entry point: cluster_step(). Guarantees: the function is total; at most one decision per step; at most one decision
 * under way per job, and one for the rest of the cluster. */
#include "controller/core/cluster.h"

#include "controller/core/decide/cluster-decisions.h"
#include "controller/core/decide/job.h"
#include "controller/core/observe/lists.h"
#include "controller/core/observe/observe.h"
#include "controller/core/observe/suspicion.h"
#include "controller/core/observe/tables.h"
#include "controller/core/state/state.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/step/decision-rules.h"

#include <string.h>

void cluster_configure(Cluster *c, const ClusterConfig *config)
{
    c->config = *config;
    c->config.incidents_kept = MIN(config->incidents_kept, c->limits.incidents - 1);
    assert(c->config.incidents_kept < c->limits.incidents);
    admission_update(c);
    cost_update(c);
}

/* True when no decision is under way and the watch has shown the last write. */
static bool is_settled(const Cluster *c, int64_t in_flight, int64_t awaited)
{
    return in_flight == 0 && awaited <= c->seen_revision;
}

/* True while a decision that makes a world for another job is under way: the slots of that world are not in the records
 * yet, so no other job may plan. */
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

static void observe_outcome(Cluster *c, const Event *ev)
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
        if (done && !job->in_flight_removes) /* a removal that found nothing causes no event */
            job->awaited_revision = ev->revision;
        if (done && job->in_flight_removes && job->in_flight_removes == job->oldest_generation)
            job->oldest_generation++;
    }
}

static void observe_leadership(Cluster *c, int64_t term)
{
    c->term = term;
    c->observe_until_usec = c->now_usec + c->config.ttl_usec;
    c->uninvited_usec = c->now_usec;
    c->unnamed_lost = 0;
    c->knows_summary = false;
    c->cluster_in_flight = 0;
    for (int i = 0; i < c->limits.jobs; i++)
        job_at(c, i)->in_flight = 0; /* decisions of an earlier term fail by the term's guard */
}

void cluster_step(Cluster *c, const Event *ev, Actions *ret)
{
    assert(ev->kind < EVENT_KINDS);
    Scratch *s = &c->scratch;
    c->now_usec = MAX(c->now_usec, ev->now_usec);
    c->real_usec = ev->real_usec;
    /* The events of a journal's snapshot are not in order of time. */
    c->began_usec = MIN(c->began_usec, ev->now_usec);
    s->wake_usec = USEC_INFINITY;
    ret->read = ret->again = false;
    ret->decision.id = 0;

    /* after a stall, absence causes no decision before a further grace: nodes may have returned unseen */
    if (ev->stalled)
        c->observe_until_usec = MAX(c->observe_until_usec, c->now_usec + c->config.grace_usec);
    if (ev->kind == EVENT_OUTCOME)
        observe_outcome(c, ev);
    else if (ev->kind == EVENT_LEADING)
        observe_leadership(c, ev->term);
    else if (ev->kind == EVENT_DEPOSED)
        observe_leadership(c, 0);
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
