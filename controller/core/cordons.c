/* SPDX-License-Identifier: Apache-2.0 */
/* cordons.c - the leader's own causes in cordons/<node>, and their ends.
 *
 * Entry points: cordon_put_cause(), cordon_end_cause(), decide_cordons(). Guarantees: a decision changes only causes of
 * machines and of jobs, and ends an operator's once its time is over. It carries the whole record under a guard on the
 * revision that it was derived from, so that it never overwrites a change that was not seen. */
#include "controller/core/cordons.h"

#include "controller/core/cluster-decisions.h"
#include "controller/core/cluster-internal.h"
#include "controller/core/presence.h"
#include "controller/core/quarantine.h"
#include "controller/core/recovery/failure.h"
#include "controller/core/recovery/strikes.h"
#include "controller/core/text.h"

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

/* Returns the record as the decision changes it; NULL: the decision is full. */
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
        d->n_cordons = n_before; /* a full record is not written: no cause of it has ended */
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

/* ---- how causes end by themselves ---- */

/* True when the submission that refused the node does not exist any more. */
static bool job_is_gone(const Cluster *c, const CordonCause *cause)
{
    for (int i = 0; i < c->limits.jobs; i++) {
        const CoreJob *job = &c->jobs[i];
        if (job->used && text_equal(job->name, cause->job))
            return job->spec_stamp.mod && cause->submission[0] &&
                   !text_equal(job->facts.submission, cause->submission);
    }
    return c->dropped == 0; /* a dropped record may be that job's */
}

/* Returns when a cause ends by itself; 0: it does not. */
static uint64_t end_of(const Cluster *c, const CordonCause *cause)
{
    if (cause->mode != CORDON_NONE)
        return cause->until_usec;
    return cause->since_usec + c->config.strike_window_usec;
}

/* True when a cause that ends by itself is over: by the record's time, or, of a quarantine, quarantine_usec after this
 * controller learnt of that time, whichever comes first. A clock that was ahead prolongs no quarantine. */
static bool is_over(const Cluster *c, Scratch *s, const CoreNode *node, const CordonCause *cause)
{
    const uint64_t end = end_of(c, cause), rest = end > c->real_usec ? end - c->real_usec : 0;
    const size_t at = (size_t)(cause - node_cordons(c, node)->record.causes);
    if (end == 0)
        return false;
    assert(at < RECORD_CAUSES_MAX);
    uint64_t at_usec = c->now_usec + rest;
    if (cause->mode == CORDON_QUARANTINE && cause->owner != CORDON_OPERATOR)
        at_usec = MIN(at_usec, node_cordons(c, node)->told_usec[at] + c->config.quarantine_usec);
    return cluster_due(c, s, at_usec);
}

/* A job's refusal ends with it. Its strikes go on to count against the machine until they are forgotten. */
static bool decide_end_of_job(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                              Decision *d)
{
    CordonCause strikes = *cause;
    strikes.mode = CORDON_NONE;
    strikes.until_usec = 0;
    if (cause->strikes == 0 || end_of(c, &strikes) <= c->real_usec)
        cordon_end_cause(c, node, cause, d);
    else if (cause->mode != CORDON_NONE)
        (void)cordon_put_cause(c, node, &strikes, d); /* replaces the cause: there is room */
    else
        return false;
    return true;
}

static bool decide_end_of_cause(const Cluster *c, Scratch *s, const CoreNode *node,
                                const CordonCause *cause, Decision *d)
{
    assert(d->n_cordons == 0 && node->cordon_stamp.mod);
    if (node->cordon_foreign)
        return false;
    if (cause->owner == CORDON_JOB && job_is_gone(c, cause) && decide_end_of_job(c, node, cause, d))
        return true;
    if (!is_over(c, s, node, cause))
        return false;
    if (cause->mode == CORDON_QUARANTINE && !strikes_refuse(cause))
        return decide_quarantine(c, node, cause, d);
    cordon_end_cause(c, node, cause, d);
    return true;
}

/* ---- what follows from what a node says of itself ---- */

static bool decide_verdict(const Cluster *c, const CoreNode *node, Decision *d)
{
    if (!node->present || !node->admitted)
        return false;
    const CordonCause *own = node_own_cause(c, node);
    CordonMode mode = CORDON_NONE;
    const char *reason = NULL;
    if (node_is_unhealthy(c, node) && !(own && own->mode == CORDON_QUARANTINE)) {
        mode = CORDON_QUARANTINE;
        reason = node->record.evidence;
    } else if (node->record.lost_slots && !(own && own->mode != CORDON_NONE)) {
        mode = CORDON_CORDON;
        reason = "a process of it survives SIGKILL";
    } else {
        return false;
    }
    CordonCause cause = cordon_begin_cause(c, node, NULL);
    cause.mode = mode;
    text_copy(cause.reason, sizeof(cause.reason), reason);
    cause.since_usec = c->real_usec;
    if (!cordon_put_cause(c, node, &cause, d))
        return false; /* no room for it */
    if (cause.mode == CORDON_QUARANTINE &&
        !node_hosts_ranks(c, node)) /* else its job has an incident */
        node_incident_begin(c, node, CAUSE_NODE_UNHEALTHY, node->record.evidence, d);
    return true;
}

bool decide_cordons(const Cluster *c, Scratch *s, Decision *d)
{
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        if (decide_verdict(c, node, d))
            return true;
        const CordonRecord *record = &node_cordons(c, node)->record;
        for (size_t k = 0; node->cordon_stamp.mod && k < record->n_causes; k++)
            if (decide_end_of_cause(c, s, node, &record->causes[k], d))
                return true;
    }
    return false;
}
