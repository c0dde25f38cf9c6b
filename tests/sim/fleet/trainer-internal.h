/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-internal.h - what trainer.c, trainer-faults.c and trainer-plans.c share.
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
    Task *task; /* NULL: its slot has another one */
    int node;
    Timer work, death, deadman;
    bool is_killed, hangs, is_stopped, clings;

    bool is_assigned;
    char job[RECORD_JOB_MAX + 1], submission[SUBMISSION_BYTES];
    int64_t generation;
    int resume;      /* checkpoint that its world goes on from; -1: none */
    int64_t resumed; /* and its step */
    ResumeFind find;
    bool has_found;
    int rank, size;
    char address[CHANNEL_ADDRESS_MAX];  /* of its own rendezvous */
    char meets_at[CHANNEL_ADDRESS_MAX]; /* where it was told to go: a process of rank 0 has one */
    bool must_leave, must_save;
    bool looks;           /* for what is not finite in its grain */
    uint64_t asking_usec; /* since when the store has not answered; 0: it has */
    Ring *ring;           /* NULL: it has not joined */
} Trainer;

typedef struct Place { /* of a node */
    bool frozen, differs;
    int island;
    uint64_t out_usec; /* since when it does not reach the store; 0: it does */
} Place;

extern Trainer *trainers;
extern Place trainer_places[FLEET_NODES_MAX];
/* How long a node that is gone may come back before it counts; how long its lease lives without it. */
extern uint64_t trainers_grace_usec, trainers_ttl_usec;

static inline bool trainer_lives(const Trainer *t) { return t->task && task_lives(t->task); }
/* status: exit code, or -signal; without a word to its daemon. */
void trainer_end(Trainer *t, int status);
/* It says why. */
void trainer_fail(Trainer *t, int code, const char *text);
/* Another one lives in the slot in which one starts. */
void trainer_check_slot(int node, int slot);
/* It is told to go to another rank 0 than that of its world. */
void trainer_check_address(const Trainer *t);
/* Since when a node has no store; 0: it has one. */
uint64_t trainer_out_since(int node);
void trainer_store_clear(void);
/* Hears what waits, unless it is stopped. */
void trainer_listen(Trainer *t);

typedef struct Plan {
    char job[RECORD_JOB_MAX + 1];
    TrainerPlan plan;
    int64_t poisoned; /* step; 0: none */
    bool taken_over;
} Plan;

Plan *trainer_plan(const char *job);
uint64_t trainer_step_usec(const char *job, bool is_first);
void trainer_plans_clear(void);
