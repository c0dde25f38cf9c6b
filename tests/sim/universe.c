/* SPDX-License-Identifier: Apache-2.0 */
/* universe.c - see universe.h. */
#include "tests/sim/universe.h"

#include "tests/sim/schedule.h"

#include <stdlib.h>
#include <string.h>

static const char names[JOBS_MAX][2] = {"a", "b", "c", "d"};

const char *universe_job_name(int job)
{
    assert(job >= 0 && job < JOBS_MAX);
    return names[job];
}

int universe_job_index(const char *name)
{
    int job = name[0] - 'a';
    assert(job >= 0 && job < JOBS_MAX && name[1] == '\0');
    return job;
}

Universe *universe_new(uint64_t seed, int n_nodes, bool talk)
{
    Universe *u = sim_new(sizeof(*u));
    sim_init(&u->sim, seed, talk);
    swarm_draw_options(&u->sim, n_nodes, &u->options);
    etcd_init(&u->etcd, u);
    u->controllers = sim_new((size_t)u->options.n_controllers * sizeof(ModelController));
    u->nodes = sim_new((size_t)n_nodes * sizeof(SimNode));
    for (int i = 0; i < u->options.n_controllers; i++)
        controller_init(&u->controllers[i], u, i + 1);
    for (int i = 0; i < n_nodes; i++)
        node_init(&u->nodes[i], u, i);
    return u;
}

Universe *universe_free(Universe *u)
{
    if (!u)
        return NULL;
    for (int i = 0; i < u->options.n_nodes; i++)
        node_clear(&u->nodes[i]);
    for (int i = 0; i < u->options.n_controllers; i++)
        controller_clear(&u->controllers[i]);
    client_calls_free(u);
    rings_free(u);
    lost_clear(u);
    etcd_clear(&u->etcd);
    store_clear(&u->store);
    sim_free(&u->sim);
    free(u->nodes);
    free(u->controllers);
    free(u);
    return NULL;
}

void schedule_run(uint64_t seed, int n_nodes, bool talks, ScheduleResult *ret)
{
    Universe *u = universe_new(seed, n_nodes, talks);
    const Checker *checker = &u->checker;
    if (talks)
        swarm_describe(u);
    swarm_run(u);
    *ret = (ScheduleResult){.failed = u->sim.failed,
                            .digest = u->sim.digest,
                            .n_events = u->sim.n_events,
                            .n_faults = u->swarm.n_faults,
                            .n_worlds = checker->n_worlds,
                            .n_commits = checker->n_commits,
                            .n_incidents = checker->n_incidents,
                            .n_terms = checker->n_terms};
    memcpy(ret->invariant, u->sim.broken, sizeof(ret->invariant));
    memcpy(ret->text, u->sim.text, sizeof(ret->text));
    (void)universe_free(u); /* NULL always */
}
