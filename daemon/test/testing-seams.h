/* SPDX-License-Identifier: Apache-2.0 */
/* testing-seams.h - what daemon/world and daemon/node stand on, as lists in memory: an etcd, a clock, timers, trainers
 * with their channels, and logs. Nothing happens before the test says so.
 *
 * A program that links testing-seams.c has these functions in the place of those of etcd.h, clock.h, timer.h,
 * process.h, logs.h and of channel.h's channel_send() and channel_receive(). Several nodes may run in it: each has an
 * Etcd and a Machine of its own, and all share the store and the clock.
 *
 * Ownership: seams_end() frees everything, and fails the test if a timer, request, watch or lease is left behind.
 * Units:     microseconds.
 * Errors:    none: what goes wrong ends the test.
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
/* The parts of both in testing-time.c. */
void time_begin(void);
void time_end(void);
/* The part of seams_end() in testing-machine.c. */
void machine_end(void);

/* ---- time ---- */

/* By how much the realtime clock of all is ahead of the boottime clock. */
extern uint64_t ahead_usec;
/* Lets time pass, and timers fire at their time; idle ones after the others of that time. */
void pass(uint64_t usec);
/* Lets time pass while all loops stand still. */
void stall(uint64_t usec);

/* ---- the store ---- */

typedef struct StoredKey {
    char key[KEY_MAX], *value;                 /* value NULL: the place is free */
    int64_t created, modified, version, lease; /* revisions */
} StoredKey;

StoredKey *find(const char *key); /* NULL: there is none */
/* Both return the revision; of a key that is not there, delete_key() returns 0. */
int64_t put(const char *key, const char *value, int64_t lease);
int64_t delete_key(const char *key);

/* ---- a node's connection to etcd ---- */

struct Etcd {
    bool is_cut;   /* nothing comes through */
    bool is_blind; /* no event comes through: the watches stand still */
    EtcdHistory history;
    EtcdHistoryHandler on_history;
    void *userdata; /* of on_history */
};

typedef enum AnswerKind {
    GIVEN,
    LOST_AFTER,  /* it is done, and the answer is lost */
    LOST_BEFORE, /* it never came to etcd */
    LATE,        /* the answer is lost, and it comes to etcd at come_late() */
    DENIED,
} AnswerKind;

/* The request under way of that node that reads or writes that key first; the test ends if there is none. */
EtcdCall *under_way(const Etcd *etcd, const char *key);
bool is_under_way(const Etcd *etcd, const char *key);
size_t n_under_way(const Etcd *etcd);
void answer(EtcdCall *call, AnswerKind kind);
/* Brings the request that was answered LATE to etcd now; the test ends if there is none. */
void come_late(void);
/* Gives all answers but those of nodes that are cut off, and those to the requests that follow at once. */
void answer_all(void);

/* Shows a node what its watches have not shown: first a list, then revision by revision. */
void show(const Etcd *etcd);
/* The same, but only by the node's watches of that kind. */
void show_kind(const Etcd *etcd, KeyKind kind);
/* The node's watches list anew, after a broken stream: they do not show what came and went between two lists, and show
 * the end and the rebirth of a key in one call. */
void list_again(const Etcd *etcd);
/* Shows and answers until there is nothing to do at this moment. */
void settle(void);

/* The node is given a lease, which has a new id. */
void grant(const Etcd *etcd);
void renew(const Etcd *etcd);
/* etcd grants leases of another length than it was asked for. */
void lasts(const Etcd *etcd, int64_t ttl_sec);
/* Returns the id of somebody else's lease, which lives until end_lease(). */
int64_t foreign_lease(void);
/* The lease ends in etcd, and its keys with it. Returns false if there was none. */
bool end_lease(int64_t id);
/* The same with the node's lease. The node is not told. */
void expire(const Etcd *etcd);
/* The node is told that its lease is lost. */
void notify_lost(const Etcd *etcd);
int64_t lease_of(const Etcd *etcd);   /* 0: it holds none */
int n_lease_checks(const Etcd *etcd); /* how often the node has asked for a renewal at once */

/* ---- trainers that do what the test says ---- */

typedef struct FakeTrainer {
    Process *process;        /* NULL: none was started in this slot, or its rank is gone */
    bool killed;             /* it got SIGKILL */
    bool leaves;             /* something that it started lives on */
    bool deafened;           /* its channel is not heard any more */
    bool hung_up;            /* it closed its end of the channel */
    bool deaf;               /* it does not read: the channel is full */
    int status;              /* of its end: exit code, or -signal; ENDS_NOT: it lives */
    int64_t generation;      /* as it was told */
    ChannelType told;        /* the last message to it, but for `alive` */
    ChannelMessage assigned; /* the last one; its spec is not kept */
    char address[CHANNEL_ADDRESS_MAX]; /* as the last `go` said */
    int n_told[CHANNEL_TYPES];         /* messages to it, by type */
    uint64_t alive_usec;               /* as the last `alive` said */
    RankLog *log;                      /* valid as long as `process` is */
    ChannelMessage said[8];            /* the messages that the daemon has not read */
    size_t n_said;
} FakeTrainer;

typedef struct Machine {
    RankNeeds ranks;                                                /* is handed to the node */
    int n_started;                                                  /* trainers */
    int n_awaited;                                                  /* ends that were waited for */
    bool cannot_start, cannot_watch;                                /* a process: that is refused */
    FakeTrainer trainers[RECORD_SLOTS_MAX];                         /* by slot */
    void (*check_program)(const ProcessProgram *program, int slot); /* NULL: it is as it is */
} Machine;

/* A machine without trainers, and what its ranks are started with. */
void machine_init(Machine *machine);
FakeTrainer *trainer_in(Machine *machine, int slot);
/* The trainer of that slot was killed, or ended with exit code 0. */
void dies(Machine *machine, int slot);
/* The trainer of that slot prints a line, which waits in its pipe. */
void prints(Machine *machine, int slot, const char *line);
/* The job whose old logs were removed last. */
extern char pruned[RECORD_JOB_MAX + 1];
/* The arguments for the log of the rank that was started last. */
extern char newest_log_dir[CONFIG_PATH_MAX], newest_log_job[RECORD_JOB_MAX + 1];
extern int64_t newest_log_bytes, newest_log_generation;
extern int newest_log_rank;
/* The message waits in the channel; type CHANNEL_TYPES is none. It gets the trainer's generation; its spec is not
 * taken along. */
void writes_message(Machine *machine, int slot, ChannelMessage message);
/* The same with a type and a step, an address and a uri. */
void writes(Machine *machine, int slot, ChannelType type, int64_t step);
/* The message is read at once. */
void says(Machine *machine, int slot, ChannelType type, int64_t step);
/* The trainer closes its end of the channel. */
void hangs_up(Machine *machine, int slot);
/* Calls that do nothing. */
extern const WorkloadEvents unheard_events;
