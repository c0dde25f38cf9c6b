/* SPDX-License-Identifier: Apache-2.0 */
/* test-notifier-walk.c - random walks. Controllers lead in turn, see the store late, are frozen and wake; sinks fail,
 * answer late or not at all; incidents begin, become critical and end.
 *
 * The sinks distinguish pages by their keys as PagerDuty does: "triggered" opens a page unless it is open, "resolved"
 * ends it. The test checks at the end of each walk, once all faults have ended: each incident that concerns a sink
 * and was not refused by that sink was opened there exactly once and is resolved, no other incident was opened, and
 * everything is settled (I10). It checks always: no sink opens a page twice, or resolves a page that was never
 * opened.
 *
 *   test-notifier-walk          100 walks
 *   test-notifier-walk SEED     one walk, with a line for each event */
#include "base/test/testing.h"
#include "controller/core/notifier/notifier.h"

#include <string.h>

enum {
    WALKS = 100,
    STEPS = 1500,
    CONTROLLERS = 3,
    INCIDENTS = 12,
    SINKS = 3,
    PAGES = 32,
    CHANGES_MAX = 4096,
    MESSAGES_MAX = 256,
};

#define SEC USEC_PER_SEC
#define EPOCH (UINT64_C(1000000) * SEC)

/* A change of the store. The store keeps every change in order; a controller has seen a prefix of them. */
typedef struct Change {
    EventKind kind;
    int incident;
    bool gone;
    union {
        IncidentRecord of_incident;
        AlertRecord of_alert;
    };
} Change;

typedef struct WalkController {
    Notifier *notifier;
    int seen;            /* number of changes seen */
    int64_t term;        /* the term in which the controller leads, as far as it knows; 0: none */
    uint64_t lease_usec; /* end of the lease, as far as the controller knows */
    bool frozen;
} WalkController;

typedef struct Message {
    bool used, arrived;
    int controller, sink, incident;
    int64_t id, term;
    MessageKind message_kind;
    Severity severity;
    /* at_usec: when the message arrives or, once it has arrived, when it is answered. until_usec: when the shell gives
     * up. */
    uint64_t at_usec, until_usec;
    AnswerKind answer;
} Message;

typedef struct Write {
    bool used;
    int controller;
    int64_t id;
    Outcome outcome;
    int64_t revision;
    uint64_t at_usec;
} Write;

typedef struct World {
    uint64_t random;
    uint64_t now;
    NotifierConfig config;
    Change changes[CHANGES_MAX];
    int n_changes;
    int64_t term; /* term of the true leader; 0: there is none */
    int leader;
    int64_t last_term;
    IncidentRecord incidents[INCIDENTS];
    int64_t alert_mod[INCIDENTS];
    AlertRecord alerts[INCIDENTS];
    int n_incidents;
    WalkController controllers[CONTROLLERS];
    Message messages[MESSAGES_MAX];
    Write writes[MESSAGES_MAX];
    bool open[SINKS][INCIDENTS];
    int opened[SINKS][INCIDENTS], resolved[SINKS][INCIDENTS];
    bool down[SINKS];
    bool healed, talk;
} World;

static uint64_t draw(World *w, uint64_t n)
{
    w->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = w->random;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % n;
}

static bool chance(World *w, int percent) { return (int)draw(w, 100) < percent; }

static void say(const World *w, const char *format, ...) _printf_(2, 3);
static void say(const World *w, const char *format, ...)
{
    if (!w->talk)
        return;
    va_list ap;
    va_start(ap, format);
    printf("%10.3f ", (double)(w->now - EPOCH) / 1e6);
    vprintf(format, ap);
    printf("\n");
    va_end(ap);
}

/* ---- store ---- */

static Change *add_change(World *w, EventKind kind, int incident)
{
    assert_true(w->n_changes < CHANGES_MAX);
    Change *change = &w->changes[w->n_changes++];
    *change = (Change){.kind = kind, .incident = incident};
    if (kind == EVENT_INCIDENT) {
        change->of_incident = w->incidents[incident];
    } else {
        change->of_alert = w->alerts[incident];
        w->alert_mod[incident] = w->n_changes;
    }
    return change;
}

static int incident_of(const World *w, const char *id)
{
    for (int i = 0; i < w->n_incidents; i++)
        if (strcmp(w->incidents[i].id, id) == 0)
            return i;
    fail_msg("no incident %s", id);
    return -1;
}

static Write *new_write(World *w)
{
    for (int i = 0; i < MESSAGES_MAX; i++)
        if (!w->writes[i].used)
            return &w->writes[i];
    fail_msg("too many writes");
    return NULL;
}

