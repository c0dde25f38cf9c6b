/* SPDX-License-Identifier: Apache-2.0 */
/* leader-internal.h - the inside of a Leader: what leader.c, intake.c, leadership.c and transactions.c share.
 *
 *   intake.c        etcd -> events -> journal, core, LeaderEvents; and when the core decides
 *   leadership.c    lease and election -> when this controller decides, and how it leaves
 *   transactions.c  a decision -> one transaction -> its outcome as an event
 *   leader.c        makes and frees a Leader
 *
 * Ownership: the Leader owns what its fields point to, except for its needs.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    none is returned. If a timer cannot be set, a line is logged and LeaderEvents.ended is called.
 * Threads:   loop thread only.
 */
#pragma once

#include "controller/leader/leader.h"
#include "controller/leader/succession.h"

enum { STATUS_SEC = 2 };

/* A decision whose transaction is under way, or whose outcome is not known yet. */
typedef struct Pending Pending;
struct Pending {
    Leader *leader;
    Pending *next;
    Decision decision;      /* world.runs is NULL: the core lends the runs for one step */
    uint64_t begun_usec;    /* when the transaction began */
    Outcome outcome;        /* passed to the core once all records have been read again */
    EtcdCall *call;         /* the transaction, or the read of all records after it */
    sd_event_source *retry; /* timer of the next try to read all records again */
};

struct Leader {
    LeaderNeeds needs;
    LeaderSettings settings;
    LeaderEvents events;
    EtcdLease *lease; /* the lease of this controller's key in the election */
    EtcdElection *election;
    EtcdWatch *watch; /* watches everything below the cluster's prefix */
    Feed *feed;
    void *memory; /* holds the Cluster */
    Cluster *cluster;
    Actions *actions; /* the core's last answer; on the heap, because it is large */
    Rights rights;
    bool is_over; /* LeaderEvents.ended was called */

    /* ---- when the core is asked ---- */
    sd_event_source *timer; /* fires at wake_usec */
    /* Fires GATHER_MSEC after decided_usec, when records have changed. */
    sd_event_source *gather_timer;
    sd_event_source *status_timer; /* fires each STATUS_SEC */
    uint64_t wake_usec;    /* when the core wants a tick at the latest; USEC_INFINITY: never */
    uint64_t decided_usec; /* when the core last decided */
    int64_t dropped;       /* number of records without room in the core, as last logged */

    /* ---- what was read ---- */
    bool loaded;      /* the watch has listed every record once */
    uint64_t n_lists; /* number of full lists that the watch has delivered to the core */
    /* Revision of the newest read that fetched all records without the watch; 0: there was no such read. */
    int64_t read_revision;
    sd_event_source *room_timer; /* fires when records that did not fit are to be read again */
    EtcdCall *room_call;         /* the read that room_timer began */

    /* ---- leadership ---- */
    bool has_lease; /* etcd has granted the lease, and it has not ended */
    /* This controller's key in the election; empty until it is first elected. */
    char leader_key[KEY_MAX];
    int64_t elected; /* the term for which this controller is elected; 0: it is not */
    int64_t term;    /* equals `elected` while this controller decides, else 0 */
    /* this controller is elected, but deaths of earlier leaders keep it from deciding */
    bool is_still;
    Succession succession;
    sd_event_source *still_timer; /* fires at the end of the standstill */
    sd_event_source *leave_timer; /* bounds leaving; NULL: leader_leave() was not called */
    EtcdCall *leave_call;         /* writes LEADER_LEFT, then revokes the lease */

    /* ---- decisions ---- */
    Pending *pending;  /* decisions under way, in no particular order */
    unsigned refusals; /* transactions in a row that were refused or had no answer */
};

/* ---- intake.c ---- */

void arm_timer(Leader *l, uint64_t wake_usec);
void stamp_event(Leader *l, Event *event);
/* Handles an event that carries no record: stamps it, passes it on, and lets the core decide until there is nothing
 * more to decide. */
void step_kind(Leader *l, Event event);
void tick(Leader *l);
/* Feeds the present value of a record; value NULL: the key is gone. The core decides nothing yet. */
void feed_key(Leader *l, const char *key, const char *value, size_t n, int64_t created,
              int64_t lease, int64_t revision);
/* Feeds all records of the cluster, read at one revision. */
void feed_all(Leader *l, const EtcdRange *range);
int on_gather(sd_event_source *source, uint64_t usec, void *userdata);
void on_cluster_watch(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                      void *userdata);
void end_without_timer(Leader *l, int r);
/* Calls LeaderEvents.ended, but only once. */
void notify_end(Leader *l, int r);

/* ---- leadership.c ---- */

int on_status_timer(sd_event_source *source, uint64_t usec, void *userdata);
/* Called when etcd shows another leader. */
void be_deposed(Leader *l);
void on_election(bool leading, const char *key, int64_t term, void *userdata);
/* Lets this controller begin to decide, unless a condition forbids that. Returns true if the controller has begun to
 * decide in this call. Called whenever such a condition may have ended. */
bool try_to_lead(Leader *l);
/* Returns the text of this controller's record in the election; the caller frees it. */
char *leader_text(const Leader *l, LeaderState state);
/* Writes this controller's record in the election again. */
void introduce(Leader *l);
void on_rights_changed(void *userdata);
void on_leader_lease(EtcdLeaseState state, int64_t lease, void *userdata);

/* ---- transactions.c ---- */

void begin_decision(Leader *l, const Decision *decision);
Pending *pending_free(Pending *p);
