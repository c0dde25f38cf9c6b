/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.c - another writer under a node's name.
 *
 * Anybody who may write nodes/<name> may put a record there that looks like the node's: all that is in a record is
 * public. The node's daemon puts its own back within a second, and says in it who was there. Until then the record
 * that the leader knows counts on, so that no world ends by what a stranger says.
 *
 * A restart of the daemon looks alike: another incarnation, under another lease. But it ends the lease of its last
 * life first, and all that lies under that lease goes, reports of ranks too. So another record counts a grace after
 * nothing of the lease before is left, and after one TTL at the latest: a node that can be reached has put its own
 * back by then.
 *
 * Entry points: stranger_doubts(), stranger_believed(), decide_stranger(). */
#include "controller/core/stranger.h"

#include "controller/core/cluster-decisions.h"
#include "controller/core/presence.h"
#include "controller/core/recovery/incident.h"
#include "controller/core/tables.h"
#include "controller/core/text.h"

const char stranger_cause[] = "node-contested";

enum { REWRITE_SEC = 60 }; /* the incident's text is rewritten no more often */

static bool has_reports_under(const Cluster *c, const CoreNode *node, int64_t lease)
{
    for (int i = node->first_report; i >= 0; i = c->reports[i].next_of_node)
        if (!c->reports[i].gone && c->reports[i].lease == lease)
            return true;
    return false;
}

/* Whether the lease of the record that counts may still be kept alive. */
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
    /* A leader that began while a stranger's record was there has taken the wrong one. */
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
    if (node->doubt_over_usec) /* its ranks run on for a moment, as where the record itself goes */
        at_usec = MIN(at_usec, node->doubt_over_usec + c->config.grace_usec);
    return cluster_due(c, s, at_usec) ? &c->doubted[node - c->nodes] : NULL;
}

bool node_is_contested(const CoreNode *node)
{
    return node->doubt_usec != 0 || node->record.stranger_revision != 0;
}

/* ---- the incident ---- */

static void say(const CoreNode *node, char ret[RECORD_TEXT_MAX + 1])
{
    Text t = text_begin(ret, RECORD_TEXT_MAX + 1);
    text_add(&t, "another writer has put nodes/");
    text_add(&t, node->record.name);
    text_add(&t, ", under lease ");
    text_add_hex(&t, (uint64_t)node->record.stranger_lease);
    text_add(&t, ", at revision ");
    text_add_int(&t, node->record.stranger_revision);
    text_add(&t, ", while the node's own lease lives: its ranks run on, and it gets no new ones");
}

static const Incident *find_open(const Cluster *c, const char *node)
{
    for (int i = 0; i < c->limits.incidents; i++)
        if (c->incidents[i].used && c->incidents[i].record.state == INCIDENT_OPEN &&
            text_equal(c->incidents[i].record.cause, stranger_cause) &&
            text_equal(c->incidents[i].record.node, node))
            return &c->incidents[i];
    return NULL;
}

/* Whether it is over: the node says that nobody else was there lately, or it is not here any more. */
static bool is_over(const Cluster *c, Scratch *s, const Incident *open)
{
    const int at = node_place_of_name(c, open->record.node);
    const CoreNode *node = at < c->n_by_name ? &c->nodes[c->by_name[at]] : NULL;
    if (!node || !text_equal(node->record.name, open->record.node))
        return true;
    return node->present ? node->doubt_usec == 0 && node->record.stranger_revision == 0
                         : node_is_lost(c, s, node);
}

static bool decide_end(const Cluster *c, Scratch *s, Decision *d)
{
    for (int i = 0; i < c->limits.incidents; i++) {
        const Incident *open = &c->incidents[i];
        if (open->used && open->record.state == INCIDENT_OPEN &&
            text_equal(open->record.cause, stranger_cause) && is_over(c, s, open)) {
            cluster_incident_resolve(c, open, d);
            return true;
        }
    }
    return false;
}

static void begin(const Cluster *c, const CoreNode *node, Decision *d)
{
    char about[NODE_NAME_MAX + 16];
    Text t = text_begin(about, sizeof(about));
    text_add(&t, "contested-");
    text_add(&t, node->record.name);
    cluster_incident_begin(c, about, stranger_cause, d);
    d->incident.severity = SEVERITY_WARNING;
    text_copy(d->incident.node, sizeof(d->incident.node), node->record.name);
}

bool decide_stranger(Cluster *c, Scratch *s, Decision *d)
{
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        char evidence[RECORD_TEXT_MAX + 1];
        if (!node->present || !node->admitted || node->record.stranger_revision == 0)
            continue;
        const Incident *open = find_open(c, node->record.name);
        say(node, evidence);
        if (open && (text_equal(open->record.evidence, evidence) ||
                     !cluster_due(c, s, c->stranger_told_usec + REWRITE_SEC * USEC_PER_SEC)))
            continue;
        if (!open && !incident_has_place(c))
            continue;
        c->stranger_told_usec = c->now_usec;
        begin(c, node, d);
        if (open) {
            d->incident = open->record;
            d->incident_revision = open->stamp.mod;
        }
        text_copy(d->incident.evidence, sizeof(d->incident.evidence), evidence);
        return true;
    }
    return decide_end(c, s, d);
}
