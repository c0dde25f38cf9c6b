/* SPDX-License-Identifier: Apache-2.0 */
/* manager.c - see manager.h. It gives the modules what they need, and passes the events of one module on to the
 * others. */
#include "daemon/node/manager.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/message-id.h"
#include "daemon/node/drain.h"
#include "daemon/process/logs.h"
#include "daemon/world/hang.h"
#include "daemon/world/local-world.h"

enum { STOOD_STILL_MSEC = 1000 };

/* ---- periodic work ---- */

static void on_alive(void *userdata)
{
    Manager *m = userdata;
    workload_send_alive(&m->workload);
    timer_start(m->needs.timers, &m->alive_timer, workload_alive_usec(&m->workload) / 4, on_alive,
                m);
}

static void on_hang_tick(void *userdata)
{
    Manager *m = userdata;
    uint64_t now_usec = clock_boottime_usec(), gap_usec = now_usec - m->hang_tick_usec;
    uint64_t stood_still_usec = gap_usec > STOOD_STILL_MSEC * USEC_PER_MSEC ? gap_usec : 0;
    m->hang_tick_usec = now_usec;
    if (stood_still_usec > 0)
        log_warning("sdtraind itself stood still for %.1f s NODE=%s", (double)gap_usec / 1e6,
                    m->needs.config->node);

    hang_check(&m->workload, now_usec, stood_still_usec);
    fence_check(m, now_usec, stood_still_usec);
    workload_end_late(&m->workload, now_usec);
    m->events.ticked(m->events.userdata, now_usec);
    /* The timer is idle, so that messages of ranks are read before their silence is judged. */
    timer_start_idle(m->needs.timers, &m->hang_timer, HANG_TICK_MSEC * USEC_PER_MSEC, on_hang_tick,
                     m);
}

/* ---- events of the workload ---- */

static void on_node_changed(void *userdata)
{
    Manager *m = userdata;
    node_touch(&m->node);
}

static void on_etcd_answered(void *userdata)
{
    Manager *m = userdata;
    fence_note_contact(&m->fence);
}

static void on_may_be_idle(void *userdata) { drain_advance(userdata); }

static void on_world_began(void *userdata, const LocalWorld *local)
{
    Manager *m = userdata;
    rank_log_prune(m->needs.config->log_dir, local->job->name);
    history_note_world(&m->history, local->job->name, local->submission, local->generation);
}

static void on_commit_decided(void *userdata, const LocalWorld *local, CommitMark mark,
                              bool committed)
{
    Manager *m = userdata;
    if (committed)
        history_note_commit(&m->history, local->job->name, local->submission, mark);
    m->events.commit_decided(m->events.userdata, local->job->name, committed);
}

static void on_rank_started(void *userdata, const Rank *rank)
{
    Manager *m = userdata;
    m->events.rank_started(m->events.userdata, rank);
}

static void on_rank_ended(void *userdata, const Rank *rank, const ExitVerdict *verdict)
{
    Manager *m = userdata;
    m->events.rank_ended(m->events.userdata, rank, verdict);
}

static void on_rank_stepped(void *userdata, Rank *rank, const ChannelMessage *step)
{
    Manager *m = userdata;
    m->events.rank_stepped(m->events.userdata, rank, step);
}

static void on_rank_saved(void *userdata, Rank *rank, const ChannelMessage *saved)
{
    Manager *m = userdata;
    m->events.rank_saved(m->events.userdata, rank, saved);
}

static void on_job_forgotten(void *userdata, const char *job)
{
    Manager *m = userdata;
    m->events.job_forgotten(m->events.userdata, job);
}

static void init_workload(Manager *m)
{
    const WorkloadNeeds needs = {.config = m->needs.config,
                                 .timers = m->needs.timers,
                                 .etcd = m->needs.etcd,
                                 .lease = m->lease,
                                 .knows_secrets = &m->node.knows_secrets,
                                 .gpus = &m->node.gpus,
                                 .ranks = m->needs.ranks,
                                 .incarnation = m->needs.incarnation};
    const WorkloadEvents events = {.userdata = m,
                                   .node_changed = on_node_changed,
                                   .etcd_answered = on_etcd_answered,
                                   .may_be_idle = on_may_be_idle,
                                   .world_began = on_world_began,
                                   .commit_decided = on_commit_decided,
                                   .rank_started = on_rank_started,
                                   .rank_ended = on_rank_ended,
                                   .rank_stepped = on_rank_stepped,
                                   .rank_saved = on_rank_saved,
                                   .job_forgotten = on_job_forgotten};
    workload_init(&m->workload, &needs, &events);
}

/* ---- events of the node's record and its lease ---- */

static void on_registered(void *userdata)
{
    Manager *m = userdata;
    m->events.registered(m->events.userdata);
}

static void on_node_touched(void *userdata)
{
    Manager *m = userdata;
    if (m->leaving)
        drain_advance(m);
}

static void on_lease_changed(void *userdata, bool renewed)
{
    Manager *m = userdata;
    m->events.lease_changed(m->events.userdata, renewed);
}

static void on_name_is_taken(void *userdata, const Error *err)
{
    Manager *m = userdata;
    log_event(LOG_LEVEL_WARNING, MESSAGE_STRANGER, "%s NODE=%s", err->text, m->needs.config->node);
    workload_kill_all(&m->workload, "the node's name belongs to another");
}

static uint64_t query_memory(void *userdata)
{
    Manager *m = userdata;
    return m->needs.memory_bytes(m->needs.userdata);
}

