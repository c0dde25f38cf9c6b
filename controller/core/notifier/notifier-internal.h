/* notifier-internal.h - what the notifier knows; private to controller/core/notifier.
 *
 * Ownership: all of it lies in the caller's memory.
 * Units:     as notifier.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/cluster-internal.h"
#include "controller/core/notifier/notifier.h"

/* One page at one sink. */
typedef struct Task {
    int64_t in_flight;        /* id of the message; 0: none */
    MessageKind message_kind; /* of that message */
    Severity severity;        /* likewise */
    int failures;             /* in a row, since this leader began */
    uint64_t next_usec;
    uint64_t told_usec; /* when this leader was last heard */
} Task;

/* An incident, or a test that somebody asks for (test: its marks go into the request). */
typedef struct Notification {
    bool used, test;
    IncidentRecord incident; /* the last one known; id is always set */
    Stamp incident_stamp;
    AlertRecord alert;
    Stamp alert_stamp;
    RequestRecord request;
    Stamp request_stamp;
    bool inherited;  /* another leader has told of it */
    bool dirty;      /* alert is not stored as it is here */
    int64_t storing; /* id of the write; 0: none */
    bool removing;   /* that removes the alert */
    Task tasks[NOTIFIER_SINKS_MAX];
} Notification;

typedef struct SinkState {
    uint64_t pause_until_usec;
    Task heartbeat;
    SinkCounts counts;
} SinkState;

struct Notifier {
    NotifierConfig config;
    int notifications_max;
    uint64_t now_usec, real_usec;
    uint64_t wake_usec;
    int64_t term; /* 0: not leading */
    uint64_t leading_usec;
    int64_t last_id;
    int64_t dropped;
    SinkState sinks[NOTIFIER_SINKS_MAX];
    Notification *notifications;
};

/* ---- notifier-message.c ---- */
/* The mark of that sink, or NULL. */
Delivery *notification_delivery(Notification *notification, const NotifierSink *sink);
bool notification_is_over(const Notification *notification);
/* Whether the sink must hear something, now or after *ret_at_usec; false: nothing, ever. */
bool notification_message(const Notifier *c, Notification *notification, int sink, MessageKind *ret,
                          uint64_t *ret_at_usec);
