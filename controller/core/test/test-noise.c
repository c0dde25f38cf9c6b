/* SPDX-License-Identifier: Apache-2.0 */
/* test-noise.c - records without sense, in any order: the core and the notifier must survive them.
 *
 * Asserts are on in release. An assert that a record, a key or an order of events could make false would end each
 * controller in turn. So this test feeds all that a decoder accepts: edge values, records of jobs and nodes that do
 * not exist, old copies of records, more records than the tables hold, outcomes of decisions that were never made.
 * Some decisions are executed, so that jobs run and fail meanwhile. The only check is that the core and the notifier
 * go on.
 *
 *   test-noise             60 walks
 *   test-noise SEED        one walk */
#include "base/test/testing.h"
#include "controller/core/notifier/notifier.h"
#include "controller/core/step/survey.h"
#include "protocol/channel.h"

#include <string.h>

enum { WALKS = 60, STEPS = 4000, NODES = 6, JOBS = 4, IDS = 9 };

#define EPOCH (UINT64_C(1000000) * USEC_PER_SEC)

typedef struct Walk {
    uint64_t random;
    /* One event in this many about a job's records is kept; all others become events about ranks or progress. */
    uint64_t quiescent;
    uint64_t now_usec, real_usec;
    int64_t revision;
    Cluster *cluster;
    Notifier *notifier;
    Actions actions;
    WorldRecord worlds[JOBS]; /* the last decided world of each job; its runs are in world_runs */
    WorldRun world_runs[JOBS][NODES];
    int64_t world_revisions[JOBS];
} Walk;

static uint64_t draw(Walk *w, uint64_t n)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random % n;
}

static bool often(Walk *w) { return draw(w, 10) < 8; }

static int64_t number(Walk *w)
{
    const int64_t edges[] = {0, 1, 2, 3, w->revision, (int64_t)draw(w, 100), INT64_MAX / 4};
    return edges[draw(w, often(w) ? 4 : ELEMENTSOF(edges))];
}

static uint64_t moment(Walk *w)
{
    const uint64_t edges[] = {0,
                              1,
                              w->real_usec,
                              w->real_usec - draw(w, 100) * USEC_PER_SEC,
                              w->real_usec + draw(w, 5000) * USEC_PER_SEC,
                              (uint64_t)INT64_MAX / 4};
    return edges[draw(w, ELEMENTSOF(edges))];
}

static void text(Walk *w, char *ret, size_t size)
{
    static const char longer[] = "a text that is longer than most of the fields that hold "
                                 "one, so that it is cut in them, with / and : and , in it";
    static const char *const words[] = {"",
                                        "goes on: it had not left",
                                        "2 ranks, 4 wanted: needs 2 slots",
                                        "node-lost",
                                        "trainer-died",
                                        "hang",
                                        "store-unreachable",
                                        "record-lost",
                                        "nodes-lost",
                                        "not-admitted",
                                        "17 more nodes are lost: n0, n1, n9, ...",
                                        "more nodes are lost: , , :",
                                        "checkpoint.uri",
                                        longer};
    (void)snprintf(ret, size, "%s", words[draw(w, ELEMENTSOF(words))]);
}

static void name(Walk *w, char kind, int n, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%c%d", kind, (int)draw(w, (uint64_t)n));
}

#define NODE(w, to) name(w, 'n', NODES, to, sizeof(to))
#define JOB(w, to) name(w, 'j', JOBS, to, sizeof(to))
#define ID(w, to) name(w, 'e', IDS, to, sizeof(to))
#define TEXT(w, to) text(w, to, sizeof(to))
/* Writes one of two submissions, or none. */
#define SUBMISSION(w, to)                                                                          \
    (void)snprintf(to, sizeof(to), "%s", often(w) ? "s0" : draw(w, 2) ? "s1" : "")
#define MACHINE(w, to)                                                                             \
    (void)snprintf(to, sizeof(to), "%s%d", draw(w, 4) ? "0123456789abcdef0123456789abcde" : "",    \
                   (int)draw(w, 4))
#define MARK(w) ((CommitMark){.generation = number(w), .step = number(w)})

/* ---- records, as the decoders let them through ---- */