static void begin_write(World *w, int k, const NotifierAction *a)
{
    int i = incident_of(w, a->name);
    bool holds = a->term == w->term && a->revision == w->alert_mod[i];
    bool lost = !w->healed && chance(w, 5), done = holds && !(lost && chance(w, 50));
    assert_non_null(a->alert); /* no incident is removed in this test */
    if (done) {
        w->alerts[i] = *a->alert;
        (void)add_change(w, EVENT_ALERT, i);
    }
    Outcome outcome = lost ? OUTCOME_UNKNOWN : holds ? OUTCOME_DONE : OUTCOME_REFUSED;
    say(w, "c%d writes %s, %s: %s", k, a->name, done ? "done" : "not done",
        lost ? "no answer" : "answered");
    *new_write(w) = (Write){.used = true,
                            .controller = k,
                            .id = a->id,
                            .outcome = outcome,
                            .revision = w->n_changes,
                            .at_usec = w->now + draw(w, 50) * USEC_PER_MSEC};
}

/* ---- sinks ---- */

static void begin_message(World *w, int k, const NotifierAction *a)
{
    assert_true(a->message_kind != NOTIFY_HEARTBEAT);
    int incident = incident_of(w, a->incident->id);
    const WalkController *c = &w->controllers[k];
    for (int i = 0; i < MESSAGES_MAX; i++) {
        Message *m = &w->messages[i];
        if (m->used)
            continue;
        uint64_t timeout = w->config.timeout_usec;
        /* The shell ensures that no message arrives after the timeout. */
        *m = (Message){.used = true,
                       .controller = k,
                       .sink = a->sink,
                       .incident = incident,
                       .id = a->id,
                       .term = c->term,
                       .message_kind = a->message_kind,
                       .severity = a->incident->severity,
                       .at_usec = w->now +
                                  (w->healed || chance(w, 80) ? draw(w, 200000) : draw(w, timeout)),
                       .until_usec = w->now + timeout};
        say(w, "c%d sends %s of %s to s%d", k,
            a->message_kind == NOTIFY_TRIGGER ? "trigger" : "resolve", a->incident->id, a->sink);
        return;
    }
    fail_msg("too many messages");
}

static void arrive(World *w, Message *m)
{
    m->arrived = true;
    m->answer = ANSWER_AGAIN;
    m->at_usec = m->until_usec; /* without an earlier answer, the shell gives up at until_usec */
    if (w->down[m->sink] || (!w->healed && chance(w, 20))) {
        if (chance(w, 50)) { /* the sink reports its failure */
            m->at_usec = w->now + draw(w, 1000);
            m->answer = chance(w, 10) ? ANSWER_REFUSED : ANSWER_AGAIN;
        }
        return;
    }
    bool *open = &w->open[m->sink][m->incident];
    say(w, "s%d hears %s of %d", m->sink, m->message_kind == NOTIFY_TRIGGER ? "trigger" : "resolve",
        m->incident);
    if (m->message_kind == NOTIFY_TRIGGER && !*open) {
        *open = true;
        w->opened[m->sink][m->incident]++;
        assert_int_equal(w->opened[m->sink][m->incident], 1);
    } else if (m->message_kind == NOTIFY_RESOLVE) {
        assert_true(w->opened[m->sink][m->incident] >
                    0); /* a page is resolved only after it was opened */
        w->resolved[m->sink][m->incident] += *open;
        *open = false;
    }
    if (w->healed || chance(w, 80)) { /* otherwise the sink's answer is lost */
        m->at_usec = MIN(m->until_usec, w->now + draw(w, 100000));
        m->answer = ANSWER_ACCEPTED;
    }
}

/* ---- controllers ---- */

static void drain(World *w, int k)
{
    WalkController *c = &w->controllers[k];
    NotifierAction action;
    for (int i = 0; i < 1000 && !c->frozen; i++) {
        notifier_next(c->notifier, w->now, w->now, c->lease_usec, &action);
        if (action.kind == NOTIFIER_REST)
            return;
        if (action.kind == NOTIFIER_SEND)
            begin_message(w, k, &action);
        else
            begin_write(w, k, &action);
    }
    assert_true(c->frozen && "the courier does not come to rest");
}

static Event event_of(const World *w, EventKind kind)
{
    return (Event){.kind = kind, .now_usec = w->now, .real_usec = w->now};
}

/* Shows the controller the next change that it has not seen. */
static void show(World *w, int k)
{
    WalkController *c = &w->controllers[k];
    const Change *change = &w->changes[c->seen++];
    Event event = event_of(w, change->kind);
    event.revision = c->seen;
    (void)snprintf(event.name, sizeof(event.name), "%s", w->incidents[change->incident].id);
    event.record =
        change->kind == EVENT_INCIDENT ? (const void *)&change->of_incident : &change->of_alert;
    (void)notifier_observe(c->notifier, &event);
}

