/* manager.c - see manager.h.
 *
 * Records come in through one watch, decisions go out through execute(), and nothing else happens
 * here: whatever is decided is decided by cluster_step(). A transaction that was refused, or whose
 * outcome is unknown, is followed by a read of everything before the core hears of it. */
#include "controller/manager.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/message-id.h"
#include "base/probe.h"
#include "cluster/keys.h"
#include "controller/alerting/sender.h"
#include "controller/config/rights.h"
#include "controller/execute.h"
#include "controller/feed/feed.h"
#include "controller/history.h"
#include "controller/journal/decision-log.h"
#include "controller/journal/journal.h"
#include "controller/metrics.h"
#include "controller/recording.h"
#include "controller/status.h"

#include <string.h>
#include <systemd/sd-daemon.h>

enum {
    STALL_MSEC = 250,
    GATHER_MSEC = 5, /* between two decisions when records come in numbers */
    LEAVE_SEC = 2,
    RETRY_MSEC_MIN = 20,
    RETRY_DOUBLINGS_MAX = 6,
    ROOM_SEC = 1,
};

/* A decision under way. */
typedef struct Pending Pending;
struct Pending {
    Controller *manager;
    Pending *next;
    Decision decision; /* without its runs, which were borrowed */
    uint64_t begun_usec;
    Outcome outcome;
    sd_event_source *retry;
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
    int64_t term; /* as the election says; 0: following */
    bool has_lease;
    bool loaded; /* the whole state has been seen once */
    Rights rights;
    unsigned refusals;
    int64_t dropped;
    Pending *pending;
};

/* ---- steps ---- */

static void begin_decision(Controller *m, const Decision *decision);
static void read_what_did_not_fit(Controller *m);

static void arm_timer(Controller *m, uint64_t wake_usec)
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

static void stamp_event(Controller *m, Event *event)
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

/* Feeds one event and lets the core decide until it comes to rest. */
static void step(Controller *m, Event *event)
{
    static Actions actions; /* large; the loop has one thread */
    for (;;) {
        cluster_step(m->cluster, event, &actions);
        sender_observe(m->sender, event);
        if (event->more)
            return;
        if (actions.read)
            read_what_did_not_fit(m);
        if (actions.decision.id) {
            journal_record_decision(m->journal, event, &actions.decision);
            begin_decision(m, &actions.decision);
        }
        if (!actions.again)
            break;
        *event = (Event){.kind = EVENT_TICK};
        stamp_event(m, event);
        journal_record_event(m->journal, event);
    }
    arm_timer(m, actions.wake_usec);
    say_dropped(m);
    m->decided_usec = clock_boottime_usec();
}

static void step_kind(Controller *m, Event event)
{
    stamp_event(m, &event);
    journal_record_event(m->journal, &event);
    step(m, &event);
}

static void tick(Controller *m) { step_kind(m, (Event){.kind = EVENT_TICK}); }

static int on_gather(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    tick(userdata);
    return 0;
}

static void leave_without_timer(Controller *m, int r)
{
    log_error("cannot set a timer: %s; leaving", strerror(-r));
    (void)sd_event_exit(m->event, 1); /* fails only when it is exiting already */
}

