/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - see metrics.h. */
#include "controller/metrics.h"

#include "base/clock.h"
#include "base/memory.h"
#include "controller/core/step/survey.h"
#include "controller/live-page.h"
#include "controller/progress-curves.h"
#include "metrics/exporter.h"

#include <string.h>

enum { LEADER = 1, NAMED_NODES_MAX = 100, WRITES_AWAITED_MAX = 64 };

enum {
    LEADING,
    TERM,
    LEADERSHIPS,
    WATCH_CONNECTED,
    WATCH_LAG,
    RECORDS_DROPPED,
    DECISIONS,
    DECISION_SECONDS,
    WORLDS,
    JOB_PHASE,
    JOB_PHASE_SINCE,
    JOB_GENERATION,
    JOB_STEP,
    JOB_STEPS,
    JOB_FURTHEST_STEP,
    JOB_LOSS,
    JOB_SAMPLES,
    JOB_SAMPLES_PER_SECOND,
    JOB_STEP_SECONDS,
    JOB_GOODPUT,
    JOB_COST,
    JOB_COST_LOST,
    JOB_COST_RATE,
    JOB_WORLD_RANKS,
    JOB_WANTED_RANKS,
    JOB_RANKS,
    JOB_CHECKPOINT_STEP,
    JOB_CHECKPOINT_TIME,
    JOB_UNSAVED,
    JOB_DATA_WAIT,
    JOB_FAILURES,
    JOB_FAILURES_MAX,
    INCIDENTS,
    RECOVERY_SECONDS,
    RECOVERY_PHASE_SECONDS,
    NODES,
    NODE_VERDICTS,
    NODES_CORDONED,
    NODE_ABSENT,
    NODE_UNHEALTHY,
    NODE_CORDONED,
    NODES_HELD,
    SLOTS,
    SLOTS_FREE,
    SLOTS_LOST,
    SINK_MESSAGES,
    SINK_WAITING,
    SINK_FAILING,
    FAMILIES,
};

static const double recovery_bounds[] = {0.05, 0.1, 0.25, 0.5, 1,   2,   3,   5,
                                         10,   20,  30,   60,  120, 300, 600, 1800};

#define LATENCY .bounds = exporter_latency_bounds, .n_bounds = ELEMENTSOF(exporter_latency_bounds)
#define RECOVERY .bounds = recovery_bounds, .n_bounds = ELEMENTSOF(recovery_bounds)
/* The label is not "job", because that is Prometheus's name for a set of targets. */
#define OF_JOB .labels = {"job_name"}, .group = LEADER

