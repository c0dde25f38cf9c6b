/* SPDX-License-Identifier: Apache-2.0 */
/* strikes.h - deaths of a job's trainers on a machine: whether the machine or the job is to blame.
 *
 * Ownership: borrows the Cluster for the call.
 * Units:     as state.h.
 * Errors:    none.
 * Threads:   one at a time.
 */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

typedef struct StrikeJudgement {
    bool is_jobs; /* its trainers end in this way on any machine */
    bool is_new;  /* and that was not known: refusals are to be lifted */
    char way[RECORD_WAY_MAX + 1];
} StrikeJudgement;

/* Tells whether the death is the job's own: on another machine the job died in the same way up to the limit, and now it
 * does here. A failure of another kind never is. */
void strike_judge(const Cluster *c, const CoreJob *job, const Failure *f, StrikeJudgement *ret);
/* Counts a strike of the job against f->node. max_strikes of one submission refuse the machine for that job; of
 * several, quarantine it. */
void strike(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f, Decision *d);
/* Takes back what the job's deaths in that way have cost machines. */
void strikes_lift(const Cluster *c, const CoreJob *job, const char *way, Decision *d);
/* A good check takes back what the node's record counts against the machine; jobs' refusals stay. */
void strikes_forget(const Cluster *c, const CoreNode *node, const char *machine_id, Decision *d);
