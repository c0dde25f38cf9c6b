/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.c - see jobs.h. */
#include "controller/core/facts/jobs.h"

#include "controller/core/facts/lost.h"
#include "controller/core/facts/reports.h"
#include "controller/core/state/text-buffer.h"

/* Returns the measured seconds per step of the present world; 0: unknown. */
static double step_seconds(const Cluster *c, const CoreJob *job)
{
    const NodeRanks *rank0 = job_rank0_report(c, job);
    const ProgressRecord *p = &job->progress;
    if (p->generation != job->world.generation)
        return 0;
    if (rank0 && rank0->first_step > 0 && p->step > rank0->first_step &&
        p->at_usec > rank0->first_step_usec)
        return (double)(p->at_usec - rank0->first_step_usec) / 1e6 /
               (double)(p->step - rank0->first_step);
    return p->step_sec > 0 ? p->step_sec : 0;
}

/* Only the ranks know the step of another job's checkpoint; until they report that step, no step of the world
 * counts. */
int64_t job_resumed_step(const Cluster *c, const CoreJob *job, int64_t otherwise)
{
    const NodeRanks *rank0 = job_rank0_report(c, job);
    if (!job->world.resume.adopt)
        return job->world.resume.step;
    return rank0 && rank0->first_step > 0 ? rank0->first_step - 1 : otherwise;
}

/* Returns the share of the earlier worlds' training that counts if the job's history ends with `step`: it is less than
 * 1 once a commit from which a world resumed was struck out. */
static double share_of_earlier(const CoreJob *job, int64_t from, int64_t step)
{
    ResumePoint adopted = {.adopt = true};
    text_copy(adopted.uri, sizeof(adopted.uri), job->facts.resume_uri);
    const double start = (double)resume_point_step(&adopted), all = (double)from - start;
    return step < from && all > 0 ? MAX(((double)step - start) / all, 0) : 1;
}

double job_useful_sec(const Cluster *c, const CoreJob *job, int64_t step)
{
    int64_t from = job_resumed_step(c, job, step), kept = step - from;
    return job->phase.useful_sec * share_of_earlier(job, from, step) +
           (kept > 0 ? (double)kept * step_seconds(c, job) : 0);
}

/* Each step of a world counts with the mean of the world's waits for saves, just as it counts with the mean of the
 * world's time per step. So when a step is taken back, its waits no longer count either. A step's waits are at most
 * the time of the step, which is 0 if the progress record is of another world. */
double job_saving_sec(const Cluster *c, const CoreJob *job, int64_t step)
{
    const ProgressRecord *p = &job->progress;
    int64_t from = job_resumed_step(c, job, step), kept = step - from;
    double sec = 0;
    if (kept > 0 && p->step > from && p->saving_sec > 0)
        sec = MIN(p->saving_sec / (double)(p->step - from), step_seconds(c, job)) * (double)kept;
    return job->phase.saving_sec * share_of_earlier(job, from, step) + sec;
}

bool job_wants_to_run(const CoreJob *job)
{
    return job->spec_stamp.mod && job->desired_stamp.mod && job->desired.state == DESIRED_RUNNING &&
           !job->facts.refused[0] && !lost_hides(job);
}

bool job_goes_before(const CoreJob *a, const CoreJob *b)
{
    if (a->facts.is_eval != b->facts.is_eval)
        return b->facts.is_eval; /* an evaluation delays no other job */
    if (a->desired.priority != b->desired.priority)
        return a->desired.priority > b->desired.priority;
    if (a->facts.arrival != b->facts.arrival)
        return a->facts.arrival < b->facts.arrival;
    return text_compare(a->name, b->name) < 0;
}

bool job_is_paused(const CoreJob *job)
{
    return job->phase.phase == PHASE_RECOVERING && !job->phase.go && job->phase.pause_usec > 0;
}

const Request *job_find_request(const Cluster *c, const CoreJob *job, const char *kind)
{
    for (int i = 0; i < c->limits.requests; i++) {
        const RequestRecord *r = &c->requests[i].record;
        if (c->requests[i].used && text_equal(r->kind, kind) && text_equal(r->target, job->name) &&
            !r->answer[0])
            return &c->requests[i];
    }
    return NULL;
}