static const MetricFamily families[FAMILIES] = {
    [LEADING] = {"sdtrain_controller_leading", METRIC_GAUGE, "Whether this controller leads.",
                 .labels = {NULL}},
    [TERM] = {"sdtrain_controller_term", METRIC_GAUGE,
              "Create revision of the leader's key; 0 while following.", .labels = {NULL}},
    [LEADERSHIPS] = {"sdtrain_controller_leaderships_total", METRIC_COUNTER,
                     "How often this process has become the leader.", .labels = {NULL}},
    [WATCH_CONNECTED] = {"sdtrain_watch_connected", METRIC_GAUGE,
                         "Whether the watch on the cluster's records is up and has caught up.",
                         .labels = {NULL}},
    [WATCH_LAG] = {"sdtrain_watch_lag_seconds", METRIC_HISTOGRAM,
                   "From the answer to a write of this controller to the watch's showing it.",
                   LATENCY},
    [RECORDS_DROPPED] = {"sdtrain_records_dropped_total", METRIC_COUNTER,
                         "Records that did not fit max_nodes, max_jobs or incidents_kept.",
                         .labels = {NULL}},
    [DECISIONS] = {"sdtrain_decisions_total", METRIC_COUNTER,
                   "Decisions taken to etcd as a guarded transaction, by outcome.",
                   .labels = {"outcome"}},
    [DECISION_SECONDS] = {"sdtrain_decision_seconds", METRIC_HISTOGRAM,
                          "From a decision to the store's answer.", LATENCY},
    [WORLDS] =
        {"sdtrain_worlds_total", METRIC_COUNTER,
         "Worlds that this process has decided: start, recovery, or resize (growth, stop and "
         "start again).",
         .labels = {"job_name", "why"}, .group = LEADER},
    [JOB_PHASE] = {"sdtrain_job_phase", METRIC_GAUGE, "1 for the phase that the job is in.",
                   .labels = {"job_name", "phase"}, .group = LEADER},
    [JOB_PHASE_SINCE] = {"sdtrain_job_phase_timestamp_seconds", METRIC_GAUGE,
                         "When the job's phase record was last written.", OF_JOB},
    [JOB_GENERATION] = {"sdtrain_job_generation", METRIC_GAUGE, "Number of the job's world.",
                        OF_JOB},
    [JOB_STEP] = {"sdtrain_job_step", METRIC_GAUGE,
                  "Step that was last reported; goes back when a recovery does.", OF_JOB},
    [JOB_STEPS] = {"sdtrain_job_steps", METRIC_GAUGE, "Steps that the job shall have.", OF_JOB},
    [JOB_FURTHEST_STEP] = {"sdtrain_job_furthest_step", METRIC_GAUGE,
                           "Furthest step that was ever completed.", OF_JOB},
    [JOB_LOSS] = {"sdtrain_job_loss", METRIC_GAUGE, "Loss of that step.", OF_JOB},
    [JOB_SAMPLES] =
        {"sdtrain_job_samples_seen", METRIC_GAUGE,
         "Position: samples that the weights have seen; goes back when a recovery does.", OF_JOB},
    [JOB_SAMPLES_PER_SECOND] = {"sdtrain_job_samples_per_second", METRIC_GAUGE,
                                "Speed of the last steps; 0 while the job does not run.", OF_JOB},
    [JOB_STEP_SECONDS] = {"sdtrain_job_step_seconds", METRIC_GAUGE, "Time of the last step.",
                          OF_JOB},
    [JOB_GOODPUT] = {"sdtrain_job_goodput_ratio", METRIC_GAUGE,
                     "Training time that counts by the time since the job's first world.", OF_JOB},
    [JOB_COST] =
        {"sdtrain_job_cost_dollars_total", METRIC_COUNTER,
         "The cost of the job's slots so far, by the setting prices; absent without prices.",
         OF_JOB},
    [JOB_COST_LOST] = {"sdtrain_job_cost_lost_dollars_total", METRIC_COUNTER,
                       "The part of it that failures have cost.", OF_JOB},
    [JOB_COST_RATE] = {"sdtrain_job_cost_dollars_per_hour", METRIC_GAUGE,
                       "The cost of the job's slots now; 0 while it holds none.", OF_JOB},
    [JOB_WORLD_RANKS] = {"sdtrain_job_world_ranks", METRIC_GAUGE,
                         "Ranks of the present world; 0 without one.", OF_JOB},
    [JOB_WANTED_RANKS] = {"sdtrain_job_wanted_ranks", METRIC_GAUGE,
                          "Ranks that it would have if there were slots.", OF_JOB},
    [JOB_RANKS] = {"sdtrain_job_ranks", METRIC_GAUGE, "Ranks of the present world by state.",
                   .labels = {"job_name", "state"}, .group = LEADER},
    [JOB_CHECKPOINT_STEP] = {"sdtrain_job_checkpoint_step", METRIC_GAUGE,
                             "Step of the newest committed checkpoint that is not struck out.",
                             OF_JOB},
    [JOB_CHECKPOINT_TIME] = {"sdtrain_job_checkpoint_timestamp_seconds", METRIC_GAUGE,
                             "When it was committed.", OF_JOB},
    [JOB_UNSAVED] = {"sdtrain_job_unsaved_timestamp_seconds", METRIC_GAUGE,
                     "Since when the job's checkpoints fail; 0: they do not.", OF_JOB},
    [JOB_DATA_WAIT] = {"sdtrain_job_data_wait_timestamp_seconds", METRIC_GAUGE,
                       "Since when its ranks wait for data; 0: they do not, or not for long.",
                       OF_JOB},
    [JOB_FAILURES] = {"sdtrain_job_failures_without_progress", METRIC_GAUGE,
                      "Worlds in a row that ended without passing the furthest step.", OF_JOB},
    [JOB_FAILURES_MAX] = {"sdtrain_job_failures_without_progress_max", METRIC_GAUGE,
                          "So many of them end the job.", OF_JOB},
    [INCIDENTS] = {"sdtrain_incidents_total", METRIC_COUNTER,
                   "Incidents by cause, from the records in etcd. The job is empty for the "
                   "cluster's own.",
                   .labels = {"job_name", "cause"}, .group = LEADER},
    [RECOVERY_SECONDS] = {"sdtrain_recovery_seconds", METRIC_HISTOGRAM,
                          "From a fault to the first step that the next world completed.", RECOVERY,
                          OF_JOB},
    [RECOVERY_PHASE_SECONDS] = {"sdtrain_recovery_phase_seconds", METRIC_HISTOGRAM,
                                "The phases into which a recovery's time went.", RECOVERY,
                                .labels = {"job_name", "phase"}, .group = LEADER},
    [NODES] = {"sdtrain_nodes", METRIC_GAUGE, "Nodes by state.", .labels = {"state"},
               .group = LEADER},
    [NODE_VERDICTS] = {"sdtrain_node_verdicts", METRIC_GAUGE,
                       "Nodes that are up, by their health's verdict.", .labels = {"verdict"},
                       .group = LEADER},
    [NODES_CORDONED] = {"sdtrain_nodes_cordoned", METRIC_GAUGE,
                        "Nodes that get no rank, by how they were cordoned.", .labels = {"mode"},
                        .group = LEADER},
    [NODE_ABSENT] = {"sdtrain_node_absent", METRIC_GAUGE,
                     "1 for each node that vanished without taking leave; the first 100.",
                     .labels = {"node"}, .group = LEADER},
    [NODE_UNHEALTHY] = {"sdtrain_node_unhealthy", METRIC_GAUGE,
                        "1 for each node whose verdict is not healthy; the first 100.",
                        .labels = {"node", "verdict"}, .group = LEADER},
    [NODE_CORDONED] = {"sdtrain_node_cordoned", METRIC_GAUGE,
                       "1 for each node that is cordoned; the first 100.",
                       .labels = {"node", "mode"}, .group = LEADER},
    [NODES_HELD] = {"sdtrain_nodes_vanished_hold", METRIC_GAUGE,
                    "1 while many nodes have vanished at once and no absence is acted upon.",
                    .group = LEADER},
    [SLOTS] = {"sdtrain_slots", METRIC_GAUGE, "Slots of the nodes that are there.",
               .group = LEADER},
    [SLOTS_FREE] = {"sdtrain_slots_free", METRIC_GAUGE, "Slots that a new job could take.",
                    .group = LEADER},
    [SLOTS_LOST] = {"sdtrain_slots_lost", METRIC_GAUGE,
                    "Slots that hold a process which survives SIGKILL.", .group = LEADER},
    [SINK_MESSAGES] = {"sdtrain_sink_messages_total", METRIC_COUNTER,
                       "Messages to a sink of pages by what came of them, since the alerts file "
                       "was read.",
                       .labels = {"sink", "outcome"}, .group = LEADER},
    [SINK_WAITING] = {"sdtrain_sink_pages_waiting", METRIC_GAUGE,
                      "Incidents whose present state the sink has not taken yet.",
                      .labels = {"sink"}, .group = LEADER},
    [SINK_FAILING] = {"sdtrain_sink_pages_failing", METRIC_GAUGE,
                      "Incidents among these of which the sink was notified in vain.",
                      .labels = {"sink"}, .group = LEADER},
};

