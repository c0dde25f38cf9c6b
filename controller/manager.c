/* manager.c - see manager.h.
 *
 * Records come in through one watch, decisions go out through execute(), and nothing else happens
 * here: whatever is decided is decided by cluster_step(). A transaction that was refused, or whose
 * outcome is unknown, is followed by a read of everything before the core hears of it. */
#include "controller/manager.h"

#include "base/clock.h"
#include "base/log.h"
#include "cluster/keys.h"
#include "controller/execute.h"
#include "controller/feed.h"
#include "controller/journal.h"

#include <string.h>
#include <systemd/sd-daemon.h>

enum { STALL_MSEC = 250, LEAVE_SEC = 2, RETRY_MSEC_MIN = 20, RETRY_DOUBLINGS_MAX = 6 };

/* A decision under way. */
typedef struct Pending Pending;
struct Pending {
    Manager *manager;
    Pending *next;
    Decision decision; /* without its runs, which were borrowed */
    Outcome outcome;
    sd_event_source *retry;
};

struct Manager {
    sd_event *event;
    const Config *config;
    Etcd *etcd;
    EtcdLease *lease;
    EtcdElection *election;
    EtcdWatch *watch;
    Feed *feed;
    Journal *journal;
    void *memory; /* of the cluster */
    Cluster *cluster;
    sd_event_source *timer, *leave_timer;
    uint64_t wake_usec;
    char leader_key[KEY_MAX];
    int64_t term; /* as the election says; 0: following */
    bool loaded;  /* the whole state has been seen once */
    unsigned refusals;
    int64_t dropped;
    Pending *pending;
};

/* ---- steps ---- */

static void begin_decision(Manager *m, const Decision *decision);

static void arm_timer(Manager *m, uint64_t wake_usec)
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

static void stamp_event(Manager *m, Event *event)
{
    event->now_usec = clock_boottime_usec();
    event->real_usec = clock_realtime_usec();
    event->stalled = m->wake_usec != USEC_INFINITY &&
                     event->now_usec > m->wake_usec + STALL_MSEC * USEC_PER_MSEC;
}

static void say_dropped(Manager *m)
{
    int64_t dropped = cluster_dropped(m->cluster);
    if (dropped > m->dropped)
        log_warning("%lld records do not fit; raise max_nodes, max_jobs or incidents_kept",
                    (long long)dropped);
    m->dropped = dropped;
}

/* Feeds one event and lets the core decide until it comes to rest. */
static void step(Manager *m, Event *event)
{
    static Actions actions; /* large; the loop has one thread */
    for (;;) {
        cluster_step(m->cluster, event, &actions);
        if (event->more)
            return;
        if (actions.decision.id)
            begin_decision(m, &actions.decision);
        if (!actions.again)
            break;
        *event = (Event){.kind = EVENT_TICK};
        stamp_event(m, event);
        journal_record_event(m->journal, event);
    }
    arm_timer(m, actions.wake_usec);
    say_dropped(m);
}

static void step_kind(Manager *m, Event event)
{
    stamp_event(m, &event);
    journal_record_event(m->journal, &event);
    step(m, &event);
}

static void tick(Manager *m) { step_kind(m, (Event){.kind = EVENT_TICK}); }

static int on_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    tick(userdata);
    return 0;
}

/* value NULL: gone. Nothing is decided yet. */
static void feed_key(Manager *m, const char *key, const char *value, size_t n, int64_t revision)
{
    Event event;
    Error err = ERROR_INIT;
    int r = feed_event(m->feed, key, value, n, revision, &event, &err);
    if (r < 0)
        log_warning("ignored: %s", err.text);
    if (r <= 0)
        return;
    stamp_event(m, &event);
    event.more = true;
    journal_record_key(m->journal, &event, key, value);
    step(m, &event);
}

/* ---- leadership ---- */

static void say_role(const Manager *m)
{
    if (m->term)
        (void)sd_notifyf(0, "STATUS=leading cluster %s, term %lld", m->config->cluster,
                         (long long)m->term); /* nobody listens outside systemd */
    else
        (void)sd_notifyf(0, "STATUS=following in cluster %s", m->config->cluster);
}

static void begin_to_lead(Manager *m)
{
    log_info("leading TERM=%lld", (long long)m->term);
    step_kind(m, (Event){.kind = EVENT_LEADING, .term = m->term});
}

static void on_election(bool leading, const char *key, int64_t term, void *userdata)
{
    Manager *m = userdata;
    if (m->term && !leading)
        log_warning("leadership lost TERM=%lld", (long long)m->term);
    m->term = leading ? term : 0;
    if (leading)
        (void)snprintf(m->leader_key, sizeof(m->leader_key), "%s", key);
    say_role(m);
    if (!m->loaded)
        return; /* the watch is not there yet */
    if (leading)
        begin_to_lead(m);
    else
        step_kind(m, (Event){.kind = EVENT_DEPOSED});
}

