/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h - a model of trainer processes: they join the ring of their world, step with it, save, and end.
 *
 * Their checkpoints are in manifests.h. Their actions are booked (books.h).
 *
 * Ownership: trainers_open() makes the loop that they run on; trainers_close() frees all remaining trainers.
 * Units:     steps; *_usec is virtual time; nodes and slots are counted from 0.
 * Errors:    a fault returns false if no trainer lives in that slot.
 * Threads:   one.
 */
#pragma once

#include "cluster/records.h"
#include "tests/sim/seams/machine.h"

/* The ranks run sdtrain's own trainer, or a program of others that reports all, its steps alone, or nothing. */
typedef enum ProgramKind {
    NO_PROGRAM,
    PROGRAM_SPEAKS,
    PROGRAM_HALF_SPEAKS,
    PROGRAM_SILENT
} ProgramKind;

typedef struct TrainerPlan {
    int64_t steps, save_steps;
    uint64_t step_usec, save_usec, restore_usec;
    uint64_t first_usec; /* additional time of a world's first step, until trainers_hurry() */
    /* how long a rank can train while its store fails, with the samples that it has read ahead */
    uint64_t ahead_usec;
    bool needs_gpu;
    ProgramKind program;
    int per_node;       /* of a program: ranks of each node */
    bool ignores_leave; /* of a program: its runner kills it when it should leave */
    /* The job whose checkpoints are evaluated: `steps` counts from each of them. NULL: the job trains. */
    const char *of;
    int64_t every_steps;
    bool measures_loss; /* an evaluation by sdtrainer: nothing is submitted as a program */
} TrainerPlan;

void trainers_open(int n_nodes, uint64_t grace_usec, uint64_t ttl_usec);
void trainers_close(void);

/* Returns the program of the given node's machine, for machine_new(). */
TaskProgram trainers_program(int node);
/* From now on the worlds of jobs with the given name train by this plan. */
void trainers_plan(const char *job, const TrainerPlan *plan);
/* From now on a first step takes as long as any other step. */
void trainers_hurry(void);

/* Call it when a generation is told to go. Checks that no rank of an older world runs, except on
 * nodes that cannot be reached. */
void trainers_check_go(const char *job, int64_t generation);
/* Call it when the job has succeeded: each rank of a program must have ended by itself. */
void trainers_check_finished(const char *job, int64_t generation);
/* Checks that each node of a program's world has so many ranks as the job says. */
void trainers_check_shares(const char *job, const WorldRecord *world);
/* Checks that no strike is for a program's own exit code. */
void trainers_check_strike(const CordonCause *cause);
/* These functions check a node's report: trainers_check_exited() checks that the rank has ended,
 * trainers_check_killed() that all ranks of earlier worlds on the node have ended. Worlds whose
 * records somebody has put back since do not count as earlier. */
void trainers_check_exited(const char *job, int64_t generation, int64_t world_revision, int node,
                           int slot);
void trainers_check_killed(const char *job, int64_t generation, int64_t world_revision, int node);
/* Checks that no rank runs whose world is over. */
void trainers_check_rest(void);
/* Checks that no rank runs, after etcd has been silent for longer than fence_sec. */
void trainers_check_fenced(void);

/* ---- faults ---- */

bool trainer_exit(int node, int slot, int code, const char *text);
/* Lets the kernel kill one of the job's trainers, as if the job leaked memory. */
bool trainers_leak(const char *job);
/* The trainer's main thread stops until something kills the process. */
bool trainer_hang(int node, int slot);
bool trainer_stop(int node, int slot, bool stopped); /* SIGSTOP, SIGCONT */
/* The trainer survives SIGKILL, as a process does that waits for a disk. */
bool trainer_cling(int node, int slot, bool clings);
bool trainers_are_at(int node, int slot);
bool trainers_hang(void); /* returns whether any trainer hangs or is stopped */

/* These functions apply to the present and future trainers of a node. */
void trainers_freeze(int node, bool frozen);
/* Gives the node an island: its trainers reach only nodes of the same island. */
void trainers_part(int node, int island);
/* makes the canned grain of the node's trainers give another result */
void trainers_differ(int node, bool differ);
void trainers_cut_store(int node, bool cut); /* makes the store not answer the node's trainers */

/* Makes the loss of the given step not finite; step 0: every loss is finite. */
void trainers_poison(const char *job, int64_t step);
/* trainers_take_over() gives the job's checkpoint folder to another job; a new submission of the job has its own
 * folder. The text is the trainers' message about the other owner. */
#define TRAINERS_OTHER_OWNER "the folder is of job z"
void trainers_take_over(const char *job, bool taken);
