/* SPDX-License-Identifier: Apache-2.0 */
/* sdtraind.c - the program: registers this node, hosts the ranks that the leader gives it.
 *
 * This file has what belongs to the process: the lock and the keeper, the loop, the signals, the client of etcd, the
 * trainer's file, the probes, the port of /metrics and systemd's status line. The Manager has all that the node writes
 * and does in etcd. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/health/doctor.h"
#include "daemon/health/health-record.h"
#include "daemon/health/probes.h"
#include "daemon/machine.h"
#include "daemon/metrics.h"
#include "daemon/node/drain.h"
#include "daemon/node/manager.h"
#include "daemon/process/orphans.h"
#include "daemon/status.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <systemd/sd-journal.h>

enum {
    SIGNALS = 4,
    STATE_MAX = 65536,
    HOSTED_END_MSEC = 40000, /* twice the watchdog of their units, and time for systemd */
};

typedef struct Daemon {
    const SettingsCall *call; /* kept for a reload */
    DaemonConfig *config;
    uint64_t incarnation;
    char boot_id[MACHINE_BOOT_ID_BYTES];
    int lock;     /* descriptor of the lock of run_dir; shared with the keeper */
    int trainer;  /* open fd of the ranks' program, opened at the start or at a reload */
    int runner;   /* open fd of the program that hosts programs of others, opened at the start */
    pid_t keeper; /* 0: the keeper was killed */
    CgroupBase cgroups;
    RankSessions *sessions; /* shared with the keeper */
    sd_event *event;
    Timers timers;
    sd_event_source *signals[SIGNALS];
    RankNeeds ranks;
    Etcd *etcd;
    Probes probes;
    Doctor doctor;
    DaemonMetrics *metrics; /* NULL: metrics are off */
    Manager *manager;
    DaemonStatus status;
    Error error; /* why the loop ended; code 0: it ended in an orderly way */
} Daemon;

static void daemon_fail(void *userdata, const Error *err)
{
    Daemon *d = userdata;
    if (d->error.code == 0)
        d->error = *err;
    (void)sd_event_exit(d->event, err->code); /* fails only if the loop is exiting already */
}

/* ---- signals ---- */

static int on_terminate(_unused_ sd_event_source *source, const struct signalfd_siginfo *info,
                        void *userdata)
{
    Daemon *d = userdata;
    drain_signal(d->manager, info->ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
    return 0;
}

/* Keeps the trainer's file open, so that an upgrade of the file has no effect until sdtraind restarts. */
static void open_trainer(Daemon *d)
{
    d->trainer = fd_close(d->trainer);
    d->trainer = open(d->config->trainer, O_PATH | O_CLOEXEC);
    if (d->trainer < 0) /* then each rank executes the path, and reports the error */
        log_warning("trainer: %s: %s", d->config->trainer, strerror(errno));
}

static void open_runner(Daemon *d)
{
    d->runner = open(d->config->runner, O_PATH | O_CLOEXEC);
    if (d->runner < 0 && d->config->allow_exec) /* then each rank executes the path */
        log_warning("runner: %s: %s", d->config->runner, strerror(errno));
}

static int on_hangup(_unused_ sd_event_source *source, _unused_ const struct signalfd_siginfo *info,
                     void *userdata)
{
    Daemon *d = userdata;
    _cleanup_(config_clear) DaemonConfig fresh = {0};
    Error err = ERROR_INIT;
    status_reloading(d->manager);
    if (config_load(d->call, &fresh, &err) < 0) {
        log_error("configuration is not reloaded: %s", err.text);
    } else {
        config_reload(d->config, &fresh);
        if (strcmp(d->config->trainer, fresh.trainer) != 0) /* fresh holds the old values now */
            open_trainer(d);
        probes_reload(&d->probes);
        log_info("configuration reloaded NODE=%s", d->config->node);
        node_touch(&d->manager->node);
    }
    status_reloaded(d->manager);
    return 0;
}

/* Handles the end of children that no event source watches: the keeper, and orphans of ranks, which this process
 * gets as the subreaper. */
static int on_child(_unused_ sd_event_source *source, _unused_ const struct signalfd_siginfo *info,
                    void *userdata)
{
    Daemon *d = userdata;
    SlotTable *slots = &d->manager->workload.slots;
    for (;;) {
        siginfo_t child = {0};
        if (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) < 0 || child.si_pid == 0)
            break;
        if (probes_own(&d->probes, child.si_pid) || doctor_owns(&d->doctor, child.si_pid))
            break; /* an event source reaps this child; other children wait for the next signal */
        if (child.si_pid == d->keeper) {
            d->keeper = 0;
            log_warning("the keeper was killed; orphans will wait for the next sdtraind NODE=%s",
                        d->config->node);
        }
        Rank *rank = slots_rank_of_process(slots, child.si_pid);
        if (rank)
            rank_look(rank);
        else
            (void)waitid(P_PID, (id_t)child.si_pid, &child, WEXITED | WNOHANG); /* cannot fail */
        workload_collect(&d->manager->workload);
    }
    for (size_t i = 0; i < ELEMENTSOF(slots->of); i++) {
        if (slots->of[i] && slots->of[i]->process.exited)
            rank_look(slots->of[i]);
        workload_collect(&d->manager->workload);
    }
    return 0;
}

