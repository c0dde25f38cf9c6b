/* SPDX-License-Identifier: Apache-2.0 */
/* intake.c - what comes in: records of the cluster, time, and what the core answers.
 *
 * Records come through one watch, and through a read of everything after a transaction whose outcome is not known.
 * Each becomes an event, and everybody who is to know of it hears it in one order (tell_everybody). */
#include "base/clock.h"
#include "base/log.h"
#include "cluster/keys.h"
#include "controller/manager-internal.h"

#include <string.h>
#include <systemd/sd-daemon.h>

enum {
    STALL_MSEC = 250,
    GATHER_MSEC = 5, /* between two decisions when records come in numbers */
    ROOM_SEC = 1,
};

static void read_what_did_not_fit(Controller *m);

/* ---- the core ---- */

void arm_timer(Controller *m, uint64_t wake_usec)
{
    m->wake_usec = wake_usec;
    int r = 0;
    if (wake_usec != USEC_INFINITY)
        r = sd_event_source_set_time(m->timer, wake_usec);
    if (r >= 0)
        r = sd_event_source_set_enabled(m->timer, wake_usec == USEC_INFINITY ? SD_EVENT_OFF
                                                                             : SD_EVENT_ONESHOT);
    assert(r >= 0); /* a live source takes any time */
}

void stamp_event(Controller *m, Event *event)
{
    event->now_usec = clock_boottime_usec();
    event->real_usec = clock_realtime_usec();
    event->stalled = m->wake_usec != USEC_INFINITY &&
                     event->now_usec > m->wake_usec + STALL_MSEC * USEC_PER_MSEC;
}

static void say_dropped(Controller *m)
{
    int64_t dropped = cluster_dropped(m->cluster);
    if (dropped > m->dropped)
        log_warning("%lld records do not fit; raise max_nodes, max_jobs or incidents_kept",
                    (long long)dropped);
    m->dropped = dropped;
}

/* Everybody who hears of an event, in the order that each of them counts on:
 *   journal   first, so that an event on which the core dies is the last line of the record;
 *   metrics   next: they compare a record with what the core still knows of it;
 *   core      then; its answer is returned;
 *   sender    last: the incidents of which it tells are those that the core now knows.
 * key NULL: the event is no record's, and the metrics have nothing to compare. */
static void tell_everybody(Controller *m, const Event *event, const char *key, const char *value,
                           Actions *ret)
{
    if (key) {
        journal_record_key(m->journal, event, key, value);
        controller_metrics_note_event(m->metrics, m->cluster, event);
    } else
        journal_record_event(m->journal, event);
    cluster_step(m->cluster, event, ret);
    sender_observe(m->sender, event);
}

/* Feeds one event and lets the core decide until it comes to rest. */
static void step(Controller *m, Event *event, const char *key, const char *value)
{
    Actions *actions = m->actions;
    for (;;) {
        tell_everybody(m, event, key, value, actions);
        if (event->more)
            return;
        if (actions->read)
            read_what_did_not_fit(m);
        if (actions->decision.id) {
            journal_record_decision(m->journal, event, &actions->decision);
            begin_decision(m, &actions->decision);
        }
        if (!actions->again)
            break;
        *event = (Event){.kind = EVENT_TICK};
        stamp_event(m, event);
        key = value = NULL;
    }
    arm_timer(m, actions->wake_usec);
    say_dropped(m);
    m->decided_usec = clock_boottime_usec();
}

void step_kind(Controller *m, Event event)
{
    stamp_event(m, &event);
    step(m, &event, NULL, NULL);
}

void tick(Controller *m) { step_kind(m, (Event){.kind = EVENT_TICK}); }

int on_gather(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    tick(userdata);
    return 0;
}

void leave_without_timer(Controller *m, int r)
{
    log_error("cannot set a timer: %s; leaving", strerror(-r));
    (void)sd_event_exit(m->event, 1); /* fails only when it is exiting already */
}

/* Records have changed. A thousand nodes that report at once are looked at together, a change that
 * comes alone at once. */
static void tick_soon(Controller *m)
{
    uint64_t next = m->decided_usec + GATHER_MSEC * USEC_PER_MSEC;
    if (clock_boottime_usec() >= next) {
        tick(m);
        return;
    }
    int r = sd_event_source_set_time(m->gather_timer, next);
    if (r >= 0)
        r = sd_event_source_set_enabled(m->gather_timer, SD_EVENT_ONESHOT);
    assert(r >= 0); /* a live source takes any time */
}

/* ---- records ---- */

/* value NULL: gone. False for what is nothing to the core, or cannot be read. */
static bool read_record(Controller *m, const char *key, const char *value, size_t n,
                        int64_t created, int64_t revision, Event *ret)
{
    Error err = ERROR_INIT;
    int r = feed_event(m->feed, key, value, n, created, revision, ret, &err);
    if (r < 0)
        log_warning("ignored: %s", err.text);
    if (r > 0)
        stamp_event(m, ret);
    if (r > 0 && ret->health)
        log_warning("a record cannot be read: %s", err.text);
    return r > 0;
}

