/* SPDX-License-Identifier: Apache-2.0 */
/* notifier-message.c - which message of a notification a sink gets next: a function of the incident, the sink's
 * delivery mark, the sink's settings and the time. */
#include "controller/core/notifier/notifier-internal.h"
#include "controller/core/state/text-buffer.h"

Delivery *notification_delivery(Notification *notification, const NotifierSink *sink)
{
    for (size_t i = 0; i < notification->alert.n_deliveries; i++)
        if (text_equal(notification->alert.deliveries[i].sink, sink->name))
            return &notification->alert.deliveries[i];
    return NULL;
}

bool notification_is_over(const Notification *notification)
{
    return notification->incident.state == INCIDENT_RESOLVED;
}

/* A test sends a message through every sink once, also through a sink that gets only heartbeats. */
static bool find_test_message(const NotifierSink *sink, const Delivery *delivery, MessageKind *ret)
{
    *ret = delivery->state == DELIVERY_TRIGGERED ? NOTIFY_RESOLVE
           : sink->heartbeat_only                ? NOTIFY_HEARTBEAT
                                                 : NOTIFY_TRIGGER;
    return delivery->state < DELIVERY_RESOLVED;
}

/* Returns the earliest time at which "resolved" may be sent: a "triggered" that the leader before this one sent may
 * still be on its way, and must not arrive after "resolved". */
static uint64_t may_resolve_at(const Notifier *c, const Notification *notification)
{
    return notification->inherited ? c->leading_usec + c->config.timeout_usec : 0;
}

bool notification_message(const Notifier *c, Notification *notification, int k, MessageKind *ret,
                          uint64_t *ret_at_usec)
{
    assert(k >= 0 && k < c->config.n_sinks && notification->used);
    const NotifierSink *sink = &c->config.sinks[k];
    const Delivery *delivery = notification_delivery(notification, sink);
    const Task *task = &notification->tasks[k];
    *ret = NOTIFY_TRIGGER;
    *ret_at_usec = task->next_usec;
    if (!delivery)
        return false;
    if (notification->test)
        return find_test_message(sink, delivery, ret);
    if (sink->heartbeat_only)
        return false;
    switch (delivery->state) {
    case DELIVERY_SENDING:
        return true;
    case DELIVERY_FAILED:
        return !notification_is_over(notification);
    case DELIVERY_TRIGGERED:
        if (notification_is_over(notification)) {
            *ret = NOTIFY_RESOLVE;
            *ret_at_usec = MAX(task->next_usec, may_resolve_at(c, notification));
            return true;
        }
        if (delivery->severity < notification->incident.severity)
            return true;
        if (task->told_usec)
            *ret_at_usec = MAX(task->next_usec, task->told_usec + sink->repeat_usec);
        return sink->repeat_usec > 0;
    default:
        return false;
    }
}
