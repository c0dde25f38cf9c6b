/* SPDX-License-Identifier: Apache-2.0 */
/* strikes.h - deaths of a job's trainers on a machine: whether the machine or the job is to blame. */
#pragma once

#include "controller/core/state/causes.h"
#include "controller/core/state/state.h"

typedef struct StrikeJudgement {
    bool is_jobs; /* the job is to blame: its trainers end as `way` says on any machine */
    bool is_new;  /* is_jobs is true for the first time: the job's refusals are to be lifted */
    char way[RECORD_WAY_MAX + 1];
} StrikeJudgement;

/* Judges whether the job, not the machine, is to blame for the death. The job is to blame if its trainers have died in
 * the same way, up to the limit of strikes, on another machine and now on this machine. */
void strike_judge(const Cluster *c, const CoreJob *job, const Failure *f, StrikeJudgement *ret);
/* False for an end that says nothing about the machine: a program's own exit code. */
bool strike_is_due(const CoreJob *job, const Failure *f);
/* Counts a strike, if one is due, of the job against f->node. With max_strikes of one submission the machine is refused
 * for that job; with strikes of several submissions it is quarantined. */
void strike(const Cluster *c, Scratch *s, const CoreJob *job, const Failure *f, Decision *d);
/* Lifts the strikes and refusals that the job's deaths in that way have caused. */
void strikes_lift(const Cluster *c, const CoreJob *job, const char *way, Decision *d);
/* After a good check, removes the strikes that the node's record has against the machine; refusals by jobs stay. */
void strikes_forget(const Cluster *c, const CoreNode *node, const char *machine_id, Decision *d);
