/* SPDX-License-Identifier: Apache-2.0 */
/* payload.c - see payload.h. */
#include "controller/alerting/payload.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "controller/alerting/mail.h"
#include "controller/alerting/slack.h"

#include <string.h>
#include <time.h>

enum { EXPIRES_AFTER = 4 /* repetitions that may be lost before Alertmanager lets an alert go */ };

/* ---- words ---- */

static const struct {
    const char *cause, *runbook,
        *advice; /* runbook: a page and heading of docs/operating/runbooks */
} advices[] = {
    {"node-lost", "nodes.md#sdtrainnodelost",
     "Training goes on without the node. Find out what became of the machine; it takes "
     "part again when its sdtraind runs. sdctl node cordon says that it is known, sdctl node "
     "forget that it is gone for good."},
    {"nodes-lost", "nodes.md#sdtrainnodelost",
     "More nodes are lost than have a page each: sdctl node list shows them all. A rack, a "
     "switch, a power circuit?"},
    {"not-admitted", "nodes.md",
     "They get no rank. If they are yours, name them in admit of every controller's settings and "
     "reload; else find out who enrolled them, and take their certificate's rights away."},
    {"node-contested", "nodes.md#a-node-is-contested",
     "Somebody else puts a record under this node's name. Do two machines have it? Else find out "
     "who may write it (etcd-roles --node gives each node its own right, --retire-shared ends the "
     "common one)."},
    {"node-restarted", "nodes.md",
     "The machine or its sdtraind was restarted by somebody or something else; "
     "read its journal."},
    {"node-unhealthy", "nodes.md#sdtrainnodeunhealthy",
     "The node is in quarantine. Repair it, then sdctl node uncordon."},
    {"device-fault", "nodes.md#sdtrainnodequarantined",
     "The node is in quarantine. Check the device (sdctl node status), repair or "
     "replace it, then sdctl node uncordon."},
    {"numerics", "nodes.md#sdtrainnodequarantined",
     "The node computes other bits than the rest (suspect its memory or its device), or "
     "lacks the module, driver or GPU that the job needs: the evidence says which. It is "
     "refused for this job until sdctl node uncordon."},
    {"slot-lost", "nodes.md#sdtrainslotlost",
     "A process survives SIGKILL there, or the GPU is bad: the slot gets no new ranks. "
     "See sdctl node status; reset the GPU or reboot."},
    {"non-finite-loss", "jobs.md#sdtrainlossnotfinite",
     "The job has stopped. Look at its losses (sdctl job report) and change the "
     "job or its data; the same step will fail again."},
    {"bad-job", "jobs.md#sdtrainjobfailed",
     "If the job has stopped, correct the job file and start it again. If it goes on without "
     "that node, look at the node's settings."},
    {"not-owner", "jobs.md#sdtrainjobfailed",
     "Another job writes to this one's checkpoint folder; the text names it. Which of the "
     "two shall go on? Both histories are kept."},
    {"data-corrupt", "jobs.md#sdtrainjobfailed",
     "If the job has stopped, repair the shard that the evidence names and start it "
     "again. If it goes on without that node, suspect the node's disk and memory."},
    {"checkpoint-corrupt", "jobs.md#sdtrainjobfailed",
     "A checkpoint did not verify and was struck out. Check the storage "
     "under checkpoint.uri."},
    {"store-unreachable", "checkpoints.md#sdtrainstoretrouble",
     "Trainers cannot reach data or checkpoints, or are refused. Check that "
     "storage and the nodes' credentials; the job tries again by itself."},
    {"store-trouble", "checkpoints.md#sdtrainstoretrouble",
     "The job trains on, but nothing is saved or its data are late. Check the "
     "storage that the evidence names: a failure now costs all since that step."},
    {"diverging", "diverging.md",
     "The loss or its gradient is far too large. Stop the job if it does not come back by itself, "
     "and begin again from the checkpoint that the evidence names, with other settings."},
    {"growth-stuck", "jobs.md#a-job-that-cannot-grow",
     "The job trains on with fewer ranks than there is room for: a step and its save take longer "
     "than "
     "leave_deadline_sec. Raise that setting, or ask for the present size with sdctl job resize."},
    {"record-lost", "checkpoints.md#a-record-of-checkpoints-is-lost",
     "A record of the job was deleted, damaged or put back from a backup. Nothing is to be done "
     "where it says that it was put back; find out who writes to etcd. sdctl job recover finds the "
     "newest checkpoint where the record of them is lost."},
    {"world-lost", "control-plane.md#etcd-restored-from-a-snapshot",
     "The record of the job's world was deleted, damaged or put back from a backup; the "
     "job goes on in another one. Find out who writes to etcd."},
    {"hang", "jobs.md#sdtrainjobstalled",
     "Ranks made no progress and were killed. If the same node is named again, drain it; if "
     "none is, look at the network between the nodes (sdctl job logs)."},
    {"unreachable", "jobs.md#sdtrainmanyincidents",
     "Other ranks could not reach this node. Check its network and its address setting."},
    {"start-timeout", "jobs.md#sdtrainjobnotrunning",
     "Ranks did not become ready in time. Read their logs (sdctl job logs)."},
    {"trainer-died", "jobs.md#sdtrainrecoveryloop",
     "The trainer died alone and is started again. If it dies again and again, read "
     "its log (sdctl job logs)."},
    {"job-dies", "jobs.md#a-job-that-dies-everywhere",
     "Its trainers end in the same way on machine after machine: it is the job, not they. Read its "
     "log (sdctl job logs); a kill for want of memory is a leak, or too small a machine."},
    {"nodes-vanished", "nodes.md#sdtrainnodesvanished",
     "Many nodes vanished at once: suspect etcd or the network. Nobody is "
     "replaced until it is known or some time has passed."},
    {"nodes-unhealthy", "nodes.md#sdtrainnodeunhealthy",
     "More than half of the nodes call themselves unhealthy: suspect the probes "
     "or something that all "
     "share. Nobody is isolated meanwhile; look at one with sdctl node status."},
    {"test", "control-plane.md#sdtrainpagesfail", "Nothing: somebody tried whether pages arrive."},
};

