/* SPDX-License-Identifier: Apache-2.0 */
/* incidents.c - see incidents.h. */
#include "controller/core/facts/incidents.h"

const Incident *cluster_incident_find_open(const Cluster *c, const char *cause)
{
    const Incident *open = NULL;
    for (int i = 0; i < c->limits.incidents; i++)
        if (c->incidents[i].used && c->incidents[i].record.state == INCIDENT_OPEN &&
            !c->incidents[i].record.job[0] && text_equal(c->incidents[i].record.cause, cause))
            open = &c->incidents[i];
    return open;
}

const char hold_cause[] = "nodes-vanished";

bool incident_is_notified(const Cluster *c, const IncidentRecord *record)
{
    for (int i = 0; i < c->limits.incidents; i++) {
        const Alert *alert = &c->alerts[i];
        if (alert->used && text_equal(alert->id, record->id))
            return alert->settled && alert->incident_usec == record->at_usec;
    }
    return false;
}

bool incident_has_place(const Cluster *c)
{
    for (int i = 0; i < c->limits.incidents; i++)
        if (!c->incidents[i].used)
            return true;
    return false;
}

void incident_write(const IncidentRecord *record, Text *t)
{
    text_add(t, record->cause);
    if (record->rank >= 0) {
        text_add(t, " of rank ");
        text_add_int(t, record->rank);
    }
    if (record->node[0]) {
        text_add(t, " on ");
        text_add(t, record->node);
    }
    if (record->evidence[0]) {
        text_add(t, ": ");
        text_add(t, record->evidence);
    }
}

bool incident_is_of(const IncidentRecord *record, const CoreJob *job)
{
    return text_equal(record->job, job->name) &&
           text_equal(record->submission, job->facts.submission);
}

const Incident *incident_find_open(const Cluster *c, const CoreJob *job)
{
    const Incident *newest = NULL;
    for (int i = 0; i < c->limits.incidents; i++) {
        const Incident *incident = &c->incidents[i];
        if (incident->used && incident->record.state == INCIDENT_OPEN &&
            !cause_ends_no_world(incident->record.cause) &&
            incident_is_of(&incident->record, job) &&
            (!newest || incident->record.generation > newest->record.generation))
            newest = incident;
    }
    return newest;
}

const Incident *incident_find_cause(const Cluster *c, const CoreJob *job, Cause cause)
{
    for (int i = 0; i < c->limits.incidents; i++) {
        const IncidentRecord *record = &c->incidents[i].record;
        if (c->incidents[i].used && record->state == INCIDENT_OPEN && incident_is_of(record, job) &&
            text_equal(record->cause, cause_name(cause)))
            return &c->incidents[i];
    }
    return NULL;
}

const Incident *lost_find_incident(const Cluster *c, const CoreJob *job)
{
    /* The submission is not compared: without a spec it is not known. */
    for (int i = 0; i < c->limits.incidents; i++) {
        const IncidentRecord *record = &c->incidents[i].record;
        if (c->incidents[i].used && record->state == INCIDENT_OPEN &&
            text_equal(record->job, job->name) &&
            text_equal(record->cause, cause_name(CAUSE_RECORD_LOST)))
            return &c->incidents[i];
    }
    return NULL;
}
