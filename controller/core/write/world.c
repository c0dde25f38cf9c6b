/* SPDX-License-Identifier: Apache-2.0 */
/* world.c - see world.h. */
#include "controller/core/write/world.h"

#include "controller/core/facts/commits.h"
#include "controller/core/facts/evals.h"
#include "controller/core/facts/incidents.h"
#include "controller/core/facts/jobs.h"
#include "controller/core/facts/reports.h"
#include "controller/core/judge/plan.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cost.h"
#include "controller/core/write/incident.h"
#include "controller/core/write/phase.h"

#include <string.h>

/* Keeps the newest worlds in the phase: worlds/<job> holds only the present one, and job reports show earlier ones. */
static void remember_world(const WorldRecord *world, PhaseRecord *phase)
{
    if (phase->n_worlds == RECORD_PAST_WORLDS_MAX) {
        memmove(&phase->worlds[0], &phase->worlds[1],
                sizeof(phase->worlds[0]) * (RECORD_PAST_WORLDS_MAX - 1));
        phase->n_worlds--;
    }
    assert(phase->n_worlds < RECORD_PAST_WORLDS_MAX);
    PastWorld *past = &phase->worlds[phase->n_worlds++];
    past->generation = world->generation;
    past->size = world->size;
    past->step = resume_point_step(&world->resume);
    past->decided_usec = world->decided_usec;
    text_copy(past->reason, sizeof(past->reason), world->reason);
}

/* A program whose checkpoints are not known any more must not start from nothing. */
static void fail_without_checkpoint(const Cluster *c, const CoreJob *job, int64_t step, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    text_add(&t, "record-lost: a checkpoint of step ");
    text_add_int(&t, step);
    text_add(&t, " was registered, and checkpoints/");
    text_add(&t, job->name);
    text_add(&t, " does not have it: sdctl job recover ");
    text_add(&t, job->name);
    text_add(&t, " URI --step N names one");
    decide_end(c, job, PHASE_FAILED, reason, d);
}

/* An evaluation goes on from the checkpoint of another job, as if it were its own. Returns false if there is none. */
static bool find_resume(const Cluster *c, const CoreJob *job, const CheckpointsRecord *checkpoints,
                        ResumePoint *ret)
{
    if (!job->facts.is_eval)
        return checkpoints_find_resume(job, checkpoints, ret);
    const CheckpointCommit *commit = eval_find_commit(c, job);
    memset(ret, 0, sizeof(*ret));
    if (!commit)
        return false;
    ret->step = commit->step;
    ret->hash = commit->hash;
    text_copy(ret->uri, sizeof(ret->uri), commit->uri);
    return true;
}

/* Removes the verdict about another checkpoint of that step: both have their results in one record. */
static void forget_verdict(EvalProgress *eval, int64_t step, Decision *d)
{
    size_t n = 0;
    for (size_t i = 0; i < eval->n_results; i++)
        if (eval->results[i].step != step)
            eval->results[n++] = eval->results[i];
    if (n < eval->n_results)
        d->remove_eval = step;
    eval->n_results = n;
}

/* Notes the commit that the new world evaluates. */
static void note_evaluated(const Cluster *c, const CoreJob *job, Decision *d)
{
    PhaseRecord *phase = &d->phase;
    const CheckpointCommit *commit = eval_find_commit(c, job);
    const CommitMark mark = {.generation = commit->generation, .step = commit->step};
    phase->eval = eval_progress(c, job);
    d->remove_evals = !text_equal(job->phase.eval.submission, phase->eval.submission);
    if (!commit_mark_is_before(mark, phase->eval.present) &&
        !commit_mark_is_before(phase->eval.present, mark))
        return;
    phase->failures_without_progress = phase->pauses = 0;
    phase->store_lost_usec = 0;
    phase->eval.present = mark;
    forget_verdict(&phase->eval, mark.step, d);
    if (eval_has_asked(&phase->eval, mark))
        return; /* no node of the followed job needs to know */
    text_copy(d->followed, sizeof(d->followed), job->facts.of_job);
    d->followed_revision = eval_followed(c, job)->checkpoints_stamp.mod;
}

bool decide_world(const Cluster *c, Scratch *s, const CoreJob *job, JobPhase phase,
                  const char *reason, Decision *d)
{
    char why[RECORD_TEXT_MAX + 1];
    Plan plan;
    plan_world(c, s, job, &plan);
    if (plan.size == 0) {
        plan_explain(c, s, job, &plan, why, sizeof(why));
        if (!d->put_incident && phase_reason_can_wait(c, s, job, why))
            return false;
        decide_end(c, job, PHASE_PENDING, why, d);
        return true;
    }

    assert(!d->put_world && job->used);
    WorldRecord *world = &d->world;
    const CheckpointsRecord *checkpoints = d->put_checkpoints ? &d->checkpoints : &job->checkpoints;
    memset(world, 0, sizeof(*world));
    if (!find_resume(c, job, checkpoints, &world->resume)) {
        if (job->facts.is_eval) {
            decide_end(c, job, PHASE_PENDING, "its checkpoint is there no longer", d);
            return true;
        }
        decide_end(c, job, PHASE_FAILED, "checkpoint-corrupt: no checkpoint of the job verifies",
                   d);
        return true;
    }
    if (job->facts.is_program && world->resume.find == FIND_MUST) {
        fail_without_checkpoint(c, job, world->resume.step, d);
        return true;
    }
    world->program = job->facts.program;
    world->generation = job_newest_generation(job) + 1;
    world->size = plan.size;
    world->runs = s->plan_runs;
    world->n_runs = (size_t)plan.n_runs;
    world->decided_usec = c->real_usec;
    text_copy(world->reason, sizeof(world->reason), reason);
    text_copy(world->submission, sizeof(world->submission), job->facts.submission);
    world->committed = checkpoints_known_mark(job);
    const Incident *open = incident_find_open(c, job);
    if (!d->put_incident && open && open->record.generation == job->world.generation) {
        d->incident = open->record; /* the job has waited for slots since that incident */
        d->incident_revision = open->stamp.mod;
        d->put_incident = true;
    }
    if (d->put_incident) {
        incident_count_lost(resume_point_step(&world->resume), &d->incident);
        text_copy(world->incident, sizeof(world->incident), d->incident.id);
    } else if (open) {
        text_copy(world->incident, sizeof(world->incident), open->record.id);
    }

    decide_end(c, job, phase, reason, d);
    d->put_world = true;
    d->checkpoints_revision = job->checkpoints_stamp.mod;
    d->phase.generation = world->generation;
    d->phase.growths_in_vain = 0;
    d->phase.useful_sec = job_useful_sec(c, job, world->resume.step);
    d->phase.saving_sec = job_saving_sec(c, job, world->resume.step);
    cost_of_world(c, job, job_useful_sec(c, job, job_reached_step(c, job)) - d->phase.useful_sec,
                  d);
    remember_world(world, &d->phase);
    if (world->resume.find == FIND_NOTHING && world->resume.step > d->phase.furthest_resume) {
        d->phase.furthest_resume = world->resume.step;
        d->phase.failures_without_progress = d->phase.pauses = 0;
        d->phase.store_lost_usec = 0;
    }
    if (job->facts.is_eval)
        note_evaluated(c, job, d);
    if (d->phase.started_usec == 0)
        d->phase.started_usec = c->real_usec;
    return true;
}