const char *payload_advice(const IncidentRecord *incident)
{
    for (size_t i = 0; i < ELEMENTSOF(advices); i++)
        if (strcmp(advices[i].cause, incident->cause) == 0)
            return advices[i].advice;
    return "See sdctl cluster status and sdctl job events.";
}

const char *payload_link(const AlertsFile *file, const IncidentRecord *incident,
                         char ret[PAYLOAD_LINK_BYTES])
{
    const char *page = "README.md", *base = file->runbook_url;
    for (size_t i = 0; i < ELEMENTSOF(advices); i++)
        if (strcmp(advices[i].cause, incident->cause) == 0)
            page = advices[i].runbook;
    size_t n = strlen(base);
    while (n > 0 && base[n - 1] == '/')
        n--;
    if (n > 0)
        (void)snprintf(ret, PAYLOAD_LINK_BYTES, "%.*s/%s", (int)n, base, page);
    else
        (void)snprintf(ret, PAYLOAD_LINK_BYTES, "%s", file->link);
    return ret;
}

const char *payload_time(uint64_t usec, char ret[PAYLOAD_TIME_BYTES])
{
    time_t seconds = (time_t)(usec / USEC_PER_SEC);
    struct tm tm;
    char date[24] = "";
    if (gmtime_r(&seconds, &tm))
        (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm); /* it fits */
    (void)snprintf(ret, PAYLOAD_TIME_BYTES, "%s.%03uZ", date,
                   (unsigned)(usec % USEC_PER_SEC / USEC_PER_MSEC));
    return ret;
}

const char *payload_summary(const char *cluster, const IncidentRecord *i,
                            char ret[PAYLOAD_SUMMARY_BYTES])
{
    char rank[24] = "";
    if (i->rank >= 0)
        (void)snprintf(rank, sizeof(rank), ", rank %d", i->rank);
    (void)snprintf(ret, PAYLOAD_SUMMARY_BYTES, "%s%s%s: %s%s%s%s%s%s", cluster,
                   i->job[0] ? ", job " : "", i->job, i->cause, i->node[0] ? " on " : "", i->node,
                   rank, i->evidence[0] ? ": " : "", i->evidence);
    return ret;
}

