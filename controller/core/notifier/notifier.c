/* notifier.c - what the courier learns: records, answers, outcomes; and its memory.
 *
 * Guarantees: a mark only moves forward while one leader leads; what another leader has stored
 * replaces what was only meant to be stored here. */
#include "controller/core/notifier/notifier-internal.h"
#include "controller/core/text.h"

#include <string.h>

const CourierConfig courier_config_default = {
    .in_flight = 4,
    .stores = 16,
    .timeout_usec = 10 * USEC_PER_SEC,
    .retry_usec = USEC_PER_SEC,
    .retry_max_usec = 300 * USEC_PER_SEC,
    .late_usec = 3600 * USEC_PER_SEC,
};

size_t courier_bytes(int pages_max)
{
    return ROUND_UP(sizeof(Courier), (size_t)16) + (size_t)pages_max * sizeof(Page);
}

Courier *courier_init(void *memory, int pages_max, const CourierConfig *config)
{
    assert(pages_max > 0);
    memset(memory, 0, courier_bytes(pages_max));
    Courier *c = memory;
    c->pages_max = pages_max;
    c->pages = (Page *)((char *)memory + ROUND_UP(sizeof(Courier), (size_t)16));
    courier_configure(c, config);
    return c;
}

/* Nothing is under way any more, and nothing waits. */
static void forget_tasks(Courier *c)
{
    for (int i = 0; i < c->pages_max; i++)
        memset(c->pages[i].tasks, 0, sizeof(c->pages[i].tasks));
    for (int k = 0; k < COURIER_SINKS_MAX; k++) {
        SinkCounts counts = c->sinks[k].counts;
        c->sinks[k] = (SinkState){.counts = counts};
    }
}

static void begin_tests(Courier *c);

void courier_configure(Courier *c, const CourierConfig *config)
{
    assert(config->n_sinks >= 0 && config->n_sinks <= COURIER_SINKS_MAX);
    assert(config->in_flight > 0 && config->stores > 0);
    c->config = *config;
    forget_tasks(c);
    for (int k = 0; k < COURIER_SINKS_MAX; k++)
        c->sinks[k].counts = (SinkCounts){0};
    begin_tests(c);
}

int64_t courier_dropped(const Courier *c) { return c->dropped; }

void courier_count(const Courier *c, int sink, SinkCounts *ret)
{
    assert(sink >= 0 && sink < c->config.n_sinks);
    *ret = c->sinks[sink].counts;
    ret->waiting = ret->failing = 0;
    for (int i = 0; i < c->pages_max; i++) {
        Page *page = &c->pages[i];
        const Delivery *d = page->used ? page_delivery(page, &c->config.sinks[sink]) : NULL;
        if (!d || d->state == DELIVERY_RESOLVED ||
            (d->state == DELIVERY_TRIGGERED && !page_is_over(page) && d->attempts == 0) ||
            (d->state == DELIVERY_FAILED && page_is_over(page)))
            continue;
        ret->waiting++;
        ret->failing += d->attempts > 0;
    }
}

