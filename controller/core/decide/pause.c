/* SPDX-License-Identifier: Apache-2.0 */
/* pause.c - the pause between a failure and the next world.
 *
 * Guarantees: the pause is stored in the phase record, so that a new leader keeps it; no rank of the job runs
 *             meanwhile. */
#include "controller/core/decide/pause.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/facts/jobs.h"
#include "controller/core/facts/reports.h"
#include "controller/core/judge/backoff.h"
#include "controller/core/judge/failure.h"
#include "controller/core/judge/spare.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/phase.h"
#include "controller/core/write/strikes.h"
#include "controller/core/write/world.h"

void decide_pause(const Cluster *c, const CoreJob *job, uint64_t pause_usec, const char *after,
                  Decision *d)
{
    assert(pause_usec > 0 && pause_usec <= PAUSE_LAST_SEC * USEC_PER_SEC);
    assert(!d->put_world);
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    text_add(&t, "pauses ");
    text_add_int(&t, (int64_t)(pause_usec / USEC_PER_SEC));
    text_add(&t, " s after ");
    text_add(&t, after);
    decide_end(c, job, PHASE_RECOVERING, reason, d);
    d->phase.pause_usec = pause_usec;
}

/* The pause ends by the record's time, or by this machine's clock since this leader learnt of the pause, whichever
 * is earlier: a new leader waits only for the rest, and a clock that steps prolongs no pause. */
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
        incident_write(&incident->record, &t);
    Failure f = {.cause = CAUSE_RETRY, .node = job_find_sole_reporter(c, job, CAUSE_RETRY)};
    if (f.node >= 0 && job_has_spare_for(c, s, job, f.node))
        s->left_out[f.node] = true;
    if (f.node >= 0 && job->n_runs > 1 && !job->facts.is_eval && strike_is_due(job, &f)) {
        if (incident)
            text_copy(f.evidence, sizeof(f.evidence), incident->record.evidence);
        strike(c, s, job, &f, d);
    }
    return decide_world(c, s, job, PHASE_RECOVERING, incident ? reason : "tries again", d);
}
