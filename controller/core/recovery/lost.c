/* SPDX-License-Identifier: Apache-2.0 */
/* lost.c - records of a job that vanish, are damaged, or come back as an older copy: specs, desired, worlds,
 * phases and, with checkpoints.c, checkpoints.
 *
 * An etcdctl command, a restore from a backup or a bug may do that, and still a job must neither lose a checkpoint
 * nor stand still without a word. A leader remembers each record as it last saw it and puts it back, guarded by
 * the revision of the present one. A leader that never saw it derives the record from others, or says in an
 * incident what is missing and what to do. A world is not put back: a new one follows, with a generation beyond
 * all that were seen. A record of another version is neither lost nor overwritten, and nothing is decided about
 * its job.
 *
 * Entry points: decide_lost(), world_is_lost(). */
#include "controller/core/recovery/lost.h"

#include "controller/core/cluster-internal.h"
#include "controller/core/recovery/checkpoints.h"
#include "controller/core/recovery/failure.h"
#include "controller/core/recovery/incident.h"
#include "controller/core/text.h"

#include <string.h>

Lost lost_by(const Event *ev, bool had, bool older)
{
    if (ev->record)
        return older ? LOST_OLDER : LOST_NOT;
    if (ev->health == RECORD_FOREIGN)
        return LOST_FOREIGN;
    if (ev->health == RECORD_DAMAGED)
        return LOST_DAMAGED;
    return had ? LOST_GONE : LOST_NOT;
}

void lost_say(Text *t, Lost lost, const char *kind, const char *name)
{
    assert(lost >= LOST_NOT && lost <= LOST_FOREIGN);
    static const char words[][40] = {[LOST_NOT] = " is there",
                                     [LOST_GONE] = " was deleted",
                                     [LOST_DAMAGED] = " could not be read",
                                     [LOST_OLDER] = " was older than what is known",
                                     [LOST_FOREIGN] = " is of another version"};
    text_add(t, kind);
    text_add(t, "/");
    text_add(t, name);
    text_add(t, words[lost]);
}

const Incident *lost_find_incident(const Cluster *c, const CoreJob *job)
{
    for (int i = 0; i < c->limits.incidents; i++) { /* without a spec the submission is not known */
        const IncidentRecord *record = &c->incidents[i].record;
        if (c->incidents[i].used && record->state == INCIDENT_OPEN &&
            text_equal(record->job, job->name) &&
            text_equal(record->cause, cause_name(CAUSE_RECORD_LOST)))
            return &c->incidents[i];
    }
    return NULL;
}

void lost_incident(const Cluster *c, const CoreJob *job, const char *evidence, bool over,
                   Decision *d)
{
    IncidentRecord *record =
        incident_begin(c, job, CAUSE_RECORD_LOST, job->phase.generation, c->seen_revision, d);
    if (!record->submission[0])
        text_copy(record->submission, sizeof(record->submission), job->phase.submission);
    record->step = checkpoints_known_mark(job).step;
    text_copy(record->evidence, sizeof(record->evidence), evidence);
    record->at_usec = c->real_usec;
    if (over) {
        record->state = INCIDENT_RESOLVED;
        record->resolved_usec = c->real_usec;
    }
}

/* ---- what nobody here can mend ---- */

static bool is_foreign(const CoreJob *job, char *ret, size_t size)
{
    const char *kind = job->spec_lost == LOST_FOREIGN          ? "specs"
                       : job->desired_lost == LOST_FOREIGN     ? "desired"
                       : job->world_lost == LOST_FOREIGN       ? "worlds"
                       : job->phase_lost == LOST_FOREIGN       ? "phases"
                       : job->checkpoints_lost == LOST_FOREIGN ? "checkpoints"
                                                               : NULL;
    if (!kind)
        return false;
    Text t = text_begin(ret, size);
    lost_say(&t, LOST_FOREIGN, kind, job->name);
    text_add(&t, " than this controller reads: nothing is decided about the job until its version "
                 "leads");
    return true;
}

