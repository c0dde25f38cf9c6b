/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - which nodes and slots the next world of a job gets.
 *
 * Ownership: the runs of a plan lie in the Scratch and are good until the next plan.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/state.h"
#include "controller/core/state/text-buffer.h"

typedef struct Plan {
    int size;      /* ranks of the world; 0: there are not enough slots */
    int available; /* slots that the job could take */
    int n_runs;    /* entries of Scratch.plan_runs */
} Plan;

/* Fills ret with the free slots of n nodes, from index first on. job: the one that may take them; NULL: one that is
 * not there yet. */
void plan_find_free_slots(const Cluster *c, Scratch *s, const CoreJob *job, int first, int n,
                          uint64_t *ret);
void plan_world(const Cluster *c, Scratch *s, const CoreJob *job, Plan *ret);
/* Says "needs 2 slots, 1 is free; n2 is absent". */
void plan_explain(const Cluster *c, Scratch *s, const CoreJob *job, const Plan *plan, char *ret,
                  size_t size);
/* Says "2 slots", "1 slot that has a GPU". */
void plan_write_slots(const CoreJob *job, int n, Text *t);
/* Says "; n2 is absent; n3 is cordoned: its fan; and 7 more". */
void plan_write_refusals(const Cluster *c, Scratch *s, const CoreJob *job, Text *t);
/* True when another job that waits fits now. */
bool plan_somebody_starts(const Cluster *c, Scratch *s, const CoreJob *job);
