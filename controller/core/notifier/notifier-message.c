/* notifier-message.c - what a sink must hear of a page next: a function of the incident, the sink's
 * mark, its settings and the time. */
#include "controller/core/notifier/notifier-internal.h"
#include "controller/core/text.h"

Delivery *page_delivery(Page *page, const CourierSink *sink)
{
    for (size_t i = 0; i < page->alert.n_deliveries; i++)
        if (text_equal(page->alert.deliveries[i].sink, sink->name))
            return &page->alert.deliveries[i];
    return NULL;
}

bool page_is_over(const Page *page) { return page->incident.state == INCIDENT_RESOLVED; }

/* A test goes through every sink once, whatever that hears otherwise. */
static bool tell_test(const CourierSink *sink, const Delivery *delivery, Tell *ret)
{
    *ret = delivery->state == DELIVERY_TRIGGERED ? TELL_RESOLVE
           : sink->deaf                          ? TELL_BEAT
                                                 : TELL_TRIGGER;
    return delivery->state < DELIVERY_RESOLVED;
}

/* What its predecessor said last may still be on its way, and "triggered" must not come after. */
static uint64_t may_resolve_at(const Courier *c, const Page *page)
{
    return page->inherited ? c->leading_usec + c->config.timeout_usec : 0;
}

bool page_tell(const Courier *c, Page *page, int k, Tell *ret, uint64_t *ret_at_usec)
{
    const CourierSink *sink = &c->config.sinks[k];
    const Delivery *delivery = page_delivery(page, sink);
    const Task *task = &page->tasks[k];
    *ret = TELL_TRIGGER;
    *ret_at_usec = task->next_usec;
    if (!delivery)
        return false;
    if (page->test)
        return tell_test(sink, delivery, ret);
    if (sink->deaf)
        return false;
    switch (delivery->state) {
    case DELIVERY_SENDING:
        return true;
    case DELIVERY_FAILED:
        return !page_is_over(page);
    case DELIVERY_TRIGGERED:
        if (page_is_over(page)) {
            *ret = TELL_RESOLVE;
            *ret_at_usec = MAX(task->next_usec, may_resolve_at(c, page));
            return true;
        }
        if (delivery->severity < page->incident.severity)
            return true;
        if (task->told_usec)
            *ret_at_usec = MAX(task->next_usec, task->told_usec + sink->repeat_usec);
        return sink->repeat_usec > 0;
    default:
        return false;
    }
}
