/* SPDX-License-Identifier: Apache-2.0 */
/* cordon-ends.c - ends causes of cordons whose time is over, and cordons nodes by their own verdict.
 *
 * Guarantees: a decision changes only causes of machines and of jobs. It ends an operator's cause only when its time
 *             is over. */
#include "controller/core/decide/cordon-ends.h"

#include "controller/core/decide/quarantine.h"
#include "controller/core/facts/machines.h"
#include "controller/core/facts/presence.h"
#include "controller/core/state/causes.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cluster-incident.h"
#include "controller/core/write/cordons.h"

/* True when the submission that refused the node no longer exists. */
static bool job_is_gone(const Cluster *c, const CordonCause *cause)
{
    for (int i = 0; i < c->limits.jobs; i++) {
        const CoreJob *job = &c->jobs[i];
        if (job->used && text_equal(job->name, cause->job))
            return job->spec_stamp.mod && cause->submission[0] &&
                   !text_equal(job->facts.submission, cause->submission);
    }
    return c->dropped == 0; /* a dropped record may be a record of cause->job */
}

/* Returns the time at which a cause ends by itself; 0: it does not end by itself. */
static uint64_t end_of(const Cluster *c, const CordonCause *cause)
{
    if (cause->mode != CORDON_NONE)
        return cause->until_usec;
    return cause->since_usec + c->config.strike_window_usec;
}

/* True when a cause's time is over by its record. A quarantine that no operator set also ends quarantine_usec after
 * this controller learnt of its end, if that is earlier: a clock that was ahead must not prolong a quarantine. */
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

/* Ends a job's refusal of a node when the job is gone. The strikes in the refusal's cause still count against the
 * machine until they are forgotten. */
static bool decide_end_of_job(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                              Decision *d)
{
    CordonCause strikes = *cause;
    strikes.mode = CORDON_NONE;
    strikes.until_usec = 0;
    if (cause->strikes == 0 || end_of(c, &strikes) <= c->real_usec)
        cordon_end_cause(c, node, cause, d);
    else if (cause->mode != CORDON_NONE)
        (void)cordon_put_cause(c, node, &strikes,
                               d); /* cannot fail: the new cause takes the place of *cause */
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
        return false; /* the cordon record has no room for the cause */
    /* If the node hosts ranks, their job has an incident already. */
    if (cause.mode == CORDON_QUARANTINE && !node_hosts_ranks(c, node))
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
