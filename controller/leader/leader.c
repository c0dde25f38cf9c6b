/* SPDX-License-Identifier: Apache-2.0 */
/* leader.c - see leader.h. Makes the parts of a Leader and connects them.
 *
 * Records come in through one watch (intake.c), and decisions go out through execute() (transactions.c). The shell
 * does nothing else: cluster_step() makes every decision. */
#include "controller/leader/leader.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/message-id.h"
#include "cluster/keys.h"
#include "controller/leader/leader-internal.h"

/* Ends the Leader: all that it knows, and all that it would write, belongs to a history that no longer exists. */
static void on_other_history(const EtcdHistory *was, const EtcdHistory *now, void *userdata)
{
    log_event(LOG_LEVEL_ERROR, MESSAGE_HISTORY,
              "etcd has another history: revision %lld after %lld, cluster %llx after %llx; it was "
              "restored from a snapshot, or is another one. This controller begins anew",
              (long long)now->revision, (long long)was->revision, (unsigned long long)now->cluster,
              (unsigned long long)was->cluster);
    notify_end(userdata, -ERESTART);
}

static int open_etcd(Leader *l, Error *err)
{
    char prefix[KEY_MAX];
    const char *cluster = l->settings.cluster;
    Etcd *etcd = l->needs.etcd;
    etcd_set_history(etcd, etcd_history(etcd), on_other_history, l);
    rights_open(&l->rights, etcd, cluster, on_rights_changed, l);
    int r =
        etcd_watch_prefix(etcd, key_prefix(cluster, -1, prefix), on_cluster_watch, l, &l->watch);
    if (r >= 0)
        r = etcd_lease_new(etcd, l->settings.lease_sec, key_prefix(cluster, KEY_LEADER, prefix),
                           on_leader_lease, l, &l->lease);
    _cleanup_free_ char *text = leader_text(l, LEADER_UP);
    if (r >= 0)
        r = etcd_election_new(etcd, key_prefix(cluster, KEY_LEADER, prefix), text, l->lease,
                              on_election, l, &l->election);
    return r < 0 ? error_errno(err, r, "cannot watch cluster %s", cluster) : 0;
}

static int add_timers(Leader *l)
{
    sd_event *event = l->needs.event;
    int r = sd_event_add_time(event, &l->timer, CLOCK_BOOTTIME, 0, 1000, on_gather, l);
    if (r >= 0) /* events from etcd come first */
        r = sd_event_source_set_priority(l->timer, SD_EVENT_PRIORITY_NORMAL + 10);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->timer, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_time(event, &l->gather_timer, CLOCK_BOOTTIME, 0, 1000, on_gather, l);
    if (r >= 0) /* this timer must not wait behind a flood of records */
        r = sd_event_source_set_priority(l->gather_timer, SD_EVENT_PRIORITY_NORMAL - 10);
    if (r >= 0)
        r = sd_event_source_set_enabled(l->gather_timer, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_time_relative(event, &l->status_timer, CLOCK_BOOTTIME,
                                       STATUS_SEC * USEC_PER_SEC, 0, on_status_timer, l);
    return r;
}

int leader_new(const LeaderNeeds *needs, const LeaderSettings *settings, const LeaderEvents *events,
               Leader **ret, Error *err)
{
    _cleanup_(leader_freep) Leader *l = memory_new(Leader);
    l->needs = *needs;
    l->settings = *settings;
    l->events = *events;
    l->wake_usec = USEC_INFINITY;
    l->memory = memory_zeroed(1, cluster_bytes(&settings->limits));
    l->feed = feed_new(l->settings.cluster);
    l->actions = memory_new(Actions);
    l->cluster = cluster_init(l->memory, &settings->limits, &settings->core);
    int r = add_timers(l);
    if (r < 0)
        return error_errno(err, r, "cannot set a timer");
    r = open_etcd(l, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(l);
    return 0;
}

Leader *leader_free(Leader *l)
{
    if (!l)
        return NULL;
    etcd_set_history(l->needs.etcd, etcd_history(l->needs.etcd), NULL, NULL);
    rights_clear(&l->rights);
    l->election = etcd_election_free(l->election);
    l->lease = etcd_lease_free(l->lease);
    l->watch = etcd_watch_free(l->watch);
    while (l->pending)
        (void)pending_free(l->pending);
    l->room_call = etcd_call_free(l->room_call);
    l->leave_call = etcd_call_free(l->leave_call);
    l->room_timer = sd_event_source_disable_unref(l->room_timer);
    l->timer = sd_event_source_disable_unref(l->timer);
    l->leave_timer = sd_event_source_disable_unref(l->leave_timer);
    l->still_timer = sd_event_source_disable_unref(l->still_timer);
    l->status_timer = sd_event_source_disable_unref(l->status_timer);
    l->gather_timer = sd_event_source_disable_unref(l->gather_timer);
    succession_clear(&l->succession);
    l->feed = feed_free(l->feed);
    free(l->actions);
    free(l->memory);
    free(l);
    return NULL;
}

void leader_configure(Leader *l, const LeaderSettings *settings)
{
    Event event = {.kind = EVENT_TICK};
    l->settings.core = settings->core;
    l->settings.introduction = settings->introduction;
    stamp_event(l, &event);
    cluster_configure(l->cluster, &l->settings.core);
    journal_record_config(l->needs.journal, &event, &l->settings.core);
    tick(l);
    succession_overrule(&l->succession);
    introduce(l);         /* the record contains some of the settings */
    (void)try_to_lead(l); /* the result does not matter */
}

LeaderView leader_view(const Leader *l)
{
    return (LeaderView){.cluster = l->cluster,
                        .term = l->term,
                        .is_still = l->is_still,
                        .has_lease = l->has_lease,
                        .loaded = l->loaded,
                        .connected = l->watch && etcd_watch_connected(l->watch),
                        .first = succession_first(&l->succession)};
}

const EtcdLease *leader_lease(const Leader *l) { return l->lease; }
const Feed *leader_feed(const Leader *l) { return l->feed; }
const char *leader_key(const Leader *l) { return l->leader_key; }
Rights *leader_rights(Leader *l) { return &l->rights; }
