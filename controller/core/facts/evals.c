/* SPDX-License-Identifier: Apache-2.0 */
/* evals.c - see evals.h. */
#include "controller/core/facts/evals.h"

#include "controller/core/facts/lost.h"
#include "controller/core/state/text-buffer.h"

#include <string.h>

/* The followed job may keep more checkpoints than its record names. */
enum { KEPT_MAX = RECORD_COMMITS_MAX - 1 };

const CoreJob *eval_followed(const Cluster *c, const CoreJob *job)
{
    assert(job->facts.is_eval);
    for (int i = 0; i < c->n_by_arrival; i++) {
        const CoreJob *other = &c->jobs[c->by_arrival[i]];
        if (text_equal(other->name, job->facts.of_job))
            return other->spec_stamp.mod && !other->facts.is_eval ? other : NULL;
    }
    return NULL;
}

static bool is_marked(const CheckpointCommit *commit, CommitMark mark)
{
    return commit->step == mark.step && commit->generation == mark.generation;
}

static const CheckpointCommit *find_asked(const EvalProgress *progress, CommitMark mark)
{
    for (size_t i = 0; i < progress->n_asked; i++)
        if (is_marked(&progress->asked[i], mark))
            return &progress->asked[i];
    return NULL;
}

bool eval_has_asked(const EvalProgress *progress, CommitMark mark)
{
    return find_asked(progress, mark) != NULL;
}

bool eval_is_asked(const CoreJob *job)
{
    return eval_has_asked(&job->phase.eval, job->phase.eval.present);
}

EvalProgress eval_progress(const Cluster *c, const CoreJob *job)
{
    const CoreJob *followed = eval_followed(c, job);
    EvalProgress progress = job->phase.eval;
    if (!followed || text_equal(progress.submission, followed->facts.submission) ||
        eval_is_asked(job)) /* it gets its verdict first */
        return progress;
    /* the steps of another submission are other ones, and what was asked for stays */
    text_copy(progress.submission, sizeof(progress.submission), followed->facts.submission);
    progress.present = (CommitMark){0};
    progress.step = 0;
    progress.n_results = 0;
    return progress;
}

/* True when the commit has its verdict, or will get it because it was asked for. */
static bool is_settled(const EvalProgress *progress, const CheckpointCommit *commit)
{
    const CommitMark mark = {.generation = commit->generation, .step = commit->step};
    for (size_t i = 0; i < progress->n_results; i++)
        if (progress->results[i].step == mark.step &&
            progress->results[i].generation == mark.generation)
            return true;
    return eval_has_asked(progress, mark);
}

/* True when the commit is the first of its interval: one of each every_steps steps is evaluated. */
static bool is_due(const CoreJob *job, const CheckpointCommit *commit, int64_t after)
{
    const int64_t every = job->facts.every_steps;
    return !commit->struck_out && commit->step / every > after / every;
}

/* True when the followed job has removed the checkpoint, or the next commit makes its record forget it. */
static bool is_removed(const CoreJob *followed, size_t commit)
{
    const CheckpointsRecord *record = &followed->checkpoints;
    const int64_t every = followed->facts.keep_every, step = record->commits[commit].step;
    int64_t newer = 0;
    for (size_t i = commit + 1; i < record->n_commits; i++)
        newer += !record->commits[i].struck_out;
    if (newer >= KEPT_MAX)
        return true;
    return newer >= followed->facts.keep_last && (every == 0 || step % every != 0);
}

static bool has_ended_well(const CoreJob *job)
{
    return job->phase.phase == PHASE_SUCCEEDED &&
           text_equal(job->phase.submission, job->facts.submission);
}

