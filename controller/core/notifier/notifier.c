/* SPDX-License-Identifier: Apache-2.0 */
/* notifier.c - applies records, answers and outcomes to the notifier's state, and lays out its memory.
 *
 * Guarantees: while one leader leads, a mark only moves forward; a mark that another leader has stored replaces a
 *             mark that this leader only intended to store. */
#include "controller/core/notifier/notifier-internal.h"
#include "controller/core/state/text-buffer.h"

#include <string.h>

const NotifierConfig notifier_config_default = {
    .in_flight = 4,
    .stores = 16,
    .timeout_usec = 10 * USEC_PER_SEC,
    .retry_usec = USEC_PER_SEC,
    .retry_max_usec = 300 * USEC_PER_SEC,
    .late_usec = 3600 * USEC_PER_SEC,
};

size_t notifier_bytes(int notifications_max)
{
    return ROUND_UP(sizeof(Notifier), (size_t)16) +
           (size_t)notifications_max * sizeof(Notification);
}

Notifier *notifier_init(void *memory, int notifications_max, const NotifierConfig *config)
{
    assert(notifications_max > 0);
    memset(memory, 0, notifier_bytes(notifications_max));
    Notifier *c = memory;
    c->notifications_max = notifications_max;
    c->notifications = (Notification *)((char *)memory + ROUND_UP(sizeof(Notifier), (size_t)16));
    notifier_configure(c, config);
    return c;
}

/* Resets the tasks of all sinks: no message is under way any more, and none waits. The counts stay. */
static void forget_tasks(Notifier *c)
{
    for (int i = 0; i < c->notifications_max; i++)
        memset(c->notifications[i].tasks, 0, sizeof(c->notifications[i].tasks));
    for (int k = 0; k < NOTIFIER_SINKS_MAX; k++) {
        SinkCounts counts = c->sinks[k].counts;
        c->sinks[k] = (SinkState){.counts = counts};
    }
}

static void begin_tests(Notifier *c);

void notifier_configure(Notifier *c, const NotifierConfig *config)
{
    assert(config->n_sinks >= 0 && config->n_sinks <= NOTIFIER_SINKS_MAX);
    assert(config->in_flight > 0 && config->stores > 0);
    c->config = *config;
    forget_tasks(c);
    for (int k = 0; k < NOTIFIER_SINKS_MAX; k++)
        c->sinks[k].counts = (SinkCounts){0};
    begin_tests(c);
}

int64_t notifier_dropped(const Notifier *c) { return c->dropped; }

void notifier_count(const Notifier *c, int sink, SinkCounts *ret)
{
    assert(sink >= 0 && sink < c->config.n_sinks);
    *ret = c->sinks[sink].counts;
    ret->waiting = ret->failing = 0;
    for (int i = 0; i < c->notifications_max; i++) {
        Notification *notification = &c->notifications[i];
        const Delivery *d =
            notification->used ? notification_delivery(notification, &c->config.sinks[sink]) : NULL;
        if (!d || d->state == DELIVERY_RESOLVED ||
            (d->state == DELIVERY_TRIGGERED && !notification_is_over(notification) &&
             d->attempts == 0) ||
            (d->state == DELIVERY_FAILED && notification_is_over(notification)))
            continue;
        ret->waiting++;
        ret->failing += d->attempts > 0;
    }
}

const char *notifier_dedup_key(const char *cluster, const IncidentRecord *incident,
                               char ret[DEDUP_KEY_BYTES])
{
    Text t = text_begin(ret, DEDUP_KEY_BYTES);
    text_add(&t, cluster);
    text_add(&t, "/");
    text_add(&t, incident->id);
    text_add(&t, "/");
    text_add_int(&t, (int64_t)(incident->at_usec / USEC_PER_SEC));
    return ret;
}

/* ---- notifications ---- */

