/* SPDX-License-Identifier: Apache-2.0 */
/* testing-node.h - two whole nodes, n1 and n2, on the fakes of testing-memory.h and testing-machine.h; the test acts
 * as the leader of cluster "lab".
 *
 * Units: microseconds. Threads: main thread only.
 * Ownership: nodes_end() frees both nodes, and what they hold.
 * Errors:    none: a failure ends the test.
 */
#pragma once

#include "daemon/node/drain.h"
#include "daemon/node/manager.h"
#include "daemon/test/testing-machine.h"

enum { TICK_USEC = HANG_TICK_MSEC * USEC_PER_MSEC };

typedef struct TestNode {
    DaemonConfig config; /* 16 slots, a lease of 10 s, fence_sec 30, drain_sec 60 */
    Etcd etcd;
    Machine machine;
    uint64_t incarnation;
    bool is_probed, health_under_way;
    char *file; /* content of history.json; NULL: there is no file */
    Manager *manager;

    /* Numbers of the calls that the Manager has made, and the last values that it passed. */
    int n_registered, n_draining, n_ended, n_failed, n_fenced, n_renewals, n_losses, n_left_health;
    int n_checks, n_clears, n_doctors, n_committed, n_refused;
    int n_ranks_started, n_ranks_ended, n_steps, n_saves, n_ticks;
    char forgotten[RECORD_JOB_MAX + 1]; /* the job that was forgotten last */
    ExitVerdict last_end;
    Error failed; /* the last error */
} TestNode;

extern TestNode n1, n2;

/* Prepares both nodes; no Manager runs yet. */
void nodes_begin(void);
void nodes_end(void);
/* nodes_begin() and nodes_end() for cmocka; job a is submitted. */
int nodes_set_up(void **state);
int nodes_tear_down(void **state);
/* Makes and starts the Manager, which has no lease yet. */
void start(TestNode *n);
/* start(), then a lease, and all answers until the node's record is in etcd. */
void join(TestNode *n);
/* Shows what the node's watch of that kind has not shown. */
void show_kind(const Etcd *etcd, KeyKind kind);
/* Ends the node's process, and starts another one on the same machine with this incarnation. */
void restart(TestNode *n, uint64_t incarnation);

/* ---- the leader's records ---- */

/* The submission of job a, and of other jobs, until the test changes it. */
extern char submission[SUBMISSION_BYTES];
void submit(const char *job);
/* Puts a world whose ranks are in these slots of n1 and n2. Returns its revision. */
int64_t decide(const char *job, int64_t generation, uint64_t slots1, uint64_t slots2);
/* Puts the phase with the present submission. */
void set_phase(const char *job, PhaseRecord phase);
void let_go(const char *job, int64_t generation);
void set_rendezvous(const char *job, int64_t generation, const char *address);
void remove_job(const char *job);
/* decide(), then all messages of the world's trainers until the last trainer has got `go`. */
void run_world(const char *job, int64_t generation, uint64_t slots1, uint64_t slots2);
/* decide() for a world of one rank on n1, which becomes ready and may not go yet. */
void make_ready(const char *job, int64_t generation, int slot);

/* ---- records of the nodes ---- */

/* Writes, as a stranger, a record under the node's name with the verdict isolate. Returns the revision. */
int64_t put_node(const TestNode *n, const char *machine_id, uint64_t incarnation, int64_t lease);
/* Returns the node's key; ends the test if there is none. */
const StoredKey *node_key(const TestNode *n);
bool has_node_key(const TestNode *n);
NodeRecord node_record(const TestNode *n);
/* Returns the report's key; NULL: there is none. */
const StoredKey *report_key(const TestNode *n, const char *job, int64_t generation);
/* The caller must clear the result. */
RanksRecord report_of(const TestNode *n, const char *job, int64_t generation);
RankState state_of(const TestNode *n, const char *job, int64_t generation, size_t i);
uint64_t killed_of(const TestNode *n, const char *job, int64_t generation);

/* ---- messages to trainers ---- */

/* Checks that the trainer of that slot got SIGKILL, or did not. */
void assert_killed(TestNode *n, int slot, bool killed);
/* Returns the number of messages of that type that the slot's trainer has got. */
int told(TestNode *n, int slot, ChannelType type);
