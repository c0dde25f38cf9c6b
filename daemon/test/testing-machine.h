/* SPDX-License-Identifier: Apache-2.0 */
/* testing-machine.h - the machine of a node whose etcd, loop and clock are those of testing-memory.h: trainers with
 * their channels, and logs, are fakes in memory. Nothing happens before the test calls for it.
 *
 * A program that links testing-machine.c has these functions in place of those of process.h, logs.h and of channel.h's
 * channel_send() and channel_receive(). Several nodes may run in one program: each has a Machine of its own.
 *
 * Units: microseconds. Threads: main thread only.
 * Ownership: machines_end() frees what memory_end() frees, and also fails the test if a log is left behind.
 * Errors:    none: a failure ends the test.
 */
#pragma once

#include "cluster/keys.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"
#include "etcd/test/testing-memory.h"

enum { ENDS_NOT = -1000 };

typedef struct FakeTrainer {
    Process *process;                  /* NULL: no process in this slot */
    bool killed;                       /* the process got SIGKILL */
    int n_looks;                       /* how often the log got what its processes do */
    bool leaves;                       /* a process that the trainer started lives on */
    bool deafened;                     /* the daemon does not read its channel any more */
    bool hung_up;                      /* the trainer closed its end of the channel */
    bool deaf;                         /* the trainer does not read: the channel is full */
    int status;                        /* exit code, or -signal; ENDS_NOT: the trainer lives */
    int64_t generation;                /* of the last message to the trainer */
    ChannelType told;                  /* type of the last message to the trainer, except `alive` */
    ChannelMessage assigned;           /* the last `assign`; its spec is not kept */
    char address[CHANNEL_ADDRESS_MAX]; /* from the last `go` */
    ChannelHeld held;                  /* of the newest go or committed */
    int n_told[CHANNEL_TYPES];         /* numbers of messages to the trainer, by type */
    uint64_t alive_usec, lease_usec;   /* from the last `alive` */
    RankLog *log;                      /* valid while `process` is set */
    ChannelMessage said[8];            /* messages that the daemon has not read yet */
    size_t n_said;
} FakeTrainer;

typedef struct Machine {
    RankNeeds ranks;                        /* passed to the node */
    Timers timers;                          /* passed to the node */
    int n_started;                          /* number of trainers started */
    int n_awaited;                          /* number of trainers whose end was waited for */
    bool cannot_start, cannot_watch;        /* no process can be started, or be watched */
    FakeTrainer trainers[RECORD_SLOTS_MAX]; /* by slot */
    void (*check_program)(const ProcessProgram *program, int slot); /* NULL: no check */
} Machine;

/* Initialises a machine without trainers, and its RankNeeds. memory_begin() must have been called before. */
void machine_init(Machine *machine);
/* Ends all machines, and the memory. */
void machines_end(void);
/* Puts the record specs/a of the cluster "lab". */
void put_spec(const SpecRecord *spec);
FakeTrainer *trainer_in(Machine *machine, int slot);
/* Ends the slot's trainer: with its `status` if set, else by SIGKILL if it was killed, else with exit code 0. */
void dies(Machine *machine, int slot);
/* Makes the slot's trainer print a line, which waits in its pipe. */
void prints(Machine *machine, int slot, const char *line);
/* The job whose old logs were removed last. */
extern char pruned[RECORD_JOB_MAX + 1];
/* The arguments for the log of the rank that was started last. */
extern char newest_log_dir[CONFIG_PATH_MAX], newest_log_job[RECORD_JOB_MAX + 1];
extern int64_t newest_log_bytes, newest_log_generation;
extern int newest_log_rank;
/* Writes a message of the slot's trainer into its channel, with the trainer's generation and without a spec. Type
 * CHANNEL_TYPES makes an invalid message. */
void writes_message(Machine *machine, int slot, ChannelMessage message);
/* Like writes_message(), for a message of that type and step. Adds an address or a URI if the type has one. */
void writes(Machine *machine, int slot, ChannelType type, int64_t step);
/* Like writes(), and the daemon reads the message at once. */
void says(Machine *machine, int slot, ChannelType type, int64_t step);
/* Makes the trainer close its end of the channel. */
void hangs_up(Machine *machine, int slot);
/* Callbacks that do nothing. */
extern const WorkloadEvents unheard_events;
