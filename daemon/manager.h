/* manager.h - sdtraind's one object: the loop, the client, the slots and everything that has a
 * source on the loop.
 *
 * Ownership: manager_new() gives the caller a Manager; manager_free() accepts NULL and half-built
 *            ones, and kills what still runs.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds; incarnation is CLOCK_REALTIME microseconds.
 * Errors:    -errno with text.
 * Threads:   loop thread only.
 */
#pragma once

#include "daemon/config/config.h"
#include "daemon/health/kernel-watch.h"
#include "daemon/health/probes.h"
#include "daemon/history.h"
#include "daemon/metrics.h"
#include "daemon/node.h"
#include "daemon/process/cgroup.h"
#include "daemon/process/orphans.h"
#include "daemon/status.h"
#include "daemon/watch.h"
#include "daemon/world/rank.h"
#include "daemon/world/workload.h"

enum { HANG_TICK_MSEC = 200 };

struct Manager {
    DaemonConfig config;
    const ConfigCall *call; /* for a reload */
    sd_event *event;
    Etcd *etcd;
    EtcdLease *lease;
    DaemonMetrics *metrics; /* NULL: off */
    Watches watches;
    OwnNode node;
    Probes probes;
    KernelWatch kernel;
    History history;
    DaemonStatus status;
    CgroupBase cgroups;
    uint64_t incarnation;
    int lock;
    int trainer; /* the program, as it was when sdtraind began or was told of another */
    pid_t keeper;
    RemainsSessions *sessions; /* shared with it */

    RankNeeds ranks;
    Workload workload;

    Timers timers;
    Timer alive_timer, hang_timer, drain_timer;
    sd_event_source *signal_sources[5];
    uint64_t hang_tick_usec;           /* when the hang check last ran */
    uint64_t started_usec, drain_usec; /* when it began, and was told to stop */
    uint64_t contact_usec;             /* when etcd last answered */
    Error error;                       /* why the loop was ended, if it was */
    bool fenced;                       /* it has been silent for too long */
    bool draining;
    bool is_idle; /* draining, and nothing runs any more */
    bool leaving; /* the record that says `left` is under way */
};

/* Takes what config holds, whatever it returns. call, for reloads, must outlive the Manager. */
int manager_new(const ConfigCall *call, DaemonConfig *config, Manager **ret, Error *err);
Manager *manager_free(Manager *m);
DEFINE_CLEANUP(Manager, manager_free)
/* Until it is told to end. 0: left in an orderly way; -ERESTART: sdtraind is to begin anew. */
int manager_run(Manager *m, Error *err);
/* Opens the trainer, so that an upgrade of its file changes nothing until sdtraind restarts. */
void manager_open_trainer(Manager *m);
/* Ends the loop with that error. */
void manager_fail(Manager *m, const Error *err);

/* etcd answered something. */
void manager_note_contact(Manager *m);
int64_t manager_lease(const Manager *m); /* 0: none held, or its loss is not yet mended */

/* What the node's record says may have changed. */
void manager_touch_node(Manager *m);
