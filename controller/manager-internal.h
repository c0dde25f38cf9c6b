/* SPDX-License-Identifier: Apache-2.0 */
/* manager-internal.h - the inside of a Controller: what manager.c, intake.c, leadership.c and transactions.c share.
 *
 *   intake.c        etcd -> events -> journal, metrics, core, sender; and when the core is asked to decide
 *   leadership.c    lease and election -> when this controller decides, and how it leaves
 *   transactions.c  a decision -> one transaction -> its outcome as an event
 *   manager.c       makes and frees all of it
 *
 * Ownership: the Controller owns what its fields point to, but for config.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    none is returned. Without memory or timers the loop ends, with a line in the log.
 * Threads:   loop thread only.
 */
#pragma once

#include "controller/alerting/sender.h"
#include "controller/config/rights.h"
#include "controller/feed/feed.h"
#include "controller/journal/journal.h"
#include "controller/manager.h"
#include "controller/metrics.h"
#include "controller/status.h"
#include "controller/succession.h"

/* A decision whose transaction is under way, or whose outcome is not known yet. */
typedef struct Pending Pending;
struct Pending {
    Controller *manager;
    Pending *next;
    Decision decision;      /* world.runs is NULL: the core lends it for one step */
    uint64_t begun_usec;    /* when the transaction began */
    Outcome outcome;        /* told to the core once everything has been read again */
    sd_event_source *retry; /* timer of the next try to read everything again */
};

struct Controller {
    sd_event *event;
    const ControllerConfig *config; /* borrowed */
    Etcd *etcd;
    EtcdLease *lease; /* carries this controller's key in the election */
    EtcdElection *election;
    EtcdWatch *watch; /* of everything below the cluster's prefix */
    Feed *feed;
    Journal *journal;           /* NULL: nothing is recorded */
    ControllerMetrics *metrics; /* NULL: no port is set for metrics */
    Sender *sender;
    void *memory; /* holds the Cluster */
    Cluster *cluster;
    Actions *actions;        /* the core's last answer; on the heap, because it is large */
    ControllerStatus status; /* the line last told to systemd */
    Rights rights;

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

    /* ---- decisions ---- */
    Pending *pending;  /* decisions under way, in no order */
    unsigned refusals; /* transactions in a row that were refused or had no answer */
};

/* ---- intake.c ---- */

void arm_timer(Controller *m, uint64_t wake_usec);
void stamp_event(Controller *m, Event *event);
/* Handles an event that carries no record: stamps it, passes it on, and lets the core decide until it rests. */
void step_kind(Controller *m, Event event);
void tick(Controller *m);
/* Feeds the present value of a record; value NULL: it is gone. The core decides nothing yet. */
void feed_key(Controller *m, const char *key, const char *value, size_t n, int64_t created,
              int64_t revision);
/* Feeds all records of the cluster, read at one revision. */
void feed_all(Controller *m, const EtcdRange *range);
int on_gather(sd_event_source *source, uint64_t usec, void *userdata);
void on_cluster_watch(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                      void *userdata);
/* Feeds a record that the sender has read by itself, ahead of the watch. */
void on_cluster_record(const char *key, const char *value, size_t n, int64_t revision,
                       void *userdata);
void leave_without_timer(Controller *m, int r);

/* ---- leadership.c ---- */

void say_status(Controller *m);
int on_status_timer(sd_event_source *source, uint64_t usec, void *userdata);
/* Called when etcd shows another leader. */
void be_deposed(Controller *m);
void on_election(bool leading, const char *key, int64_t term, void *userdata);
/* Begins to decide if nothing forbids it; true: it has begun just now. Called whenever a reason against it may have
 * gone. */
bool try_to_lead(Controller *m);
/* Returns the text of this controller's record in the election; the caller frees it. */
char *leader_text(const Controller *m, LeaderState state);
/* Writes this controller's record in the election again. */
void introduce(Controller *m);
void on_rights_changed(void *userdata);
void on_leader_lease(EtcdLeaseState state, int64_t lease, void *userdata);

/* ---- transactions.c ---- */

void begin_decision(Controller *m, const Decision *decision);
Pending *pending_free(Pending *p);
