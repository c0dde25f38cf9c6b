/* SPDX-License-Identifier: Apache-2.0 */
/* phase.c - see phase.h. */
#include "controller/core/write/phase.h"

#include "controller/core/facts/commits.h"
#include "controller/core/facts/jobs.h"
#include "controller/core/facts/presence.h"
#include "controller/core/facts/reports.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cost.h"

/* Notes the shares of goodput and of saves in the time since the first world. */
static void note_shares(const Cluster *c, const CoreJob *job, PhaseRecord *phase)
{
    if (job->phase.started_usec == 0 || c->real_usec <= job->phase.started_usec)
        return;
    const double sec = (double)(c->real_usec - job->phase.started_usec) / 1e6;
    const int64_t step = job_reached_step(c, job);
    phase->goodput = job_useful_sec(c, job, step) / sec;
    phase->saving = MIN(job_saving_sec(c, job, step) / sec, 1.0);
}

void decide_same_phase(const Cluster *c, const CoreJob *job, Decision *d)
{
    assert(!d->put_phase && job->used);
    d->put_phase = true;
    d->phase = job->phase;
    d->phase.serial = job_next_serial(c, job);
    d->phase_revision = job->phase_stamp.mod;
    d->world_revision = job->world_stamp.mod;
}

void decide_phase(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                  Decision *d)
{
    assert(job->used && phase < PHASE_COUNT);
    d->put_phase = true;
    d->phase = job->phase;
    d->phase.phase = phase;
    d->phase.leave = false;
    d->phase.pause_usec = 0;
    /* A pending phase ends the ranks of the newest world, even if the phase record of that world was lost. */
    if (phase == PHASE_PENDING)
        d->phase.generation = MAX(job->phase.generation, job->world.generation);
    /* A job that stays pending keeps since_usec, because its wait goes on. */
    if (phase != PHASE_PENDING || job->phase.phase != PHASE_PENDING || !job->phase_stamp.mod) {
        const uint64_t since_usec = job->phase.since_usec;
        if (job->phase.started_usec && since_usec && c->real_usec > since_usec)
            phase_spent_add(&d->phase.spent, job->phase.phase, c->real_usec - since_usec);
        d->phase.since_usec = c->real_usec;
    }
    d->phase.committed = checkpoints_known_mark(job);
    d->phase.serial = job_next_serial(c, job);
    text_copy(d->phase.reason, sizeof(d->phase.reason), reason);
    if (job->spec_stamp.mod && job->facts.submission[0]) /* otherwise the spec was never read */
        text_copy(d->phase.submission, sizeof(d->phase.submission), job->facts.submission);
    note_shares(c, job, &d->phase);
    d->phase.goodput = MIN(d->phase.goodput, 1.0);
    cost_of_phase(c, job, &d->phase);
    d->phase_revision = job->phase_stamp.mod;
    d->world_revision = job->world_stamp.mod;
}

void decide_end(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                Decision *d)
{
    decide_phase(c, job, phase, reason, d);
    d->phase.go = false;
    d->phase.furthest_step = MAX(job->phase.furthest_step, job_reached_step(c, job));
    d->phase.tried_revision = c->seen_revision;
    d->desired_revision = job->desired_stamp.mod;
}

const char stopped_before_its_first_step[] = "stopped before its first step";

const char *decide_requested(const char *what, const char *by, char ret[RECORD_TEXT_MAX + 1])
{
    Text t = text_begin(ret, RECORD_TEXT_MAX + 1);
    text_add(&t, what);
    text_add(&t, by[0] ? ", asked by " : "");
    text_add(&t, by);
    return ret;
}

void decide_stopped(const Cluster *c, Scratch *s, const CoreJob *job, const char *reason,
                    Decision *d)
{
    char why[RECORD_TEXT_MAX + 1];
    (void)decide_requested(reason, job->desired.by, why);
    if (!job_ranks_are_left(c, s, job)) {
        decide_end(c, job, PHASE_STOPPED, why, d);
        return;
    }
    decide_end(c, job, PHASE_STOPPING, why, d);
    d->phase.pause_usec = 1; /* a pause makes the nodes end the job's ranks */
}

/* True when the job is pending already, and the job's record either has this reason or may get it later. A reason is
 * written at most once a second, because a node that joins or leaves changes the reasons of all waiting jobs, and each
 * node and controller reads them. */
bool phase_reason_can_wait(const Cluster *c, Scratch *s, const CoreJob *job, const char *why)
{
    return job->phase_stamp.mod && job->phase.phase == PHASE_PENDING &&
           (text_equal(job->phase.reason, why) ||
            !cluster_due(c, s, job->phase_usec + USEC_PER_SEC));
}

bool request_leave(const Cluster *c, const CoreJob *job, JobPhase phase, const char *reason,
                   Decision *d)
{
    decide_phase(c, job, phase, reason, d);
    d->phase.leave = true;
    assert(d->phase.go && phase_is_active(phase)); /* a world without go has nothing to save */
    d->phase.tried_revision = c->seen_revision;
    d->desired_revision = job->desired_stamp.mod;
    return true;
}