static void show_all(World *w, int k)
{
    while (w->controllers[k].seen < w->n_changes)
        show(w, k);
}

static void tell_term(World *w, int k, int64_t term)
{
    WalkController *c = &w->controllers[k];
    Event event = event_of(w, term ? EVENT_LEADING : EVENT_DEPOSED);
    event.term = c->term = term;
    for (int i = 0; i < MESSAGES_MAX;
         i++) /* the messages are cancelled; messages that were sent still arrive */
        if (w->messages[i].used && w->messages[i].controller == k)
            w->messages[i].id = 0;
    (void)notifier_observe(c->notifier, &event);
}

/* Starts the controller with empty memory: it reads the store from the beginning up to a random point. */
static void start(World *w, int k)
{
    WalkController *c = &w->controllers[k];
    void *memory = c->notifier ? (void *)c->notifier : malloc(notifier_bytes(PAGES));
    assert_non_null(memory);
    for (int i = 0; i < MESSAGES_MAX; i++) {
        if (w->messages[i].used && w->messages[i].controller == k)
            w->messages[i].id = 0;
        if (w->writes[i].controller == k)
            w->writes[i].used = false;
    }
    *c = (WalkController){.notifier = notifier_init(memory, PAGES, &w->config)};
    uint64_t random = draw(w, (uint64_t)w->n_changes + 1);
    while (c->seen < (int)random)
        show(w, k);
}

/* Ends the term: the leader does not know this yet, but its lease is over. */
static void depose(World *w)
{
    say(w, "c%d is deposed", w->leader);
    w->term = 0;
    w->controllers[w->leader].lease_usec = w->now;
}

static void elect(World *w)
{
    int k = (int)draw(w, CONTROLLERS);
    WalkController *c = &w->controllers[k];
    if (c->frozen)
        return;
    w->term = ++w->last_term;
    w->leader = k;
    c->lease_usec = USEC_INFINITY;
    say(w, "c%d leads, term %lld", k, (long long)w->term);
    if (c->term)
        tell_term(w, k, 0);
    tell_term(w, k, w->term);
}

/* ---- what happens ---- */

static void change_incident(World *w)
{
    if (w->n_incidents < INCIDENTS && chance(w, 30)) {
        IncidentRecord *new = &w->incidents[w->n_incidents];
        *new = (IncidentRecord){.at_usec = w->now, .severity = (Severity)draw(w, 3), .rank = -1};
        (void)snprintf(new->id, sizeof(new->id), "x-%d", w->n_incidents);
        (void)add_change(w, EVENT_INCIDENT, w->n_incidents++);
        return;
    }
    if (w->n_incidents == 0)
        return;
    int i = (int)draw(w, (uint64_t)w->n_incidents);
    IncidentRecord *incident = &w->incidents[i];
    if (incident->state == INCIDENT_RESOLVED)
        return;
    if (chance(w, 50)) {
        incident->severity = SEVERITY_CRITICAL;
    } else {
        incident->state = INCIDENT_RESOLVED;
        incident->resolved_usec = w->now;
    }
    say(w, "%s is %s, %s", incident->id, severity_name(incident->severity),
        incident->state ? "over" : "open");
    (void)add_change(w, EVENT_INCIDENT, i);
}

static void act(World *w)
{
    int k = (int)draw(w, CONTROLLERS);
    WalkController *c = &w->controllers[k];
    switch (draw(w, 12)) {
    case 0:
    case 1:
        if (w->term)
            change_incident(w); /* only a leader changes incidents */
        break;
    case 2:
        if (w->term)
            depose(w);
        break;
    case 3:
        if (!w->term)
            elect(w);
        break;
    case 4:
        if (w->term && w->leader == k && chance(w, 70))
            break;
        if (w->term && w->leader == k)
            depose(w);
        say(w, "c%d starts anew", k);
        start(w, k);
        break;
    case 5:
        c->frozen = !c->frozen;
        if (c->frozen && w->term && w->leader == k)
            depose(w);
        break;
    case 6:
        if (c->term && !(w->term && w->leader == k) && !c->frozen)
            tell_term(w, k, 0); /* a deposed controller learns that it was deposed */
        break;
    case 7:
        w->down[draw(w, SINKS)] = chance(w, 50);
        break;
    default:
        for (int n = (int)draw(w, 8); n > 0 && c->seen < w->n_changes && !c->frozen; n--)
            show(w, k);
    }
}

