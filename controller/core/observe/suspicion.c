/* SPDX-License-Identifier: Apache-2.0 */
/* suspicion.c - when many nodes at once are absent, or report themselves unhealthy.
 *
 * When many nodes vanish at once, etcd or the network is the suspect, and for at most ten TTLs absence causes no
 * decision. When at least three nodes, and more than half of all, report themselves unhealthy, the probes are the
 * suspect: then no node is isolated by its own verdict (docs/concepts/failure-and-blame.md). */
#include "controller/core/observe/suspicion.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/facts/machines.h"

enum {
    HOLD_NODES_MIN = 4,
    HOLD_SHARE = 4, /* absent nodes are many if they are more than one node in four */
    HOLD_TTLS = 10,
    DISTRUST_NODES_MIN = 3,
};

static bool are_many(int absent, int present)
{
    return absent >= HOLD_NODES_MIN && absent * HOLD_SHARE > present + absent;
}

/* A fault that ends most nodes' leases often stops the controller, too. A controller that began meanwhile has not
 * seen all of the nodes vanish. So it continues the hold of the open incident until the time that the incident names.
 * The clock by which this time was written may be wrong: a continued hold lasts no longer than a new hold would. */
static void take_hold(Cluster *c)
{
    const Incident *open = c->hold_is_told ? cluster_incident_find_open(c, hold_cause) : NULL;
    c->hold_is_told = false;
    if (!open || c->now_usec < c->hold_until_usec || open->record.hold_until_usec <= c->real_usec)
        return;
    const uint64_t rest_usec = open->record.hold_until_usec - c->real_usec;
    c->hold_usec = c->now_usec;
    c->hold_until_usec = c->now_usec + MIN(rest_usec, HOLD_TTLS * c->config.ttl_usec);
    c->hold_nodes = open->record.hold_nodes;
    c->hold_is_taken = true;
}

void presence_update_hold(Cluster *c, Scratch *s)
{
    const uint64_t ttl_usec = c->config.ttl_usec;
    /* absent: nodes that vanished since the hold began, or caused it. fresh: nodes that vanished within one TTL. */
    int present = 0, absent = 0, fresh = 0;
    take_hold(c);
    for (int i = 0; i < c->limits.nodes; i++) {
        const CoreNode *node = &c->nodes[i];
        if (!node->used || node->stamp.seen == 0 || node->record.state == NODE_LEFT ||
            !node->admitted)
            continue;
        present += node->present;
        absent += !node->present && c->hold_usec < node->changed_usec + ttl_usec;
        fresh += !node->present && c->now_usec < node->changed_usec + ttl_usec;
    }
    if (c->now_usec < c->hold_until_usec) {
        if (c->hold_is_taken)
            absent = MAX(absent, c->hold_nodes - present);
        if (!are_many(absent, present)) /* nodes that are still absent get one more TTL */
            c->hold_until_usec = MIN(c->hold_until_usec, c->now_usec + ttl_usec);
        (void)cluster_due(c, s, c->hold_until_usec); /* wakes the shell at the end of the hold */
    } else if (are_many(fresh, present)) {
        c->hold_usec = c->now_usec;
        c->hold_until_usec = c->now_usec + HOLD_TTLS * ttl_usec;
        c->hold_nodes = present + fresh;
        c->hold_is_taken = false;
    }
    assert(c->hold_usec <= c->now_usec);
}

/* Nodes that were isolated before count, too: probes that fail on node after node must not isolate the whole
 * cluster. */
void health_update_trust(Cluster *c)
{
    int unhealthy, present;
    health_count(c, &unhealthy, &present);
    c->probes_suspected = unhealthy >= DISTRUST_NODES_MIN && 2 * unhealthy > present;
}
