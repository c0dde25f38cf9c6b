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
 * Errors:    none is returned. What cannot go on without memory or timers ends the loop, with a line in the log.
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
    Decision decision;      /* without its world's runs, which were borrowed */
    uint64_t begun_usec;    /* when the transaction was begun */
    Outcome outcome;        /* what the core hears once everything has been read again */
    sd_event_source *retry; /* until everything is read again */
};

struct Controller {
    sd_event *event;
    const ControllerConfig *config; /* borrowed */
    Etcd *etcd;
    EtcdLease *lease; /* this controller's key in the election hangs on it */
    EtcdElection *election;
    EtcdWatch *watch; /* of everything below the cluster's prefix */
    Feed *feed;
    Journal *journal;           /* NULL: nothing is recorded */
    ControllerMetrics *metrics; /* NULL: there is no port for them */
    Sender *sender;
    void *memory; /* in which the cluster lies */
    Cluster *cluster;
    Actions *actions;        /* the core's last answer; large */
    ControllerStatus status; /* said to systemd */
    Rights rights;

    /* ---- when the core is asked ---- */
    sd_event_source *timer;        /* at wake_usec */
    sd_event_source *gather_timer; /* GATHER_MSEC after decided_usec, when records have changed */
    sd_event_source *status_timer; /* each STATUS_SEC */
    uint64_t wake_usec;    /* when the core wants to be asked at the latest; USEC_INFINITY: never */
    uint64_t decided_usec; /* when the core was last asked */
    int64_t dropped;       /* records without room in the core, as far as the log tells of them */

    /* ---- what was read ---- */
    bool loaded;      /* the watch has listed every record once */
    uint64_t n_lists; /* lists of the watch that are dealt with */
    int64_t
        read_revision; /* of the newest read of everything beside the watch; 0: there was none */
    sd_event_source *room_timer; /* until what did not fit is read again */
    EtcdCall *room_call;         /* that read */

    /* ---- leadership ---- */
    bool has_lease;           /* etcd has granted it and not taken it back */
    char leader_key[KEY_MAX]; /* of this controller in the election, once it was first */
    int64_t elected;          /* the election's term for it; 0: another controller is first */
    int64_t term;             /* the term in which it decides: elected, or 0: it does not decide */
    bool is_still;            /* elected, and kept from deciding by the deaths before it */
    Succession succession;
    sd_event_source *still_timer; /* the end of that */
    sd_event_source *leave_timer; /* bounds leaving; NULL: it was not told to leave */

    /* ---- decisions ---- */
    Pending *pending;  /* those under way, in no order */
    unsigned refusals; /* transactions in a row that were refused or had no answer */
};

/* ---- intake.c ---- */

void arm_timer(Controller *m, uint64_t wake_usec);
void stamp_event(Controller *m, Event *event);
/* An event that is no record's: stamps it, tells everybody, and lets the core decide until it comes to rest. */
void step_kind(Controller *m, Event event);
void tick(Controller *m);
/* A record as it is now; value NULL: it is gone. Nothing is decided by it yet. */
void feed_key(Controller *m, const char *key, const char *value, size_t n, int64_t created,
              int64_t revision);
/* Everything that was read of the cluster at one revision. */
void feed_all(Controller *m, const EtcdRange *range);
int on_gather(sd_event_source *source, uint64_t usec, void *userdata);
void on_cluster_watch(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                      void *userdata);
/* What the sender reads by itself, ahead of the watch. */
void on_cluster_record(const char *key, const char *value, size_t n, int64_t revision,
                       void *userdata);
void leave_without_timer(Controller *m, int r);

/* ---- leadership.c ---- */

void say_status(Controller *m);
int on_status_timer(sd_event_source *source, uint64_t usec, void *userdata);
/* The store shows another leader. */
void be_deposed(Controller *m);
void on_election(bool leading, const char *key, int64_t term, void *userdata);
/* Whether it has just begun to decide. Called whenever what speaks against it may have changed. */
bool try_to_lead(Controller *m);
/* What this controller's record in the election says; the text is the caller's. */
char *leader_text(const Controller *m, LeaderState state);
/* Writes that record again. */
void introduce(Controller *m);
void on_rights_changed(void *userdata);
void on_leader_lease(EtcdLeaseState state, int64_t lease, void *userdata);

/* ---- transactions.c ---- */

void begin_decision(Controller *m, const Decision *decision);
Pending *pending_free(Pending *p);
