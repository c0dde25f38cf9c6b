/* SPDX-License-Identifier: Apache-2.0 */
/* notifier-next.c - the next action: a mark to store, then a message, then a heartbeat.
 *
 * Marks come first, because a message is sent only if the marks of its notification are stored. The most severe
 * message goes first, then the oldest. */
#include "controller/core/notifier/notifier-internal.h"
#include "controller/core/state/text-buffer.h"

#include <string.h>

enum { TEST_LATE_SEC = 120, LEASE_POLL_MSEC = 200 };

static bool is_due(Notifier *c, uint64_t at_usec)
{
    if (c->now_usec >= at_usec)
        return true;
    c->wake_usec = MIN(c->wake_usec, at_usec);
    return false;
}

/* ---- marks ---- */

/* Adds a mark for the sink. There is always a place that is free, or whose sink is no longer configured. */
static Delivery *new_delivery(const Notifier *c, AlertRecord *alert, const NotifierSink *sink)
{
    _Static_assert((int)RECORD_DELIVERIES_MAX > (int)NOTIFIER_SINKS_MAX, "a place for each");
    size_t at = alert->n_deliveries;
    if (at == RECORD_DELIVERIES_MAX) {
        bool known = true;
        while (known) {
            assert(at > 0); /* there are fewer sinks than places */
            at--;
            known = false;
            for (int k = 0; k < c->config.n_sinks; k++)
                known |= text_equal(alert->deliveries[at].sink, c->config.sinks[k].name);
        }
    } else {
        alert->n_deliveries++;
    }
    Delivery *d = &alert->deliveries[at];
    assert(at < alert->n_deliveries);
    *d = (Delivery){.state = DELIVERY_SENDING};
    text_copy(d->sink, sizeof(d->sink), sink->name);
    return d;
}

static bool is_late(Notifier *c, const Notification *notification)
{
    uint64_t end = notification->incident.resolved_usec + c->config.late_usec;
    if (!notification_is_over(notification))
        return false;
    if (end > c->real_usec) {
        (void)is_due(c, c->now_usec + (end - c->real_usec));
        return false;
    }
    return true;
}

/* Records the intent: adds a mark for each sink that the incident concerns and that has no mark yet. If the incident
 * has been over for too long (is_late()), messages that did not arrive are marked as failed. */
static void mark_concerned(Notifier *c, Notification *notification)
{
    bool late = is_late(c, notification);
    for (int k = 0; k < c->config.n_sinks; k++) {
        const NotifierSink *sink = &c->config.sinks[k];
        Delivery *d = notification_delivery(notification, sink);
        if (!d && !late && !notification->alert.settled && !sink->heartbeat_only &&
            notification->incident.severity >= sink->least) {
            d = new_delivery(c, &notification->alert, sink);
            d->severity = notification->incident.severity;
            d->at_usec = c->real_usec;
            notification->dirty = true;
        } else if (d && late && d->state < DELIVERY_RESOLVED && !notification->tasks[k].in_flight &&
                   (d->state == DELIVERY_SENDING || d->attempts > 0)) {
            d->state = DELIVERY_FAILED;
            d->at_usec = c->real_usec;
            notification->dirty = true;
        }
    }
}

/* True when no message is left to send. While a sink that is not configured here may hold an open alert, a message
 * counts as left, unless the incident is_late(). */
static bool nothing_is_left(Notifier *c, Notification *notification)
{
    MessageKind message_kind;
    uint64_t at_usec;
    for (int k = 0; k < c->config.n_sinks; k++)
        if (notification_message(c, notification, k, &message_kind, &at_usec))
            return false;
    for (size_t i = 0; i < notification->alert.n_deliveries; i++)
        if (notification->alert.deliveries[i].state < DELIVERY_RESOLVED &&
            !is_late(c, notification))
            return false;
    return true;
}

/* Updates the alert record to what this leader intends. Returns true if the record must be stored. */
static bool prepare_alert(Notifier *c, Notification *notification)
{
    AlertRecord *alert = &notification->alert;
    const IncidentRecord *incident = &notification->incident;
    /* Marks with another time are of an earlier incident that had the same id. */
    if (alert->incident_usec != incident->at_usec) {
        memset(alert, 0, sizeof(*alert));
        alert->incident_usec = incident->at_usec;
    }
    text_copy(alert->id, sizeof(alert->id), incident->id);
    bool by_another = alert->term != c->term && alert->n_deliveries > 0;
    mark_concerned(c, notification);
    bool over = notification_is_over(notification), left = !nothing_is_left(c, notification);
    if (over && !left) {
        alert->settled = true;
        notification->dirty = true;
    }
    if ((left || notification->dirty) && alert->term != c->term) {
        alert->term = c->term;
        notification->inherited = by_another;
        notification->dirty = true;
    }
    return notification->dirty;
}

