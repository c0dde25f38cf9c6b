/* SPDX-License-Identifier: Apache-2.0 */
/* workload.h - all that this node does for jobs: its slots, the jobs it knows, and their worlds.
 *
 * The modules of this folder use no signals, no HTTP, no probes and no variables of the process. They receive what
 * they need as WorkloadNeeds, and notify the rest of the daemon through the calls of WorkloadEvents. So a program
 * with an etcd (etcd.h), a clock (clock.h, timer.h) and processes (process.h, logs.h) of its own can run a Workload:
 * test-workload.c does.
 *
 * Folder:    defaults of the headers here: Errors: none. Threads: loop thread only.
 * Ownership: a value; workload_clear() kills what still runs. Borrows all its needs, which outlive it.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds; incarnation is CLOCK_REALTIME microseconds.
 * Errors:    logged, and reported to the leader in the records of the world that they concern.
 */
#pragma once

#include "daemon/config/config.h"
#include "daemon/loop/timer.h"
#include "daemon/world/exit.h"
#include "daemon/world/job.h"
#include "daemon/world/slots.h"
#include "etcd/etcd.h"
#include "protocol/channel.h"

typedef struct RankNeeds RankNeeds;

typedef struct WorkloadNeeds {
    const DaemonConfig *config;
    const Timers *timers;
    Etcd *etcd;
    EtcdLease *lease;          /* this node's lease: records of ranks are put under it */
    const bool *knows_secrets; /* the record of this node says that it may read worlds' secrets */
    const SlotGpus *gpus;      /* GPUs of this node, as in its record */
    const RankNeeds *ranks;    /* needs for starting trainer processes; only rank.c uses them */
    uint64_t incarnation;      /* incarnation of this sdtraind; only worlds that name it count */
} WorkloadNeeds;

/* Callbacks, all set. They are called in the middle of the work: a callee only notes the event, and calls the
 * Workload again only where a comment allows it. */
typedef struct WorkloadEvents {
    void *userdata;
    /* The node's record may have to change, since it names worlds and lost slots. */
    void (*node_changed)(void *userdata);
    void (*etcd_answered)(void *userdata);
    /* A slot has become clear or lost, or a record was written: a drain may go on. */
    void (*may_be_idle)(void *userdata);
    void (*world_began)(void *userdata, const LocalWorld *local);
    /* The commit of a checkpoint was decided; committed false: it was refused, since the world has moved. */
    void (*commit_decided)(void *userdata, const LocalWorld *local, CommitMark mark,
                           bool committed);
    void (*rank_started)(void *userdata, const Rank *rank);
    void (*rank_ended)(void *userdata, const Rank *rank, const ExitVerdict *verdict);
    /* rank_stepped() and rank_saved() may store the trainer's counters in failed_saves and store_use of the rank. */
    void (*rank_stepped)(void *userdata, Rank *rank, const ChannelMessage *step);
    void (*rank_saved)(void *userdata, Rank *rank, const ChannelMessage *saved);
    void (*job_forgotten)(void *userdata, const char *job);
} WorkloadEvents;

typedef struct Workload {
    WorkloadNeeds needs;
    WorkloadEvents events;
    SlotTable slots;
    LocalJob *jobs; /* list, the newest first */
    size_t n_jobs;  /* length of the list */
} Workload;

void workload_init(Workload *w, const WorkloadNeeds *needs, const WorkloadEvents *events);
/* Kills the processes that still run, waits a bounded time for their end, and frees all jobs. */
void workload_clear(Workload *w);

/* Does for every job what can be done now. */
void workload_advance(Workload *w);
/* Ends the ranks of succeeded jobs that have not exited in time. */
void workload_end_late(Workload *w, uint64_t now_usec);
/* Tells every trainer how long it may run until it receives the next such message. */
void workload_send_alive(Workload *w);
void workload_kill_all(Workload *w, const char *why);
/* Returns whether no rank lives or waits for its slot, except for ranks in lost slots. */
bool workload_is_idle(const Workload *w);
/* Returns whether every report of ranks is in etcd with its present content. */
bool workload_is_reported(const Workload *w);
/* Returns the world that the node's record names: the first one whose ranks live. NULL: there is none. */
const LocalWorld *workload_running(const Workload *w);
/* Returns whether ranks of a world that is over still live. */
bool workload_has_old_ranks(const Workload *w);
/* Returns how long a rank may run without a message from sdtraind: the TTL of the lease. */
uint64_t workload_alive_usec(const Workload *w);

/* Frees the ranks of which no process lives any more (Rank.clear), and starts the ranks that wait for their slots.
 * Event handlers call it last, so that no rank is freed while one of its own functions runs. */
void workload_collect(Workload *w);
/* Called when the rank survives SIGKILL: its slot is lost. */
void workload_slot_lost(Workload *w, Rank *rank);
/* Called when etcd has acknowledged the node's record. Only now ranks in lost slots are reported as exited: if the
 * leader saw the exit before it saw the slot as lost, it would place a new rank on a slot that holds a live process. */
void workload_note_node_written(Workload *w);
/* Called when the lease is lost, and the records under the lease with it. */
void workload_note_lease_lost(Workload *w);
/* Called when there is a new lease: the records under the old lease have expired, and are put again. */
void workload_note_lease(Workload *w);
