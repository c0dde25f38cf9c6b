/* SPDX-License-Identifier: Apache-2.0 */
/* price.c - changes the cost meter of a training job to new prices.
 *
 * Guarantees: without the setting `prices` nothing is decided here. */
#include "controller/core/decide/price.h"

#include "controller/core/write/phase.h"

#include "cluster/cost.h"

/* Sums up the prices of the present world's slots. Returns false if this leader has never seen one of the world's
 * nodes, so that the node's class is not known. */
static bool rate_of_job(const Cluster *c, const CoreJob *job, int64_t *ret)
{
    int64_t rate = 0;
    for (int i = 0; i < job->n_runs; i++) {
        const Run *run = &job_runs(c, job)[i];
        if (c->nodes[run->node].stamp.seen == 0)
            return false;
        rate += c->nodes[run->node].price * slots_count(run->slots);
    }
    *ret = MIN(rate, COST_RATE_MAX);
    return job->n_runs > 0;
}

bool decide_price(const Cluster *c, const CoreJob *job, Decision *d)
{
    assert(job->phase.phase == PHASE_RUNNING && !d->put_phase);
    int64_t rate;
    if (!c->config.prices[0] || !rate_of_job(c, job, &rate) || rate == job->phase.cost.rate)
        return false;
    decide_same_phase(c, job, d);
    cost_meter_read(&d->phase.cost, c->real_usec, false);
    cost_meter_run(&d->phase.cost, rate, c->real_usec);
    return true;
}
