/* SPDX-License-Identifier: Apache-2.0 */
/* manager.c - see manager.h. Gives the Leader what it needs, and passes the Leader's news to the other parts of the
 * program. */
#include "controller/manager.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "controller/alerting/sender.h"
#include "controller/leader/leader.h"
#include "controller/metrics.h"
#include "controller/recording.h"
#include "controller/status.h"

#include <string.h>
#include <sys/random.h>
#include <systemd/sd-daemon.h>

struct Controller {
    sd_event *event;
    const ControllerConfig *config; /* borrowed */
    Etcd *etcd;
    Journal *journal;           /* NULL: nothing is recorded */
    ControllerMetrics *metrics; /* NULL: metrics are off */
    Leader *leader;
    Sender *sender;
    ControllerStatus status; /* the line last sent to systemd */
};

/* Writes the core's settings into the controller's record, for a user who asks what the leader would decide. The
 * list of nodes is left out: it has a field of its own. */
static void log_settings(LeaderSettings *s)
{
    LeaderRecord *record = &s->introduction;
    _cleanup_json_ json_t *json = journal_config_json(&s->core);
    (void)json_object_del(json, "admit"); /* fails if there is no list */
    _cleanup_free_ char *text = json_dumps(json, JSON_COMPACT);
    if (text && strlen(text) < sizeof(record->settings))
        memcpy(record->settings, text, strlen(text) + 1);
}

static LeaderSettings settings_of(const ControllerConfig *config, const ControllerMetrics *metrics)
{
    LeaderSettings s = {.lease_sec = config->lease_sec,
                        .core = config_cluster(config),
                        .limits = config_limits(config),
                        .introduction = config_leader(config)};
    _Static_assert(sizeof(s.cluster) >= sizeof(config->cluster), "every name fits");
    memcpy(s.cluster, config->cluster, sizeof(config->cluster));
    log_settings(&s);
    controller_metrics_page(metrics, s.introduction.name, s.introduction.page,
                            sizeof(s.introduction.page));
    return s;
}

/* ---- events of the Leader ---- */

static void on_loaded(_unused_ void *userdata)
{
    (void)sd_notify(0, "READY=1"); /* outside systemd nothing receives the message */
}

static void on_view_changed(void *userdata)
{
    Controller *m = userdata;
    const LeaderView v = leader_view(m->leader);
    status_write(&m->status, v.cluster, m->config->cluster, v.term, v.is_still, v.has_lease);
}

static void on_leads(void *userdata)
{
    const Controller *m = userdata;
    controller_metrics_note_leading(m->metrics);
}

static void on_record_read(void *userdata, const Event *event)
{
    const Controller *m = userdata;
    controller_metrics_note_event(m->metrics, leader_view(m->leader).cluster, event);
}

static void on_results_read(void *userdata, const char *rest, const char *value, size_t n)
{
    const Controller *m = userdata;
    controller_metrics_note_results(m->metrics, rest, value, n);
}

static void on_observed(void *userdata, const Event *event)
{
    const Controller *m = userdata;
    sender_observe(m->sender, event);
}

static void on_answered(void *userdata, const Decision *decision, Outcome outcome,
                        uint64_t begun_usec, int64_t revision)
{
    const Controller *m = userdata;
    controller_metrics_note_outcome(m->metrics, decision, outcome, begun_usec, revision);
}

static void on_shown(void *userdata, int64_t revision)
{
    const Controller *m = userdata;
    controller_metrics_note_shown(m->metrics, revision);
}

static void on_leader_ended(void *userdata, int r)
{
    const Controller *m = userdata;
    const int code = r == 0 || r == -ERESTART ? r : 1;
    (void)sd_event_exit(m->event, code); /* fails only if the loop is exiting already */
}

/* ---- what the Leader needs ---- */

static bool draw(void *ret, size_t n) { return getrandom(ret, n, 0) == (ssize_t)n; }

static int open_leader(Controller *m, const LeaderSettings *settings, Error *err)
{
    const LeaderNeeds needs = {.event = m->event,
                               .etcd = m->etcd,
                               .journal = m->journal,
                               .draw = draw};
    const LeaderEvents events = {.userdata = m,
                                 .loaded = on_loaded,
                                 .view_changed = on_view_changed,
                                 .leads = on_leads,
                                 .record_read = on_record_read,
                                 .results_read = on_results_read,
                                 .observed = on_observed,
                                 .answered = on_answered,
                                 .shown = on_shown,
                                 .ended = on_leader_ended};
    return leader_new(&needs, settings, &events, &m->leader, err);
}

/* ---- what metrics and the sender need ---- */

static ControllerView look_at_etcd(void *userdata)
{
    const Controller *m = userdata;
    return (ControllerView){.leader = leader_view(m->leader), .sender = m->sender};
}

static void on_mark_read_again(const char *key, const char *value, size_t n, int64_t revision,
                               void *userdata)
{
    const Controller *m = userdata;
    leader_note_record(m->leader, key, value, n, revision);
}

static int open_sender(Controller *m, const ClusterLimits *limits, Error *err)
{
    enum { TESTS_MAX = 16 }; /* the largest number of notifications of `sdctl alerts test` */
    SenderOptions options = {.event = m->event,
                             .etcd = m->etcd,
                             .lease = leader_lease(m->leader),
                             .feed = leader_feed(m->leader),
                             .cluster = m->config->cluster,
                             .leader_key = leader_key(m->leader),
                             .alerts_file = m->config->alerts_file,
                             .notifications_max = limits->incidents + TESTS_MAX,
                             .rights = leader_rights(m->leader),
                             .on_record = on_mark_read_again,
                             .userdata = m};
    return sender_new(&options, &m->sender, err);
}

/* ---- the whole ---- */

int manager_reload(Controller *m, Error *err)
{
    const LeaderSettings settings = settings_of(m->config, m->metrics);
    leader_configure(m->leader, &settings);
    return sender_reload(m->sender, err);
}

void manager_leave(Controller *m)
{
    (void)sd_notify(0, "STOPPING=1"); /* outside systemd nothing receives the message */
    leader_leave(m->leader);
}

int manager_new(sd_event *event, const ControllerConfig *config, Controller **ret, Error *err)
{
    _cleanup_(manager_freep) Controller *m = memory_new(Controller);
    const ClusterLimits limits = config_limits(config);
    const ClusterConfig core = config_cluster(config);
    const EtcdOptions options = etcd_settings_options(&config->etcd);
    m->event = sd_event_ref(event);
    m->config = config;
    int r = recording_open(config, &limits, &core, &m->journal, err);
    if (r >= 0)
        r = controller_metrics_new(event, config, look_at_etcd, m, &m->metrics, err);
    if (r >= 0)
        r = etcd_new(event, &options, &m->etcd, err);
    if (r < 0)
        return r;
    controller_metrics_observe(m->metrics, m->etcd);
    const LeaderSettings settings = settings_of(config, m->metrics);
    r = open_leader(m, &settings, err);
    if (r >= 0)
        r = open_sender(m, &settings.limits, err);
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
    m->leader = leader_free(m->leader);
    m->etcd = etcd_free(m->etcd);
    m->journal = journal_free(m->journal);
    m->metrics = controller_metrics_free(m->metrics);
    m->event = sd_event_unref(m->event);
    free(m);
    return NULL;
}
