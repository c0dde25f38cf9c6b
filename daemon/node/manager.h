/* SPDX-License-Identifier: Apache-2.0 */
/* manager.h - this node in its cluster: its record and its lease, its watches of etcd, and its workload.
 *
 * The program around a Manager (sdtraind.c) has the loop, the signals, the keeper, the client of etcd, the probes,
 * the files and the port of /metrics; the Manager does all that a node writes and does in etcd. A Manager receives
 * what it needs from the program as ManagerNeeds, and notifies the program through the calls of ManagerEvents. So a
 * program with an etcd, a clock and processes of its own (workload.h) can run many Managers: test-node.c runs two.
 *
 * The modules do not know the Manager either: manager_start() gives each module what it needs, and each module
 * notifies the others through calls that manager.c connects.
 *
 * Ownership: manager_new() gives the caller a Manager; manager_free() accepts NULL and half-built Managers, and
 *            kills what still runs. Borrows its needs, which must outlive it.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds; incarnation is CLOCK_REALTIME microseconds.
 * Errors:    -errno with text.
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
    const DaemonConfig *config; /* its values change at a reload */
    const Timers *timers;
    Etcd *etcd;
    const RankNeeds *ranks; /* needs for starting trainer processes */
    const char *boot_id;    /* this machine's boot id */
    const bool *is_probed;  /* the first round of probes is over: the node may register */
    uint64_t incarnation;   /* this sdtraind's incarnation */

    void *userdata;                           /* passed to the callbacks below; all are set */
    uint64_t (*memory_bytes)(void *userdata); /* memory of this machine; 0: unknown */
    /* read_file reads a small file into a buffer that the caller frees. write_file writes a file and makes its
     * folder. */
    int (*read_file)(void *userdata, const char *path, char **ret, size_t *ret_n, Error *err);
    int (*write_file)(void *userdata, const char *path, const char *text, Error *err);
    /* Called for a request for a round of probes; clear: the faults that only a reset cures are forgotten first. The
     * answer follows by requests_answer(). */
    void (*check)(void *userdata, const EtcdKeyValue *request, bool clear);
    /* Called for a request of kind "doctor". The report is written into health/<node>. */
    void (*doctor)(void *userdata, const RequestRecord *request);
    /* Called when the node leaves after a drain. The program writes into health/<node> that the node has left, and then
     * calls drain_advance(). */
    void (*leave_health)(void *userdata);
    bool (*is_health_written)(void *userdata); /* no write of health/<node> is under way */
} ManagerNeeds;

/* Calls that notify the program; all are set. The calls about ranks, worlds and jobs are made as WorkloadEvents
 * describes. */
typedef struct ManagerEvents {
    void *userdata;
    void (*registered)(void *userdata); /* the record is in etcd for the first time */
    void (*draining)(void *userdata);   /* a drain begins */
    void (*ticked)(void *userdata, uint64_t now_usec);
    /* The Manager's work is over: the node has left, or etcd has another history. The program must end its loop. */
    void (*ended)(void *userdata);
    void (*failed)(void *userdata, const Error *err);    /* as ended(), but with an error */
    void (*lease_changed)(void *userdata, bool renewed); /* false: the lease is lost */
    void (*fenced)(void *userdata);
    void (*commit_decided)(void *userdata, const char *job, bool committed);
    void (*rank_started)(void *userdata, const Rank *rank);
    void (*rank_ended)(void *userdata, const Rank *rank, const ExitVerdict *verdict);
    void (*rank_stepped)(void *userdata, Rank *rank, const ChannelMessage *step);
    void (*rank_saved)(void *userdata, Rank *rank, const ChannelMessage *saved);
    void (*job_forgotten)(void *userdata, const char *job);
} ManagerEvents;

/* The comment of each field names the one file that writes the field; other files only read it. */
struct Manager {
    ManagerNeeds needs;       /* written in manager.c, by manager_new() */
    ManagerEvents events;     /* written in manager.c, by manager_new() */
    EtcdLease *lease;         /* written in manager.c, by manager_start(); never NULL in the loop */
    Workload workload;        /* written in the files of daemon/world */
    OwnNode node;             /* written in node.c */
    Watches watches;          /* written in watch.c */
    Requests requests;        /* written in manager.c, by manager_start() */
    LogRequests log_requests; /* written in log-requests.c */
    History history;          /* written in history.c */
    Fence fence;              /* written in fence.c */

    Timer alive_timer;       /* manager.c: runs until the next alive message to the trainers */
    Timer hang_timer;        /* manager.c: runs until ranks, fence and late jobs are checked */
    uint64_t hang_tick_usec; /* manager.c: when hang_timer was last due */

    Timer drain_timer;   /* drain.c: the time limit of the drain */
    uint64_t drain_usec; /* drain.c: when sdtraind was told to stop; 0: it was not told */
    bool draining;       /* drain.c: sdtraind was told to stop */
    bool is_idle;        /* drain.c: sdtraind was told to stop, and no rank runs any more */
    bool leaving;        /* drain.c: the record with `left` is under way, or was acknowledged */

    /* manager.c: etcd was restored from a snapshot, so sdtraind must execute itself again */
    bool history_is_over;
};

/* Makes a Manager, which sends no request to etcd yet. */
Manager *manager_new(const ManagerNeeds *needs, const ManagerEvents *events);
/* Requests the lease, and begins to watch etcd. */
int manager_start(Manager *m, Error *err);
Manager *manager_free(Manager *m);
DEFINE_CLEANUP(Manager, manager_free)

/* Returns whether this sdtraind leaves no process on the node: the node has left or etcd has another history, and no
 * slot is lost. */
bool manager_leaves_nothing(const Manager *m);
