/* SPDX-License-Identifier: Apache-2.0 */
/* trainer-internal.h - declarations for trainer.c, trainer-faults.c, trainer-plans.c, trainer-programs.c and
 * trainer-saves.c.
 *
 * Units: as trainer.h. Errors: none. Threads: one.
 * Ownership: trainer.c frees the trainers.
 */
#pragma once

#include "daemon/loop/timer.h"
#include "tests/sim/fleet/fleet.h"
#include "tests/sim/fleet/trainer.h"

typedef struct Ring Ring;

enum { KEEP_LAST = 3 }; /* of each job: the default of checkpoint.keep_last */

typedef struct Trainer {
    struct Trainer *next;
    Task *task; /* NULL: the slot has a newer process */
    int node;
    Timer work, death, deadman;
    Timer leave, silence; /* of a program: leave_s; silence_s once it hangs */
    bool is_killed, hangs, is_stopped, clings;

    bool is_assigned;
    char job[RECORD_JOB_MAX + 1], submission[SUBMISSION_BYTES];
    int64_t generation;
    int resume;      /* the checkpoint from which the trainer's world resumes; -1: none */
    int64_t resumed; /* the step of the checkpoint `resume` */
    ResumeFind find;
    bool has_found;
    int rank, size;
    char address[CHANNEL_ADDRESS_MAX]; /* address of the trainer's own rendezvous store */
    /* rank 0's address in the message "go"; each process of rank 0 has another address */
    char meets_at[CHANNEL_ADDRESS_MAX];
    bool must_leave, must_save;
    ChannelHeld held; /* as of the newest go or committed */
    bool has_results; /* rank 0 of an evaluation has sent its results */
    bool looks;       /* the trainer searches its grain for the value that is not finite */
    /* since when the store has not answered the trainer; 0: the store answers */
    uint64_t asking_usec;
    Ring *ring; /* NULL: the trainer has not joined its ring */
} Trainer;

struct Ring { /* the ranks of one world, once they have met */
    Ring *next;
    char job[RECORD_JOB_MAX + 1], submission[SUBMISSION_BYTES], address[CHANNEL_ADDRESS_MAX];
    int64_t steps; /* the step at which the job, or the evaluation of a checkpoint, is done */
    int64_t generation, step, saving, committed; /* saving: the step that is being saved */
    int parent, written; /* checkpoint numbers; -1: none. written awaits the daemon's answer */
    int size, n_joined, n_tries;
    bool began, over, ends, saves;
    uint64_t stalled_usec, waiting_usec, unsaved_usec, asking_usec;
    int64_t n_failed_saves;
    Trainer **of; /* [size] the trainer of each rank */
    Timer timer, save_timer;
};

enum { AGAIN_MSEC = 100, STORE_AGAIN_MSEC = 300 };

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
/* Starts the timer, which calls `due` with `who`. */
void trainer_after(Timer *timer, uint64_t usec, TimerDue due, void *who);
void trainer_after_msec(Timer *timer, uint64_t msec, TimerDue due, void *who);
/* Sends a message to the daemon. Returns false if the trainer is dead or its daemon does not read. */
bool trainer_say(const Trainer *t, ChannelMessage *m);
void trainer_say_stage(const Trainer *t, int64_t step, TrainStage stage, uint64_t waited_usec);
/* Returns whether the trainer does nothing at the moment, because it hangs, is stopped or its host is frozen. */
bool trainer_is_halted(const Trainer *t);
bool trainer_is_out(const Trainer *t); /* its node does not reach the store */
/* Returns whether a request to the store, which has had no answer since *since, is still within its deadline. */
bool trainer_has_patience(uint64_t *since);

void ring_stop(Ring *ring);
void ring_break(Ring *ring); /* a rank has ended: its peers notice that, and end, too */
void ring_finish(Ring *ring);
void ring_begin_save(Ring *ring);
void trainer_hear_verdict(Trainer *t, const ChannelMessage *m);

/* ---- programs: trainer-programs.c ---- */

ProgramKind trainer_program(const Trainer *t);
ProgramKind ring_program(const Ring *ring);
/* Checks that the checkpoint that an evaluation reads is still there. */
void program_check_evaluated(const Trainer *t);
void program_end(Ring *ring); /* its ranks end one after another */
void program_fails_to_load(Ring *ring);
/* sdtraind has written the results of an evaluation, or refuses to. */
void program_hears_of_results(Trainer *t, bool are_written);
void program_is_asked_to_leave(Trainer *t);
void program_hangs(Trainer *t);
void program_is_hung(Trainer *t); /* its runner ends it, as sdtraind requests */

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
