/* recover.c - the answer to a failure: whom it costs what, and the world that comes next.
 *
 * Entry point: decide_failure(). One decision holds everything: the incident, cordons and strikes,
 * a struck-out checkpoint, the next world (or the pause before it, pause.c) and the phase. */
#include "controller/core/state.h"
#include "controller/core/text.h"

#include <string.h>

static void put_cordon(const Node *node, const CordonRecord *cordon, Decision *d)
{
    if (d->n_cordons == DECISION_CORDONS_MAX)
        return; /* the next failure names it again */
    d->cordons[d->n_cordons] = *cordon;
    d->cordon_revisions[d->n_cordons++] = node->cordon_stamp.mod;
}

static void quarantine(Cluster *c, int n, const char *reason, const Job *refused_job,
                       uint64_t until_usec, Decision *d)
{
    Node *node = &c->nodes[n];
    node->left_out = true;
    if (node_is_cordoned(c, node, refused_job) && node->cordon.mode == CORDON_QUARANTINE)
        return;
    CordonRecord cordon = {.mode = CORDON_QUARANTINE,
                           .since_usec = c->real_usec,
                           .until_usec = until_usec,
                           .strikes = node->cordon.strikes};
    text_copy(cordon.node, sizeof(cordon.node), node->record.name);
    text_copy(cordon.machine_id, sizeof(cordon.machine_id), node->record.machine_id);
    text_copy(cordon.reason, sizeof(cordon.reason), reason);
    if (refused_job)
        text_copy(cordon.job, sizeof(cordon.job), refused_job->name);
    put_cordon(node, &cordon, d);
}

/* A trainer that died alone starts again on its node; one that does so again and again does not. */
static void strike(Cluster *c, const Failure *f, Decision *d)
{
    Node *node = &c->nodes[f->node];
    CordonRecord cordon = node->cordon;
    if (cordon.mode != CORDON_NONE)
        return; /* somebody has said what to do with it */
    if (c->real_usec >= cordon.since_usec + c->config.strike_window_usec)
        cordon = (CordonRecord){.since_usec = c->real_usec};
    text_copy(cordon.node, sizeof(cordon.node), node->record.name);
    cordon.strikes++;
    Text t = text_begin(cordon.reason, sizeof(cordon.reason));
    text_add(&t, cause_name(f->cause));
    text_add(&t, ": ");
    text_add(&t, f->evidence);
    if (c->config.max_strikes > 0 && cordon.strikes >= c->config.max_strikes) {
        node->left_out = true;
        cordon.mode = CORDON_QUARANTINE;
        text_copy(cordon.machine_id, sizeof(cordon.machine_id), node->record.machine_id);
        cordon.since_usec = c->real_usec;
        cordon.until_usec = c->real_usec + c->config.quarantine_usec;
    }
    put_cordon(node, &cordon, d);
}

/* Every node that was not ready in time is left out of the next world, not for longer. */
static void leave_out_late(Cluster *c, const Job *job)
{
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const Report *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        bool ready = report && report->n_ranks == slots_count(run->slots);
        for (int k = 0; ready && k < report->n_ranks; k++)
            ready = report->ranks[k].state == RANK_READY || report->ranks[k].state == RANK_RUNNING;
        if (!ready)
            c->nodes[run->node].left_out = true;
    }
}

/* All nodes that say the same, so that each does not cost a generation. */
static void quarantine_all(Cluster *c, const Job *job, const Failure *f, Decision *d)
{
    const Job *refused_job = f->cause == CAUSE_NUMERICS ? job : NULL;
    quarantine(c, f->node, f->evidence, refused_job, 0, d);
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const Report *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        for (int k = 0; report && k < report->n_ranks; k++)
            if (report->ranks[k].state == RANK_EXITED && !c->nodes[run->node].left_out &&
                cause_of_exit(job, report, &report->ranks[k]) == f->cause)
                quarantine(c, run->node, report->text, refused_job, 0, d);
    }
}

