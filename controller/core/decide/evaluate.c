/* SPDX-License-Identifier: Apache-2.0 */
/* evaluate.c - decisions of jobs that evaluate the checkpoints of another job.
 *
 * Such a job has a world for each commit of the followed job, one after another, and is pending between them. The phase
 * names the commit whose evaluation has begun, and the verdicts. So each commit gets one verdict, whichever leader
 * decides it. An evaluation delays no other job: its slots count as free for those (judge/plan.c), and it begins again
 * later. It strikes no node, and a checkpoint that cannot be evaluated costs a warning. */
#include "controller/core/decide/evaluate.h"

#include "controller/core/decide/pause.h"
#include "controller/core/facts/evals.h"
#include "controller/core/facts/jobs.h"
#include "controller/core/judge/backoff.h"
#include "controller/core/judge/spare.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/incident.h"
#include "controller/core/write/phase.h"
#include "controller/core/write/world.h"

#include <string.h>

/* ---- verdicts ---- */

/* Adds a verdict. The results of the one that has no place any more go: a failed one may have some, too. */
static void add_result(EvalProgress *eval, const EvalResult *result, Decision *d)
{
    if (eval->n_results == RECORD_EVALS_MAX) {
        d->remove_eval = eval->results[0].step;
        memmove(&eval->results[0], &eval->results[1], sizeof(*result) * --eval->n_results);
    }
    eval->results[eval->n_results++] = *result;
}

static void drop_asked(EvalProgress *eval, CommitMark mark)
{
    size_t n = 0;
    for (size_t i = 0; i < eval->n_asked; i++)
        if (eval->asked[i].step != mark.step || eval->asked[i].generation != mark.generation)
            eval->asked[n++] = eval->asked[i];
    eval->n_asked = n;
}

static void give_verdict(const Cluster *c, const CoreJob *job, CommitMark of, EvalVerdict verdict,
                         Decision *d)
{
    assert(d->put_phase);
    const EvalResult result = {of.step, of.generation, verdict, c->real_usec};
    const EvalProgress *before = &job->phase.eval;
    EvalProgress *eval = &d->phase.eval;
    const bool was_present =
        of.step == before->present.step && of.generation == before->present.generation;
    const bool is_asked = was_present && eval_is_asked(job);
    *eval = eval_progress(c, job);
    d->remove_evals = !text_equal(before->submission, eval->submission);
    /* Otherwise the followed job was submitted again since the evaluation began, or the record names no commit: the
     * verdict is about nothing. */
    if (of.step > 0 && (text_equal(before->submission, eval->submission) || !was_present)) {
        add_result(eval, &result, d);
        if (!is_asked)
            eval->step = MAX(eval->step, of.step);
    }
    if (is_asked)
        drop_asked(eval, of);
    if (was_present) {
        eval->present = (CommitMark){0};
        d->phase.failures_without_progress = d->phase.pauses = 0;
        d->phase.store_lost_usec = 0;
    }
}

bool decide_eval_skipped(const Cluster *c, const CoreJob *job, Decision *d)
{
    CommitMark skipped;
    if (!eval_find_skipped(c, job, &skipped))
        return false;
    decide_same_phase(c, job, d);
    give_verdict(c, job, skipped, EVAL_SKIPPED, d);
    return true;
}

/* Writes "step 4000 of job sd2". */
static void write_step(const CoreJob *job, int64_t step, Text *t)
{
    text_add(t, "step ");
    text_add_int(t, step);
    text_add(t, " of job ");
    text_add(t, job->facts.of_job);
}

static void write_commit(const CoreJob *job, Text *t)
{
    write_step(job, job->phase.eval.present.step, t);
}

const char *decide_eval_reason(const Cluster *c, const CoreJob *job, char ret[RECORD_TEXT_MAX + 1])
{
    Text t = text_begin(ret, RECORD_TEXT_MAX + 1);
    text_add(&t, "evaluates ");
    write_step(job, eval_find_commit(c, job)->step, &t);
    return ret;
}

/* ---- requests ---- */

static const char *refusal(const CoreJob *job, const RequestRecord *request)
{
    const CheckpointCommit *commit = &request->commit;
    const EvalProgress *progress = &job->phase.eval;
    if (!job->facts.is_eval)
        return "refused: the job evaluates no checkpoints";
    if (request->submission[0] && !text_equal(request->submission, job->facts.submission))
        return "refused: the job was deleted, and submitted again";
    if (commit->step <= 0 || !commit->uri[0])
        return "refused: no checkpoint is named";
    if (commit->step == progress->present.step)
        return "refused: that step is evaluated now";
    for (size_t i = 0; i < progress->n_asked; i++)
        if (progress->asked[i].step == commit->step)
            return "refused: a checkpoint of that step waits already";
    if (progress->n_asked == RECORD_ASKED_MAX)
        return "refused: as many checkpoints wait as may";
    return NULL;
}

