/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - one job's next decision: start, go, run, resize, drain, grow, stop, end, remove.
 *
 * Entry point: decide_job(), called only when no decision of the job is under way and the watch has shown the last
 * decision's write. Every decision writes the phase record, and its guard is the revision of the phase record
 * that the decision was derived from. So only one of two leaders succeeds. */
#include "controller/core/decide/job.h"

#include "controller/core/decide/checkpoints.h"
#include "controller/core/decide/divergence-incident.h"
#include "controller/core/decide/evaluate.h"
#include "controller/core/decide/growth-incident.h"
#include "controller/core/decide/pause.h"
#include "controller/core/decide/price.h"
#include "controller/core/decide/put-back.h"
#include "controller/core/decide/recover.h"
#include "controller/core/decide/resize.h"
#include "controller/core/decide/store-incident.h"
#include "controller/core/facts/evals.h"
#include "controller/core/facts/incidents.h"
#include "controller/core/facts/jobs.h"
#include "controller/core/facts/lost.h"
#include "controller/core/facts/presence.h"
#include "controller/core/facts/reports.h"
#include "controller/core/facts/sizes.h"
#include "controller/core/judge/drain.h"
#include "controller/core/judge/failure.h"
#include "controller/core/judge/plan.h"
#include "controller/core/judge/queue.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/incident.h"
#include "controller/core/write/phase.h"
#include "controller/core/write/world.h"

#include <string.h>

/* ---- phase records ---- */

/* A job is stopped once each of its ranks is reaped, or the rank's node is lost or fenced. tried_revision stays, so
 * that a request which arrived meanwhile is still served: it may be a request to run. */
static bool decide_ending(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    if (job_ranks_are_left(c, s, job))
        return false;
    decide_end(c, job, PHASE_STOPPED, job->phase.reason, d);
    d->phase.tried_revision = job->phase.tried_revision;
    return true;
}

/* ---- worlds ---- */

/* Removes the records of the oldest generation, except for the last two, whatever the job does now: a job that fails
 * again and again must not fill the table of reports. */
static bool decide_cleanup(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    int node;
    if (job->oldest_generation == 0 || job->oldest_generation >= job->world.generation - 1 ||
        job_has_ranks_alive(c, s, job, job->oldest_generation + 1, 0, &node))
        return false;
    assert(job->oldest_generation > 0 && !d->put_phase);
    d->remove_generation = job->oldest_generation++;
    d->world_revision = job->world_stamp.mod;
    return true;
}

/* ---- not running ---- */

static const char starts_again[] = "starts again";

static bool decide_pending(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    char why[RECORD_TEXT_MAX + 1];
    assert(job->phase.phase == PHASE_PENDING);
    if (job->desired.state == DESIRED_STOPPED) {
        /* The nodes end the job's ranks first, because their slots may belong to another job now. */
        if (job_ranks_are_left(c, s, job))
            return false;
        decide_end(c, job, PHASE_STOPPED, decide_requested("stopped", job->desired.by, why), d);
        return true;
    }
    if (job->facts.is_eval && decide_eval_skipped(c, job, d))
        return true;
    if (job->facts.is_eval && !eval_find_commit(c, job))
        return decide_eval_idle(c, s, job, d);
    const CoreJob *ahead = queue_find_ahead(c, s, job);
    Plan plan = {0};
    if (ahead)
        plan_world(c, s, job, &plan);
    if (ahead && plan.size == 0) {
        Text t = text_begin(why, sizeof(why));
        text_add(&t, "waits for job ");
        text_add(&t, ahead->name);
        text_add(&t, ", which comes first and needs ");
        text_add_int(&t, plan_needed(ahead));
        text_add(&t, plan_needed(ahead) == 1 ? " slot" : " slots");
        if (phase_reason_can_wait(c, s, job, why))
            return false;
        decide_phase(c, job, PHASE_PENDING, why, d);
        return true;
    }
    const bool is_asked = text_contains(job->phase.reason, starts_again, sizeof(starts_again) - 1);
    const char *reason = job->world.generation == 0 ? "starts"
                         : is_asked                 ? job->phase.reason
                                                    : starts_again;
    if (job->facts.is_eval && !is_asked)
        reason = decide_eval_reason(c, job, why);
    return decide_world(c, s, job, incident_find_open(c, job) ? PHASE_RECOVERING : PHASE_STARTING,
                        reason, d);
}

