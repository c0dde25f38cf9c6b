/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.c - see stranger.h. */
#include "controller/core/decide/stranger.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/facts/presence.h"
#include "controller/core/observe/tables.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cluster-incident.h"

const char stranger_cause[] = "node-contested";

enum { REWRITE_SEC = 60 }; /* least time between two rewrites of the incident's text */

static void write_evidence(const CoreNode *node, char ret[RECORD_TEXT_MAX + 1])
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

/* True when the incident is over: the node no longer reports another writer under its name, or the node is lost. */
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
        write_evidence(node, evidence);
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
