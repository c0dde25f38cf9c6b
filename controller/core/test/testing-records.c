/* SPDX-License-Identifier: Apache-2.0 */
/* testing-records.c - see testing-scenario.h: the command `show` prints fields of records that the lines of
 * decisions do not show. */
#include "controller/core/test/testing-scenario.h"

static double after(uint64_t usec)
{
    return usec ? (double)((int64_t)usec - (int64_t)TRACE_EPOCH_USEC) / 1e6 : -1;
}

static void show_phase(Scenario *s, const char *job, const PhaseRecord *p)
{
    const PhaseSpent *spent = &p->spent;
    begin_line(s);
    say(s,
        "phase %s: since %.3f of %.3f; idle %.3f start %.3f running %.3f recovery %.3f resize %.3f",
        job, after(p->since_usec), after(p->started_usec), (double)spent->idle_usec / 1e6,
        (double)spent->start_usec / 1e6, (double)spent->running_usec / 1e6,
        (double)spent->recovery_usec / 1e6, (double)spent->resize_usec / 1e6);
    say(s, "; useful %.2f, tried %lld, resumed %lld, committed %lld of %lld", p->useful_sec,
        (long long)p->tried_revision, (long long)p->furthest_resume, (long long)p->committed.step,
        (long long)p->committed.generation);
    if (p->grown_usec)
        say(s, ", grown %.3f", after(p->grown_usec));
    if (p->store_lost_usec)
        say(s, ", store lost %.3f", after(p->store_lost_usec));
    if (p->pause_usec)
        say(s, ", pauses %.3f", (double)p->pause_usec / 1e6);
    say(s, ", serial %lld, submission \"%s\"\n", (long long)p->serial, p->submission);
}

static void show_world(Scenario *s, const char *job, const WorldRecord *w)
{
    begin_line(s);
    say(s,
        "world %s %lld: decided %.3f, %d ranks, committed %lld of %lld, submission \"%s\" \"%s\"\n",
        job, (long long)w->generation, after(w->decided_usec), w->size,
        (long long)w->committed.step, (long long)w->committed.generation, w->submission, w->reason);
}

static void show_incident(Scenario *s, const IncidentRecord *i)
{
    begin_line(s);
    say(s,
        "incident %s %s: generation %lld, at %.3f, over %.3f, first step %.3f, submission \"%s\"\n",
        i->id,
        i->state == INCIDENT_OPEN ? "open"
        : i->ended                ? "ended"
                                  : "resolved",
        (long long)i->generation, after(i->at_usec), after(i->resolved_usec),
        after(i->first_step_usec), i->submission);
}

static void show_cordon(Scenario *s, const CordonRecord *record)
{
    for (size_t i = 0; i < record->n_causes; i++) {
        const CordonCause *cause = &record->causes[i];
        begin_line(s);
        say(s, "cordon %s %zu: since %.3f, until %.3f, strikes %d, job \"%s\" submission \"%s\"\n",
            record->node, i, after(cause->since_usec), after(cause->until_usec), cause->strikes,
            cause->job, cause->submission);
    }
}

static void show_checkpoints(Scenario *s, const char *job, const CheckpointsRecord *record)
{
    begin_line(s);
    say(s, "checkpoints %s of submission \"%s\":", job, record->submission);
    for (size_t i = 0; i < record->n_commits; i++)
        say(s, " %lld of %lld%s%s%s", (long long)record->commits[i].step,
            (long long)record->commits[i].generation, record->commits[i].struck_out ? " out" : "",
            record->commits[i].takes_over[0] ? " takes over by " : "",
            record->commits[i].takes_over);
    say(s, "\n");
}

static void show_request(Scenario *s, const RequestRecord *r)
{
    begin_line(s);
    say(s, "request %s of %s: at %.3f, machine \"%s\", submission \"%s\"\n", r->id, r->kind,
        after(r->at_usec), r->machine_id, r->submission);
}

void show(Scenario *s)
{
    TraceEntry *entries;
    size_t n = trace_entries(s->runner, &entries);
    for (size_t i = 0; i < n; i++) {
        const TraceEntry *e = &entries[i];
        if (!e->record || e->health)
            continue;
        if (e->kind == EVENT_PHASE)
            show_phase(s, e->name, e->record);
        else if (e->kind == EVENT_WORLD)
            show_world(s, e->name, e->record);
        else if (e->kind == EVENT_INCIDENT)
            show_incident(s, e->record);
        else if (e->kind == EVENT_CORDON)
            show_cordon(s, e->record);
        else if (e->kind == EVENT_CHECKPOINTS)
            show_checkpoints(s, e->name, e->record);
        else if (e->kind == EVENT_REQUEST)
            show_request(s, e->record);
    }
}