static void fill_node(Walk *w, NodeRecord *r)
{
    *r = (NodeRecord){.incarnation = often(w) ? 1 : moment(w),
                      .n_slots = often(w) ? 2 : (int)draw(w, RECORD_SLOTS_MAX + 1),
                      .state = often(w) ? NODE_UP : NODE_LEFT,
                      .verdict = often(w) ? NODE_HEALTHY : (NodeVerdict)draw(w, NODE_ISOLATE + 1),
                      .world_revision = number(w),
                      .generation = number(w),
                      .lost_slots = often(w) ? 0 : w->random,
                      .bad_slots = often(w) ? 0 : w->random,
                      .startup_usec = often(w) ? 0 : moment(w),
                      .n_gpus = (int)draw(w, often(w) ? 3 : RECORD_SLOTS_MAX + 1),
                      .n_runs = often(w) ? 0 : draw(w, RECORD_RUNS_MAX + 1)};
    NODE(w, r->name);
    MACHINE(w, r->machine_id);
    TEXT(w, r->evidence);
    if (often(w))
        (void)snprintf(r->features, sizeof(r->features), "%s", FEATURE_PROGRAMS);
    for (size_t i = 0; i < r->n_runs; i++) {
        JOB(w, r->runs[i].job);
        SUBMISSION(w, r->runs[i].submission);
        r->runs[i].generation = number(w);
        r->runs[i].committed = MARK(w);
    }
}

static void fill_cordon(Walk *w, CordonRecord *r)
{
    *r = (CordonRecord){.n_causes = draw(w, often(w) ? 2 : RECORD_CAUSES_MAX + 1)};
    NODE(w, r->node);
    for (size_t i = 0; i < r->n_causes; i++) {
        CordonCause *cause = &r->causes[i];
        cause->owner = (CordonOwner)draw(w, CORDON_JOB + 1);
        cause->mode = (CordonMode)draw(w, CORDON_QUARANTINE + 1);
        cause->since_usec = moment(w);
        cause->until_usec = moment(w);
        cause->strikes = (int)draw(w, often(w) ? 6 : INT32_MAX);
        if (draw(w, 2))
            (void)snprintf(cause->way, sizeof(cause->way), "signal %d", (int)draw(w, 12));
        JOB(w, cause->job);
        SUBMISSION(w, cause->submission);
        MACHINE(w, cause->machine_id);
        TEXT(w, cause->reason);
    }
}

static void fill_facts(Walk *w, JobFacts *r)
{
    *r = (JobFacts){.n_grains = 1 + (int64_t)draw(w, 6),
                    .steps = 1 + number(w),
                    .max_failures = (int)draw(w, 4),
                    .grow_interval_usec = draw(w, 100) * USEC_PER_SEC,
                    .store_patience_usec = draw(w, 1000) * USEC_PER_SEC,
                    .arrival = number(w),
                    .min = 1,
                    .max = 1 + (int)draw(w, 4),
                    .priority = (int)draw(w, 5) - 2,
                    .needs_gpu = draw(w, 4) == 0};
    SUBMISSION(w, r->submission);
    r->is_program = draw(w, 3) == 0;
    r->is_eval = r->is_program && draw(w, 2);
    r->every_steps = often(w) ? (int64_t)draw(w, 3) : number(w);
    r->keep_last = 2 + (int64_t)draw(w, 4);
    JOB(w, r->of_job);
    if (!often(w))
        TEXT(w, r->resume_uri);
    if (draw(w, 40) == 0) { /* the job file does not parse: the other fields stay zero */
        memset(r, 0, sizeof(*r));
        TEXT(w, r->refused);
    }
}

static void fill_desired(Walk *w, DesiredRecord *r)
{
    *r = (DesiredRecord){.state = often(w) ? DESIRED_RUNNING
                                           : (DesiredState)draw(w, DESIRED_DELETED + 1),
                         .min = 1 + (int)draw(w, often(w) ? 2 : RECORD_RANKS_MAX),
                         .max = 1 + (int)draw(w, often(w) ? 6 : RECORD_RANKS_MAX),
                         .target = (int)draw(w, often(w) ? 4 : RECORD_RANKS_MAX + 1),
                         .priority = (int)draw(w, 5) - 2};
}

static void fill_resume(Walk *w, ResumePoint *r)
{
    r->step = number(w);
    r->adopt = !often(w);
    r->find = (ResumeFind)draw(w, FIND_MUST + 1);
    TEXT(w, r->uri);
}

static void fill_world(Walk *w, WorldRecord *r, WorldRun runs[NODES])
{
    *r = (WorldRecord){.generation = number(w), .runs = runs, .n_runs = draw(w, NODES + 1)};
    for (size_t i = 0; i < r->n_runs; i++) {
        runs[i] = (WorldRun){.incarnation = 1, .slots = often(w) ? 1 + draw(w, 3) : w->random};
        NODE(w, runs[i].node);
        r->size += __builtin_popcountll(runs[i].slots);
    }
    r->decided_usec = moment(w);
    r->committed = MARK(w);
    fill_resume(w, &r->resume);
    SUBMISSION(w, r->submission);
    ID(w, r->incident);
    TEXT(w, r->reason);
}

