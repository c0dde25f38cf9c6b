/* SPDX-License-Identifier: Apache-2.0 */
/* payload.c - see payload.h. */
#include "controller/alerting/payload.h"

#include "base/json/json-build.h"
#include "base/json/json.h"
#include "base/memory.h"
#include "controller/alerting/mail.h"
#include "controller/alerting/slack.h"

#include <string.h>

enum { EXPIRES_AFTER = 4 /* Alertmanager ends an alert after this many repetitions are lost */ };

/* ---- bodies (NULL: out of memory) ---- */

/* Returns the fields of the incident. A text that a process printed is UTF-8, because the codec of the records has
 * converted it. */
static json_t *details(const PayloadCall *call)
{
    const IncidentRecord *i = call->incident;
    JsonBuild b = json_build();
    json_add_text(&b, "incident", i->id);
    json_add_text(&b, "cause", i->cause);
    json_add_text(&b, "severity", severity_name(i->severity));
    json_add_text(&b, "job", i->job);
    json_add_text(&b, "node", i->node);
    json_add_int(&b, "generation", i->generation);
    json_add_int(&b, "step", i->step);
    json_add_int(&b, "lost_steps", i->lost_steps);
    json_add_text(&b, "evidence", i->evidence);
    json_add_text(&b, "action", payload_advice(i));
    json_t *d = json_build_end(&b);
    if (d && i->rank >= 0 && json_object_set_new(d, "rank", json_integer(i->rank)) < 0) {
        json_decref(d);
        return NULL;
    }
    return d;
}

