/* SPDX-License-Identifier: Apache-2.0 */
/* outage.c - the store alone goes away for some seconds, and nothing else goes wrong: no world ends of it,
 * each job that trains has an incident that says so, and its checkpoints catch up.
 *
 * Entry point: outage_run(), once a schedule has healed. */
#include "tests/sim/checker.h"
#include "tests/sim/swarm.h"
#include "tests/sim/universe.h"

#define SEC(n) ((uint64_t)(n)*USEC_PER_SEC)

enum {
    CALM_SEC = 60,
    KNOWN_SEC = 8,      /* from the last data to its being told: the wait, the record, the leader */
    CAUGHT_UP_SEC = 10, /* from the store's return, beside a save's interval */
};

static const PhaseRecord *phase_of(Universe *u, int job)
{
    return etcd_record(&u->etcd, KEY_PHASES, universe_job_name(job));
}

uint64_t outage_pause_usec(Universe *u)
{
    uint64_t usec = 0;
    for (int job = 0; job < u->options.n_jobs; job++) {
        const PhaseRecord *phase = phase_of(u, job);
        if (phase && phase->pauses > 0)
            usec = MAX(usec, SEC(MIN(1 << MIN(phase->pauses, 5), 30)));
    }
    return usec;
}

/* It trains, has long to go, and is not about to leave. */
static bool is_calm(Universe *u, int job)
{
    const PhaseRecord *phase = phase_of(u, job);
    return phase && phase->phase == PHASE_RUNNING && !phase->leave &&
           u->options.jobs[job].steps > 1000000;
}

static bool somebody_hangs(const Universe *u)
{
    for (int n = 0; n < u->options.n_nodes; n++)
        for (int slot = 0; slot < u->options.n_slots; slot++) {
            const Process *p = &u->nodes[n].slots[slot];
            if (p->alive && (p->stuck || p->stopped))
                return true;
        }
    return false;
}

static bool all_have_trained_since(Universe *u, uint64_t usec)
{
    for (int job = 0; job < u->options.n_jobs; job++) {
        const PhaseRecord *phase = phase_of(u, job);
        bool over = phase && phase->phase >= PHASE_STOPPED;
        if (!over &&
            (!phase || phase->phase != PHASE_RUNNING || u->checker.jobs[job].trained_usec <= usec))
            return false;
    }
    return true;
}

/* A hang of the faults before is over: the watchdog has found it, and the world after it trains. */
static bool wait_for_calm(Universe *u)
{
    uint64_t since = u->sim.now_usec, until = since + SEC(CALM_SEC);
    while (u->sim.now_usec < until && !u->sim.failed) {
        if (somebody_hangs(u))
            since = u->sim.now_usec;
        else if (all_have_trained_since(u, since))
            return true;
        sim_run(u, u->sim.now_usec + SEC(1) / 10);
    }
    return false;
}

static void check_known(Universe *u, const bool *calm)
{
    for (int job = 0; job < u->options.n_jobs; job++)
        if (calm[job] && is_calm(u, job) && !checker_knows_trouble(u, job))
            sim_fail(&u->sim, "I10", "%s waits for its store, and nobody is told",
                     universe_job_name(job));
}

static void check_caught_up(Universe *u, const bool *calm, const uint64_t *before)
{
    for (int job = 0; job < u->options.n_jobs; job++) {
        if (!calm[job] || !is_calm(u, job))
            continue;
        if (u->checker.jobs[job].committed_usec <= before[job])
            sim_fail(&u->sim, "I11", "%s has not saved since its store is back",
                     universe_job_name(job));
        else if (checker_knows_trouble(u, job))
            sim_fail(&u->sim, "I10", "%s is well, and its trouble stays open",
                     universe_job_name(job));
    }
}

void outage_run(Universe *u)
{
    bool calm[JOBS_MAX] = {0}, all_calm = true;
    uint64_t before[JOBS_MAX] = {0};
    int64_t most_steps = 0;
    if (!wait_for_calm(u))
        return;
    const uint64_t n_failures = u->checker.n_failures, n_leaves = u->checker.n_leaves;
    for (int job = 0; job < u->options.n_jobs; job++) {
        calm[job] = is_calm(u, job);
        all_calm &= calm[job];
        most_steps = MAX(most_steps, u->options.jobs[job].every_steps);
    }
    sim_say(&u->sim, "the store alone goes away");
    store_lose(&u->store, u->sim.now_usec);
    sim_run(u, u->sim.now_usec + u->options.ahead_usec + SEC(KNOWN_SEC));
    if (u->sim.failed)
        return;
    if (u->checker.n_leaves ==
        n_leaves) /* one that saves before it leaves says nothing meanwhile */
        check_known(u, calm);
    u->store.out = false;
    for (int job = 0; job < u->options.n_jobs; job++)
        before[job] = u->checker.jobs[job].committed_usec;
    sim_say(&u->sim, "the store is back");
    sim_run(u, u->sim.now_usec + 2 * (uint64_t)most_steps * u->options.step_usec +
                   4 * u->options.save_usec + SEC(CAUGHT_UP_SEC));
    if (u->sim.failed)
        return;
    check_caught_up(u, calm, before);
    if (all_calm && u->checker.n_leaves == n_leaves && u->checker.n_failures != n_failures)
        sim_fail(&u->sim, "outage", "a world has ended although its store alone was away");
}