/* Blocks the signals before the first thread starts, so that all threads inherit the mask and the loop gets all
 * signals. */
static void block_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL); /* cannot fail with these arguments */
    (void)signal(SIGPIPE, SIG_IGN);
}

static int add_signals(Daemon *d, Error *err)
{
    static const struct {
        int signal;
        sd_event_signal_handler_t handler;
    } all[SIGNALS] = {{SIGTERM, on_terminate},
                      {SIGINT, on_terminate},
                      {SIGHUP, on_hangup},
                      {SIGCHLD, on_child}};
    for (size_t i = 0; i < SIGNALS; i++) {
        int r = sd_event_add_signal(d->event, &d->signals[i], all[i].signal, all[i].handler, d);
        if (r < 0)
            return error_errno(err, r, "cannot take signal %d", all[i].signal);
    }
    return 0;
}

/* ---- probes ---- */

static bool is_other_child(void *userdata, pid_t pid)
{
    const Daemon *d = userdata;
    return pid == d->keeper || probes_own(&d->probes, pid) || doctor_owns(&d->doctor, pid);
}

static void on_probe_began(void *userdata, const char *probe)
{
    Daemon *d = userdata;
    daemon_metrics_note_probe_start(d->metrics, probe);
}

static void on_probe_ended(void *userdata, const char *probe, HealthLevel level,
                           const char *outcome)
{
    Daemon *d = userdata;
    daemon_metrics_note_probe_end(d->metrics, probe, level, outcome);
}

static void on_judged(void *userdata, NodeVerdict verdict, uint64_t bad_slots, const char *evidence)
{
    Daemon *d = userdata;
    SlotGpus gpus = {.n = d->probes.gpus_answer ? (int)d->probes.gpus.n : 0};
    _Static_assert(sizeof(gpus.pci[0]) == PCI_ADDRESS_MAX, "one address");
    for (int i = 0; i < gpus.n; i++)
        memcpy(gpus.pci[i], d->probes.gpus.gpus[i].pci, PCI_ADDRESS_MAX);
    node_note_health(&d->manager->node, verdict, bad_slots, evidence, &gpus);
}

static void on_answer(void *userdata, const EtcdKeyValue *kv, const char *text)
{
    Daemon *d = userdata;
    requests_answer(d->etcd, kv, text);
}

static void on_health_settled(void *userdata)
{
    Daemon *d = userdata;
    drain_advance(d->manager);
}

static void init_probes(Daemon *d)
{
    const ProbesNeeds needs = {.config = d->config,
                               .event = d->event,
                               .timers = &d->timers,
                               .etcd = d->etcd,
                               .boot_id = d->boot_id,
                               .has_name = &d->manager->node.has_name,
                               .slots = &d->manager->workload.slots,
                               .userdata = d,
                               .began = on_probe_began,
                               .ended = on_probe_ended,
                               .judged = on_judged,
                               .answer = on_answer,
                               .record_settled = on_health_settled};
    probes_init(&d->probes, &needs);
}

static void on_report(void *userdata, const char *request, const char *report)
{
    Daemon *d = userdata;
    probes_note_report(&d->probes, request, report);
}