const MetricFamily *controller_metrics_families(size_t *ret_n)
{
    *ret_n = FAMILIES;
    return families;
}

static const char *const outcomes[] = {"done", "refused", "unknown"}; /* indexed by Outcome */

/* A write of this controller that the watch has not shown yet. */
typedef struct AwaitedWrite {
    int64_t revision; /* 0: the place is free */
    uint64_t known_usec;
} AwaitedWrite;

struct ControllerMetrics {
    Exporter *exporter;
    Metrics *metrics;
    LivePages *pages;
    Seen *seen;
    uint64_t seen_usec; /* when this controller began to keep `seen` */
    char cluster[CLUSTER_NAME_MAX + 1];
    ControllerLook look;
    void *userdata;
    AwaitedWrite writes[WRITES_AWAITED_MAX];
    int64_t shown_revision;
};

/* ---- gauges ---- */

static double seconds_of(uint64_t usec) { return (double)usec * 1e-6; }

static void collect_progress(Metrics *m, const JobSurvey *j)
{
    const MetricLabels job = LABELS(j->name);
    metrics_set(m, JOB_STEP, job, (double)j->step);
    metrics_set(m, JOB_LOSS, job, j->loss);
    if (j->samples_seen > 0) { /* a program need not report them */
        metrics_set(m, JOB_SAMPLES, job, (double)j->samples_seen);
        metrics_set(m, JOB_SAMPLES_PER_SECOND, job, j->samples_per_sec);
    }
    metrics_set(m, JOB_STEP_SECONDS, job, j->step_sec);
    metrics_set(m, JOB_UNSAVED, job, seconds_of(j->unsaved_usec));
    metrics_set(m, JOB_DATA_WAIT, job, seconds_of(j->waits_usec));
}

