/* SPDX-License-Identifier: Apache-2.0 */
/* put-back.c - records of a job that vanish, are damaged, or come back as an older copy: specs, desired, worlds,
 * phases and, with checkpoints.c, checkpoints.
 *
 * An etcdctl command, a restore from a backup or a bug may cause this. Even then a job must neither lose a checkpoint
 * nor stop without a report. A leader remembers each record as it last saw it and puts it back, guarded by the
 * revision of the present record. A leader that never saw the record derives it from other records, or opens an
 * incident that names the missing record and the remedy. A world is not put back: a new world follows, with a
 * generation higher than any that was seen. A record of another version does not count as lost and is not
 * overwritten, and nothing is decided about its job. */
#include "controller/core/decide/put-back.h"

#include "controller/core/decide/checkpoints.h"
#include "controller/core/facts/commits.h"
#include "controller/core/facts/incidents.h"
#include "controller/core/facts/lost.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/incident.h"

/* ---- how long a record is lost ---- */

/* True when the loss has lasted for grace_usec: while the list of records is incomplete, it does not show which
 * records are missing. */
static bool lasts(Cluster *c, Scratch *s, CoreJob *job)
{
    if (job->lost_usec == 0)
        job->lost_usec = c->now_usec;
    return cluster_due(c, s, job->lost_usec + c->config.grace_usec);
}

/* ---- what is put back ---- */

static void write_put_back(const Cluster *c, const CoreJob *job, Lost lost, const char *kind,
                           const char *how, Decision *d)
{
    assert(lost != LOST_NOT &&
           lost != LOST_FOREIGN); /* records of another version are never overwritten */
    char why[RECORD_TEXT_MAX + 1];
    Text t = text_begin(why, sizeof(why));
    lost_write(&t, lost, kind, job->name);
    text_add(&t, how);
    d->world_revision = job->world_stamp.mod;
    d->phase_revision = job->phase_stamp.mod;
    d->desired_revision = job->desired_stamp.mod;
    lost_incident(c, job, why, true, d);
}

static bool put_back_spec(const Cluster *c, const CoreJob *job, Decision *d)
{
    if (!job->spec_lost || job->facts.n_grains == 0)
        return false;
    d->put_spec = true;
    d->spec_revision = job->spec_stamp.mod;
    write_put_back(c, job, job->spec_lost, "specs", "; put back as it was known", d);
    return true;
}

static bool put_back_desired(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    bool known = job->desired.max > 0;
    if (!job->desired_lost && job->desired_stamp.mod)
        return false;
    if (!known && (job->facts.max == 0 || !lasts(c, s, job)))
        return false;
    d->put_desired = true;
    d->desired = job->desired;
    if (!known)
        d->desired = (DesiredRecord){.state = job->phase.phase == PHASE_STOPPED ||
                                                      job->phase.phase == PHASE_STOPPING
                                                  ? DESIRED_STOPPED
                                                  : DESIRED_RUNNING,
                                     .min = job->facts.min,
                                     .max = job->facts.max,
                                     .priority = job->facts.priority};
    job->desired = d->desired; /* so the record, when it is read back, is not a new request */
    job->desired_lost = job->desired_lost ? job->desired_lost : LOST_GONE;
    write_put_back(c, job, job->desired_lost ? job->desired_lost : LOST_GONE, "desired",
                   known ? "; put back as it was known" : "; made anew from the job file", d);
    return true;
}

static bool put_back_phase(const Cluster *c, const CoreJob *job, Decision *d)
{
    if (!job->phase_lost || job->phase.serial == 0)
        return false;
    d->put_phase = true;
    d->phase = job->phase;
    d->phase.serial = job_next_serial(c, job);
    write_put_back(c, job, job->phase_lost, "phases", "; put back as it was known", d);
    return true;
}

/* ---- the whole ---- */

bool decide_lost(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    char why[RECORD_TEXT_MAX + 1];
    const Incident *open = lost_find_incident(c, job);
    bool foreign = lost_is_foreign(job, why, sizeof(why));
    if (!foreign && put_back_spec(c, job, d))
        return true;
    if (foreign || lost_is_without_spec(job, why, sizeof(why))) {
        if (open || !lasts(c, s, job) || !incident_has_place(c))
            return false;
        lost_incident(c, job, why, false, d);
        return true;
    }
    if (put_back_desired(c, s, job, d) || put_back_phase(c, job, d) ||
        decide_checkpoints(c, job, d))
        return true;
    if (open && !checkpoints_are_missing(job) && job->desired_stamp.mod) {
        job->lost_usec = 0;
        incident_resolve(c, job, open, d);
        return true;
    }
    return false;
}