/* ---- bodies; NULL: out of memory ---- */

/* Records hold what processes wrote as their last words; the codec has made UTF-8 of it. */
static json_t *details(const PayloadCall *call)
{
    const IncidentRecord *i = call->incident;
    json_t *d = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s}", "incident", i->id,
                          "cause", i->cause, "severity", severity_name(i->severity), "job", i->job,
                          "node", i->node, "generation", (json_int_t)i->generation, "step",
                          (json_int_t)i->step, "lost_steps", (json_int_t)i->lost_steps, "evidence",
                          i->evidence, "action", payload_advice(i));
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
    json_t *body =
        json_pack("{s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}}", "routing_key",
                  sink->secret, "event_action", "trigger", "dedup_key", key, "client", "sdtrain",
                  "payload", "summary", payload_summary(call->cluster, i, summary), "source",
                  i->node[0] ? i->node : call->cluster, "severity", severity_name(i->severity),
                  "timestamp", payload_time(i->at_usec, at), "component", "sdtrain", "group", group,
                  "class", i->cause, "custom_details", details(call));
    if (body && payload_link(call->file, i, link)[0] &&
        json_object_set_new(body, "links",
                            json_pack("[{s:s, s:s}]", "href", link, "text", "What to do")) < 0) {
        json_decref(body);
        return NULL;
    }
    return body;
}

/* Labels are the alert's identity there, so severity is told as it was told before. */
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
    if (call->message_kind == NOTIFY_RESOLVE) /* a test is never over by itself */
        return json_pack("[o]", alertmanager_alert(call, call->told,
                                                   call->incident->resolved_usec
                                                       ? call->incident->resolved_usec
                                                       : call->real_usec));
    json_t *alert = alertmanager_alert(call, call->incident->severity, expires);
    if (call->told == call->incident->severity)
        return json_pack("[o]", alert);
    return json_pack("[o, o]", alert, alertmanager_alert(call, call->told, call->real_usec));
}

char *payload_text(const PayloadCall *call)
{
    char summary[PAYLOAD_SUMMARY_BYTES], link[PAYLOAD_LINK_BYTES];
    (void)payload_summary(call->cluster, call->incident, summary);
    if (call->message_kind == NOTIFY_RESOLVE)
        return memory_format("resolved: %s", summary);
    (void)payload_link(call->file, call->incident, link);
    return memory_format("%s: %s\nWhat to do: %s%s%s", severity_name(call->incident->severity),
                         summary, payload_advice(call->incident), link[0] ? "\n" : "", link);
}

static json_t *webhook_body(const PayloadCall *call, const char *key)
{
    const IncidentRecord *i = call->incident;
    char summary[PAYLOAD_SUMMARY_BYTES], at[PAYLOAD_TIME_BYTES], over[PAYLOAD_TIME_BYTES];
    char link[PAYLOAD_LINK_BYTES];
    bool resolved = call->message_kind == NOTIFY_RESOLVE && i->resolved_usec;
    _cleanup_free_ char *text = payload_text(call);
    return json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s*, s:s*, s:o}", "version", 1, "event",
                     call->message_kind == NOTIFY_RESOLVE ? "resolved" : "triggered", "key", key,
                     "cluster", call->cluster, "text", text, "summary",
                     payload_summary(call->cluster, i, summary), "at", payload_time(i->at_usec, at),
                     "resolved_at", resolved ? payload_time(i->resolved_usec, over) : NULL, "link",
                     payload_link(call->file, i, link)[0] ? link : NULL, "incident", details(call));
}

/* ---- the whole ---- */

static void add_header(Payload *payload, const char *format, ...) _printf_(2, 3);
static void add_header(Payload *payload, const char *format, ...)
{
    assert(payload->n_headers < PAYLOAD_HEADERS_MAX);
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(payload->headers[payload->n_headers++], PAYLOAD_HEADER_BYTES, format, ap);
    va_end(ap);
    assert(n < PAYLOAD_HEADER_BYTES); /* a secret has at most SINK_SECRET_MAX bytes */
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
    return -EINVAL; /* a text that is not UTF-8 */
}
