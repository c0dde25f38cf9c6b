/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - see metrics.h. */
#include "daemon/metrics.h"

#include "base/clock.h"
#include "base/memory.h"
#include "daemon/node/manager.h"
#include "daemon/world/local-world.h"
#include "daemon/world/rank.h"
#include "metrics/exporter.h"
#include "protocol/exit-code.h"

#include <string.h>

enum {
    VERDICT,
    REGISTERED,
    DRAINING,
    FENCED,
    FENCES,
    SLOTS,
    SLOTS_LOST,
    ETCD_SILENCE,
    LEASE_TTL,
    LEASE_LEFT,
    LEASE_RENEWALS,
    LEASE_LOSSES,
    PROBE_LEVEL,
    PROBE_TIME,
    PROBE_SECONDS,
    PROBE_RUNS,
    RANKS,
    RANK_STEP,
    RANK_STARTS,
    RANK_EXITS,
    TRAINER_STEP,
    TRAINER_LOSS,
    TRAINER_STEP_SECONDS,
    TRAINER_DATA_SECONDS,
    SAVE_SECONDS,
    SAVE_BLOCKED_SECONDS,
    SAVE_BYTES,
    SAVE_FAILURES,
    COMMITS,
    STORE_SECONDS,
    FAMILIES,
};

static const double step_bounds[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                     2,    3,     5,    10,  30,   60,  300};
static const double save_bounds[] = {0.01, 0.05, 0.1, 0.5, 1,   2,   5,
                                     10,   30,   60,  120, 300, 600, 1800};

#define STEPS .bounds = step_bounds, .n_bounds = ELEMENTSOF(step_bounds)
#define SAVES .bounds = save_bounds, .n_bounds = ELEMENTSOF(save_bounds)
/* The label is not "job": Prometheus uses that name for a set of targets. */
#define OF_JOB .labels = {"job_name"}