static void fill_eval(Walk *w, EvalProgress *r)
{
    *r = (EvalProgress){.present = often(w) ? (CommitMark){0} : MARK(w),
                        .step = number(w),
                        .n_results = draw(w, RECORD_EVALS_MAX + 1)};
    SUBMISSION(w, r->submission);
    for (size_t i = 0; i < r->n_results; i++)
        r->results[i] = (EvalResult){.step = (int64_t)i,
                                     .generation = 1,
                                     .verdict = (EvalVerdict)(i % EVAL_VERDICTS)};
}

static void fill_phase(Walk *w, PhaseRecord *r)
{
    *r = (PhaseRecord){.phase = (JobPhase)draw(w, PHASE_COUNT),
                       .generation = number(w),
                       .go = draw(w, 2),
                       .leave = draw(w, 2),
                       .since_usec = moment(w),
                       .furthest_step = number(w),
                       .failures_without_progress = (int)draw(w, often(w) ? 3 : INT32_MAX / 2),
                       .started_usec = moment(w),
                       .grown_usec = moment(w),
                       .tried_revision = number(w),
                       .pause_usec = often(w) ? 0 : moment(w),
                       .pauses = (int)draw(w, often(w) ? 8 : INT32_MAX / 2),
                       .store_lost_usec = moment(w),
                       .n_worlds = draw(w, RECORD_PAST_WORLDS_MAX + 1),
                       .committed = MARK(w),
                       .furthest_resume = number(w),
                       .serial = number(w),
                       .dies_usec = moment(w),
                       .cost = {number(w), moment(w), number(w), number(w)}};
    SUBMISSION(w, r->submission);
    TEXT(w, r->reason);
    fill_eval(w, &r->eval);
    if (draw(w, 2))
        (void)snprintf(r->dies_by, sizeof(r->dies_by), "signal %d", (int)draw(w, 12));
}

static void fill_ranks(Walk *w, RanksRecord *r, RankReport ranks[RECORD_SLOTS_MAX])
{
    static const int codes[] = {0, 1, 75, 78, 80, 81, 82, 83, 84, 85, 86, -9, -15, -128, 255};
    *r = (RanksRecord){.incarnation = 1,
                       .generation = number(w),
                       .world_revision = number(w),
                       .ranks = ranks,
                       .n_ranks = draw(w, often(w) ? 3 : RECORD_SLOTS_MAX + 1),
                       .killed_usec = moment(w),
                       .first_step = number(w),
                       .first_step_usec = moment(w),
                       .left = !often(w),
                       .finished = draw(w, 200) == 0};
    const RankState state =
        (RankState)draw(w, RANK_EXITED + 1); /* most ranks of a report have the same state */
    for (size_t i = 0; i < r->n_ranks; i++) {
        ranks[i] = (RankReport){.slot = (int)(often(w) ? i : draw(w, RECORD_SLOTS_MAX)),
                                .rank = (int)draw(w, often(w) ? 4 : RECORD_RANKS_MAX),
                                .state = often(w) ? state : (RankState)draw(w, RANK_EXITED + 1),
                                .exit_code = codes[draw(w, ELEMENTSOF(codes))],
                                .step = number(w),
                                .stage = (int)draw(w, STAGE_COUNT),
                                .unnamed = draw(w, 8) == 0,
                                .hung = draw(w, 20) == 0,
                                .killed = draw(w, 20) == 0,
                                .at_usec = moment(w),
                                .unmet = (int)draw(w, often(w) ? 4 : RECORD_RANKS_MAX + 1),
                                .started_usec = moment(w),
                                .ready_usec = moment(w)};
        TEXT(w, ranks[i].text);
    }
}

static void fill_checkpoints(Walk *w, CheckpointsRecord *r)
{
    *r = (CheckpointsRecord){.n_commits = draw(w, often(w) ? 3 : RECORD_COMMITS_MAX + 1)};
    SUBMISSION(w, r->submission);
    for (size_t i = 0; i < r->n_commits; i++) {
        r->commits[i] =
            (CheckpointCommit){.step = number(w), .generation = number(w), .struck_out = !often(w)};
        TEXT(w, r->commits[i].uri);
    }
}