static void collect_cost(Metrics *m, const JobSurvey *j)
{
    const MetricLabels job = LABELS(j->name);
    const CostMeter *cost = &j->cost;
    if (cost->since_usec == 0 && cost->spent == 0)
        return;
    metrics_set(m, JOB_COST, job, (double)cost->spent / COST_DOLLAR);
    metrics_set(m, JOB_COST_LOST, job, (double)cost->lost / COST_DOLLAR);
    metrics_set(m, JOB_COST_RATE, job,
                cost->since_usec ? (double)MIN(cost->rate, COST_RATE_MAX) / COST_DOLLAR : 0);
}

static void collect_job(Metrics *m, const JobSurvey *j)
{
    const MetricLabels job = LABELS(j->name);
    for (int phase = 0; phase < PHASE_COUNT; phase++)
        metrics_set(m, JOB_PHASE, LABELS(j->name, job_phase_name((JobPhase)phase)),
                    phase == (int)j->phase);
    for (int state = 0; state < (int)ELEMENTSOF(rank_state_names); state++)
        metrics_set(m, JOB_RANKS, LABELS(j->name, rank_state_names[state]), j->ranks[state]);
    metrics_set(m, JOB_PHASE_SINCE, job, seconds_of(j->phase_usec));
    metrics_set(m, JOB_GENERATION, job, (double)j->generation);
    metrics_set(m, JOB_STEPS, job, (double)j->steps);
    metrics_set(m, JOB_FURTHEST_STEP, job, (double)j->furthest_step);
    metrics_set(m, JOB_WORLD_RANKS, job, j->world_size);
    metrics_set(m, JOB_WANTED_RANKS, job, j->wanted_size);
    metrics_set(m, JOB_FAILURES, job, j->failures_without_progress);
    metrics_set(m, JOB_FAILURES_MAX, job, j->max_failures);
    if (j->has_progress)
        collect_progress(m, j);
    if (j->goodput >= 0)
        metrics_set(m, JOB_GOODPUT, job, j->goodput);
    collect_cost(m, j);
    if (j->has_checkpoint) {
        metrics_set(m, JOB_CHECKPOINT_STEP, job, (double)j->checkpoint_step);
        metrics_set(m, JOB_CHECKPOINT_TIME, job, seconds_of(j->checkpoint_usec));
    }
}

typedef struct NodeCounts {
    int up, left, absent, slots, lost_slots;
    int verdicts[ELEMENTSOF(node_verdict_names)], cordoned[ELEMENTSOF(cordon_mode_names)];
    int named_absent, named_unhealthy, named_cordoned;
} NodeCounts;

static void count_node(Metrics *m, NodeCounts *counts, const NodeSurvey *n)
{
    counts->up += n->up;
    counts->absent += n->absent;
    counts->left += !n->up && !n->absent;
    counts->slots += n->n_slots;
    counts->lost_slots += n->n_lost_slots;
    counts->verdicts[n->verdict] += n->up;
    counts->cordoned[n->mode] += n->cordoned;
    if (n->absent && counts->named_absent++ < NAMED_NODES_MAX)
        metrics_set(m, NODE_ABSENT, LABELS(n->name), 1);
    if (n->up && n->verdict != NODE_HEALTHY && counts->named_unhealthy++ < NAMED_NODES_MAX)
        metrics_set(m, NODE_UNHEALTHY, LABELS(n->name, node_verdict_names[n->verdict]), 1);
    if (n->cordoned && counts->named_cordoned++ < NAMED_NODES_MAX)
        metrics_set(m, NODE_CORDONED, LABELS(n->name, cordon_mode_names[n->mode]), 1);
}

