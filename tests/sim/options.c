/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - see swarm.h: what a seed draws before anything happens. */
#include "tests/sim/swarm.h"

#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)
#define MSEC(n) ((uint64_t)(n)*USEC_PER_MSEC)

/* Of its own: seeds without GPUs draw what they drew before there were any. */
static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

int swarm_gpus(const Options *options, int node, int n_machines)
{
    uint64_t key = options->gpu_key + (uint64_t)node * 64 + (uint64_t)n_machines;
    return options->gpu_key ? (int)(mix(key) % (uint64_t)(options->n_slots + 1)) : 0;
}

/* In one seed of eight some nodes have GPUs, and some jobs need them. */
static void draw_gpus(const Sim *sim, Options *ret)
{
    ret->gpu_key = sim->seed % 8 == 5 ? mix(sim->seed) | 1 : 0;
    for (int job = 0; ret->gpu_key && job < ret->n_jobs; job++)
        ret->jobs[job].facts.needs_gpu = mix(ret->gpu_key ^ (uint64_t)(job + 1)) % 3 > 0;
}

static void draw_job(Sim *sim, const Options *o, JobPlan *ret)
{
    int slots = o->n_nodes * o->n_slots;
    ret->every_steps = 2 + (int64_t)sim_draw(sim, 20);
    ret->steps = sim_chance(sim, 200) ? 20 + (int64_t)sim_draw(sim, 200) : INT64_C(1000000000);
    ret->min = 1 + (int)sim_draw(sim, 2);
    ret->max = MAX(ret->min, 1 + (int)sim_draw(sim, (uint32_t)slots));
    ret->facts = (JobFacts){.n_grains = ret->max,
                            .steps = ret->steps,
                            .max_failures = 2 + (int)sim_draw(sim, 9),
                            .grow_interval_usec = SEC(sim_draw(sim, 3) * 10),
                            .store_patience_usec = SEC(sim_draw(sim, 4) * 20)};
}

void swarm_draw_options(Sim *sim, int n_nodes, Options *ret)
{
    static const uint8_t ttls[] = {2, 2, 3, 5};
    bool large = n_nodes > 100;
    *ret = (Options){.n_nodes = n_nodes, .core = cluster_config_default};
    ret->n_slots = 1 + (int)sim_draw(sim, 2);
    ret->n_jobs = 1 + (int)sim_draw(sim, 3);
    ret->n_controllers = large ? 2 : 1 + (int)sim_draw(sim, 3);
    ret->ttl_usec = large ? SEC(10) : SEC(ttls[sim_draw(sim, ELEMENTSOF(ttls))]);
    ret->fence_usec = SEC(4 + sim_draw(sim, 30));
    ret->drain_usec = SEC(2 + sim_draw(sim, 20));
    ret->step_usec = sim_between(sim, MSEC(100), MSEC(800));
    ret->save_usec = sim_between(sim, MSEC(20), SEC(2));
    ret->restore_usec = sim_between(sim, MSEC(50), SEC(1));
    ret->ahead_usec = sim_between(sim, 0, SEC(8));
    ret->faults_usec = sim_between(sim, SEC(15), SEC(50));
    ret->gap_usec = sim_between(sim, MSEC(50), SEC(1));
    for (size_t i = 0; i < swarm_n_faults(); i++)
        ret->faults |= (uint64_t)sim_chance(sim, 350) << i;
    ret->core.ttl_usec = ret->ttl_usec;
    ret->core.start_deadline_usec = SEC(8 + sim_draw(sim, 8));
    ret->core.leave_deadline_usec = SEC(8 + sim_draw(sim, 8));
    ret->core.max_strikes = 2 + (int)sim_draw(sim, 4);
    ret->core.incidents_kept = 20;
    ret->limits = (ClusterLimits){.nodes = n_nodes + 4,
                                  .jobs = 8,
                                  .reports = 4 * n_nodes + 32,
                                  .incidents = 64,
                                  .requests = 8};
    ret->watchdog = (WatchdogLimits){.floor_usec = SEC(2 + sim_draw(sim, 5)),
                                     .startup_usec = SEC(10),
                                     .save_usec = SEC(30),
                                     .factor = 10};
    for (int job = 0; job < ret->n_jobs; job++)
        draw_job(sim, ret, &ret->jobs[job]);
    ret->core.queue_patience_usec = SEC(sim_draw(sim, 3));
    draw_gpus(sim, ret);
}