static bool decide_troubles_over(const Cluster *c, const CoreJob *job, Decision *d)
{
    return decide_store_incident_over(c, job, d) || decide_growth_incident_over(c, job, d);
}

/* Resolves open incidents of a job that has ended: nothing is left to recover. */
static bool decide_over(const Cluster *c, const CoreJob *job, Decision *d)
{
    assert(!phase_is_active(job->phase.phase));
    const Incident *open = incident_find_open(c, job);
    if (!open && job->desired.state == DESIRED_DELETED)
        open = lost_find_incident(c, job);
    if (open) {
        incident_resolve(c, job, open, d);
        d->incident.ended = job->phase.phase != PHASE_SUCCEEDED;
    }
    return open || decide_troubles_over(c, job, d) || decide_divergence_over(c, job, d);
}

/* The incident of a failed job stays open until a person starts the job again (then it is resolved when the job
 * trains), stops it, or deletes it. */
static bool decide_acknowledged(const Cluster *c, const CoreJob *job, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1], asked[RECORD_TEXT_MAX + 1];
    if (job->desired.state != DESIRED_STOPPED || job->word <= job->phase.tried_revision)
        return false;
    Text t = text_begin(reason, sizeof(reason));
    text_add(&t, decide_requested("stopped after it had failed", job->desired.by, asked));
    text_add(&t, ": ");
    text_add(&t, job->phase.reason);
    decide_end(c, job, PHASE_STOPPED, reason, d);
    return true;
}

/* Makes a stopped or failed job pending when the user has asked again for it to run. */
static bool decide_restart(const Cluster *c, const CoreJob *job, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    assert(job->phase.phase == PHASE_STOPPED || job->phase.phase == PHASE_FAILED);
    if (!job_wants_to_run(job) || job->word <= job->phase.tried_revision)
        return false;
    decide_phase(c, job, PHASE_PENDING, decide_requested(starts_again, job->desired.by, reason), d);
    d->phase.failures_without_progress = d->phase.pauses = 0;
    d->phase.store_lost_usec = 0;
    d->desired_revision = job->desired_stamp.mod;
    return true;
}

/* True when the phase record makes the nodes end the job's ranks. After the record was lost, damaged or put back, or
 * if it is older than the newest generation, the nodes wait for another phase record. */
static bool requests_ranks_end(const CoreJob *job)
{
    return job->phase_stamp.mod && !job->phase_lost &&
           job->phase.generation >= job_newest_generation(job);
}

static bool decide_removal(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    int node;
    assert(job->desired.state == DESIRED_DELETED);
    const bool live = job_has_ranks_alive(c, s, job, INT64_MAX, INT64_MAX, &node);
    if (phase_is_active(job->phase.phase) || (live && !requests_ranks_end(job))) {
        decide_end(c, job, PHASE_STOPPED, "deleted", d);
        d->phase.generation = job_newest_generation(job);
        if (!d->phase.submission[0])
            text_copy(d->phase.submission, sizeof(d->phase.submission), job->world.submission);
        return true;
    }
    if (decide_over(c, job, d))
        return true;
    if (live)
        return false;
    d->desired_revision = job->desired_stamp.mod;
    d->remove_job = true;
    d->phase_revision = job->phase_stamp.mod;
    d->world_revision = job->world_stamp.mod;
    return true;
}

