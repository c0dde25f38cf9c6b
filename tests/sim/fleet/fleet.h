/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.h - a whole cluster in one thread and in virtual time: production code between models of what lies around it.
 *
 *     Leader × n          Manager × n ── Machine ── trainers (trainer.h, a model) ── their store (manifests.h, a model)
 *          └── libetcd ───────┘
 *                 └── network (seams/wire.h, a model) ── etcd (server/server.h, a model)
 *
 * There is one fleet at a time. Each controller and each sdtraind has a loop, a client of etcd and a machine of its
 * own. A process that ends is started again after a while, as systemd does it. The checkers' books are in books.h.
 *
 * Ownership: fleet_open() makes everything, fleet_close() frees it.
 * Units:     *_sec is virtual time; controllers and nodes are counted from 0, etcd's members too.
 * Errors:    what breaks a rule is kept (books.h); what the code asserts ends the program.
 * Threads:   one. The same options and calls give the same history.
 */
#pragma once

#include "cluster/keys.h"
#include "controller/core/cluster.h"
#include "tests/sim/fleet/books.h"
#include "tests/sim/fleet/trainer.h"

typedef struct FleetOptions {
    uint64_t seed;
    int n_members, n_controllers, n_nodes, n_slots;
    int64_t lease_sec, fence_sec, drain_sec;      /* 0: 10, 60, 60 */
    double hang_floor_sec, startup_sec, save_sec; /* 0: 60, 300, 300 */
    ClusterConfig core;                           /* ttl_usec 0: the defaults */
    ClusterLimits limits;                         /* of the core's tables; nodes 0: large enough */
    uint64_t gpu_key;  /* tells which machines have how many GPUs; 0: none has any */
    bool talks;        /* prints a line per transition */
    bool says_records; /* and one per record that is written */
} FleetOptions;

enum { FLEET_CONTROLLERS_MAX = 4, FLEET_NODES_MAX = 1024, FLEET_JOBS_MAX = 8 };

void fleet_open(const FleetOptions *options);
void fleet_close(void);

typedef struct FleetJob {
    const char *name;
    int min, max; /* ranks; each has a grain of the batch at most, and the batch has max grains */
    int max_failures, grow_interval_sec, store_patience_sec;
    int priority;
    TrainerPlan plan; /* with needs_gpu, the job file asks for them */
} FleetJob;

/* ---- what people do: it is on its way, and is lost if etcd does not answer for five seconds ---- */

/* Puts what `sdctl job start` puts; the job has min to max ranks. */
void fleet_submit(const char *job, int min, int max, int64_t steps);
void fleet_submit_job(const FleetJob *job);
/* Puts a person's wish for a job that is there. target 0: as many ranks as there may be. */
void fleet_want(const FleetJob *job, DesiredState state, int target);
/* CORDON_NONE: takes back whatever holds the node. */
void fleet_cordon(int node, CordonMode mode);
/* The file as it was, of the submission that it was, if the record is that of the revision. */
void fleet_put_spec(const FleetJob *job, const char *submission, int64_t revision);
/* Somebody's etcdctl puts the record, or removes it (NULL), if it is that of the revision. */
void fleet_put_by_hand(KeyKind kind, const char *name, int64_t revision, const char *value);
/* From now on somebody is here who keeps a lease and has the right to write nodes' records. */
void fleet_let_stranger_in(void);
/* Its lease ends, and with it the record of a node whose daemon waits for that. */
void fleet_send_stranger_away(void);
/* That one writes the node's record: a later life of its daemon, which is to be isolated. */
void fleet_forge_node(int node);
/* Reports whether a request of one of these people is not answered yet. */
bool fleet_people_wait(void);

/* Asks etcd as sdctl does; NULL: there is no such record. The caller frees it. Time passes
 * meanwhile, a minute at most: etcd must answer. */
char *fleet_read(KeyKind kind, const char *name);

/* ---- time ---- */

/* Runs until the job is in that phase; false: it is not within limit_sec. */
bool fleet_run_until(const char *job, JobPhase phase, int64_t limit_sec);
/* Runs until a checkpoint of that step or a later one is committed. */
bool fleet_run_until_committed(const char *job, int64_t step, int64_t limit_sec);
/* Runs until then, or until something is broken. */
void fleet_run(uint64_t until_usec);
void fleet_run_for(int64_t sec);

/* ---- what has become of it, as etcd's records tell ---- */

int64_t fleet_generation(const char *job); /* of its newest world; 0: there is none */
int64_t fleet_committed(const char *job);  /* the newest step; 0: none */
/* -1: nobody leads. */
int fleet_leader(void);
/* Returns the digest of all that etcd has ever held, in order. */
uint64_t fleet_digest(void);
/* A leader holds its decisions about absent nodes. */
bool fleet_holds(void);
/* It is first in the line, and decides nothing because others have died on these records. */
bool fleet_stands_still(int controller);
/* Returns what the core of a running controller knows. */
const Cluster *fleet_core(int controller);

/* A line: printed if the fleet talks. */
void fleet_say(const char *format, ...) _printf_(1, 2);

/* ---- what happens to processes and hosts ---- */

/* SIGKILL: nothing that it sends after this gets out. It stays away until it is started. */
void fleet_kill_controller(int controller);
void fleet_start_controller(int controller);
void fleet_kill_daemon(int node); /* its trainers end with it */
void fleet_start_daemon(int node);
bool fleet_runs(int node); /* the daemon */
const char *fleet_node_name(int node);

/* The same, and it is started again after that time. */
void fleet_restart_controller(int controller, uint64_t after_usec);
void fleet_restart_daemon(int node, uint64_t after_usec);
/* systemctl stop: it gives up its lease, or drains. It is started again after that time from its end. */
void fleet_leave_controller(int controller, uint64_t after_usec);
void fleet_drain(int node, uint64_t after_usec);
/* Another machine has the node's name after that time. */
void fleet_replace(int node, uint64_t after_usec);

/* Its loop stands still. whole: so does all else on the host. */
void fleet_freeze_controller(int controller, bool frozen);
/* SIGHUP, with these settings of the core. */
void fleet_configure(int controller, const ClusterConfig *core);
void fleet_freeze_daemon(int node, bool frozen, bool whole);
void fleet_step_clock(bool of_node, int number, int64_t by_usec);
void fleet_judge(int node, NodeVerdict verdict);
void fleet_check_fence(int node); /* of a node whose ranks train */
/* GPUs of the machine: the first slots have one each. */
int fleet_gpus(int node);
void fleet_fill_gpus(int node); /* one for each slot */

/* Between a process and every member of etcd. */
size_t fleet_machine(bool of_node, int number);
void fleet_cut(size_t machine, bool up, bool down);
void fleet_clog(size_t machine, uint64_t extra_usec);
void fleet_reset(size_t machine);

/* Returns the model of etcd. A caller that changes it calls network_server_changed(). */
Server *fleet_server(void);
