/* SPDX-License-Identifier: Apache-2.0 */
/* history-others.c - see history.h: checks incidents, their alerts, cordons, and the state at the
 * end of the history. */
#include "tests/history/history-internal.h"

#include "cluster/cordon.h"

#include <string.h>

/* ---- incidents: I10 ---- */

static const HistoryJob *job_of(HistoryChecker *h, const IncidentRecord *incident)
{
    const Entry *spec = incident->job[0] ? history_find(h, KEY_SPECS, incident->job) : NULL;
    const SpecRecord *record = entry_after(spec);
    bool present = record && (!incident->submission[0] || !record->submission[0] ||
                              strcmp(record->submission, incident->submission) == 0);
    return present ? spec->job : NULL;
}

/* Checks that an incident is removed only after it is resolved, or with its job. */
static void judge_removal(HistoryChecker *h, const Entry *e, const IncidentRecord *old)
{
    if (old && old->state == INCIDENT_OPEN && job_of(h, old))
        HISTORY_BROKEN(h, e, "I10", "%s is removed, and is not over", e->name);
}

static void judge_blame(HistoryChecker *h, const Entry *e, const IncidentRecord *incident,
                        const HistoryJob *job)
{
    const Entry *cordon = history_find(h, KEY_CORDONS, incident->node);
    const PhaseRecord *phase = entry_after(job->phase);
    Breach b;
    if (!phase || !job->phase->changes || job->touched || (cordon && cordon->touched))
        return;
    if (cordon && !cordon->changes && cordon->after.revision > phase->tried_revision)
        return;       /* the cordon was removed after the leader had decided */
    if (job->of[0]) { /* an evaluation */
        if (cordon && cordon->changes)
            HISTORY_BROKEN(h, e, "blame", "%s blames %s", job->spec->name, incident->node);
        if (incident->severity > SEVERITY_WARNING)
            HISTORY_BROKEN(h, e, "blame", "%s does more than warn", job->spec->name);
        return;
    }
    const SpecRecord *spec = entry_after(job->spec);
    const bool is_program = spec && !hash_equal(spec->program, (Hash){0});
    if (!rule_incident_is_blamed(incident, entry_after(cordon), is_program, &b))
        history_broken(h, e, &b);
    if (cordon && cordon->changes &&
        !rule_quarantine_is_of_two(incident, entry_before(cordon), entry_after(cordon), &b))
        history_broken(h, e, &b);
}

void history_judge_incident(HistoryChecker *h, const Entry *e)
{
    const IncidentRecord *old = entry_before(e), *incident = entry_after(e);
    Breach b;
    if (!e->after.there)
        judge_removal(h, e, old);
    if (!incident)
        return;
    h->counts.n_incidents += !old;
    if (strcmp(incident->id, e->name) != 0)
        HISTORY_BROKEN(h, e, "key", "is incident %s", incident->id);
    if (!rule_incident_follows(e->name, old, incident, &b))
        history_broken(h, e, &b);
    if ((incident->state == INCIDENT_RESOLVED) != (incident->resolved_usec != 0))
        HISTORY_BROKEN(h, e, "I10", "%s does not say when it was resolved", e->name);
    const HistoryJob *job = job_of(h, incident);
    if (job && incident->generation > MAX(job->generation, 0))
        HISTORY_BROKEN(h, e, "I10", "%s is of generation %lld, which never was", e->name,
                       (long long)incident->generation);
    if (!old && job)
        judge_blame(h, e, incident, job);
}

static const Delivery *find_delivery(const AlertRecord *alert, const char *sink)
{
    for (size_t i = 0; alert && i < alert->n_deliveries; i++)
        if (strcmp(alert->deliveries[i].sink, sink) == 0)
            return &alert->deliveries[i];
    return NULL;
}

/* Checks that a sink is notified of an incident's end only when the incident is over, and that the sink is not notified
 * of the incident again after that. */
void history_judge_alert(HistoryChecker *h, const Entry *e)
{
    const AlertRecord *old = entry_before(e), *alert = entry_after(e);
    const IncidentRecord *incident = entry_after(history_find(h, KEY_INCIDENTS, e->name));
    for (size_t i = 0; alert && i < alert->n_deliveries; i++) {
        const Delivery *is = &alert->deliveries[i], *was = find_delivery(old, is->sink);
        if (was && old->incident_usec == alert->incident_usec && was->state == DELIVERY_RESOLVED &&
            is->state != DELIVERY_RESOLVED)
            HISTORY_BROKEN(h, e, "I10", "%s is told again of what was over", is->sink);
        if (is->state == DELIVERY_RESOLVED && incident && incident->state == INCIDENT_OPEN &&
            incident->at_usec == alert->incident_usec)
            HISTORY_BROKEN(h, e, "I10", "%s is told that it is over, and it is not", is->sink);
    }
}

/* ---- cordons ---- */

void history_judge_cordon(HistoryChecker *h, const Entry *e)
{
    const CordonRecord *old = entry_before(e), *cordon = entry_after(e);
    Breach b;
    if (!cordon || e->touched)
        return;
    if (!rule_strikes_grow_by_one(e->name, old, cordon, &b))
        history_broken(h, e, &b);
    for (size_t i = 0; i < h->n_buckets; i++)
        for (const Entry *other = h->buckets[i]; other; other = other->in_bucket)
            if (other->kind == KEY_CORDONS && other != e && !other->touched && entry_after(other) &&
                !rule_job_is_to_blame(cordon, entry_after(other), &b))
                history_broken(h, e, &b);
}

/* ---- the end ---- */

static bool is_trouble(const IncidentRecord *incident)
{
    return strcmp(incident->cause, "store-trouble") == 0 ||
           strcmp(incident->cause, "record-lost") == 0 ||
           strcmp(incident->cause, "growth-stuck") == 0 ||
           strcmp(incident->cause, "diverging") == 0;
}

static void judge_last_incident(HistoryChecker *h, const Entry *e)
{
    const IncidentRecord *incident = entry_before(e);
    if (!incident || incident->state != INCIDENT_OPEN || !incident->job[0])
        return;
    const HistoryJob *job = job_of(h, incident);
    const PhaseRecord *phase = job ? entry_before(job->phase) : NULL;
    if (!job)
        HISTORY_BROKEN(h, e, "I10", "%s is still open, and its job is gone", e->name);
    else if (phase && !is_trouble(incident) &&
             (phase->phase == PHASE_RUNNING || phase->phase == PHASE_SUCCEEDED))
        HISTORY_BROKEN(h, e, "I10", "%s is still open, and %s is %s", e->name, incident->job,
                       job_phase_name(phase->phase));
}

void history_judge_end(HistoryChecker *h)
{
    for (size_t i = 0; i < h->n_buckets; i++)
        for (const Entry *e = h->buckets[i]; e; e = e->in_bucket) {
            if (e->kind == KEY_INCIDENTS)
                judge_last_incident(h, e);
            else if (e->kind < KEY_KINDS && e->job && e->before.there &&
                     !e->job->spec->before.there)
                HISTORY_BROKEN(h, e, "gone", "is left of a job that is gone");
        }
}