/* Removes records that a node has written about a job after the job was removed. */
static bool decide_remains(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    int node;
    bool remains = false;
    for (int i = 0; i < c->limits.reports; i++)
        remains |= c->reports[i].used && c->reports[i].job == job_index(c, job) &&
                   c->reports[i].stamp.mod != 0;
    if (!remains || job->world_stamp.mod || job->phase_stamp.mod ||
        job_has_ranks_alive(c, s, job, INT64_MAX, INT64_MAX, &node))
        return false;
    assert(!job->spec_stamp.mod && !job->desired_stamp.mod);
    d->remove_job = true;
    d->desired_revision = d->world_revision = d->phase_revision = 0;
    return true;
}

/* ---- a world comes up ---- */

static bool all_ready(const Cluster *c, const CoreJob *job)
{
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        if (run->report < 0)
            return false;
        const NodeRanks *report = &c->reports[run->report];
        if (report->gone || report->n_ranks != slots_count(run->slots))
            return false;
        for (int k = 0; k < report->n_ranks; k++)
            if (report->ranks[k].state != RANK_READY && report->ranks[k].state != RANK_RUNNING)
                return false;
    }
    return job->n_runs > 0;
}

/* Before its first step a world has nothing to save. So a stop ends the world at once, and a drain or a request for
 * another size replaces the world at once by another world. */
static bool decide_unsaved(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    if (job->desired.state == DESIRED_STOPPED) {
        decide_stopped(c, s, job, stopped_before_its_first_step, d);
        return true;
    }
    if (drain_find(c, job, reason, sizeof(reason)))
        return decide_world(c, s, job, job->phase.phase, reason, d);
    return decide_resize_unsaved(c, s, job, d);
}

static bool decide_go(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    int node;
    assert(phase_is_active(job->phase.phase) && !job->phase.go);
    if (decide_unsaved(c, s, job, d))
        return true;
    if (!all_ready(c, job) || job_has_older_ranks_alive(c, s, job, &node))
        return false; /* invariant I3: older ranks must be dead first */
    if (!cluster_due(c, s, c->began_usec + c->config.grace_usec))
        return false; /* a node may have vanished just before this term, with its report of older ranks */
    decide_phase(c, job, job->phase.phase, job->phase.reason, d);
    d->phase.go = true;
    return true;
}

static bool decide_first_step(const Cluster *c, const CoreJob *job, Decision *d)
{
    assert(job->phase.go);
    if (!job_world_has_begun(c, job))
        return false;
    /* From now on the incident and the history explain why there is another world. */
    decide_phase(c, job, PHASE_RUNNING, job->world.incident[0] ? "" : job->phase.reason, d);
    if (d->phase.n_worlds > 0 && job->world.resume.adopt)
        d->phase.worlds[d->phase.n_worlds - 1].step = job_resumed_step(c, job, 0);
    const Incident *incident = incident_find_open(c, job);
    if (incident)
        incident_resolve(c, job, incident, d);
    return true;
}

/* ---- a world runs ---- */

static bool decide_drain(const Cluster *c, const CoreJob *job, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    return drain_find(c, job, reason, sizeof(reason)) &&
           request_leave(c, job, PHASE_RESIZING, reason, d);
}

/* Stores the newest commit in the phase: the first commit at once, later ones at most once a minute. progress/<job>
 * has every commit. */
static bool decide_mark(const Cluster *c, Scratch *s, const CoreJob *job, Decision *d)
{
    enum { PERIOD_SEC = 60 };
    if (!commit_mark_is_before(job->phase.committed, checkpoints_mark(&job->checkpoints)) ||
        (job->phase.committed.generation > 0 &&
         !cluster_due(c, s, job->phase_usec + PERIOD_SEC * USEC_PER_SEC)))
        return false;
    decide_same_phase(c, job, d);
    d->phase.committed = checkpoints_mark(&job->checkpoints);
    return true;
}