static void collect_nodes(Metrics *m, Cluster *cluster)
{
    NodeCounts counts = {0};
    NodeSurvey node;
    for (int i = 0; cluster_survey_node(cluster, i, &node); i++)
        count_node(m, &counts, &node);
    metrics_set(m, NODES, LABELS("up"), counts.up);
    metrics_set(m, NODES, LABELS("left"), counts.left);
    metrics_set(m, NODES, LABELS("absent"), counts.absent);
    for (size_t i = 0; i < ELEMENTSOF(node_verdict_names); i++)
        metrics_set(m, NODE_VERDICTS, LABELS(node_verdict_names[i]), counts.verdicts[i]);
    for (size_t i = 1; i < ELEMENTSOF(cordon_mode_names); i++)
        metrics_set(m, NODES_CORDONED, LABELS(cordon_mode_names[i]), counts.cordoned[i]);
    metrics_set(m, NODES_HELD, NO_LABELS, cluster_hold_until(cluster) != 0);
    metrics_set(m, SLOTS, NO_LABELS, counts.slots);
    metrics_set(m, SLOTS_FREE, NO_LABELS, cluster_free_slots(cluster));
    metrics_set(m, SLOTS_LOST, NO_LABELS, counts.lost_slots);
}

static void collect_sinks(Metrics *m, const Sender *sender)
{
    SinkCounts counts;
    const char *name;
    for (int i = 0; sender_count(sender, i, &name, &counts) == 0; i++) {
        metrics_set(m, SINK_MESSAGES, LABELS(name, "accepted"), (double)counts.accepted);
        metrics_set(m, SINK_MESSAGES, LABELS(name, "again"), (double)counts.again);
        metrics_set(m, SINK_MESSAGES, LABELS(name, "refused"), (double)counts.refused);
        metrics_set(m, SINK_WAITING, LABELS(name), counts.waiting);
        metrics_set(m, SINK_FAILING, LABELS(name), counts.failing);
    }
}

static unsigned collect_controller(Metrics *m, void *userdata)
{
    ControllerMetrics *cm = userdata;
    ControllerView view = cm->look(cm->userdata);
    bool leads = view.leader.term != 0 && view.leader.loaded;
    metrics_set(m, LEADING, NO_LABELS, leads);
    metrics_set(m, TERM, NO_LABELS, (double)view.leader.term);
    metrics_set(m, WATCH_CONNECTED, NO_LABELS, view.leader.connected);
    metrics_set(m, RECORDS_DROPPED, NO_LABELS, (double)cluster_dropped(view.leader.cluster));
    if (!leads)
        return 0;
    JobSurvey job;
    for (int i = 0; cluster_survey_job(view.leader.cluster, i, &job); i++)
        collect_job(m, &job);
    collect_nodes(m, view.leader.cluster);
    collect_sinks(m, view.sender);
    return LEADER;
}

static bool is_controller_healthy(char text[EXPORTER_HEALTH_BYTES], void *userdata)
{
    ControllerMetrics *cm = userdata;
    ControllerView view = cm->look(cm->userdata);
    (void)snprintf(text, EXPORTER_HEALTH_BYTES, "%s\n%s\n%s\n",
                   !view.leader.loaded ? "the cluster has not been read yet"
                                       : "the cluster has been read",
                   view.leader.connected ? "etcd: the watch is up" : "etcd: the watch is down",
                   view.leader.term ? "leading" : "following");
    return view.leader.loaded && view.leader.connected;
}

/* ---- events ---- */

static void observe_phase(Metrics *m, const IncidentRecord *record, const char *phase, double sec)
{
    if (sec >= 0) /* a negative number means that the duration is unknown */
        metrics_observe(m, RECOVERY_PHASE_SECONDS, LABELS(record->job, phase), sec);
}