static void blame(Cluster *c, const Job *job, const Failure *f, Decision *d)
{
    switch (f->cause) {
    case CAUSE_TRAINER_DIED:
    case CAUSE_HANG:
        if (f->node >= 0)
            strike(c, f, d);
        break;
    case CAUSE_UNREACHABLE:
        strike(c, f, d);
        c->nodes[f->node].left_out = true; /* of the next world; to grow again is another try */
        break;
    case CAUSE_DEVICE_FAULT:
    case CAUSE_NODE_UNHEALTHY:
    case CAUSE_NUMERICS:
        quarantine_all(c, job, f, d);
        break;
    case CAUSE_START_TIMEOUT:
        if (f->rank <
            0) /* it holds ranks of an older generation: fenced, so that the others may go */
            quarantine(c, f->node, f->evidence, NULL, c->real_usec + c->config.quarantine_usec, d);
        leave_out_late(c, job);
        break;
    default:
        break;
    }
}

static void strike_out_checkpoint(const Job *job, Decision *d)
{
    d->checkpoints = job->checkpoints;
    d->checkpoints_revision = job->checkpoints_stamp.mod;
    for (size_t i = 0; i < d->checkpoints.n_commits; i++)
        if (text_equal(d->checkpoints.commits[i].uri, job->world.resume.uri)) {
            d->checkpoints.commits[i].struck_out = true;
            d->put_checkpoints = true;
        }
}

/* Causes that another try cannot cure. */
static bool is_final(const Job *job, const Failure *f, const Decision *d)
{
    return f->cause == CAUSE_NON_FINITE || f->cause == CAUSE_BAD_JOB ||
           f->cause == CAUSE_NOT_OWNER || f->cause == CAUSE_DATA_CORRUPT ||
           (f->cause == CAUSE_CHECKPOINT_CORRUPT &&
            (!d->put_checkpoints || job->world.resume.adopt));
}

/* A node, or the whole job. */
static bool takes_out_of_service(const Decision *d)
{
    bool out = d->phase.phase == PHASE_FAILED;
    for (int i = 0; i < d->n_cordons; i++)
        out |= d->cordons[i].mode == CORDON_QUARANTINE;
    return out;
}

bool decide_failure(Cluster *c, Job *job, const Failure *f, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    Text t = text_begin(reason, sizeof(reason));
    const Losses losses = losses_after(c, job, f->cause);
    blame(c, job, f, d);
    if (f->cause == CAUSE_CHECKPOINT_CORRUPT)
        strike_out_checkpoint(job, d);
    incident_open(c, job, f, d);

    if (is_final(job, f, d)) {
        incident_say(&d->incident, &t);
        decide_end(c, job, PHASE_FAILED, reason, d);
    } else if (losses.failures >= job->facts.max_failures) {
        text_add_int(&t, losses.failures);
        text_add(&t, " generations in a row did not pass step ");
        text_add_int(&t, MAX(job->phase.furthest_step, job_reached_step(c, job)));
        text_add(&t, "; ");
        incident_say(&d->incident, &t);
        decide_end(c, job, PHASE_FAILED, reason, d);
    } else if (job->phase.phase == PHASE_STOPPING || job->desired.state == DESIRED_STOPPED) {
        text_add(&t, "stopped without a last checkpoint: ");
        incident_say(&d->incident, &t);
        decide_end(c, job, PHASE_STOPPED, reason, d);
        d->incident.state = INCIDENT_RESOLVED; /* nothing is to be recovered */
        d->incident.resolved_usec = c->real_usec;
    } else if (losses.pause_usec) {
        decide_pause(c, job, losses.pause_usec, d);
    } else {
        incident_say(&d->incident, &t);
        (void)decide_world(c, job, PHASE_RECOVERING, reason, d); /* it always decides here */
    }
    d->phase.failures_without_progress = losses.failures;
    d->phase.pauses = losses.pauses;
    d->phase.store_lost_usec = losses.store_lost_usec;
    d->phase.furthest_resume = MAX(job->phase.furthest_resume, checkpoints_resume_step(job));
    if (f->cause == CAUSE_START_TIMEOUT || f->cause == CAUSE_UNREACHABLE)
        d->phase.grown_usec = c->real_usec; /* whom it left out, a growth would take at once */
    if (takes_out_of_service(d))
        d->incident.severity = SEVERITY_CRITICAL;
    return true;
}