static void fill_incident(Walk *w, IncidentRecord *r)
{
    *r = (IncidentRecord){.state = (IncidentState)draw(w, INCIDENT_RESOLVED + 1),
                          .severity = (Severity)draw(w, SEVERITY_CRITICAL + 1),
                          .rank = (int)draw(w, 4) - 1,
                          .generation = number(w),
                          .step = number(w),
                          .at_usec = moment(w),
                          .resolved_usec = moment(w),
                          .lost_steps = number(w),
                          .reached_step = number(w),
                          .replay_sec = -1,
                          .first_step_usec = moment(w)};
    TEXT(w, r->cause);
    TEXT(w, r->evidence);
    if (often(w)) {
        JOB(w, r->job);
        SUBMISSION(w, r->submission);
    }
    NODE(w, r->node);
}

static void fill_request(Walk *w, RequestRecord *r)
{
    static const char *const kinds[] = {"checkpoint", "recover", "alerts-test", "check", "forget",
                                        "clear",      ""};
    *r = (RequestRecord){.at_usec = moment(w)};
    (void)snprintf(r->kind, sizeof(r->kind), "%s", kinds[draw(w, ELEMENTSOF(kinds))]);
    name(w, draw(w, 2) ? 'j' : 'n', NODES, r->target, sizeof(r->target));
    SUBMISSION(w, r->submission);
    MACHINE(w, r->machine_id);
    if (!often(w))
        (void)snprintf(r->answer, sizeof(r->answer), draw(w, 2) ? "healthy" : "isolate: broken");
    r->commit = (CheckpointCommit){.step = number(w)};
    TEXT(w, r->commit.uri);
}

static void fill_alert(Walk *w, AlertRecord *r)
{
    *r = (AlertRecord){.incident_usec = moment(w),
                       .term = number(w),
                       .settled = !often(w),
                       .n_deliveries = draw(w, RECORD_DELIVERIES_MAX + 1)};
    for (size_t i = 0; i < r->n_deliveries; i++) {
        Delivery *d = &r->deliveries[i];
        d->state = (DeliveryState)draw(w, DELIVERY_FAILED + 1);
        d->severity = (Severity)draw(w, SEVERITY_CRITICAL + 1);
        d->attempts = (int)draw(w, often(w) ? 3 : INT32_MAX);
        d->at_usec = moment(w);
        name(w, 'k', 3, d->sink, sizeof(d->sink));
    }
}

/* ---- a step ---- */

static void notify(Walk *w, const Event *ev)
{
    NotifierAction action;
    if (ev)
        (void)notifier_observe(w->notifier, ev);
    for (int i = 0; i < 8; i++) {
        notifier_next(w->notifier, w->now_usec, w->real_usec, USEC_INFINITY, &action);
        if (action.kind == NOTIFIER_REST)
            return;
        const Answer answer = {.kind = (AnswerKind)draw(w, ANSWER_REFUSED + 1),
                               .pause_usec = often(w) ? 0 : moment(w)};
        int64_t id = often(w) ? action.id : 1 + (int64_t)draw(w, 50);
        if (draw(w, 3) == 0)
            continue; /* no answer yet */
        if (action.kind == NOTIFIER_SEND)
            notifier_answered(w->notifier, id, &answer, w->now_usec, w->real_usec, 7);
        else
            notifier_stored(w->notifier, id, (Outcome)draw(w, OUTCOME_UNKNOWN + 1), w->revision);
    }
}

static void give(Walk *w, Event *ev)
{
    ev->now_usec = w->now_usec;
    ev->real_usec = w->real_usec;
    cluster_step(w->cluster, ev, &w->actions);
    notify(w, ev);
}

static void give_record(Walk *w, EventKind kind, const char *of, const void *record)
{
    Event ev = {.kind = kind, .revision = w->revision, .record = record, .more = true};
    (void)snprintf(ev.name, sizeof(ev.name), "%s", of);
    give(w, &ev);
}