/* Counts each figure of an incident when the figure first appears. before: the incident as it was last seen; NULL: the
 * incident is new. */
static void note_incident(Metrics *m, const IncidentRecord *before, const IncidentRecord *now)
{
    if (!before)
        metrics_add(m, INCIDENTS, LABELS(now->job, now->cause), 1);
    bool was_resolved = before && before->state == INCIDENT_RESOLVED;
    if (now->state == INCIDENT_RESOLVED && !was_resolved) {
        observe_phase(m, now, "detect", now->detect_sec);
        observe_phase(m, now, "decide", now->decide_sec);
        observe_phase(m, now, "stop", now->stop_sec);
        observe_phase(m, now, "start", now->start_sec);
        observe_phase(m, now, "restore", now->restore_sec);
        if (now->first_step_usec > now->at_usec)
            metrics_observe(m, RECOVERY_SECONDS, LABELS(now->job),
                            seconds_of(now->first_step_usec - now->at_usec));
    }
    if (now->replay_sec >= 0 && !(before && before->replay_sec >= 0))
        observe_phase(m, now, "replay", now->replay_sec);
}

static void note_job(Metrics *m, const char *name)
{
    const char *cause;
    for (int i = 0; (cause = cluster_cause(i)); i++)
        metrics_know(m, INCIDENTS, LABELS(name, cause));
    metrics_know(m, WORLDS, LABELS(name, "start"));
    metrics_know(m, WORLDS, LABELS(name, "recovery"));
    metrics_know(m, WORLDS, LABELS(name, "resize"));
    metrics_know(m, RECOVERY_SECONDS, LABELS(name));
}

void controller_metrics_note_event(ControllerMetrics *cm, const Cluster *cluster,
                                   const Event *event)
{
    if (!cm)
        return;
    curves_note(cm->seen, event);
    if (event->kind == EVENT_INCIDENT && event->record)
        note_incident(cm->metrics, cluster_find_incident(cluster, event->name), event->incident);
    else if (event->kind == EVENT_SPEC && event->record)
        note_job(cm->metrics, event->name);
    else if (event->kind == EVENT_SPEC && !event->health)
        metrics_forget(cm->metrics, "job_name", event->name);
}

void controller_metrics_note_results(ControllerMetrics *cm, const char *rest, const char *value,
                                     size_t n)
{
    if (cm)
        curves_note_eval(cm->seen, rest, value, n);
}

void controller_metrics_note_leading(ControllerMetrics *cm)
{
    if (cm)
        metrics_add(cm->metrics, LEADERSHIPS, NO_LABELS, 1);
}

static void await_revision(ControllerMetrics *cm, int64_t revision, uint64_t now_usec)
{
    if (revision <= cm->shown_revision) {
        metrics_observe(cm->metrics, WATCH_LAG, NO_LABELS, 0);
        return;
    }
    for (size_t i = 0; i < ELEMENTSOF(cm->writes); i++)
        if (cm->writes[i].revision == 0) {
            cm->writes[i] = (AwaitedWrite){.revision = revision, .known_usec = now_usec};
            return;
        }
}

void controller_metrics_note_outcome(ControllerMetrics *cm, const Decision *d, Outcome outcome,
                                     uint64_t begun_usec, int64_t revision)
{
    if (!cm)
        return;
    uint64_t now_usec = clock_boottime_usec();
    metrics_add(cm->metrics, DECISIONS, LABELS(outcomes[outcome]), 1);
    metrics_observe(cm->metrics, DECISION_SECONDS, NO_LABELS, seconds_of(now_usec - begun_usec));
    if (outcome != OUTCOME_DONE)
        return;
    await_revision(cm, revision, now_usec);
    if (d->put_world)
        metrics_add(cm->metrics, WORLDS,
                    LABELS(d->job, d->world.incident[0]       ? "recovery"
                                   : d->world.generation == 1 ? "start"
                                                              : "resize"),
                    1);
}

