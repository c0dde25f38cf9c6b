/* SPDX-License-Identifier: Apache-2.0 */
/* decision-rules.c - the invariants (docs/internals/architecture.md) that can be checked in the core's state. */
#include "controller/core/step/decision-rules.h"

#include "controller/core/facts/evals.h"
#include "controller/core/state/text-buffer.h"

/* True when the job's world holds slots. A lost world holds none: a leader that never saw the world does not know
 * its slots, and an older world that was put back names slots that other jobs have now. */
static bool holds_slots(const CoreJob *job)
{
    return job->used && !job->world_lost && phase_is_active(job->phase.phase) &&
           job->world.generation == job->phase.generation;
}

static void check_world(const Cluster *c, const CoreJob *job)
{
    int size = 0;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        assert(run->slots && run->node >= 0 && c->nodes[run->node].used);
        assert(run->first_rank == size);
        size += slots_count(run->slots);
        for (int k = 0; k < i; k++)
            assert(job_runs(c, job)[k].node != run->node);
        if (run->report >= 0)
            assert(c->reports[run->report].used &&
                   c->reports[run->report].generation == job->world.generation);
    }
    assert(job->n_runs == 0 || size <= job->world.size);
}

/* Checks that every report that was ever used is once in a chain: in the chain of its node, or in the chain of
 * the free reports. */
static void check_reports(const Cluster *c)
{
    int n = 0;
    for (int i = c->first_free_report; i >= 0; i = c->reports[i].next_of_node, n++)
        assert(i < c->n_reports && n < c->n_reports && !c->reports[i].used);
    for (int k = 0; k < c->limits.nodes; k++)
        for (int i = c->nodes[k].used ? c->nodes[k].first_report : -1; i >= 0;
             i = c->reports[i].next_of_node, n++)
            assert(i < c->n_reports && n < c->n_reports && c->reports[i].used &&
                   c->reports[i].node == k);
    assert(n == c->n_reports);
}

static void check_cordoned(const Cluster *c)
{
    int n = 0;
    for (int i = 0; i < c->limits.nodes; i++)
        if (c->nodes[i].cordon_stamp.mod)
            assert(n < c->n_cordoned && c->cordoned[n++] == i);
    assert(n == c->n_cordoned);
}

/* ---- a decision ---- */

/* Checks invariant I6, and the part of I3 that no slot runs two ranks: no other job's world has a slot of the new
 * world. Two existing records are not compared: one may be an older copy that was put back by hand. Both lists are
 * sorted by name. */
static void check_slots(const Cluster *c, const CoreJob *other, const WorldRecord *world)
{
    size_t i = 0;
    for (int k = 0; k < other->n_runs; k++) {
        const Run *run = &job_runs(c, other)[k];
        const char *name = c->nodes[run->node].record.name;
        while (i < world->n_runs && text_compare(world->runs[i].node, name) < 0)
            i++;
        assert(i == world->n_runs || !text_equal(world->runs[i].node, name) ||
               !(world->runs[i].slots & run->slots));
    }
}

static void check_new_world(const Cluster *c, const CoreJob *job, const Decision *d)
{
    const WorldRecord *world = &d->world;
    int size = 0;
    assert(d->put_phase && d->phase.generation == world->generation);
    assert(!d->phase.go && !d->phase.leave && d->phase.pause_usec == 0);
    assert(d->checkpoints_revision != REVISION_ANY && d->desired_revision != REVISION_ANY);
    assert(world->n_runs > 0 && world->n_runs <= (size_t)c->limits.nodes);
    assert(d->phase.n_worlds > 0 && d->phase.n_worlds <= RECORD_PAST_WORLDS_MAX);
    for (size_t i = 0; i < world->n_runs; i++) {
        assert(world->runs[i].slots);
        assert(i == 0 || text_compare(world->runs[i - 1].node, world->runs[i].node) < 0);
        size += slots_count(world->runs[i].slots);
    }
    assert(size == world->size);
    for (int j = 0; j < c->limits.jobs; j++)
        if (&c->jobs[j] != job && holds_slots(&c->jobs[j]) &&
            (job->facts.is_eval || !c->jobs[j].facts.is_eval)) /* an evaluation yields its slots */
            check_slots(c, &c->jobs[j], world);
}

/* Checks that an evaluation begins only with a checkpoint that is not removed before its node knows of it. Nobody keeps
 * one that an operator has named. */
static void check_evaluated(const Cluster *c, const CoreJob *job, const Decision *d)
{
    const CommitMark is = d->phase.eval.present, was = job->phase.eval.present;
    if (!job->facts.is_eval || (is.step == was.step && is.generation == was.generation) ||
        eval_has_asked(&d->phase.eval, is))
        return;
    const CoreJob *followed = eval_followed(c, job);
    assert(followed && text_equal(d->followed, followed->name));
    assert(d->followed_revision == followed->checkpoints_stamp.mod);
}