static json_t *pagerduty_body(const PayloadCall *call, const char *key)
{
    const Sink *sink = &call->file->sinks[call->sink];
    const IncidentRecord *i = call->incident;
    char summary[PAYLOAD_SUMMARY_BYTES], at[PAYLOAD_TIME_BYTES], group[160];
    char link[PAYLOAD_LINK_BYTES];
    if (call->message_kind == NOTIFY_RESOLVE)
        return json_pack("{s:s, s:s, s:s}", "routing_key", sink->secret, "event_action", "resolve",
                         "dedup_key", key);
    (void)snprintf(group, sizeof(group), "%s%s%s", call->cluster, i->job[0] ? "/" : "", i->job);
    JsonBuild payload = json_build();
    json_add_text(&payload, "summary", payload_summary(call->cluster, i, summary));
    json_add_text(&payload, "source", i->node[0] ? i->node : call->cluster);
    json_add_text(&payload, "severity", severity_name(i->severity));
    json_add_text(&payload, "timestamp", payload_time(i->at_usec, at));
    json_add_text(&payload, "component", "sdtrain");
    json_add_text(&payload, "group", group);
    json_add_text(&payload, "class", i->cause);
    json_add(&payload, "custom_details", details(call));
    json_t *body = json_pack("{s:s, s:s, s:s, s:s, s:o}", "routing_key", sink->secret,
                             "event_action", "trigger", "dedup_key", key, "client", "sdtrain",
                             "payload", json_build_end(&payload));
    if (body && payload_link(call->file, i, link)[0] &&
        json_object_set_new(body, "links",
                            json_pack("[{s:s, s:s}]", "href", link, "text", "What to do")) < 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}

/* Labels identify an alert in Alertmanager, so an alert is ended under the severity that it was sent with. */
static json_t *alertmanager_alert(const PayloadCall *call, Severity severity, uint64_t ends_usec)
{
    const Sink *sink = &call->file->sinks[call->sink];
    const IncidentRecord *i = call->incident;
    char summary[PAYLOAD_SUMMARY_BYTES], begins[PAYLOAD_TIME_BYTES], ends[PAYLOAD_TIME_BYTES];
    char link[PAYLOAD_LINK_BYTES];
    json_t *labels = json_pack("{s:s, s:s, s:s, s:s, s:s}", "alertname", "SdtrainIncident",
                               "cluster", call->cluster, "incident", i->id, "cause", i->cause,
                               "severity", severity_name(severity));
    bool good = labels && (!sink->labels || json_object_update(labels, sink->labels) == 0);
    if (good && i->job[0])
        good = json_object_set_new(labels, "job", json_string(i->job)) == 0;
    if (good && i->node[0])
        good = json_object_set_new(labels, "node", json_string(i->node)) == 0;
    if (!good) {
        json_decref(labels);
        return NULL;
    }
    json_t *alert =
        json_pack("{s:o, s:{s:s, s:s, s:s}, s:s, s:s}", "labels", labels, "annotations", "summary",
                  payload_summary(call->cluster, i, summary), "description", i->evidence, "action",
                  payload_advice(i), "startsAt", payload_time(i->at_usec, begins), "endsAt",
                  payload_time(MAX(ends_usec, i->at_usec), ends));
    if (alert && payload_link(call->file, i, link)[0] &&
        json_object_set_new(alert, "generatorURL", json_string(link)) < 0) {
        json_decref(alert);
        return NULL;
    }
    return alert;
}

static json_t *alertmanager_watchdog(const PayloadCall *call, uint64_t ends_usec)
{
    const Sink *sink = &call->file->sinks[call->sink];
    char ends[PAYLOAD_TIME_BYTES];
    json_t *labels = json_pack("{s:s, s:s, s:s}", "alertname", "SdtrainWatchdog", "cluster",
                               call->cluster, "severity", "none");
    if (!labels || (sink->labels && json_object_update(labels, sink->labels) < 0)) {
        json_decref(labels);
        return NULL;
    }
    return json_pack("{s:o, s:{s:s}, s:s}", "labels", labels, "annotations", "summary",
                     "A leader of this cluster is alive. Page when this alert ends.", "endsAt",
                     payload_time(ends_usec, ends));
}

static json_t *alertmanager_body(const PayloadCall *call)
{
    const NotifierSink *sink = &call->file->notifier.sinks[call->sink];
    uint64_t expires = call->real_usec + EXPIRES_AFTER * sink->repeat_usec;
    if (call->message_kind == NOTIFY_HEARTBEAT)
        return json_pack("[o]", alertmanager_watchdog(call, expires));
    if (call->message_kind ==
        NOTIFY_RESOLVE) /* a test is never resolved by itself, so its resolved_usec is 0 */
        return json_pack("[o]", alertmanager_alert(call, call->told,
                                                   call->incident->resolved_usec
                                                       ? call->incident->resolved_usec
                                                       : call->real_usec));
    json_t *alert = alertmanager_alert(call, call->incident->severity, expires);
    if (call->told == call->incident->severity)
        return json_pack("[o]", alert);
    return json_pack("[o, o]", alert, alertmanager_alert(call, call->told, call->real_usec));
}

static json_t *webhook_body(const PayloadCall *call, const char *key)
{
    const IncidentRecord *i = call->incident;
    char summary[PAYLOAD_SUMMARY_BYTES], at[PAYLOAD_TIME_BYTES], over[PAYLOAD_TIME_BYTES];
    char link[PAYLOAD_LINK_BYTES];
    bool resolved = call->message_kind == NOTIFY_RESOLVE && i->resolved_usec;
    _cleanup_free_ char *text = payload_text(call);
    JsonBuild b = json_build();
    json_add_int(&b, "version", 1);
    json_add_text(&b, "event", call->message_kind == NOTIFY_RESOLVE ? "resolved" : "triggered");
    json_add_text(&b, "key", key);
    json_add_text(&b, "cluster", call->cluster);
    json_add_text(&b, "text", text);
    json_add_text(&b, "summary", payload_summary(call->cluster, i, summary));
    json_add_text(&b, "at", payload_time(i->at_usec, at));
    json_add_text_if(&b, "resolved_at", resolved ? payload_time(i->resolved_usec, over) : NULL);
    json_add_text_if(&b, "link", payload_link(call->file, i, link)[0] ? link : NULL);
    json_add(&b, "incident", details(call));
    return json_build_end(&b);
}

/* ---- the whole ---- */

static void add_header(Payload *payload, const char *format, ...) _printf_(2, 3);
static void add_header(Payload *payload, const char *format, ...)
{
    assert(payload->n_headers < PAYLOAD_HEADERS_MAX);
    va_list ap;
    /* Each header fits, because a secret has at most SINK_SECRET_MAX bytes. */
    va_start(ap, format);
    int n = vsnprintf(payload->headers[payload->n_headers++], PAYLOAD_HEADER_BYTES, format, ap);
    va_end(ap);
    assert(n < PAYLOAD_HEADER_BYTES);
}

void payload_clear(Payload *payload)
{
    if (payload->body)
        explicit_bzero(payload->body, strlen(payload->body));
    free(payload->body);
    explicit_bzero(payload, sizeof(*payload));
}

int payload_make(const PayloadCall *call, Payload *ret)
{
    const Sink *sink = &call->file->sinks[call->sink];
    char key[DEDUP_KEY_BYTES] = "";
    json_t *body = NULL;
    *ret = (Payload){0};
    if (call->incident)
        (void)notifier_dedup_key(call->cluster, call->incident, key);
    if (sink->kind == SINK_EMAIL && call->message_kind != NOTIFY_HEARTBEAT) {
        ret->body = mail_text(call, key);
        return 0;
    }
    add_header(ret, "Content-Type: application/json");
    if (sink->secret[0] && sink->kind != SINK_PAGERDUTY)
        add_header(ret, "Authorization: Bearer %s", sink->secret);
    if (sink->kind == SINK_ALERTMANAGER) {
        body = alertmanager_body(call);
    } else if (call->message_kind == NOTIFY_HEARTBEAT) {
        body =
            json_pack("{s:i, s:s, s:s}", "version", 1, "event", "alive", "cluster", call->cluster);
    } else if (sink->kind == SINK_PAGERDUTY) {
        body = pagerduty_body(call, key);
    } else if (sink->kind == SINK_SLACK) {
        body = slack_body(call, key);
    } else {
        body = webhook_body(call, key);
        add_header(ret, "Idempotency-Key: %s/%s/%s", key,
                   call->message_kind == NOTIFY_RESOLVE ? "resolved" : "triggered",
                   severity_name(call->message_kind == NOTIFY_RESOLVE ? call->told
                                                                      : call->incident->severity));
    }
    ret->body = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (ret->body)
        return 0;
    payload_clear(ret);
    return -EINVAL; /* a text is not UTF-8 */
}