static bool decide_upkeep(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    const Incident *incident = incident_find_open(c, job);
    if (incident) {
        incident_resolve(c, job, incident, d);
        return true;
    }
    return incident_add_replay(c, job, d) || decide_store_incident(c, job, d) ||
           decide_divergence(c, job, d) || decide_growth_incident(c, job, d) ||
           decide_cleanup(c, s, job, d);
}

static bool decide_stop(const Cluster *c, const CoreJob *job, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    return job->desired.state == DESIRED_STOPPED && job->word > job->phase.tried_revision &&
           request_leave(c, job, PHASE_STOPPING, decide_requested("stops", job->desired.by, reason),
                         d);
}

static bool decide_running(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    assert(job->phase.phase == PHASE_RUNNING && job->phase.go);
    return decide_stop(c, job, d) || decide_drain(c, job, d) ||
           (job->facts.is_eval && decide_eval_skipped(c, job, d)) ||
           (job->desired.state == DESIRED_RUNNING && decide_resize(c, s, job, d)) ||
           decide_upkeep(c, s, job, d) || decide_wait(c, s, job, d) || decide_mark(c, s, job, d) ||
           decide_price(c, job, d);
}

/* ---- a world leaves ---- */

static bool decide_left(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    assert(job->phase.go && phase_is_active(job->phase.phase));
    if (job->desired.state == DESIRED_STOPPED) {
        if (job->left_usec == 0)
            job->left_usec = c->now_usec;
        if (!job_all_exited(c, job) && !cluster_due(c, s, job->left_usec + c->config.ttl_usec))
            return false; /* the other ranks have finished, too, and are exiting */
        decide_stopped(c, s, job, "stopped", d);
        return true;
    }
    bool resizes = job->phase.leave && job->phase.phase == PHASE_RESIZING;
    return decide_world(c, s, job, PHASE_STARTING, resizes ? job->phase.reason : starts_again, d);
}

/* True when the world was asked to leave in order to grow: the decision that asks for this sets grown_usec and
 * since_usec to the same time. */
static bool leaves_to_grow(const CoreJob *job)
{
    return job->phase.phase == PHASE_RESIZING && job->phase.grown_usec > 0 &&
           job->phase.grown_usec == job->phase.since_usec;
}

static bool decide_leaving(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    assert(job->phase.phase == PHASE_RESIZING || job->phase.phase == PHASE_STOPPING);
    if (job->phase.phase == PHASE_RESIZING && (decide_stop(c, job, d) || decide_drain(c, job, d)))
        return true; /* the world leaves all the same, for the new reason and with a new deadline */
    if (!cluster_due(c, s, job->phase_usec + c->config.leave_deadline_usec))
        return decide_upkeep(c, s, job, d);
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    text_add(&t, "goes on: it had not left ");
    text_add_int(&t, (int64_t)(c->config.leave_deadline_usec / USEC_PER_SEC));
    text_add(&t, " s after being asked (");
    text_add(&t, job->phase.reason);
    text_add(&t, ")");
    decide_phase(c, job, PHASE_RUNNING, reason, d);
    if (leaves_to_grow(job))
        d->phase.growths_in_vain = MIN(job->phase.growths_in_vain, GROWTHS_IN_VAIN_MAX - 1) + 1;
    return true;
}

/* ---- one job ---- */

/* Notes since when the world fails, or that it does not fail. */
static void note_failure(const Cluster *c, CoreJob *job, const FailureSign *sign)
{
    if (sign->failure.cause == CAUSE_NONE) {
        job->failing_usec = 0;
    } else if (job->failing_usec == 0) {
        job->failing_usec = c->now_usec;
        job->failing_real_usec = c->real_usec;
    }
}

static bool answer_failure(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f,
                           Decision *d)
{
    return job->facts.is_eval ? decide_eval_failure(c, s, job, f, d)
                              : decide_failure(c, s, job, f, d);
}