/* A record that was not read for want of memory would be missed for ever; the next start reads all. */
static void leave_without_memory(Controller *m)
{
    log_error("out of memory; leaving");
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

/* value NULL: gone. False for what is nothing to the core, or cannot be read. */
static bool read_record(Controller *m, const char *key, const char *value, size_t n,
                        int64_t created, int64_t revision, Event *ret)
{
    Error err = ERROR_INIT;
    int r = feed_event(m->feed, key, value, n, created, revision, ret, &err);
    if (r == -ENOMEM)
        leave_without_memory(m);
    else if (r < 0)
        log_warning("ignored: %s", err.text);
    if (r > 0)
        stamp_event(m, ret);
    if (r > 0 && ret->health)
        log_warning("a record cannot be read: %s", err.text);
    return r > 0;
}

/* Nothing is decided yet. */
static void feed_key(Controller *m, const char *key, const char *value, size_t n, int64_t created,
                     int64_t revision)
{
    Event event;
    if (!read_record(m, key, value, n, created, revision, &event))
        return;
    event.more = true;
    journal_record_key(m->journal, &event, key, value);
    controller_metrics_note_event(m->metrics, m->cluster, &event);
    step(m, &event);
}

/* ---- leadership ---- */

static void say_status(Controller *m)
{
    status_say(&m->status, m->cluster, m->config->cluster, m->term, m->has_lease);
}

static int on_status_timer(sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Controller *m = userdata;
    say_status(m);
    rights_tick(&m->rights);
    int r = sd_event_source_set_time_relative(source, STATUS_SEC * USEC_PER_SEC);
    return r < 0 ? r : sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void begin_to_lead(Controller *m)
{
    log_event(LOG_LEVEL_INFO, MESSAGE_LEADING, "leading TERM=%lld", (long long)m->term);
    controller_metrics_note_leading(m->metrics);
    step_kind(m, (Event){.kind = EVENT_LEADING, .term = m->term});
}

static void on_election(bool leading, const char *key, int64_t term, void *userdata)
{
    Controller *m = userdata;
    if (m->term && !leading)
        log_event(LOG_LEVEL_WARNING, MESSAGE_DEPOSED, "leadership lost TERM=%lld",
                  (long long)m->term);
    m->term = leading ? term : 0;
    if (leading)
        (void)snprintf(m->leader_key, sizeof(m->leader_key), "%s", key);
    say_status(m);
    if (!m->loaded)
        return; /* the watch is not there yet */
    if (leading)
        begin_to_lead(m);
    else
        step_kind(m, (Event){.kind = EVENT_DEPOSED});
}

static void on_leader_lease(EtcdLeaseState state, int64_t lease, void *userdata)
{
    Controller *m = userdata;
    m->has_lease = state != ETCD_LEASE_LOST;
    if (m->election)
        etcd_election_lease_changed(m->election, state, lease);
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

static void on_cluster_watch(const EtcdEvent *events, size_t n_events, int64_t revision,
                             bool initial, void *userdata)
{
    Controller *m = userdata;
    controller_metrics_note_shown(m->metrics, revision); /* every event carries its own */
    for (size_t i = 0; i < n_events; i++) {
        const EtcdKeyValue *kv = &events[i].kv;
        bool put = events[i].kind == ETCD_EVENT_PUT;
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
        if (m->term) {
            begin_to_lead(m);
            return;
        }
    }
    tick_soon(m);
}

/* ---- transactions ---- */

static Pending *pending_free(Pending *p)
{
    for (Pending **at = &p->manager->pending; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    p->retry = sd_event_source_disable_unref(p->retry);
    free(p);
    return NULL;
}

static void say_line(const LogLine *line, _unused_ void *userdata)
{
    log_text(line->level, line->message_id, line->format, line->text);
}

static void finish(Pending *p, Outcome outcome, int64_t revision)
{
    Controller *m = p->manager;
    Event event = {.kind = EVENT_OUTCOME,
                   .id = p->decision.id,
                   .outcome = outcome,
                   .revision = revision};
    if (outcome == OUTCOME_DONE) {
        m->refusals = 0;
        decision_log_lines(&p->decision, say_line, NULL);
    }
    (void)pending_free(p);
    step_kind(m, event);
}

static void read_again(Pending *p);

static int on_again(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Pending *p = userdata;
    p->retry = sd_event_source_disable_unref(p->retry);
    read_again(p);
    return 0;
}

/* Later after more refusals, so that a fault does not spin. */
static void read_again_later(Pending *p)
{
    Controller *m = p->manager;
    unsigned doublings = MIN(m->refusals, (unsigned)RETRY_DOUBLINGS_MAX);
    m->refusals++;
    int r = sd_event_add_time_relative(m->event, &p->retry, CLOCK_BOOTTIME,
                                       (RETRY_MSEC_MIN << doublings) * USEC_PER_MSEC, 1000,
                                       on_again, p);
    if (r < 0)
        leave_without_timer(m, r);
}

/* The election key must still be what the decision was guarded by. A list that is older than the
 * term says nothing about it. */
static bool still_leads(const Controller *m, const EtcdRange *range)
{
    if (range->revision < m->term)
        return true;
    for (size_t i = 0; i < range->n_kvs; i++)
        if (strcmp(range->kvs[i].key, m->leader_key) == 0)
            return range->kvs[i].create_revision == m->term;
    return false;
}

static void feed_all(Controller *m, const EtcdRange *range)
{
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

static void on_keys(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Pending *p = userdata;
    Controller *m = p->manager;
    if (r < 0) {
        log_warning("cannot read the cluster again: %s", err->text);
        read_again_later(p);
        return;
    }
    if (range->revision > m->read_revision)
        feed_all(m, range);
    if (m->term && !still_leads(m, range)) {
        log_event(LOG_LEVEL_WARNING, MESSAGE_DEPOSED, "deposed, as the store says TERM=%lld",
                  (long long)m->term);
        m->term = 0;
        say_status(m);
        step_kind(m, (Event){.kind = EVENT_DEPOSED});
    }
    finish(p, p->outcome, 0);
}

static void read_again(Pending *p)
{
    Controller *m = p->manager;
    char prefix[KEY_MAX];
    EtcdCall *call;
    int r = etcd_get(m->etcd, key_prefix(m->config->cluster, -1, prefix), true, on_keys, p, &call);
    if (r < 0)
        read_again_later(p);
}

static void on_transaction(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Pending *p = userdata;
    Error lost = ERROR_INIT;
    int struck = r == 0 && result->succeeded ? execute_fault(&p->decision, "after") : 0;
    if (struck < 0) {
        r = error_errno(&lost, struck, "the answer was lost");
        err = &lost;
    }
    p->outcome = r < 0 ? OUTCOME_UNKNOWN : result->succeeded ? OUTCOME_DONE : OUTCOME_REFUSED;
    controller_metrics_note_outcome(p->manager->metrics, &p->decision, p->outcome, p->begun_usec,
                                    r < 0 ? 0 : result->revision);
    PROBE(decision, p->decision.id, p->decision.job, p->decision.world.generation, p->outcome,
          clock_boottime_usec() - p->begun_usec);
    if (p->outcome == OUTCOME_DONE) {
        finish(p, OUTCOME_DONE, result->revision);
        return;
    }
    if (r == -EACCES)
        rights_denied(&p->manager->rights);
    if (r < 0)
        log_warning("outcome unknown, reading again: %s JOB=%s", err->text, p->decision.job);
    else
        log_debug("refused by a guard, reading again JOB=%s", p->decision.job);
    read_again_later(p);
}

static void begin_decision(Controller *m, const Decision *decision)
{
    Error err = ERROR_INIT;
    Pending *p = calloc(1, sizeof(*p));
    if (!p) {
        leave_without_memory(m);
        return;
    }
    p->manager = m;
    p->begun_usec = clock_boottime_usec();
    p->decision = *decision;
    p->decision.world.runs = NULL;
    p->next = m->pending;
    m->pending = p;
    Target target = {.etcd = m->etcd,
                     .feed = m->feed,
                     .cluster = m->config->cluster,
                     .leader_key = m->leader_key,
                     .rights = &m->rights};
    int r = execute_fault(decision, "before");
    if (r < 0)
        r = error_errno(&err, r, "cannot begin a transaction");
    else
        r = execute(&target, decision, on_transaction, p, &err);
    if (r < 0) {
        log_error("%s JOB=%s", err.text, decision->job);
        p->outcome = OUTCOME_UNKNOWN;
        read_again_later(p);
    }
}

/* ---- the whole ---- */

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
    rights_open(&m->rights, m->etcd, m->config, &m->election);
    r = etcd_watch_prefix(m->etcd, key_prefix(m->config->cluster, -1, prefix), on_cluster_watch, m,
                          &m->watch);
    if (r >= 0)
        r = etcd_lease_new(m->etcd, m->config->lease_sec,
                           key_prefix(m->config->cluster, KEY_LEADER, prefix), on_leader_lease, m,
                           &m->lease);
    if (r >= 0)
        r = config_leader(m->config, m->rights.lacks, &leader);
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

/* What the sender reads by itself is ahead of the watch. The core hears of it in the watch's order: what it
 * has seen of one revision it takes to have seen of every key. */
static void on_cluster_record(const char *key, const char *value, size_t n, int64_t revision,
                              void *userdata)
{
    Controller *m = userdata;
    Event event;
    if (read_record(m, key, value, n, 0, revision, &event))
        sender_observe(m->sender, &event);
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
    _cleanup_free_ char *leader = NULL; /* what it says of itself holds some of them */
    int r = config_leader(m->config, m->rights.lacks, &leader);
    r = r < 0 ? r : etcd_election_change(m->election, leader);
    return r < 0 ? error_errno(err, r, "cannot say what was reloaded")
                 : sender_reload(m->sender, err);
}

int manager_new(sd_event *event, const ControllerConfig *config, Controller **ret, Error *err)
{
    _cleanup_(manager_freep) Controller *m = calloc(1, sizeof(*m));
    if (!m)
        return error_set(err, -ENOMEM, "out of memory");
    m->event = sd_event_ref(event);
    m->config = config;
    m->wake_usec = USEC_INFINITY;
    ClusterLimits limits = config_limits(config);
    ClusterConfig cluster_config = config_cluster(config);
    m->memory = calloc(1, cluster_bytes(&limits));
    if (!m->memory || feed_new(config->cluster, &m->feed) < 0)
        return error_set(err, -ENOMEM, "out of memory for %lld nodes and %lld jobs",
                         (long long)config->max_nodes, (long long)config->max_jobs);
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
    m->status_timer = sd_event_source_disable_unref(m->status_timer);
    m->gather_timer = sd_event_source_disable_unref(m->gather_timer);
    m->feed = feed_free(m->feed);
    m->journal = journal_free(m->journal);
    m->metrics = controller_metrics_free(m->metrics);
    m->event = sd_event_unref(m->event);
    free(m->memory);
    free(m);
    return NULL;
}

static void on_revoked(_unused_ int r, _unused_ const Error *err,
                       _unused_ const EtcdTxnResult *result, void *userdata)
{
    Controller *m = userdata;
    (void)sd_event_exit(m->event, 0); /* fails only when it is exiting already */
}

static int on_leave_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Controller *m = userdata;
    log_warning("etcd does not answer; leadership ends with its lease");
    return sd_event_exit(m->event, 0);
}

void manager_leave(Controller *m)
{
    (void)sd_notify(0, "STOPPING=1"); /* nobody listens outside systemd */
    if (m->leave_timer)
        return;
    int r = sd_event_add_time_relative(m->event, &m->leave_timer, CLOCK_BOOTTIME,
                                       LEAVE_SEC * USEC_PER_SEC, 0, on_leave_timer, m);
    if (r < 0 || etcd_lease_revoke(m->lease, on_revoked, m) < 0)
        (void)sd_event_exit(m->event, 0); /* no lease, nothing to give up */
}
