/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c - the answer to a failure: strikes, quarantines and the next world.
 *
 * Entry point: decide_failure(). One decision contains everything: the incident, cordons and strikes,
 * a struck-out checkpoint, the next world (or the pause before it, pause.c) and the phase. */
#include "controller/core/decide/recover.h"

#include "controller/core/decide/pause.h"
#include "controller/core/facts/commits.h"
#include "controller/core/facts/incidents.h"
#include "controller/core/facts/machines.h"
#include "controller/core/facts/reports.h"
#include "controller/core/judge/backoff.h"
#include "controller/core/judge/failure.h"
#include "controller/core/judge/spare.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cordons.h"
#include "controller/core/write/cost.h"
#include "controller/core/write/incident.h"
#include "controller/core/write/phase.h"
#include "controller/core/write/strikes.h"
#include "controller/core/write/world.h"

static void quarantine(const Cluster *c, Scratch *s, int n, const char *reason,
                       const CoreJob *refused_by, uint64_t until_usec, Decision *d)
{
    const CoreNode *node = &c->nodes[n];
    assert(n >= 0 && n < c->limits.nodes && node->used);
    s->left_out[n] = true;
    CordonCause cause = cordon_begin_cause(c, node, refused_by);
    if (cause.mode == CORDON_QUARANTINE && (cause.until_usec == 0 || until_usec != 0))
        return;
    cause.mode = CORDON_QUARANTINE;
    cause.since_usec = c->real_usec;
    cause.until_usec = until_usec;
    text_copy(cause.reason, sizeof(cause.reason), reason);
    /* If there is no room for the cause, the next failure writes it. */
    (void)cordon_put_cause(c, node, &cause, d);
}

/* Leaves every node that was not ready in time out of the next world, but not out of later ones. */
static void leave_out_late(const Cluster *c, Scratch *s, const CoreJob *job)
{
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        if (run_is_late(c, s, job, run))
            s->left_out[run->node] = true;
    }
}

/* Quarantines all nodes that report the same cause at once, so that together they cost only one generation. */
static void quarantine_all(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f,
                           Decision *d)
{
    assert(f->node >= 0);
    const CoreJob *refused_by = cause_rule(f->cause)->blame == BLAME_REFUSAL ? job : NULL;
    quarantine(c, s, f->node, f->evidence, refused_by, 0, d);
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const NodeRanks *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        for (int k = 0; report && k < report->n_ranks; k++)
            if (report->ranks[k].state == RANK_EXITED && !s->left_out[run->node] &&
                cause_of_exit(job, report, &report->ranks[k]) == f->cause)
                quarantine(c, s, run->node, report->text, refused_by, 0, d);
    }
}

static void blame(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f, Decision *d)
{
    switch (cause_rule(f->cause)->blame) {
    case BLAME_STRIKE:
        if (f->node >= 0)
            strike(c, s, job, f, d);
        break;
    case BLAME_STRIKE_OUT:
        assert(f->node >= 0);
        strike(c, s, job, f, d);
        s->left_out[f->node] = true; /* in the next world only: growth may use the node again */
        break;
    case BLAME_QUARANTINE:
    case BLAME_REFUSAL:
        quarantine_all(c, s, job, f, d);
        break;
    case BLAME_LATE:
        /* Excludes a node that has not confirmed the end of older ranks, so that newer ranks need not wait for it. */
        if (f->rank < 0)
            quarantine(c, s, f->node, f->evidence, NULL, c->real_usec + c->config.quarantine_usec,
                       d);
        leave_out_late(c, s, job);
        break;
    default:
        break;
    }
}

/* Lets a spare replace the node if only one node failed. Returns true if a spare replaces the node: this
 * answers the failure, whatever the cause would otherwise mean for the job. */
static bool answer_by_spare(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f,
                            Decision *d)
{
    if (!failure_is_of_one_node(c, job, f) || !job_has_spare_for(c, s, job, f->node))
        return false;
    bool is_struck = cause_rule(f->cause)->blame == BLAME_STRIKE;
    if (!is_struck &&
        job->n_runs > 1) /* in a world of one node no other node contradicts the failure */
        strike(c, s, job, f, d);
    s->left_out[f->node] = true;
    return true;
}

/* Strikes out the checkpoint that the world resumed from. Returns true if an older commit is left to resume from. */
static bool strike_out_checkpoint(const CoreJob *job, Decision *d)
{
    ResumePoint older;
    d->checkpoints = job->checkpoints;
    d->checkpoints_revision = job->checkpoints_stamp.mod;
    for (size_t i = 0; i < d->checkpoints.n_commits; i++)
        if (text_equal(d->checkpoints.commits[i].uri, job->world.resume.uri)) {
            d->checkpoints.commits[i].struck_out = true;
            d->put_checkpoints = true;
        }
    return d->put_checkpoints && checkpoints_find_resume(job, &d->checkpoints, &older) &&
           older.find == FIND_NOTHING;
}

/* True when another try cannot cure the cause. */
static bool is_final(const CoreJob *job, const Failure *f, const Decision *d)
{
    return cause_rule(f->cause)->is_final || (f->cause == CAUSE_CHECKPOINT_CORRUPT &&
                                              (!d->put_checkpoints || job->world.resume.adopt));
}

/* True when the decision takes a node or the whole job out of service. If one job refuses a machine because the job
 * died there, the machine still serves all other jobs: that is not counted. */
