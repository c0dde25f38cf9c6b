/* manager.c - see manager.h. */
#include "daemon/manager.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/message-id.h"
#include "daemon/drain.h"
#include "daemon/fence.h"
#include "daemon/process/orphans.h"
#include "daemon/world/hang.h"
#include "daemon/world/local-world.h"
#include "daemon/world/rank.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { STOOD_STILL_MSEC = 1000 };

/* ---- timers ---- */

static void on_timer_failed(void *userdata, const Error *err) { manager_fail(userdata, err); }

static void on_alive(void *userdata)
{
    Manager *m = userdata;
    workload_send_alive(&m->workload);
    timer_start(&m->timers, &m->alive_timer, workload_alive_usec(&m->workload) / 4, on_alive, m);
}

static void on_hang_tick(void *userdata)
{
    Manager *m = userdata;
    uint64_t now_usec = clock_boottime_usec(), gap_usec = now_usec - m->hang_tick_usec;
    uint64_t stood_still_usec = gap_usec > STOOD_STILL_MSEC * USEC_PER_MSEC ? gap_usec : 0;
    m->hang_tick_usec = now_usec;
    if (stood_still_usec > 0)
        log_warning("sdtraind itself stood still for %.1f s NODE=%s", (double)gap_usec / 1e6,
                    m->config.node);

    hang_check(&m->workload, now_usec, stood_still_usec);
    fence_check(m, now_usec, stood_still_usec);
    workload_end_late(&m->workload, now_usec);
    status_update(m, now_usec);
    /* idle: what ranks said counts before their silence does */
    timer_start_idle(&m->timers, &m->hang_timer, HANG_TICK_MSEC * USEC_PER_MSEC, on_hang_tick, m);
}

/* ---- what the workload tells ---- */

static void on_node_changed(void *userdata) { manager_touch_node(userdata); }
static void on_etcd_answered(void *userdata) { manager_note_contact(userdata); }
static void on_may_be_idle(void *userdata) { drain_advance(userdata); }

static void on_world_began(void *userdata, const LocalWorld *local)
{
    history_note_world(userdata, local->job->name, local->submission, local->generation);
}

static void on_commit_decided(void *userdata, const LocalWorld *local, CommitMark mark,
                              bool committed)
{
    if (committed)
        history_note_commit(userdata, local->job->name, local->submission, mark);
    daemon_metrics_note_commit(userdata, local->job->name, committed);
}

static void on_rank_started(void *userdata, const Rank *rank)
{
    daemon_metrics_note_start(userdata, rank);
}

static void on_rank_ended(void *userdata, const Rank *rank, const ExitVerdict *verdict)
{
    daemon_metrics_note_exit(userdata, rank, verdict);
}

static void on_rank_stepped(void *userdata, Rank *rank, const ChannelMessage *step)
{
    daemon_metrics_note_step(userdata, rank, step);
}

static void on_rank_saved(void *userdata, Rank *rank, const ChannelMessage *saved)
{
    daemon_metrics_note_saved(userdata, rank, saved);
}

static void on_job_forgotten(void *userdata, const char *job)
{
    daemon_metrics_forget_job(userdata, job);
}

static bool is_other_child(void *userdata, pid_t pid)
{
    const Manager *m = userdata;
    return pid == m->keeper || probes_own(&m->probes, pid);
}