const char *courier_dedup_key(const char *cluster, const IncidentRecord *incident,
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

/* ---- pages ---- */

static Page *find_page(Courier *c, const char *id, bool test)
{
    for (int i = 0; i < c->pages_max; i++)
        if (c->pages[i].used && c->pages[i].test == test && text_equal(c->pages[i].incident.id, id))
            return &c->pages[i];
    return NULL;
}

static Page *new_page(Courier *c, const char *id, bool test)
{
    for (int i = 0; i < c->pages_max; i++) {
        Page *page = &c->pages[i];
        if (page->used)
            continue;
        memset(page, 0, sizeof(*page));
        page->used = true;
        page->test = test;
        text_copy(page->incident.id, sizeof(page->incident.id), id);
        return page;
    }
    c->dropped++;
    return NULL;
}

static void forget_page_if_empty(Page *page)
{
    if (page->incident_stamp.mod == 0 && page->alert_stamp.mod == 0 && page->storing == 0)
        page->used = false;
}

/* True when the event is news. */
static bool stamp(Stamp *s, const Event *ev)
{
    if (ev->revision < s->seen)
        return false;
    s->seen = ev->revision;
    s->mod = ev->record ? ev->revision : 0;
    return true;
}

static void observe_incident(Courier *c, const Event *ev)
{
    Page *page = find_page(c, ev->name, false);
    if (!page && ev->incident)
        page = new_page(c, ev->name, false);
    if (!page || !stamp(&page->incident_stamp, ev))
        return;
    if (ev->incident) {
        page->incident = *ev->incident;
        text_copy(page->incident.id, sizeof(page->incident.id), ev->name);
    } else if (!page_is_over(page)) {
        page->incident.state = INCIDENT_RESOLVED;
        page->incident.resolved_usec = ev->real_usec;
    }
    forget_page_if_empty(page);
}

static void observe_alert(Courier *c, const Event *ev)
{
    Page *page = find_page(c, ev->name, false);
    if (!page && ev->alert)
        page = new_page(c, ev->name, false);
    if (!page || !stamp(&page->alert_stamp, ev))
        return;
    bool own = ev->alert && c->term && ev->alert->term == c->term && page->alert.term == c->term &&
               ev->alert->incident_usec == page->alert.incident_usec;
    if (!own) { /* our own come back later than we know better */
        if (ev->alert)
            page->alert = *ev->alert;
        else
            memset(&page->alert, 0, sizeof(page->alert));
        page->dirty = false;
    }
    forget_page_if_empty(page);
}

/* ---- tests that somebody asks for ---- */

static void begin_test(Courier *c, Page *page)
{
    AlertRecord *alert = &page->alert;
    alert->n_deliveries = 0;
    for (int k = 0; k < c->config.n_sinks; k++) {
        const CourierSink *sink = &c->config.sinks[k];
        if (page->request.target[0] && !text_equal(page->request.target, sink->name))
            continue;
        Delivery *d = &alert->deliveries[alert->n_deliveries++];
        *d = (Delivery){.state = DELIVERY_SENDING, .severity = page->incident.severity};
        text_copy(d->sink, sizeof(d->sink), sink->name);
    }
}

static void begin_tests(Courier *c)
{
    for (int i = 0; i < c->pages_max; i++)
        if (c->pages[i].used && c->pages[i].test)
            begin_test(c, &c->pages[i]);
}

static bool observe_request(Courier *c, const Event *ev)
{
    char id[RECORD_INCIDENT_MAX + 1];
    Text t = text_begin(id, sizeof(id));
    text_add(&t, "test-");
    text_add(&t, ev->name);
    Page *page = find_page(c, id, true);
    const RequestRecord *q = ev->request;
    if (!q || q->answer[0] || !text_equal(q->kind, "alerts-test")) {
        if (page && stamp(&page->request_stamp, ev))
            page->used = false;
        return page != NULL;
    }
    if (!page)
        page = new_page(c, id, true);
    if (!page || !stamp(&page->request_stamp, ev))
        return false;
    page->request = *q;
    text_copy(page->request.id, sizeof(page->request.id), ev->name);
    IncidentRecord *incident = &page->incident;
    incident->severity = SEVERITY_CRITICAL;
    incident->at_usec = q->at_usec;
    incident->rank = -1;
    text_copy(incident->cause, sizeof(incident->cause), "test");
    text_copy(incident->evidence, sizeof(incident->evidence),
              "somebody asked for it with sdctl alerts test; nothing is wrong");
    begin_test(c, page);
    return true;
}

/* ---- leadership ---- */

static void learn_leadership(Courier *c, int64_t term, uint64_t now_usec)
{
    c->term = term;
    c->leading_usec = now_usec;
    forget_tasks(c);
    for (int i = 0; i < c->pages_max; i++) {
        Page *page = &c->pages[i];
        page->storing = 0;
        page->inherited = false;
        page->dirty = false; /* what this term means to store is found again */
    }
    begin_tests(c);
}

bool courier_observe(Courier *c, const Event *ev)
{
    c->now_usec = MAX(c->now_usec, ev->now_usec);
    c->real_usec = ev->real_usec;
    if (ev->health)
        return false; /* what it was counts */
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
        learn_leadership(c, ev->term, ev->now_usec);
        return true;
    case EVENT_DEPOSED:
        learn_leadership(c, 0, ev->now_usec);
        return true;
    default:
        return false;
    }
}

