/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h - a model of trainer processes: they join the ring of their world, step with it, save, and end.
 *
 * Their checkpoints are in manifests.h. Their actions go into the books (books.h).
 *
 * Ownership: trainers_open() makes the loop that they run on; trainers_close() frees what is left.
 * Units:     steps; *_usec is virtual time; nodes and slots are counted from 0.
 * Errors:    a fault returns false if nothing lives in that slot.
 * Threads:   one.
 */
#pragma once

#include "tests/sim/seams/machine.h"

typedef struct TrainerPlan {
    int64_t steps, save_steps;
    uint64_t step_usec, save_usec, restore_usec;
    uint64_t
        first_usec; /* how much longer the first step of a world takes until trainers_hurry() */
    uint64_t ahead_usec; /* how long the samples last that were read ahead of a store that is out */
    bool needs_gpu;
} TrainerPlan;

void trainers_open(int n_nodes, uint64_t grace_usec, uint64_t ttl_usec);
void trainers_close(void);

/* The program of that node's machine: it is handed to machine_new(). */
TaskProgram trainers_program(int node);
/* From now on the worlds of jobs of that name train by this plan. */
void trainers_plan(const char *job, const TrainerPlan *plan);
/* From now on a first step takes as long as any other one. */
void trainers_hurry(void);

/* A world of that generation may go: no rank of an older one must run, but where nobody can reach it. */
void trainers_check_go(const char *job, int64_t generation);
/* A node says that this rank has ended, that those of worlds before this one on it have. An older generation whose
 * world somebody has put back since is none of them. */
void trainers_check_exited(const char *job, int64_t generation, int64_t world_revision, int node,
                           int slot);
void trainers_check_killed(const char *job, int64_t generation, int64_t world_revision, int node);
/* No rank runs whose world is over. */
void trainers_check_rest(void);
/* No rank runs: etcd has been silent for longer than fence_sec. */
void trainers_check_fenced(void);

/* ---- what happens to them ---- */

bool trainer_exit(int node, int slot, int code, const char *text);
/* The job leaks: the kernel kills one of its trainers that step. */
bool trainers_leak(const char *job);
/* Its main thread stands still until something kills it. */
bool trainer_hang(int node, int slot);
bool trainer_stop(int node, int slot, bool stopped); /* SIGSTOP, SIGCONT */
/* It survives SIGKILL, as a process that waits for a disk does. */
bool trainer_cling(int node, int slot, bool clings);
bool trainers_are_at(int node, int slot);
bool trainers_hang(void); /* some do, or are stopped */

/* These functions apply to the trainers that run on a node and to those that will. */
void trainers_freeze(int node, bool frozen);
void trainers_part(int node, int island);    /* they reach those of nodes with the same number */
void trainers_differ(int node, bool differ); /* their canned grain has other bits */
void trainers_cut_store(int node, bool cut); /* the store does not answer them */

/* The loss of that step is not finite; 0: it is. */
void trainers_poison(const char *job, int64_t step);
/* The checkpoint folder is another job's, until the job is submitted anew, in a folder of its own. */
#define TRAINERS_OTHER_OWNER "the folder is of job z"
void trainers_take_over(const char *job, bool taken);
