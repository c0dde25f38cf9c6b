/* SPDX-License-Identifier: Apache-2.0 */
/* history-evals.c - see history.h: each commit of the followed job is evaluated once, from its own checkpoint. */
#include "tests/history/history-internal.h"

#include "cluster/eval-record.h"
#include <string.h>

static bool has_verdict(const EvalProgress *eval, int64_t step, int64_t generation)
{
    for (size_t i = 0; i < eval->n_results; i++)
        if (eval->results[i].step == step && eval->results[i].generation == generation)
            return true;
    return false;
}

static const HistoryJob *followed_by(const HistoryChecker *h, const HistoryJob *job)
{
    const HistoryJob *other = h->jobs;
    while (other && strcmp(other->spec->name, job->of) != 0)
        other = other->next;
    return other;
}

void history_judge_evaluated(HistoryChecker *h, const Entry *e)
{
    const WorldRecord *world = entry_after(e);
    const PhaseRecord *phase = entry_after(e->job->phase);
    const HistoryJob *followed = followed_by(h, e->job);
    const CheckpointsRecord *commits = followed ? entry_after(followed->checkpoints) : NULL;
    bool found = followed && (followed->touched || !commits);
    for (size_t i = 0; commits && i < commits->n_commits; i++)
        found |= strcmp(commits->commits[i].uri, world->resume.uri) == 0 &&
                 commits->commits[i].step == world->resume.step;
    for (size_t i = 0; phase && i < phase->eval.n_asked; i++)
        found |= strcmp(phase->eval.asked[i].uri, world->resume.uri) == 0 &&
                 phase->eval.asked[i].step == world->resume.step;
    if (!found)
        HISTORY_BROKEN(h, e, "eval",
                       "world %lld of %s evaluates step %lld, which %s has not committed, and "
                       "nobody has named",
                       (long long)world->generation, e->name, (long long)world->resume.step,
                       e->job->of);
    if (phase && phase->eval.present.step != world->resume.step)
        HISTORY_BROKEN(h, e, "eval",
                       "world %lld of %s evaluates step %lld, and its phase says %lld",
                       (long long)world->generation, e->name, (long long)world->resume.step,
                       (long long)phase->eval.present.step);
}

/* Checks that the results of an evaluation that is done are there: its ranks have ended since. */
static void judge_newest(HistoryChecker *h, const Entry *e, const EvalProgress *was,
                         const EvalProgress *is)
{
    char name[RECORD_JOB_MAX + 32];
    const EvalResult *newest = is->n_results > 0 ? &is->results[is->n_results - 1] : NULL;
    if (!newest || newest->verdict != EVAL_DONE ||
        has_verdict(was, newest->step, newest->generation))
        return;
    (void)snprintf(name, sizeof(name), "%s/%lld", e->name, (long long)newest->step);
    const Entry *results = history_find(h, KEY_EVALS, name);
    if (!results || (!results->after.there && !results->touched))
        HISTORY_BROKEN(h, e, "eval", "step %lld is evaluated by %s, and has no results",
                       (long long)newest->step, e->name);
}

static bool asks_for(const EvalProgress *eval, const CheckpointCommit *commit)
{
    for (size_t i = 0; i < eval->n_asked; i++)
        if (strcmp(eval->asked[i].uri, commit->uri) == 0 && eval->asked[i].step == commit->step &&
            eval->asked[i].generation == commit->generation)
            return true;
    return false;
}

/* Checks that a checkpoint that was named leaves the list with its verdict alone. */
static void judge_asked(HistoryChecker *h, const Entry *e, const EvalProgress *was,
                        const EvalProgress *is)
{
    for (size_t i = 0; i < was->n_asked; i++)
        if (!asks_for(is, &was->asked[i]) &&
            !has_verdict(is, was->asked[i].step, was->asked[i].generation))
            HISTORY_BROKEN(h, e, "eval", "%s forgets step %lld, which was named", e->name,
                           (long long)was->asked[i].step);
}

void history_judge_verdicts(HistoryChecker *h, const Entry *e, const PhaseRecord *old)
{
    const PhaseRecord *phase = entry_after(e);
    const EvalProgress *was = &old->eval, *is = &phase->eval;
    if (strcmp(was->submission, is->submission) != 0)
        return; /* the followed job was submitted again: its steps are other ones */
    if (is->present.step > 0 && has_verdict(is, is->present.step, is->present.generation))
        HISTORY_BROKEN(h, e, "eval", "%s evaluates step %lld, which has its verdict", e->name,
                       (long long)is->present.step);
    for (size_t i = 0; i < is->n_results; i++) {
        const EvalResult *result = &is->results[i];
        for (size_t k = 0; k < was->n_results; k++)
            if (was->results[k].step == result->step &&
                was->results[k].generation == result->generation &&
                (was->results[k].verdict != result->verdict ||
                 was->results[k].at_usec != result->at_usec))
                HISTORY_BROKEN(h, e, "eval", "step %lld gets another verdict of %s",
                               (long long)result->step, e->name);
        if (result->verdict != EVAL_SKIPPED &&
            !has_verdict(was, result->step, result->generation) &&
            (was->present.step != result->step || was->present.generation != result->generation))
            HISTORY_BROKEN(h, e, "eval",
                           "step %lld gets a verdict of %s, which has not evaluated it",
                           (long long)result->step, e->name);
    }
    judge_newest(h, e, was, is);
    judge_asked(h, e, was, is);
    if (is->step < was->step)
        HISTORY_BROKEN(h, e, "eval", "%s goes back from step %lld to %lld", e->name,
                       (long long)was->step, (long long)is->step);
    if (was->present.step > 0 && !has_verdict(is, was->present.step, was->present.generation) &&
        (is->present.step != was->present.step ||
         is->present.generation != was->present.generation))
        HISTORY_BROKEN(h, e, "eval", "%s leaves step %lld without a verdict", e->name,
                       (long long)was->present.step);
}

void history_judge_results(HistoryChecker *h, const Entry *e)
{
    const EvalRecord *eval = entry_after(e);
    const WorldRecord *world = entry_after(e->job->world);
    const PhaseRecord *phase = entry_after(e->job->phase);
    if (!eval || e->job->touched)
        return;
    /* A rank that has just ended may report what it has found although its world waits for a slot again. */
    if (!world || !phase || (!phase->go && phase->phase != PHASE_PENDING) ||
        world->generation != phase->generation || world->resume.step != e->generation ||
        eval->step != e->generation || strcmp(world->resume.uri, eval->uri) != 0)
        HISTORY_BROKEN(h, e, "eval",
                       "results of step %lld, and the world of %s evaluates step %lld",
                       (long long)e->generation, e->job->spec->name,
                       (long long)(world ? world->resume.step : 0));
}
