/* SPDX-License-Identifier: Apache-2.0 */
/* node.h - this node's record, nodes/<node>, under its lease.
 *
 * Two machines may be given the same name, and every client with the right may write the key. So the record is put
 * with a compare, and occupant.h decides whose record is found under the key. While our lease lives, our record is
 * put back over another client's record, at most once a second; without a lease we wait until the other machine's
 * lease has run out. A key that was removed is put back. After the loss of the lease the node requests a new lease. It
 * then puts the record back with the same incarnation, together with the records of the ranks that run on.
 *
 * Folder:    defaults of the headers here: Ownership: part of the Manager. Units: none. Threads: loop thread only.
 * Errors:    another machine holds the name: name_is_taken is called, and the record waits.
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
    const char *boot_id;   /* this machine's boot id */
    const bool *is_probed; /* the first round of probes is over: the record may be put */
    const bool *draining;  /* sdtraind was told to stop, and the record says so */
    uint64_t incarnation;  /* this sdtraind's incarnation, CLOCK_REALTIME microseconds */

    void *userdata;                           /* passed to the callbacks below */
    uint64_t (*memory_bytes)(void *userdata); /* memory of this machine; 0: unknown */
    void (*registered)(void *userdata);       /* the record is in etcd for the first time */
    /* Called when the record was put, or when its content may have changed. */
    void (*touched)(void *userdata);
    void (*lease_changed)(void *userdata, bool renewed);     /* false: the lease is lost */
    void (*name_is_taken)(void *userdata, const Error *err); /* the node waits for the name */
} OwnNodeNeeds;

typedef struct OwnNode {
    OwnNodeNeeds needs;
    bool registered; /* the record has been in etcd at least once */
    bool refused;    /* etcd denies this node the right to write or read its record */
    NodeState state;
    NodeVerdict verdict;                /* verdict of the probes */
    char evidence[RECORD_TEXT_MAX + 1]; /* reason for the verdict, for people; "": healthy */
    uint64_t bad_slots;                 /* slots that the verdict makes unusable */
    SlotGpus gpus;                      /* GPUs that the probes have seen since the boot */

    int64_t revision;      /* mod revision of the key as last put or read; 0: there is no key */
    int64_t seen_revision; /* mod revision of the last change of the key that the watch showed */
    bool seen_removed;     /* a change since the last put was a deletion */
    int64_t lease;         /* the lease that the record was put under; 0: the record must be put */
    NodeRecord put;        /* the record as last put */
    EtcdCall *call;        /* the read or write under way; NULL: none */
    Timer retry;
    bool wanted;     /* the record is to be put after `call` or `retry` */
    bool looks;      /* the key is to be read before the put */
    bool with_ranks; /* the record is to be put together with the ranks' records */

    int64_t put_lease;  /* lease of the write under way, or of the last write */
    int64_t held_lease; /* lease under which etcd last acknowledged the record; 0: never */
    int64_t last_lease; /* lease of the previous sdtraind, from the state folder; 0: unknown */
    bool last_is_ended; /* a revocation of last_lease was requested */
    bool yields;        /* another machine holds the name */
    bool has_name;      /* the record was acknowledged, and the node has not yielded since */

    /* Lease and mod revision of the last record that a stranger, another client, has put; 0: none lately. */
    int64_t stranger_lease, stranger_revision;
    uint64_t restored_usec; /* when a stranger's record was last overwritten; 0: never */
    bool restores;          /* the put under way overwrites a stranger's record */
    Timer quiet;            /* the stranger is forgotten when this timer ends */

    bool knows_secrets; /* this node may read worlds' secrets, and its record says so */
    bool knows_logs;    /* this node may read requests for its logs, and its record says so */
    bool is_shared;     /* this node's etcd user may write all nodes' records, but not specs */
    EtcdCall *rights_call;
    Timer rights_retry;
    bool knows_programs; /* this node may read jobs' programs */
    EtcdCall *programs_call;
    Timer programs_retry;
} OwnNode;

void node_clear(OwnNode *node);
/* Finds out what this node may read and write in etcd; its record reports the result. */
void node_request_rights(OwnNode *node);
/* Puts the record if its content has changed. */
void node_touch(OwnNode *node);
/* Marks this node's record as `left`. */
void node_leave(OwnNode *node);
/* Notes a verdict of the probes. */
void node_note_health(OwnNode *node, NodeVerdict verdict, uint64_t bad_slots, const char *evidence,
                      const SlotGpus *gpus);
/* Called when the lease was granted, renewed or lost. */
void node_lease_changed(OwnNode *node, EtcdLeaseState state);
/* Called when the watch shows a change of our key at that revision. A change that was not ours is undone. */
void node_disturbed(OwnNode *node, int64_t revision, bool removed);
/* Returns whether the record is in etcd with its present content. */
bool node_is_settled(const OwnNode *node);
