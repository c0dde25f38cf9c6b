/* SPDX-License-Identifier: Apache-2.0 */
/* cordons.c - the leader's own causes in cordons/<node>.
 *
 * Guarantees: a decision contains the whole record under a guard on the revision that it was derived from, so that it
 * never overwrites a change that was not seen. */
#include "controller/core/write/cordons.h"

#include "controller/core/state/text-buffer.h"

#include <string.h>

/* ---- one cause of one node ---- */

CordonCause cordon_begin_cause(const Cluster *c, const CoreNode *node, const CoreJob *refused_by)
{
    CordonCause cause = {.owner = refused_by ? CORDON_JOB : CORDON_MACHINE,
                         .since_usec = c->real_usec};
    if (refused_by)
        text_copy(cause.job, sizeof(cause.job), refused_by->name);
    text_copy(cause.machine_id, sizeof(cause.machine_id), node->record.machine_id);
    const CordonRecord *record = &node_cordons(c, node)->record;
    int at =
        node->cordon_stamp.mod ? cordon_find(record, cause.owner, cause.job, cause.machine_id) : -1;
    if (at >= 0)
        cause = record->causes[at];
    if (refused_by)
        text_copy(cause.submission, sizeof(cause.submission), refused_by->facts.submission);
    return cause;
}

/* Returns the cordon record that the decision changes; NULL: the decision is full, or a later version of the controller
 * wrote the record. */
static CordonRecord *change(const Cluster *c, const CoreNode *node, Decision *d, int **ret_changed)
{
    int i = 0;
    while (i < d->n_cordons && !text_equal(d->cordons[i].node, node->record.name))
        i++;
    if (i == DECISION_CORDONS_MAX || node->cordon_foreign)
        return NULL;
    assert(i <= d->n_cordons && d->n_cordons <= DECISION_CORDONS_MAX);
    CordonRecord *record = &d->cordons[i];
    if (i == d->n_cordons) {
        d->n_cordons++;
        memset(record, 0, sizeof(*record));
        if (node->cordon_stamp.mod)
            *record = node_cordons(c, node)->record;
        text_copy(record->node, sizeof(record->node), node->record.name);
        d->cordon_revisions[i] = node->cordon_stamp.mod;
        d->cordon_changed[i] = -1;
    }
    *ret_changed = &d->cordon_changed[i];
    return record;
}

bool cordon_put_cause(const Cluster *c, const CoreNode *node, const CordonCause *cause, Decision *d)
{
    int *changed;
    const int n_before = d->n_cordons;
    CordonRecord *record = change(c, node, d, &changed);
    int at = record ? cordon_set(record, cause) : -1;
    assert(at < RECORD_CAUSES_MAX);
    if (at >= 0)
        *changed = at;
    else
        d->n_cordons = n_before; /* a full record is not written: none of its causes has ended */
    return at >= 0;
}

void cordon_end_cause(const Cluster *c, const CoreNode *node, const CordonCause *cause, Decision *d)
{
    int *changed;
    CordonRecord *record = change(c, node, d, &changed);
    int at = record ? cordon_find(record, cause->owner, cause->job, cause->machine_id) : -1;
    if (at < 0)
        return;
    cordon_drop(record, (size_t)at);
    assert(record->n_causes < RECORD_CAUSES_MAX);
    *changed = -1;
}