static bool decide_active(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    assert(phase_is_active(job->phase.phase));
    const WorldEnd end = job_world_end(c, job);
    if (job->facts.is_eval &&
        (end == WORLD_FINISHED ? decide_eval_done(c, job, d) : decide_eval_ends(c, job, d)))
        return true;
    if (end == WORLD_FINISHED) {
        char reason[RECORD_TEXT_MAX + 1];
        if (decide_divergence(c, job, d))
            return true;
        divergence_write_finished(job, reason, sizeof(reason));
        decide_end(c, job, PHASE_SUCCEEDED, reason, d);
        const Incident *incident = incident_find_open(c, job);
        if (incident)
            incident_resolve(c, job, incident, d);
        return true;
    }
    if (job->phase.phase == PHASE_STOPPING && job->phase.pause_usec)
        return decide_ending(c, s, job, d) || decide_cleanup(c, s, job, d);
    if (job_is_paused(job))
        return decide_paused(c, s, job, d) || decide_cleanup(c, s, job, d);
    Failure failure;
    if (world_is_lost(job, &failure)) {
        failure.at_usec = c->real_usec;
        failure.step = job_reached_step(c, job);
        return answer_failure(c, s, job, &failure, d);
    }
    if (job->phase.go && end == WORLD_LEFT)
        return decide_left(c, s, job, d);
    if (decide_found(c, s, job, d))
        return true;

    FailureSign sign;
    if (failure_find_sign(c, s, job, &sign)) {
        note_failure(c, job, &sign);
        if (failure_judge(c, s, job, &sign, &failure))
            return answer_failure(c, s, job, &failure, d);
    }
    if (!job->phase.go)
        return decide_go(c, s, job, d) || decide_cleanup(c, s, job, d);
    switch (job->phase.phase) {
    case PHASE_STARTING:
    case PHASE_RECOVERING:
        return decide_first_step(c, job, d) || decide_unsaved(c, s, job, d) ||
               decide_store_incident(c, job, d) || decide_cleanup(c, s, job, d);
    case PHASE_RUNNING:
        return decide_running(c, s, job, d);
    default:
        return decide_leaving(c, s, job, d);
    }
}

bool decide_job(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    assert(job->used && job->in_flight == 0 && c->term != 0);
    memset(s->left_out, 0, sizeof(*s->left_out) * (size_t)c->limits.nodes);
    if (job->desired_stamp.mod && job->desired.state == DESIRED_DELETED)
        return lost_to_another_version(job) ? decide_lost(c, s, job, d)
                                            : decide_removal(c, s, job, d);
    if (!job->spec_stamp.mod && !job->desired_stamp.mod && !job->world_stamp.mod &&
        !job->phase_stamp.mod)
        return decide_remains(c, s, job, d);
    if (decide_lost(c, s, job, d))
        return true;
    if (lost_hides(job) || !job->spec_stamp.mod || !job->desired_stamp.mod)
        return false; /* the job's records are half written, or one of them is missing */
    if (decide_recover(c, job, d) || decide_eval_asked(c, job, d))
        return true;
    if (job->facts.refused[0]) {
        if (job->phase.phase == PHASE_FAILED)
            return false;
        decide_end(c, job, PHASE_FAILED, job->facts.refused, d);
        return true;
    }
    switch (job->phase.phase) {
    case PHASE_PENDING:
        return decide_pending(c, s, job, d) || decide_cleanup(c, s, job, d);
    case PHASE_STOPPED:
        return decide_over(c, job, d) || decide_restart(c, job, d) ||
               decide_old_request(c, job, d) || decide_cleanup(c, s, job, d);
    case PHASE_FAILED:
        return decide_troubles_over(c, job, d) || decide_acknowledged(c, job, d) ||
               decide_restart(c, job, d) || decide_old_request(c, job, d) ||
               decide_cleanup(c, s, job, d);
    case PHASE_SUCCEEDED:
        return decide_over(c, job, d) || decide_cleanup(c, s, job, d);
    default:
        return decide_active(c, s, job, d);
    }
}
