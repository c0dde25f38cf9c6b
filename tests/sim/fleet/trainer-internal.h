/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-internal.h - common to trainer.c, trainer-faults.c and trainer-plans.c.
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
    int resume;      /* the checkpoint that its world resumes from; -1: none */
    int64_t resumed; /* the step of that checkpoint */
    ResumeFind find;
    bool has_found;
    int rank, size;
    char address[CHANNEL_ADDRESS_MAX]; /* address of its own rendezvous store */
    /* rank 0's address in the go: each process of rank 0 has another one */
    char meets_at[CHANNEL_ADDRESS_MAX];
    bool must_leave, must_save;
    bool looks;           /* the trainer looks for what is not finite in its grain */
    uint64_t asking_usec; /* since when the store has not answered; 0: it answers */
    Ring *ring;           /* NULL: it has not joined its ring */
} Trainer;

typedef struct Place { /* what is true of all trainers on a node */
    bool frozen, differs;
    int island;
    uint64_t out_usec; /* since when the node does not reach the store; 0: it does */
} Place;

extern Trainer *trainers;
extern Place trainer_places[FLEET_NODES_MAX];
/* How long a vanished node may return before its absence counts; how long its lease lives without it. */
extern uint64_t trainers_grace_usec, trainers_ttl_usec;

static inline bool trainer_lives(const Trainer *t) { return t->task && task_lives(t->task); }
/* Ends a trainer without a message to its daemon. status: exit code, or -signal. */
void trainer_end(Trainer *t, int status);
/* Ends a trainer after a message that gives the reason. */
void trainer_fail(Trainer *t, int code, const char *text);
/* Checks that no other trainer lives in the slot in which one starts. */
void trainer_check_slot(int node, int slot);
/* Checks that the trainer was told the address of a rank 0 of its own world. */
void trainer_check_address(const Trainer *t);
/* Returns since when a node has no store; 0: it has one. */
uint64_t trainer_out_since(int node);
void trainer_store_clear(void);
/* Reads the waiting messages, unless the trainer is stopped. */
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
