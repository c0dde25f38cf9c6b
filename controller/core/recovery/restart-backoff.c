/* SPDX-License-Identifier: Apache-2.0 */
/* restart-backoff.c - how a failure counts, and the pause before the next world when a try at once would fail
 * again: the store is away, or a rank has asked to be started again.
 *
 * Entry points: restart_counters_after(), decide_pause(), decide_paused(). Guarantees: a pause is at most 30 s and
 * stands in the phase's record, so that a new leader keeps it; nothing of the job runs meanwhile. Generations lost to
 * the store alone count as failures only when the job's patience is over, by the clock or by the number of pauses,
 * whichever comes first (I7). One that strikes a commit out counts only when none is left: a record has at most
 * RECORD_COMMITS_MAX of them, and those that come later are made by worlds that count. */
#include "controller/core/recovery/restart-backoff.h"

#include "controller/core/cluster-internal.h"
#include "controller/core/decide.h"
#include "controller/core/recovery/checkpoints.h"
#include "controller/core/recovery/failure.h"
#include "controller/core/recovery/incident.h"
#include "controller/core/recovery/recover.h"
#include "controller/core/recovery/spare.h"
#include "controller/core/recovery/strikes.h"
#include "controller/core/text.h"

enum { PAUSE_DOUBLINGS = 5, PAUSE_LAST_SEC = 30 }; /* 1, 2, 4, 8, 16, 30, 30, ... s */

static uint64_t length_of(int pauses)
{
    assert(pauses >= 0);
    return MIN(1 << MIN(pauses, (int)PAUSE_DOUBLINGS), (int)PAUSE_LAST_SEC) * USEC_PER_SEC;
}

/* The clock may be set back; the pauses made so far cannot. */
static bool has_patience(const Cluster *c, const CoreJob *job)
{
    const PhaseRecord *phase = &job->phase;
    uint64_t patience = job->facts.store_patience_usec;
    uint64_t most = PAUSE_DOUBLINGS + patience / (PAUSE_LAST_SEC * USEC_PER_SEC);
    if (phase->store_lost_usec == 0)
        return patience > 0;
    return c->real_usec < phase->store_lost_usec + patience && (uint64_t)phase->pauses <= most;
}

/* Progress is a step beyond the furthest, or a checkpoint beyond every earlier one to go on from: a job that is moved
 * again and again may repeat steps and still be further each time. */
static bool job_has_progressed(const Cluster *c, const CoreJob *job)
{
    return job_reached_step(c, job) > job->phase.furthest_step ||
           checkpoints_resume_step(job) > job->phase.furthest_resume;
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

bool job_is_paused(const CoreJob *job)
{
    return job->phase.phase == PHASE_RECOVERING && !job->phase.go && job->phase.pause_usec > 0;
}

void decide_pause(const Cluster *c, const CoreJob *job, uint64_t pause_usec, Decision *d)
{
    assert(pause_usec > 0 && pause_usec <= PAUSE_LAST_SEC * USEC_PER_SEC);
    assert(!d->put_world);
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    text_add(&t, "pauses ");
    text_add_int(&t, (int64_t)(pause_usec / USEC_PER_SEC));
    text_add(&t, " s after ");
    incident_say(&d->incident, &t);
    decide_end(c, job, PHASE_RECOVERING, reason, d);
    d->phase.pause_usec = pause_usec;
}

/* The pause ends by this machine's time since it learnt of the pause or by the record's, whichever is first: a new
 * leader waits only for the rest, and a clock that steps prolongs nothing. */
static bool pause_is_over(const Cluster *c, Scratch *s, const CoreJob *job)
{
    uint64_t end_usec = job->phase.since_usec + job->phase.pause_usec;
    uint64_t rest_usec = end_usec > c->real_usec ? end_usec - c->real_usec : 0;
    return cluster_due(c, s, MIN(job->phase_usec + job->phase.pause_usec, c->now_usec + rest_usec));
}

bool decide_paused(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    assert(job_is_paused(job));
    if (job->desired.state == DESIRED_STOPPED) {
        decide_stopped(c, s, job, "stopped in a pause", d);
        return true;
    }
    if (!pause_is_over(c, s, job) || job_absence_is_open(c, s, job))
        return false;
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    const Incident *incident = incident_find_open(c, job);
    if (incident)
        incident_say(&incident->record, &t);
    Failure f = {.cause = CAUSE_RETRY, .node = job_find_lone_teller(c, job, CAUSE_RETRY)};
    if (f.node >= 0 && job_has_spare_for(c, s, job, f.node))
        s->left_out[f.node] = true;
    if (f.node >= 0 && job->n_runs > 1) {
        if (incident)
            text_copy(f.evidence, sizeof(f.evidence), incident->record.evidence);
        strike(c, s, job, &f, d);
    }
    return decide_world(c, s, job, PHASE_RECOVERING, incident ? reason : "tries again", d);
}
