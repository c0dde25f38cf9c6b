/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - which slots the next world of a job gets.
 *
 * The plan is deterministic. First come the nodes that ran the job before, then other nodes, last the nodes with
 * recent strikes, each group in name order; ranks are numbered in the order of their nodes' names. A slot that
 * another job's world holds, or where a process of another job may still run, is not free (I6). If a job has a fixed
 * number of ranks per node, each node of its world has just so many: launchers of programs count on equal shares. */
#include "controller/core/judge/plan.h"

#include "controller/core/facts/machines.h"
#include "controller/core/facts/presence.h"
#include "controller/core/facts/sizes.h"
#include "controller/core/judge/queue.h"

#include <string.h>

/* True when the job may hold slots: a job whose phase was not read yet may be running. */
static bool holds_slots(const CoreJob *job)
{
    bool unknown = job->phase.serial == 0 && job->world.generation > 0 &&
                   (job->phase_lost || !job->phase_stamp.mod);
    bool active = phase_is_active(job->phase.phase);
    return job->used && (active || unknown);
}

/* True when the job is one of the last `yielding` jobs of the queue, and an evaluation: its slots then count as free
 * for a job that is none. Evaluations are last in the queue. */
static bool yields(const Cluster *c, const CoreJob *job, int yielding)
{
    bool found = false;
    for (int i = MAX(0, c->n_by_arrival - yielding); i < c->n_by_arrival && !found; i++)
        found = &c->jobs[c->by_arrival[i]] == job;
    return found && job->facts.is_eval;
}

static void find_slots(const Cluster *c, Scratch *s, const CoreJob *job, int first, int n,
                       int yielding, uint64_t *ret)
{
    assert(first >= 0 && n >= 0 && first + n <= c->limits.nodes);
    for (int i = 0; i < n; i++) {
        const CoreNode *node = &c->nodes[first + i];
        ret[i] = node->used && !node_refusal(c, s, node, job) ? plan_slots_of(node, job) : 0;
    }
    for (int j = 0; j < c->limits.jobs; j++) {
        const CoreJob *other = &c->jobs[j];
        if (other == job || !holds_slots(other) || yields(c, other, yielding))
            continue;
        for (int i = 0; i < other->n_runs; i++) {
            const Run *run = &job_runs(c, other)[i];
            if (run->node >= first && run->node < first + n)
                ret[run->node - first] &= ~run->slots;
        }
    }
    for (int i = 0; i < c->n_reports; i++) {
        const NodeRanks *report = &c->reports[i];
        if (!report->used || (job && report->job == job_index(c, job)) || report->node < first ||
            report->node >= first + n || yields(c, &c->jobs[report->job], yielding) ||
            !report_is_alive(c, s, report))
            continue;
        for (int k = 0; k < report->n_ranks; k++)
            if (report->ranks[k].state != RANK_EXITED)
                ret[report->node - first] &= ~(UINT64_C(1) << report->ranks[k].slot);
    }
}

void plan_find_free_slots(const Cluster *c, Scratch *s, const CoreJob *job, int first, int n,
                          uint64_t *ret)
{
    find_slots(c, s, job, first, n, 0, ret);
}

/* Finds the free slots of all nodes. If a job needs more than there are, evaluations yield theirs, the last in the
 * queue first, and no more of them than are needed. Returns how many ranks the job can have. */
static int find_available(const Cluster *c, Scratch *s, const CoreJob *job)
{
    int available = 0;
    for (int yielding = 0; yielding <= c->n_by_arrival; yielding++) {
        const CoreJob *last =
            yielding > 0 ? &c->jobs[c->by_arrival[c->n_by_arrival - yielding]] : NULL;
        if (last && (job->facts.is_eval || !last->facts.is_eval))
            break;
        if (last && last->n_runs == 0)
            continue;
        find_slots(c, s, job, 0, c->limits.nodes, yielding, s->free_slots);
        available = 0;
        for (int i = 0; i < c->limits.nodes; i++)
            available += slots_count(plan_share_of(job, s->free_slots[i]));
        if (available >= plan_wanted(job))
            break;
    }
    return available;
}

static int order_nodes(const Cluster *c, Scratch *s, const CoreJob *job)
{
    int n = 0;
    memset(s->ran_before, 0, sizeof(*s->ran_before) * (size_t)c->limits.nodes);
    assert(job->n_runs >= 0 && job->n_runs <= c->limits.nodes);
    for (int i = 0; i < job->n_runs; i++)
        s->ran_before[job_runs(c, job)[i].node] = true;
    for (int before = 1; before >= 0; before--)
        for (int struck = 0; struck <= 1; struck++)
            for (int i = 0; i < c->n_by_name; i++) {
                const CoreNode *node = &c->nodes[c->by_name[i]];
                if (s->ran_before[c->by_name[i]] == before &&
                    (!before && node_strikes(c, node) > 0) == struck)
                    s->plan_nodes[n++] = c->by_name[i];
            }
    assert(n == c->n_by_name); /* each node is listed once */
    return n;
}

/* Returns the slots of the node that a job ahead can use, except for those that this job already has. */
static uint64_t reserved_slots(const Cluster *c, Scratch *s, const CoreJob *job, int node)
{
    uint64_t slots = queue_reserved_slots(c, s, job, &c->nodes[node]);
    for (int i = 0; phase_is_active(job->phase.phase) && i < job->n_runs; i++)
        if (job_runs(c, job)[i].node == node)
            slots &= ~job_runs(c, job)[i].slots;
    return slots;
}

