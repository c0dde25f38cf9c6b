/* SPDX-License-Identifier: Apache-2.0 */
/* drain.c - which node a world must leave, and why: a cordon drains the node, or the node itself asks to be drained.
 *
 * Entry point: drain_find(). */
#include "controller/core/judge/drain.h"

#include "controller/core/state/text-buffer.h"

/* Returns the cause for which the job must leave the node, or NULL. A cause for which a leave was already tried does
 * not count. */
static const CordonCause *find_drain(const Cluster *c, const CoreJob *job, const CoreNode *node)
{
    const NodeCordons *cordons = node_cordons(c, node);
    for (size_t i = 0; node->cordon_stamp.mod && i < cordons->record.n_causes; i++)
        if (cordons->record.causes[i].mode > CORDON_CORDON &&
            cordons->revisions[i] > job->phase.tried_revision &&
            cause_applies(&cordons->record.causes[i], node->record.machine_id, job->name,
                          c->real_usec))
            return &cordons->record.causes[i];
    return NULL;
}

bool drain_find(const Cluster *c, const CoreJob *job, char *ret_reason, size_t size)
{
    for (int i = 0; i < job->n_runs; i++) {
        const CoreNode *node = &c->nodes[job_runs(c, job)[i].node];
        const CordonCause *cause = find_drain(c, job, node);
        if (!cause && node->drain_revision <= job->phase.tried_revision)
            continue;
        Text t = text_begin(ret_reason, size);
        text_add(&t, "drains ");
        text_add(&t, node->record.name);
        const char *why = cause ? cause->reason : node->record.evidence;
        if (*why) {
            text_add(&t, ": ");
            text_add(&t, why);
        }
        text_add(&t, cause && cause->by[0] ? ", asked by " : "");
        text_add(&t, cause ? cause->by : "");
        return true;
    }
    return false;
}
