/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - this node's record, nodes/<node>, under its lease.
 *
 * Two machines may be given the same name, and anybody with the right may write the key. So the record is put with a
 * compare, and occupant.h says whose record it is that lies there. While our lease lives ours is put back, at most
 * once a second; without it we wait until the lease of the other one has run out. A key that was removed is put
 * back. After the loss of the lease a new one is taken, and the record put back with the same incarnation, together
 * with the records of the ranks that run on.
 *
 * Ownership: part of the Manager.
 * Units:     none.
 * Errors:    another one holds the name: name_is_taken is called, and the record waits.
 * Threads:   loop thread only.
 */
#pragma once

#include "cluster/records.h"
#include "daemon/loop/timer.h"
#include "daemon/node/fence.h"
#include "daemon/node/history.h"
#include "daemon/world/workload.h"
#include "etcd/etcd.h"

typedef struct OwnNodeNeeds {
    const DaemonConfig *config;
    const Timers *timers;
    Etcd *etcd;
    EtcdLease *lease;
    Workload *workload;
    History *history;
    Fence *fence;
    const char *boot_id;   /* of this machine */
    const bool *is_probed; /* the first round of probes is over: the record may be put */
    const bool *draining;  /* sdtraind was told to stop, and the record says so */
    uint64_t incarnation;  /* of this sdtraind, CLOCK_REALTIME microseconds */

    void *userdata;                           /* of the calls below */
    uint64_t (*memory_bytes)(void *userdata); /* of this machine; 0: unknown */
    void (*registered)(void *userdata);       /* for the first time */
    /* The record was put, or something that it tells may have changed. */
    void (*touched)(void *userdata);
    void (*lease_changed)(void *userdata, bool renewed);     /* false: it is lost */
    void (*name_is_taken)(void *userdata, const Error *err); /* and is waited for */
} OwnNodeNeeds;

typedef struct OwnNode {
    OwnNodeNeeds needs;
    bool registered; /* the record was in etcd once at least */
    bool refused;    /* etcd knows this node, and does not let it write or read its record */
    NodeState state;
    NodeVerdict verdict;                /* of the probes */
    char evidence[RECORD_TEXT_MAX + 1]; /* of the verdict, for people; "": healthy */
    uint64_t bad_slots;                 /* slots that the verdict costs */
    SlotGpus gpus;                      /* as the probes have seen them since the boot */

    int64_t revision;      /* mod revision of the key as last put or read; 0: there is no key */
    int64_t seen_revision; /* of the last change of the key that the watch has shown, ours or not */
    bool seen_removed;     /* it, or one since the last put, was a deletion */
    int64_t lease;         /* the lease that the record was put under; 0: the record must be put */
    NodeRecord put;        /* the record as last put */
    EtcdCall *call;        /* the read or write under way; NULL: none */
    Timer retry;
    bool wanted;     /* the record is to be put after `call` or `retry` */
    bool looks;      /* the key is to be read before that */
    bool with_ranks; /* the record is to be put together with those of the ranks */

    int64_t put_lease;  /* of the write under way, or of the last one */
    int64_t held_lease; /* under which etcd has last acknowledged the record; 0: it never has */
    int64_t last_lease; /* of the last life of this sdtraind, by its state folder; 0: not known */
    bool last_is_ended; /* it was told to end */
    bool yields;        /* another one holds the name */
    bool has_name;      /* the record was acknowledged, and nobody has been yielded to since */

    int64_t stranger_lease, stranger_revision; /* of another writer's last record; 0: none lately */
    uint64_t restored_usec; /* when a stranger's record was last written over; 0: never */
    bool restores;          /* the put under way does that */
    Timer quiet;            /* the stranger is forgotten when it ends */

    bool knows_secrets; /* this node may read worlds' secrets, and its record says so */
    bool knows_logs;    /* likewise, what is asked of its logs */
    bool is_shared;     /* its user may write every node's record, and is not an administrator's */
    EtcdCall *rights_call;
    Timer rights_retry;
} OwnNode;

void node_clear(OwnNode *node);
/* Finds out what this node may read in etcd: its record says so. */
void node_request_rights(OwnNode *node);
/* The content of the record may have changed: puts the record if it has. */
void node_touch(OwnNode *node);
/* The node takes leave: its record says so from now on. */
void node_leave(OwnNode *node);
/* The probes have judged. */
void node_note_health(OwnNode *node, NodeVerdict verdict, uint64_t bad_slots, const char *evidence,
                      const SlotGpus *gpus);
/* The lease is granted, renewed or lost. */
void node_lease_changed(OwnNode *node, EtcdLeaseState state);
/* The watch shows a change of our key at that revision. A change that was not ours is made good. */
void node_disturbed(OwnNode *node, int64_t revision, bool removed);
/* Whether the record is in etcd as it should be. */
bool node_is_settled(const OwnNode *node);