/* A lost spec cannot be derived: only the person who submitted the job has its file. */
static bool is_without_spec(const CoreJob *job, char *ret, size_t size)
{
    if (job->spec_lost != LOST_DAMAGED &&
        (job->spec_stamp.mod ||
         (!job->phase_stamp.mod && !job->world_stamp.mod && !job->desired_stamp.mod)))
        return false;
    Text t = text_begin(ret, size);
    lost_say(&t, job->spec_lost ? job->spec_lost : LOST_GONE, "specs", job->name);
    text_add(&t,
             ", and this leader has not seen it: sdctl job start -f FILE, with the job file as it "
             "was, gives it back; sdctl job delete gives it up");
    return true;
}

bool lost_to_another_version(const CoreJob *job)
{
    char ignored[RECORD_TEXT_MAX + 1];
    return is_foreign(job, ignored, sizeof(ignored));
}

bool lost_hides(const CoreJob *job)
{
    char ignored[RECORD_TEXT_MAX + 1];
    return is_foreign(job, ignored, sizeof(ignored)) ||
           is_without_spec(job, ignored, sizeof(ignored));
}

/* What is remembered is of an earlier record than the one that is there. */
static bool is_unread(const Stamp *stamp, Lost lost)
{
    return !stamp->mod || lost == LOST_DAMAGED || lost == LOST_FOREIGN;
}

/* A record that is there and cannot be read stays so, whose ever it is. */
static Lost forget(const Stamp *stamp, Lost lost)
{
    return stamp->mod && is_unread(stamp, lost) ? lost : LOST_NOT;
}

void lost_forget(CoreJob *job, const char *submission)
{
    if (is_unread(&job->desired_stamp, job->desired_lost))
        job->desired = (DesiredRecord){0};
    if (is_unread(&job->world_stamp, job->world_lost)) {
        memset(&job->world, 0, sizeof(job->world));
        job->n_runs = 0;
    }
    if (is_unread(&job->phase_stamp, job->phase_lost))
        memset(&job->phase, 0, sizeof(job->phase));
    if (is_unread(&job->checkpoints_stamp, job->checkpoints_lost) ||
        !text_equal(job->checkpoints.submission, submission))
        memset(&job->checkpoints, 0, sizeof(job->checkpoints));
    job->desired_lost = forget(&job->desired_stamp, job->desired_lost);
    job->world_lost = forget(&job->world_stamp, job->world_lost);
    job->phase_lost = forget(&job->phase_stamp, job->phase_lost);
    job->checkpoints_lost = forget(&job->checkpoints_stamp, job->checkpoints_lost);
    job->lost_usec = 0;
}

/* ---- what events say ---- */

bool lost_is_older_world(const CoreJob *job, const WorldRecord *world)
{
    return world->generation < job->world.generation &&
           text_equal(world->submission, job->world.submission);
}

bool lost_with_its_job(const CoreJob *job, const char *submission)
{
    if (job->facts.n_grains == 0)
        return false; /* its spec was never read: nobody here can tell which submission is the job's */
    return job->spec_stamp.mod && !text_equal(submission, job->facts.submission);
}

void lost_learn_runs(CoreJob *job, const NodeRecord *node)
{
    for (size_t i = 0; i < node->n_runs; i++) {
        const JobRun *run = &node->runs[i];
        if (!text_equal(run->job, job->name) || !text_equal(run->submission, job->facts.submission))
            continue;
        job->ran_generation = MAX(job->ran_generation, run->generation);
        if (commit_mark_is_before(job->ran_mark, run->committed))
            job->ran_mark = run->committed;
    }
}

void lost_learn_spec(const Cluster *c, CoreJob *job, const Event *ev)
{
    job->spec_lost = lost_by(ev, job->facts.n_grains > 0, false);
    if (!ev->spec)
        return;
    if (job->facts.n_grains > 0 && !text_equal(job->facts.submission, ev->spec->submission))
        lost_forget(job, ev->spec->submission);
    bool again = job->facts.n_grains > 0 && text_equal(job->facts.submission, ev->spec->submission);
    int64_t arrival = again ? MIN(job->facts.arrival, ev->spec->arrival) : ev->spec->arrival;
    job->facts = *ev->spec;
    job->facts.arrival = arrival; /* one that was put back keeps its place */
    checkpoints_drop_others(job);
    if (again)
        return;
    job->ran_generation = job->reported_generation = 0;
    job->ran_mark = (CommitMark){0};
    for (int i = 0; i < c->limits.nodes; i++)
        if (c->nodes[i].used && c->nodes[i].present && c->nodes[i].admitted)
            lost_learn_runs(job, &c->nodes[i].record);
}

