/* SPDX-License-Identifier: Apache-2.0 */
/* history-evals.c - see history.h: each commit of the followed job is evaluated once, from its own checkpoint. */
#include "tests/history/history-internal.h"

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
    if (!found)
        HISTORY_BROKEN(h, e, "eval",
                       "world %lld of %s evaluates step %lld, which %s has not committed",
                       (long long)world->generation, e->name, (long long)world->resume.step,
                       e->job->of);
    if (phase && phase->eval.present.step != world->resume.step)
        HISTORY_BROKEN(h, e, "eval",
                       "world %lld of %s evaluates step %lld, and its phase says %lld",
                       (long long)world->generation, e->name, (long long)world->resume.step,
                       (long long)phase->eval.present.step);
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
    if (is->step < was->step)
        HISTORY_BROKEN(h, e, "eval", "%s goes back from step %lld to %lld", e->name,
                       (long long)was->step, (long long)is->step);
    if (was->present.step > 0 && !has_verdict(is, was->present.step, was->present.generation) &&
        (is->present.step != was->present.step ||
         is->present.generation != was->present.generation))
        HISTORY_BROKEN(h, e, "eval", "%s leaves step %lld without a verdict", e->name,
                       (long long)was->present.step);
}
