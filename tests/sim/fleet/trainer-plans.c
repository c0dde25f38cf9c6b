/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-plans.c - see trainer.h: the plan by which each job's worlds train, and faults that
 * belong to a job. */
#include "tests/sim/fleet/trainer-internal.h"

#include <stdio.h>
#include <string.h>

static Plan plans[FLEET_JOBS_MAX];
static size_t n_plans;
static bool hurry;

void trainer_plans_clear(void)
{
    n_plans = 0;
    hurry = false;
}

void trainers_hurry(void) { hurry = true; }

uint64_t trainer_step_usec(const char *job, bool is_first)
{
    const TrainerPlan *plan = &trainer_plan(job)->plan;
    return plan->step_usec + (is_first && !hurry ? plan->first_usec : 0);
}

Plan *trainer_plan(const char *job)
{
    for (size_t i = 0; i < n_plans; i++)
        if (strcmp(plans[i].job, job) == 0)
            return &plans[i];
    assert(n_plans < FLEET_JOBS_MAX);
    Plan *plan = &plans[n_plans++];
    *plan = (Plan){0};
    (void)snprintf(plan->job, sizeof(plan->job), "%s", job);
    return plan;
}

void trainers_plan(const char *job, const TrainerPlan *plan)
{
    trainer_plan(job)->plan = *plan;
    trainer_plan(job)->taken_over = false;
}

/* Folder and loss of a program are its own affair. */
void trainers_take_over(const char *job, bool taken)
{
    trainer_plan(job)->taken_over = taken && !trainer_plan(job)->plan.program;
}

void trainers_poison(const char *job, int64_t step)
{
    trainer_plan(job)->poisoned = trainer_plan(job)->plan.program ? 0 : step;
}
