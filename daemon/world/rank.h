/* SPDX-License-Identifier: Apache-2.0 */
/* rank.h - one process of a rank in one slot, from spawn to confirmed death: a trainer, or the runner of a program.
 *
 * Ownership: the slot table (slots.h) owns a Rank from rank_start() until its death is confirmed, or the daemon ends.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    -errno from starting; afterwards everything is reported through the local world.
 */
#pragma once

#include "daemon/loop/timer.h"
#include "daemon/process/logs.h"
#include "daemon/process/process.h"
#include "daemon/world/exit.h"
#include "daemon/world/job.h"
#include "daemon/world/watchdog.h"
#include "daemon/world/workload.h"
#include "protocol/channel.h"

enum { RANK_KILL_CONFIRM_MSEC = 2000, RANK_LAST_WORDS_MSEC = 200, RANK_EXPLAIN_MSEC = 2500 };

/* The parts of the program that are needed for starting trainers. */
struct RankNeeds {
    ProcessNeeds process;
    char *const *environment; /* environment of this process, from which a trainer's is made */
    const int *trainer;       /* open fd of the trainer program; negative: its path is executed */
    const int *runner;        /* the same of the program that hosts programs of others */
    /* Returns whether a child of this process belongs to no rank: the keeper, or a probe. */
    bool (*is_other_child)(void *userdata, pid_t pid);
    void *userdata; /* passed to is_other_child */
};

struct Rank {
    Workload *workload;
    LocalWorld *local; /* the world that the rank reports to; NULL: that world was freed */
    char job[RECORD_JOB_MAX + 1];
    int64_t generation;
    int slot, rank;
    Process process;
    Timer timer; /* runs until the trainer must have exited; then, until the slot must be clear */
    RankLog *log;
    Watchdog watchdog;
    LastWords words;
    int64_t joined_step; /* the first step that the rank named after it had joined */
    /* failed_saves and store_use: as the trainer last reported, counted since its process started. */
    int64_t failed_saves;
    ChannelStoreUse store_use; /* requests to the checkpoint store */

    bool said_hello;   /* `hello` was received */
    bool was_assigned; /* `assign` was sent */
    bool is_ready;     /* `ready` was received: the state is restored */
    bool has_gone;     /* `go` was sent */
    bool was_stopped;  /* `stop` was sent */
    bool hangs;        /* hang_check() has found that the rank hangs */
    bool killing;      /* the daemon has sent SIGKILL */
    bool lost;         /* the slot was not clear RANK_KILL_CONFIRM_MSEC after the end or SIGKILL */
    bool clear;        /* no process of the rank lives: workload_collect() frees the rank */
    char why[160];     /* reason of `killing`, or of `hangs` */
};

/* Starts the process of local_rank in its slot, which must be clear. */
int rank_start(LocalWorld *local, LocalRank *local_rank, Error *err);
/* Waits until the trainer has exited, RANK_KILL_CONFIRM_MSEC at most; blocks the loop. */
void rank_await_exit(const Rank *rank);
Rank *rank_free(Rank *rank);
/* Frees a rank of which no process lives, and removes the session and the cgroup of its slot. */
void rank_retire(Rank *rank);

/* Sends the message. A trainer that does not receive it is killed; nothing is sent to a dead rank. */
void rank_send(Rank *rank, ChannelMessage *message);
/* Tells the trainer that it may run for alive_usec more. A trainer that does not read misses the message. */
void rank_send_alive(Rank *rank, uint64_t alive_usec);

/* Sends SIGKILL to all processes of the rank; idempotent. why must say who decided. */
void rank_kill(Rank *rank, const char *why, ...) _printf_(2, 3);
/* Ends a rank that hangs, and logs what its processes do. A trainer is killed. A program's runner reports where the
 * program stands, and ends it; after RANK_EXPLAIN_MSEC the runner is killed, too. */
void rank_end_hung(Rank *rank, const char *why, ...) _printf_(2, 3);
/* Called when the trainer has announced its end: kills the rank if it has not ended after RANK_LAST_WORDS_MSEC. */
void rank_expect_exit(Rank *rank);
/* Checks whether the process has ended, and whether its slot is clear. The caller must call workload_collect() then. */
void rank_look(Rank *rank);