static Notification *find_notification(Notifier *c, const char *id, bool test)
{
    for (int i = 0; i < c->notifications_max; i++)
        if (c->notifications[i].used && c->notifications[i].test == test &&
            text_equal(c->notifications[i].incident.id, id))
            return &c->notifications[i];
    return NULL;
}

static Notification *new_notification(Notifier *c, const char *id, bool test)
{
    for (int i = 0; i < c->notifications_max; i++) {
        Notification *notification = &c->notifications[i];
        if (notification->used)
            continue;
        memset(notification, 0, sizeof(*notification));
        notification->used = true;
        notification->test = test;
        text_copy(notification->incident.id, sizeof(notification->incident.id), id);
        return notification;
    }
    c->dropped++;
    return NULL;
}

static void forget_notification_if_empty(Notification *notification)
{
    if (notification->incident_stamp.mod == 0 && notification->alert_stamp.mod == 0 &&
        notification->storing == 0)
        notification->used = false;
}

/* Notes the event's revision. Returns false if the event is older than what is known. */
static bool stamp(Stamp *s, const Event *ev)
{
    if (ev->revision < s->seen)
        return false;
    s->seen = ev->revision;
    s->mod = ev->record ? ev->revision : 0;
    return true;
}

static void observe_incident(Notifier *c, const Event *ev)
{
    Notification *notification = find_notification(c, ev->name, false);
    if (!notification && ev->incident)
        notification = new_notification(c, ev->name, false);
    if (!notification || !stamp(&notification->incident_stamp, ev))
        return;
    if (ev->incident) {
        notification->incident = *ev->incident;
        text_copy(notification->incident.id, sizeof(notification->incident.id), ev->name);
    } else if (!notification_is_over(notification)) {
        notification->incident.state = INCIDENT_RESOLVED;
        notification->incident.resolved_usec = ev->real_usec;
    }
    forget_notification_if_empty(notification);
}

static void observe_alert(Notifier *c, const Event *ev)
{
    Notification *notification = find_notification(c, ev->name, false);
    if (!notification && ev->alert)
        notification = new_notification(c, ev->name, false);
    if (!notification || !stamp(&notification->alert_stamp, ev))
        return;
    bool own = ev->alert && c->term && ev->alert->term == c->term &&
               notification->alert.term == c->term &&
               ev->alert->incident_usec == notification->alert.incident_usec;
    if (!own) { /* if this leader wrote the record itself, the marks in memory may be newer */
        if (ev->alert)
            notification->alert = *ev->alert;
        else
            memset(&notification->alert, 0, sizeof(notification->alert));
        notification->dirty = false;
    }
    forget_notification_if_empty(notification);
}

/* ---- sdctl alerts test ---- */

static void begin_test(Notifier *c, Notification *notification)
{
    assert(notification->used && notification->test);
    AlertRecord *alert = &notification->alert;
    alert->n_deliveries = 0;
    for (int k = 0; k < c->config.n_sinks; k++) {
        const NotifierSink *sink = &c->config.sinks[k];
        if (notification->request.target[0] &&
            !text_equal(notification->request.target, sink->name))
            continue;
        assert(alert->n_deliveries < RECORD_DELIVERIES_MAX);
        Delivery *d = &alert->deliveries[alert->n_deliveries++];
        *d = (Delivery){.state = DELIVERY_SENDING, .severity = notification->incident.severity};
        text_copy(d->sink, sizeof(d->sink), sink->name);
    }
}

static void begin_tests(Notifier *c)
{
    for (int i = 0; i < c->notifications_max; i++)
        if (c->notifications[i].used && c->notifications[i].test)
            begin_test(c, &c->notifications[i]);
}

