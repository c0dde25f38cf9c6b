/* SPDX-License-Identifier: Apache-2.0 */
/* failure.c - whether the present world of a job has failed, why, and which node is to blame.
 *
 * Entry points: failure_find_sign(), failure_judge(). The most telling sign counts: a device fault explains a lost
 * peer, not the other way round. "Peer lost" blames no node, so the judgement waits for a sign that does (or, if
 * ranks could not join, until all have reported which rank they missed); the wait is bounded. For a hang it waits
 * for the other reports: the culprit is the rank with the smallest (step, stage) or, if that rank itself waited for
 * others, the rank that did not end. If several nodes remain suspect, no node is blamed. */
#include "controller/core/judge/failure.h"

#include "controller/core/facts/machines.h"
#include "controller/core/facts/presence.h"
#include "controller/core/facts/reports.h"
#include "controller/core/judge/spare.h"
#include "controller/core/state/text-buffer.h"
#include "protocol/exit-code.h"
#include "protocol/train-stage.h"

#include <signal.h>

#define KILL_CONFIRM_USEC (2 * USEC_PER_SEC)

/* A node's startup_usec is ignored if it is longer than this. */
#define STARTUP_USEC_MAX (UINT64_C(86400) * USEC_PER_SEC)

static void describe_exit(const NodeRanks *report, const CoreRank *rank, Cause cause, char *ret,
                          size_t size)
{
    Text t = text_begin(ret, size);
    if (rank->state != RANK_EXITED) {
        text_add(&t, "it does not end");
    } else {
        text_add(&t, rank->exit_code < 0 ? "signal " : "exit ");
        text_add_int(&t, rank->exit_code < 0 ? -rank->exit_code : rank->exit_code);
    }
    if (rank->hung && rank->stage == STAGE_RUNNING) {
        text_add(&t, ", silent");
    } else if (rank->hung) {
        text_add(&t, ", no progress at step ");
        text_add_int(&t, rank->step);
        text_add(&t, ", stage ");
        text_add_int(&t, rank->stage);
    }
    if (cause == CAUSE_NODE_LEFT)
        text_add(&t, " while its node drains");
    if (report->worst == rank->rank) {
        text_add(&t, ": ");
        text_add(&t, report->text);
    }
}

/* True when a is more telling than b. Causes are compared first. If both are hangs, the hang of the rank that is
 * further behind is more telling. If a loss is not finite, all ranks end: the rank whose own grain made it so is more
 * telling. In all other cases the earlier failure is more telling. */
static bool outranks(const Failure *a, int a_stage, const Failure *b, int b_stage)
{
    if (a->cause != b->cause)
        return a->cause > b->cause;
    if (a->cause == CAUSE_HANG && (a->step != b->step || a_stage != b_stage))
        return a->step != b->step ? a->step < b->step : a_stage < b_stage;
    if (a->cause == CAUSE_NON_FINITE && (a_stage == STAGE_LEAVING) != (b_stage == STAGE_LEAVING))
        return a_stage == STAGE_LEAVING;
    return a->at_usec < b->at_usec;
}

/* A daemon that stops first reports that it drains, then ends its ranks, then reports that it has left. Ranks that
 * ended in between do not count as a failure, and neither does the daemon's leaving. */
static bool ended_with_its_node(const Cluster *c, const Run *run, const CoreRank *rank)
{
    const NodeRecord *node = &c->nodes[run->node].record;
    return (node->verdict == NODE_DRAIN || node->state == NODE_LEFT) && !rank->hung &&
           rank->state == RANK_EXITED &&
           (rank->killed || rank->exit_code == -SIGTERM || rank->exit_code == -SIGKILL);
}

/* Considers the run's ranks that have exited if `ended` is true; otherwise the ranks that were found hung and have
 * not exited. */
