/* SPDX-License-Identifier: Apache-2.0 */
/* play-jobs.c - see faults.h: draws the jobs of a schedule. */
#include "tests/sim/fleet/faults-internal.h"

#define MSEC(n) ((uint64_t)(n)*USEC_PER_MSEC)
#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)

void play_draw_job(Play *ret, int job)
{
    /* each name is a prefix of the next */
    static const char *const names[PLAY_JOBS_MAX] = {"a", "ab", "abc", "abcd"};
    const int slots = ret->fleet.n_nodes * ret->fleet.n_slots, min = 1 + below(2),
              max = 1 + below(slots);
    ret->jobs[job] =
        (FleetJob){.name = names[job],
                   .min = min,
                   .max = MAX(min, max),
                   .max_failures = 2 + below(9),
                   .grow_interval_sec = 10 * below(3),
                   .store_patience_sec = 20 * below(4),
                   .priority = job == 1,
                   .plan = {.steps = chance(200) ? 20 + below(200) : INT64_C(1000000000),
                            .save_steps = 2 + below(20),
                            .step_usec = between(MSEC(100), MSEC(800)),
                            .save_usec = between(MSEC(20), SEC(2)),
                            .restore_usec = between(MSEC(50), SEC(1)),
                            .ahead_usec = between(0, SEC(8))}};
}

/* Some jobs run programs. If their nodes give two ranks each, all jobs are of that kind: one rank of a trainer on each
 * node would leave no node with two free slots. */
void play_draw_programs(Play *ret)
{
    const int per_node = chance(400) ? ret->fleet.n_slots : 1;
    for (int i = 0; i < ret->n_jobs; i++) {
        FleetJob *job = &ret->jobs[i];
        if (per_node == 1 && chance(300))
            continue;
        job->plan.program = (ProgramKind)(PROGRAM_SPEAKS + below(3));
        job->plan.per_node = per_node;
        job->plan.ignores_leave = chance(150);
        job->min += job->min % per_node;
        job->max = MAX(job->max - job->max % per_node, job->min);
    }
}

void play_add_evaluation(Play *ret)
{
    const uint64_t seed = ret->fleet.seed / 6;
    const int slots = ret->fleet.n_slots;
    if (ret->n_jobs >= ret->fleet.n_nodes * slots)
        return; /* after the healing, all jobs must be able to run */
    FleetJob *job = &ret->jobs[ret->n_jobs++];
    *job = (FleetJob){.name = "e",
                      .min = 1,
                      .max = 1 + (int)(seed % 2),
                      .max_failures = 2 + (int)(seed % 3),
                      .store_patience_sec = 20,
                      .priority = (int)(seed % 5),
                      .plan = {.of = ret->jobs[0].name,
                               .every_steps = 1 + (int64_t)(seed % 7) * 5,
                               .steps = 1 + (int64_t)(seed % 11),
                               .save_steps = 1,
                               .step_usec = MSEC(200 + seed % 400),
                               .restore_usec = MSEC(100),
                               .program = (ProgramKind)(PROGRAM_SPEAKS + seed % 3),
                               .per_node = 1}};
    if (seed % 2 == 1)
        return;
    job->max = 1;
    job->plan.measures_loss = true;
    job->plan.program = PROGRAM_SPEAKS;
}
