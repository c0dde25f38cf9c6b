/* SPDX-License-Identifier: Apache-2.0 */
/* divergence-incident.c - the incident of a job whose training diverges. Rank 0 judges (manifest/divergence.h), its
 * node reports the verdict in progress/<job>, and the leader relies on the report.
 *
 * Entry points: decide_divergence(), decide_divergence_over(). Guarantees: at most one such incident of a job is
 * open. The incident ends no world, unless the job file has train.stop_if_diverging: then the job fails in the same
 * decision. The incident is resolved when rank 0 reports that training is well again, and ends with its job.
 */
#include "controller/core/decide/divergence-incident.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/incident.h"
#include "controller/core/write/phase.h"

static const ProgressRecord *present_progress(const CoreJob *job)
{
    return job->progress_stamp.mod && job->progress.generation == job->world.generation &&
                   job->world.generation > 0
               ? &job->progress
               : NULL;
}

/* True when retention keeps commit i: it keeps the newest keep_last commits, and each commit whose step is a multiple
 * of keep_every. */
static bool is_kept(const CoreJob *job, size_t i)
{
    const CheckpointsRecord *all = &job->checkpoints;
    int64_t newer = 0;
    for (size_t k = i + 1; k < all->n_commits; k++)
        newer += !all->commits[k].struck_out;
    return newer < job->facts.keep_last ||
           (job->facts.keep_every > 0 && all->commits[i].step % job->facts.keep_every == 0);
}

/* Returns the newest checkpoint that is from before training diverged and still exists; NULL if there is none. */
static const CheckpointCommit *find_good(const CoreJob *job, int64_t since)
{
    const CheckpointsRecord *all = &job->checkpoints;
    for (size_t i = all->n_commits; i-- > 0;)
        if (!all->commits[i].struck_out && all->commits[i].step < since && is_kept(job, i))
            return &all->commits[i];
    return NULL;
}

static void write_since(const ProgressRecord *p, Text *t)
{
    text_add(t, "since step ");
    text_add_int(t, p->diverging_since);
    if (p->diverging[0])
        text_add(t, ": ");
    text_add(t, p->diverging);
}

/* Writes "since step 57: the loss is 92.7, and was 1.17 at best; the last checkpoint before that is of step 40". */
static void write_evidence(const CoreJob *job, const ProgressRecord *p, char *ret, size_t size)
{
    const CheckpointCommit *good = find_good(job, p->diverging_since);
    Text t = text_begin(ret, size);
    write_since(p, &t);
    if (good) {
        text_add(&t, "; the last checkpoint before that is of step ");
        text_add_int(&t, good->step);
    } else {
        text_add(&t, "; no checkpoint from before that is left");
    }
}

/* Writes the reason of the failed job. The reason names the good checkpoint for model.init of another job with other
 * settings: with the same settings the same bits would diverge again. If the checkpoint's URI would be cut, only its
 * step is named. */
static void write_end(const CoreJob *job, const ProgressRecord *p, char *ret, size_t size)
{
    static const char init[] = ", model.init ";
    const CheckpointCommit *good = find_good(job, p->diverging_since);
    Text t = text_begin(ret, size);
    text_add(&t, "diverging ");
    write_since(p, &t);
    if (!good) {
        text_add(&t, "; no checkpoint from before that is left");
        return;
    }
    text_add(&t, "; another job can begin with the weights of step ");
    text_add_int(&t, good->step);
    size_t n = 0;
    while (good->uri[n])
        n++;
    if (t.used + sizeof(init) + n < size) {
        text_add(&t, init);
        text_add(&t, good->uri);
    }
}

static void open_incident(const Cluster *c, const CoreJob *job, const ProgressRecord *p,
                          Decision *d)
{
    assert(p->diverging_since > 0);
    IncidentRecord *record =
        incident_begin(c, job, CAUSE_DIVERGING, job->world.generation, job->diverging_revision, d);
    record->step = p->step;
    record->at_usec = MIN(MAX(p->at_usec, job->world.decided_usec), c->real_usec);
    write_evidence(job, p, record->evidence, sizeof(record->evidence));
}

/* Ends the job as failed, with its open incident or, if there is none, with a new incident. */
static void end_job(const Cluster *c, const CoreJob *job, const Incident *open,
                    const ProgressRecord *p, Decision *d)
{
    char reason[RECORD_TEXT_MAX + 1];
    if (open) {
        d->incident = open->record;
        d->incident_revision = open->stamp.mod;
        d->put_incident = true;
    } else {
        open_incident(c, job, p, d);
    }
    d->incident.severity = SEVERITY_CRITICAL;
    write_end(job, p, reason, sizeof(reason));
    decide_end(c, job, PHASE_FAILED, reason, d);
}

bool decide_divergence(const Cluster *c, const CoreJob *job, Decision *d)
{
    const ProgressRecord *p = present_progress(job);
    const Incident *open = incident_find_cause(c, job, CAUSE_DIVERGING);
    const bool diverges = p && p->diverging_since > 0;
    if (diverges && job->facts.stop_if_diverging && job->desired.state == DESIRED_RUNNING)
        end_job(c, job, open, p, d);
    else if (diverges && !open && incident_has_place(c))
        open_incident(c, job, p, d);
    else if (p && !diverges && open)
        incident_resolve(c, job, open, d);
    else
        return false;
    return true;
}

bool decide_divergence_over(const Cluster *c, const CoreJob *job, Decision *d)
{
    const Incident *open = incident_find_cause(c, job, CAUSE_DIVERGING);
    if (!open)
        return false;
    incident_resolve(c, job, open, d);
    d->incident.ended = true;
    return true;
}

void divergence_write_finished(const CoreJob *job, char *ret, size_t size)
{
    const ProgressRecord *p = present_progress(job);
    Text t = text_begin(ret, size);
    text_add(&t, "finished");
    if (!p || p->diverging_since == 0)
        return;
    text_add(&t, ", but training has diverged ");
    write_since(p, &t);
}