static void init_doctor(Daemon *d)
{
    const DoctorNeeds needs = {.config = d->config,
                               .timers = &d->timers,
                               .environment = environ,
                               .trainer = &d->trainer,
                               .cgroups = d->cgroups.path,
                               .userdata = d,
                               .told = on_report};
    doctor_init(&d->doctor, &needs);
}

/* ---- what the Manager needs from this process ---- */

static uint64_t memory_bytes(_unused_ void *userdata) { return machine_memory_bytes(); }

static int read_state_file(_unused_ void *userdata, const char *path, char **ret, size_t *ret_n,
                           Error *err)
{
    return file_read(path, STATE_MAX, ret, ret_n, err);
}

static int write_state_file(void *userdata, const char *path, const char *text, Error *err)
{
    const Daemon *d = userdata;
    int r = folder_make(d->config->state_dir, err);
    return r < 0 ? r : file_write(path, text, strlen(text), 0, err);
}

static void on_check(void *userdata, const EtcdKeyValue *request, bool clear)
{
    Daemon *d = userdata;
    probes_request(&d->probes, request, clear);
}

static void on_doctor(void *userdata, const RequestRecord *request)
{
    Daemon *d = userdata;
    doctor_request(&d->doctor, request);
}

static void leave_health(void *userdata)
{
    Daemon *d = userdata;
    probes_leave(&d->probes);
}

static bool is_health_written(void *userdata)
{
    const Daemon *d = userdata;
    return !d->probes.post;
}

/* ---- events of the Manager ---- */

static void on_registered(void *userdata)
{
    Daemon *d = userdata;
    status_ready(d->manager);
    /* health/<node> is not written before the node has its name. */
    health_record_update(&d->probes, false);
}

static void on_draining(void *userdata)
{
    const Daemon *d = userdata;
    status_stopping(d->manager);
}

static void on_ticked(void *userdata, uint64_t now_usec)
{
    Daemon *d = userdata;
    status_update(&d->status, d->manager, now_usec);
}

static void on_ended(void *userdata)
{
    Daemon *d = userdata;
    (void)sd_event_exit(d->event, 0); /* fails only if the loop is exiting already */
}

static void on_lease_changed(void *userdata, bool renewed)
{
    Daemon *d = userdata;
    daemon_metrics_note_lease(d->metrics, renewed);
}

static void on_fenced(void *userdata)
{
    Daemon *d = userdata;
    daemon_metrics_note_fence(d->metrics);
}

static void on_commit_decided(void *userdata, const char *job, bool committed)
{
    Daemon *d = userdata;
    daemon_metrics_note_commit(d->metrics, job, committed);
}

static void on_rank_started(void *userdata, const Rank *rank)
{
    Daemon *d = userdata;
    daemon_metrics_note_start(d->metrics, rank);
}

static void on_rank_ended(void *userdata, const Rank *rank, const ExitVerdict *verdict)
{
    Daemon *d = userdata;
    daemon_metrics_note_exit(d->metrics, rank, verdict);
}

static void on_rank_stepped(void *userdata, Rank *rank, const ChannelMessage *step)
{
    Daemon *d = userdata;
    daemon_metrics_note_step(d->metrics, rank, step);
}

static void on_rank_saved(void *userdata, Rank *rank, const ChannelMessage *saved)
{
    Daemon *d = userdata;
    daemon_metrics_note_saved(d->metrics, rank, saved);
}

static void on_job_forgotten(void *userdata, const char *job)
{
    Daemon *d = userdata;
    daemon_metrics_forget_job(d->metrics, job);
}

/* ---- start, run and end ---- */

/* Programs of another user end with the connection of the sdtraind that has started them. */
static int await_hosted_programs(const DaemonConfig *c, Error *err)
{
    int r = cgroup_await_empty(c->exec_slice, 0);
    if (r == -ETIMEDOUT) {
        log_info("waiting for the end of programs that an earlier sdtraind has started, in %s "
                 "NODE=%s",
                 c->exec_slice, c->node);
        r = cgroup_await_empty(c->exec_slice, HOSTED_END_MSEC);
    }
    if (r == -ETIMEDOUT)
        return error_set(
            err, r,
            "programs that an earlier sdtraind has started still live in %s: systemctl "
            "status 'sdtrain-exec@*'",
            c->exec_slice);
    if (r < 0)
        log_warning("exec_slice: %s: %s; what an earlier sdtraind has started may live on",
                    c->exec_slice, strerror(-r));
    return 0;
}