/* ---- answers ---- */

static uint64_t pause_after(const CourierConfig *config, int failures, uint64_t most_usec,
                            uint32_t random)
{
    uint64_t window = config->retry_usec;
    for (int i = 1; i < failures && window < most_usec; i++)
        window *= 2;
    window = MIN(window, most_usec);
    return (window / 1024 * (random >> 10)) >> 12; /* random / 2^32 of it, rounded down */
}

static void mark_accepted(Page *page, Delivery *d, const Task *task, uint64_t real_usec)
{
    Delivery old = *d;
    d->attempts = 0;
    d->text[0] = '\0';
    if (task->tell == TELL_TRIGGER) {
        d->state = DELIVERY_TRIGGERED;
        d->severity = task->severity;
    } else {
        d->state = DELIVERY_RESOLVED;
    }
    if (d->state == old.state && d->severity == old.severity && old.attempts == 0)
        return; /* a repetition: nothing is new */
    d->at_usec = real_usec;
    page->dirty = !page->test;
}

static void mark_failed(Page *page, Delivery *d, const Task *task, const Answer *answer,
                        uint64_t real_usec)
{
    d->attempts = MIN(d->attempts, INT32_MAX - 1) + 1;
    d->at_usec = real_usec;
    text_copy(d->text, sizeof(d->text), answer->text);
    bool may_be_open = task->tell == TELL_TRIGGER && d->state == DELIVERY_TRIGGERED;
    if (page->test || (answer->kind == ANSWER_REFUSED && !may_be_open))
        d->state = DELIVERY_FAILED;
    else if (d->state == DELIVERY_FAILED)
        d->state = DELIVERY_SENDING; /* this time it may have heard */
    page->dirty = !page->test;
}

/* Counts, and says when the sink may hear of it again. */
static void learn_answer(Courier *c, int k, Task *task, const Answer *answer, uint64_t most_usec,
                         uint32_t random)
{
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

static Page *find_in_flight(Courier *c, int64_t id, int *ret_sink)
{
    for (int i = 0; i < c->pages_max; i++)
        for (int k = 0; c->pages[i].used && k < c->config.n_sinks; k++)
            if (c->pages[i].tasks[k].in_flight == id) {
                *ret_sink = k;
                return &c->pages[i];
            }
    return NULL;
}

void courier_answered(Courier *c, int64_t id, const Answer *answer, uint64_t now_usec,
                      uint64_t real_usec, uint32_t random)
{
    assert(id > 0);
    c->now_usec = MAX(c->now_usec, now_usec);
    c->real_usec = real_usec;
    for (int k = 0; k < c->config.n_sinks; k++) {
        Task *beat = &c->sinks[k].beat;
        if (beat->in_flight == id) {
            learn_answer(c, k, beat, answer, c->config.sinks[k].beat_usec, random);
            return;
        }
    }
    int k;
    Page *page = find_in_flight(c, id, &k);
    if (!page)
        return;
    Task *task = &page->tasks[k];
    learn_answer(c, k, task, answer, c->config.retry_max_usec, random);
    Delivery *d = page_delivery(page, &c->config.sinks[k]);
    if (!d)
        return; /* somebody has written over the record */
    if (answer->kind == ANSWER_ACCEPTED)
        mark_accepted(page, d, task, real_usec);
    else
        mark_failed(page, d, task, answer, real_usec);
}

void courier_stored(Courier *c, int64_t id, Outcome outcome, int64_t revision)
{
    assert(id > 0);
    Page *page = NULL;
    for (int i = 0; i < c->pages_max; i++)
        if (c->pages[i].used && c->pages[i].storing == id)
            page = &c->pages[i];
    if (!page)
        return; /* of an earlier term */
    page->storing = 0;
    if (outcome != OUTCOME_DONE) {
        page->dirty = !page->test && !page->removing && page->alert.term == c->term;
        forget_page_if_empty(page);
        return;
    }
    if (page->test) {
        page->used = false;
        return;
    }
    if (revision >= page->alert_stamp.seen) {
        page->alert_stamp.seen = revision;
        page->alert_stamp.mod = page->removing ? 0 : revision;
    }
    forget_page_if_empty(page);
}