static void on_lease(EtcdLeaseState state, int64_t lease, void *userdata)
{
    Manager *m = userdata;
    if (m->election)
        etcd_election_lease_changed(m->election, state, lease);
}

/* ---- the watch ---- */

static void on_watch(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                     void *userdata)
{
    Manager *m = userdata;
    (void)revision; /* every event carries its own */
    for (size_t i = 0; i < n_events; i++) {
        const EtcdKeyValue *kv = &events[i].kv;
        bool put = events[i].kind == ETCD_EVENT_PUT;
        feed_key(m, kv->key, put ? kv->value : NULL, put ? kv->n_value : 0, kv->mod_revision);
    }
    if (initial && !m->loaded) {
        m->loaded = true;
        log_info("cluster %s read, %zu records", m->config->cluster, n_events);
        (void)sd_notify(0, "READY=1"); /* nobody listens outside systemd */
        say_role(m);
        if (m->term) {
            begin_to_lead(m);
            return;
        }
    }
    /* Decided once for all that etcd has to say now: the timer comes after it. */
    uint64_t now_usec = clock_boottime_usec();
    if (m->wake_usec > now_usec)
        arm_timer(m, now_usec);
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

static void finish(Pending *p, Outcome outcome, int64_t revision)
{
    Manager *m = p->manager;
    Event event = {.kind = EVENT_OUTCOME,
                   .id = p->decision.id,
                   .outcome = outcome,
                   .revision = revision};
    if (outcome == OUTCOME_DONE) {
        m->refusals = 0;
        journal_say_decision(&p->decision);
    }
    (void)pending_free(p);
    step_kind(m, event);
}

static void read_again(Pending *p);

static int on_retry(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Pending *p = userdata;
    p->retry = sd_event_source_disable_unref(p->retry);
    read_again(p);
    return 0;
}

/* Soon after the first refusal, later after more of them, so that a fault does not spin. */
static void read_again_later(Pending *p)
{
    Manager *m = p->manager;
    unsigned doublings = MIN(m->refusals, (unsigned)RETRY_DOUBLINGS_MAX);
    m->refusals++;
    int r = sd_event_add_time_relative(m->event, &p->retry, CLOCK_BOOTTIME,
                                       (RETRY_MSEC_MIN << doublings) * USEC_PER_MSEC, 1000,
                                       on_retry, p);
    if (r < 0) {
        log_error("cannot set a timer: %s; leaving", strerror(-r));
        (void)sd_event_exit(m->event, 1); /* fails only when it is exiting already */
    }
}

/* The election key must still be what the decision was guarded by. A list that is older than the
 * term says nothing about it. */
static bool still_leads(const Manager *m, const EtcdRange *range)
{
    if (range->revision < m->term)
        return true;
    for (size_t i = 0; i < range->n_kvs; i++)
        if (strcmp(range->kvs[i].key, m->leader_key) == 0)
            return range->kvs[i].create_revision == m->term;
    return false;
}

static void on_read(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Pending *p = userdata;
    Manager *m = p->manager;
    if (r < 0) {
        log_warning("cannot read the cluster again: %s", err->text);
        read_again_later(p);
        return;
    }
    feed_mark(m->feed);
    for (size_t i = 0; i < range->n_kvs; i++)
        feed_key(m, range->kvs[i].key, range->kvs[i].value, range->kvs[i].n_value,
                 range->kvs[i].mod_revision);
    const char *key;
    while ((key = feed_next_unseen(m->feed)))
        feed_key(m, key, NULL, 0, range->revision);
    if (m->term && !still_leads(m, range)) {
        log_warning("deposed, as the store says TERM=%lld", (long long)m->term);
        m->term = 0;
        say_role(m);
        step_kind(m, (Event){.kind = EVENT_DEPOSED});
    }
    finish(p, p->outcome, 0);
}

static void read_again(Pending *p)
{
    Manager *m = p->manager;
    char prefix[KEY_MAX];
    EtcdCall *call;
    int r = etcd_get(m->etcd, key_prefix(m->config->cluster, -1, prefix), true, on_read, p, &call);
    if (r < 0)
        read_again_later(p);
}

static void on_transaction(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Pending *p = userdata;
    if (r == 0 && result->succeeded) {
        finish(p, OUTCOME_DONE, result->revision);
        return;
    }
    p->outcome = r == 0 ? OUTCOME_REFUSED : OUTCOME_UNKNOWN;
    if (r < 0)
        log_warning("outcome unknown, reading again: %s JOB=%s", err->text, p->decision.job);
    else
        log_debug("refused by a guard, reading again JOB=%s", p->decision.job);
    read_again_later(p);
}

static void begin_decision(Manager *m, const Decision *decision)
{
    Error err = ERROR_INIT;
    Pending *p = calloc(1, sizeof(*p));
    if (!p) {
        log_error("out of memory; leaving");
        (void)sd_event_exit(m->event, 1); /* fails only when it is exiting already */
        return;
    }
    p->manager = m;
    p->decision = *decision;
    p->decision.world.runs = NULL;
    p->next = m->pending;
    m->pending = p;
    Target target = {.etcd = m->etcd,
                     .feed = m->feed,
                     .cluster = m->config->cluster,
                     .leader_key = m->leader_key};
    if (execute(&target, decision, on_transaction, p, &err) < 0) {
        log_error("%s JOB=%s", err.text, decision->job);
        p->outcome = OUTCOME_UNKNOWN;
        read_again_later(p);
    }
}

/* ---- the whole ---- */

static int connect_etcd(Manager *m, Error *err)
{
    char prefix[KEY_MAX];
    EtcdOptions options = config_etcd(m->config);
    int r = etcd_new(m->event, &options, &m->etcd, err);
    if (r < 0)
        return r;
    r = etcd_watch_prefix(m->etcd, key_prefix(m->config->cluster, -1, prefix), on_watch, m,
                          &m->watch);
    if (r >= 0)
        r = etcd_lease_new(m->etcd, m->config->lease_sec, on_lease, m, &m->lease);
    if (r >= 0)
        r = etcd_election_new(m->etcd, key_prefix(m->config->cluster, KEY_LEADER, prefix),
                              m->config->name, m->lease, on_election, m, &m->election);
    return r < 0 ? error_errno(err, r, "cannot watch cluster %s", m->config->cluster) : 0;
}

int manager_new(sd_event *event, const Config *config, Manager **ret, Error *err)
{
    _cleanup_(manager_freep) Manager *m = calloc(1, sizeof(*m));
    if (!m)
        return error_set(err, -ENOMEM, "out of memory");
    m->event = sd_event_ref(event);
    m->config = config;
    m->wake_usec = USEC_INFINITY;
    ClusterLimits limits = config_limits(config);
    ClusterConfig cluster_config = config_cluster(config);
    m->memory = malloc(cluster_bytes(&limits));
    if (!m->memory || feed_new(config->cluster, &m->feed) < 0)
        return error_set(err, -ENOMEM, "out of memory for %lld nodes and %lld jobs",
                         (long long)config->max_nodes, (long long)config->max_jobs);
    m->cluster = cluster_init(m->memory, &limits, &cluster_config);

    int r = config->record[0] ? journal_new(config->record, &m->journal, err) : 0;
    if (r < 0)
        return r;
    r = sd_event_add_time(event, &m->timer, CLOCK_BOOTTIME, 0, 1000, on_timer, m);
    if (r >= 0) /* what etcd has to say comes first */
        r = sd_event_source_set_priority(m->timer, SD_EVENT_PRIORITY_NORMAL + 10);
    if (r >= 0)
        r = sd_event_source_set_enabled(m->timer, SD_EVENT_OFF);
    if (r < 0)
        return error_errno(err, r, "cannot set a timer");
    r = connect_etcd(m, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(m);
    return 0;
}

Manager *manager_free(Manager *m)
{
    if (!m)
        return NULL;
    m->election = etcd_election_free(m->election);
    m->lease = etcd_lease_free(m->lease);
    m->watch = etcd_watch_free(m->watch);
    m->etcd = etcd_free(m->etcd);
    while (m->pending)
        (void)pending_free(m->pending);
    m->timer = sd_event_source_disable_unref(m->timer);
    m->leave_timer = sd_event_source_disable_unref(m->leave_timer);
    m->feed = feed_free(m->feed);
    m->journal = journal_free(m->journal);
    m->event = sd_event_unref(m->event);
    free(m->memory);
    free(m);
    return NULL;
}

static void on_revoked(_unused_ int r, _unused_ const Error *err,
                       _unused_ const EtcdTxnResult *result, void *userdata)
{
    Manager *m = userdata;
    (void)sd_event_exit(m->event, 0); /* fails only when it is exiting already */
}

static int on_leave_timer(_unused_ sd_event_source *source, _unused_ uint64_t usec, void *userdata)
{
    Manager *m = userdata;
    log_warning("etcd does not answer; leadership ends with its lease");
    return sd_event_exit(m->event, 0);
}

void manager_leave(Manager *m)
{
    (void)sd_notify(0, "STOPPING=1"); /* nobody listens outside systemd */
    if (m->leave_timer)
        return;
    int r = sd_event_add_time_relative(m->event, &m->leave_timer, CLOCK_BOOTTIME,
                                       LEAVE_SEC * USEC_PER_SEC, 0, on_leave_timer, m);
    if (r < 0 || etcd_lease_revoke(m->lease, on_revoked, m) < 0)
        (void)sd_event_exit(m->event, 0); /* no lease, nothing to give up */
}
