/* SPDX-License-Identifier: Apache-2.0 */
/* testing-seams.h - all that daemon/world and daemon/node use, as fakes in memory: an etcd, a clock, timers,
 * trainers with their channels, and logs. Nothing happens before the test calls for it.
 *
 * A program that links testing-seams.c has these functions in place of those of etcd.h, clock.h, timer.h, process.h,
 * logs.h and of channel.h's channel_send() and channel_receive(). Several nodes may run in one program: each has an
 * Etcd and a Machine of its own, and all share the store and the clock.
 *
 * Ownership: seams_end() frees everything, and fails the test if a timer, request, watch or lease is left behind.
 * Units:     microseconds.
 * Errors:    none: a failure ends the test.
 * Threads:   main thread only.
 */
#pragma once

#include "base/test/testing.h"
#include "cluster/keys.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"
#include "etcd/etcd.h"

enum { FIRST_LEASE = 77, ENDS_NOT = -1000 };

void seams_begin(void);
void seams_end(void);
/* The parts of seams_begin() and seams_end() in testing-time.c. */
void time_begin(void);
void time_end(void);
/* The part of seams_end() in testing-machine.c. */
void machine_end(void);

/* ---- time ---- */

/* How far the realtime clock is ahead of the boottime clock, for all nodes. */
extern uint64_t ahead_usec;
/* Lets time pass. Timers fire at their time, idle timers after the other timers of that time. */
void pass(uint64_t usec);
/* Lets time pass while all loops stand still. */
void stall(uint64_t usec);

/* ---- the store ---- */

typedef struct StoredKey {
    char key[KEY_MAX], *value;                 /* value NULL: the entry is free */
    int64_t created, modified, version, lease; /* created and modified are revisions */
} StoredKey;

StoredKey *find(const char *key); /* NULL: no such key */
/* put() and delete_key() return the revision of the change. Without such a key delete_key() returns 0. */
int64_t put(const char *key, const char *value, int64_t lease);
int64_t delete_key(const char *key);

/* ---- a node's connection to etcd ---- */

struct Etcd {
    bool is_cut;   /* no answer and no event gets through */
    bool is_blind; /* no event gets through: the watches show nothing */
    EtcdHistory history;
    EtcdHistoryHandler on_history;
    void *userdata; /* passed to on_history */
};

typedef enum AnswerKind {
    GIVEN,
    LOST_AFTER,  /* the request is executed, and the answer is lost */
    LOST_BEFORE, /* the request never reaches etcd */
    LATE,        /* the answer is lost, and etcd executes the request at come_late() */
    DENIED,
} AnswerKind;

/* Returns the node's request under way that reads that key, or writes it first; ends the test if there is none. */
EtcdCall *under_way(const Etcd *etcd, const char *key);
bool is_under_way(const Etcd *etcd, const char *key);
size_t n_under_way(const Etcd *etcd);
void answer(EtcdCall *call, AnswerKind kind);
/* Executes the request that was answered LATE; ends the test if there is none. */
void come_late(void);
/* Answers all requests, and the requests that these answers cause, except those of nodes that are cut off. */
void answer_all(void);

/* Shows a node all changes that its watches have not shown: first as a list, then revision by revision. */
void show(const Etcd *etcd);
/* Like show(), but only by the node's watch of that kind. */
void show_kind(const Etcd *etcd, KeyKind kind);
/* Makes the node's watches list anew, as after a broken stream. They do not show keys that were put and deleted
 * between the two lists, and show the deletion and the new put of a key in one call. */
void list_again(const Etcd *etcd);
/* Shows changes and answers requests until nothing is left to do at this moment. */
void settle(void);

/* Grants the node a lease, with a new id. */
void grant(const Etcd *etcd);
void renew(const Etcd *etcd);
/* Makes etcd grant a lease of this length, other than the node has requested. */
void lasts(const Etcd *etcd, int64_t ttl_sec);
/* Returns the id of another client's lease, which lives until end_lease(). */
int64_t foreign_lease(void);
/* Ends the lease in etcd, and deletes its keys. Returns false if there was no such lease. */
bool end_lease(int64_t id);
/* Ends the node's lease in etcd, without notifying the node. */
void expire(const Etcd *etcd);
/* Notifies the node that its lease is lost. */
void notify_lost(const Etcd *etcd);
int64_t lease_of(const Etcd *etcd);   /* 0: the node holds none */
int n_lease_checks(const Etcd *etcd); /* number of the node's calls of etcd_lease_check() */

/* ---- fake trainers ---- */

typedef struct FakeTrainer {
    Process *process;                  /* NULL: no process in this slot */
    bool killed;                       /* the process got SIGKILL */
    bool leaves;                       /* a process that the trainer started lives on */
    bool deafened;                     /* the daemon does not read its channel any more */
    bool hung_up;                      /* the trainer closed its end of the channel */
    bool deaf;                         /* the trainer does not read: the channel is full */
    int status;                        /* exit code, or -signal; ENDS_NOT: the trainer lives */
    int64_t generation;                /* of the last message to the trainer */
    ChannelType told;                  /* type of the last message to the trainer, except `alive` */
    ChannelMessage assigned;           /* the last `assign`; its spec is not kept */
    char address[CHANNEL_ADDRESS_MAX]; /* from the last `go` */
    int n_told[CHANNEL_TYPES];         /* numbers of messages to the trainer, by type */
    uint64_t alive_usec;               /* from the last `alive` */
    RankLog *log;                      /* valid while `process` is set */
    ChannelMessage said[8];            /* messages that the daemon has not read yet */
    size_t n_said;
} FakeTrainer;

typedef struct Machine {
    RankNeeds ranks;                        /* passed to the node */
    int n_started;                          /* number of trainers started */
    int n_awaited;                          /* number of ends that were waited for */
    bool cannot_start, cannot_watch;        /* no process can be started, or be watched */
    FakeTrainer trainers[RECORD_SLOTS_MAX]; /* by slot */
    void (*check_program)(const ProcessProgram *program, int slot); /* NULL: no check */
} Machine;

/* Initialises a machine without trainers, and what its ranks are started with. */
void machine_init(Machine *machine);
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
/* Like writes_message(), with a type and a step, and with an address and a uri as the type needs. */
void writes(Machine *machine, int slot, ChannelType type, int64_t step);
/* Like writes(), and the daemon reads the message at once. */
void says(Machine *machine, int slot, ChannelType type, int64_t step);
/* Makes the trainer close its end of the channel. */
void hangs_up(Machine *machine, int slot);
/* Callbacks that do nothing. */
extern const WorkloadEvents unheard_events;