/* Does what must happen before the first thread starts: takes the lock, starts the keeper, and ends
 * what an earlier sdtraind has left. */
static int prepare(Daemon *d, Error *err)
{
    const DaemonConfig *c = d->config;
    int r = orphans_lock(c->run_dir, &d->lock, err);
    if (r == 0)
        r = folder_make(c->log_dir, err);
    if (r < 0)
        return r;
    if (c->cgroup == CGROUP_AUTO) {
        Error why = ERROR_INIT;
        if (cgroup_open(&d->cgroups, c->run_dir, &why) < 0)
            log_info("%s; process groups must do NODE=%s", why.text, c->node);
    }
    /* The keeper starts before orphans_clear(): if this process dies meanwhile, the keeper ends the other orphans. */
    r = orphans_keep(c->run_dir, &d->cgroups, &d->sessions, &d->keeper, err);
    if (r == 0)
        r = orphans_clear(c->run_dir, &d->cgroups, err);
    if (r == 0 && *d->cgroups.path)
        r = cgroup_open(&d->cgroups, c->run_dir, err); /* orphans_clear() has removed the folder */
    if (r == 0 && *c->exec_user)
        r = await_hosted_programs(c, err);
    if (r < 0)
        return r;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return error_errno(err, -errno, "cannot become the reaper of orphans");
    return 0;
}

static int open_loop(Daemon *d, Error *err)
{
    int r = sd_event_new(&d->event);
    if (r < 0)
        return error_errno(err, r, "cannot make an event loop");
    d->timers = (Timers){.event = d->event, .failed = daemon_fail, .userdata = d};
    (void)sd_event_set_watchdog(d->event, true); /* no effect unless systemd requests a watchdog */
    return add_signals(d, err);
}

static int open_etcd(Daemon *d, Error *err)
{
    const EtcdOptions options = etcd_settings_options(&d->config->etcd);
    return etcd_new(d->event, &options, &d->etcd, err);
}

static void make_manager(Daemon *d)
{
    d->ranks =
        (RankNeeds){.process = {.event = d->event, .cgroups = &d->cgroups, .sessions = d->sessions},
                    .environment = environ,
                    .trainer = &d->trainer,
                    .runner = &d->runner,
                    .is_other_child = is_other_child,
                    .userdata = d};
    const ManagerNeeds needs = {.config = d->config,
                                .timers = &d->timers,
                                .etcd = d->etcd,
                                .ranks = &d->ranks,
                                .boot_id = d->boot_id,
                                .is_probed = &d->probes.is_ready,
                                .incarnation = d->incarnation,
                                .userdata = d,
                                .memory_bytes = memory_bytes,
                                .read_file = read_state_file,
                                .write_file = write_state_file,
                                .check = on_check,
                                .doctor = on_doctor,
                                .leave_health = leave_health,
                                .is_health_written = is_health_written};
    const ManagerEvents events = {.userdata = d,
                                  .registered = on_registered,
                                  .draining = on_draining,
                                  .ticked = on_ticked,
                                  .ended = on_ended,
                                  .failed = daemon_fail,
                                  .lease_changed = on_lease_changed,
                                  .fenced = on_fenced,
                                  .commit_decided = on_commit_decided,
                                  .rank_started = on_rank_started,
                                  .rank_ended = on_rank_ended,
                                  .rank_stepped = on_rank_stepped,
                                  .rank_saved = on_rank_saved,
                                  .job_forgotten = on_job_forgotten};
    d->manager = manager_new(&needs, &events);
}

static int start(Daemon *d, Error *err)
{
    int r = machine_read_boot_id(d->boot_id, err);
    if (r == 0)
        r = open_etcd(d, err);
    if (r < 0)
        return r;
    make_manager(d);
    r = daemon_metrics_open(d->manager, d->event, &d->metrics, err);
    if (r < 0)
        return r;
    init_probes(d);
    init_doctor(d);
    r = manager_start(d->manager, err);
    if (r == 0)
        probes_start(&d->probes);
    return r;
}

