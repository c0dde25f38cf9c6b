/* SPDX-License-Identifier: Apache-2.0 */
/* testing-notifier.c - see testing-notifier.h. */
#include "controller/core/test/testing-notifier.h"

#include <string.h>

enum { STEPS_MAX = 1000 };

static void say(Lab *lab, const char *format, ...) _printf_(2, 3);
static void say(Lab *lab, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    lab->used += (size_t)vsnprintf(lab->log + lab->used, sizeof(lab->log) - lab->used, format, ap);
    va_end(ap);
    assert_true(lab->used < sizeof(lab->log));
}

static const char *const tells[] = {"trigger", "resolve", "beat"};
static const char *const states[] = {"sending", "triggered", "resolved", "failed"};

static void say_deliveries(Lab *lab, const Delivery *d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        say(lab, "%s %s %s %s", i ? "," : "", d[i].sink, states[d[i].state],
            severity_name(d[i].severity));
        if (d[i].attempts)
            say(lab, " after %d: %s", d[i].attempts, d[i].text);
    }
}

void forget(Lab *lab)
{
    lab->used = 0;
    lab->log[0] = '\0';
}

/* ---- the lab ---- */

Lab *lab_new(const NotifierSink *sinks, int n)
{
    Lab *lab = calloc(1, sizeof(*lab));
    assert_non_null(lab);
    lab->config = notifier_config_default;
    lab->config.n_sinks = n;
    for (int i = 0; i < n; i++)
        lab->config.sinks[i] = sinks[i];
    void *memory = malloc(notifier_bytes(LAB_PAGES));
    assert_non_null(memory);
    lab->notifier = notifier_init(memory, LAB_PAGES, &lab->config);
    lab->now = EPOCH;
    lab->lease = USEC_INFINITY;
    lab->random = UINT32_MAX;
    return lab;
}

void lab_free(Lab *lab)
{
    free(lab->notifier);
    free(lab);
}

static Event event_of(const Lab *lab, EventKind kind, const char *name, const void *record)
{
    Event event = {.kind = kind,
                   .now_usec = lab->now,
                   .real_usec = lab->now,
                   .revision = lab->revision,
                   .record = record};
    (void)snprintf(event.name, sizeof(event.name), "%s", name);
    return event;
}

void feed(Lab *lab, EventKind kind, const char *name, const void *record)
{
    lab->revision++;
    Event event = event_of(lab, kind, name, record);
    assert_true(notifier_observe(lab->notifier, &event));
}

void lead(Lab *lab, int64_t term)
{
    Event event = event_of(lab, term ? EVENT_LEADING : EVENT_DEPOSED, "", NULL);
    event.term = term;
    memset(lab->sent, 0, sizeof(lab->sent));
    assert_true(notifier_observe(lab->notifier, &event));
    run(lab);
}

void put_incident(Lab *lab, const char *id, Severity severity, bool over)
{
    IncidentRecord incident = {.severity = severity, .at_usec = EPOCH, .rank = -1};
    incident.state = over ? INCIDENT_RESOLVED : INCIDENT_OPEN;
    incident.resolved_usec = over ? lab->now : 0;
    (void)snprintf(incident.id, sizeof(incident.id), "%s", id);
    feed(lab, EVENT_INCIDENT, id, &incident);
    run(lab);
}

static void store(Lab *lab, const NotifierAction *a)
{
    if (a->request) {
        say(lab, "answer %s \"%s\":", a->name, a->request->answer);
        say_deliveries(lab, a->request->deliveries, a->request->n_deliveries);
    } else if (a->alert) {
        say(lab, "store %s term %lld:", a->name, (long long)a->alert->term);
        say_deliveries(lab, a->alert->deliveries, a->alert->n_deliveries);
        say(lab, "%s", a->alert->settled ? " settled" : "");
    } else {
        say(lab, "remove %s", a->name);
    }
    Outcome outcome = lab->outcome;
    lab->outcome = OUTCOME_DONE;
    say(lab, "%s\n", outcome == OUTCOME_DONE ? "" : " - not done");
    if (outcome == OUTCOME_DONE) {
        EventKind kind = a->request ? EVENT_REQUEST : EVENT_ALERT;
        feed(lab, kind, a->name, a->request ? (const void *)a->request : a->alert);
    }
    notifier_stored(lab->notifier, a->id, outcome, lab->revision);
}

static void send_message(Lab *lab, const NotifierAction *a)
{
    for (int i = 0; i < LAB_SENDS_MAX; i++) {
        Sent *sent = &lab->sent[i];
        if (sent->id)
            continue;
        *sent = (Sent){.id = a->id, .sink = a->sink, .message_kind = a->message_kind};
        (void)snprintf(sent->incident, sizeof(sent->incident), "%s",
                       a->incident ? a->incident->id : "-");
        say(lab, "%s to %s", tells[a->message_kind], lab->config.sinks[a->sink].name);
        if (a->incident)
            say(lab, ": %s %s", severity_name(a->incident->severity), a->incident->id);
        if (a->incident && a->told != a->incident->severity)
            say(lab, ", told as %s", severity_name(a->told));
        say(lab, "\n");
        return;
    }
    fail_msg("too many messages");
}

void run(Lab *lab)
{
    NotifierAction action;
    for (int i = 0; i < STEPS_MAX; i++) {
        notifier_next(lab->notifier, lab->now, lab->now, lab->lease, &action);
        lab->wake = action.wake_usec;
        if (action.kind == NOTIFIER_REST)
            return;
        if (action.kind == NOTIFIER_SEND)
            send_message(lab, &action);
        else
            store(lab, &action);
    }
    fail_msg("the courier does not come to rest");
}

void pass(Lab *lab, double seconds)
{
    uint64_t until = lab->now + (uint64_t)(seconds * 1e6);
    while (lab->wake <= until) {
        lab->now = MAX(lab->now, lab->wake);
        run(lab);
    }
    lab->now = until;
}

void answer(Lab *lab, const char *sink, const char *incident, Answer a)
{
    for (int i = 0; i < LAB_SENDS_MAX; i++) {
        Sent *sent = &lab->sent[i];
        if (!sent->id || strcmp(lab->config.sinks[sent->sink].name, sink) != 0 ||
            strcmp(sent->incident, incident) != 0)
            continue;
        int64_t id = sent->id;
        sent->id = 0;
        notifier_answered(lab->notifier, id, &a, lab->now, lab->now, lab->random);
        run(lab);
        return;
    }
    fail_msg("nothing was sent to %s about %s", sink, incident);
}
