/* SPDX-License-Identifier: Apache-2.0 */
/* spare.c - a failure that comes from one node only, and the spare that takes the node's place.
 *
 * Entry points: failure_is_of_one_node(), job_has_spare_for(). Some failures would happen again on the same nodes but
 * not on other nodes: a trainer dies before the world's first step, or only one node reports "again" (75), "never"
 * (78), "corrupt" (82) or, if all other nodes have reached the store, "no store" (83). Such a failure does not end
 * the job while there is a spare: the next world leaves the node out if the world can be as large without it. If a
 * second node reports the same cause before the job has passed the step of the failure, the first node was not to
 * blame, and failure_is_of_one_node() is false. */
#include "controller/core/judge/spare.h"

#include "controller/core/facts/reports.h"
#include "controller/core/judge/plan.h"
#include "controller/core/state/text-buffer.h"
#include "protocol/train-stage.h"

/* True when another node has reported the same cause, and the job has not passed the step of that report since. */
static bool another_has_reported(const Cluster *c, const CoreJob *job, const Failure *f)
{
    assert(f->node >= 0);
    const char *node = c->nodes[f->node].record.name;
    for (int i = 0; i < c->limits.incidents; i++) {
        const IncidentRecord *record = &c->incidents[i].record;
        if (c->incidents[i].used && text_equal(record->job, job->name) &&
            text_equal(record->submission, job->facts.submission) &&
            (record->state == INCIDENT_OPEN || record->step >= f->step) &&
            text_equal(record->cause, cause_name(f->cause)) && record->node[0] &&
            !text_equal(record->node, node))
            return true;
    }
    return false;
}

/* True when each rank on other nodes has restored in this world, and the job's progress reports no failed save. */
static bool others_reached_store(const Cluster *c, const CoreJob *job, int node)
{
    int others = 0;
    bool good =
        job->progress.generation != job->world.generation || job->progress.unsaved_since_usec == 0;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const NodeRanks *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        if (run->node == node)
            continue;
        good &= report && report->n_ranks == slots_count(run->slots);
        for (int k = 0; good && k < report->n_ranks; k++, others++)
            good = report->ranks[k].stage >= STAGE_READY && report->ranks[k].state != RANK_STARTING;
    }
    return good && others > 0;
}

bool failure_is_of_one_node(const Cluster *c, const CoreJob *job, const Failure *f)
{
    if (f->node < 0)
        return false;
    const bool is_alone =
        job_find_sole_reporter(c, job, f->cause) == f->node && !another_has_reported(c, job, f);
    switch (cause_rule(f->cause)->own) {
    case OWN_BEFORE_STEP:
        return job->facts.is_program
                   ? job->phase.phase == PHASE_STARTING || job->phase.phase == PHASE_RECOVERING
                   : !job_world_has_begun(c, job);
    case OWN_IF_ALONE:
        return is_alone;
    case OWN_IF_OTHERS_RESTORE:
        return is_alone && others_reached_store(c, job, f->node);
    default:
        return false;
    }
}

bool job_has_spare_for(const Cluster *c, Scratch *s, const CoreJob *job, int node)
{
    assert(node >= 0 && node < c->limits.nodes);
    Plan with, without;
    bool left_out = s->left_out[node];
    s->left_out[node] = false;
    plan_world(c, s, job, &with);
    s->left_out[node] = true;
    plan_world(c, s, job, &without);
    s->left_out[node] = left_out;
    return without.size > 0 && without.size >= with.size;
}
