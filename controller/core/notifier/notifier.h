/* SPDX-License-Identifier: Apache-2.0 */
/* notifier.h - which sink is notified of which incident, and when: incidents, delivery marks, time and the sinks'
 * answers go in; the next message or the next mark to store comes out.
 *
 * incidents/<id> says what there is to notify of, alerts/<id> how far that has come. Rules:
 *  - Intent before effect. No message is sent before alerts/<id> says so under this leader's term, and that write
 *    compares the record's revision: a leader that does not know what others have sent, or that leads no more, sends
 *    nothing.
 *  - A sink gets "triggered" until it has accepted it, and "resolved" only once that acceptance is stored. Both may be
 *    sent more than once; the dedup key makes one alert of them.
 *  - An incident that is over before a sink was notified is sent all the same, then resolved.
 *  - A notification waits for nothing but itself, its sink's pause (Retry-After) and at most in_flight others at that
 *    sink. No sink waits for another.
 *  - A new leader resolves nothing that its predecessor triggered for one timeout: a "triggered"
 *    that was under way has arrived by then.
 *
 * Pure as cluster.h: no I/O, clock, allocation, log or global.
 *
 * Ownership: the caller gives memory of notifier_bytes(). An action borrows from the Notifier until
 *            the next call.
 * Units:     now_usec, lease_usec, wake_usec: CLOCK_BOOTTIME. real_usec: CLOCK_REALTIME.
 * Errors:    none. Incidents beyond notifications_max are left out and counted (notifier_dropped).
 * Threads:   one at a time.
 * Source:    docs/internals/core.md, "Notifications".
 */
#pragma once

#include "controller/core/cluster.h"

enum { NOTIFIER_SINKS_MAX = 8 };

typedef struct NotifierSink {
    char name[SINK_NAME_MAX + 1];
    bool heartbeat_only;     /* it gets only heartbeats, and is notified of no incident */
    Severity least;          /* it is not notified of less severe incidents */
    uint64_t repeat_usec;    /* an open incident is sent again this often; 0: it is sent once */
    uint64_t heartbeat_usec; /* time between two heartbeats; 0: none */
} NotifierSink;

typedef struct NotifierConfig {
    NotifierSink sinks[NOTIFIER_SINKS_MAX];
    int n_sinks;
    int in_flight;           /* messages under way to one sink, at most */
    int stores;              /* writes under way, at most */
    uint64_t timeout_usec;   /* within this the shell has an answer, or gives one itself */
    uint64_t retry_usec;     /* the n-th pause is a random share of this doubled n - 1 times */
    uint64_t retry_max_usec; /* the longest pause; also between tries at a sink that refuses */
    uint64_t late_usec;      /* an incident that has been over this long is not sent any more */
} NotifierConfig;

extern const NotifierConfig notifier_config_default;

/* How a sink answered. */
typedef enum AnswerKind {
    ANSWER_ACCEPTED,
    ANSWER_AGAIN,   /* no answer, or one that another try may change */
    ANSWER_REFUSED, /* the same message would be refused again */
} AnswerKind;

typedef struct Answer {
    AnswerKind kind;
    uint64_t pause_usec; /* the sink asks for silence this long (Retry-After); 0: it does not */
    char text[128];      /* the sink's words, unless it accepted */
} Answer;

typedef enum MessageKind { NOTIFY_TRIGGER, NOTIFY_RESOLVE, NOTIFY_HEARTBEAT } MessageKind;

typedef enum NotifierActionKind {
    NOTIFIER_REST,        /* nothing to do until something happens, or wake_usec */
    NOTIFIER_SEND,        /* send a message; its answer goes to notifier_answered() */
    NOTIFIER_STORE_ALERT, /* write or remove alerts/<id>; the outcome goes to notifier_stored() */
    NOTIFIER_STORE_REQUEST, /* write the answered requests/<id>; the outcome goes to notifier_stored() */
} NotifierActionKind;

typedef struct NotifierAction {
    NotifierActionKind kind;
    int64_t id; /* of the message or the write */
    /* The time to call notifier_next() again, for NOTIFIER_REST; USEC_INFINITY: no need. */
    uint64_t wake_usec;

    /* of NOTIFIER_SEND */
    int sink; /* index in the configuration */
    MessageKind message_kind;
    const IncidentRecord *incident; /* NULL: a heartbeat */
    Severity told; /* the severity that this sink last accepted; without one, the incident's */

    /* of NOTIFIER_STORE_...: one transaction that compares the term and the revision */
    int64_t term;
    const AlertRecord *alert; /* NULL: alerts/<name> is removed */
    const RequestRecord *request;
    const char *name; /* of the key */
    int64_t revision; /* of the record that is replaced; 0: there must be none */
} NotifierAction;

typedef struct SinkCounts {
    int64_t accepted, again, refused;
    int waiting; /* notifications whose present state the sink has not accepted */
    int failing; /* those of the waiting ones that were tried and failed */
} SinkCounts;

typedef struct Notifier Notifier;

size_t notifier_bytes(int notifications_max);
Notifier *notifier_init(void *memory, int notifications_max, const NotifierConfig *config);
/* Applies other sinks. The shell has cancelled what is under way; everything is tried again at once. */
void notifier_configure(Notifier *c, const NotifierConfig *config);

/* Takes in EVENT_INCIDENT, _ALERT, _REQUEST, _LEADING and _DEPOSED. False: the event does not matter here. With
 * EVENT_DEPOSED the shell cancels what is under way. */
bool notifier_observe(Notifier *c, const Event *ev);
/* Takes in a sink's answer; one to a message that is not under way any more is ignored. random: any 32 bits. */
void notifier_answered(Notifier *c, int64_t id, const Answer *answer, uint64_t now_usec,
                       uint64_t real_usec, uint32_t random);
/* Takes in the outcome of a write. Before OUTCOME_REFUSED and OUTCOME_UNKNOWN the record was read and observed
 * again. */
void notifier_stored(Notifier *c, int64_t id, Outcome outcome, int64_t revision);
/* Says what to do next; the shell calls again until that is NOTIFIER_REST. lease_usec: until then this leader surely
 * leads. */
void notifier_next(Notifier *c, uint64_t now_usec, uint64_t real_usec, uint64_t lease_usec,
                   NotifierAction *ret);

/* Writes "<cluster>/<incident>/<second at which it began>", by which sinks tell alerts apart. */
enum { DEDUP_KEY_BYTES = CLUSTER_NAME_MAX + RECORD_INCIDENT_MAX + 24 };
const char *notifier_dedup_key(const char *cluster, const IncidentRecord *incident,
                               char ret[DEDUP_KEY_BYTES]);

void notifier_count(const Notifier *c, int sink, SinkCounts *ret);
int64_t notifier_dropped(const Notifier *c);
