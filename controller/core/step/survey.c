/* SPDX-License-Identifier: Apache-2.0 */
/* survey.c - see survey.h. */
#include "controller/core/step/survey.h"

#include "cluster/cost.h"
#include "controller/core/facts/jobs.h"
#include "controller/core/facts/machines.h"
#include "controller/core/facts/presence.h"
#include "controller/core/facts/reports.h"
#include "controller/core/facts/sizes.h"
#include "controller/core/judge/plan.h"
#include "controller/core/judge/queue.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"
#include "controller/core/state/text-buffer.h"

#include <string.h>

static const CheckpointCommit *newest_commit(const CheckpointsRecord *record)
{
    for (size_t i = record->n_commits; i-- > 0;)
        if (!record->commits[i].struck_out)
            return &record->commits[i];
    return NULL;
}

static bool is_over(JobPhase phase) { return phase >= PHASE_STOPPED; }

static void survey_shares(const Cluster *c, const CoreJob *job, JobSurvey *ret)
{
    const PhaseRecord *phase = &job->phase;
    uint64_t began = phase->started_usec;
    const int64_t step = job_reached_step(c, job);
    ret->goodput = -1;
    if (began && is_over(phase->phase)) {
        ret->goodput = phase->goodput;
        ret->saving = phase->saving;
    } else if (began && c->real_usec > began) {
        const double sec = (double)(c->real_usec - began) / 1e6;
        ret->goodput = MIN(job_useful_sec(c, job, step) / sec, 1.0);
        ret->saving = MIN(job_saving_sec(c, job, step) / sec, 1.0);
    }
}

static void survey_ranks(const Cluster *c, const CoreJob *job, JobSurvey *ret)
{
    for (int i = 0; i < job->n_runs; i++) {
        int index = job_runs(c, job)[i].report;
        assert(index < c->n_reports);
        for (int k = 0; index >= 0 && k < c->reports[index].n_ranks; k++)
            ret->ranks[c->reports[index].ranks[k].state]++;
    }
}

bool cluster_survey_job(const Cluster *c, int i, JobSurvey *ret)
{
    assert(i >= 0);
    if (i >= c->n_by_arrival)
        return false;
    const CoreJob *job = &c->jobs[c->by_arrival[i]];
    const ProgressRecord *p = &job->progress;
    const CheckpointCommit *newest = newest_commit(&job->checkpoints);
    memset(ret, 0, sizeof(*ret));
    ret->name = job->name;
    ret->phase = job->phase.phase;
    ret->generation = job->phase.generation;
    ret->world_size = is_over(ret->phase) || ret->phase == PHASE_PENDING ? 0 : job->world.size;
    ret->wanted_size = is_over(ret->phase) ? 0 : plan_wanted(job);
    ret->steps = job->facts.steps;
    ret->furthest_step = MAX(job->phase.furthest_step, job_reached_step(c, job));
    ret->has_progress = job->progress_stamp.mod != 0;
    ret->step = p->step;
    ret->samples_seen = p->samples_seen;
    ret->loss = p->loss;
    ret->samples_per_sec = ret->phase == PHASE_RUNNING ? p->samples_per_sec : 0;
    ret->step_sec = p->step_sec;
    if (p->generation == job->world.generation && !is_over(ret->phase)) {
        ret->unsaved_usec = p->unsaved_since_usec;
        ret->waits_usec = p->waits_since_usec;
    }
    survey_shares(c, job, ret);
    ret->has_checkpoint = newest != NULL;
    ret->checkpoint_step = newest ? newest->step : 0;
    ret->checkpoint_usec = newest ? newest->at_usec : 0;
    ret->phase_usec = job->phase.since_usec;
    ret->failures_without_progress = job->phase.failures_without_progress;
    ret->max_failures = job->facts.max_failures;
    ret->cost = job->phase.cost;
    cost_meter_read(&ret->cost, c->real_usec, ret->phase == PHASE_RECOVERING);
    survey_ranks(c, job, ret);
    return true;
}

bool cluster_survey_records(const Cluster *c, int i, JobRecords *ret)
{
    assert(i >= 0);
    if (i >= c->n_by_arrival)
        return false;
    const CoreJob *job = &c->jobs[c->by_arrival[i]];
    const bool present = job->progress_stamp.mod != 0 && !is_over(job->phase.phase) &&
                         job->progress.generation == job->world.generation;
    *ret = (JobRecords){.phase = &job->phase,
                        .checkpoints = &job->checkpoints,
                        .progress = present ? &job->progress : NULL,
                        .facts = &job->facts,
                        .waits = queue_job_waits(c, job)};
    return true;
}

bool cluster_survey_incident(const Cluster *c, int i, const IncidentRecord **ret)
{
    assert(i >= 0);
    if (i >= c->limits.incidents)
        return false;
    *ret = c->incidents[i].used ? &c->incidents[i].record : NULL;
    return true;
}

bool cluster_survey_node(const Cluster *c, int i, NodeSurvey *ret)
{
    assert(i >= 0);
    if (i >= c->n_by_name)
        return false;
    const CoreNode *node = &c->nodes[c->by_name[i]];
    bool up = node->present && node->record.state == NODE_UP;
    const CordonCause *cause = node_find_cordon(c, node, NULL);
    *ret = (NodeSurvey){.name = node->record.name,
                        .job = up ? node->record.job : "",
                        .evidence = node->record.evidence,
                        .reason = cause ? cause->reason : "",
                        .up = up,
                        .absent = !node->present && node->missed,
                        .cordoned = cause != NULL,
                        .verdict = node->record.verdict,
                        .mode = cause ? cause->mode : CORDON_NONE,
                        .strikes = node_strikes(c, node),
                        .n_slots = up ? node->record.n_slots : 0,
                        .n_lost_slots = up ? slots_count(node->record.lost_slots) : 0};
    return true;
}

/* Finds the free slots of BLOCK nodes at a time, in an array on the stack, because the Scratch belongs to decisions. */
int cluster_free_slots(const Cluster *c)
{
    enum { BLOCK = 256 };
    uint64_t slots[BLOCK];
    Scratch s = {.wake_usec = USEC_INFINITY}; /* no node is left out */
    int free_slots = 0;
    for (int first = 0; first < c->limits.nodes; first += BLOCK) {
        int n = MIN(c->limits.nodes - first, (int)BLOCK);
        plan_find_free_slots(c, &s, NULL, first, n, slots);
        for (int i = 0; i < n; i++)
            free_slots += slots_count(slots[i]);
    }
    return free_slots;
}

const IncidentRecord *cluster_find_incident(const Cluster *c, const char *id)
{
    for (int i = 0; i < c->limits.incidents; i++)
        if (c->incidents[i].used && text_equal(c->incidents[i].record.id, id))
            return &c->incidents[i].record;
    return NULL;
}

const char *cluster_cause(int i)
{
    return CAUSE_NONE + 1 + i < CAUSES ? cause_name((Cause)(CAUSE_NONE + 1 + i)) : NULL;
}
