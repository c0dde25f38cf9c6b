/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - the rules of a fleet that need more than the records: which process wrote, what it had read, and the time.
 *
 * The checks are outside of the simulated programs: they see each transaction before it is applied, the events that
 * each controller reads, and what trainers do. Rules that need only records are in tests/history/rules.h.
 *
 *   checks.c          I1, I7, I10, resize, foreign: the rules for each kind of record
 *   checks-time.c     absence, hold, queue, heard: when a leader may act
 *   checks-lost.c     what a leader puts back and removes, and its changes of cordons
 *   checks-commits.c  I3, I4, I9, lost: each commit is complete, continues the last commit, and is never lost
 *
 * Ownership: checks_open() makes the only checks of a simulation, checks_close() frees them.
 * Units:     steps, generations, revisions; controllers and nodes are counted from 0.
 * Errors:    books_break() with the invariant's number, or a word.
 * Threads:   one.
 */
#pragma once

#include "controller/core/cluster.h"
#include "tests/history/history.h"

typedef struct ChecksOptions {
    int n_controllers, n_nodes;
    ClusterConfig core;
    /* the tables of the controller's core may be too small for all records */
    bool has_small_tables;
} ChecksOptions;

/* Notes that a controller's wall clock is wrong from now on: the checks then ignore rules that
 * depend on times which leaders write for each other. */
void checks_clock_steps(void);

void checks_open(const ChecksOptions *options);
void checks_close(void);

/* Checks each transaction: the witness of history-internal.h. */
void checks_witness(HistoryChecker *h);

/* Checks the final state, when everything is at rest. */
void checks_end(HistoryChecker *h);

/* ---- controllers ---- */

void checks_controller_starts(int controller); /* the controller has read nothing yet */
void checks_controller_leads(int controller);
void checks_controller_reads(int controller, const Event *event);
/* Call it after the core has processed the event. */
void checks_controller_stepped(int controller, const Event *event, const Cluster *cluster);

/* ---- trainers ---- */

void checks_save_fails(const char *job, const char *submission);
/* checks_goes() notes that a rank was told to go, checks_leaves() that a rank was told to leave. */
void checks_goes(const char *job, const char *submission, int64_t generation);
void checks_leaves(const char *job, const char *submission, int64_t generation);
/* Notes that all ranks of a world have met. number: the checkpoint that the ranks restored; -1: no
 * checkpoint. */
void checks_begins(const char *job, const char *submission, int64_t generation, int number);

/* ---- for outage.c ---- */

/* Returns whether an open incident says that the job's store fails. */
bool checks_knows_trouble(const char *job);
/* Returns the time of the job's last commit; 0: no commit. */
uint64_t checks_committed_usec(const char *job);

typedef struct ChecksCounts {
    uint64_t n_struck_out; /* worlds that ended because of a commit that was then struck out */
    /* n_failures: incidents that ended a world; n_leaves: worlds that were told to leave; n_terms:
     * terms of leaders */
    uint64_t n_failures, n_leaves, n_terms;
} ChecksCounts;

ChecksCounts checks_counts(void);
