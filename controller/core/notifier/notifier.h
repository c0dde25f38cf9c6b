/* SPDX-License-Identifier: Apache-2.0 */
/* notifier.h - which sink is notified of which incident, and when. Incidents, delivery marks, time and the sinks'
 * answers go in; the next message or the next mark to store comes out.
 *
 * incidents/<id> holds what the sinks are notified of, alerts/<id> how far each sink has been notified. Rules:
 *  - Intent before effect. No message is sent before alerts/<id> records the intent under this leader's term, and that
 *    write compares the record's revision: a leader that does not know what others have sent, or that no longer
 *    leads, sends nothing.
 *  - "triggered" is sent to a sink until the sink accepts it, "resolved" only once that acceptance is stored. Both
 *    messages may be sent more than once; the dedup key merges the repetitions into one alert.
 *  - An incident that is over before a sink was notified is sent all the same, then resolved.
 *  - A notification waits only for its own messages and writes, for its sink's pause (Retry-After), and while so many
 *    messages to that sink are under way as NotifierConfig.in_flight allows. No sink waits for another.
 *  - For one timeout, a new leader resolves nothing that its predecessor triggered: a "triggered" that was under way
 *    has arrived by then.
 *
 * Pure as cluster.h: no I/O, clock, allocation, log or global.
 *
 * Ownership: the caller gives memory of notifier_bytes(). An action borrows from the Notifier until the next call.
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
    bool heartbeat_only;     /* the sink gets only heartbeats, and no incidents */
    Severity least;          /* the sink is not notified of less severe incidents */
    uint64_t repeat_usec;    /* an open incident is sent again this often; 0: only once */
    uint64_t heartbeat_usec; /* time between two heartbeats; 0: none */
} NotifierSink;

typedef struct NotifierConfig {
    NotifierSink sinks[NOTIFIER_SINKS_MAX];
    int n_sinks;
    int in_flight;           /* the largest number of messages under way to one sink */
    int stores;              /* the largest number of writes that may be under way */
    uint64_t timeout_usec;   /* after this time the shell reports ANSWER_AGAIN if no answer came */
    uint64_t retry_usec;     /* the n-th pause is a random share of retry_usec * 2^(n - 1) */
    uint64_t retry_max_usec; /* the longest pause; also the pause after a refusal */
    uint64_t late_usec;      /* an incident that has been over this long is not sent any more */
} NotifierConfig;

extern const NotifierConfig notifier_config_default;

/* How a sink answered. */
typedef enum AnswerKind {
    ANSWER_ACCEPTED,
    ANSWER_AGAIN,   /* there was no answer, or an answer that another try may change */
    ANSWER_REFUSED, /* the same message would be refused again */
} AnswerKind;

typedef struct Answer {
    AnswerKind kind;
    uint64_t pause_usec; /* the pause that the sink asks for (Retry-After); 0: none */
    char text[128];      /* the sink's error text, unless the sink accepted the message */
} Answer;

typedef enum MessageKind { NOTIFY_TRIGGER, NOTIFY_RESOLVE, NOTIFY_HEARTBEAT } MessageKind;

typedef enum NotifierActionKind {
    NOTIFIER_REST,        /* nothing to do before the next event, or before wake_usec */
    NOTIFIER_SEND,        /* send a message; its answer goes to notifier_answered() */
    NOTIFIER_STORE_ALERT, /* write or remove alerts/<id>; the outcome goes to notifier_stored() */
    NOTIFIER_STORE_REQUEST, /* write an answer to requests/<id>; the outcome goes to notifier_stored() */
} NotifierActionKind;

typedef struct NotifierAction {
    NotifierActionKind kind;
    int64_t id; /* id of the message or write */
    /* For NOTIFIER_REST: the latest time at which to call notifier_next() again; USEC_INFINITY: only after an event. */
    uint64_t wake_usec;

    /* The fields of NOTIFIER_SEND. */
    int sink; /* index in the configuration */
    MessageKind message_kind;
    const IncidentRecord *incident; /* NULL for a heartbeat */
    /* The severity that this sink last accepted; the incident's severity if the sink has accepted none. */
    Severity told;

    /* The fields of NOTIFIER_STORE_...: one transaction compares term and revision. */
    int64_t term;
    const AlertRecord *alert; /* NULL: alerts/<name> is removed */
    const RequestRecord *request;
    const char *name; /* the key is alerts/<name> or requests/<name> */
    int64_t revision; /* mod revision of the record to replace; 0: no record may exist */
} NotifierAction;

typedef struct SinkCounts {
    int64_t accepted, again, refused;
    int waiting; /* number of notifications whose present state the sink has not accepted */
    int failing; /* number of waiting notifications whose last try failed */
} SinkCounts;

typedef struct Notifier Notifier;

size_t notifier_bytes(int notifications_max);
Notifier *notifier_init(void *memory, int notifications_max, const NotifierConfig *config);
/* Applies another configuration. The shell has cancelled the messages under way; every waiting message is tried
 * again at once. */
void notifier_configure(Notifier *c, const NotifierConfig *config);

/* Processes EVENT_INCIDENT, _ALERT, _REQUEST, _LEADING and _DEPOSED. Returns false if the event does not matter
 * here. With EVENT_DEPOSED the shell cancels the messages under way. */
bool notifier_observe(Notifier *c, const Event *ev);
/* Processes a sink's answer; an answer to a message that is no longer under way is ignored. random: any 32 bits. */
void notifier_answered(Notifier *c, int64_t id, const Answer *answer, uint64_t now_usec,
                       uint64_t real_usec, uint32_t random);
/* Processes the outcome of a write. Before the shell reports OUTCOME_REFUSED or OUTCOME_UNKNOWN, it reads the record
 * again and lets the notifier observe it. */
void notifier_stored(Notifier *c, int64_t id, Outcome outcome, int64_t revision);
/* Returns the next action; the shell calls again until the action is NOTIFIER_REST. lease_usec: the time until which
 * this leader surely leads. */
void notifier_next(Notifier *c, uint64_t now_usec, uint64_t real_usec, uint64_t lease_usec,
                   NotifierAction *ret);

/* Writes "<cluster>/<incident>/<second at which it began>", by which sinks distinguish alerts. */
enum { DEDUP_KEY_BYTES = CLUSTER_NAME_MAX + RECORD_INCIDENT_MAX + 24 };
const char *notifier_dedup_key(const char *cluster, const IncidentRecord *incident,
                               char ret[DEDUP_KEY_BYTES]);

void notifier_count(const Notifier *c, int sink, SinkCounts *ret);
int64_t notifier_dropped(const Notifier *c);