static bool takes_out_of_service(const Decision *d)
{
    bool out = d->phase.phase == PHASE_FAILED;
    for (int i = 0; i < d->n_cordons; i++)
        out |= d->cordon_changed[i] >= 0 &&
               d->cordons[i].causes[d->cordon_changed[i]].mode == CORDON_QUARANTINE &&
               !strikes_refuse(&d->cordons[i].causes[d->cordon_changed[i]]);
    return out;
}

/* Blames the job itself for the failure, so that the incident names no machine. */
static void blame_job(const Cluster *c, const CoreJob *job, const StrikeJudgement *judgement,
                      Failure *f, Decision *d)
{
    char evidence[RECORD_TEXT_MAX + 1];
    assert(judgement->is_jobs);
    text_copy(evidence, sizeof(evidence), f->evidence);
    f->cause = CAUSE_JOB_DIES;
    f->node = f->rank = -1;
    Text t = text_begin(f->evidence, sizeof(f->evidence));
    text_add(&t, judgement->way);
    text_add(&t, " on a second machine, ");
    text_add_int(&t, c->config.max_strikes);
    text_add(&t, " times as on the first: it is the job; ");
    text_add(&t, evidence);
    if (judgement->is_new)
        strikes_lift(c, job, judgement->way, d);
    else
        text_copy(f->evidence, sizeof(f->evidence), evidence);
}

/* Lets the incident name a node only if no other node failed to reach the store, because an outage of a store is one
 * incident for all nodes. So a node that alone fails to reach the store after the outage is still recognised. */
static void name_sole_reporter(const Cluster *c, const CoreJob *job, const Failure *f,
                               bool is_answered, Decision *d)
{
    bool goes_on = incident_find_cause(c, job, f->cause) != NULL;
    if (is_answered) {
        text_copy(d->incident.node, sizeof(d->incident.node), c->nodes[f->node].record.name);
        d->incident.rank = f->rank;
    } else if (!goes_on && job->n_runs > 1 && !failure_is_of_one_node(c, job, f)) {
        d->incident.node[0] = '\0';
        d->incident.rank = -1;
    }
}

bool decide_failure(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *failure,
                    Decision *d)
{
    assert(failure->cause > CAUSE_RECORD_LOST && failure->cause < CAUSES);
    assert(phase_is_active(job->phase.phase));
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    StrikeJudgement judgement;
    Failure judged = *failure;
    const Failure *f = &judged;
    strike_judge(c, job, failure, &judgement);
    if (judgement.is_jobs)
        blame_job(c, job, &judgement, &judged, d);
    blame(c, s, job, f, d);
    bool is_answered = answer_by_spare(c, s, job, f, d);
    assert(!is_answered || s->left_out[f->node]);
    const bool goes_back =
        f->cause == CAUSE_CHECKPOINT_CORRUPT && !is_answered && strike_out_checkpoint(job, d);
    const RestartCounters counters = restart_counters_after(c, job, f->cause, goes_back);
    incident_open(c, job, f, d);
    if (f->cause == CAUSE_STORE_UNREACHABLE)
        name_sole_reporter(c, job, f, is_answered, d);
    if (is_answered) /* the job recovers by itself */
        d->incident.severity = MIN(d->incident.severity, SEVERITY_WARNING);

    if (!is_answered && is_final(job, f, d)) {
        incident_write(&d->incident, &t);
        decide_end(c, job, PHASE_FAILED, reason, d);
    } else if (counters.failures >= job->facts.max_failures) {
        text_add_int(&t, counters.failures);
        text_add(&t, " generations in a row did not pass step ");
        text_add_int(&t, MAX(job->phase.furthest_step, job_reached_step(c, job)));
        text_add(&t, "; ");
        incident_write(&d->incident, &t);
        decide_end(c, job, PHASE_FAILED, reason, d);
    } else if (job->desired.state == DESIRED_STOPPED) {
        text_add(&t, "stopped without a last checkpoint: ");
        incident_write(&d->incident, &t);
        decide_stopped(c, s, job, reason, d);
        d->incident.state = INCIDENT_RESOLVED; /* nothing is left to recover */
        d->incident.ended = true;
        d->incident.resolved_usec = c->real_usec;
    } else if (counters.pause_usec && !is_answered) {
        incident_write(&d->incident, &t);
        decide_pause(c, job, counters.pause_usec, reason, d);
    } else {
        incident_write(&d->incident, &t);
        (void)decide_world(c, s, job, PHASE_RECOVERING, reason,
                           d); /* decide_world() always decides here */
    }
    assert(d->put_phase);
    cost_of_failure(c, job, d);
    d->phase.failures_without_progress = counters.failures;
    d->phase.pauses = counters.pauses;
    d->phase.store_lost_usec = counters.store_lost_usec;
    d->phase.furthest_resume = MAX(job->phase.furthest_resume, checkpoints_resume_step(job));
    const CauseBlame left_out = cause_rule(f->cause)->blame;
    if (left_out == BLAME_LATE || left_out == BLAME_STRIKE_OUT)
        d->phase.grown_usec = c->real_usec; /* growth must not take a left-out node back at once */
    if (judgement.is_jobs) {
        text_copy(d->phase.dies_by, sizeof(d->phase.dies_by), judgement.way);
        d->phase.dies_usec = c->real_usec;
    }
    if (takes_out_of_service(d) || judgement.is_new)
        d->incident.severity = SEVERITY_CRITICAL;
    return true;
}
