/* SPDX-License-Identifier: Apache-2.0 */
/* admission.c - the incident that names the nodes that the setting `admit` leaves out.
 *
 * A user who may write nodes/<name> may register a node. A node that no entry of the list matches gets no rank, and no
 * decision depends on its health, its reports of a store or its absence. If a new list leaves out a node that has
 * ranks, those ranks run on until the next world. One incident names all such nodes. */
#include "controller/core/decide/admission.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cluster-incident.h"

enum {
    /* The incident is resolved when no node that the list leaves out has been present for this long. So a node that
     * comes and goes causes only one incident. */
    QUIET_SEC = 600,
    REWRITE_SEC = 60, /* least time between two rewrites of the incident's list of names */
    NAMES_BYTES = 120,
};

const char admission_cause[] = "not-admitted";

static int name_uninvited(const Cluster *c, Text *t)
{
    int n = 0;
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        if (!node->present || node->admitted || node->record.state == NODE_LEFT)
            continue;
        text_add(t, n++ ? ", " : "");
        text_add(t, node->record.name);
    }
    return n;
}

bool decide_admission(Cluster *c, Scratch *s, Decision *d)
{
    char names[NAMES_BYTES], evidence[RECORD_TEXT_MAX + 1];
    const Incident *open = cluster_incident_find_open(c, admission_cause);
    Text t = text_begin(names, sizeof(names));
    int n = name_uninvited(c, &t);
    if (n > 0)
        c->uninvited_usec = c->now_usec;
    assert(n <= c->n_by_name);
    if (n == 0) {
        if (!open ||
            (c->uninvited_usec && !cluster_due(c, s, c->uninvited_usec + QUIET_SEC * USEC_PER_SEC)))
            return false;
        cluster_incident_resolve(c, open, d);
        return true;
    }
    t = text_begin(evidence, sizeof(evidence));
    text_add_int(&t, n);
    text_add(&t, n == 1 ? " node that no word of the setting admit fits: "
                        : " nodes that no word of the setting admit fits: ");
    text_add(&t, names);
    if (open && (text_equal(open->record.evidence, evidence) ||
                 !cluster_due(c, s, c->uninvited_told_usec + REWRITE_SEC * USEC_PER_SEC)))
        return false;
    if (!open && !incident_has_place(c))
        return false;
    c->uninvited_told_usec = c->now_usec;
    cluster_incident_begin(c, "cluster", admission_cause, d);
    if (open) {
        d->incident = open->record;
        d->incident_revision = open->stamp.mod;
    }
    d->incident.severity = SEVERITY_WARNING;
    text_copy(d->incident.evidence, sizeof(d->incident.evidence), evidence);
    return true;
}