static void check_cordons(const Cluster *c, const Decision *d)
{
    assert(d->n_cordons >= 0 && d->n_cordons <= DECISION_CORDONS_MAX);
    for (int i = 0; i < d->n_cordons; i++) {
        const CordonRecord *record = &d->cordons[i];
        assert(record->n_causes <= RECORD_CAUSES_MAX);
        assert(d->cordon_changed[i] >= -1 && d->cordon_changed[i] < (int)record->n_causes);
        assert(d->cordon_revisions[i] >= 0 && d->cordon_revisions[i] <= c->seen_revision);
        for (int k = 0; k < i; k++) /* each record is put once */
            assert(!text_equal(record->node, d->cordons[k].node));
    }
}

/* Checks that incidents, requests and cordons are put under the guard of the record that they were derived from; the
 * guard of a new record is that no record of its name exists. */
static void check_records(const Cluster *c, const Decision *d)
{
    int64_t incident = 0, request = 0;
    for (int i = 0; i < c->limits.incidents; i++)
        if (c->incidents[i].used && text_equal(c->incidents[i].record.id, d->incident.id))
            incident = c->incidents[i].stamp.mod;
    for (int i = 0; i < c->limits.requests; i++)
        if (c->requests[i].used && text_equal(c->requests[i].record.id, d->request.id))
            request = c->requests[i].stamp.mod;
    assert(!d->put_incident || d->incident_revision == incident);
    assert(!(d->put_request || d->remove_request) || d->request_revision == request);
    assert(!d->put_request || (d->request.outcome == REQUEST_OPEN) == !d->request.answer[0]);
    for (int i = 0; i < d->n_cordons; i++)
        for (int k = 0; k < c->limits.nodes; k++)
            assert(!c->nodes[k].used || !text_equal(c->nodes[k].record.name, d->cordons[i].node) ||
                   (d->cordon_revisions[i] == c->nodes[k].cordon_stamp.mod &&
                    !c->nodes[k].cordon_foreign));
}

/* Checks that a job changes its phase only under the user's request that was read last: if that request has changed
 * since, the user may want another phase. A phase that only reports how a world fares is put whatever the request
 * is. */
static void check_word(const CoreJob *job, const Decision *d)
{
    bool fares = d->phase.phase == PHASE_RUNNING || d->phase.phase == job->phase.phase;
    if (d->put_phase && !fares)
        assert(d->desired_revision == job->desired_stamp.mod);
}

/* Checks that each record is put under the guard of the record that it was derived from. */
static void check_guards(const CoreJob *job, const Decision *d)
{
    check_word(job, d);
    if (d->put_phase || d->put_world)
        assert(d->phase_revision == job->phase_stamp.mod &&
               d->world_revision == job->world_stamp.mod);
    if (d->put_checkpoints)
        assert(d->checkpoints_revision == job->checkpoints_stamp.mod);
    if (d->put_desired)
        assert(d->desired_revision == job->desired_stamp.mod);
    if (d->put_spec)
        assert(d->spec_revision == job->spec_stamp.mod && job->spec_lost);
}

void decision_check(const Cluster *c, const CoreJob *job, const Decision *d)
{
    bool puts = d->put_world || d->put_phase || d->put_checkpoints || d->put_desired || d->put_spec;
    assert(d->id > 0 && d->id == c->last_id);
    assert(c->term != 0 && d->term == c->term); /* invariant I1 */
    assert(!(d->put_request && d->remove_request));
    check_cordons(c, d);
    check_records(c, d);
    if (!job) {
        assert(!puts && !d->remove_job && d->remove_generation == 0 && !d->job[0]);
        return;
    }
    assert(job->used && job->in_flight == d->id);
    assert(puts || d->put_incident || d->put_request || d->remove_job || d->remove_generation);
    assert(!d->remove_incident[0] && !d->remove_request);
    assert(!(d->remove_eval || d->remove_evals) || d->put_phase);
    if (d->remove_job || d->remove_generation)
        assert(!puts && !d->put_incident && d->n_cordons == 0);
    check_guards(job, d);
    if (d->put_world)
        check_new_world(c, job, d);
    if (d->put_world)
        check_evaluated(c, job, d);
}

/* ---- the state ---- */

void cluster_check(const Cluster *c)
{
    check_cordoned(c);
    check_reports(c);
    for (int j = 0; j < c->limits.jobs; j++) {
        const CoreJob *job = &c->jobs[j];
        if (!job->used)
            continue;
        check_world(c, job);
        /* Invariant I7: restarts are bounded. */
        if (phase_is_active(job->phase.phase) && job->facts.max_failures > 0)
            assert(job->phase.failures_without_progress < job->facts.max_failures);
    }
    for (int i = 1; i < c->n_by_name; i++)
        assert(text_compare(c->nodes[c->by_name[i - 1]].record.name,
                            c->nodes[c->by_name[i]].record.name) < 0);
}
