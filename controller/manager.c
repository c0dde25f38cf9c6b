/* SPDX-License-Identifier: Apache-2.0 */
/* manager.c - see manager.h. Makes the parts of a Controller and hands them to each other.
 *
 * Records come in through one watch (intake.c), decisions go out through execute() (transactions.c), and nothing else
 * happens in the shell: whatever is decided is decided by cluster_step(). */
#include "base/log.h"
#include "base/memory.h"
#include "cluster/keys.h"
#include "controller/history.h"
#include "controller/manager-internal.h"
#include "controller/recording.h"

#include <string.h>

static ControllerView look_at_etcd(void *userdata)
{
    Controller *m = userdata;
    return (ControllerView){.cluster = m->cluster,
                            .sender = m->sender,
                            .term = m->term,
                            .loaded = m->loaded,
                            .connected = m->watch && etcd_watch_connected(m->watch)};
}

static int connect_etcd(Controller *m, Error *err)
{
    char prefix[KEY_MAX];
    _cleanup_free_ char *leader = NULL;
    EtcdOptions options = config_etcd(m->config);
    int r = etcd_new(m->event, &options, &m->etcd, err);
    if (r < 0)
        return r;
    controller_metrics_observe(m->metrics, m->etcd);
    begin_anew_with_another_history(m->etcd, m->event);
    rights_open(&m->rights, m->etcd, m->config, on_rights_changed, m);
    r = etcd_watch_prefix(m->etcd, key_prefix(m->config->cluster, -1, prefix), on_cluster_watch, m,
                          &m->watch);
    if (r >= 0)
        r = etcd_lease_new(m->etcd, m->config->lease_sec,
                           key_prefix(m->config->cluster, KEY_LEADER, prefix), on_leader_lease, m,
                           &m->lease);
    leader = leader_text(m, LEADER_UP);
    if (r >= 0)
        r = etcd_election_new(m->etcd, key_prefix(m->config->cluster, KEY_LEADER, prefix), leader,
                              m->lease, on_election, m, &m->election);
    return r < 0 ? error_errno(err, r, "cannot watch cluster %s", m->config->cluster) : 0;
}

static int add_timers(Controller *m)
{
    int r = sd_event_add_time(m->event, &m->timer, CLOCK_BOOTTIME, 0, 1000, on_gather, m);
    if (r >= 0) /* what etcd has to say comes first */
        r = sd_event_source_set_priority(m->timer, SD_EVENT_PRIORITY_NORMAL + 10);
    if (r >= 0)
        r = sd_event_source_set_enabled(m->timer, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_time(m->event, &m->gather_timer, CLOCK_BOOTTIME, 0, 1000, on_gather, m);
    if (r >= 0) /* not behind a flood of records */
        r = sd_event_source_set_priority(m->gather_timer, SD_EVENT_PRIORITY_NORMAL - 10);
    if (r >= 0)
        r = sd_event_source_set_enabled(m->gather_timer, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_add_time_relative(m->event, &m->status_timer, CLOCK_BOOTTIME,
                                       STATUS_SEC * USEC_PER_SEC, 0, on_status_timer, m);
    return r;
}

static int open_sender(Controller *m, const ClusterLimits *limits, Error *err)
{
    enum { TESTS_MAX = 16 }; /* pages that somebody asks for */
    SenderOptions options = {.event = m->event,
                             .etcd = m->etcd,
                             .lease = m->lease,
                             .feed = m->feed,
                             .cluster = m->config->cluster,
                             .leader_key = m->leader_key,
                             .alerts_file = m->config->alerts_file,
                             .notifications_max = limits->incidents + TESTS_MAX,
                             .rights = &m->rights,
                             .on_record = on_cluster_record,
                             .userdata = m};
    return sender_new(&options, &m->sender, err);
}

int manager_reload(Controller *m, Error *err)
{
    const ClusterConfig config = config_cluster(m->config);
    Event event = {.kind = EVENT_TICK};
    stamp_event(m, &event);
    cluster_configure(m->cluster, &config);
    journal_record_config(m->journal, &event, &config);
    tick(m);
    succession_overrule(&m->succession);
    introduce(m);         /* what it says of itself holds some of them */
    (void)try_to_lead(m); /* or not: either is good */
    return sender_reload(m->sender, err);
}

int manager_new(sd_event *event, const ControllerConfig *config, Controller **ret, Error *err)
{
    _cleanup_(manager_freep) Controller *m = memory_new(Controller);
    m->event = sd_event_ref(event);
    m->config = config;
    m->wake_usec = USEC_INFINITY;
    ClusterLimits limits = config_limits(config);
    ClusterConfig cluster_config = config_cluster(config);
    m->memory = memory_zeroed(1, cluster_bytes(&limits));
    m->feed = feed_new(config->cluster);
    m->actions = memory_new(Actions);
    m->cluster = cluster_init(m->memory, &limits, &cluster_config);

    int r = recording_open(config, &limits, &cluster_config, &m->journal, err);
    if (r >= 0)
        r = controller_metrics_new(event, config, look_at_etcd, m, &m->metrics, err);
    if (r < 0)
        return r;
    r = add_timers(m);
    if (r < 0)
        return error_errno(err, r, "cannot set a timer");
    r = connect_etcd(m, err);
    if (r >= 0)
        r = open_sender(m, &limits, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(m);
    return 0;
}

Controller *manager_free(Controller *m)
{
    if (!m)
        return NULL;
    m->sender = sender_free(m->sender);
    rights_clear(&m->rights);
    m->election = etcd_election_free(m->election);
    m->lease = etcd_lease_free(m->lease);
    m->watch = etcd_watch_free(m->watch);
    m->etcd = etcd_free(m->etcd);
    while (m->pending)
        (void)pending_free(m->pending);
    m->room_call = etcd_call_free(m->room_call);
    m->room_timer = sd_event_source_disable_unref(m->room_timer);
    m->timer = sd_event_source_disable_unref(m->timer);
    m->leave_timer = sd_event_source_disable_unref(m->leave_timer);
    m->still_timer = sd_event_source_disable_unref(m->still_timer);
    succession_clear(&m->succession);
    m->status_timer = sd_event_source_disable_unref(m->status_timer);
    m->gather_timer = sd_event_source_disable_unref(m->gather_timer);
    m->feed = feed_free(m->feed);
    m->journal = journal_free(m->journal);
    m->metrics = controller_metrics_free(m->metrics);
    m->event = sd_event_unref(m->event);
    free(m->actions);
    free(m->memory);
    free(m);
    return NULL;
}
