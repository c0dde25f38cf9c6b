/* SPDX-License-Identifier: Apache-2.0 */
/* drain.c - see drain.h. */
#include "daemon/node/drain.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/message-id.h"
#include "daemon/node/manager.h"

static void on_deadline(void *userdata)
{
    Manager *m = userdata;
    assert(m->draining && !m->is_idle); /* once is_idle is set, on_too_late() is due instead */
    log_warning("drain_sec has passed; killing what still runs NODE=%s", m->needs.config->node);
    workload_kill_all(&m->workload, "sdtraind stops, and drain_sec has passed");
    drain_advance(m);
}

void drain_signal(Manager *m, const char *name)
{
    if (m->draining) {
        log_warning("%s again: leaving at once NODE=%s", name, m->needs.config->node);
        workload_kill_all(&m->workload, "sdtraind was told twice to stop");
        drain_advance(m);
        return;
    }
    m->draining = true;
    log_event(LOG_LEVEL_INFO, MESSAGE_DRAINING, "%s: draining for at most %lld s NODE=%s", name,
              (long long)m->needs.config->drain_sec, m->needs.config->node);
    m->drain_usec = clock_boottime_usec();
    m->events.draining(m->events.userdata);
    timer_start(m->needs.timers, &m->drain_timer,
                (uint64_t)m->needs.config->drain_sec * USEC_PER_SEC, on_deadline, m);
    node_touch(&m->node);
    drain_advance(m);
}

static void on_too_late(void *userdata)
{
    Manager *m = userdata;
    log_warning("etcd does not answer; leaving without a last word NODE=%s", m->needs.config->node);
    m->events.ended(m->events.userdata);
}

void drain_advance(Manager *m)
{
    if (!m->draining || !workload_is_idle(&m->workload))
        return;
    if (!m->is_idle) {
        m->is_idle = true; /* from here on the drain takes at most DRAIN_LAST_WORDS_SEC */
        timer_start(m->needs.timers, &m->drain_timer, DRAIN_LAST_WORDS_SEC * USEC_PER_SEC,
                    on_too_late, m);
    }
    if (!m->leaving && (workload_is_reported(&m->workload) || !m->node.registered)) {
        m->leaving = true;
        m->needs.leave_health(m->needs.userdata);
        node_leave(&m->node);
        return;
    }
    const bool is_reported =
        node_is_settled(&m->node) || m->node.yields; /* a node that yields has no record to put */
    if (m->leaving && is_reported && m->needs.is_health_written(m->needs.userdata)) {
        log_event(LOG_LEVEL_INFO, MESSAGE_LEFT, "left NODE=%s", m->needs.config->node);
        m->events.ended(m->events.userdata);
    }
}
