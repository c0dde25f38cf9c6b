/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.h - a whole cluster in one thread and in virtual time: production code between models of what lies around it.
 *
 *     Leader × n          Manager × n ── Machine ── trainers (trainer.c, a model)
 *          └── libetcd ───────┘
 *                 └── network (seams/wire.h, a model) ── etcd (server/server.h, a model)
 *
 * There is one fleet at a time. Each controller and each sdtraind has a loop, a client of etcd and a machine of its
 * own.
 *
 * Ownership: fleet_open() makes everything, fleet_close() frees it.
 * Units:     *_sec is virtual time; controllers and nodes are counted from 0, etcd's members too.
 * Errors:    a broken fleet ends the program: what the code asserts, and what fleet.c does.
 * Threads:   one. The same options and calls give the same history.
 */
#pragma once

#include "cluster/records.h"

typedef struct FleetOptions {
    uint64_t seed;
    int n_members, n_controllers, n_nodes, n_slots;
} FleetOptions;

enum { FLEET_CONTROLLERS_MAX = 4, FLEET_NODES_MAX = 64 };

void fleet_open(const FleetOptions *options);
void fleet_close(void);

/* Puts what `sdctl job start` puts; the job has min to max ranks. */
void fleet_submit(const char *job, int min, int max, int64_t steps);
/* Runs until the job is in that phase; false: it is not within limit_sec. */
bool fleet_run_until(const char *job, JobPhase phase, int64_t limit_sec);
/* Runs until a checkpoint of that step or a later one is committed. */
bool fleet_run_until_committed(const char *job, int64_t step, int64_t limit_sec);
void fleet_run_for(int64_t sec);

/* ---- what has become of it, as etcd's records tell ---- */

int64_t fleet_generation(const char *job); /* of its newest world; 0: there is none */
int64_t fleet_committed(const char *job);  /* the newest step; 0: none */
/* -1: nobody leads. */
int fleet_leader(void);
/* Of all that etcd has ever held, in order. */
uint64_t fleet_digest(void);

/* ---- what happens to processes ---- */

/* SIGKILL: nothing that it sends after this gets out. */
void fleet_kill_controller(int controller);
void fleet_start_controller(int controller);
void fleet_kill_daemon(int node); /* its trainers end with it */
void fleet_start_daemon(int node);