void controller_metrics_note_shown(ControllerMetrics *cm, int64_t revision)
{
    if (!cm || revision <= cm->shown_revision)
        return;
    cm->shown_revision = revision;
    uint64_t now_usec = clock_boottime_usec();
    for (size_t i = 0; i < ELEMENTSOF(cm->writes); i++) {
        AwaitedWrite *write = &cm->writes[i];
        if (write->revision == 0 || write->revision > revision)
            continue;
        metrics_observe(cm->metrics, WATCH_LAG, NO_LABELS,
                        seconds_of(now_usec - write->known_usec));
        write->revision = 0;
    }
}

void controller_metrics_observe(ControllerMetrics *cm, Etcd *etcd)
{
    if (cm)
        etcd_set_observer(etcd, exporter_note_request, cm->exporter);
}

/* ---- pages ---- */

static LiveLook look_for_pages(void *userdata)
{
    ControllerMetrics *cm = userdata;
    const ControllerView view = cm->look(cm->userdata);
    const LeaderRecord *first = view.leader.first;
    return (LiveLook){.leads = view.leader.term != 0 && view.leader.loaded,
                      .source = {.cluster_name = cm->cluster,
                                 .leader = first ? first->name : "",
                                 .cluster = view.leader.cluster,
                                 .term = view.leader.term,
                                 .seen = cm->seen,
                                 .seen_usec = cm->seen_usec,
                                 .now_usec = clock_realtime_usec()},
                      .leading = first ? first->name : "",
                      .leading_page = first ? first->page : ""};
}

static int open_pages(ControllerMetrics *cm, sd_event *event, const ControllerConfig *config,
                      Error *err)
{
    (void)snprintf(cm->cluster, sizeof(cm->cluster), "%s", config->cluster);
    cm->seen = curves_new((int)config->max_jobs);
    cm->seen_usec = clock_realtime_usec();
    return live_pages_new(event, look_for_pages, cm, &cm->pages, err);
}

void controller_metrics_page(const ControllerMetrics *cm, const char *name, char *ret, size_t n)
{
    const char *address = cm ? http_server_address(exporter_server(cm->exporter)) : "";
    const char *port = strrchr(address, ':');
    const bool everywhere =
        strncmp(address, "0.0.0.0:", 8) == 0 || strncmp(address, "[::]:", 5) == 0;
    (void)snprintf(ret, n, "%s%s", everywhere ? name : address, everywhere ? port : "");
}

/* ---- made and ended ---- */

int controller_metrics_new(sd_event *event, const ControllerConfig *config, ControllerLook look,
                           void *userdata, ControllerMetrics **ret, Error *err)
{
    *ret = NULL;
    if (!config->metrics[0])
        return 0;
    _cleanup_(controller_metrics_freep) ControllerMetrics *cm = memory_new(ControllerMetrics);
    HttpPage pages[LIVE_PATHS];
    cm->look = look;
    cm->userdata = userdata;
    ExporterProgram program = {.name = "sdcontroller",
                               .version = SDTRAIN_VERSION,
                               .families = families,
                               .n_families = FAMILIES,
                               .collect = collect_controller,
                               .is_healthy = is_controller_healthy,
                               .userdata = cm,
                               .pages = pages,
                               .n_pages = LIVE_PATHS};
    int r = open_pages(cm, event, config, err);
    if (r < 0)
        return r;
    live_pages_paths(cm->pages, pages);
    r = exporter_new(event, config->metrics, &program, &cm->exporter, err);
    if (r < 0)
        return r;
    live_pages_serve(cm->pages, exporter_server(cm->exporter));
    cm->metrics = exporter_metrics(cm->exporter);
    metrics_know(cm->metrics, LEADERSHIPS, NO_LABELS);
    metrics_know(cm->metrics, DECISION_SECONDS, NO_LABELS);
    metrics_know(cm->metrics, WATCH_LAG, NO_LABELS);
    for (size_t i = 0; i < ELEMENTSOF(outcomes); i++)
        metrics_know(cm->metrics, DECISIONS, LABELS(outcomes[i]));
    *ret = TAKE_PTR(cm);
    return 0;
}

ControllerMetrics *controller_metrics_free(ControllerMetrics *cm)
{
    if (!cm)
        return NULL;
    /* the HTTP server's viewers must end before the pages are freed */
    cm->exporter = exporter_free(cm->exporter);
    cm->pages = live_pages_free(cm->pages);
    cm->seen = curves_free(cm->seen);
    free(cm);
    return NULL;
}
