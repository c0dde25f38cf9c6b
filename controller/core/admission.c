/* SPDX-License-Identifier: Apache-2.0 */
/* admission.c - nodes that the setting `admit` leaves out.
 *
 * Anybody who may write nodes/<name> may register a node. A node that no word of the list fits gets no rank, and its
 * health, its reports of a store and its absence change no decision. If a new list leaves out a node with ranks, these
 * run on until the next world. One incident names all such nodes while they come and go.
 *
 * Entry points: admission_update(), node_admit(), decide_admission(). */
#include "controller/core/admission.h"

#include "cluster/admission.h"
#include "controller/core/cluster-decisions.h"
#include "controller/core/cluster-internal.h"
#include "controller/core/recovery/incident.h"
#include "controller/core/recovery/lost.h"
#include "controller/core/text.h"

#include <string.h>

enum {
    /* The incident is over when no such node was here for this long: a node that comes and goes is one incident. */
    QUIET_SEC = 600,
    REWRITE_SEC = 60, /* the incident's list of names is rewritten no more often */
    NAMES_BYTES = 120,
};

const char admission_cause[] = "not-admitted";

void node_admit(const Cluster *c, CoreNode *node)
{
    node->admitted = admission_allows(c->config.admit, node->record.name, node->record.machine_id);
}

/* A node that a new list takes in counts from now on; an operator's change needs no quiet. */
void admission_update(Cluster *c)
{
    c->uninvited_usec = 0;
    for (int i = 0; i < c->limits.nodes; i++) {
        CoreNode *node = node_at(c, i);
        if (!node->used || node->stamp.seen == 0)
            continue;
        node_admit(c, node);
        for (int j = 0;
             node->present && node->admitted && node->record.n_runs > 0 && j < c->limits.jobs; j++)
            if (c->jobs[j].used)
                lost_learn_runs(job_at(c, j), &node->record);
    }
}

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