static void consider_ranks(const Cluster *c, const CoreJob *job, const Run *run, bool ended,
                           Failure *best, int *best_stage)
{
    const NodeRanks *report = &c->reports[run->report];
    for (int i = 0; i < report->n_ranks; i++) {
        const CoreRank *rank = &report->ranks[i];
        if ((rank->state == RANK_EXITED) != ended || (!ended && !rank->hung))
            continue;
        Failure f = {.cause = cause_of_exit(job, report, rank),
                     .node = run->node,
                     .rank = rank->rank,
                     .code = rank->exit_code,
                     .step = rank->step,
                     .at_usec = rank->at_usec};
        assert(report->used && report->node == run->node);
        if (f.cause != CAUSE_NONE && ended_with_its_node(c, run, rank))
            f.cause = CAUSE_NODE_LEFT;
        if (f.cause == CAUSE_NONE || !outranks(&f, rank->stage, best, *best_stage))
            continue;
        describe_exit(report, rank, f.cause, f.evidence, sizeof(f.evidence));
        *best = f;
        *best_stage = rank->stage;
    }
}

static bool is_ready(const Cluster *c, const Run *run)
{
    assert(run->report < c->n_reports);
    if (run->report < 0)
        return false;
    const NodeRanks *report = &c->reports[run->report];
    for (int i = 0; i < report->n_ranks; i++)
        if (report->ranks[i].state != RANK_READY && report->ranks[i].state != RANK_RUNNING)
            return false;
    return report->n_ranks == slots_count(run->slots);
}

static bool start_is_late(const Cluster *c, Scratch *s, const CoreJob *job)
{
    return !job->phase.go && cluster_due(c, s, job->world_usec + c->config.start_deadline_usec);
}

/* The node itself ends ranks that are up but not ready after startup_usec (a large checkpoint takes long to
 * restore); the leader does so one TTL later. A rank that has exited is not late: its exit is judged. */
bool run_is_late(const Cluster *c, Scratch *s, const CoreJob *job, const Run *run)
{
    const NodeRanks *report = run->report >= 0 ? &c->reports[run->report] : NULL;
    uint64_t own = c->nodes[run->node].record.startup_usec;
    bool up = report && report->n_ranks == slots_count(run->slots);
    if (job->phase.go || is_ready(c, run))
        return false;
    for (int i = 0; report && i < report->n_ranks; i++) {
        const CoreRank *rank = &report->ranks[i];
        if (rank->state == RANK_EXITED && cause_of_exit(job, report, rank) != CAUSE_NONE)
            return false;
        up &= rank->state != RANK_EXITED;
    }
    if (up && own > 0 && own <= STARTUP_USEC_MAX)
        return cluster_due(c, s,
                           job->world_usec +
                               MAX(c->config.start_deadline_usec, own + c->config.ttl_usec));
    return start_is_late(c, s, job);
}

/* True when a report's key has vanished although its node is present: the node was away and no longer knows these
 * ranks. */
static bool report_is_missing(const Cluster *c, Scratch *s, const CoreJob *job, const Run *run)
{
    const CoreNode *node = &c->nodes[run->node];
    if (run->report < 0)
        return job->phase.go &&
               cluster_due(c, s,
                           MAX(job->phase_usec, node->changed_usec) + 2 * c->config.grace_usec);
    const NodeRanks *report = &c->reports[run->report];
    return report->gone &&
           cluster_due(c, s, MAX(report->gone_usec, node->changed_usec) + 2 * c->config.grace_usec);
}

static void consider_node(const Cluster *c, Scratch *s, const CoreJob *job, const Run *run,
                          Failure *best)
{
    const CoreNode *node = &c->nodes[run->node];
    Failure f = {.node = run->node, .rank = run->first_rank, .at_usec = c->real_usec};
    if (!node->present) {
        if (!node_is_lost(c, s, node))
            return;
        f.cause = node->record.state == NODE_LEFT ? CAUSE_NODE_LEFT : CAUSE_NODE_LOST;
        f.at_usec = node->vanished_real_usec;
        if (job->progress.at_usec && job->progress.at_usec < f.at_usec &&
            job->progress.generation == job->world.generation)
            f.at_usec = job->progress.at_usec; /* the world ran until about this time */
        text_copy(f.evidence, sizeof(f.evidence), "its lease ran out");
    } else if (node->record.incarnation != run->incarnation) {
        bool left = node->left_incarnation == run->incarnation;
        f.cause = left ? CAUSE_NODE_LEFT : CAUSE_NODE_RESTARTED;
        text_copy(f.evidence, sizeof(f.evidence),
                  left ? "its daemon was stopped" : "its daemon was restarted");
    } else if (node->record.state == NODE_LEFT) {
        f.cause = CAUSE_NODE_LEFT;
        text_copy(f.evidence, sizeof(f.evidence), "its daemon was stopped");
    } else if (node_is_unhealthy(c, node)) {
        f.cause = CAUSE_NODE_UNHEALTHY;
        text_copy(f.evidence, sizeof(f.evidence), node->record.evidence);
    } else if (node->record.lost_slots & run->slots) {
        f.cause = CAUSE_SLOT_LOST;
        text_copy(f.evidence, sizeof(f.evidence),
                  "a process of an older generation survives SIGKILL");
    } else if (node->record.bad_slots & run->slots) {
        f.cause = CAUSE_SLOT_LOST;
        text_copy(f.evidence, sizeof(f.evidence), node->record.evidence);
    } else if (report_is_missing(c, s, job, run)) {
        f.cause = CAUSE_RANKS_LOST;
        text_copy(f.evidence, sizeof(f.evidence), "the node does not run its ranks any more");
    } else if (run_is_late(c, s, job, run)) {
        f.cause = CAUSE_START_TIMEOUT;
        text_copy(f.evidence, sizeof(f.evidence), "not ready when the start deadline passed");
    }
    if (f.cause != CAUSE_NONE && outranks(&f, 0, best, 0))
        *best = f;
}