static void init_workload(Manager *m)
{
    m->ranks = (RankNeeds){.event = m->event,
                           .cgroups = &m->cgroups,
                           .sessions = m->sessions,
                           .trainer = &m->trainer,
                           .is_other_child = is_other_child,
                           .userdata = m};
    const WorkloadNeeds needs = {.config = &m->config,
                                 .timers = &m->timers,
                                 .etcd = m->etcd,
                                 .lease = m->lease,
                                 .knows_secrets = &m->node.knows_secrets,
                                 .ranks = &m->ranks,
                                 .incarnation = m->incarnation};
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

/* ---- etcd ---- */

void manager_note_contact(Manager *m)
{
    m->contact_usec = clock_boottime_usec();
    m->fenced = false;
}

int64_t manager_lease(const Manager *m) { return m->lease ? etcd_lease_id(m->lease) : 0; }

void manager_touch_node(Manager *m)
{
    node_update(m);
    if (m->leaving)
        drain_advance(m);
}

static void on_node_lease(EtcdLeaseState state, _unused_ int64_t lease, void *userdata)
{
    node_lease_changed(userdata, state);
}

/* ---- signals ---- */

static int on_terminate(_unused_ sd_event_source *source, const struct signalfd_siginfo *info,
                        void *userdata)
{
    drain_signal(userdata, info->ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
    return 0;
}

static int on_hangup(_unused_ sd_event_source *source, _unused_ const struct signalfd_siginfo *info,
                     void *userdata)
{
    Manager *m = userdata;
    _cleanup_(config_clear) DaemonConfig fresh = {0};
    Error err = ERROR_INIT;
    status_reloading(m);
    if (config_load(m->call, &fresh, &err) < 0) {
        log_error("configuration is not reloaded: %s", err.text);
    } else {
        config_reload(&m->config, &fresh);
        if (strcmp(m->config.trainer, fresh.trainer) != 0) /* fresh holds what was replaced */
            manager_open_trainer(m);
        log_info("configuration reloaded NODE=%s", m->config.node);
        manager_touch_node(m);
    }
    status_reloaded(m);
    return 0;
}

/* Children that are nobody's: a rank's orphans, handed to us as the subreaper, and the keeper. */
static int on_child(_unused_ sd_event_source *source, _unused_ const struct signalfd_siginfo *info,
                    void *userdata)
{
    Manager *m = userdata;
    for (;;) {
        siginfo_t child = {0};
        if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0 || child.si_pid == 0)
            break;
        if (probes_own(&m->probes, child.si_pid))
            break; /* its own source takes it; the others are met at the next signal */
        if (child.si_pid == m->keeper) {
            m->keeper = 0;
            log_warning("the keeper was killed; orphans will wait for the next sdtraind NODE=%s",
                        m->config.node);
        }
        Rank *rank = slots_rank_of_process(&m->workload.slots, child.si_pid);
        if (rank)
            rank_look(rank);
        else
            (void)waitid(P_PID, (id_t)child.si_pid, &child, WEXITED | WNOHANG); /* as just seen */
    }
    for (size_t i = 0; i < ELEMENTSOF(m->workload.slots.of); i++)
        if (m->workload.slots.of[i] && m->workload.slots.of[i]->exited)
            rank_look(m->workload.slots.of[i]);
    return 0;
}

static int add_signals(Manager *m, Error *err)
{
    static const struct {
        int signal;
        sd_event_signal_handler_t handler;
    } all[] = {{SIGTERM, on_terminate},
               {SIGINT, on_terminate},
               {SIGHUP, on_hangup},
               {SIGCHLD, on_child}};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        int r =
            sd_event_add_signal(m->event, &m->signal_sources[i], all[i].signal, all[i].handler, m);
        if (r < 0)
            return error_errno(err, r, "cannot take signal %d", all[i].signal);
    }
    return 0;
}

/* ---- made and ended ---- */

static int open_etcd(Manager *m, Error *err)
{
    const DaemonConfig *c = &m->config;
    EtcdOptions options;
    int r = etcd_options_from_environment(&options, err);
    if (r < 0)
        return r;
    options.endpoints = c->etcd;
    options.ca_file = *c->etcd_ca ? c->etcd_ca : options.ca_file;
    options.cert_file = *c->etcd_cert ? c->etcd_cert : options.cert_file;
    options.key_file = *c->etcd_key ? c->etcd_key : options.key_file;
    options.tls_name = *c->etcd_tls_name ? c->etcd_tls_name : options.tls_name;
    options.user = *c->etcd_user ? c->etcd_user : options.user;
    options.password = *c->etcd_password ? c->etcd_password : options.password;

    r = etcd_new(m->event, &options, &m->etcd, err);
    if (r == 0)
        r = daemon_metrics_open(m, err);
    if (r < 0)
        return r;
    history_open(m);
    m->contact_usec = clock_boottime_usec();
    char key[KEY_MAX];
    r = etcd_lease_new(m->etcd, c->lease_sec, key_of(c->cluster, KEY_NODES, c->node, key),
                       on_node_lease, m, &m->lease);
    if (r < 0)
        return error_errno(err, r, "cannot ask for a lease");
    init_workload(m);
    node_ask_rights(m);
    return watches_open(m, err);
}

void manager_open_trainer(Manager *m)
{
    m->trainer = fd_close(m->trainer);
    m->trainer = open(m->config.trainer, O_PATH | O_CLOEXEC);
    if (m->trainer < 0) /* then each rank looks for itself, and says what is wrong */
        log_warning("trainer: %s: %s", m->config.trainer, strerror(errno));
}

