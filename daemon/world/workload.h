/* SPDX-License-Identifier: Apache-2.0 */
/* workload.h - all that this node does for jobs: its slots, the jobs it knows, and their worlds.
 *
 * The modules of this folder know neither signals nor HTTP nor probes, and no variable of the process. They receive
 * what they need as WorkloadNeeds, and notify the rest of the daemon by calls of WorkloadEvents. So a program with an
 * etcd (etcd.h), a clock (clock.h, timer.h) and processes (process.h, logs.h) of its own can run a Workload:
 * test-workload.c does.
 *
 * Ownership: a value; workload_clear() kills what still runs. Borrows all its needs, which outlive it.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds; incarnation is CLOCK_REALTIME microseconds.
 * Errors:    logged, and reported to the leader in the records of the world that they concern.
 * Threads:   loop thread only.
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
    EtcdLease *lease;          /* this node's: records of ranks are put under it */
    const bool *knows_secrets; /* the record of this node says that it may read worlds' secrets */
    const SlotGpus *gpus;      /* of this node, as its record tells */
    const RankNeeds *ranks;    /* what trainer processes are started with; only rank.c uses it */
    uint64_t incarnation;      /* of this sdtraind; worlds that name another are not for it */
} WorkloadNeeds;

/* These are called in the middle of the work: a callee notes what it is told, and calls the Workload again only where
 * the comment says so. All are set. */
typedef struct WorkloadEvents {
    void *userdata;
    /* The node's record tells of worlds and lost slots, and these may have changed. */
    void (*node_changed)(void *userdata);
    void (*etcd_answered)(void *userdata);
    /* A slot is clear or lost, or a record is written: a drain may go on. */
    void (*may_be_idle)(void *userdata);
    void (*world_began)(void *userdata, const LocalWorld *local);
    /* The commit of a checkpoint is decided; committed false: the world has moved. */
    void (*commit_decided)(void *userdata, const LocalWorld *local, CommitMark mark,
                           bool committed);
    void (*rank_started)(void *userdata, const Rank *rank);
    void (*rank_ended)(void *userdata, const Rank *rank, const ExitVerdict *verdict);
    /* Both may note in the rank what its trainer counts since its start. */
    void (*rank_stepped)(void *userdata, Rank *rank, const ChannelMessage *step);
    void (*rank_saved)(void *userdata, Rank *rank, const ChannelMessage *saved);
    void (*job_forgotten)(void *userdata, const char *job);
} WorkloadEvents;

typedef struct Workload {
    WorkloadNeeds needs;
    WorkloadEvents events;
    SlotTable slots;
    LocalJob *jobs; /* a list, the newest first */
    size_t n_jobs;  /* its length */
} Workload;

void workload_init(Workload *w, const WorkloadNeeds *needs, const WorkloadEvents *events);
/* Kills what still runs, waits a bounded time for it, and lets go of all jobs. */
void workload_clear(Workload *w);

/* Does for every job what can be done now. */
void workload_advance(Workload *w);
/* Ends ranks of jobs that have succeeded and are still there. */
void workload_end_late(Workload *w, uint64_t now_usec);
/* Tells every trainer how long it may run until it receives the next such message. */
void workload_send_alive(Workload *w);
void workload_kill_all(Workload *w, const char *why);
/* No rank lives or waits for its slot, but for ranks in lost slots. */
bool workload_is_idle(const Workload *w);
/* Whether every record about ranks is in etcd as it should be. */
bool workload_is_reported(const Workload *w);
/* The world that the node's record names: the first whose ranks live. NULL: there is none. */
const LocalWorld *workload_running(const Workload *w);
/* Whether ranks of a world that is over still live. */
bool workload_has_old_ranks(const Workload *w);
/* How long a rank may run without a message from us: the TTL of the lease. */
uint64_t workload_alive_usec(const Workload *w);

/* Frees the ranks of which nothing lives any more (Rank.clear), and starts what waits for their slots. Handlers of
 * events call it last: no rank is freed below a function of its own. */
void workload_collect(Workload *w);
/* The rank survives SIGKILL. */
void workload_slot_lost(Workload *w, Rank *rank);
/* etcd has acknowledged the node's record. Only now ranks in lost slots are reported as exited: if the leader saw
 * the exit before it saw the slot as lost, it would place a new rank on a slot that holds a live process. */
void workload_note_node_written(Workload *w);
/* The lease is gone, and the records under it. */
void workload_note_lease_lost(Workload *w);
/* There is a new lease: the records under the old one are gone, and are put again. */
void workload_note_lease(Workload *w);
