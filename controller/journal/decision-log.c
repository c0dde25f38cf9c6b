/* SPDX-License-Identifier: Apache-2.0 */
/* decision-log.c - see decision-log.h. */
#include "controller/journal/decision-log.h"

#include "base/message-id.h"
#include "base/slots.h"
#include "cluster/resume.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 1536 };

typedef struct Speaker {
    LogLineHandler handler;
    void *userdata;
} Speaker;

static void log_entry(const Speaker *s, LogLevel level, const char *message_id, const char *format,
                      ...) _printf_(4, 5);
static void log_entry(const Speaker *s, LogLevel level, const char *message_id, const char *format,
                      ...)
{
    char line[LINE_BYTES];
    va_list ap;
    va_start(ap, format);
    (void)vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    s->handler(&(LogLine){level, message_id, format, line}, s->userdata);
}

/* Adds a phase of the recovery, unless its length is unknown. */
static void add_phase(char *text, size_t size, const char *name, double sec)
{
    size_t used = strlen(text);
    if (sec >= 0)
        (void)snprintf(text + used, size - used, "%s %s %.3f", used ? "," : ":", name, sec);
}

static void log_resolved(const Speaker *s, const IncidentRecord *i)
{
    char phases[160] = "";
    add_phase(phases, sizeof(phases), "detect", i->detect_sec);
    add_phase(phases, sizeof(phases), "decide", i->decide_sec);
    add_phase(phases, sizeof(phases), "stop", i->stop_sec);
    add_phase(phases, sizeof(phases), "start", i->start_sec);
    add_phase(phases, sizeof(phases), "restore", i->restore_sec);
    log_entry(s, LOG_LEVEL_INFO, MESSAGE_RECOVERED,
              "incident %s resolved%s%s JOB=%s GENERATION=%lld", i->id, phases, *phases ? " s" : "",
              i->job, (long long)i->generation);
}

static void log_incident(const Speaker *s, const IncidentRecord *i)
{
    if (i->state == INCIDENT_OPEN)
        log_entry(s, LOG_LEVEL_WARNING, MESSAGE_INCIDENT,
                  "incident %s: %s: %s JOB=%s GENERATION=%lld NODE=%s RANK=%d STEP=%lld "
                  "LOST_STEPS=%lld",
                  i->id, i->cause, i->evidence, i->job, (long long)i->generation, i->node, i->rank,
                  (long long)i->step, (long long)i->lost_steps);
    else if (i->replay_sec >= 0 && i->lost_steps > 0) /* the replay ends after the incident */
        log_entry(s, LOG_LEVEL_INFO, NULL,
                  "incident %s: %lld lost step%s trained again in %.3f s JOB=%s GENERATION=%lld",
                  i->id, (long long)i->lost_steps, i->lost_steps == 1 ? "" : "s", i->replay_sec,
                  i->job, (long long)i->generation);
    else
        log_resolved(s, i);
}

static void log_cordon(const Speaker *s, const CordonRecord *record, int changed)
{
    static const char *const words[] = {"strike against", "cordoned", "to be drained",
                                        "quarantined"};
    const CordonCause *c = changed >= 0 ? &record->causes[changed] : NULL;
    if (!c && record->n_causes == 0)
        log_entry(s, LOG_LEVEL_INFO, MESSAGE_NODE_JUDGED, "uncordoned NODE=%s", record->node);
    else if (!c)
        log_entry(s, LOG_LEVEL_INFO, MESSAGE_NODE_JUDGED,
                  "one cause against %s has ended, %zu remain NODE=%s", record->node,
                  record->n_causes, record->node);
    else if (c->owner == CORDON_JOB)
        log_entry(s, LOG_LEVEL_WARNING, MESSAGE_NODE_JUDGED,
                  "%s %s for one job: %s NODE=%s JOB=%s STRIKES=%d", words[c->mode], record->node,
                  c->reason, record->node, c->job, c->strikes);
    else
        log_entry(s, LOG_LEVEL_WARNING, MESSAGE_NODE_JUDGED, "%s %s: %s NODE=%s STRIKES=%d",
                  words[c->mode], record->node, c->reason, record->node, c->strikes);
}

