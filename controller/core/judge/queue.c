/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - how a waiting job holds back the others.
 *
 * Jobs are ordered by priority, then by age (job_goes_before()). A job that fits may start before a job that does
 * not. Once the first job in this order that could run at all has waited queue_patience_usec, it reserves slots:
 * until that first job runs, no later job starts or grows on a slot that the first job can use. A job that does not
 * fit on all present and open nodes together reserves nothing. */
#include "controller/core/judge/queue.h"

#include "controller/core/facts/evals.h"
#include "controller/core/facts/jobs.h"
#include "controller/core/facts/presence.h"
#include "controller/core/facts/sizes.h"

bool queue_job_waits(const Cluster *c, const CoreJob *job)
{
    assert(job->used);
    return job->phase.phase == PHASE_PENDING && job_wants_to_run(job) &&
           (!job->facts.is_eval || eval_find_commit(c, job));
}

/* Returns the time at which the job has waited queue_patience_usec, by this machine's clock or by the record's
 * times. */
static uint64_t patience_ends_usec(const Cluster *c, const CoreJob *job)
{
    uint64_t patience = c->config.queue_patience_usec;
    uint64_t end = job->phase.since_usec + patience;
    uint64_t rest = end > c->real_usec ? end - c->real_usec : 0;
    return MIN(job->pending_usec + patience, c->now_usec + rest);
}

static bool is_patient_no_more(const Cluster *c, Scratch *s, const CoreJob *job)
{
    return job->phase_stamp.mod && cluster_due(c, s, patience_ends_usec(c, job));
}

/* True when the job would fit if it were the only job. */
static bool could_run(const Cluster *c, Scratch *s, const CoreJob *job)
{
    int slots = 0, needed = plan_needed(job);
    for (int i = 0; i < c->limits.nodes && slots < needed; i++) {
        const CoreNode *node = &c->nodes[i];
        if (node->used && !node_refusal(c, s, node, job))
            slots += slots_count(plan_share_of(job, plan_slots_of(node, job)));
    }
    return slots >= needed;
}

/* Searches the queue from *place on; *place is then the place of the result. */
static const CoreJob *find_ahead(const Cluster *c, Scratch *s, const CoreJob *job, int *place)
{
    for (; *place < c->n_by_arrival; (*place)++) {
        const CoreJob *first = &c->jobs[c->by_arrival[*place]];
        assert(first->used);
        if (first == job)
            return NULL;
        if (queue_job_waits(c, first) && is_patient_no_more(c, s, first) && could_run(c, s, first))
            return first;
    }
    return NULL;
}

const CoreJob *queue_find_ahead(const Cluster *c, Scratch *s, const CoreJob *job)
{
    int place = 0;
    return find_ahead(c, s, job, &place);
}

uint64_t queue_reserved_slots(const Cluster *c, Scratch *s, const CoreJob *job,
                              const CoreNode *node)
{
    uint64_t reserved = 0;
    const CoreJob *ahead;
    for (int place = 0; (ahead = find_ahead(c, s, job, &place)); place++)
        if (!node_refusal(c, s, node, ahead))
            reserved |= plan_slots_of(node, ahead);
    return reserved;
}

/* True when the plan that was just made has a slot that `job` does not have yet and `other` could use. */
static bool grows_onto(const Cluster *c, Scratch *s, const CoreJob *job, const CoreJob *other)
{
    for (int i = 0; i < c->limits.nodes; i++) {
        uint64_t slots = s->free_slots[i];
        for (int k = 0; slots && k < job->n_runs; k++)
            if (job_runs(c, job)[k].node == i)
                slots &= ~job_runs(c, job)[k].slots;
        if (slots && !node_refusal(c, s, &c->nodes[i], other) &&
            slots & plan_slots_of(&c->nodes[i], other))
            return true;
    }
    return false;
}

const CoreJob *queue_find_ahead_soon(const Cluster *c, Scratch *s, const CoreJob *job)
{
    for (int i = 0; i < c->n_by_arrival; i++) {
        const CoreJob *first = &c->jobs[c->by_arrival[i]];
        if (first == job)
            return NULL;
        if (queue_job_waits(c, first) && first->phase_stamp.mod &&
            patience_ends_usec(c, first) <= c->now_usec + c->config.leave_deadline_usec &&
            could_run(c, s, first) && grows_onto(c, s, job, first))
            return first;
    }
    return NULL;
}
