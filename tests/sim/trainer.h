/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.h - a model of trainer processes and of the collectives that join them.
 *
 * A Process lives in a slot of a node from its start to its end. It boots, restores, waits for go,
 * joins the Ring of its world and steps with it, saves on the way, and ends with an exit code. What
 * it has to say it says to the daemon of its node (node.h), which may be deaf just then.
 *
 * Ownership: a Process is part of its Node, a Ring of the Universe.
 * Units:     microseconds of virtual time.
 * Errors:    exit codes as protocol/exit-code.h; signals negative.
 * Threads:   one.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/world/exit.h"
#include "daemon/world/watchdog.h"
#include "tests/sim/sim.h"

typedef struct SimNode SimNode;
typedef struct Team Team;
typedef struct Ring Ring;

typedef enum ModelWord { /* to the daemon */
                         WORD_HELLO,
                         WORD_READY,
                         WORD_STEP,
                         WORD_SAVED,
                         WORD_EXIT,
                         WORD_WAIT,
                         WORD_FOUND,
} ModelWord;

typedef struct Process {
    SimNode *node;
    int slot;
    bool used; /* somebody lives, or lived, in the slot, and the daemon has not cleared it */
    bool alive;
    uint64_t life; /* a number of its own */

    /* the trainer's half */
    int job, rank, world_size;
    int64_t generation, world_revision;
    char submission[SUBMISSION_BYTES];
    int resume; /* manifest, -1: none */
    int64_t resume_step;
    ResumeFind find;
    int found;           /* rank 0: the manifest that it told of; -1: none */
    bool stopped;        /* SIGSTOP: nothing of it runs */
    bool stuck;          /* its main thread hangs */
    bool unkillable;     /* survives SIGKILL */
    bool assigned, gone; /* has been told what to do, to join */
    Ring *ring;
    int64_t step;
    TrainStage stage;
    int exit_code;
    LastWords words;
    /* rank 0's saver */
    bool must_leave, writing, awaiting, ending;
    bool finished; /* the save under way is the job's last */
    int parent, written;
    int64_t committed_step, saving_step;
    int tries;
    uint64_t asking_usec;  /* since when it tries what the store does not answer; 0: nothing */
    uint64_t unsaved_usec; /* since when saves fail; 0: they do not */
    bool waits_told;

    /* the daemon's half */
    Team *team; /* NULL: nobody is left to report to */
    Watchdog watchdog;
    bool said_hello, was_assigned, is_ready, has_gone, was_stopped;
    bool exited, killing, lost;
    char why[64];
    uint64_t progress_usec;
} Process;

struct Ring { /* one world's ranks, once they have met */
    Ring *next;
    int job, size, n_joined;
    int64_t generation, world_revision, step;
    uint64_t token, stalled_usec;
    uint64_t waiting_usec; /* since when it has no data; 0: it has */
    bool began, over;
    Process **members; /* by rank */
    uint64_t *lives;
};

/* The slot is clear, and job, rank, world and resume are set. */
void trainer_start(Process *p);
void trainer_assign(Process *p);
void trainer_go(Process *p);
void trainer_leave(Process *p);
void trainer_hear_verdict(Process *p, bool committed);
/* SIGKILL; what survives it stays. */
void trainer_kill(Process *p);
void trainer_exit(Process *p, int code, const char *text);
/* It stops hearing from its daemon, or stops itself: in a TTL the dead-man timer ends it. */
void trainer_arm_deadman(Process *p);
void rings_free(Universe *u);