/* Executes the decision, mostly as the shell does: its records come back as from the watch. */
static void carry_out(Walk *w)
{
    const Decision d = w->actions.decision;
    Event outcome = {.kind = EVENT_OUTCOME,
                     .id = d.id,
                     .outcome = (Outcome)draw(w, OUTCOME_UNKNOWN + 1)};
    if (!often(w))
        outcome.id = 1 + (int64_t)draw(w, 100);
    if (draw(w, 10) == 0)
        return; /* the answer does not come for a long time */
    if (often(w)) {
        outcome.outcome = OUTCOME_DONE;
        outcome.revision = ++w->revision;
        WorldRecord world = d.world;
        if (d.put_world && d.job[0] == 'j' && d.job[1] >= '0' && d.job[1] < '0' + JOBS) {
            int j = d.job[1] - '0';
            memcpy(w->world_runs[j], d.world.runs, d.world.n_runs * sizeof(WorldRun));
            world.runs = w->world_runs[j];
            w->worlds[j] = world;
            w->world_revisions[j] = w->revision;
            give_record(w, EVENT_WORLD, d.job, &world);
        }
        if (d.put_phase)
            give_record(w, EVENT_PHASE, d.job, &d.phase);
        if (d.put_checkpoints)
            give_record(w, EVENT_CHECKPOINTS, d.job, &d.checkpoints);
        if (d.put_desired)
            give_record(w, EVENT_DESIRED, d.job, &d.desired);
        if (d.put_incident)
            give_record(w, EVENT_INCIDENT, d.incident.id, &d.incident);
        for (int i = 0; i < d.n_cordons; i++)
            give_record(w, EVENT_CORDON, d.cordons[i].node,
                        d.cordons[i].n_causes ? &d.cordons[i] : NULL);
        if (d.put_request || d.remove_request)
            give_record(w, EVENT_REQUEST, d.request.id, d.put_request ? &d.request : NULL);
        if (d.remove_incident[0])
            give_record(w, EVENT_INCIDENT, d.remove_incident, NULL);
        for (int kind = EVENT_SPEC; d.remove_job && kind <= EVENT_PHASE; kind++)
            give_record(w, (EventKind)kind, d.job, NULL);
    }
    give(w, &outcome);
}

/* Addresses the report to a job, mostly to the last world that was decided for that job. */
static void aim_ranks(Walk *w, Event *ev, RanksRecord *r)
{
    int j = (int)draw(w, JOBS);
    const WorldRecord *world = &w->worlds[j];
    (void)snprintf(ev->name, sizeof(ev->name), "j%d", j);
    NODE(w, ev->node);
    if (often(w) && world->n_runs > 0) {
        const WorldRun *run = &world->runs[draw(w, world->n_runs)];
        (void)snprintf(ev->node, sizeof(ev->node), "%s", run->node);
        r->generation = world->generation;
        r->n_ranks = (size_t)__builtin_popcountll(run->slots);
        r->incarnation = run->incarnation;
        r->world_revision = w->world_revisions[j];
    }
    ev->generation = r->generation;
}

static void give_any(Walk *w)
{
    static union {
        NodeRecord node;
        CordonRecord cordon;
        JobFacts facts;
        DesiredRecord desired;
        WorldRecord world;
        PhaseRecord phase;
        RanksRecord ranks;
        CheckpointsRecord checkpoints;
        ProgressRecord progress;
        IncidentRecord incident;
        AlertRecord alert;
        RequestRecord request;
    } r;
    static WorldRun runs[NODES];
    static RankReport ranks[RECORD_SLOTS_MAX];
    Event ev = {.kind = (EventKind)(EVENT_NODE + draw(w, EVENT_KINDS - EVENT_NODE)),
                .record = &r,
                .more = draw(w, 3) == 0,
                .stalled = draw(w, 20) == 0};
    ev.revision = often(w) ? ++w->revision : (int64_t)draw(w, (uint64_t)w->revision + 1);
    JOB(w, ev.name);
    if (ev.kind >= EVENT_SPEC && ev.kind <= EVENT_CHECKPOINTS && draw(w, w->quiescent))
        ev.kind = draw(w, 6) ? EVENT_RANKS : EVENT_PROGRESS;
    switch (ev.kind) {
    case EVENT_NODE:
        NODE(w, ev.name);
        fill_node(w, &r.node);
        break;
    case EVENT_CORDON:
        NODE(w, ev.name);
        fill_cordon(w, &r.cordon);
        break;
    case EVENT_SPEC:
        fill_facts(w, &r.facts);
        break;
    case EVENT_DESIRED:
        fill_desired(w, &r.desired);
        break;
    case EVENT_WORLD:
        fill_world(w, &r.world, runs);
        break;
    case EVENT_PHASE:
        fill_phase(w, &r.phase);
        break;
    case EVENT_RANKS:
        fill_ranks(w, &r.ranks, ranks);
        aim_ranks(w, &ev, &r.ranks);
        break;
    case EVENT_RENDEZVOUS:
        ev.generation = number(w);
        break;
    case EVENT_CHECKPOINTS:
        fill_checkpoints(w, &r.checkpoints);
        break;
    case EVENT_PROGRESS:
        r.progress =
            (ProgressRecord){.generation =
                                 often(w) ? w->worlds[ev.name[1] - '0'].generation : number(w),
                             .step = number(w),
                             .at_usec = moment(w),
                             .unsaved_since_usec = often(w) ? 0 : moment(w),
                             .waits_since_usec = often(w) ? 0 : moment(w),
                             .committed = MARK(w)};
        break;
    case EVENT_INCIDENT:
        ID(w, ev.name);
        fill_incident(w, &r.incident);
        break;
    case EVENT_ALERT:
        ID(w, ev.name);
        fill_alert(w, &r.alert);
        break;
    default:
        ID(w, ev.name);
        fill_request(w, &r.request);
    }
    if (draw(w, 6) == 0) {
        ev.record = NULL;
        ev.health = (RecordHealth)draw(w, RECORD_FOREIGN + 1);
    }
    give(w, &ev);
}

