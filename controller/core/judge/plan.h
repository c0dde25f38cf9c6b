/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - which nodes and slots the next world of a job gets.
 *
 * Folder:    defaults of the headers here: Ownership: borrows the Cluster for the call. Units: as state.h. Errors:
 *            none. Threads: one at a time.
 * Ownership: the runs of a plan are in the Scratch and are valid until the next plan.
 */
#pragma once

#include "controller/core/state/state.h"
#include "controller/core/state/text-buffer.h"

typedef struct Plan {
    int size;      /* ranks of the world; 0: there are not enough slots */
    int available; /* slots that the job could take */
    int n_runs;    /* entries of Scratch.plan_runs */
} Plan;

/* Fills ret with the free slots of n nodes, beginning at index first. job is the job that would take the slots;
 * NULL: a job that does not exist yet. */
void plan_find_free_slots(const Cluster *c, Scratch *s, const CoreJob *job, int first, int n,
                          uint64_t *ret);
void plan_world(const Cluster *c, Scratch *s, const CoreJob *job, Plan *ret);
/* Writes "needs 2 slots, 1 is free; n2 is absent". */
void plan_explain(const Cluster *c, Scratch *s, const CoreJob *job, const Plan *plan, char *ret,
                  size_t size);
/* Writes "2 slots", or "1 slot that has a GPU". */
void plan_write_slots(const CoreJob *job, int n, Text *t);
/* Writes "; n2 is absent; n3 is cordoned: its fan; and 7 more". */
void plan_write_refusals(const Cluster *c, Scratch *s, const CoreJob *job, Text *t);
/* True when a waiting job other than `job` fits into the free slots now. */
bool plan_somebody_starts(const Cluster *c, Scratch *s, const CoreJob *job);
