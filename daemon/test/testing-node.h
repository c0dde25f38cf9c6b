/* SPDX-License-Identifier: Apache-2.0 */
/* testing-node.h - two whole nodes, n1 and n2, on the seams of testing-seams.h; the test plays the leader of cluster
 * "lab".
 *
 * Ownership: nodes_end() frees both, and what they hold.
 * Units:     microseconds.
 * Errors:    none: what goes wrong ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "daemon/node/drain.h"
#include "daemon/node/manager.h"
#include "daemon/test/testing-seams.h"

enum { TICK_USEC = HANG_TICK_MSEC * USEC_PER_MSEC };

typedef struct TestNode {
    DaemonConfig config; /* 16 slots, a lease of 10 s, fence_sec 30, drain_sec 60 */
    Etcd etcd;
    Machine machine;
    uint64_t incarnation;
    bool is_probed, health_under_way;
    char *file; /* history.json; NULL: there is none */
    Manager *manager;

    /* The calls that its Manager has made, counted, and the last values that they passed. */
    int n_registered, n_draining, n_ended, n_failed, n_fenced, n_renewals, n_losses, n_left_health;
    int n_checks, n_clears, n_doctors, n_committed, n_refused;
    int n_ranks_started, n_ranks_ended, n_steps, n_saves, n_ticks;
    char forgotten[RECORD_JOB_MAX + 1]; /* the last job */
    ExitVerdict last_end;
    Error failed; /* the last one */
} TestNode;

extern TestNode n1, n2;

/* Nothing runs yet. */
void nodes_begin(void);
void nodes_end(void);
/* Both, for cmocka; job a is submitted. */
int nodes_set_up(void **state);
int nodes_tear_down(void **state);
/* Makes and starts the Manager, which has no lease yet. */
void start(TestNode *n);
/* start(), a lease, and answers until its record is there. */
void join(TestNode *n);
/* The process ends, and another one begins later on that machine. */
void restart(TestNode *n, uint64_t incarnation);

/* ---- the leader's records ---- */

/* The submission of job a, and of other jobs, until the test changes it. */
extern char submission[SUBMISSION_BYTES];
void submit(const char *job);
/* A world of the ranks that the slots of both nodes give. Returns its revision. */
int64_t decide(const char *job, int64_t generation, uint64_t slots1, uint64_t slots2);
/* Puts the record with that submission. */
void set_phase(const char *job, PhaseRecord phase);
void let_go(const char *job, int64_t generation);
void set_rendezvous(const char *job, int64_t generation, const char *address);
void remove_job(const char *job);
/* decide(), and its trainers say what they must until the last one has got `go`. */
void run_world(const char *job, int64_t generation, uint64_t slots1, uint64_t slots2);
/* decide() for a world of one rank on n1, which gets ready and may not go yet. */
void make_ready(const char *job, int64_t generation, int slot);

/* ---- what the nodes wrote ---- */

/* Somebody writes a record under the node's name that calls it bad. Returns the revision. */
int64_t put_node(const TestNode *n, const char *machine_id, uint64_t incarnation, int64_t lease);
/* The node's key; the test ends if there is none. */
const StoredKey *node_key(const TestNode *n);
bool has_node_key(const TestNode *n);
NodeRecord node_record(const TestNode *n);
/* The report's key; NULL: there is none. */
const StoredKey *report_key(const TestNode *n, const char *job, int64_t generation);
/* To be cleared by the caller. */
RanksRecord report_of(const TestNode *n, const char *job, int64_t generation);
RankState state_of(const TestNode *n, const char *job, int64_t generation, size_t i);
uint64_t killed_of(const TestNode *n, const char *job, int64_t generation);

/* ---- what trainers were told ---- */

/* The trainer of that slot got SIGKILL, or did not. */
void assert_killed(TestNode *n, int slot, bool killed);
/* How many messages of that type it got. */
int told(TestNode *n, int slot, ChannelType type);