static void deliver(World *w)
{
    for (int i = 0; i < MESSAGES_MAX; i++) {
        Message *m = &w->messages[i];
        if (m->used && !m->arrived && m->at_usec <= w->now)
            arrive(w, m);
        if (!m->used || !m->arrived || m->at_usec > w->now || w->controllers[m->controller].frozen)
            continue;
        m->used = false;
        Answer answer = {.kind = m->answer, .text = "it fails"};
        if (m->id)
            notifier_answered(w->controllers[m->controller].notifier, m->id, &answer, w->now,
                              w->now, (uint32_t)draw(w, UINT32_MAX));
    }
    for (int i = 0; i < MESSAGES_MAX; i++) {
        Write *write = &w->writes[i];
        if (!write->used || write->at_usec > w->now || w->controllers[write->controller].frozen)
            continue;
        write->used = false;
        if (write->outcome != OUTCOME_DONE)
            show_all(w, write->controller);
        notifier_stored(w->controllers[write->controller].notifier, write->id, write->outcome,
                        write->revision);
    }
}

static void heal(World *w)
{
    say(w, "healed");
    w->healed = true;
    memset(w->down, 0, sizeof(w->down));
    for (int k = 0; k < CONTROLLERS; k++)
        w->controllers[k].frozen = false;
    for (int i = 0; i < w->n_incidents; i++)
        if (w->incidents[i].state == INCIDENT_OPEN) {
            w->incidents[i].state = INCIDENT_RESOLVED;
            w->incidents[i].resolved_usec = w->now;
            (void)add_change(w, EVENT_INCIDENT, i);
        }
    while (!w->term)
        elect(w);
    for (uint64_t end = w->now + 1200 * SEC; w->now < end; w->now += SEC / 4) {
        deliver(w);
        for (int k = 0; k < CONTROLLERS; k++) {
            show_all(w, k);
            drain(w, k);
        }
    }
}

static bool was_refused(const World *w, int sink, const AlertRecord *alert)
{
    for (size_t i = 0; i < alert->n_deliveries; i++)
        if (strcmp(alert->deliveries[i].sink, w->config.sinks[sink].name) == 0)
            return alert->deliveries[i].state == DELIVERY_FAILED;
    return false;
}

static void check_end(const World *w)
{
    for (int i = 0; i < w->n_incidents; i++) {
        assert_true(w->alerts[i].settled);
        for (int s = 0; s < SINKS; s++) {
            bool concerned = w->incidents[i].severity >= w->config.sinks[s].least;
            if (was_refused(w, s, &w->alerts[i]))
                continue; /* the alert record shows the refusal */
            assert_int_equal(w->opened[s][i], concerned);
            assert_int_equal(w->resolved[s][i], concerned);
        }
    }
}

static void walk(uint64_t seed, bool talk, int *n_pages)
{
    static World world; /* static, because it is large */
    World *w = &world;
    memset(w, 0, sizeof(*w));
    w->random = seed * 1000003;
    w->talk = talk;
    w->now = EPOCH;
    w->config = notifier_config_default;
    w->config.late_usec = 86400 * SEC;
    w->config.n_sinks = SINKS;
    for (int s = 0; s < SINKS; s++) {
        w->config.sinks[s].least = (Severity)s;
        (void)snprintf(w->config.sinks[s].name, sizeof(w->config.sinks[s].name), "s%d", s);
    }
    for (int k = 0; k < CONTROLLERS; k++)
        start(w, k);
    for (int i = 0; i < STEPS; i++) {
        w->now += draw(w, 2 * SEC) * draw(w, 2);
        act(w);
        deliver(w);
        for (int k = 0; k < CONTROLLERS; k++)
            drain(w, k);
    }
    heal(w);
    check_end(w);
    for (int s = 0; s < SINKS; s++)
        for (int i = 0; i < w->n_incidents; i++)
            *n_pages += w->opened[s][i];
    for (int k = 0; k < CONTROLLERS; k++)
        free(w->controllers[k].notifier);
}

static uint64_t chosen_seed;

static void walks_give_one_page_each(void **state)
{
    (void)state;
    int n_pages = 0;
    for (uint64_t seed = 1; seed <= WALKS; seed++) {
        chosen_seed = seed;
        walk(seed, false, &n_pages);
    }
    print_message("%d walks, %d pages\n", WALKS, n_pages);
    assert_true(n_pages > 10 * WALKS); /* the walks open many pages */
}

static void one_walk(void **state)
{
    (void)state;
    int n_pages = 0;
    walk(chosen_seed, true, &n_pages);
}

static int say_seed(void **state)
{
    (void)state;
    print_message("last seed: %llu\n", (unsigned long long)chosen_seed);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {cmocka_unit_test_teardown(walks_give_one_page_each, say_seed)};
    const struct CMUnitTest one[] = {cmocka_unit_test(one_walk)};
    if (argc < 2)
        return cmocka_run_group_tests(all, NULL, NULL);
    chosen_seed = strtoull(argv[1], NULL, 10);
    return cmocka_run_group_tests(one, NULL, NULL);
}