static const MetricFamily families[FAMILIES] = {
    [VERDICT] = {"sdtrain_node_verdict", METRIC_GAUGE, "1 for the verdict of the node's probes.",
                 .labels = {"verdict"}},
    [REGISTERED] = {"sdtrain_node_registered", METRIC_GAUGE,
                    "Whether this node's record is in etcd under its lease, as far as is known.",
                    .labels = {NULL}},
    [DRAINING] = {"sdtrain_node_draining", METRIC_GAUGE, "Whether sdtraind was told to stop.",
                  .labels = {NULL}},
    [FENCED] = {"sdtrain_node_fenced", METRIC_GAUGE,
                "Whether the ranks were stopped because etcd was silent for fence_sec.",
                .labels = {NULL}},
    [FENCES] = {"sdtrain_node_fences_total", METRIC_COUNTER, "How often that happened.",
                .labels = {NULL}},
    [SLOTS] = {"sdtrain_node_slots", METRIC_GAUGE, "Slots of this node.", .labels = {NULL}},
    [SLOTS_LOST] = {"sdtrain_node_slots_lost", METRIC_GAUGE,
                    "Slots that hold a process which survives SIGKILL.", .labels = {NULL}},
    [ETCD_SILENCE] = {"sdtrain_etcd_silence_seconds", METRIC_GAUGE,
                      "Since etcd last answered this node.", .labels = {NULL}},
    [LEASE_TTL] = {"sdtrain_lease_ttl_seconds", METRIC_GAUGE, "Time that a renewal buys.",
                   .labels = {NULL}},
    [LEASE_LEFT] = {"sdtrain_lease_remaining_seconds", METRIC_GAUGE,
                    "Until the node's lease ends unless it is renewed; below 0 it may have ended.",
                    .labels = {NULL}},
    [LEASE_RENEWALS] = {"sdtrain_lease_renewals_total", METRIC_COUNTER,
                        "Acknowledged renewals of the node's lease.", .labels = {NULL}},
    [LEASE_LOSSES] = {"sdtrain_lease_losses_total", METRIC_COUNTER,
                      "Leases that etcd said are gone.", .labels = {NULL}},
    [PROBE_LEVEL] =
        {"sdtrain_probe_level", METRIC_GAUGE,
         "Worst finding of the probe's last answer: 0 ok, 1 suspect, 2 drain, 3 isolate.",
         .labels = {"probe"}},
    [PROBE_TIME] = {"sdtrain_probe_timestamp_seconds", METRIC_GAUGE, "When the probe last ended.",
                    .labels = {"probe"}},
    [PROBE_SECONDS] = {"sdtrain_probe_seconds", METRIC_GAUGE, "How long its last run took.",
                       .labels = {"probe"}},
    [PROBE_RUNS] = {"sdtrain_probe_runs_total", METRIC_COUNTER,
                    "Runs of the probe: answered, failed (could not find out), hung.",
                    .labels = {"probe", "outcome"}},
    [RANKS] = {"sdtrain_ranks", METRIC_GAUGE, "Ranks of this node's worlds by state.",
               .labels = {"job_name", "state"}},
    [RANK_STEP] = {"sdtrain_rank_step", METRIC_GAUGE, "Step that the rank last spoke of.",
                   .labels = {"job_name", "rank"}},
    [RANK_STARTS] = {"sdtrain_rank_starts_total", METRIC_COUNTER, "Trainers started.", OF_JOB},
    [RANK_EXITS] = {"sdtrain_rank_exits_total", METRIC_COUNTER,
                    "Trainers that ended, by the class of their exit; killed: by sdtraind.",
                    .labels = {"job_name", "reason"}},
    [TRAINER_STEP] = {"sdtrain_trainer_step", METRIC_GAUGE,
                      "Step that rank 0 last finished, where it is on this node.", OF_JOB},
    [TRAINER_LOSS] = {"sdtrain_trainer_loss", METRIC_GAUGE, "Loss of that step.", OF_JOB},
    [TRAINER_STEP_SECONDS] = {"sdtrain_trainer_step_seconds", METRIC_HISTOGRAM,
                              "Time of each step of rank 0.", STEPS, OF_JOB},
    [TRAINER_DATA_SECONDS] = {"sdtrain_trainer_data_wait_seconds", METRIC_SUMMARY,
                              "The part of each step that rank 0 waited for data.", OF_JOB},
    [SAVE_SECONDS] = {"sdtrain_checkpoint_save_seconds", METRIC_HISTOGRAM,
                      "From the copy of the state to the manifest being written.", SAVES, OF_JOB},
    [SAVE_BLOCKED_SECONDS] = {"sdtrain_checkpoint_blocked_seconds", METRIC_SUMMARY,
                              "The time that a save costs the training thread of rank 0.", OF_JOB},
    [SAVE_BYTES] = {"sdtrain_checkpoint_bytes_total", METRIC_COUNTER,
                    "Bytes of the checkpoints written, of all ranks.", OF_JOB},
    [SAVE_FAILURES] = {"sdtrain_checkpoint_save_failures_total", METRIC_COUNTER,
                       "Saves that could not be written.", OF_JOB},
    [COMMITS] = {"sdtrain_checkpoint_commits_total", METRIC_COUNTER,
                 "Checkpoints written that became part of the history, or not.",
                 .labels = {"job_name", "outcome"}},
    [STORE_SECONDS] = {"sdtrain_store_request_seconds", METRIC_SUMMARY,
                       "Requests of rank 0 to the checkpoints' store; a put's flush is part of it.",
                       .labels = {"job_name", "operation"}},
};

const MetricFamily *daemon_metrics_families(size_t *ret_n)
{
    *ret_n = FAMILIES;
    return families;
}

typedef struct ProbeRun {
    const char *name; /* NULL: the entry is free */
    HealthLevel level;
    /* When the last run began (boottime), when it ended (realtime; 0: no run has ended), and how long it took. */
    uint64_t started_usec, ended_usec, took_usec;
} ProbeRun;

struct DaemonMetrics {
    Exporter *exporter;
    Metrics *metrics;
    const Manager *manager;
    ProbeRun probes[PROBES_MAX];
};

static Metrics *metrics_of(const DaemonMetrics *d) { return d ? d->metrics : NULL; }

/* ---- gauges ---- */

static void collect_lease(Metrics *to, const Manager *m, uint64_t now_usec)
{
    metrics_set(to, ETCD_SILENCE, NO_LABELS,
                ((double)now_usec - (double)MIN(m->fence.contact_usec, now_usec)) * 1e-6);
    if (etcd_lease_id(m->lease) == 0)
        return;
    metrics_set(to, LEASE_TTL, NO_LABELS, (double)etcd_lease_ttl_sec(m->lease));
    metrics_set(to, LEASE_LEFT, NO_LABELS,
                ((double)etcd_lease_deadline_usec(m->lease) - (double)now_usec) * 1e-6);
}

