/* SPDX-License-Identifier: Apache-2.0 */
/* swarm.h - a schedule: which faults exist and how hard they strike, drawn first; then the faults,
 * the healing, and what must hold after it.
 *
 * Ownership: parts of the Universe.
 * Units:     microseconds of virtual time; shares in permille.
 * Errors:    sim_fail().
 * Threads:   one.
 */
#pragma once

#include "controller/core/cluster.h"
#include "daemon/world/watchdog.h"
#include "tests/sim/sim.h"

typedef struct JobPlan {
    JobFacts facts;
    int64_t steps, every_steps;
    int min, max;
} JobPlan;

typedef struct Options { /* drawn from the seed */
    int n_nodes, n_slots, n_jobs, n_controllers;
    uint64_t ttl_usec, fence_usec, drain_usec;
    uint64_t step_usec, save_usec, restore_usec;
    uint64_t ahead_usec;  /* how long the samples that were read ahead last */
    uint64_t faults_usec; /* how long faults strike */
    uint64_t gap_usec;    /* time between two faults, on average */
    uint64_t faults;      /* kinds of faults that exist: a bit each */
    ClusterConfig core;
    ClusterLimits limits;
    WatchdogLimits watchdog;
    JobPlan jobs[4];
    uint64_t gpu_key; /* what GPUs the machines have; 0: none, and no job needs one */
} Options;

typedef struct Foreign { /* a record that a later version has written over */
    int key;
    struct ModelValue *value; /* as it was; NULL: none */
} Foreign;

typedef struct Swarm {
    Foreign foreign[4];
    bool healed, hangs;
    uint64_t pause_usec; /* the longest that had begun, or could, when all was healed */
    uint64_t n_faults;
} Swarm;

size_t swarm_n_faults(void); /* the number of kinds of faults */
/* options.c */
void swarm_draw_options(Sim *sim, int n_nodes, Options *ret);
/* GPUs of the machine that has the node's name after so many others. */
int swarm_gpus(const Options *options, int node, int n_machines);
void swarm_describe(const Universe *u);
/* lost.c: one record that does not return by itself; somebody else's claim; and their ends. */
void lost_strike(Universe *u);
void lost_take_over(Universe *u);
void lost_heal(Universe *u);
void lost_give_back(Universe *u, int job);
void lost_clear(Universe *u);
/* All is well: then the store alone goes away, and comes back (outage.c). */
void outage_run(Universe *u);
/* The longest pause that has begun, or may for what is failing just now. */
uint64_t outage_pause_usec(Universe *u);
/* The whole schedule. */
void swarm_run(Universe *u);