void feed_key(Controller *m, const char *key, const char *value, size_t n, int64_t created,
              int64_t revision)
{
    Event event;
    KeyKind kind;
    const char *rest;
    if (key_parse(m->config->cluster, key, &kind, &rest) == 0)
        succession_note_record(&m->succession, kind, key, value, n);
    if (!read_record(m, key, value, n, created, revision, &event))
        return;
    event.more = true;
    step(m, &event, key, value);
}

/* What the sender reads by itself is ahead of the watch. The core hears of it in the watch's order: what it
 * has seen of one revision it takes to have seen of every key. */
void on_cluster_record(const char *key, const char *value, size_t n, int64_t revision,
                       void *userdata)
{
    Controller *m = userdata;
    Event event;
    if (read_record(m, key, value, n, 0, revision, &event))
        sender_observe(m->sender, &event);
}

/* ---- all records ---- */

void feed_all(Controller *m, const EtcdRange *range)
{
    assert(range->revision >= m->read_revision); /* the caller passes over older reads */
    m->read_revision = range->revision;
    feed_mark(m->feed);
    for (size_t i = 0; i < range->n_kvs; i++)
        feed_key(m, range->kvs[i].key, range->kvs[i].value, range->kvs[i].n_value,
                 range->kvs[i].create_revision, range->kvs[i].mod_revision);
    const char *key;
    while ((key = feed_next_unseen(m->feed)))
        feed_key(m, key, NULL, 0, 0, range->revision);
}

static void on_room_read(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Controller *m = userdata;
    m->room_call = NULL; /* it frees itself */
    if (r < 0) {
        log_warning("cannot read what did not fit: %s", err->text);
        read_what_did_not_fit(m);
        return;
    }
    if (range->revision >= m->read_revision)
        feed_all(m, range);
    tick(m);
}

static int on_room_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    char prefix[KEY_MAX];
    Controller *m = userdata;
    m->room_timer = sd_event_source_disable_unref(m->room_timer);
    int r = etcd_get(m->etcd, key_prefix(m->config->cluster, -1, prefix), true, on_room_read, m,
                     &m->room_call);
    if (r < 0)
        read_what_did_not_fit(m);
    return 0;
}

/* Not at once: where jobs come and go in numbers one read serves many. */
static void read_what_did_not_fit(Controller *m)
{
    if (m->room_timer || m->room_call)
        return;
    int r = sd_event_add_time_relative(m->event, &m->room_timer, CLOCK_BOOTTIME,
                                       ROOM_SEC * USEC_PER_SEC, 1000, on_room_timer, m);
    if (r < 0)
        leave_without_timer(m, r);
}

/* ---- the watch ---- */

/* The watch has listed: what only a read of ours had shown, and is not there any more, is gone. */
static void forget_unlisted(Controller *m, int64_t revision)
{
    m->n_lists = etcd_watch_lists(m->watch);
    if (m->read_revision == 0 || revision < m->read_revision)
        return; /* nothing but lists was read; or the stream has the rest still to tell */
    feed_mark(m->feed);
    const char *key;
    while ((key = feed_next_unseen(m->feed)))
        if (!etcd_watch_knows(m->watch, key))
            feed_key(m, key, NULL, 0, 0, revision);
}

/* Whoever stands for election, in the watch's order: a read beside it would miss one that came and went. */
static void note_leader(Controller *m, const EtcdKeyValue *kv, bool put)
{
    KeyKind kind;
    const char *rest;
    if (key_parse(m->config->cluster, kv->key, &kind, &rest) == 0 && kind == KEY_LEADER)
        succession_note_leader(&m->succession, kv->key, put ? kv->value : NULL, kv->n_value,
                               kv->create_revision, clock_realtime_usec());
}

void on_cluster_watch(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                      void *userdata)
{
    Controller *m = userdata;
    controller_metrics_note_shown(m->metrics, revision); /* every event carries its own */
    for (size_t i = 0; i < n_events; i++) {
        const EtcdKeyValue *kv = &events[i].kv;
        bool put = events[i].kind == ETCD_EVENT_PUT;
        note_leader(m, kv, put);
        if (kv->mod_revision <= m->read_revision)
            continue; /* older than what was read since: a key that is gone would come back */
        feed_key(m, kv->key, put ? kv->value : NULL, put ? kv->n_value : 0, kv->create_revision,
                 kv->mod_revision);
    }
    if (etcd_watch_lists(m->watch) != m->n_lists)
        forget_unlisted(m, revision);
    if (initial && !m->loaded) {
        m->loaded = true;
        log_info("cluster %s read, %zu records", m->config->cluster, n_events);
        (void)sd_notify(0, "READY=1"); /* nobody listens outside systemd */
        say_status(m);
    }
    if (!try_to_lead(m))
        tick_soon(m);
}