static bool observe_request(Notifier *c, const Event *ev)
{
    char id[RECORD_INCIDENT_MAX + 1];
    Text t = text_begin(id, sizeof(id));
    text_add(&t, "test-");
    text_add(&t, ev->name);
    Notification *notification = find_notification(c, id, true);
    const RequestRecord *q = ev->request;
    if (!q || q->answer[0] || !text_equal(q->kind, "alerts-test")) {
        if (notification && stamp(&notification->request_stamp, ev))
            notification->used = false;
        return notification != NULL;
    }
    if (!notification)
        notification = new_notification(c, id, true);
    if (!notification || !stamp(&notification->request_stamp, ev))
        return false;
    notification->request = *q;
    text_copy(notification->request.id, sizeof(notification->request.id), ev->name);
    IncidentRecord *incident = &notification->incident;
    incident->severity = SEVERITY_CRITICAL;
    incident->at_usec = q->at_usec;
    incident->rank = -1;
    text_copy(incident->cause, sizeof(incident->cause), "test");
    text_copy(incident->evidence, sizeof(incident->evidence),
              "somebody asked for it with sdctl alerts test; nothing is wrong");
    begin_test(c, notification);
    return true;
}

/* ---- leadership ---- */

static void observe_leadership(Notifier *c, int64_t term, uint64_t now_usec)
{
    c->term = term;
    c->leading_usec = now_usec;
    forget_tasks(c);
    for (int i = 0; i < c->notifications_max; i++) {
        Notification *notification = &c->notifications[i];
        notification->storing = 0;
        notification->inherited = false;
        notification->dirty = false; /* the leader of the new term prepares new marks */
    }
    begin_tests(c);
}

bool notifier_observe(Notifier *c, const Event *ev)
{
    assert(ev->kind < EVENT_KINDS);
    c->now_usec = MAX(c->now_usec, ev->now_usec);
    c->real_usec = ev->real_usec;
    if (ev->health)
        return false; /* the last readable record stays valid */
    switch (ev->kind) {
    case EVENT_INCIDENT:
        observe_incident(c, ev);
        return true;
    case EVENT_ALERT:
        observe_alert(c, ev);
        return true;
    case EVENT_REQUEST:
        return observe_request(c, ev);
    case EVENT_LEADING:
        observe_leadership(c, ev->term, ev->now_usec);
        return true;
    case EVENT_DEPOSED:
        observe_leadership(c, 0, ev->now_usec);
        return true;
    default:
        return false;
    }
}

/* ---- answers ---- */

static uint64_t pause_after(const NotifierConfig *config, int failures, uint64_t most_usec,
                            uint32_t random)
{
    assert(failures > 0);
    uint64_t window = config->retry_usec;
    for (int i = 1; i < failures && window < most_usec; i++)
        window *= 2;
    window = MIN(window, most_usec);
    return (window / 1024 * (random >> 10)) >> 12; /* random / 2^32 of the window, rounded down */
}

static void mark_accepted(Notification *notification, Delivery *d, const Task *task,
                          uint64_t real_usec)
{
    Delivery old = *d;
    assert(task->message_kind == NOTIFY_TRIGGER || task->message_kind == NOTIFY_RESOLVE ||
           notification->test);
    d->attempts = 0;
    d->text[0] = '\0';
    if (task->message_kind == NOTIFY_TRIGGER) {
        d->state = DELIVERY_TRIGGERED;
        d->severity = task->severity;
    } else {
        d->state = DELIVERY_RESOLVED;
    }
    if (d->state == old.state && d->severity == old.severity && old.attempts == 0)
        return; /* a repeated message changes nothing */
    d->at_usec = real_usec;
    notification->dirty = !notification->test;
}

static void mark_failed(Notification *notification, Delivery *d, const Task *task,
                        const Answer *answer, uint64_t real_usec)
{
    d->attempts = MIN(d->attempts, INT32_MAX - 1) + 1;
    d->at_usec = real_usec;
    text_copy(d->text, sizeof(d->text), answer->text);
    bool may_be_open = task->message_kind == NOTIFY_TRIGGER && d->state == DELIVERY_TRIGGERED;
    if (notification->test || (answer->kind == ANSWER_REFUSED && !may_be_open))
        d->state = DELIVERY_FAILED;
    else if (d->state == DELIVERY_FAILED)
        d->state = DELIVERY_SENDING; /* this try was not refused: the message may have arrived */
    notification->dirty = !notification->test;
}

