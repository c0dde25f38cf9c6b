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
 * Errors:    the first breach of a rule is kept (books.h); a failed assertion of the code ends the program.
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
    /* sizes of the core's tables; limits.nodes 0: tables that are large enough for everything */
    ClusterLimits limits;
    uint64_t gpu_key;  /* draws the number of GPUs of each machine; 0: no machine has GPUs */
    bool talks;        /* the fleet prints a line for each transition */
    bool says_records; /* the fleet also prints a line for each record that is written */
} FleetOptions;

enum { FLEET_CONTROLLERS_MAX = 4, FLEET_NODES_MAX = 1024, FLEET_JOBS_MAX = 8 };

void fleet_open(const FleetOptions *options);
void fleet_close(void);

typedef struct FleetJob {
    const char *name;
    int min, max; /* smallest and largest number of ranks; the batch has max grains */
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
/* Puts the record as somebody would with etcdctl, or removes it if value is NULL. Does nothing if
 * the record no longer has the given revision. */
void fleet_put_by_hand(KeyKind kind, const char *name, int64_t revision, const char *value);
/* Adds a stranger: a client that keeps a lease and has the right to write nodes' records. */
void fleet_let_stranger_in(void);
/* Has the evaluation evaluate the checkpoint of that number (manifests.h), as `sdctl job evaluate` does. */
void fleet_name_checkpoint(const char *evaluation, int number);
/* Ends the stranger's lease, so etcd removes the stranger's record. A daemon waits until that record
 * is gone. */
void fleet_send_stranger_away(void);
/* Makes the stranger write the node's record, as if it were a later incarnation of the node's
 * daemon, with the verdict "isolate". */
void fleet_forge_node(int node);
/* Returns whether a transaction of people has not been answered yet. */
bool fleet_people_wait(void);

/* Reads a record from etcd as sdctl does; NULL: there is no such record. The caller frees the text.
 * Meanwhile virtual time passes. etcd must answer within a minute. */
char *fleet_read(KeyKind kind, const char *name);

/* ---- time ---- */

/* Runs until the job is in the given phase. Returns false if the job does not get there within
 * limit_sec. */
bool fleet_run_until(const char *job, JobPhase phase, int64_t limit_sec);
/* Runs until a checkpoint of the given step or a later step is committed. Returns false if none is
 * committed within limit_sec. */
bool fleet_run_until_committed(const char *job, int64_t step, int64_t limit_sec);
/* Runs until until_usec, or until a rule is broken. */
void fleet_run(uint64_t until_usec);
void fleet_run_for(int64_t sec);

/* ---- the present state, as etcd's records show it ---- */

int64_t fleet_generation(const char *job); /* generation of the job's newest world; 0: no world */
int64_t fleet_committed(const char *job);  /* the newest committed step; 0: no step */
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

/* Kills the controller as SIGKILL does: nothing that it sends after this call leaves its machine.
 * It stays down until fleet_start_controller(). */
void fleet_kill_controller(int controller);
void fleet_start_controller(int controller);
void fleet_kill_daemon(int node); /* kills the daemon; the node's trainers end, too */
void fleet_start_daemon(int node);
bool fleet_runs(int node); /* returns whether the daemon runs */
const char *fleet_node_name(int node);

/* These functions kill the process, and start it again after after_usec. */
void fleet_restart_controller(int controller, uint64_t after_usec);
void fleet_restart_daemon(int node, uint64_t after_usec);
/* These functions do what `systemctl stop` does: the controller gives up its lease, the node
 * drains. The process is started again after_usec after its end. */
void fleet_leave_controller(int controller, uint64_t after_usec);
void fleet_drain(int node, uint64_t after_usec);
/* Replaces the node's machine after after_usec: then another machine has the node's name. */
void fleet_replace(int node, uint64_t after_usec);

/* These functions stop the process' loop. whole: everything else on the host stops, too. */
void fleet_freeze_controller(int controller, bool frozen);
/* Gives the controller new settings of the core, as SIGHUP does. */
void fleet_configure(int controller, const ClusterConfig *core);
void fleet_freeze_daemon(int node, bool frozen, bool whole);
void fleet_step_clock(bool of_node, int number, int64_t by_usec);
void fleet_judge(int node, NodeVerdict verdict);
void fleet_check_fence(int node); /* call it for a node whose ranks train */
/* Returns the number of GPUs of the node's machine. The first slots have one GPU each. */
int fleet_gpus(int node);
void fleet_fill_gpus(int node); /* gives each slot a GPU */

/* fleet_machine() returns the machine of a process; the other two functions cut or slow the path
 * between that machine and all members of etcd. */
size_t fleet_machine(bool of_node, int number);
void fleet_cut(size_t machine, bool up, bool down);
void fleet_clog(size_t machine, uint64_t extra_usec);
void fleet_reset(size_t machine);

/* Returns the model of etcd. A caller that changes the model calls network_server_changed(). */
Server *fleet_server(void);
