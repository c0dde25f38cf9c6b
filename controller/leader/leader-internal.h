/* SPDX-License-Identifier: Apache-2.0 */
/* leader-internal.h - the inside of a Leader: what leader.c, intake.c, leadership.c and transactions.c share.
 *
 *   intake.c        etcd -> events -> journal, core, LeaderEvents; and when the core is asked to decide
 *   leadership.c    lease and election -> when this controller decides, and how it leaves
 *   transactions.c  a decision -> one transaction -> its outcome as an event
 *   leader.c        makes and frees all of it
 *
 * Ownership: the Leader owns what its fields point to, but for its needs.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    none is returned. Without timers it logs a line and calls LeaderEvents.ended.
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
    Decision decision;      /* world.runs is NULL: the core lends it for one step */
    uint64_t begun_usec;    /* when the transaction began */
    Outcome outcome;        /* told to the core once everything has been read again */
    EtcdCall *call;         /* the transaction, or the read of everything after it */
    sd_event_source *retry; /* timer of the next try to read everything again */
};

struct Leader {
    LeaderNeeds needs;
    LeaderSettings settings;
    LeaderEvents events;
    EtcdLease *lease; /* carries this controller's key in the election */
    EtcdElection *election;
    EtcdWatch *watch; /* of everything below the cluster's prefix */
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
    uint64_t wake_usec;    /* when the core wants to be asked at the latest; USEC_INFINITY: never */
    uint64_t decided_usec; /* when the core was last asked */
    int64_t dropped;       /* records without room in the core, as last logged */

    /* ---- what was read ---- */
    bool loaded;      /* the watch has listed every record once */
    uint64_t n_lists; /* number of the watch's lists that were fed */
    /* Revision of the newest read of everything beside the watch; 0: there was none. */
    int64_t read_revision;
    sd_event_source *room_timer; /* fires when records that did not fit are to be read again */
    EtcdCall *room_call;         /* the read that room_timer began */

    /* ---- leadership ---- */
    bool has_lease; /* etcd has granted the lease and not taken it back */
    /* This controller's key in the election, since it was first to lead. */
    char leader_key[KEY_MAX];
    int64_t elected; /* the term for which this controller is elected; 0: another one is */
    int64_t term;    /* elected while this controller decides, else 0 */
    bool is_still;   /* elected, but deaths of leaders before it keep it from deciding */
    Succession succession;
    sd_event_source *still_timer; /* fires at the end of the standstill */
    sd_event_source *leave_timer; /* bounds leaving; NULL: the controller was not told to leave */
    EtcdCall *leave_call;         /* writes that it leaves, then revokes its lease */

    /* ---- decisions ---- */
    Pending *pending;  /* decisions under way, in no order */
    unsigned refusals; /* transactions in a row that were refused or had no answer */
};

/* ---- intake.c ---- */

void arm_timer(Leader *l, uint64_t wake_usec);
void stamp_event(Leader *l, Event *event);
/* Handles an event that carries no record: stamps it, passes it on, and lets the core decide until it rests. */
void step_kind(Leader *l, Event event);
void tick(Leader *l);
/* Feeds the present value of a record; value NULL: it is gone. The core decides nothing yet. */
void feed_key(Leader *l, const char *key, const char *value, size_t n, int64_t created,
              int64_t lease, int64_t revision);
/* Feeds all records of the cluster, read at one revision. */
void feed_all(Leader *l, const EtcdRange *range);
int on_gather(sd_event_source *source, uint64_t usec, void *userdata);
void on_cluster_watch(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                      void *userdata);
void end_without_timer(Leader *l, int r);
/* Calls LeaderEvents.ended, the first time. */
void notify_end(Leader *l, int r);

/* ---- leadership.c ---- */

int on_status_timer(sd_event_source *source, uint64_t usec, void *userdata);
/* Called when etcd shows another leader. */
void be_deposed(Leader *l);
void on_election(bool leading, const char *key, int64_t term, void *userdata);
/* Begins to decide if nothing forbids it; true: it has begun just now. Called whenever a reason against it may have
 * gone. */
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
