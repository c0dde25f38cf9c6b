/* SPDX-License-Identifier: Apache-2.0 */
/* notifier-internal.h - the notifier's state; private to controller/core/notifier.
 *
 * Units: as notifier.h. Errors: none. Threads: one at a time.
 * Ownership: all of the state is in the caller's memory.
 */
#pragma once

#include "controller/core/notifier/notifier.h"
#include "controller/core/state/state.h"

/* The state of one notification at one sink. */
typedef struct Task {
    int64_t in_flight;        /* id of the message under way; 0: none */
    MessageKind message_kind; /* kind of the message under way, or of the last message */
    Severity severity;        /* severity in the message under way, or in the last message */
    int failures;             /* failed tries in a row since this leader began */
    uint64_t next_usec;       /* no message is sent before this time */
    uint64_t told_usec;       /* when the sink last accepted a message of this leader; 0: never */
} Task;

/* The notification of an incident, or of a test that `sdctl alerts test` requests. */
typedef struct Notification {
    bool used;
    /* this is a test's notification, whose delivery marks are stored in the test's request */
    bool test;
    IncidentRecord incident; /* the incident as last read; its id is always set */
    Stamp incident_stamp;
    AlertRecord alert; /* the delivery marks that this leader wants; they are stored unless dirty */
    Stamp alert_stamp;
    RequestRecord request; /* the request, if this is a test */
    Stamp request_stamp;
    bool inherited;  /* another leader has sent messages of this notification */
    bool dirty;      /* alerts/<id> does not yet hold the marks of alert */
    int64_t storing; /* id of the write under way; 0: none */
    bool removing;   /* the write under way removes alerts/<id> */
    Task tasks[NOTIFIER_SINKS_MAX];
} Notification;

typedef struct SinkState {
    uint64_t pause_until_usec; /* the sink asked for no messages before this time */
    Task heartbeat;
    SinkCounts counts;
} SinkState;

struct Notifier {
    NotifierConfig config;
    int notifications_max;
    uint64_t now_usec, real_usec;
    uint64_t wake_usec;
    int64_t term;          /* the term in which this controller leads; 0: it does not lead */
    uint64_t leading_usec; /* when this leader began */
    int64_t last_id;       /* id of the last message or write */
    int64_t dropped;       /* number of incidents that found no place */
    SinkState sinks[NOTIFIER_SINKS_MAX];
    Notification *notifications;
};

/* ---- notifier-message.c ---- */
/* Returns the notification's delivery mark for that sink; NULL: there is none. */
Delivery *notification_delivery(Notification *notification, const NotifierSink *sink);
bool notification_is_over(const Notification *notification);
/* Finds the message that the sink gets next, and the time (*ret_at_usec) before which it is not sent. Returns false
 * if at present the sink gets no further message. */
bool notification_message(const Notifier *c, Notification *notification, int sink, MessageKind *ret,
                          uint64_t *ret_at_usec);
