/* SPDX-License-Identifier: Apache-2.0 */
/* intake.c - the Leader's input: records of the cluster, time, and the core's answers.
 *
 * Records come through one watch, and through a read of all records after a transaction whose outcome is unknown.
 * Each record becomes an event, and all modules that need the event receive it in one order (notify_everybody()). */
#include "base/clock.h"
#include "base/log.h"
#include "cluster/keys.h"
#include "controller/leader/leader-internal.h"

#include <string.h>

enum {
    STALL_MSEC = 250,
    GATHER_MSEC = 5, /* the pause between two decisions while many records change */
    ROOM_SEC = 1,
};

static void read_what_did_not_fit(Leader *l);

/* ---- the core ---- */

void arm_timer(Leader *l, uint64_t wake_usec)
{
    l->wake_usec = wake_usec;
    int r = 0;
    if (wake_usec != USEC_INFINITY)
        r = sd_event_source_set_time(l->timer, wake_usec);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->timer, wake_usec == USEC_INFINITY ? SD_EVENT_OFF
                                                                             : SD_EVENT_ONESHOT);
    assert(r >= 0); /* cannot fail: a live event source accepts any time */
}

void stamp_event(Leader *l, Event *event)
{
    event->now_usec = clock_boottime_usec();
    event->real_usec = clock_realtime_usec();
    event->stalled = l->wake_usec != USEC_INFINITY &&
                     event->now_usec > l->wake_usec + STALL_MSEC * USEC_PER_MSEC;
}

static void log_dropped(Leader *l)
{
    int64_t dropped = cluster_dropped(l->cluster);
    if (dropped > l->dropped)
        log_warning("%lld records do not fit; raise max_nodes, max_jobs or incidents_kept",
                    (long long)dropped);
    l->dropped = dropped;
}

/* Passes an event to all that need it, in the order that each of them relies on:
 *   journal        first, so that an event on which the core dies is the last line of the record;
 *   record_read()  next: metrics compare a record with what the core still knows of it;
 *   core           then; its answer is returned;
 *   observed()     last: a sender notifies of the incidents that the core now knows.
 * key NULL: the event carries no record, so there is nothing to compare. */
static void notify_everybody(Leader *l, const Event *event, const char *key, const char *value,
                             size_t n, Actions *ret)
{
    if (key) {
        journal_record_key(l->needs.journal, event, key, value, n);
        l->events.record_read(l->events.userdata, event);
    } else
        journal_record_event(l->needs.journal, event);
    cluster_step(l->cluster, event, ret);
    l->events.observed(l->events.userdata, event);
}

/* Feeds one event, then lets the core decide until there is nothing more to decide. */
static void step(Leader *l, Event *event, const char *key, const char *value, size_t n)
{
    Actions *actions = l->actions;
    for (;;) {
        notify_everybody(l, event, key, value, n, actions);
        if (event->more)
            return;
        if (actions->read)
            read_what_did_not_fit(l);
        if (actions->decision.id) {
            journal_record_decision(l->needs.journal, event, &actions->decision);
            begin_decision(l, &actions->decision);
        }
        if (!actions->again)
            break;
        *event = (Event){.kind = EVENT_TICK};
        stamp_event(l, event);
        key = value = NULL;
    }
    arm_timer(l, actions->wake_usec);
    log_dropped(l);
    l->decided_usec = clock_boottime_usec();
}

void step_kind(Leader *l, Event event)
{
    stamp_event(l, &event);
    step(l, &event, NULL, NULL, 0);
}

void tick(Leader *l) { step_kind(l, (Event){.kind = EVENT_TICK}); }

int on_gather(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    tick(userdata);
    return 0;
}

void notify_end(Leader *l, int r)
{
    if (l->is_over)
        return;
    l->is_over = true;
    l->events.ended(l->events.userdata, r);
}

void end_without_timer(Leader *l, int r)
{
    log_error("cannot set a timer: %s; leaving", strerror(-r));
    notify_end(l, r);
}

/* Lets the core decide about changed records. The reports of a thousand nodes at once are decided together, and a
 * single change is decided without delay. */
static void tick_soon(Leader *l)
{
    uint64_t next = l->decided_usec + GATHER_MSEC * USEC_PER_MSEC;
    if (clock_boottime_usec() >= next) {
        tick(l);
        return;
    }
    int r = sd_event_source_set_time(l->gather_timer, next);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->gather_timer, SD_EVENT_ONESHOT);
    assert(r >= 0); /* cannot fail: the source is alive */
}

/* ---- records ---- */

/* Makes an event of a key; value NULL: the key is gone. Returns false for a key that the core does not need, or that
 * is malformed. */
static bool read_record(Leader *l, const char *key, const char *value, size_t n, int64_t created,
                        int64_t lease, int64_t revision, Event *ret)
{
    Error err = ERROR_INIT;
    int r = feed_event(l->feed, key, value, n, created, revision, ret, &err);
    if (r < 0)
        log_warning("ignored: %s", err.text);
    if (r > 0) {
        stamp_event(l, ret);
        ret->lease = lease;
    }
    if (r > 0 && ret->health)
        log_warning("a record cannot be read: %s", err.text);
    return r > 0;
}