static bool store_alert(Notifier *c, Notification *notification, NotifierAction *ret)
{
    if (notification->incident_stamp.seen == 0)
        return false; /* a mark without an incident: there is nothing to report */
    bool gone = notification->incident_stamp.mod == 0;
    bool settled = notification->alert.settled &&
                   notification->alert.incident_usec == notification->incident.at_usec;
    bool is_done = settled && !notification->dirty && nothing_is_left(c, notification);
    bool dirty = is_done ? false : prepare_alert(c, notification);
    if (!dirty && !(gone && settled))
        return false;
    assert(dirty || notification->alert.settled);
    notification->removing = !dirty;
    ret->kind = NOTIFIER_STORE_ALERT;
    ret->name = notification->incident.id;
    ret->alert = dirty ? &notification->alert : NULL;
    ret->revision = notification->alert_stamp.mod;
    notification->dirty = false;
    return true;
}

static void write_result(const Notifier *c, Notification *notification)
{
    RequestRecord *q = &notification->request;
    int accepted = 0;
    q->n_deliveries = notification->alert.n_deliveries;
    for (size_t i = 0; i < q->n_deliveries; i++) {
        q->deliveries[i] = notification->alert.deliveries[i];
        accepted += q->deliveries[i].state == DELIVERY_RESOLVED;
    }
    Text t = text_begin(q->answer, sizeof(q->answer));
    q->outcome = q->n_deliveries == 0              ? REQUEST_REFUSED
                 : accepted < (int)q->n_deliveries ? REQUEST_FAILED
                                                   : REQUEST_DONE;
    if (q->n_deliveries > 0) {
        text_add_int(&t, accepted);
        text_add(&t, " of ");
        text_add_int(&t, (int64_t)q->n_deliveries);
        text_add(&t, q->n_deliveries == 1 ? " sink accepted" : " sinks accepted");
    } else if (c->config.n_sinks == 0) {
        text_add(&t, "refused: the leader's alerts_file names no sink");
    } else {
        text_add(&t, "refused: the leader's alerts_file names no sink ");
        text_add(&t, q->target);
    }
}

static bool store_request(Notifier *c, Notification *notification, NotifierAction *ret)
{
    assert(notification->test && notification->storing == 0);
    bool late = c->real_usec > notification->request.at_usec + TEST_LATE_SEC * USEC_PER_SEC;
    for (size_t i = 0; i < notification->alert.n_deliveries; i++) {
        Delivery *d = &notification->alert.deliveries[i];
        if (d->state < DELIVERY_RESOLVED && !late)
            return false;
        if (d->state < DELIVERY_RESOLVED) {
            d->state = DELIVERY_FAILED;
            text_copy(d->text, sizeof(d->text), "asked for too long ago");
        }
    }
    write_result(c, notification);
    ret->kind = NOTIFIER_STORE_REQUEST;
    ret->name = notification->request.id;
    ret->request = &notification->request;
    ret->revision = notification->request_stamp.mod;
    return true;
}

static int count_stores(const Notifier *c)
{
    int n = 0;
    for (int i = 0; i < c->notifications_max; i++)
        n += c->notifications[i].used && c->notifications[i].storing != 0;
    return n;
}

static bool next_store(Notifier *c, NotifierAction *ret)
{
    if (count_stores(c) >= c->config.stores)
        return false;
    for (int i = 0; i < c->notifications_max; i++) {
        Notification *notification = &c->notifications[i];
        if (!notification->used || notification->storing)
            continue;
        if (!(notification->test ? store_request(c, notification, ret)
                                 : store_alert(c, notification, ret)))
            continue;
        assert(!notification->dirty && ret->name);
        notification->storing = ret->id = ++c->last_id;
        ret->term = c->term;
        return true;
    }
    return false;
}

/* ---- messages ---- */