static const CheckpointCommit *find_next(const CoreJob *job, const CoreJob *followed,
                                         const EvalProgress *progress)
{
    const CheckpointsRecord *record = &followed->checkpoints;
    const CheckpointCommit *newest = NULL;
    const int64_t after = progress->step;
    for (size_t i = 0; i < record->n_commits; i++) {
        const CheckpointCommit *commit = &record->commits[i];
        if (commit->struck_out || commit->step <= after)
            continue;
        newest = commit;
        if (job->facts.every_steps > 0 && is_due(job, commit, after) && !is_removed(followed, i) &&
            !is_settled(progress, commit))
            return commit;
    }
    /* The last checkpoint of a job is evaluated, whatever its step, unless it was by its name. One before it is not. */
    const bool is_wanted = job->facts.every_steps == 0 || has_ended_well(followed);
    return is_wanted && newest && !is_settled(progress, newest) ? newest : NULL;
}

const CheckpointCommit *eval_find_commit(const Cluster *c, const CoreJob *job)
{
    const CoreJob *followed = eval_followed(c, job);
    const EvalProgress progress = eval_progress(c, job);
    if (progress.n_asked > 0 && (progress.present.step == 0 || eval_is_asked(job)))
        return progress.present.step == 0 ? &job->phase.eval.asked[0]
                                          : find_asked(&job->phase.eval, progress.present);
    if (!followed || lost_hides(followed))
        return NULL;
    for (size_t i = 0; progress.present.step > 0 && i < followed->checkpoints.n_commits; i++) {
        const CheckpointCommit *commit = &followed->checkpoints.commits[i];
        if (is_marked(commit, progress.present) && !commit->struck_out)
            return commit;
    }
    return find_next(job, followed, &progress);
}

bool eval_find_skipped(const Cluster *c, const CoreJob *job, CommitMark *ret)
{
    const CoreJob *followed = eval_followed(c, job);
    const EvalProgress progress = eval_progress(c, job);
    const bool is_asked = eval_is_asked(job);
    const int64_t after = is_asked ? progress.step : MAX(progress.step, progress.present.step);
    if (!followed || lost_hides(followed) || followed->checkpoints.n_commits == 0)
        return false;
    const CheckpointsRecord *record = &followed->checkpoints;
    bool is_there = progress.present.step == 0 || is_asked;
    for (size_t i = 0; i < record->n_commits; i++)
        is_there |=
            is_marked(&record->commits[i], progress.present) && !record->commits[i].struck_out;
    if (!is_there && !phase_is_active(job->phase.phase)) {
        *ret = progress.present;
        return true;
    }
    for (size_t i = 0; job->facts.every_steps > 0 && i < record->n_commits; i++) {
        const CheckpointCommit *commit = &record->commits[i];
        if (!is_due(job, commit, after) || !is_removed(followed, i) ||
            is_settled(&progress, commit))
            continue;
        *ret = (CommitMark){.generation = commit->generation, .step = commit->step};
        return true;
    }
    return false;
}

bool eval_is_complete(const Cluster *c, const CoreJob *job)
{
    const CoreJob *followed = eval_followed(c, job);
    return followed && has_ended_well(followed) && !lost_hides(followed) &&
           !followed->checkpoints_lost && !eval_find_commit(c, job);
}

static bool share_slots(const Cluster *c, const CoreJob *a, const CoreJob *b)
{
    for (int i = 0; i < a->n_runs; i++)
        for (int k = 0; k < b->n_runs; k++)
            if (job_runs(c, a)[i].node == job_runs(c, b)[k].node &&
                job_runs(c, a)[i].slots & job_runs(c, b)[k].slots)
                return true;
    return false;
}

const CoreJob *eval_find_heir(const Cluster *c, const CoreJob *job)
{
    assert(job->facts.is_eval && phase_is_active(job->phase.phase));
    for (int i = 0; i < c->n_by_arrival; i++) {
        const CoreJob *other = &c->jobs[c->by_arrival[i]];
        if (!other->facts.is_eval && phase_is_active(other->phase.phase) &&
            share_slots(c, job, other))
            return other;
    }
    return NULL;
}