/* True when the run's ranks have done their part: then a stop or reboot of their node is not a failure. In a trainers'
 * world rank 0's node never counts as done, because that node reports the end of the world. */
static bool has_done_its_part(const Cluster *c, const CoreJob *job, int i)
{
    const Run *run = &job_runs(c, job)[i];
    return (i > 0 || job->facts.is_program) && run->report >= 0 &&
           report_has_end(job, &c->reports[run->report]);
}

/* Finds a present node that does not confirm the end of its ranks of an older generation. While other ranks still
 * restore in time, nothing is found: ending the world would gain nothing. */
static void consider_older_ranks(const Cluster *c, Scratch *s, const CoreJob *job, Failure *best)
{
    int node;
    if (best->cause != CAUSE_NONE || job->phase.go || !start_is_late(c, s, job) ||
        !job_has_older_ranks_alive(c, s, job, &node))
        return;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        if (run->node != node && !is_ready(c, run))
            return;
    }
    *best =
        (Failure){.cause = CAUSE_START_TIMEOUT, .node = node, .rank = -1, .at_usec = c->real_usec};
    text_copy(best->evidence, sizeof(best->evidence),
              "did not confirm the end of an older generation");
}

typedef struct Suspects {
    int n_nodes, node, rank; /* node and rank of the first suspect */
} Suspects;

static void suspect(Suspects *s, const Run *run, const CoreRank *rank)
{
    if (s->n_nodes > 0 && s->node == run->node)
        return;
    if (s->n_nodes++ == 0) {
        s->node = run->node;
        s->rank = rank->rank;
    }
}

/* A program may report each step and stage, or steps alone, or nothing. */
static bool names_steps(const CoreJob *job, const CoreRank *rank)
{
    return rank->step > job->world.resume.step;
}

/* In STAGE_JOINING a program has not reported that it is ready: it may wait until it has met the others. */
static bool may_wait(int stage)
{
    return stage == STAGE_RUNNING || stage == STAGE_JOINING || stage == STAGE_REDUCING ||
           stage == STAGE_GATHERING;
}

/* True when `other` is further on than `rank`, or `rank` surely does not wait for it: the kernel showed that it stands
 * still by itself, or it says that it does its own work. Ranks that name no step are compared with nobody. */
static bool is_ahead(const CoreJob *job, const CoreRank *other, const CoreRank *rank)
{
    if (rank->stuck != other->stuck)
        return rank->stuck;
    if (!names_steps(job, other) || !names_steps(job, rank))
        return !may_wait(rank->stage);
    if (other->step != rank->step)
        return other->step > rank->step;
    return !may_wait(rank->stage) && other->stage > rank->stage;
}

/* Returns the number of other nodes that may be to blame instead of the run's rank. */
static int count_rivals(const Cluster *c, const CoreJob *job, const Run *of, const CoreRank *rank)
{
    int rivals = 0;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const NodeRanks *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        bool is_rival = false;
        for (int k = 0; report && run != of && k < report->n_ranks; k++) {
            const CoreRank *other = &report->ranks[k];
            is_rival |= (other->hung || other->state != RANK_EXITED) && !is_ahead(job, other, rank);
        }
        rivals += is_rival;
    }
    return rivals;
}

