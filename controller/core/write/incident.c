/* SPDX-License-Identifier: Apache-2.0 */
/* incident.c - incidents of jobs: cause, rank and node, and how long each phase of the recovery took.
 *
 * The decision that answers a failure opens its incident, or continues an open incident of the same outage. The
 * incident is resolved when a later world of the job completes its first step. Its id is "<job>-<generation>" of
 * the world that failed. */
#include "controller/core/write/incident.h"

#include "controller/core/facts/commits.h"
#include "controller/core/facts/incidents.h"
#include "controller/core/facts/reports.h"
#include "controller/core/state/text-buffer.h"

#include <string.h>

static double seconds_between(uint64_t from_usec, uint64_t to_usec)
{
    return to_usec > from_usec ? (double)(to_usec - from_usec) / 1e6 : 0;
}

static int64_t incident_mod(const Cluster *c, const char *id)
{
    for (int i = 0; i < c->limits.incidents; i++)
        if (c->incidents[i].used && text_equal(c->incidents[i].record.id, id))
            return c->incidents[i].stamp.mod;
    return 0;
}

/* Returns the open incident of the same fault, or NULL. All failures by one outage of a store are one incident; so
 * are a hang and the loss of a slot by that hang. */
static const Incident *find_same_fault(const Cluster *c, const CoreJob *job, const Failure *failure)
{
    if (failure->cause == CAUSE_STORE_UNREACHABLE)
        return incident_find_cause(c, job, failure->cause);
    const Incident *open =
        failure->cause == CAUSE_SLOT_LOST ? incident_find_cause(c, job, CAUSE_HANG) : NULL;
    const CoreNode *node = &c->nodes[MAX(failure->node, 0)];
    return open && failure->node >= 0 && node->record.lost_slots &&
                   text_equal(open->record.node, node->record.name)
               ? open
               : NULL;
}

static bool continue_outage(const Cluster *c, const CoreJob *job, const Failure *failure,
                            Decision *d)
{
    const Incident *open = find_same_fault(c, job, failure);
    if (!open)
        return false;
    d->incident = open->record;
    d->incident.severity = MAX(d->incident.severity, cause_rule(failure->cause)->severity);
    text_copy(d->incident.evidence, sizeof(d->incident.evidence), failure->evidence);
    d->incident_revision = open->stamp.mod;
    d->put_incident = true;
    return true;
}

static void name_incident(IncidentRecord *record, const CoreJob *job, int64_t generation,
                          int64_t revision)
{
    Text id = text_begin(record->id, sizeof(record->id));
    text_add(&id, job->name);
    text_add(&id, "-");
    text_add_int(&id, generation);
    text_add(&id, revision ? "." : "");
    if (revision)
        text_add_int(&id, revision);
}

IncidentRecord *incident_begin(const Cluster *c, const CoreJob *job, Cause cause,
                               int64_t generation, int64_t revision, Decision *d)
{
    assert(!d->put_incident && job->used);
    IncidentRecord *record = &d->incident;
    memset(record, 0, sizeof(*record));
    name_incident(record, job, generation, revision);
    /* The id is in use: by an incident of an earlier job, or of another cause at the same revision. */
    for (int64_t next = revision ? revision + 1 : c->seen_revision; incident_mod(c, record->id);
         next++)
        name_incident(record, job, generation, next);
    record->state = INCIDENT_OPEN;
    record->severity = cause_rule(cause)->severity;
    text_copy(record->job, sizeof(record->job), job->name);
    text_copy(record->submission, sizeof(record->submission), job->facts.submission);
    text_copy(record->cause, sizeof(record->cause), cause_name(cause));
    record->rank = -1;
    record->generation = generation;
    record->detect_sec = record->decide_sec = record->stop_sec = -1;
    record->start_sec = record->restore_sec = record->replay_sec = -1;
    d->put_incident = true;
    d->incident_revision = 0;
    return record;
}

/* Returns the step that the job had reached, from which a new incident counts the lost steps. Returns 0 if the world
 * has trained no step since an earlier failure: the incident of that failure counts the lost steps, also if the next
 * world goes back further. */
static int64_t find_reached_step(const Cluster *c, const CoreJob *job)
{
    const int64_t reached = job_reached_step(c, job);
    const bool trained = reached > resume_point_step(&job->world.resume);
    return trained || !incident_find_open(c, job) ? reached : 0;
}

void incident_count_lost(int64_t resumed_step, IncidentRecord *record)
{
    if (record->reached_step > 0)
        record->lost_steps = MAX(0, record->reached_step - resumed_step);
}

