/* SPDX-License-Identifier: Apache-2.0 */
/* reports.c - see reports.h. */
#include "controller/core/facts/reports.h"

#include "controller/core/state/text-buffer.h"
#include "protocol/train-stage.h"

const NodeRanks *job_rank0_report(const Cluster *c, const CoreJob *job)
{
    if (job->n_runs == 0 || job_runs(c, job)[0].report < 0)
        return NULL;
    return &c->reports[job_runs(c, job)[0].report];
}

/* A rank that reports step s after it has joined has seen step s - 1 completed. */
int64_t job_reached_step(const Cluster *c, const CoreJob *job)
{
    int64_t reached = job->world.resume.step;
    if (job->progress.generation == job->world.generation)
        reached = MAX(reached, job->progress.step);
    for (size_t i = 0; i < job->checkpoints.n_commits; i++)
        if (job->checkpoints.commits[i].generation == job->world.generation)
            reached = MAX(reached, job->checkpoints.commits[i].step);
    for (int i = 0; i < job->n_runs; i++) {
        if (job_runs(c, job)[i].report < 0)
            continue;
        const NodeRanks *report = &c->reports[job_runs(c, job)[i].report];
        reached = MAX(reached, report->first_step);
        for (int k = 0; k < report->n_ranks; k++)
            if (report->ranks[k].stage > STAGE_JOINING)
                reached = MAX(reached, report->ranks[k].step - 1);
    }
    return reached;
}

bool job_all_exited(const Cluster *c, const CoreJob *job)
{
    for (int i = 0; i < job->n_runs; i++) {
        if (job_runs(c, job)[i].report < 0)
            return false;
        const NodeRanks *report = &c->reports[job_runs(c, job)[i].report];
        for (int k = 0; k < report->n_ranks; k++)
            if (report->ranks[k].state != RANK_EXITED)
                return false;
    }
    return true;
}

/* A node that reports the end of its ranks may leave before the ranks of other nodes have ended, so its report counts
 * even after its key has vanished. */
static WorldEnd end_of_program(const Cluster *c, const CoreJob *job)
{
    WorldEnd end = WORLD_FINISHED;
    for (int i = 0; i < job->n_runs; i++) {
        const int report = job_runs(c, job)[i].report;
        if (report < 0 || (!c->reports[report].finished && !c->reports[report].left))
            return WORLD_GOES_ON;
        if (!c->reports[report].finished)
            end = WORLD_LEFT;
    }
    return job->n_runs > 0 ? end : WORLD_GOES_ON;
}

WorldEnd job_world_end(const Cluster *c, const CoreJob *job)
{
    if (job->facts.is_program)
        return end_of_program(c, job);
    const NodeRanks *rank0 = job_rank0_report(c, job);
    if (rank0 && rank0->finished)
        return WORLD_FINISHED;
    return rank0 && rank0->left && !rank0->gone ? WORLD_LEFT : WORLD_GOES_ON;
}

bool job_world_has_begun(const Cluster *c, const CoreJob *job)
{
    const NodeRanks *rank0 = job_rank0_report(c, job);
    if (!rank0 || rank0->first_step > 0 || !job->facts.is_program)
        return rank0 && rank0->first_step > 0;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const NodeRanks *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        if (!report || report->n_ranks != slots_count(run->slots))
            return false;
        for (int k = 0; k < report->n_ranks; k++)
            if (report->ranks[k].state < RANK_RUNNING)
                return false;
    }
    return true;
}

uint64_t job_world_began_usec(const Cluster *c, const CoreJob *job)
{
    const NodeRanks *rank0 = job_rank0_report(c, job);
    uint64_t began_usec = rank0 ? rank0->first_step_usec : 0;
    if (began_usec > 0 || !job->facts.is_program || !job_world_has_begun(c, job))
        return began_usec;
    for (int i = 0; i < job->n_runs; i++) {
        const NodeRanks *report = &c->reports[job_runs(c, job)[i].report];
        for (int k = 0; k < report->n_ranks; k++)
            began_usec = MAX(began_usec, report->ranks[k].at_usec);
    }
    return began_usec;
}

/* True when the rank ended because of the checkpoint: a rank that fails to verify its restored state exits before it
 * is ready, or its text names the checkpoint. */
static bool blames_checkpoint(const CoreJob *job, const NodeRanks *report, const CoreRank *rank)
{
    static const char key[] = "checkpoint.uri";
    if (job->facts.is_program) /* a program that has trained a step has read its checkpoint */
        return job->world.resume.uri[0] && rank->step <= job->world.resume.step;
    size_t n = text_folder(job->world.resume.uri);
    if (job->world.resume.find != FIND_NOTHING && report->worst == rank->rank)
        return text_contains(report->text, key, sizeof(key) - 1);
    if (n == 0)
        return false;
    if (report->worst == rank->rank && text_contains(report->text, job->world.resume.uri, n))
        return true;
    return rank->stage == STAGE_RESTORING;
}

Cause cause_of_exit(const CoreJob *job, const NodeRanks *report, const CoreRank *rank)
{
    if (rank->hung)
        return CAUSE_HANG;
    if (rank->killed)
        return CAUSE_RANKS_LOST;
    Cause cause = cause_of_code(rank->exit_code);
    return cause == CAUSE_DATA_CORRUPT && blames_checkpoint(job, report, rank)
               ? CAUSE_CHECKPOINT_CORRUPT
               : cause;
}

int job_find_sole_reporter(const Cluster *c, const CoreJob *job, Cause cause)
{
    int lone = -1;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        const NodeRanks *report = run->report >= 0 ? &c->reports[run->report] : NULL;
        for (int k = 0; report && k < report->n_ranks; k++) {
            assert(report->used && report->node == run->node);
            const CoreRank *rank = &report->ranks[k];
            if (rank->state != RANK_EXITED || cause_of_exit(job, report, rank) != cause)
                continue;
            if (lone >= 0 && lone != run->node)
                return -1;
            lone = run->node;
        }
    }
    return lone;
}
