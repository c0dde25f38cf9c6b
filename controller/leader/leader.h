/* SPDX-License-Identifier: Apache-2.0 */
/* leader.h - one controller of a cluster: it watches the records and stands for election. While it leads, it writes
 * each decision of the core in one transaction.
 *
 * The modules of this folder use no signals, HTTP, systemd or files, and no variables of the process. They
 * receive what they need as LeaderNeeds and LeaderSettings, and notify the rest of the program by LeaderEvents.
 * So a program with a loop (sd-event.h), a clock (clock.h) and an etcd (etcd.h) of its own can run one or several
 * Leaders: test-shell.c and test-leader.c do.
 *
 * Ownership: leader_new() gives the caller a Leader; leader_free() accepts NULL and a half-built Leader, and cancels
 *            requests under way. A Leader borrows its needs, which must outlive it, and copies the settings.
 * Units:     seconds in *_sec; *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    leader_new(): -errno with the text. A later failure is logged and the request tried again, or it ends
 *            the Leader (LeaderEvents.ended).
 * Threads:   loop thread only.
 */
#pragma once

#include "controller/feed/feed.h"
#include "controller/journal/journal.h"
#include "controller/rights/rights.h"

typedef struct Leader Leader;

typedef struct LeaderSettings {
    char cluster[CLUSTER_NAME_MAX + 1];
    /* TTL of the leader's lease, after which etcd lets another controller lead */
    int64_t lease_sec;
    ClusterConfig core;   /* settings of the core */
    ClusterLimits limits; /* sizes of the core's tables, which are allocated once */
    /* this controller's record in the election; its `lacks` is ignored */
    LeaderRecord introduction;
} LeaderSettings;

typedef struct LeaderNeeds {
    sd_event *event;
    Etcd *etcd;       /* the Leader sets its history handler */
    Journal *journal; /* records every event and decision; NULL: nothing is recorded */
    /* Fills in n random bytes, for a world's secret; false: none are available now. */
    bool (*draw)(void *ret, size_t n);
} LeaderNeeds;

/* The Leader makes these calls in the middle of its work: the callee notes the news, and may call only the functions
 * that read the Leader (leader_view() and below). No handler is NULL. */
typedef struct LeaderEvents {
    void *userdata;
    /* Called once, when every record has been read. */
    void (*loaded)(void *userdata);
    /* Called when leader_view() may have changed, and every two seconds. */
    void (*view_changed)(void *userdata);
    /* Called when the controller begins to decide. */
    void (*leads)(void *userdata);
    /* Called for each record, before the core receives it. */
    void (*record_read)(void *userdata, const Event *event);
    /* Called for each record evals/<rest>, which the core does not need; value NULL: the key is gone. */
    void (*results_read)(void *userdata, const char *rest, const char *value, size_t n);
    /* Called for each event, after the core has received it, and by leader_note_record(). */
    void (*observed)(void *userdata, const Event *event);
    /* Called with the answer to a decision's transaction. revision: the revision of the writes; 0: the answer is an
     * error. */
    void (*answered)(void *userdata, const Decision *decision, Outcome outcome, uint64_t begun_usec,
                     int64_t revision);
    /* Called when the watch has shown everything up to this revision. */
    void (*shown)(void *userdata, int64_t revision);
    /* Called once, when the Leader ends. r: 0 after leader_leave(); -ERESTART if etcd has another history, so that a
     * new Leader with a new client must replace this one; another -errno if a timer cannot be set. The call may come
     * from within libetcd: free the Leader after the call, not within it. */
    void (*ended)(void *userdata, int r);
} LeaderEvents;

typedef struct LeaderView {
    Cluster *cluster;
    int64_t term; /* 0: the controller does not decide */
    /* the controller is elected, but deaths of earlier leaders keep it from deciding */
    bool is_still;
    bool has_lease;            /* etcd has granted the lease, and it has not ended */
    bool loaded;               /* every record has been read once */
    bool connected;            /* the watch is up */
    const LeaderRecord *first; /* record of the first controller in the election; NULL: unknown */
} LeaderView;

int leader_new(const LeaderNeeds *needs, const LeaderSettings *settings, const LeaderEvents *events,
               Leader **ret, Error *err);
Leader *leader_free(Leader *leader);
DEFINE_CLEANUP(Leader, leader_free)

/* Applies the core's settings and the introduction; the other settings keep their values. Ends a standstill. */
void leader_configure(Leader *leader, const LeaderSettings *settings);
/* Gives leadership up at once; LeaderEvents.ended follows within two seconds. */
void leader_leave(Leader *leader);
/* Passes a record that was read beside the watch only to `observed`; value NULL: the key is gone. The core must not
 * receive it: once the core has seen a revision of one key, it assumes that every key is that recent. */
void leader_note_record(Leader *leader, const char *key, const char *value, size_t n,
                        int64_t revision);

LeaderView leader_view(const Leader *leader);
/* ---- borrowed parts, for a program that writes beside the core while it leads ---- */

const EtcdLease *leader_lease(const Leader *leader);
const Feed *leader_feed(const Leader *leader);
/* Returns this controller's key in the election, whose create revision is the term; "" until it is first elected. */
const char *leader_key(const Leader *leader);
Rights *leader_rights(Leader *leader);