bool decide_eval_asked(const Cluster *c, const CoreJob *job, Decision *d)
{
    const Request *request = job_find_request(c, job, "evaluate");
    if (!request)
        return false;
    const char *why = refusal(job, &request->record);
    Text t = text_begin(d->request.answer, sizeof(d->request.answer));
    d->request = request->record;
    d->request_revision = request->stamp.mod;
    d->put_request = true;
    d->request.outcome = why ? REQUEST_REFUSED : REQUEST_DONE;
    if (why) {
        text_add(&t, why);
        return true;
    }
    text_add(&t, "evaluates step ");
    text_add_int(&t, request->record.commit.step);
    text_add(&t, " when a slot is free");
    if (job->phase.phase == PHASE_SUCCEEDED) {
        decide_phase(c, job, PHASE_PENDING, "goes on as sdctl job evaluate said", d);
        d->phase.tried_revision = c->seen_revision;
        d->desired_revision = job->desired_stamp.mod;
    } else {
        decide_same_phase(c, job, d);
    }
    d->phase.eval = eval_progress(c, job);
    d->remove_evals = !text_equal(job->phase.eval.submission, d->phase.eval.submission);
    d->phase.eval.asked[d->phase.eval.n_asked++] = request->record.commit;
    return true;
}

bool decide_eval_done(const Cluster *c, const CoreJob *job, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    write_commit(job, &t);
    text_add(&t, " is evaluated");
    decide_end(c, job, PHASE_PENDING, reason, d);
    give_verdict(c, job, job->phase.eval.present, EVAL_DONE, d);
    return true;
}

/* ---- waiting ---- */

bool decide_eval_idle(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    char why[RECORD_TEXT_MAX + 1];
    const CoreJob *followed = eval_followed(c, job);
    Text t = text_begin(why, sizeof(why));
    if (eval_is_complete(c, job)) {
        text_add(&t, "job ");
        text_add(&t, job->facts.of_job);
        text_add(&t, " has succeeded, and its checkpoints are evaluated");
        decide_end(c, job, PHASE_SUCCEEDED, why, d);
        return true;
    }
    text_add(&t, followed ? "waits for a checkpoint of job " : "waits for job ");
    text_add(&t, job->facts.of_job);
    if (!followed)
        text_add(&t, ", which is not there");
    if (phase_reason_can_wait(c, s, job, why))
        return false;
    decide_phase(c, job, PHASE_PENDING, why, d);
    return true;
}

bool decide_eval_ends(const Cluster *c, const CoreJob *job, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    const CoreJob *heir = eval_find_heir(c, job), *followed = eval_followed(c, job);
    const bool is_of_another = followed && !eval_is_asked(job) &&
                               !text_equal(job->phase.eval.submission, followed->facts.submission);
    if (!heir && !is_of_another)
        return false;
    Text t = text_begin(reason, sizeof(reason));
    text_add(&t, "job ");
    text_add(&t, heir ? heir->name : followed->name);
    text_add(&t, heir ? " has got its slots" : " was submitted again");
    decide_end(c, job, PHASE_PENDING, reason, d);
    return true;
}

/* ---- failures ---- */

/* The incident is over at once: nothing is left to recover, and it must not become critical. */
static void warn(const Cluster *c, const CoreJob *job, const Failure *f, int tries, Decision *d)
{
    incident_open(c, job, f, d);
    Text t = text_begin(d->incident.evidence, sizeof(d->incident.evidence));
    write_commit(job, &t);
    text_add(&t, " is not evaluated, after ");
    text_add_int(&t, tries);
    text_add(&t, tries == 1 ? " try: " : " tries: ");
    text_add(&t, f->evidence);
    d->incident.severity = SEVERITY_WARNING;
    d->incident.state = INCIDENT_RESOLVED;
    d->incident.ended = true;
    d->incident.resolved_usec = c->real_usec;
}

bool decide_eval_failure(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f,
                         Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    assert(job->facts.is_eval && phase_is_active(job->phase.phase));
    const RestartCounters counters = restart_counters_after(c, job, f->cause, false);
    const bool is_failed =
        cause_rule(f->cause)->is_final || counters.failures >= job->facts.max_failures;
    Text t = text_begin(reason, sizeof(reason));
    text_add(&t, cause_name(f->cause));
    text_add(&t, ": ");
    text_add(&t, f->evidence);
    if (f->node >= 0 && job_has_spare_for(c, s, job, f->node))
        s->left_out[f->node] = true;
    if (job->desired.state == DESIRED_STOPPED) {
        decide_stopped(c, s, job, reason, d);
    } else if (is_failed) {
        warn(c, job, f, counters.failures, d);
        decide_end(c, job, PHASE_PENDING, d->incident.evidence, d);
        give_verdict(c, job, job->phase.eval.present, EVAL_FAILED, d);
    } else if (counters.pause_usec) {
        decide_pause(c, job, counters.pause_usec, reason, d);
    } else {
        (void)decide_world(c, s, job, PHASE_RECOVERING, reason, d);
    }
    assert(d->put_phase);
    if (!is_failed) {
        d->phase.failures_without_progress = counters.failures;
        d->phase.pauses = counters.pauses;
        d->phase.store_lost_usec = counters.store_lost_usec;
    }
    return true;
}
