/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.h - a whole cluster in one thread and in virtual time: production code between models of its surroundings.
 *
 *     Leader × n          Manager × n ── Machine ── trainers (trainer.h, a model) ── their store (manifests.h, a model)
 *          └── libetcd ───────┘
 *                 └── network (seams/wire.h, a model) ── etcd (server/server.h, a model)
 *
 * There is one fleet at a time. Each controller and each sdtraind has its own loop, client of etcd and machine. A
 * process that ends is started again after a while, as by systemd. The checkers' books are in books.h.
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
    int64_t lease_sec, fence_sec, drain_sec;      /* 0: the defaults 10, 60, 60 */
    double hang_floor_sec, startup_sec, save_sec; /* 0: the defaults 60, 300, 300 */
    ClusterConfig core;                           /* ttl_usec 0: the defaults */
    /* sizes of the core's tables; nodes 0: large enough for all */
    ClusterLimits limits;
    uint64_t gpu_key;  /* draws the number of GPUs of each machine; 0: no machine has any */
    bool talks;        /* prints a line for each transition */
    bool says_records; /* also prints a line for each record that is written */
} FleetOptions;

enum { FLEET_CONTROLLERS_MAX = 4, FLEET_NODES_MAX = 1024, FLEET_JOBS_MAX = 8 };

void fleet_open(const FleetOptions *options);
void fleet_close(void);

typedef struct FleetJob {
    const char *name;
    int min, max; /* ranks; the batch has max grains */
    int max_failures, grow_interval_sec, store_patience_sec;
    int priority;
    TrainerPlan plan; /* with needs_gpu, the job file asks for GPUs */
} FleetJob;

/* ---- actions of people: sent without waiting; lost if etcd does not answer for five seconds ---- */

/* Puts the keys that `sdctl job start` puts; the job has min to max ranks. */
void fleet_submit(const char *job, int min, int max, int64_t steps);
void fleet_submit_job(const FleetJob *job);
/* Puts a person's desired state of an existing job. target 0: as many ranks as possible. */
void fleet_want(const FleetJob *job, DesiredState state, int target);
/* Cordons the node. CORDON_NONE: removes all causes from the node's cordon. */
void fleet_cordon(int node, CordonMode mode);
/* Puts the job's file back, under the given submission, if the record still has the given revision. */
void fleet_put_spec(const FleetJob *job, const char *submission, int64_t revision);
/* Puts the record as somebody's etcdctl would, or removes it (value NULL), if the record still has
 * the given revision. */
void fleet_put_by_hand(KeyKind kind, const char *name, int64_t revision, const char *value);
/* From now on there is a stranger: a client that keeps a lease and has the right to write nodes'
 * records. */
void fleet_let_stranger_in(void);
/* Ends the stranger's lease, and with it the record for whose end a daemon waits. */
void fleet_send_stranger_away(void);
/* The stranger writes the node's record: as a later incarnation of its daemon, with the verdict
 * "isolate". */
void fleet_forge_node(int node);
/* Returns whether a request of one of these people has not been answered yet. */
bool fleet_people_wait(void);

/* Reads a record from etcd as sdctl does; NULL: there is no such record. The caller frees the text.
 * Virtual time passes meanwhile, a minute at most: etcd must answer. */
char *fleet_read(KeyKind kind, const char *name);

/* ---- time ---- */

/* Runs until the job is in that phase. Returns false if it is not within limit_sec. */
bool fleet_run_until(const char *job, JobPhase phase, int64_t limit_sec);
/* Runs until a checkpoint of that step or a later one is committed. Returns false if none is within
 * limit_sec. */
bool fleet_run_until_committed(const char *job, int64_t step, int64_t limit_sec);
/* Runs until that time, or until a rule is broken. */
void fleet_run(uint64_t until_usec);
void fleet_run_for(int64_t sec);

/* ---- the present state, as etcd's records show it ---- */

int64_t fleet_generation(const char *job); /* of the job's newest world; 0: there is none */
int64_t fleet_committed(const char *job);  /* the newest committed step; 0: none */
/* Returns the number of the leading controller; -1: none leads. */
int fleet_leader(void);
/* Returns the digest of all values ever in etcd, in order. */
uint64_t fleet_digest(void);
/* Returns whether a leader holds its decisions about absent nodes. */
bool fleet_holds(void);
/* Returns whether the controller is first in the line of candidates, but decides nothing, because
 * earlier leaders have died on these records. */
bool fleet_stands_still(int controller);
/* Returns the core's state in a running controller. */
const Cluster *fleet_core(int controller);

/* Prints a line if the fleet talks. */
void fleet_say(const char *format, ...) _printf_(1, 2);

/* ---- faults of processes and hosts ---- */

/* SIGKILL: nothing that the controller sends after this leaves its machine. It stays down until it
 * is started. */
void fleet_kill_controller(int controller);
void fleet_start_controller(int controller);
void fleet_kill_daemon(int node); /* the node's trainers end, too */
void fleet_start_daemon(int node);
bool fleet_runs(int node); /* whether the daemon runs */
const char *fleet_node_name(int node);

/* Kill the process, and start it again after that time. */
void fleet_restart_controller(int controller, uint64_t after_usec);
void fleet_restart_daemon(int node, uint64_t after_usec);
/* systemctl stop: the controller gives up its lease, the node drains. The process is started again
 * after_usec after its end. */
void fleet_leave_controller(int controller, uint64_t after_usec);
void fleet_drain(int node, uint64_t after_usec);
/* After that time, another machine has the node's name. */
void fleet_replace(int node, uint64_t after_usec);

/* Stops the process' loop. whole: everything else on the host stops, too. */
void fleet_freeze_controller(int controller, bool frozen);
/* Sends SIGHUP, with these settings of the core. */
void fleet_configure(int controller, const ClusterConfig *core);
void fleet_freeze_daemon(int node, bool frozen, bool whole);
void fleet_step_clock(bool of_node, int number, int64_t by_usec);
void fleet_judge(int node, NodeVerdict verdict);
void fleet_check_fence(int node); /* for a node whose ranks train */
/* Returns the number of the machine's GPUs. The first slots have one GPU each. */
int fleet_gpus(int node);
void fleet_fill_gpus(int node); /* gives each slot a GPU */

/* The path between a process and all members of etcd. */
size_t fleet_machine(bool of_node, int number);
void fleet_cut(size_t machine, bool up, bool down);
void fleet_clog(size_t machine, uint64_t extra_usec);
void fleet_reset(size_t machine);

/* Returns the model of etcd. A caller that changes it calls network_server_changed(). */
Server *fleet_server(void);
