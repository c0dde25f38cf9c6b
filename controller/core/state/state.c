/* SPDX-License-Identifier: Apache-2.0 */
/* state.c - the memory of the core, and functions of a single entry of its tables. */
#include "controller/core/state/state.h"

#include <string.h>

const ClusterConfig cluster_config_default = {
    .ttl_usec = 10 * USEC_PER_SEC,
    .grace_usec = 500 * USEC_PER_MSEC,
    .start_deadline_usec = 60 * USEC_PER_SEC,
    .leave_deadline_usec = 120 * USEC_PER_SEC,
    .hang_wait_usec = 2 * USEC_PER_SEC,
    .max_strikes = 5,
    .strike_window_usec = 600 * USEC_PER_SEC,
    .quarantine_usec = 3600 * USEC_PER_SEC,
    .incidents_kept = 100,
    .queue_patience_usec = 600 * USEC_PER_SEC,
    .escalate_usec = 300 * USEC_PER_SEC,
};

/* Hands out parts of the caller's memory; with a NULL base it only counts their bytes. */
typedef struct Parts {
    char *base;
    size_t used;
} Parts;

static void *take(Parts *parts, size_t n, size_t bytes)
{
    size_t at = ROUND_UP(parts->used, (size_t)16);
    parts->used = at + n * bytes;
    return parts->base ? parts->base + at : NULL;
}

static void lay_out(Cluster *c, Parts *parts, const ClusterLimits *l)
{
    size_t nodes = (size_t)l->nodes, jobs = (size_t)l->jobs;
    c->nodes = take(parts, nodes, sizeof(CoreNode));
    c->cordons = take(parts, nodes, sizeof(NodeCordons));
    c->doubted = take(parts, nodes, sizeof(DoubtedRecord));
    c->cordoned = take(parts, nodes, sizeof(int));
    c->by_name = take(parts, nodes, sizeof(int));
    c->jobs = take(parts, jobs, sizeof(CoreJob));
    c->by_arrival = take(parts, jobs, sizeof(int));
    c->runs = take(parts, nodes * jobs, sizeof(Run));
    c->reports = take(parts, (size_t)l->reports, sizeof(NodeRanks));
    c->incidents = take(parts, (size_t)l->incidents, sizeof(Incident));
    c->alerts = take(parts, (size_t)l->incidents, sizeof(Alert));
    c->requests = take(parts, (size_t)l->requests, sizeof(Request));
    c->scratch.left_out = take(parts, nodes, sizeof(bool));
    c->scratch.ran_before = take(parts, nodes, sizeof(bool));
    c->scratch.free_slots = take(parts, nodes, sizeof(uint64_t));
    c->scratch.plan_nodes = take(parts, nodes, sizeof(int));
    c->scratch.plan_runs = take(parts, nodes, sizeof(WorldRun));
}

size_t cluster_bytes(const ClusterLimits *limits)
{
    Cluster nowhere;
    Parts parts = {.used = sizeof(Cluster)};
    lay_out(&nowhere, &parts, limits);
    return parts.used;
}

/* Zeroes the memory. Pages that are zero already are only read, which costs no memory: of a large table in
 * calloc()ed memory, only the used part is ever backed by pages. */
static void make_zero(char *memory, size_t bytes)
{
    enum { BLOCK_BYTES = 4096 };
    static const char zero[BLOCK_BYTES];
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
        size_t n = MIN(bytes - at, (size_t)BLOCK_BYTES);
        if (memcmp(memory + at, zero, n) != 0)
            memset(memory + at, 0, n);
    }
}

Cluster *cluster_init(void *memory, const ClusterLimits *limits, const ClusterConfig *config)
{
    assert(limits->nodes > 0 && limits->jobs > 0 && limits->reports > 0);
    assert(limits->incidents > config->incidents_kept && limits->requests > 0);
    make_zero(memory, cluster_bytes(limits));
    Cluster *c = memory;
    Parts parts = {.base = memory, .used = sizeof(Cluster)};
    lay_out(c, &parts, limits);
    c->limits = *limits;
    c->config = *config;
    c->first_free_report = -1;
    c->began_usec = USEC_INFINITY;
    assert(parts.used ==
           cluster_bytes(limits)); /* the size that was handed out is the size that was counted */
    return c;
}

int64_t cluster_dropped(const Cluster *c) { return c->dropped; }

uint64_t cluster_hold_until(const Cluster *c)
{
    return c->now_usec < c->hold_until_usec ? c->hold_until_usec : 0;
}

bool cluster_due(const Cluster *c, Scratch *s, uint64_t at_usec)
{
    assert(s->wake_usec >
           c->now_usec); /* the wake times set so far in this step are in the future */
    if (c->now_usec >= at_usec)
        return true;
    s->wake_usec = MIN(s->wake_usec, at_usec);
    return false;
}

const Run *job_runs(const Cluster *c, const CoreJob *job)
{
    return &c->runs[(size_t)job_index(c, job) * (size_t)c->limits.nodes];
}

int job_index(const Cluster *c, const CoreJob *job)
{
    assert(job >= c->jobs && job < c->jobs + c->limits.jobs);
    return (int)(job - c->jobs);
}

/* Nodes' records count, too: the world and the phase may both be lost, or replaced by old copies. */
int64_t job_newest_generation(const CoreJob *job)
{
    int64_t newest = MAX(job->ran_generation, MAX(job->world.generation, job->phase.generation));
    int64_t written = MAX(job->progress.generation, job->reported_generation);
    return MAX(newest, MAX(written, checkpoints_mark(&job->checkpoints).generation));
}