/* What must be there before the first thread: the lock, a clean slate, the keeper. */
static int prepare(Manager *m, Error *err)
{
    const DaemonConfig *c = &m->config;
    int r = orphans_lock(c->run_dir, &m->lock, err);
    if (r == 0)
        r = folder_make(c->log_dir, err);
    if (r < 0)
        return r;
    if (c->cgroup == CGROUP_AUTO) {
        Error why = ERROR_INIT;
        if (cgroup_open(&m->cgroups, c->run_dir, &why) < 0)
            log_info("%s; process groups must do NODE=%s", why.text, c->node);
    }
    /* before anything is cleared: who dies meanwhile leaves the rest to the keeper */
    r = orphans_keep(c->run_dir, &m->cgroups, &m->sessions, &m->keeper, err);
    if (r == 0)
        r = orphans_clear(c->run_dir, &m->cgroups, err);
    if (r == 0 && *m->cgroups.path)
        r = cgroup_open(&m->cgroups, c->run_dir, err); /* clearing took the folder too */
    if (r < 0)
        return r;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return error_errno(err, -errno, "cannot become the reaper of orphans");
    return 0;
}

int manager_new(const ConfigCall *call, DaemonConfig *config, Manager **ret, Error *err)
{
    Manager *made = malloc(sizeof(*made));
    if (!made) {
        config_clear(config);
        return error_set(err, -ENOMEM, "out of memory");
    }
    *made = (Manager){.call = call,
                      .config = *config,
                      .lock = -EBADF,
                      .trainer = -EBADF,
                      .incarnation = clock_realtime_usec(),
                      .hang_tick_usec = clock_boottime_usec(),
                      .started_usec = clock_boottime_usec(),
                      .kernel = {.fd = -EBADF}};
    _cleanup_(manager_freep) Manager *m = made;
    *config = (DaemonConfig){0};

    manager_open_trainer(m);
    int r = prepare(m, err);
    if (r == 0)
        r = node_open(&m->node, err);
    if (r < 0)
        return r;
    r = sd_event_new(&m->event);
    if (r < 0)
        return error_errno(err, r, "cannot make an event loop");
    m->timers = (Timers){.event = m->event, .failed = on_timer_failed, .userdata = m};
    r = add_signals(m, err);
    if (r < 0)
        return r;
    (void)sd_event_set_watchdog(m->event, true); /* a no-op unless systemd asks for it */
    r = open_etcd(m, err);
    if (r < 0)
        return r;
    on_alive(m);     /* starts its timer */
    on_hang_tick(m); /* likewise */
    probes_start(m);
    *ret = TAKE_PTR(m);
    return 0;
}

Manager *manager_free(Manager *m)
{
    if (!m)
        return NULL;
    workload_clear(&m->workload);
    timer_stop(&m->alive_timer);
    timer_stop(&m->hang_timer);
    timer_stop(&m->drain_timer);
    for (size_t i = 0; i < ELEMENTSOF(m->signal_sources); i++)
        m->signal_sources[i] = sd_event_source_disable_unref(m->signal_sources[i]);
    probes_clear(&m->probes);
    kernel_watch_clear(&m->kernel);
    watches_clear(&m->watches);
    node_clear(&m->node);
    m->lease = etcd_lease_free(m->lease);
    m->etcd = etcd_free(m->etcd);
    m->metrics = daemon_metrics_free(m->metrics);
    m->event = sd_event_unref(m->event);
    Error err = ERROR_INIT;
    int r = cgroup_destroy(&m->cgroups, &err);
    if (r < 0)
        log_warning("%s", err.text);
    if (r == 0 && (m->leaving || m->history.is_over) && m->workload.slots.lost == 0 &&
        m->keeper > 0) { /* nothing is left for it */
        (void)kill(m->keeper, SIGKILL);
        (void)waitpid(m->keeper, NULL, 0);
    }
    m->lock = fd_close(m->lock);
    m->trainer = fd_close(m->trainer);
    config_clear(&m->config);
    free(m);
    return NULL;
}

void manager_fail(Manager *m, const Error *err)
{
    if (m->error.code == 0)
        m->error = *err;
    (void)sd_event_exit(m->event, err->code); /* fails only when it is exiting already */
}

int manager_run(Manager *m, Error *err)
{
    int r = sd_event_loop(m->event);
    history_save(m);
    if (m->history.is_over)
        return -ERESTART;
    if (m->error.code != 0)
        *err = m->error;
    else if (r < 0)
        (void)error_errno(err, r, "the event loop failed"); /* returned below */
    return r;
}
