/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c - chooses the endpoint: the client uses one endpoint until the endpoint is silent; then the client ends
 * all RPCs on that endpoint and uses another one. */
#include "etcd/etcd-internal.h"

enum { SILENT_AVOID_SEC = 5 };

Endpoint *endpoint_pick(Etcd *etcd)
{
    uint64_t now = clock_boottime_usec();
    size_t best = etcd->current;

    assert(etcd->current < etcd->n_endpoints);
    for (size_t i = 1; i < etcd->n_endpoints; i++) {
        size_t at = (etcd->current + i) % etcd->n_endpoints;
        if (MAX(etcd->endpoints[at].avoid_until_usec, now) <
            MAX(etcd->endpoints[best].avoid_until_usec, now))
            best = at;
    }
    etcd->current = best;
    return &etcd->endpoints[best];
}

void endpoint_avoid(Endpoint *endpoint, uint64_t for_usec)
{
    uint64_t until = clock_boottime_usec() + for_usec;
    endpoint->avoid_until_usec = MAX(endpoint->avoid_until_usec, until);
}

/* Avoids a silent endpoint and ends all RPCs on it; each of them gets the status `silent`. */
static void endpoint_leave(Etcd *etcd, Endpoint *endpoint)
{
    Rpc *rpc;

    endpoint_avoid(endpoint, SILENT_AVOID_SEC * USEC_PER_SEC);
    LIST_FOREACH(rpc, &etcd->rpcs, list)
    {
        if (rpc->endpoint == endpoint) {
            rpc->silent = true;
            rpc_cut(rpc);
        }
    }
}

void etcd_watchdog_arm(Etcd *etcd)
{
    int enabled = SD_EVENT_OFF;

    if (etcd->n_endpoints == 1) /* there is no other endpoint to change to */
        return;
    int r = sd_event_source_get_enabled(etcd->watchdog, &enabled);
    if (r < 0 || enabled != SD_EVENT_OFF)
        return;
    /* Setting a timer fails only when the event loop has finished; then no RPC waits any more. */
    (void)sd_event_source_set_time(etcd->watchdog, clock_boottime_usec() + etcd->silence_usec / 4);
    (void)sd_event_source_set_enabled(etcd->watchdog, SD_EVENT_ONESHOT);
}

static int on_watchdog(sd_event_source *source _unused_, uint64_t usec _unused_, void *userdata)
{
    Etcd *etcd = userdata;
    uint64_t now = clock_boottime_usec();
    bool waiting = false;
    Rpc *rpc;

    LIST_FOREACH(rpc, &etcd->rpcs, list)
    {
        if (rpc->waiting_usec == 0 || rpc->silent)
            continue;
        waiting = true;
        if (now > MAX(rpc->waiting_usec, rpc->endpoint->heard_usec) + etcd->silence_usec)
            endpoint_leave(etcd, rpc->endpoint);
    }
    if (waiting)
        etcd_watchdog_arm(etcd);
    return 0;
}

int etcd_watchdog_open(Etcd *etcd, Error *err)
{
    int r = timer_new(etcd, on_watchdog, etcd, &etcd->watchdog);
    return r < 0 ? error_errno(err, r, "cannot arm a timer") : 0;
}
