/* notifier.h - who hears of which incident, and when: incidents, delivery marks, time and the sinks'
 * answers go in; the next message or the next mark to store comes out.
 *
 * incidents/<id> says what must be told, alerts/<id> how far that has come. Rules:
 *  - Intent before effect. Nothing is told before alerts/<id> says so under this leader's term, and
 *    that write compares the record's revision: a leader who does not know what others have told,
 *    or who is none any more, tells nothing.
 *  - A sink hears "triggered" until it has accepted it, and "resolved" only once that acceptance is
 *    stored. Both may be said more than once; the dedup key makes one page of them.
 *  - An incident that is over before a sink could be told is told all the same, then resolved.
 *  - A page at a sink waits for nothing but itself, its sink's pause (Retry-After) and at most
 *    in_flight others there. No sink waits for another.
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
 * Source:    docs/internals/core.md, "Pages".
 */
#pragma once

#include "controller/core/cluster.h"

enum { NOTIFIER_SINKS_MAX = 8 };

typedef struct NotifierSink {
    char name[SINK_NAME_MAX + 1];
    bool heartbeat_only;     /* it hears no incidents, beats alone */
    Severity least;          /* less severe incidents are not told */
    uint64_t repeat_usec;    /* an open incident is told again this often; 0: once */
    uint64_t heartbeat_usec; /* a sign of life this often; 0: none */
} NotifierSink;

typedef struct NotifierConfig {
    NotifierSink sinks[NOTIFIER_SINKS_MAX];
    int n_sinks;
    int in_flight;           /* messages under way to one sink */
    int stores;              /* writes under way */
    uint64_t timeout_usec;   /* within which the shell has an answer, or gives one itself */
    uint64_t retry_usec;     /* the n-th pause is a random share of this doubled n - 1 times */
    uint64_t retry_max_usec; /* the longest pause; also between tries at a sink that refuses */
    uint64_t late_usec;      /* an incident over this long is not told any more */
} NotifierConfig;

extern const NotifierConfig notifier_config_default;

/* What a sink said. */
typedef enum AnswerKind {
    ANSWER_ACCEPTED,
    ANSWER_AGAIN,   /* nothing, or something else may come of another try */
    ANSWER_REFUSED, /* the same message will be refused again */
} AnswerKind;

typedef struct Answer {
    AnswerKind kind;
    uint64_t pause_usec; /* the sink asks for silence this long (Retry-After); 0: it does not */
    char text[128];      /* unless accepted: what it said */
} Answer;

typedef enum MessageKind { NOTIFY_TRIGGER, NOTIFY_RESOLVE, NOTIFY_HEARTBEAT } MessageKind;

typedef enum NotifierActionKind {
    NOTIFIER_REST,          /* until something happens, or wake_usec */
    NOTIFIER_SEND,          /* a message; notifier_answered() */
    NOTIFIER_STORE_ALERT,   /* alerts/<id>; notifier_stored() */
    NOTIFIER_STORE_REQUEST, /* requests/<id>, answered; notifier_stored() */
} NotifierActionKind;

typedef struct NotifierAction {
    NotifierActionKind kind;
    int64_t id;
    uint64_t wake_usec;

    /* SEND */
    int sink; /* index in the configuration */
    MessageKind message_kind;
    const IncidentRecord *incident; /* NULL: a beat */
    Severity told;                  /* as which this sink heard of it last; the same if never */

    /* STORE: one transaction that compares the term and the revision */
    int64_t term;
    const AlertRecord *alert; /* NULL: alerts/<name> is removed */
    const RequestRecord *request;
    const char *name;
    int64_t revision; /* of what is written */
} NotifierAction;

typedef struct SinkCounts {
    int64_t accepted, again, refused;
    int waiting; /* pages that it has not accepted the present state of */
    int failing; /* of these, those that were tried in vain */
} SinkCounts;

typedef struct Notifier Notifier;

size_t notifier_bytes(int notifications_max);
Notifier *notifier_init(void *memory, int notifications_max, const NotifierConfig *config);
/* Other sinks: whatever is under way has been cancelled; everything is tried again at once. */
void notifier_configure(Notifier *c, const NotifierConfig *config);

/* INCIDENT, ALERT, REQUEST, LEADING, DEPOSED; false when the event does not matter here. With
 * DEPOSED, the shell cancels what is under way. */
bool notifier_observe(Notifier *c, const Event *ev);
/* Answers to what is not under way any more are ignored. random: any 32 bits. */
void notifier_answered(Notifier *c, int64_t id, const Answer *answer, uint64_t now_usec,
                       uint64_t real_usec, uint32_t random);
/* After REFUSED and UNKNOWN the record has been read and observed again. */
void notifier_stored(Notifier *c, int64_t id, Outcome outcome, int64_t revision);
/* Call again until it rests. lease_usec: until when this leader surely leads. */
void notifier_next(Notifier *c, uint64_t now_usec, uint64_t real_usec, uint64_t lease_usec,
                   NotifierAction *ret);

/* "<cluster>/<incident>/<second at which it began>": what sinks tell pages apart by. */
enum { DEDUP_KEY_BYTES = CLUSTER_NAME_MAX + RECORD_INCIDENT_MAX + 24 };
const char *notifier_dedup_key(const char *cluster, const IncidentRecord *incident,
                               char ret[DEDUP_KEY_BYTES]);

void notifier_count(const Notifier *c, int sink, SinkCounts *ret);
int64_t notifier_dropped(const Notifier *c);