static bool same_word(const DesiredRecord *a, const DesiredRecord *b)
{
    return a->state == b->state && a->min == b->min && a->max == b->max && a->target == b->target;
}

void lost_learn_desired(CoreJob *job, const Event *ev)
{
    bool was_there = !job->desired_lost, known = job->desired.max > 0;
    assert(job->desired_stamp.mod <= ev->revision);
    job->desired_lost = lost_by(ev, known, false);
    if (!ev->desired)
        return;
    /* Another priority changes the order of those that wait, and asks for nothing else. */
    const bool again = was_there && job->desired.priority == ev->desired->priority;
    if (again || !known || !same_word(&job->desired, ev->desired))
        job->word = ev->revision;
    job->desired = *ev->desired;
}

/* An older copy that somebody has put back changes nothing. */
void lost_learn_phase(const Cluster *c, CoreJob *job, const Event *ev)
{
    const PhaseRecord *phase = ev->phase;
    if (!ev->health && !phase && lost_with_its_job(job, job->phase.submission))
        job->phase = (PhaseRecord){0};
    job->phase_lost = lost_by(ev, job->phase.serial > 0,
                              phase && phase->serial < job->phase.serial &&
                                  text_equal(phase->submission, job->phase.submission));
    if (!phase || job->phase_lost)
        return;
    job->phase_usec = c->now_usec;
    if (phase->grown_usec != job->phase.grown_usec)
        job->grown_usec = c->now_usec;
    if (phase->phase != PHASE_PENDING)
        job->pending_usec = 0;
    else if (job->pending_usec == 0)
        job->pending_usec = c->now_usec;
    job->phase = *phase;
}

/* True when the loss has lasted: a list that is not complete yet does not tell which records are missing. */
static bool lasts(Cluster *c, Scratch *s, CoreJob *job)
{
    if (job->lost_usec == 0)
        job->lost_usec = c->now_usec;
    return cluster_due(c, s, job->lost_usec + c->config.grace_usec);
}

/* ---- what is put back ---- */

static void say_put_back(const Cluster *c, const CoreJob *job, Lost lost, const char *kind,
                         const char *how, Decision *d)
{
    assert(lost != LOST_NOT &&
           lost != LOST_FOREIGN); /* records of another version are never overwritten */
    char why[RECORD_TEXT_MAX + 1];
    Text t = text_begin(why, sizeof(why));
    lost_say(&t, lost, kind, job->name);
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
    say_put_back(c, job, job->spec_lost, "specs", "; put back as it was known", d);
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
    job->desired = d->desired; /* so that the record, once read, is no new request of a user */
    job->desired_lost = job->desired_lost ? job->desired_lost : LOST_GONE;
    say_put_back(c, job, job->desired_lost ? job->desired_lost : LOST_GONE, "desired",
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
    say_put_back(c, job, job->phase_lost, "phases", "; put back as it was known", d);
    return true;
}

/* ---- the whole ---- */

bool world_is_lost(const CoreJob *job, Failure *ret)
{
    Lost lost = job->world_lost;
    if (!lost && job->world_stamp.mod == 0)
        lost = LOST_GONE;
    if (!lost && (job->world.generation < job->phase.generation ||
                  job->world.generation < job->ran_generation))
        lost = LOST_OLDER;
    bool other = !lost && job->world.generation > job->phase.generation;
    if (!lost && !other)
        return false;
    *ret = (Failure){.cause = CAUSE_WORLD_LOST, .node = -1, .rank = -1};
    Text t = text_begin(ret->evidence, sizeof(ret->evidence));
    lost_say(&t, lost ? lost : LOST_OLDER, lost ? "worlds" : "phases", job->name);
    return true;
}

bool decide_lost(Cluster *c, Scratch *s, CoreJob *job, Decision *d)
{
    char why[RECORD_TEXT_MAX + 1];
    const Incident *open = lost_find_incident(c, job);
    bool foreign = is_foreign(job, why, sizeof(why));
    if (!foreign && put_back_spec(c, job, d))
        return true;
    if (foreign || is_without_spec(job, why, sizeof(why))) {
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
