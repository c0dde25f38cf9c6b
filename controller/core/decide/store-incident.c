/* SPDX-License-Identifier: Apache-2.0 */
/* store-incident.c - the incident of a store that does not accept a job's checkpoints, or delays its data, while the
 * job trains on or waits. No world ends for this, but a person should know.
 *
 * Entry points: decide_store_incident(), decide_store_incident_over(). Guarantees: at most one such incident of a job
 * is open. It is resolved when rank 0 reports that the store works again; if the world has changed since, also a
 * commit is needed.
 */
#include "controller/core/decide/store-incident.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/incident.h"

/* Returns progress/<job> if it is of the job's present world and newer than the last commit, else NULL. */
static const ProgressRecord *present_progress(const CoreJob *job)
{
    bool present = job->progress_stamp.mod > job->checkpoints_stamp.mod &&
                   job->progress.generation == job->world.generation;
    return present ? &job->progress : NULL;
}

static uint64_t trouble_since(const ProgressRecord *p)
{
    if (p->unsaved_since_usec && p->waits_since_usec)
        return MIN(p->unsaved_since_usec, p->waits_since_usec);
    return MAX(p->unsaved_since_usec, p->waits_since_usec);
}

static void write_store_incident(const CoreJob *job, const ProgressRecord *p, char *ret,
                                 size_t size)
{
    Text t = text_begin(ret, size);
    const CheckpointCommit *last = NULL;
    for (size_t i = 0; i < job->checkpoints.n_commits; i++)
        if (!job->checkpoints.commits[i].struck_out)
            last = &job->checkpoints.commits[i];
    if (p->unsaved_since_usec) {
        text_add(&t, last ? "nothing was saved since step " : "nothing was saved yet");
        if (last)
            text_add_int(&t, last->step);
        if (p->save_error[0])
            text_add(&t, ": ");
        text_add(&t, p->save_error);
    }
    if (!p->waits_since_usec)
        return;
    text_add(&t, p->unsaved_since_usec ? "; rank " : "rank ");
    text_add_int(&t, p->waits_rank);
    text_add(&t, " waits for the data of step ");
    text_add_int(&t, p->step + 1);
}

static void open_incident(const Cluster *c, const CoreJob *job, const ProgressRecord *p,
                          Decision *d)
{
    assert(trouble_since(p));
    IncidentRecord *record = incident_begin(c, job, CAUSE_STORE_TROUBLE, job->world.generation,
                                            job->trouble_revision, d);
    record->step = p->step;
    write_store_incident(job, p, record->evidence, sizeof(record->evidence));
    record->at_usec = MIN(MAX(trouble_since(p), job->world.decided_usec), c->real_usec);
}

/* True when the store works again. A world that has just begun has nothing to save, so its progress without a failed
 * save does not end the incident. */
static bool is_over(const CoreJob *job, const IncidentRecord *record, const ProgressRecord *p)
{
    if (!p || trouble_since(p))
        return false;
    bool over = record->generation == job->world.generation;
    for (size_t i = 0; i < job->checkpoints.n_commits; i++)
        over |= job->checkpoints.commits[i].generation > record->generation;
    return over;
}

bool decide_store_incident(const Cluster *c, const CoreJob *job, Decision *d)
{
    const ProgressRecord *p = present_progress(job);
    const Incident *open = incident_find_cause(c, job, CAUSE_STORE_TROUBLE);
    if (open && is_over(job, &open->record, p))
        incident_resolve(c, job, open, d);
    else if (!open && p && trouble_since(p) && incident_has_place(c))
        open_incident(c, job, p, d);
    else
        return false;
    return true;
}

bool decide_store_incident_over(const Cluster *c, const CoreJob *job, Decision *d)
{
    const Incident *open = incident_find_cause(c, job, CAUSE_STORE_TROUBLE);
    if (open)
        incident_resolve(c, job, open, d);
    return open != NULL;
}
