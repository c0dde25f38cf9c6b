/* SPDX-License-Identifier: Apache-2.0 */
/* backoff.c - how a failure counts, and how long the pause is before the next world if an immediate try would fail
 * again: the store cannot be reached, or a rank has asked to be started again.
 *
 * Guarantees: a pause is at most 30 s. A generation that is lost because of the store counts as a failure only when
 *             the job's patience is over, by the clock or by the number of pauses, whichever is first (I7). A
 *             generation that strikes a commit out counts only when no commit is left: a record has at most
 *             RECORD_COMMITS_MAX commits, and later commits are made by worlds that count. */
#include "controller/core/judge/backoff.h"

#include "controller/core/facts/commits.h"
#include "controller/core/facts/reports.h"

static uint64_t length_of(int pauses)
{
    assert(pauses >= 0);
    return MIN(1 << MIN(pauses, (int)PAUSE_DOUBLINGS), (int)PAUSE_LAST_SEC) * USEC_PER_SEC;
}

/* Patience ends by the clock or by the number of pauses: the clock may be set back, the number cannot. */
static bool has_patience(const Cluster *c, const CoreJob *job)
{
    const PhaseRecord *phase = &job->phase;
    uint64_t patience = job->facts.store_patience_usec;
    uint64_t most = PAUSE_DOUBLINGS + patience / (PAUSE_LAST_SEC * USEC_PER_SEC);
    if (phase->store_lost_usec == 0)
        return patience > 0;
    return c->real_usec < phase->store_lost_usec + patience && (uint64_t)phase->pauses <= most;
}

/* A program that reports no steps has made progress if its world has run for progress_usec: a world runs from the time
 * at which its last rank was ready. */
static bool has_run_long(const Cluster *c, const CoreJob *job)
{
    const bool names_steps = job_reached_step(c, job) > checkpoints_known_mark(job).step ||
                             job->phase.furthest_step > checkpoints_known_mark(job).step;
    uint64_t ready_usec = 0;
    if (job->facts.progress_usec == 0 || !job->phase.go || names_steps)
        return false;
    for (int i = 0; i < job->n_runs; i++)
        if (job_runs(c, job)[i].report >= 0)
            ready_usec = MAX(ready_usec, c->reports[job_runs(c, job)[i].report].ready_usec);
    return ready_usec > 0 && c->real_usec >= ready_usec + job->facts.progress_usec;
}

/* True when the present world got beyond the furthest step, or the next world would resume from a later step than any
 * world before: a job that is moved again and again may repeat steps and still get further each time. */
static bool job_has_progressed(const Cluster *c, const CoreJob *job)
{
    if (job->facts.is_eval)
        return false; /* a verdict is progress, and resets the counters */
    return job_reached_step(c, job) > job->phase.furthest_step ||
           checkpoints_resume_step(job) > job->phase.furthest_resume || has_run_long(c, job);
}

static bool uses_failure(const Cluster *c, const CoreJob *job, Cause cause, bool goes_back)
{
    switch (cause_rule(cause)->budget) {
    case BUDGET_ONE:
        return true;
    case BUDGET_FREE_PATIENCE:
        return !has_patience(c, job);
    case BUDGET_FREE_WHILE_OLDER:
        return !goes_back;
    default:
        return false;
    }
}

RestartCounters restart_counters_after(const Cluster *c, const CoreJob *job, Cause cause,
                                       bool goes_back)
{
    RestartCounters l = {.failures = job->phase.failures_without_progress,
                         .pauses = job->phase.pauses,
                         .store_lost_usec = job->phase.store_lost_usec};
    bool store = cause_rule(cause)->budget == BUDGET_FREE_PATIENCE;
    if (job_has_progressed(c, job))
        l = (RestartCounters){0};
    else if (uses_failure(c, job, cause, goes_back))
        l.failures++; /* I7 */
    if (store && l.store_lost_usec == 0)
        l.store_lost_usec = c->real_usec;
    if (cause_rule(cause)->pauses)
        l.pause_usec = length_of(l.pauses++);
    return l;
}
