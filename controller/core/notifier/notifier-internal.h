/* SPDX-License-Identifier: Apache-2.0 */
/* notifier-internal.h - what the notifier knows; private to controller/core/notifier.
 *
 * Ownership: all of it lies in the caller's memory.
 * Units:     as notifier.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/notifier/notifier.h"
#include "controller/core/state/state.h"

/* One notification at one sink. */
typedef struct Task {
    int64_t in_flight;        /* id of the message under way; 0: none */
    MessageKind message_kind; /* of the message under way, or the last one */
    Severity severity;        /* of the message under way, or the last one */
    int failures;             /* tries that failed in a row, since this leader began */
    uint64_t next_usec;       /* no message before */
    uint64_t told_usec;       /* when the sink last accepted a message of this leader; 0: never */
} Task;

/* The notification of an incident, or of a test that `sdctl alerts test` requests. */
typedef struct Notification {
    bool used;
    bool test;               /* its delivery marks go into the request */
    IncidentRecord incident; /* the last one known; id is always set */
    Stamp incident_stamp;
    AlertRecord alert; /* the marks as this leader means them; stored unless dirty */
    Stamp alert_stamp;
    RequestRecord request; /* of a test */
    Stamp request_stamp;
    bool inherited;  /* another leader has sent messages of it */
    bool dirty;      /* alerts/<id> is not yet stored as alert is here */
    int64_t storing; /* id of the write under way; 0: none */
    bool removing;   /* the write under way removes alerts/<id> */
    Task tasks[NOTIFIER_SINKS_MAX];
} Notification;

typedef struct SinkState {
    uint64_t pause_until_usec; /* the sink asked for silence until then */
    Task heartbeat;
    SinkCounts counts;
} SinkState;

struct Notifier {
    NotifierConfig config;
    int notifications_max;
    uint64_t now_usec, real_usec;
    uint64_t wake_usec;
    int64_t term;          /* 0: not leading */
    uint64_t leading_usec; /* since when */
    int64_t last_id;       /* of messages and writes */
    int64_t dropped;       /* incidents that found no place */
    SinkState sinks[NOTIFIER_SINKS_MAX];
    Notification *notifications;
};

/* ---- notifier-message.c ---- */
/* Returns the delivery mark of that sink; NULL: it has none. */
Delivery *notification_delivery(Notification *notification, const NotifierSink *sink);
bool notification_is_over(const Notification *notification);
/* Says which message the sink gets next, and not before when (*ret_at_usec). False: none, as things are. */
bool notification_message(const Notifier *c, Notification *notification, int sink, MessageKind *ret,
                          uint64_t *ret_at_usec);
