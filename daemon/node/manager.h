/* SPDX-License-Identifier: Apache-2.0 */
/* manager.h - this node in its cluster: its record and its lease, what it watches in etcd, and its workload.
 *
 * The program around a Manager (sdtraind.c) has the loop, the signals, the keeper, the client of etcd, the probes, the
 * files and the port of /metrics; the Manager has all that a node writes and does in etcd. A Manager receives what it
 * needs of the program as ManagerNeeds, and notifies the program by calls of ManagerEvents. So a program with an etcd,
 * a clock and processes of its own (workload.h) can run many Managers: test-node.c runs two.
 *
 * The modules do not know the Manager either: manager_start() hands each module what it needs, and each module notifies
 * the others by calls that manager.c connects.
 *
 * Ownership: manager_new() gives the caller a Manager; manager_free() accepts NULL and half-built
 *            ones, and kills what still runs. Borrows its needs, which must outlive it.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds; incarnation is CLOCK_REALTIME microseconds.
 * Errors:    -errno with text.
 * Threads:   loop thread only.
 */
#pragma once

#include "base/cleanup.h"
#include "daemon/config/config.h"
#include "daemon/node/fence.h"
#include "daemon/node/history.h"
#include "daemon/node/log-requests.h"
#include "daemon/node/node.h"
#include "daemon/node/requests.h"
#include "daemon/node/watch.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

enum { HANG_TICK_MSEC = 200 };

typedef struct ManagerNeeds {
    const DaemonConfig *config; /* changes at a reload */
    const Timers *timers;
    Etcd *etcd;
    const RankNeeds *ranks; /* what trainer processes are started with */
    const char *boot_id;    /* of this machine */
    const bool *is_probed;  /* the first round of probes is over: the node may register */
    uint64_t incarnation;   /* of this sdtraind */

    void *userdata;                           /* of the calls below; all are set */
    uint64_t (*memory_bytes)(void *userdata); /* of this machine; 0: unknown */
    /* One small file at that path is read into a buffer that the caller frees, or written with its folder. */
    int (*read_file)(void *userdata, const char *path, char **ret, size_t *ret_n, Error *err);
    int (*write_file)(void *userdata, const char *path, const char *text, Error *err);
    /* A request asks for a round of probes; clear: they forget first. It is answered by requests_answer(). */
    void (*check)(void *userdata, const EtcdKeyValue *request, bool clear);
    /* A request asks what ranks would find here. health/<node> is to say so. */
    void (*doctor)(void *userdata, const RequestRecord *request);
    /* The node takes leave: health/<node> is to say so. When it does, drain_advance() is called. */
    void (*leave_health)(void *userdata);
    bool (*is_health_written)(void *userdata); /* no write of health/<node> is under way */
} ManagerNeeds;

/* The notifications of the program. Those of ranks, worlds and jobs are called as WorkloadEvents says. All are set. */
typedef struct ManagerEvents {
    void *userdata;
    void (*registered)(void *userdata); /* for the first time */
    void (*draining)(void *userdata);   /* a drain begins */
    void (*ticked)(void *userdata, uint64_t now_usec);
    /* Its work is over: it has left, or is to begin anew. The loop is to end. */
    void (*ended)(void *userdata);
    void (*failed)(void *userdata, const Error *err);    /* likewise, with that error */
    void (*lease_changed)(void *userdata, bool renewed); /* false: it is lost */
    void (*fenced)(void *userdata);
    void (*commit_decided)(void *userdata, const char *job, bool committed);
    void (*rank_started)(void *userdata, const Rank *rank);
    void (*rank_ended)(void *userdata, const Rank *rank, const ExitVerdict *verdict);
    void (*rank_stepped)(void *userdata, Rank *rank, const ChannelMessage *step);
    void (*rank_saved)(void *userdata, Rank *rank, const ChannelMessage *saved);
    void (*job_forgotten)(void *userdata, const char *job);
} ManagerEvents;

/* Beside each field stands the one file that writes it; the others read it. */
struct Manager {
    ManagerNeeds needs;       /* manager.c, at its making */
    ManagerEvents events;     /* likewise */
    EtcdLease *lease;         /* manager.c, at its start; never NULL while the loop runs */
    Workload workload;        /* the files of daemon/world */
    OwnNode node;             /* node.c */
    Watches watches;          /* watch.c */
    Requests requests;        /* manager.c, at its start */
    LogRequests log_requests; /* log-requests.c */
    History history;          /* history.c */
    Fence fence;              /* fence.c */

    Timer alive_timer;       /* manager.c: the next word to the trainers that they may run on */
    Timer hang_timer;        /* manager.c: the next look at ranks, at the fence and at late jobs */
    uint64_t hang_tick_usec; /* manager.c: when hang_timer was last due */

    Timer drain_timer;   /* drain.c: the drain takes too long */
    uint64_t drain_usec; /* drain.c: when sdtraind was told to stop; 0: it was not */
    bool draining;       /* drain.c: sdtraind was told to stop */
    bool is_idle;        /* drain.c: draining, and nothing runs any more */
    bool leaving;        /* drain.c: the record that says `left` is under way, or acknowledged */

    /* manager.c: etcd was restored from a snapshot; sdtraind is to begin anew */
    bool history_is_over;
};

/* Asks etcd for nothing yet. */
Manager *manager_new(const ManagerNeeds *needs, const ManagerEvents *events);
/* Asks for the lease and begins to watch. */
int manager_start(Manager *m, Error *err);
Manager *manager_free(Manager *m);
DEFINE_CLEANUP(Manager, manager_free)

/* Nothing of this sdtraind is left on the node: it took leave, or begins anew, and no slot is lost. */
bool manager_leaves_nothing(const Manager *m);
