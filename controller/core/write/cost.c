/* SPDX-License-Identifier: Apache-2.0 */
/* cost.c - the cost meter in each job's phase: how fast the cost grows, and how much of it is due to failures.
 *
 * Three costs count as lost: the cost from the fault to the first step of the next world (pauses included), the cost
 * of a start that failed, and the cost of the steps that were trained in vain because the next world begins before
 * them. So replay is counted once, when it becomes known, at the price of the first time.
 *
 * Entry points: cost_of_phase() in every decision about a phase, cost_of_world(), cost_of_failure().
 * Guarantees: a running meter stops with its world. */
#include "controller/core/write/cost.h"

#include "cluster/cost.h"
#include "controller/core/facts/reports.h"
#include "controller/core/observe/tables.h"

void cost_of_phase(const Cluster *c, const CoreJob *job, PhaseRecord *phase)
{
    cost_meter_read(&phase->cost, c->real_usec, job->phase.phase == PHASE_RECOVERING);
    phase->cost.since_usec =
        phase_is_active(phase->phase) && phase->cost.rate > 0 ? c->real_usec : 0;
}

/* Returns how long the old world trained the steps that the new world trains again. If the new world resumes
 * from a step before the old world's first step, the time of the worlds before the old world counts, too. Records may
 * hold any value, so the result is at most the life of the worlds that count. */
static uint64_t again_usec(const Cluster *c, const CoreJob *job, const WorldRecord *next,
                           double useful_sec)
{
    const int64_t to = resume_point_step(&next->resume);
    const bool further = to < resume_point_step(&job->world.resume);
    const uint64_t since_usec = further ? job->phase.started_usec : job->world.decided_usec;
    const uint64_t lived_usec =
        c->real_usec > since_usec && since_usec ? c->real_usec - since_usec : 0;
    double usec = job_reached_step(c, job) > to ? useful_sec * 1e6 : 0;
    if (!(usec > 0)) /* also if usec is NaN */
        return 0;
    return usec < (double)lived_usec ? (uint64_t)usec : lived_usec;
}

static int64_t rate_of_plan(const Cluster *c, const WorldRecord *world)
{
    int64_t rate = 0;
    for (size_t i = 0; i < world->n_runs; i++) {
        int at = node_place_of_name(c, world->runs[i].node);
        assert(at < c->n_by_name); /* the plan took the name from by_name */
        rate += c->nodes[c->by_name[at]].price * slots_count(world->runs[i].slots);
    }
    return MIN(rate, COST_RATE_MAX);
}

void cost_of_world(const Cluster *c, const CoreJob *job, double useful_sec, Decision *d)
{
    assert(d->put_world && d->put_phase);
    if (d->world.incident[0])
        cost_meter_lose(&d->phase.cost, again_usec(c, job, &d->world, useful_sec));
    cost_meter_run(&d->phase.cost, rate_of_plan(c, &d->world), c->real_usec);
}

void cost_of_failure(const Cluster *c, const CoreJob *job, Decision *d)
{
    assert(d->put_phase && d->put_incident);
    if (job->phase.phase == PHASE_RECOVERING || job->phase.cost.since_usec == 0)
        return; /* the time since the fault counts as lost already, or the meter does not run */
    uint64_t from_usec =
        job->phase.phase == PHASE_STARTING ? job->world.decided_usec : d->incident.at_usec;
    CostMeter meter = d->phase.cost;
    meter.rate = job->phase.cost.rate; /* the rate of the world that failed */
    if (from_usec && c->real_usec > from_usec)
        cost_meter_lose(&meter, c->real_usec - from_usec);
    d->phase.cost.lost = meter.lost;
}