/* Returns the size of the job's next world, at most `size`. A world larger than the present world takes no slot that a
 * job ahead in the queue can use, not even after a failure. free_slots then has the slots that the job may take. */
static int keep_off(const Cluster *c, Scratch *s, const CoreJob *job, int size)
{
    const int has = phase_is_active(job->phase.phase) ? job->world.size : 0;
    int n = 0;
    if (size <= has || !queue_find_ahead(c, s, job))
        return size;
    for (int i = 0; i < c->limits.nodes; i++)
        if (s->free_slots[i])
            n += slots_count(plan_share_of(job, s->free_slots[i] & ~reserved_slots(c, s, job, i)));
    if (n <= has)
        return has;
    for (int i = 0; i < c->limits.nodes; i++)
        if (s->free_slots[i])
            s->free_slots[i] &= ~reserved_slots(c, s, job, i);
    return MIN(size, n);
}

void plan_world(const Cluster *c, Scratch *s, const CoreJob *job, Plan *ret)
{
    *ret = (Plan){0};
    ret->available = find_available(c, s, job);
    int size = keep_off(c, s, job, MIN(plan_wanted(job), ret->available)); /* whole shares */
    if (size < plan_needed(job) || size == 0)
        return;

    int left = size, n = order_nodes(c, s, job);
    for (int i = 0; i < n; i++) {
        int node = s->plan_nodes[i];
        assert(c->nodes[node].used && left >= 0);
        s->free_slots[node] = slots_lowest(plan_share_of(job, s->free_slots[node]), left);
        left -= slots_count(s->free_slots[node]);
    }
    assert(left == 0);
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        if (!s->free_slots[c->by_name[i]])
            continue;
        assert(ret->n_runs < c->limits.nodes);
        assert(!s->left_out[c->by_name[i]] && node->present);
        WorldRun *run = &s->plan_runs[ret->n_runs++];
        memset(run, 0, sizeof(*run));
        text_copy(run->node, sizeof(run->node), node->record.name);
        run->incarnation = node->record.incarnation;
        run->slots = s->free_slots[c->by_name[i]];
        assert((run->slots & ~plan_slots_of(node, job)) == 0);
    }
    ret->size = size;
    assert(ret->n_runs > 0 && ret->n_runs <= ret->size && ret->size <= ret->available);
}

/* Nodes that are refused only for their lack of a GPU are counted, and not named. */
static void write_lack_of_gpus(const Cluster *c, int lacking, Text *t)
{
    bool any = false;
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        any |= node->present && node->admitted && node->record.n_gpus > 0;
    }
    text_add(t, "; ");
    if (any)
        text_add_int(t, lacking);
    text_add(t, !any           ? "no node has a GPU"
                : lacking == 1 ? " node has no GPU"
                               : " nodes have no GPU");
}

void plan_write_refusals(const Cluster *c, Scratch *s, const CoreJob *job, Text *t)
{
    enum { NAMED_MAX = 4 };
    int named = 0, strangers = 0, lacking = 0;
    for (int i = 0; i < c->n_by_name; i++) {
        const CoreNode *node = &c->nodes[c->by_name[i]];
        const char *why = node_refusal(c, s, node, job);
        if (node->present && !node->admitted) { /* only the number of such nodes is written */
            strangers++;
            continue;
        }
        if (why && text_equal(why, node_lacks_gpu)) {
            lacking++;
            continue;
        }
        if (!why || ++named > NAMED_MAX)
            continue;
        text_add(t, "; ");
        text_add(t, node->record.name);
        text_add(t, " ");
        text_add(t, why);
        const CordonCause *cause = node_find_cordon(c, node, job);
        if (cause && cause->reason[0]) {
            text_add(t, ": ");
            text_add(t, cause->reason);
        }
    }
    if (named > NAMED_MAX) {
        text_add(t, "; and ");
        text_add_int(t, named - NAMED_MAX);
        text_add(t, " more");
    }
    if (lacking)
        write_lack_of_gpus(c, lacking, t);
    if (strangers) {
        text_add(t, "; ");
        text_add_int(t, strangers);
        text_add(t, strangers == 1 ? " node is not admitted" : " nodes are not admitted");
    }
}

void plan_write_slots(const CoreJob *job, int n, Text *t)
{
    text_add_int(t, n);
    text_add(t, n == 1 ? " slot" : " slots");
    if (job->facts.needs_gpu)
        text_add(t, n == 1 ? " that has a GPU" : " that have a GPU");
}

void plan_explain(const Cluster *c, Scratch *s, const CoreJob *job, const Plan *plan, char *ret,
                  size_t size)
{
    Text t = text_begin(ret, size);
    int needed = plan_needed(job);
    text_add(&t, "needs ");
    plan_write_slots(job, needed, &t);
    text_add(&t, ", ");
    text_add_int(&t, plan->available);
    text_add(&t, plan->available == 1 ? " is free" : " are free");
    plan_write_refusals(c, s, job, &t);
}

bool plan_somebody_starts(const Cluster *c, Scratch *s, const CoreJob *job)
{
    for (int i = 0; i < c->n_by_arrival; i++) {
        const CoreJob *other = &c->jobs[c->by_arrival[i]];
        Plan plan = {0};
        assert(other->used);
        if (other != job && queue_job_waits(c, other) &&
            (job->facts.is_eval || !other->facts.is_eval))
            plan_world(c, s, other, &plan);
        if (plan.size > 0)
            return true;
    }
    return false;
}