static void on_node_lease(EtcdLeaseState state, _unused_ int64_t lease, void *userdata)
{
    Manager *m = userdata;
    node_lease_changed(&m->node, state);
    if (state == ETCD_LEASE_GRANTED)
        log_requests_lease_changed(&m->log_requests);
}

static void init_node(Manager *m)
{
    m->node.needs = (OwnNodeNeeds){.config = m->needs.config,
                                   .timers = m->needs.timers,
                                   .etcd = m->needs.etcd,
                                   .lease = m->lease,
                                   .workload = &m->workload,
                                   .history = &m->history,
                                   .fence = &m->fence,
                                   .boot_id = m->needs.boot_id,
                                   .is_probed = m->needs.is_probed,
                                   .draining = &m->draining,
                                   .incarnation = m->needs.incarnation,
                                   .userdata = m,
                                   .memory_bytes = query_memory,
                                   .registered = on_registered,
                                   .touched = on_node_touched,
                                   .lease_changed = on_lease_changed,
                                   .name_is_taken = on_name_is_taken};
    m->node.last_lease = m->history.record.lease;
}

/* ---- the history of etcd ---- */

static int read_history(void *userdata, const char *path, char **ret, size_t *ret_n, Error *err)
{
    Manager *m = userdata;
    return m->needs.read_file(m->needs.userdata, path, ret, ret_n, err);
}

static int write_history(void *userdata, const char *path, const char *text, Error *err)
{
    Manager *m = userdata;
    return m->needs.write_file(m->needs.userdata, path, text, err);
}

static void on_other_history(void *userdata)
{
    Manager *m = userdata;
    if (!m->node.registered)
        return; /* no rank runs, and no record was used yet */
    m->history_is_over = true;
    workload_kill_all(&m->workload, "etcd was restored from a snapshot");
    m->events.ended(m->events.userdata);
}

static bool runs_job(void *userdata, const char *name)
{
    Manager *m = userdata;
    const LocalJob *job = job_find(&m->workload, name);
    return job && job->local;
}

static void open_history(Manager *m)
{
    const HistoryNeeds needs = {.config = m->needs.config,
                                .etcd = m->needs.etcd,
                                .userdata = m,
                                .read = read_history,
                                .write = write_history,
                                .changed = on_other_history,
                                .runs = runs_job};
    history_open(&m->history, &needs);
}

/* ---- requests to the program ---- */

static void on_check(void *userdata, const EtcdKeyValue *request, bool clear)
{
    Manager *m = userdata;
    m->needs.check(m->needs.userdata, request, clear);
}

static void on_log_requests_read(void *userdata)
{
    Manager *m = userdata;
    m->node.knows_logs = true;
    node_touch(&m->node);
}

static void open_log_requests(Manager *m)
{
    m->log_requests = (LogRequests){.config = m->needs.config,
                                    .timers = m->needs.timers,
                                    .etcd = m->needs.etcd,
                                    .lease = m->lease,
                                    .has_name = &m->node.has_name,
                                    .userdata = m,
                                    .ready = on_log_requests_read};
    log_requests_open(&m->log_requests);
}

static void on_doctor(void *userdata, const RequestRecord *request)
{
    Manager *m = userdata;
    m->needs.doctor(m->needs.userdata, request);
}

/* ---- creation, start and end ---- */

Manager *manager_new(const ManagerNeeds *needs, const ManagerEvents *events)
{
    Manager *m = memory_new(Manager);
    *m = (Manager){.needs = *needs, .events = *events};
    return m;
}

int manager_start(Manager *m, Error *err)
{
    const DaemonConfig *c = m->needs.config;
    assert(!m->lease && !m->draining);
    open_history(m); /* before the first request to etcd */
    fence_note_contact(&m->fence);
    char key[KEY_MAX];
    int r = etcd_lease_new(m->needs.etcd, c->lease_sec, key_of(c->cluster, KEY_NODES, c->node, key),
                           on_node_lease, m, &m->lease);
    if (r < 0)
        return error_errno(err, r, "cannot ask for a lease");

    init_workload(m);
    init_node(m);
    m->requests = (Requests){.config = c,
                             .etcd = m->needs.etcd,
                             .workload = &m->workload,
                             .userdata = m,
                             .check = on_check,
                             .doctor = on_doctor};
    m->watches = (Watches){.config = c,
                           .etcd = m->needs.etcd,
                           .lease = m->lease,
                           .workload = &m->workload,
                           .node = &m->node,
                           .fence = &m->fence,
                           .requests = &m->requests};
    node_request_rights(&m->node);
    open_log_requests(m);
    r = watches_open(&m->watches, err);
    if (r < 0)
        return r;
    m->hang_tick_usec = clock_boottime_usec();
    on_alive(m);     /* also starts the timer of the next call */
    on_hang_tick(m); /* also starts the timer of the next call */
    return 0;
}

bool manager_leaves_nothing(const Manager *m)
{
    return (m->leaving || m->history_is_over) && m->workload.slots.lost == 0;
}

Manager *manager_free(Manager *m)
{
    if (!m)
        return NULL;
    workload_clear(&m->workload);
    timer_stop(&m->alive_timer);
    timer_stop(&m->hang_timer);
    timer_stop(&m->drain_timer);
    watches_clear(&m->watches);
    log_requests_clear(&m->log_requests);
    node_clear(&m->node);
    m->lease = etcd_lease_free(m->lease);
    free(m);
    return NULL;
}
