/* node.h - this node's record, nodes/<node>, under its lease.
 *
 * Put with a compare, so that a live key of another machine is never overwritten. What a stranger wrote
 * there (no lease, or no record) is, and what somebody removed is put back. When the lease
 * was lost, a new one is taken and the record put back with the same incarnation, together with the
 * records of the ranks that run on.
 *
 * Ownership: part of the Manager.
 * Units:     none.
 * Errors:    another machine holds the name: the program ends (name_is_taken).
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/fence.h"
#include "daemon/history.h"
#include "daemon/loop/timer.h"
#include "daemon/world/workload.h"
#include "etcd/etcd.h"

typedef struct OwnNodeNeeds {
    const DaemonConfig *config;
    const Timers *timers;
    Etcd *etcd;
    EtcdLease *lease;
    Workload *workload;
    const History *history;
    Fence *fence;
    const bool *is_probed; /* the first round of probes is over: the record may be put */
    const bool *draining;  /* sdtraind was told to stop, and the record says so */
    uint64_t incarnation;  /* of this sdtraind, CLOCK_REALTIME microseconds */

    void *userdata;                     /* of the calls below */
    void (*registered)(void *userdata); /* for the first time */
    void (*touched)(
        void *userdata); /* the record was put, or looked at because something has changed */
    void (*lease_changed)(void *userdata, bool renewed); /* false: it is lost */
    void (*name_is_taken)(void *userdata, const Error *err);
} OwnNodeNeeds;

typedef struct OwnNode {
    OwnNodeNeeds needs;
    char boot_id[37];
    bool registered; /* once at least */
    bool refused;    /* etcd knows us, and does not let us write or read our record */
    NodeState state;
    NodeVerdict verdict; /* of the probes */
    char evidence[RECORD_TEXT_MAX + 1];
    uint64_t bad_slots; /* likewise */

    int64_t revision;      /* of our key as last seen; 0: there is none */
    int64_t seen_revision; /* of its last change that the watch has shown, ours or not */
    bool seen_removed;     /* that was its end */
    int64_t lease;         /* that it was put under; 0: it must be put */
    char *text;            /* as last put */
    EtcdCall *call;
    Timer retry;
    bool wanted, with_ranks;

    bool knows_secrets; /* it may read them, and says so */
    EtcdCall *rights_call;
    Timer rights_retry;
} OwnNode;

int node_open(OwnNode *node, Error *err);
void node_clear(OwnNode *node);
/* Finds out what it may read, which the record says. */
void node_ask_rights(OwnNode *node);
/* What the record says may have changed: puts it if its content has. */
void node_touch(OwnNode *node);
/* The node takes leave: its record says so from now on. */
void node_leave(OwnNode *node);
/* The probes have judged. */
void node_note_health(OwnNode *node, NodeVerdict verdict, uint64_t bad_slots, const char *evidence);
void node_lease_changed(OwnNode *node, EtcdLeaseState state);
/* The watch shows a change of our key at that revision. What was not our doing is made good. */
void node_disturbed(OwnNode *node, int64_t revision, bool removed);
/* Our last record is in etcd as it should be. */
bool node_is_settled(const OwnNode *node);
