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
    const ControllerConfig *config;
    Etcd *etcd;
    EtcdLease *lease;
    EtcdElection *election;
    EtcdWatch *watch;
    Feed *feed;
    Journal *journal;
    ControllerMetrics *metrics;
    Sender *sender;
    void *memory; /* of the cluster */
    Cluster *cluster;
    sd_event_source *timer, *leave_timer, *gather_timer, *status_timer;
    sd_event_source *room_timer; /* until what did not fit is read again */
    EtcdCall *room_call;
    ControllerStatus status;
    uint64_t wake_usec;
    uint64_t decided_usec; /* when the core was last asked */
    uint64_t n_lists;      /* of the watch, as far as they are dealt with */
    int64_t read_revision; /* of the newest read of everything; 0: none but the watch's own */
    char leader_key[KEY_MAX];
    int64_t elected; /* term that the election gave it; 0: another controller has it */
    int64_t term;    /* term in which it decides; 0: it does not */
    bool is_still;   /* elected, and kept from deciding by the deaths before it */
    Succession succession;
    sd_event_source *still_timer;
    bool has_lease;
    bool loaded; /* the whole state has been seen once */
    Rights rights;
    unsigned refusals;
    int64_t dropped;
    Pending *pending;
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