/* In a program's world a rank is to blame only if it surely does not wait for a rank of another node. */
static void judge_program_hang(const Cluster *c, const CoreJob *job, Failure *best)
{
    int fewest = job->n_runs;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const NodeRanks *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        for (int k = 0; report && k < report->n_ranks; k++) {
            const CoreRank *rank = &report->ranks[k];
            const int rivals = rank->hung ? count_rivals(c, job, run, rank) : job->n_runs;
            if (rivals >= fewest)
                continue;
            fewest = rivals;
            best->node = run->node;
            best->rank = rank->rank;
            best->step = rank->step;
            best->code = rank->exit_code;
            describe_exit(report, rank, CAUSE_HANG, best->evidence, sizeof(best->evidence));
        }
    }
    if (fewest == 0)
        return;
    Text t = text_begin(best->evidence, sizeof(best->evidence));
    text_add(&t, "no progress at step ");
    text_add_int(&t, best->step);
    text_add(&t, "; it may be any of ");
    text_add_int(&t, fewest + 1);
    text_add(&t, " nodes");
    best->node = best->rank = -1;
}

/* A rank that stands still in a collective waits for other ranks: the rank that has not exited is to blame, whether
 * or not its node reports it as hung. If all ranks have exited, any rank that waited may be to blame. */
static void judge_hang(const Cluster *c, const CoreJob *job, Failure *best, int stage)
{
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        if (run->report >= 0)
            consider_ranks(c, job, run, false, best, &stage);
    }
    if (stage != STAGE_REDUCING && stage != STAGE_GATHERING)
        return;
    assert(best->cause == CAUSE_HANG && best->node >= 0);
    Suspects there = {0}, waited = {0};
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const NodeRanks *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        for (int k = 0; report && k < report->n_ranks; k++) {
            const CoreRank *rank = &report->ranks[k];
            if (rank->state != RANK_EXITED)
                suspect(&there, run, rank);
            else if (rank->hung && rank->step == best->step && rank->stage == stage)
                suspect(&waited, run, rank);
        }
    }
    const Suspects *s = there.n_nodes > 0 ? &there : &waited;
    if (s->n_nodes == 1 && s->node == best->node)
        return;
    Text t = text_begin(best->evidence, sizeof(best->evidence));
    text_add(&t, s->n_nodes == 1 ? "it does not end; others wait for it, " : "");
    text_add(&t, stage == STAGE_REDUCING ? "reducing" : "gathering");
    text_add(&t, " at step ");
    text_add_int(&t, best->step);
    if (s->n_nodes > 1) {
        text_add(&t, "; it may be any of ");
        text_add_int(&t, s->n_nodes);
        text_add(&t, " nodes");
    }
    best->node = s->n_nodes == 1 ? s->node : -1;
    best->rank = s->n_nodes == 1 ? s->rank : -1;
}

static uint64_t wait_for_blame(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f)
{
    switch (f->cause) {
    case CAUSE_PEER_LOST:
        return c->config.ttl_usec + 2 * c->config.grace_usec;
    case CAUSE_HANG:
        return c->config.hang_wait_usec;
    case CAUSE_NON_FINITE: /* every rank exits by itself, and one rank searches for the reason first */
        return c->config.hang_wait_usec + EXIT_NON_FINITE_SEC * USEC_PER_SEC;
    case CAUSE_BAD_JOB: /* a spare takes over only if no other node reports the cause, too */
    case CAUSE_DATA_CORRUPT:
    case CAUSE_CHECKPOINT_CORRUPT:
    case CAUSE_STORE_UNREACHABLE:
        return failure_is_of_one_node(c, job, f) && job_has_spare_for(c, s, job, f->node)
                   ? c->config.hang_wait_usec
                   : 0;
    default:
        return 0;
    }
}

/* While a vanished node of the world may come back, no world is made without it, whatever else happened. The grace or
 * the hold bounds this wait. */
