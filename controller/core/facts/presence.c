/* SPDX-License-Identifier: Apache-2.0 */
/* presence.c - which nodes and processes count as dead, and what keeps ranks off a node.
 *
 * A vanished node key means unknown, not dead: the key may come back within the grace, and a new leader observes for
 * one TTL first. While many nodes vanish at once (observe/suspicion.c), no node counts as dead because of its
 * absence. */
#include "controller/core/facts/presence.h"

#include "controller/core/facts/jobs.h"
#include "controller/core/facts/machines.h"
#include "controller/core/state/text-buffer.h"

/* True while ranks of the job live, or may be about to start: a node that has not reported yet may still start its
 * ranks. */
bool job_ranks_are_left(const Cluster *c, Scratch *s, const CoreJob *job)
{
    int ignored;
    uint64_t wait_usec = job->world_lost ? MIN(c->config.ttl_usec, c->config.start_deadline_usec)
                                         : c->config.start_deadline_usec;
    if (job_has_ranks_alive(c, s, job, INT64_MAX, INT64_MAX, &ignored))
        return true;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const CoreNode *node = &c->nodes[run->node];
        if (run->report < 0 && !node_is_lost(c, s, node) &&
            node->record.incarnation == run->incarnation &&
            !cluster_due(c, s, job->world_usec + wait_usec))
            return true;
    }
    return false;
}

bool node_is_lost(const Cluster *c, Scratch *s, const CoreNode *node)
{
    if (node->present)
        return false;
    if (node->record.state == NODE_LEFT)
        return true;
    /* If a stranger, another writer of the node's record, also removes that record, this must not end worlds: the
     * node puts its record back within a second. */
    const uint64_t ttl_usec = MAX(c->config.ttl_usec, c->config.grace_usec);
    uint64_t at = node->changed_usec + (node_is_contested(node) ? ttl_usec : c->config.grace_usec);
    return cluster_due(c, s, MAX(at, MAX(c->observe_until_usec, c->hold_until_usec)));
}

bool node_hosts_ranks(const Cluster *c, const CoreNode *node)
{
    for (int j = 0; j < c->limits.jobs; j++) {
        const CoreJob *job = &c->jobs[j];
        bool active = job->used && phase_is_active(job->phase.phase) && !job_is_paused(job);
        for (int i = 0; active && i < job->n_runs; i++)
            if (&c->nodes[job_runs(c, job)[i].node] == node)
                return true;
    }
    return false;
}

const CordonCause *node_find_cordon(const Cluster *c, const CoreNode *node, const CoreJob *job)
{
    if (node->cordon_stamp.mod == 0)
        return NULL;
    return cordon_strongest(&node_cordons(c, node)->record, node->record.machine_id,
                            job ? job->name : NULL, c->real_usec);
}

const CordonCause *node_own_cause(const Cluster *c, const CoreNode *node)
{
    if (node->cordon_stamp.mod == 0)
        return NULL;
    const CordonRecord *record = &node_cordons(c, node)->record;
    int at = cordon_find(record, CORDON_MACHINE, "", node->record.machine_id);
    return at < 0 ? NULL : &record->causes[at];
}

const char node_lacks_gpu[] = "has no GPU";

const char *node_refusal(const Cluster *c, Scratch *s, const CoreNode *node, const CoreJob *job)
{
    if (!node->present)
        return "is absent";
    if (node->record.state == NODE_LEFT)
        return "has left";
    if (!node->admitted)
        return "is not admitted";
    if (node_is_contested(node))
        return "is contested";
    const CordonCause *cause = node_find_cordon(c, node, job);
    if (cause)
        return cause->owner == CORDON_JOB         ? "is refused for this job"
               : cause->mode == CORDON_QUARANTINE ? "is quarantined"
               : cause->mode == CORDON_DRAIN      ? "is drained"
                                                  : "is cordoned";
    if (node->record.verdict == NODE_DRAIN)
        return "asks to be drained";
    if (node_is_unhealthy(c, node))
        return "is unhealthy";
    if (node_find_machine_cordon(c, node, job))
        return "is a machine that is quarantined under another name";
    if (s->left_out && s->left_out[node - c->nodes])
        return "is left out";
    if (job && job->facts.is_program && !text_has_word(node->record.features, FEATURE_PROGRAMS))
        return "runs no programs (allow_exec)";
    if (job && job->facts.is_eval && !job->facts.is_program &&
        !text_has_word(node->record.features, FEATURE_EVALS))
        return "has an older version, whose trainer evaluates nothing";
    if (job && job->facts.needs_gpu && node->record.n_gpus == 0)
        return node_lacks_gpu;
    return NULL;
}

/* A quarantined node is excluded: ranks that still run there cannot join or commit any more. */
static bool node_is_excluded(const Cluster *c, const CoreNode *node)
{
    const CordonCause *cause = node_find_cordon(c, node, NULL);
    return cause && cause->mode == CORDON_QUARANTINE;
}

static bool newer_report_says_killed(const Cluster *c, const NodeRanks *report)
{
    int i = c->nodes[report->node].first_report;
    for (; i >= 0; i = c->reports[i].next_of_node) {
        const NodeRanks *newer = &c->reports[i];
        assert(newer->used && newer->node == report->node); /* the report is in its node's chain */
        if (newer->job == report->job && newer->world_revision > report->world_revision &&
            newer->killed_usec)
            return true;
    }
    return false;
}

bool report_has_end(const CoreJob *job, const NodeRanks *report)
{
    assert(report->used && job->used);
    return phase_is_active(job->phase.phase) && report->generation == job->world.generation &&
           report->world_revision == job->world_stamp.mod &&
           (report->finished || (report->left && job->phase.leave));
}

bool report_is_alive(const Cluster *c, Scratch *s, const NodeRanks *report)
{
    const CoreNode *node = &c->nodes[report->node];
    int running = 0;
    assert(report->used && node->used);
    for (int i = 0; i < report->n_ranks; i++)
        running += report->ranks[i].state != RANK_EXITED &&
                   !(node->record.lost_slots >> report->ranks[i].slot & 1);
    if (running == 0 || node_is_lost(c, s, node))
        return false;
    if (node->present && node->record.incarnation != report->incarnation)
        return false;
    return !newer_report_says_killed(c, report);
}

bool job_has_ranks_alive(const Cluster *c, Scratch *s, const CoreJob *job,
                         int64_t before_generation, int64_t before_revision, int *ret_node)
{
    for (int i = 0; i < c->n_reports; i++) {
        const NodeRanks *report = &c->reports[i];
        if (!report->used || report->job != job_index(c, job) ||
            (report->generation >= before_generation &&
             report->world_revision >= before_revision) ||
            node_is_excluded(c, &c->nodes[report->node]) || !report_is_alive(c, s, report))
            continue;
        *ret_node = report->node;
        return true;
    }
    return false;
}

bool job_has_older_ranks_alive(const Cluster *c, Scratch *s, const CoreJob *job, int *ret_node)
{
    return job_has_ranks_alive(c, s, job, job->world.generation, job->world_stamp.mod, ret_node);
}