/* Logs "world 3 runs on n1 (slots 0-7), n2 (slots 0-3)", with as many nodes as fit on a line. */
static void log_places(const Speaker *s, const WorldRecord *world, const char *job)
{
    char places[LINE_BYTES - 200] = "", slots[SLOTS_TEXT_MAX];
    size_t used = 0;
    for (size_t i = 0; i < world->n_runs && used + 1 < sizeof(places); i++) {
        int n = snprintf(places + used, sizeof(places) - used, "%s%s (slots %s)", i ? ", " : "",
                         world->runs[i].node, slots_format(world->runs[i].slots, slots));
        used = MIN(used + (size_t)n, sizeof(places) - 1);
    }
    log_entry(s, LOG_LEVEL_DEBUG, NULL, "world %lld runs on %s JOB=%s GENERATION=%lld",
              (long long)world->generation, places, job, (long long)world->generation);
}

static void log_world(const Speaker *s, const Decision *d)
{
    const WorldRecord *world = &d->world;
    const int64_t step = resume_point_step(&world->resume);
    log_entry(
        s, LOG_LEVEL_INFO, MESSAGE_WORLD,
        "world %lld of %d ranks on %zu nodes from step %lld: %s JOB=%s GENERATION=%lld STEP=%lld",
        (long long)world->generation, world->size, world->n_runs, (long long)step, world->reason,
        d->job, (long long)world->generation, (long long)step);
    if (world->runs)
        log_places(s, world, d->job);
}

static void log_upkeep(const Speaker *s, const Decision *d)
{
    if (d->remove_generation)
        log_entry(s, LOG_LEVEL_DEBUG, NULL, "records of generation %lld removed JOB=%s",
                  (long long)d->remove_generation, d->job);
    if (d->remove_incident[0])
        log_entry(s, LOG_LEVEL_DEBUG, NULL, "incident %s forgotten", d->remove_incident);
    if (d->put_request)
        log_entry(s, LOG_LEVEL_INFO, NULL, "request %s for %s: %s", d->request.kind,
                  d->request.target, d->request.answer);
    if (d->remove_request && strcmp(d->request.kind, "uncordon") == 0)
        log_entry(s, LOG_LEVEL_INFO, MESSAGE_NODE_JUDGED,
                  "%s may have ranks again, asked by %s NODE=%s", d->request.target, d->request.by,
                  d->request.target);
    else if (d->remove_request)
        log_entry(s, LOG_LEVEL_DEBUG, NULL, "request %s forgotten", d->request.id);
    if (d->remove_job)
        log_entry(s, LOG_LEVEL_INFO, NULL, "every record removed JOB=%s", d->job);
}

void decision_log_lines(const Decision *d, LogLineHandler handler, void *userdata)
{
    const Speaker s = {handler, userdata};
    if (d->put_incident)
        log_incident(&s, &d->incident);
    for (int i = 0; i < d->n_cordons; i++)
        log_cordon(&s, &d->cordons[i], d->cordon_changed[i]);
    if (d->put_checkpoints && strcmp(d->incident.cause, "checkpoint-corrupt") == 0)
        log_entry(&s, LOG_LEVEL_WARNING, NULL,
                  "a checkpoint that does not verify is struck out JOB=%s", d->job);
    if (d->put_world)
        log_world(&s, d);
    if (d->put_phase)
        log_entry(&s, LOG_LEVEL_INFO, MESSAGE_PHASE, "%s%s%s%s%s JOB=%s GENERATION=%lld",
                  job_phase_name(d->phase.phase), d->phase.go ? ", go" : "",
                  d->phase.leave ? ", leave" : "", d->phase.reason[0] ? ": " : "", d->phase.reason,
                  d->job, (long long)d->phase.generation);
    log_upkeep(&s, d);
}
