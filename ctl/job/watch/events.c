/* SPDX-License-Identifier: Apache-2.0 */
/* events.c - `sdctl job events`: lists worlds, incidents and checkpoints in the order of time. */
#include "ctl/arguments.h"
#include "ctl/job/verbs.h"
#include "ctl/model-json.h"
#include "ctl/model.h"
#include "ctl/print.h"
#include "ctl/table.h"

#include <string.h>

/* Adds an event in the order of time; events with equal times stay in the order of addition. Takes the reference of
 * details, which may be NULL. */
static void add(json_t *events, uint64_t at_usec, const char *event, int64_t generation,
                int64_t step, json_t *details, const char *format, ...) _printf_(7, 8);
static void add(json_t *events, uint64_t at_usec, const char *event, int64_t generation,
                int64_t step, json_t *details, const char *format, ...)
{
    char text[1200];
    const double at = (double)at_usec * 1e-6;
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    json_t *e = json_pack("{s:f, s:s, s:I, s:I, s:s}", "at", at, "event", event, "generation",
                          (json_int_t)generation, "step", (json_int_t)step, "text", text);
    if (e && details)
        json_object_update(e, details);
    json_decref(details);
    size_t i = json_array_size(events);
    while (i > 0 && json_number(json_array_get(events, i - 1), "at") > at)
        i--;
    json_array_insert_new(events, i, e);
}

static void add_incident(json_t *events, const IncidentRecord *n)
{
    char rank[24] = "";
    if (n->rank >= 0)
        (void)snprintf(rank, sizeof(rank), " of rank %d", n->rank);
    add(events, n->at_usec, "incident", n->generation, n->step,
        json_pack("{s:o}", "incident", model_incident_json(n)), "%s%s%s%s: %s", n->cause, rank,
        *n->node ? " on " : "", n->node, n->evidence);
    if (n->state == INCIDENT_RESOLVED && !model_ended_world(n))
        add(events, n->resolved_usec, "over", n->generation, n->step,
            json_pack("{s:s}", "id", n->id), "%s after %.2f s", n->cause, model_recovery_sec(n));
    else if (n->state == INCIDENT_RESOLVED && n->ended)
        add(events, n->resolved_usec, "ended", n->generation, n->step,
            json_pack("{s:s}", "id", n->id), "%s, with the job", n->cause);
    else if (n->state == INCIDENT_RESOLVED)
        add(events, n->first_step_usec ? n->first_step_usec : n->resolved_usec, "recovered",
            n->generation + 1, n->step, json_pack("{s:s}", "id", n->id),
            "from %s in %.2f s, %lld step%s again", n->cause, model_recovery_sec(n),
            (long long)n->lost_steps, n->lost_steps == 1 ? "" : "s");
}

static void add_commit(json_t *events, const CheckpointCommit *c)
{
    char text[HASH_TEXT_BYTES];
    const char *digest = print_digest(c->digest, text);
    add(events, c->at_usec, "checkpoint", c->generation, c->step,
        json_pack("{s:s, s:s?, s:b}", "uri", c->uri, "digest", digest, "struck_out", c->struck_out),
        "%s%s%s%s%s", c->struck_out ? "struck out, " : "", digest ? "digest " : "",
        digest ? digest : "", digest ? ", " : "", c->uri);
}

/* Adds the newest request of an operator. Earlier requests are shown in the reasons of their worlds. */
static void add_wish(json_t *events, const ModelJob *job)
{
    const DesiredRecord *d = &job->desired;
    char what[48] = "to run";
    if (d->state == DESIRED_RUNNING && d->target)
        (void)snprintf(what, sizeof(what), "to run on %d rank%s", d->target,
                       d->target == 1 ? "" : "s");
    else if (d->state != DESIRED_RUNNING)
        (void)snprintf(what, sizeof(what), d->state == DESIRED_STOPPED ? "to stop" : "to go");
    add(events, d->asked_usec, "asked", 0, 0, json_pack("{s:s}", "by", d->by), "%s, by %s", what,
        *d->by ? d->by : "?");
}

static json_t *events_of(const Model *m, const ModelJob *job)
{
    json_t *events = json_array();
    if (job->has_spec)
        add(events, job->spec.submitted_usec, "submitted", 0, 0,
            json_pack("{s:s}", "by", job->spec.by), "the job was submitted%s%s",
            *job->spec.by ? " by " : "", job->spec.by);
    if (job->has_desired && job->desired.asked_usec)
        add_wish(events, job);
    for (size_t i = 0; i < m->n_incidents; i++)
        if (model_is_incident_of(&m->incidents[i], job))
            add_incident(events, &m->incidents[i]);
    for (size_t i = 0; i < job->phase.n_worlds; i++) {
        const PastWorld *w = &job->phase.worlds[i];
        add(events, w->decided_usec, "world", w->generation, w->step,
            json_pack("{s:i, s:s}", "size", w->size, "reason", w->reason), "%d rank%s, %s", w->size,
            w->size == 1 ? "" : "s", w->reason);
    }
    for (size_t i = 0; i < job->checkpoints.n_commits; i++)
        add_commit(events, &job->checkpoints.commits[i]);
    if (model_has_ended(job))
        add(events, job->phase.since_usec, job_phase_name(job->phase.phase), job->phase.generation,
            model_step(job), NULL, "%s", job->phase.reason);
    return events;
}

int job_events(const Arguments *a)
{
    Error err = ERROR_INIT;
    ModelJob *job;
    _cleanup_(model_freep) Model *model = NULL;
    int r = model_open(&a->client, &model, &err);
    if (r == 0)
        r = model_find_any_job(model, a->operand, &job, &err);
    if (r < 0)
        return ctl_fail(&err, r);

    json_t *events = events_of(model, job), *e;
    size_t i;
    if (a->json) {
        print_json(events);
        return CTL_DONE;
    }
    static const char *const heads[] = {"TIME", "EVENT", "GEN", "STEP", "WHAT"};
    Table *t = table_new(heads, ELEMENTSOF(heads));
    json_array_foreach (events, i, e) {
        char at[TIME_TEXT_BYTES];
        table_add(t, PAINT_NONE, "%s", date_text((uint64_t)(json_number(e, "at") * 1e6), at));
        table_add(t, paint_of(json_text(e, "event")), "%s", json_text(e, "event"));
        table_add(t, PAINT_NONE, "%lld", json_count(e, "generation"));
        table_add(t, PAINT_NONE, "%lld", json_count(e, "step"));
        table_add(t, PAINT_NONE, "%s", json_text(e, "text"));
    }
    table_print(t);
    json_decref(events);
    return CTL_DONE;
}