static void survey(Walk *w)
{
    JobSurvey job;
    NodeSurvey node;
    for (int i = 0; cluster_survey_job(w->cluster, i, &job); i++)
        assert_true(job.phase < PHASE_COUNT);
    for (int i = 0; cluster_survey_node(w->cluster, i, &node); i++)
        assert_non_null(node.name);
    assert_true(cluster_free_slots(w->cluster) >= 0);
}

static void step(Walk *w)
{
    w->now_usec += draw(w, often(w) ? 2000 : 400000) * USEC_PER_MSEC;
    w->real_usec = draw(w, 200) ? EPOCH + w->now_usec : EPOCH / 2; /* the clock is set back */
    Event ev = {.kind = EVENT_TICK};
    switch (draw(w, 40)) {
    case 0:
        ev.kind = draw(w, 3) ? EVENT_LEADING : EVENT_DEPOSED;
        ev.term = 1 + number(w);
        give(w, &ev);
        break;
    case 1:
        survey(w);
        break;
    default:
        if (draw(w, 3))
            give_any(w);
        else
            give(w, &ev);
    }
    for (int i = 0; i < 4 && w->actions.decision.id; i++) {
        carry_out(w);
        give(w, &(Event){.kind = EVENT_TICK});
    }
}

static int64_t walk(uint64_t seed)
{
    const ClusterLimits limits = {
        .nodes = NODES - 2, .jobs = JOBS - 1, .reports = 9, .incidents = 6, .requests = 3};
    ClusterConfig config = cluster_config_default;
    config.incidents_kept = 3;
    config.queue_patience_usec = 60 * USEC_PER_SEC;
    (void)snprintf(config.admit, sizeof(config.admit), "%s", seed % 3 ? "" : "n0 n1 n2 n3");
    (void)snprintf(config.prices, sizeof(config.prices), "%s", seed % 2 ? "" : "*=1000");
    NotifierConfig sinks = notifier_config_default;
    sinks.n_sinks = 2;
    sinks.sinks[0] = (NotifierSink){.name = "k0", .repeat_usec = 30 * USEC_PER_SEC};
    sinks.sinks[1] = (NotifierSink){.name = "k1", .heartbeat_usec = 20 * USEC_PER_SEC};
    Walk *w = calloc(1, sizeof(*w));
    void *memory = calloc(1, cluster_bytes(&limits)), *more = calloc(1, notifier_bytes(8));
    assert_true(w && memory && more);
    w->random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    w->revision = 1;
    w->quiescent = seed % 2 ? 4 : 60;
    w->cluster = cluster_init(memory, &limits, &config);
    w->notifier = notifier_init(more, 8, &sinks);
    give(w, &(Event){.kind = EVENT_LEADING, .term = 5});
    int64_t worlds = 0;
    for (int i = 0; i < STEPS; i++) {
        step(w);
        if (w->actions.decision.id)
            worlds += w->actions.decision.put_world;
    }
    for (int j = 0; j < JOBS; j++)
        worlds += w->worlds[j].generation > 0;
    free(memory);
    free(more);
    free(w);
    return worlds;
}

static uint64_t only;

static void survives(void **state)
{
    (void)state;
    int64_t worlds = 0;
    for (uint64_t seed = only ? only : 1; seed <= (only ? only : WALKS); seed++)
        worlds += walk(seed);
    assert_true(only || worlds > WALKS); /* jobs have run in the walks */
}

int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives)};
    only = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