static void collect_node(Metrics *to, const Manager *m)
{
    int n_lost = 0;
    for (int i = 0; i < RECORD_SLOTS_MAX; i++)
        n_lost += (int)(m->workload.slots.lost >> i & 1);
    for (size_t i = 0; i < ELEMENTSOF(node_verdict_names); i++)
        metrics_set(to, VERDICT, LABELS(node_verdict_names[i]), i == (size_t)m->node.verdict);
    metrics_set(to, REGISTERED, NO_LABELS, m->node.registered && etcd_lease_id(m->lease) != 0);
    metrics_set(to, DRAINING, NO_LABELS, m->draining);
    metrics_set(to, FENCED, NO_LABELS, m->fence.fenced);
    metrics_set(to, SLOTS, NO_LABELS, (double)m->needs.config->slots);
    metrics_set(to, SLOTS_LOST, NO_LABELS, n_lost);
}

static void collect_probes(Metrics *to, const DaemonMetrics *d)
{
    for (size_t i = 0; i < ELEMENTSOF(d->probes); i++) {
        const ProbeRun *run = &d->probes[i];
        if (!run->name || run->ended_usec == 0)
            continue;
        metrics_set(to, PROBE_LEVEL, LABELS(run->name), run->level);
        metrics_set(to, PROBE_TIME, LABELS(run->name), (double)run->ended_usec * 1e-6);
        metrics_set(to, PROBE_SECONDS, LABELS(run->name), (double)run->took_usec * 1e-6);
    }
}

static void collect_local_world(Metrics *to, const LocalWorld *local)
{
    const char *job = local->job->name;
    int n[ELEMENTSOF(rank_state_names)] = {0};
    for (size_t i = 0; i < local->n_local_ranks; i++) {
        const RankReport *report = &local->local_ranks[i].report;
        char rank[16];
        (void)snprintf(rank, sizeof(rank), "%d", report->rank);
        n[report->state]++;
        metrics_set(to, RANK_STEP, LABELS(job, rank), (double)report->step);
    }
    for (size_t i = 0; i < ELEMENTSOF(rank_state_names); i++)
        metrics_set(to, RANKS, LABELS(job, rank_state_names[i]), n[i]);
    const ProgressRecord *progress = &local->progress.record;
    if (progress->at_usec == 0)
        return;
    metrics_set(to, TRAINER_STEP, LABELS(job), (double)progress->step);
    metrics_set(to, TRAINER_LOSS, LABELS(job), progress->loss);
}

static unsigned collect_daemon(Metrics *to, void *userdata)
{
    const DaemonMetrics *d = userdata;
    const Manager *m = d->manager;
    collect_node(to, m);
    collect_lease(to, m, clock_boottime_usec());
    collect_probes(to, d);
    for (const LocalJob *job = m->workload.jobs; job; job = job->next)
        if (job->local)
            collect_local_world(to, job->local);
    return 0;
}

static bool is_daemon_healthy(char text[EXPORTER_HEALTH_BYTES], void *userdata)
{
    const DaemonMetrics *d = userdata;
    const Manager *m = d->manager;
    bool registered = m->node.registered && etcd_lease_id(m->lease) != 0;
    (void)snprintf(text, EXPORTER_HEALTH_BYTES, "%s as %s in cluster %s\nverdict: %s\n%s%s",
                   registered ? "registered" : "not registered", m->needs.config->node,
                   m->needs.config->cluster, *m->node.evidence ? m->node.evidence : "healthy",
                   m->fence.fenced ? "fenced: no word from etcd for fence_sec\n" : "",
                   m->draining ? "draining\n" : "");
    return registered && !m->fence.fenced;
}

/* ---- events ---- */

void daemon_metrics_note_lease(DaemonMetrics *d, bool renewed)
{
    metrics_add(metrics_of(d), renewed ? LEASE_RENEWALS : LEASE_LOSSES, NO_LABELS, 1);
}

void daemon_metrics_note_fence(DaemonMetrics *d)
{
    metrics_add(metrics_of(d), FENCES, NO_LABELS, 1);
}

static ProbeRun *probe_run(DaemonMetrics *d, const char *name)
{
    for (size_t i = 0; d && i < ELEMENTSOF(d->probes); i++) {
        ProbeRun *run = &d->probes[i];
        if (!run->name)
            run->name = name;
        if (strcmp(run->name, name) == 0)
            return run;
    }
    return NULL;
}

void daemon_metrics_note_probe_start(DaemonMetrics *d, const char *probe)
{
    ProbeRun *run = probe_run(d, probe);
    if (run)
        run->started_usec = clock_boottime_usec();
}