void incident_open(const Cluster *c, const CoreJob *job, const Failure *failure, Decision *d)
{
    assert(failure->cause > CAUSE_RECORD_LOST && !d->put_incident);
    assert(failure->node < c->limits.nodes);
    if (continue_outage(c, job, failure, d))
        return;
    IncidentRecord *record = incident_begin(c, job, failure->cause, job->world.generation, 0, d);
    if (failure->node >= 0)
        text_copy(record->node, sizeof(record->node), c->nodes[failure->node].record.name);
    record->rank = failure->rank;
    record->step = failure->step;
    record->reached_step = find_reached_step(c, job);
    text_copy(record->evidence, sizeof(record->evidence), failure->evidence);
    /* The node's clock may be wrong, so the time is limited to the life of the world. */
    record->at_usec = MIN(MAX(failure->at_usec, job->world.decided_usec), c->real_usec);
    record->detect_sec = seconds_between(record->at_usec, job->failing_real_usec);
    record->decide_sec =
        seconds_between(MAX(record->at_usec, job->failing_real_usec), c->real_usec);
    d->incident_revision = incident_mod(c, record->id);
}

typedef struct Milestones {
    uint64_t stopped_usec, started_usec, ready_usec;
} Milestones;

static void find_milestones(const Cluster *c, const CoreJob *job, Milestones *ret)
{
    *ret = (Milestones){0};
    for (int i = 0; i < c->n_reports; i++) {
        const NodeRanks *report = &c->reports[i];
        if (!report->used || report->job != job_index(c, job))
            continue;
        if (report->generation == job->world.generation) {
            ret->stopped_usec = MAX(ret->stopped_usec, report->killed_usec);
            ret->started_usec = MAX(ret->started_usec, report->started_usec);
            ret->ready_usec = MAX(ret->ready_usec, report->ready_usec);
            continue;
        }
        for (int k = 0; k < report->n_ranks; k++)
            if (report->ranks[k].state == RANK_EXITED)
                ret->stopped_usec = MAX(ret->stopped_usec, report->ranks[k].at_usec);
    }
}

/* Times the phases of the recovery. They follow each other: the part of a phase that overlaps an earlier one is not
 * counted. */
static void time_phases(const Cluster *c, const CoreJob *job, IncidentRecord *record)
{
    Milestones m;
    find_milestones(c, job, &m);
    uint64_t decided = job->world.decided_usec;
    uint64_t stopped = MAX(decided, m.stopped_usec), started = MAX(stopped, m.started_usec);
    uint64_t known = record->at_usec + (uint64_t)(record->detect_sec * 1e6);
    record->decide_sec = seconds_between(known, decided);
    record->stop_sec = seconds_between(decided, stopped);
    record->start_sec = seconds_between(stopped, started);
    record->restore_sec = seconds_between(started, m.ready_usec);
}

void incident_resolve(const Cluster *c, const CoreJob *job, const Incident *incident, Decision *d)
{
    assert(incident->used && incident->record.state == INCIDENT_OPEN && !d->put_incident);
    d->incident = incident->record;
    d->incident.state = INCIDENT_RESOLVED;
    d->incident.resolved_usec = c->real_usec;
    d->put_incident = true;
    d->incident_revision = incident->stamp.mod;
    const NodeRanks *rank0 = job_rank0_report(c, job);
    const bool trains = rank0 && rank0->first_step > 0;
    if (phase_is_active(job->phase.phase))
        incident_count_lost(trains ? rank0->first_step - 1 : resume_point_step(&job->world.resume),
                            &d->incident);
    const bool is_last = text_equal(job->world.incident, incident->record.id);
    if (!rank0 || (!is_last && d->incident.lost_steps == 0))
        return;
    if (is_last) /* an earlier failure of the same recovery was timed when it happened */
        time_phases(c, job, &d->incident);
    d->incident.first_step_usec = job_world_began_usec(c, job);
    if (d->incident.lost_steps == 0)
        d->incident.replay_sec = 0;
}

/* True when the job's present world is the first to train a step after the incident's failure. */
static bool is_of_world(const Cluster *c, const CoreJob *job, const IncidentRecord *record)
{
    const NodeRanks *rank0 = job_rank0_report(c, job);
    return text_equal(record->id, job->world.incident) ||
           (incident_is_of(record, job) && rank0 &&
            record->first_step_usec == rank0->first_step_usec);
}

/* Adds how long the replay took. Replay ends when the new world has reached the step of the old world. */
bool incident_add_replay(const Cluster *c, const CoreJob *job, Decision *d)
{
    for (int i = 0; i < c->limits.incidents; i++) {
        const IncidentRecord *record = &c->incidents[i].record;
        if (!c->incidents[i].used || record->state != INCIDENT_RESOLVED ||
            record->replay_sec >= 0 || record->first_step_usec == 0 ||
            !is_of_world(c, job, record) || job->progress.generation != job->world.generation ||
            job->progress.step < resume_point_step(&job->world.resume) + record->lost_steps)
            continue;
        d->incident = *record;
        d->incident.replay_sec = seconds_between(record->first_step_usec, job->progress.at_usec);
        d->put_incident = true;
        d->incident_revision = c->incidents[i].stamp.mod;
        return true;
    }
    return false;
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
