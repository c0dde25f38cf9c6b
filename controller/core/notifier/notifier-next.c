/* notifier-next.c - the next thing to do: a mark to store, then a message, then a sign of life.
 *
 * Marks come first, because nothing is told of a page whose marks are not stored. Of the messages
 * the most severe goes first, then the oldest. */
#include "controller/core/notifier/notifier-internal.h"
#include "controller/core/text.h"

#include <string.h>

enum { TEST_LATE_SEC = 120, LEASE_POLL_MSEC = 200 };

static bool is_due(Courier *c, uint64_t at_usec)
{
    if (c->now_usec >= at_usec)
        return true;
    c->wake_usec = MIN(c->wake_usec, at_usec);
    return false;
}

/* ---- marks ---- */

/* One place is always free or taken by a sink that is not there any more. */
static Delivery *new_delivery(const Courier *c, AlertRecord *alert, const CourierSink *sink)
{
    _Static_assert((int)RECORD_DELIVERIES_MAX > (int)COURIER_SINKS_MAX, "a place for each");
    size_t at = alert->n_deliveries;
    if (at == RECORD_DELIVERIES_MAX) {
        bool known = true;
        while (known) {
            at--;
            known = false;
            for (int k = 0; k < c->config.n_sinks; k++)
                known |= text_equal(alert->deliveries[at].sink, c->config.sinks[k].name);
        }
    } else {
        alert->n_deliveries++;
    }
    Delivery *d = &alert->deliveries[at];
    *d = (Delivery){.state = DELIVERY_SENDING};
    text_copy(d->sink, sizeof(d->sink), sink->name);
    return d;
}

static bool is_late(Courier *c, const Page *page)
{
    uint64_t end = page->incident.resolved_usec + c->config.late_usec;
    if (!page_is_over(page))
        return false;
    if (end > c->real_usec) {
        (void)is_due(c, c->now_usec + (end - c->real_usec));
        return false;
    }
    return true;
}

/* Intent: sinks that the incident concerns and that have no mark yet. */
static void mark_concerned(Courier *c, Page *page)
{
    bool late = is_late(c, page);
    for (int k = 0; k < c->config.n_sinks; k++) {
        const CourierSink *sink = &c->config.sinks[k];
        Delivery *d = page_delivery(page, sink);
        if (!d && !late && !page->alert.settled && !sink->deaf &&
            page->incident.severity >= sink->least) {
            d = new_delivery(c, &page->alert, sink);
            d->severity = page->incident.severity;
            d->at_usec = c->real_usec;
            page->dirty = true;
        } else if (d && late && d->state < DELIVERY_RESOLVED && !page->tasks[k].in_flight &&
                   (d->state == DELIVERY_SENDING || d->attempts > 0)) {
            d->state = DELIVERY_FAILED;
            d->at_usec = c->real_usec;
            page->dirty = true;
        }
    }
}

/* Nothing is left to tell; what a sink that is not configured here may still hold is waited for. */
static bool nothing_is_left(Courier *c, Page *page)
{
    Tell tell;
    uint64_t at_usec;
    for (int k = 0; k < c->config.n_sinks; k++)
        if (page_tell(c, page, k, &tell, &at_usec))
            return false;
    for (size_t i = 0; i < page->alert.n_deliveries; i++)
        if (page->alert.deliveries[i].state < DELIVERY_RESOLVED && !is_late(c, page))
            return false;
    return true;
}

/* Brings the record to what this leader means; true when it must be stored. */
static bool prepare_alert(Courier *c, Page *page)
{
    AlertRecord *alert = &page->alert;
    const IncidentRecord *incident = &page->incident;
    if (alert->incident_usec != incident->at_usec) { /* of an earlier one with that id, or none */
        memset(alert, 0, sizeof(*alert));
        alert->incident_usec = incident->at_usec;
    }
    text_copy(alert->id, sizeof(alert->id), incident->id);
    bool by_another = alert->term != c->term && alert->n_deliveries > 0;
    mark_concerned(c, page);
    bool over = page_is_over(page), left = !nothing_is_left(c, page);
    if (over && !left) {
        alert->settled = true;
        page->dirty = true;
    }
    if ((left || page->dirty) && alert->term != c->term) {
        alert->term = c->term;
        page->inherited = by_another;
        page->dirty = true;
    }
    return page->dirty;
}

static bool store_alert(Courier *c, Page *page, CourierAction *ret)
{
    if (page->incident_stamp.seen == 0)
        return false; /* a mark without an incident: none of ours to judge */
    bool gone = page->incident_stamp.mod == 0;
    bool settled = page->alert.settled && page->alert.incident_usec == page->incident.at_usec;
    bool dirty = (settled && !page->dirty) ? false : prepare_alert(c, page);
    if (!dirty && !(gone && settled))
        return false;
    page->removing = !dirty;
    ret->kind = COURIER_STORE_ALERT;
    ret->name = page->incident.id;
    ret->alert = dirty ? &page->alert : NULL;
    ret->revision = page->alert_stamp.mod;
    page->dirty = false;
    return true;
}