static bool goes_before(const Notification *a, const Notification *b)
{
    if (a->test != b->test)
        return a->test;
    if (a->incident.severity != b->incident.severity)
        return a->incident.severity > b->incident.severity;
    return a->incident.at_usec < b->incident.at_usec;
}

static int count_in_flight(const Notifier *c, int k)
{
    int n = 0;
    for (int i = 0; i < c->notifications_max; i++)
        n += c->notifications[i].used && c->notifications[i].tasks[k].in_flight != 0;
    return n;
}

/* True when the notification has a message for the sink now. */
static bool may_send(Notifier *c, Notification *notification, int k, bool room, MessageKind *ret)
{
    uint64_t at_usec;
    if (notification->tasks[k].in_flight ||
        !notification_message(c, notification, k, ret, &at_usec))
        return false;
    if (notification->test)
        return true; /* a test waits for no pause: its user wants to see the result now */
    if (notification->alert.term != c->term)
        return false; /* intent before effect: this leader stores its own marks first */
    return is_due(c, MAX(at_usec, c->sinks[k].pause_until_usec)) && room;
}

static bool next_message(Notifier *c, NotifierAction *ret)
{
    Notification *best = NULL;
    int sink = 0;
    MessageKind message_kind = NOTIFY_TRIGGER, best_message_kind = NOTIFY_TRIGGER;
    bool room[NOTIFIER_SINKS_MAX];
    for (int k = 0; k < c->config.n_sinks; k++)
        room[k] = count_in_flight(c, k) < c->config.in_flight;
    for (int i = 0; i < c->notifications_max; i++) {
        Notification *notification = &c->notifications[i];
        if (!notification->used || notification->storing || notification->dirty ||
            (best && !goes_before(notification, best)))
            continue;
        for (int k = 0; k < c->config.n_sinks; k++)
            if (may_send(c, notification, k, room[k], &message_kind)) {
                best = notification;
                sink = k;
                best_message_kind = message_kind;
                break;
            }
    }
    if (!best)
        return false;
    const Delivery *d = notification_delivery(best, &c->config.sinks[sink]);
    Task *task = &best->tasks[sink];
    assert(d && task->in_flight == 0 && best->storing == 0 && !best->dirty);
    assert(best->test ||
           best->alert.term == c->term); /* intent before effect: the marks are stored */
    task->in_flight = ret->id = ++c->last_id;
    task->message_kind = ret->message_kind = best_message_kind;
    task->severity = best_message_kind == NOTIFY_TRIGGER ? best->incident.severity : d->severity;
    ret->kind = NOTIFIER_SEND;
    ret->sink = sink;
    ret->incident = &best->incident;
    ret->told = d->state == DELIVERY_TRIGGERED ? d->severity : task->severity;
    return true;
}

static bool next_heartbeat(Notifier *c, NotifierAction *ret)
{
    for (int k = 0; k < c->config.n_sinks; k++) {
        const NotifierSink *sink = &c->config.sinks[k];
        Task *heartbeat = &c->sinks[k].heartbeat;
        if (sink->heartbeat_usec == 0 || heartbeat->in_flight)
            continue;
        uint64_t at_usec = heartbeat->failures    ? heartbeat->next_usec
                           : heartbeat->told_usec ? heartbeat->told_usec + sink->heartbeat_usec
                                                  : 0;
        if (!is_due(c, MAX(at_usec, c->sinks[k].pause_until_usec)))
            continue;
        heartbeat->in_flight = ret->id = ++c->last_id;
        assert(!ret->incident);
        ret->kind = NOTIFIER_SEND;
        ret->sink = k;
        ret->message_kind = NOTIFY_HEARTBEAT;
        return true;
    }
    return false;
}

void notifier_next(Notifier *c, uint64_t now_usec, uint64_t real_usec, uint64_t lease_usec,
                   NotifierAction *ret)
{
    c->now_usec = MAX(c->now_usec, now_usec);
    c->real_usec = real_usec;
    c->wake_usec = USEC_INFINITY;
    memset(ret, 0, sizeof(*ret));
    if (c->term != 0 && c->now_usec >= lease_usec) /* another controller may lead already */
        c->wake_usec = c->now_usec + LEASE_POLL_MSEC * USEC_PER_MSEC;
    else if (c->term != 0 && (next_store(c, ret) || next_message(c, ret) || next_heartbeat(c, ret)))
        return;
    assert(ret->kind == NOTIFIER_REST && ret->id == 0);
    ret->wake_usec = c->wake_usec;
}
