/* SPDX-License-Identifier: Apache-2.0 */
/* checks.h - the rules of a fleet that take more than records: who wrote, what it had been told, how late it is.
 *
 * They stand outside: they see each transaction before it is what is there, what each controller reads, and what
 * trainers do. Rules that take only records are those of histories (tests/history/rules.h).
 *
 *     checks.c         I1, I7, I10, resize, foreign: what each kind of record is asked
 *     checks-time.c    absence, hold, queue, heard: what a leader may do when
 *     checks-lost.c    what a leader puts back and removes, and what it does to cordons
 *     checks-commits.c I3, I4, I9, lost: what was committed is whole, continues the last, and is never lost
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
    bool has_small_tables; /* records need not fit */
} ChecksOptions;

/* A controller's wall clock is off from now on: what leaders tell each other in its time is not held against them. */
void checks_clock_steps(void);

void checks_open(const ChecksOptions *options);
void checks_close(void);

/* Sees each transaction: the witness of history-internal.h. */
void checks_witness(HistoryChecker *h);

/* Once all is at rest. */
void checks_end(HistoryChecker *h);

/* ---- controllers ---- */

void checks_controller_starts(int controller); /* it knows nothing */
void checks_controller_leads(int controller);
void checks_controller_reads(int controller, const Event *event);
/* To be called after the core has received the event. */
void checks_controller_stepped(int controller, const Event *event, const Cluster *cluster);

/* ---- trainers ---- */

void checks_save_fails(const char *job, const char *submission);
/* Note that a rank was told to go, to leave. */
void checks_goes(const char *job, const char *submission, int64_t generation);
void checks_leaves(const char *job, const char *submission, int64_t generation);
/* All ranks of a world have met; number: of the checkpoint that they have restored, -1: none. */
void checks_begins(const char *job, const char *submission, int64_t generation, int number);

/* ---- for outage.c ---- */

/* An incident says that the job's store fails. */
bool checks_knows_trouble(const char *job);
/* 0: never. */
uint64_t checks_committed_usec(const char *job);

typedef struct ChecksCounts {
    uint64_t n_struck_out; /* worlds that ended for a commit that was then struck out */
    uint64_t n_failures, n_leaves,
        n_terms; /* incidents that ended a world; worlds that were told to leave */
} ChecksCounts;

ChecksCounts checks_counts(void);