static int run(Daemon *d, Error *err)
{
    int r = sd_event_loop(d->event);
    history_save(&d->manager->history);
    if (d->manager->history_is_over)
        return -ERESTART;
    if (d->error.code != 0)
        *err = d->error;
    else if (r < 0)
        (void)error_errno(err, r, "the event loop failed"); /* err is returned below */
    return r;
}

static void end(Daemon *d)
{
    bool leaves_nothing = d->manager && manager_leaves_nothing(d->manager);
    probes_clear(&d->probes);
    doctor_clear(&d->doctor);
    d->manager = manager_free(d->manager);
    d->etcd = etcd_free(d->etcd);
    d->metrics = daemon_metrics_free(d->metrics);
    for (size_t i = 0; i < SIGNALS; i++)
        d->signals[i] = sd_event_source_disable_unref(d->signals[i]);
    d->event = sd_event_unref(d->event);
    Error err = ERROR_INIT;
    int r = cgroup_destroy(&d->cgroups, &err);
    if (r < 0)
        log_warning("%s", err.text);
    if (r == 0 && leaves_nothing && d->keeper > 0) { /* nothing is left for the keeper */
        (void)kill(d->keeper, SIGKILL);
        (void)waitpid(d->keeper, NULL, 0);
    }
    d->lock = fd_close(d->lock);
    d->trainer = fd_close(d->trainer);
    d->runner = fd_close(d->runner);
}

/* Returns 0 after an orderly end, -ERESTART if sdtraind must execute itself again, or another error. */
static int serve(const SettingsCall *call, DaemonConfig *config, Error *err)
{
    /* Limits malloc: each of gRPC's threads would otherwise get an arena of its own. */
    (void)mallopt(M_ARENA_MAX, 2);
    (void)mallopt(M_TRIM_THRESHOLD, 256 * 1024);
    block_signals();
    log_set_field("NODE", config->node);

    static Daemon d;
    d = (Daemon){.call = call,
                 .config = config,
                 .incarnation = clock_realtime_usec(),
                 .status = {.started_usec = clock_boottime_usec()},
                 .lock = -EBADF,
                 .trainer = -EBADF,
                 .runner = -EBADF,
                 .probes = {.kernel = {.fd = -EBADF}},
                 .doctor = {.pidfd = -EBADF, .output = -EBADF}};
    open_trainer(&d);
    open_runner(&d);
    int r = prepare(&d, err);
    if (r == 0)
        r = open_loop(&d, err);
    if (r == 0)
        r = start(&d, err);
    if (r == 0)
        r = run(&d, err);
    end(&d);
    return r;
}

/* Runs one probe, for an operator or for the daemon. The result goes to standard output, an error to standard error;
 * the daemon reads both. */
static int probe(const SettingsCall *call, const DaemonConfig *config, Error *err)
{
    int r = probes_run_one(config, call->own, err);
    if (r < 0)
        fprintf(stderr, "%s\n", err->text);
    return r < 0 ? 1 : 0;
}

/* Executes sdtraind again, as a new incarnation that uses no state of the present incarnation. The slots are empty, and
 * the exec closes all our descriptors. */
static int begin_anew(char *argv[], Error *err)
{
    (void)execv("/proc/self/exe", argv);
    return error_errno(err, -errno, "cannot begin anew");
}

int main(int argc, char *argv[])
{
    log_open("sdtraind");
    log_use_journal(sd_journal_sendv);
    Error err = ERROR_INIT;
    _cleanup_(settings_call_clear) SettingsCall call = {0};
    _cleanup_(config_clear) DaemonConfig config = {0};
    int r = fault_open(&err);
    if (r == 0)
        r = config_parse_arguments(argc, argv, &call, &err);
    if (r == -ECANCELED)
        return 0;
    /* A probe's child gets its settings from the daemon. */
    if (r == 0 && !(call.own && probes_is_child()))
        r = config_load(&call, &config, &err);
    if (r < 0) {
        log_error("%s", err.text);
        return 2;
    }
    if (call.check) {
        printf("%s: good\n", call.file ? call.file : "command line");
        return 0;
    }
    if (call.own)
        return probe(&call, &config, &err);
    r = serve(&call, &config, &err);
    if (r == -ERESTART)
        r = begin_anew(argv, &err);
    if (r < 0)
        log_error("%s", err.text);
    return r < 0 ? 1 : 0;
}