void feed_key(Leader *l, const char *key, const char *value, size_t n, int64_t created,
              int64_t lease, int64_t revision)
{
    Event event;
    KeyKind kind;
    const char *rest;
    if (key_parse(l->settings.cluster, key, &kind, &rest) == 0) {
        succession_note_record(&l->succession, kind, key, value, n);
        if (kind == KEY_EVALS)
            l->events.results_read(l->events.userdata, rest, value, n);
    }
    if (!read_record(l, key, value, n, created, lease, revision, &event))
        return;
    event.more = true;
    step(l, &event, key, value, n);
}

void leader_note_record(Leader *l, const char *key, const char *value, size_t n, int64_t revision)
{
    Event event;
    if (read_record(l, key, value, n, 0, 0, revision, &event))
        l->events.observed(l->events.userdata, &event);
}

/* ---- all records ---- */

void feed_all(Leader *l, const EtcdRange *range)
{
    assert(range->revision >= l->read_revision); /* the caller skips older reads */
    l->read_revision = range->revision;
    feed_mark(l->feed);
    for (size_t i = 0; i < range->n_kvs; i++)
        feed_key(l, range->kvs[i].key, range->kvs[i].value, range->kvs[i].n_value,
                 range->kvs[i].create_revision, range->kvs[i].lease, range->kvs[i].mod_revision);
    const char *key;
    while ((key = feed_next_unseen(l->feed)))
        feed_key(l, key, NULL, 0, 0, 0, range->revision);
}

static void on_room_read(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Leader *l = userdata;
    l->room_call = NULL; /* the call frees itself */
    if (r < 0) {
        log_warning("cannot read what did not fit: %s", err->text);
        read_what_did_not_fit(l);
        return;
    }
    if (range->revision >= l->read_revision)
        feed_all(l, range);
    tick(l);
}

static int on_room_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    char prefix[KEY_MAX];
    Leader *l = userdata;
    l->room_timer = sd_event_source_disable_unref(l->room_timer);
    int r = etcd_get(l->needs.etcd, key_prefix(l->settings.cluster, -1, prefix), true, on_room_read,
                     l, &l->room_call);
    if (r < 0)
        read_what_did_not_fit(l);
    return 0;
}

/* Reads the records again after a second, not at once: if many jobs come and go, one read serves for all. */
static void read_what_did_not_fit(Leader *l)
{
    if (l->room_timer || l->room_call)
        return;
    int r = sd_event_add_time_relative(l->needs.event, &l->room_timer, CLOCK_BOOTTIME,
                                       ROOM_SEC * USEC_PER_SEC, 1000, on_room_timer, l);
    if (r < 0)
        end_without_timer(l, r);
}

/* ---- the watch ---- */

/* Called after the watch has listed all keys: a key that only a separate read had shown, and that no longer exists,
 * is gone. */
static void forget_unlisted(Leader *l, int64_t revision)
{
    l->n_lists = etcd_watch_lists(l->watch);
    if (l->read_revision == 0 || revision < l->read_revision)
        return; /* there was no separate read, or the list is older and the stream will catch up */
    feed_mark(l->feed);
    const char *key;
    while ((key = feed_next_unseen(l->feed)))
        if (!etcd_watch_knows(l->watch, key))
            feed_key(l, key, NULL, 0, 0, 0, revision);
}

/* Notes the controllers in the election in the watch's order: a read beside the watch would miss a controller that
 * appeared and vanished. */
static void note_leader(Leader *l, const EtcdKeyValue *kv, bool put)
{
    KeyKind kind;
    const char *rest;
    if (key_parse(l->settings.cluster, kv->key, &kind, &rest) == 0 && kind == KEY_LEADER)
        succession_note_leader(&l->succession, kv->key, put ? kv->value : NULL, kv->n_value,
                               kv->create_revision, clock_realtime_usec());
}

void on_cluster_watch(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                      void *userdata)
{
    Leader *l = userdata;
    l->events.shown(l->events.userdata, revision); /* each event has a revision of its own */
    for (size_t i = 0; i < n_events; i++) {
        const EtcdKeyValue *kv = &events[i].kv;
        bool put = events[i].kind == ETCD_EVENT_PUT;
        note_leader(l, kv, put);
        if (kv->mod_revision <= l->read_revision)
            continue; /* the last read is newer: this event could bring a deleted key back */
        feed_key(l, kv->key, put ? kv->value : NULL, put ? kv->n_value : 0, kv->create_revision,
                 kv->lease, kv->mod_revision);
    }
    if (etcd_watch_lists(l->watch) != l->n_lists)
        forget_unlisted(l, revision);
    if (initial && !l->loaded) {
        l->loaded = true;
        log_info("cluster %s read, %zu records", l->settings.cluster, n_events);
        l->events.loaded(l->events.userdata);
        l->events.view_changed(l->events.userdata);
    }
    if (!try_to_lead(l))
        tick_soon(l);
}