/* Counts the answer, and sets the time at which the sink may be tried again. */
static void observe_answer(Notifier *c, int k, Task *task, const Answer *answer, uint64_t most_usec,
                           uint32_t random)
{
    assert(k >= 0 && k < c->config.n_sinks && task->in_flight > 0);
    SinkState *sink = &c->sinks[k];
    task->in_flight = 0;
    if (answer->pause_usec)
        sink->pause_until_usec =
            MAX(sink->pause_until_usec, c->now_usec + MIN(answer->pause_usec, c->config.late_usec));
    if (answer->kind == ANSWER_ACCEPTED) {
        sink->counts.accepted++;
        task->failures = 0;
        task->next_usec = 0;
        task->told_usec = c->now_usec;
        return;
    }
    task->failures = MIN(task->failures, 60) + 1;
    if (answer->kind == ANSWER_REFUSED) {
        sink->counts.refused++;
        task->next_usec = c->now_usec + most_usec;
    } else {
        sink->counts.again++;
        task->next_usec = c->now_usec + pause_after(&c->config, task->failures, most_usec, random);
    }
}

static Notification *find_in_flight(Notifier *c, int64_t id, int *ret_sink)
{
    for (int i = 0; i < c->notifications_max; i++)
        for (int k = 0; c->notifications[i].used && k < c->config.n_sinks; k++)
            if (c->notifications[i].tasks[k].in_flight == id) {
                *ret_sink = k;
                return &c->notifications[i];
            }
    return NULL;
}

void notifier_answered(Notifier *c, int64_t id, const Answer *answer, uint64_t now_usec,
                       uint64_t real_usec, uint32_t random)
{
    assert(id > 0);
    c->now_usec = MAX(c->now_usec, now_usec);
    c->real_usec = real_usec;
    for (int k = 0; k < c->config.n_sinks; k++) {
        Task *heartbeat = &c->sinks[k].heartbeat;
        if (heartbeat->in_flight == id) {
            observe_answer(c, k, heartbeat, answer, c->config.sinks[k].heartbeat_usec, random);
            return;
        }
    }
    int k;
    Notification *notification = find_in_flight(c, id, &k);
    if (!notification)
        return;
    Task *task = &notification->tasks[k];
    assert(task->in_flight == id);
    observe_answer(c, k, task, answer, c->config.retry_max_usec, random);
    Delivery *d = notification_delivery(notification, &c->config.sinks[k]);
    if (!d)
        return; /* another writer has replaced the record */
    if (answer->kind == ANSWER_ACCEPTED)
        mark_accepted(notification, d, task, real_usec);
    else
        mark_failed(notification, d, task, answer, real_usec);
}

void notifier_stored(Notifier *c, int64_t id, Outcome outcome, int64_t revision)
{
    assert(id > 0);
    Notification *notification = NULL;
    for (int i = 0; i < c->notifications_max; i++)
        if (c->notifications[i].used && c->notifications[i].storing == id)
            notification = &c->notifications[i];
    if (!notification)
        return; /* the write is of an earlier term */
    notification->storing = 0;
    if (outcome != OUTCOME_DONE) {
        notification->dirty =
            !notification->test && !notification->removing && notification->alert.term == c->term;
        forget_notification_if_empty(notification);
        return;
    }
    assert(!(notification->test && notification->removing));
    if (notification->test) {
        notification->used = false;
        return;
    }
    if (revision >= notification->alert_stamp.seen) {
        notification->alert_stamp.seen = revision;
        notification->alert_stamp.mod = notification->removing ? 0 : revision;
    }
    forget_notification_if_empty(notification);
}
