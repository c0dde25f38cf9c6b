/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - see records.h. */
#include "controller/core/observe/records.h"

#include "controller/core/facts/lost.h"
#include "controller/core/observe/commit-records.h"
#include "controller/core/state/text-buffer.h"

#include <string.h>

/* True when the remembered record is an earlier one, because the present record is gone, damaged or foreign. */
static bool is_unread(const Stamp *stamp, Lost lost)
{
    return !stamp->mod || lost == LOST_DAMAGED || lost == LOST_FOREIGN;
}

/* Returns what is still known of a record's loss after its job is forgotten: a record that exists but cannot be read
 * stays unreadable, whichever submission it belongs to. */
static Lost forget(const Stamp *stamp, Lost lost)
{
    return stamp->mod && is_unread(stamp, lost) ? lost : LOST_NOT;
}

void lost_forget(CoreJob *job, const char *submission)
{
    if (is_unread(&job->desired_stamp, job->desired_lost))
        job->desired = (DesiredRecord){0};
    if (is_unread(&job->world_stamp, job->world_lost)) {
        memset(&job->world, 0, sizeof(job->world));
        job->n_runs = 0;
    }
    if (is_unread(&job->phase_stamp, job->phase_lost))
        memset(&job->phase, 0, sizeof(job->phase));
    if (is_unread(&job->checkpoints_stamp, job->checkpoints_lost) ||
        !text_equal(job->checkpoints.submission, submission))
        memset(&job->checkpoints, 0, sizeof(job->checkpoints));
    job->desired_lost = forget(&job->desired_stamp, job->desired_lost);
    job->world_lost = forget(&job->world_stamp, job->world_lost);
    job->phase_lost = forget(&job->phase_stamp, job->phase_lost);
    job->checkpoints_lost = forget(&job->checkpoints_stamp, job->checkpoints_lost);
    job->lost_usec = 0;
}

void lost_observe_runs(CoreJob *job, const NodeRecord *node)
{
    for (size_t i = 0; i < node->n_runs; i++) {
        const JobRun *run = &node->runs[i];
        if (!text_equal(run->job, job->name) || !text_equal(run->submission, job->facts.submission))
            continue;
        job->ran_generation = MAX(job->ran_generation, run->generation);
        if (commit_mark_is_before(job->ran_mark, run->committed))
            job->ran_mark = run->committed;
    }
}

void lost_observe_spec(const Cluster *c, CoreJob *job, const Event *ev)
{
    job->spec_lost = lost_by(ev, job->facts.n_grains > 0, false);
    if (!ev->spec)
        return;
    if (job->facts.n_grains > 0 && !text_equal(job->facts.submission, ev->spec->submission))
        lost_forget(job, ev->spec->submission);
    bool again = job->facts.n_grains > 0 && text_equal(job->facts.submission, ev->spec->submission);
    int64_t arrival = again ? MIN(job->facts.arrival, ev->spec->arrival) : ev->spec->arrival;
    job->facts = *ev->spec;
    job->facts.arrival = arrival; /* a spec that was put back keeps its place */
    checkpoints_drop_others(job);
    if (again)
        return;
    job->ran_generation = job->reported_generation = 0;
    job->ran_mark = (CommitMark){0};
    for (int i = 0; i < c->limits.nodes; i++)
        if (c->nodes[i].used && c->nodes[i].present && c->nodes[i].admitted)
            lost_observe_runs(job, &c->nodes[i].record);
}

static bool same_word(const DesiredRecord *a, const DesiredRecord *b)
{
    return a->state == b->state && a->min == b->min && a->max == b->max && a->target == b->target;
}

void lost_observe_desired(CoreJob *job, const Event *ev)
{
    bool was_there = !job->desired_lost, known = job->desired.max > 0;
    assert(job->desired_stamp.mod <= ev->revision);
    job->desired_lost = lost_by(ev, known, false);
    if (!ev->desired)
        return;
    /* Another priority only changes the order of the waiting jobs; it is not a request. */
    const bool again = was_there && job->desired.priority == ev->desired->priority;
    if (again || !known || !same_word(&job->desired, ev->desired))
        job->word = ev->revision;
    job->desired = *ev->desired;
}

/* Applies a phase record. An older copy that somebody has put back changes nothing. */
void lost_observe_phase(const Cluster *c, CoreJob *job, const Event *ev)
{
    const PhaseRecord *phase = ev->phase;
    if (!ev->health && !phase && lost_with_its_job(job, job->phase.submission))
        job->phase = (PhaseRecord){0};
    job->phase_lost = lost_by(ev, job->phase.serial > 0,
                              phase && phase->serial < job->phase.serial &&
                                  text_equal(phase->submission, job->phase.submission));
    if (!phase || job->phase_lost)
        return;
    job->phase_usec = c->now_usec;
    if (phase->grown_usec != job->phase.grown_usec)
        job->grown_usec = c->now_usec;
    if (phase->phase != PHASE_PENDING)
        job->pending_usec = 0;
    else if (job->pending_usec == 0)
        job->pending_usec = c->now_usec;
    job->phase = *phase;
}