bool job_absence_is_open(const Cluster *c, Scratch *s, const CoreJob *job)
{
    bool open = false;
    for (int i = 0; i < job->n_runs; i++) {
        const CoreNode *node = &c->nodes[job_runs(c, job)[i].node];
        open |= !node->present && !node_is_lost(c, s, node) && !has_done_its_part(c, job, i);
    }
    return open;
}

/* etcd may still reach a node that its peers cannot: no rank dies then, but joining fails again and again. The rank
 * to blame is the rank with which the largest number of other ranks could not join. If two ranks are equal in this, the
 * higher rank is to blame, because a rank that misses another rank has met rank 0. */
static void find_unreachable(const Cluster *c, const CoreJob *job, Failure *best)
{
    int most = 0;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        int n_ranks = slots_count(run->slots), votes = 0;
        for (int k = 0; k < job->n_runs; k++) {
            int n = job_runs(c, job)[k].report;
            for (int j = 0; n >= 0 && k != i && j < c->reports[n].n_ranks; j++) {
                const CoreRank *rank = &c->reports[n].ranks[j];
                votes += rank->state == RANK_EXITED && rank->unreachable_rank >= run->first_rank &&
                         rank->unreachable_rank < run->first_rank + n_ranks;
            }
        }
        if (votes == 0 || votes < most)
            continue;
        most = votes;
        best->cause = CAUSE_UNREACHABLE;
        best->node = run->node;
        best->rank = run->first_rank;
    }
    if (most == 0)
        return;
    Text t = text_begin(best->evidence, sizeof(best->evidence));
    text_add_int(&t, most);
    text_add(&t, most == 1 ? " rank of another node" : " ranks of other nodes");
    text_add(&t, " did not meet it when they joined");
}

/* A rank that was found hung is being killed. If the rank survives SIGKILL, its slot is lost, which is more telling
 * than the hang. Its node knows this after KILL_CONFIRM_USEC (RANK_KILL_CONFIRM_MSEC in daemon/world/rank.h). */
static bool end_is_open(const Cluster *c, Scratch *s, const CoreJob *job)
{
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        for (int k = 0; run->report >= 0 && k < c->reports[run->report].n_ranks; k++) {
            const CoreRank *rank = &c->reports[run->report].ranks[k];
            if (rank->hung && rank->state != RANK_EXITED)
                return !cluster_due(c, s,
                                    job->failing_usec + c->config.hang_wait_usec +
                                        KILL_CONFIRM_USEC + 2 * c->config.grace_usec);
        }
    }
    return false;
}

bool failure_find_sign(const Cluster *c, Scratch *s, const CoreJob *job, FailureSign *ret)
{
    *ret = (FailureSign){.failure = {.node = -1, .rank = -1, .at_usec = UINT64_MAX}};
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        if (has_done_its_part(c, job, i))
            continue;
        consider_node(c, s, job, run, &ret->failure);
        if (run->report >= 0)
            consider_ranks(c, job, run, true, &ret->failure, &ret->stage);
    }
    consider_older_ranks(c, s, job, &ret->failure);
    return !job_absence_is_open(c, s, job);
}

bool failure_judge(const Cluster *c, Scratch *s, const CoreJob *job, const FailureSign *sign,
                   Failure *ret)
{
    assert(sign->failure.cause < CAUSES && sign->failure.node < c->limits.nodes);
    Failure best = sign->failure;
    if (best.cause == CAUSE_NONE)
        return false;
    assert(best.node >= 0);
    assert(job->failing_usec <= c->now_usec); /* note_failure() has set failing_usec */
    uint64_t wait = wait_for_blame(c, s, job, &best);
    if (wait && !job_all_exited(c, job) && !cluster_due(c, s, job->failing_usec + wait))
        return false;
    if (best.cause == CAUSE_HANG && end_is_open(c, s, job))
        return false;
    if (best.cause == CAUSE_PEER_LOST) {
        best.node = -1; /* a rank that reports a lost peer is a victim */
        find_unreachable(c, job, &best);
    }
    if (best.cause == CAUSE_HANG && job->facts.is_program)
        judge_program_hang(c, job, &best);
    else if (best.cause == CAUSE_HANG)
        judge_hang(c, job, &best, sign->stage);
    assert(best.node >= -1 && best.node < c->limits.nodes);
    best.step = best.rank >= 0 && best.step > 0 ? best.step : job_reached_step(c, job);
    *ret = best;
    return true;
}