void daemon_metrics_note_probe_end(DaemonMetrics *d, const char *probe, HealthLevel level,
                                   const char *outcome)
{
    ProbeRun *run = probe_run(d, probe);
    if (!run)
        return;
    run->level = level;
    run->took_usec = clock_boottime_usec() - run->started_usec;
    run->ended_usec = clock_realtime_usec();
    metrics_add(metrics_of(d), PROBE_RUNS, LABELS(probe, outcome), 1);
}

void daemon_metrics_note_start(DaemonMetrics *d, const Rank *rank)
{
    Metrics *to = metrics_of(d);
    metrics_add(to, RANK_STARTS, LABELS(rank->job), 1);
    if (rank->rank == 0)
        metrics_know(to, SAVE_FAILURES, LABELS(rank->job));
}

void daemon_metrics_note_exit(DaemonMetrics *d, const Rank *rank, const ExitVerdict *verdict)
{
    const char *reason = verdict->hung                         ? "hang"
                         : rank->killing && !rank->words.error ? "killed"
                                                               : exit_code_class(verdict->code);
    metrics_add(metrics_of(d), RANK_EXITS, LABELS(rank->job, reason), 1);
}

void daemon_metrics_note_step(DaemonMetrics *d, Rank *rank, const ChannelMessage *step)
{
    Metrics *to = metrics_of(d);
    const MetricLabels job = LABELS(rank->job);
    metrics_observe(to, TRAINER_STEP_SECONDS, job, step->step_sec);
    metrics_observe_sum(to, TRAINER_DATA_SECONDS, job, step->data_sec, 1);
    /* The trainer reports its failed saves since its start; the counter gets the difference. */
    metrics_add(to, SAVE_FAILURES, job, (double)MAX(step->failed_saves - rank->failed_saves, 0));
    rank->failed_saves = step->failed_saves;
}

void daemon_metrics_note_saved(DaemonMetrics *d, Rank *rank, const ChannelMessage *saved)
{
    Metrics *to = metrics_of(d);
    const MetricLabels job = LABELS(rank->job);
    metrics_observe(to, SAVE_SECONDS, job, saved->write_sec);
    metrics_observe_sum(to, SAVE_BLOCKED_SECONDS, job, saved->blocked_sec, 1);
    metrics_add(to, SAVE_BYTES, job, (double)MAX(saved->saved_bytes, 0));
    const ChannelStoreUse *now = &saved->store, *before = &rank->store_use;
    metrics_observe_sum(to, STORE_SECONDS, LABELS(rank->job, "put"),
                        MAX(now->put_sec - before->put_sec, 0),
                        (uint64_t)MAX(now->puts - before->puts, 0));
    metrics_observe_sum(to, STORE_SECONDS, LABELS(rank->job, "get"),
                        MAX(now->get_sec - before->get_sec, 0),
                        (uint64_t)MAX(now->gets - before->gets, 0));
    rank->store_use = *now;
}

void daemon_metrics_note_commit(DaemonMetrics *d, const char *job, bool committed)
{
    metrics_add(metrics_of(d), COMMITS, LABELS(job, committed ? "committed" : "refused"), 1);
}

void daemon_metrics_forget_job(DaemonMetrics *d, const char *job)
{
    metrics_forget(metrics_of(d), "job_name", job);
}

/* ---- opening and closing ---- */

int daemon_metrics_open(const Manager *m, sd_event *event, DaemonMetrics **ret, Error *err)
{
    *ret = NULL;
    if (!*m->needs.config->metrics)
        return 0;
    DaemonMetrics *d = memory_new(DaemonMetrics);
    d->manager = m;
    ExporterProgram program = {.name = "sdtraind",
                               .version = SDTRAIN_VERSION,
                               .families = families,
                               .n_families = FAMILIES,
                               .collect = collect_daemon,
                               .is_healthy = is_daemon_healthy,
                               .userdata = d};
    int r = exporter_new(event, m->needs.config->metrics, &program, &d->exporter, err);
    if (r < 0) {
        (void)daemon_metrics_free(d); /* always returns NULL */
        return r;
    }
    d->metrics = exporter_metrics(d->exporter);
    etcd_set_observer(m->needs.etcd, exporter_note_request, d->exporter);
    metrics_know(d->metrics, FENCES, NO_LABELS);
    metrics_know(d->metrics, LEASE_RENEWALS, NO_LABELS);
    metrics_know(d->metrics, LEASE_LOSSES, NO_LABELS);
    *ret = d;
    return 0;
}

DaemonMetrics *daemon_metrics_free(DaemonMetrics *d)
{
    if (!d)
        return NULL;
    d->exporter = exporter_free(d->exporter);
    free(d);
    return NULL;
}
