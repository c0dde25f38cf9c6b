/* SPDX-License-Identifier: Apache-2.0 */
/* manager.h - this node in its cluster: its record and its lease, what it watches in etcd, and its workload.
 *
 * The program around it (sdtraind.c) has the loop, the signals, the keeper, the probes and the port of
 * /metrics; here is what a node says and does in etcd. The modules do not know the Manager: each is handed
 * what it needs by manager_start(), and tells what others must hear by calls that manager.c connects.
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
#include "daemon/fence.h"
#include "daemon/health/probes.h"
#include "daemon/history.h"
#include "daemon/metrics.h"
#include "daemon/node.h"
#include "daemon/requests.h"
#include "daemon/status.h"
#include "daemon/watch.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

enum { HANG_TICK_MSEC = 200 };

typedef struct ManagerNeeds {
    const DaemonConfig *config; /* sdtraind.c changes it at a reload */
    sd_event *event;
    const Timers *timers;
    const RankNeeds *ranks; /* what trainer processes are started with */
    Probes *probes;
    uint64_t incarnation;  /* of this sdtraind */
    uint64_t started_usec; /* when this sdtraind began */
    void *userdata;        /* of `failed` */
    /* Ends the loop with that error. */
    void (*failed)(void *userdata, const Error *err);
} ManagerNeeds;

/* Beside each field stands the one file that writes it; the others read it. */
struct Manager {
    ManagerNeeds needs;     /* manager.c, at its making */
    DaemonMetrics *metrics; /* manager.c, at its start; owned by sdtraind.c; NULL: off */
    Etcd *etcd;             /* manager.c */
    EtcdLease *lease;       /* manager.c, at its start; never NULL while the loop runs */
    Workload workload;      /* the files of daemon/world */
    OwnNode node;           /* node.c */
    Watches watches;        /* watch.c */
    Requests requests;      /* manager.c, at its start */
    History history;        /* history.c */
    Fence fence;            /* fence.c */
    DaemonStatus status;    /* status.c */

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

/* Makes the client of etcd, and asks etcd for nothing yet. */
int manager_new(const ManagerNeeds *needs, Manager **ret, Error *err);
/* Asks for the lease and begins to watch. metrics may be NULL, and must outlive the Manager. */
int manager_start(Manager *m, DaemonMetrics *metrics, Error *err);
Manager *manager_free(Manager *m);
DEFINE_CLEANUP(Manager, manager_free)

/* Nothing of this sdtraind is left on the node: it took leave, or begins anew, and no slot is lost. */
bool manager_leaves_nothing(const Manager *m);