static void say_result(const Courier *c, Page *page)
{
    RequestRecord *q = &page->request;
    int accepted = 0;
    q->n_deliveries = page->alert.n_deliveries;
    for (size_t i = 0; i < q->n_deliveries; i++) {
        q->deliveries[i] = page->alert.deliveries[i];
        accepted += q->deliveries[i].state == DELIVERY_RESOLVED;
    }
    Text t = text_begin(q->answer, sizeof(q->answer));
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

static bool store_request(Courier *c, Page *page, CourierAction *ret)
{
    bool late = c->real_usec > page->request.at_usec + TEST_LATE_SEC * USEC_PER_SEC;
    for (size_t i = 0; i < page->alert.n_deliveries; i++) {
        Delivery *d = &page->alert.deliveries[i];
        if (d->state < DELIVERY_RESOLVED && !late)
            return false;
        if (d->state < DELIVERY_RESOLVED) {
            d->state = DELIVERY_FAILED;
            text_copy(d->text, sizeof(d->text), "asked for too long ago");
        }
    }
    say_result(c, page);
    ret->kind = COURIER_STORE_REQUEST;
    ret->name = page->request.id;
    ret->request = &page->request;
    ret->revision = page->request_stamp.mod;
    return true;
}

static int count_stores(const Courier *c)
{
    int n = 0;
    for (int i = 0; i < c->pages_max; i++)
        n += c->pages[i].used && c->pages[i].storing != 0;
    return n;
}

static bool next_store(Courier *c, CourierAction *ret)
{
    if (count_stores(c) >= c->config.stores)
        return false;
    for (int i = 0; i < c->pages_max; i++) {
        Page *page = &c->pages[i];
        if (!page->used || page->storing)
            continue;
        if (!(page->test ? store_request(c, page, ret) : store_alert(c, page, ret)))
            continue;
        page->storing = ret->id = ++c->last_id;
        ret->term = c->term;
        return true;
    }
    return false;
}

/* ---- messages ---- */

static bool goes_before(const Page *a, const Page *b)
{
    if (a->test != b->test)
        return a->test;
    if (a->incident.severity != b->incident.severity)
        return a->incident.severity > b->incident.severity;
    return a->incident.at_usec < b->incident.at_usec;
}

static int count_in_flight(const Courier *c, int k)
{
    int n = 0;
    for (int i = 0; i < c->pages_max; i++)
        n += c->pages[i].used && c->pages[i].tasks[k].in_flight != 0;
    return n;
}

/* Whether the page has a message for the sink now. */
static bool may_send(Courier *c, Page *page, int k, bool room, Tell *ret)
{
    uint64_t at_usec;
    if (page->tasks[k].in_flight || !page_tell(c, page, k, ret, &at_usec))
        return false;
    if (page->test)
        return true; /* whoever asked wants to see what happens now */
    return is_due(c, MAX(at_usec, c->sinks[k].pause_until_usec)) && room;
}

static bool next_message(Courier *c, CourierAction *ret)
{
    Page *best = NULL;
    int sink = 0;
    Tell tell = TELL_TRIGGER, best_tell = TELL_TRIGGER;
    bool room[COURIER_SINKS_MAX];
    for (int k = 0; k < c->config.n_sinks; k++)
        room[k] = count_in_flight(c, k) < c->config.in_flight;
    for (int i = 0; i < c->pages_max; i++) {
        Page *page = &c->pages[i];
        if (!page->used || page->storing || page->dirty || (best && !goes_before(page, best)))
            continue;
        for (int k = 0; k < c->config.n_sinks; k++)
            if (may_send(c, page, k, room[k], &tell)) {
                best = page;
                sink = k;
                best_tell = tell;
                break;
            }
    }
    if (!best)
        return false;
    const Delivery *d = page_delivery(best, &c->config.sinks[sink]);
    Task *task = &best->tasks[sink];
    task->in_flight = ret->id = ++c->last_id;
    task->tell = ret->tell = best_tell;
    task->severity = best_tell == TELL_TRIGGER ? best->incident.severity : d->severity;
    ret->kind = COURIER_SEND;
    ret->sink = sink;
    ret->incident = &best->incident;
    ret->told = d->state == DELIVERY_TRIGGERED ? d->severity : task->severity;
    return true;
}

static bool next_beat(Courier *c, CourierAction *ret)
{
    for (int k = 0; k < c->config.n_sinks; k++) {
        const CourierSink *sink = &c->config.sinks[k];
        Task *beat = &c->sinks[k].beat;
        if (sink->beat_usec == 0 || beat->in_flight)
            continue;
        uint64_t at_usec = beat->failures    ? beat->next_usec
                           : beat->told_usec ? beat->told_usec + sink->beat_usec
                                             : 0;
        if (!is_due(c, MAX(at_usec, c->sinks[k].pause_until_usec)))
            continue;
        beat->in_flight = ret->id = ++c->last_id;
        ret->kind = COURIER_SEND;
        ret->sink = k;
        ret->tell = TELL_BEAT;
        return true;
    }
    return false;
}

void courier_next(Courier *c, uint64_t now_usec, uint64_t real_usec, uint64_t lease_usec,
                  CourierAction *ret)
{
    c->now_usec = MAX(c->now_usec, now_usec);
    c->real_usec = real_usec;
    c->wake_usec = USEC_INFINITY;
    memset(ret, 0, sizeof(*ret));
    if (c->term != 0 && c->now_usec >= lease_usec) /* another may lead already */
        c->wake_usec = c->now_usec + LEASE_POLL_MSEC * USEC_PER_MSEC;
    else if (c->term != 0 && (next_store(c, ret) || next_message(c, ret) || next_beat(c, ret)))
        return;
    ret->wake_usec = c->wake_usec;
}
