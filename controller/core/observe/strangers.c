/* SPDX-License-Identifier: Apache-2.0 */
/* strangers.c - another writer under a node's name.
 *
 * Anybody who may write nodes/<name> may put a record there that looks like the node's: all that is in a record is
 * public. The node's daemon puts its own record back within a second, and reports the other writer in it. Until then
 * the record that the leader knows stays valid, so that no world ends because of a stranger's record.
 *
 * A restart of the daemon looks the same: another incarnation, under another lease. But a daemon that restarts first
 * ends its previous lease, so every key under that lease vanishes, reports of ranks too. So another record counts
 * one grace after the last key of the previous lease has vanished, and after one TTL at the latest: by then a node
 * that can be reached has put its own record back. */
#include "controller/core/observe/strangers.h"

static bool has_reports_under(const Cluster *c, const CoreNode *node, int64_t lease)
{
    for (int i = node->first_report; i >= 0; i = c->reports[i].next_of_node)
        if (!c->reports[i].gone && c->reports[i].lease == lease)
            return true;
    return false;
}

/* True when the lease of the record that counts may still be kept alive. */
static bool lease_may_live(const Cluster *c, const CoreNode *node)
{
    return node->doubt_has_reports ? has_reports_under(c, node, node->lease) : node->present;
}

bool stranger_doubts(Cluster *c, CoreNode *node, const Event *ev)
{
    const NodeRecord *record = ev->node_record;
    const bool is_known = node->lease == 0 || (ev->lease == node->lease &&
                                               record->incarnation == node->record.incarnation);
    const bool reported = has_reports_under(c, node, node->lease);
    /* If this leader began while a stranger's record existed, it has taken that record for the node's. */
    const bool is_better =
        ev->lease != node->lease && !reported && has_reports_under(c, node, ev->lease);
    if (is_known || is_better || (!node->present && !reported && node->doubt_usec == 0)) {
        stranger_forget(c, node);
        return false;
    }
    if (node->doubt_usec == 0) {
        c->n_doubted++;
        node->doubt_usec = c->now_usec;
        node->doubt_has_reports = reported;
    }
    DoubtedRecord *doubted = doubted_at(c, (int)(node - c->nodes));
    doubted->record = *record;
    doubted->lease = ev->lease;
    doubted->revision = ev->revision;
    return true;
}

void stranger_forget(Cluster *c, CoreNode *node)
{
    c->n_doubted -= node->doubt_usec != 0;
    assert(c->n_doubted >= 0);
    node->doubt_usec = 0;
    node->doubt_has_reports = false;
    node->doubt_over_usec = 0;
}

const DoubtedRecord *stranger_believed(const Cluster *c, Scratch *s, CoreNode *node)
{
    assert(node->used);
    if (node->doubt_usec == 0)
        return NULL;
    if (lease_may_live(c, node))
        node->doubt_over_usec = 0;
    else if (node->doubt_over_usec == 0)
        node->doubt_over_usec = c->now_usec;
    uint64_t at_usec = node->doubt_usec + c->config.ttl_usec;
    if (node->doubt_over_usec) /* the node's ranks get a grace, as if its record were removed */
        at_usec = MIN(at_usec, node->doubt_over_usec + c->config.grace_usec);
    return cluster_due(c, s, at_usec) ? &c->doubted[node - c->nodes] : NULL;
}
