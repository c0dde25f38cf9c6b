/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-internal.h - declarations for trainer.c, trainer-faults.c and trainer-plans.c.
 *
 * Ownership: trainer.c frees the trainers.
 * Units:     as trainer.h.
 * Errors:    none.
 * Threads:   one.
 */
#pragma once

#include "daemon/loop/timer.h"
#include "tests/sim/fleet/fleet.h"
#include "tests/sim/fleet/trainer.h"

typedef struct Ring Ring;

typedef struct Trainer {
    struct Trainer *next;
    Task *task; /* NULL: the slot has a newer process */
    int node;
    Timer work, death, deadman;
    bool is_killed, hangs, is_stopped, clings;

    bool is_assigned;
    char job[RECORD_JOB_MAX + 1], submission[SUBMISSION_BYTES];
    int64_t generation;
    int resume;      /* the checkpoint from which the trainer's world resumes; -1: none */
    int64_t resumed; /* the step of that checkpoint */
    ResumeFind find;
    bool has_found;
    int rank, size;
    char address[CHANNEL_ADDRESS_MAX]; /* address of the trainer's own rendezvous store */
    /* rank 0's address in the message "go"; each process of rank 0 has another address */
    char meets_at[CHANNEL_ADDRESS_MAX];
    bool must_leave, must_save;
    bool looks; /* the trainer searches its grain for the value that is not finite */
    /* since when the store has not answered the trainer; 0: the store answers */
    uint64_t asking_usec;
    Ring *ring; /* NULL: the trainer has not joined its ring */
} Trainer;

typedef struct Place { /* the state that all trainers on a node share */
    bool frozen, differs;
    int island;
    uint64_t out_usec; /* since when the node does not reach the store; 0: the node reaches it */
} Place;

extern Trainer *trainers;
extern Place trainer_places[FLEET_NODES_MAX];
/* trainers_grace_usec: how long a vanished node may be absent before its absence counts; trainers_ttl_usec: how long a
 * node's lease lives without renewal. */
extern uint64_t trainers_grace_usec, trainers_ttl_usec;

static inline bool trainer_lives(const Trainer *t) { return t->task && task_lives(t->task); }
/* Ends a trainer without a message to its daemon. status: exit code, or -signal. */
void trainer_end(Trainer *t, int status);
/* Ends a trainer after a message that gives the reason. */
void trainer_fail(Trainer *t, int code, const char *text);
/* Checks that no trainer lives in the slot in which a new trainer starts. */
void trainer_check_slot(int node, int slot);
/* Checks that the trainer was told the address of a rank 0 of its own world. */
void trainer_check_address(const Trainer *t);
/* Returns since when a node does not reach the store; 0: the node reaches it. */
uint64_t trainer_out_since(int node);
void trainer_store_clear(void);
/* Makes the trainer read its waiting messages, unless the trainer is stopped. */
void trainer_listen(Trainer *t);

typedef struct Plan {
    char job[RECORD_JOB_MAX + 1];
    TrainerPlan plan;
    int64_t poisoned; /* the step whose loss is not finite; 0: none */
    bool taken_over;
} Plan;

Plan *trainer_plan(const char *job);
uint64_t trainer_step_usec(const char *job, bool is_first);
void trainer_plans_clear(void);
