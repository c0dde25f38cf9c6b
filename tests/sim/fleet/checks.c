/* SPDX-License-Identifier: Apache-2.0 */
/* checks.c - see checks.h. */
#include "tests/sim/fleet/checks-internal.h"

#include "base/json/json.h"
#include "base/memory.h"
#include "tests/sim/fleet/manifests.h"
#include "tests/sim/seams/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CANDIDATES_MAX = 64,
    WRITES_MAX = 200, /* the largest number of writes that a controller may do in a second */
    CHECKED_NODES_MAX = 64
};

ChecksOptions checks_options;
Ledger ledgers[FLEET_JOBS_MAX];
NodeLedger node_ledgers[FLEET_NODES_MAX];
ControllerLedger controller_ledgers[FLEET_CONTROLLERS_MAX];
bool checks_clocks_differ;
static size_t n_ledgers;
static ChecksCounts counts;

Ledger *ledger_of(const char *job)
{
    for (size_t i = 0; i < n_ledgers; i++)
        if (strcmp(ledgers[i].name, job) == 0)
            return &ledgers[i];
    assert(n_ledgers < FLEET_JOBS_MAX);
    Ledger *ledger = &ledgers[n_ledgers++];
    *ledger = (Ledger){0};
    (void)snprintf(ledger->name, sizeof(ledger->name), "%s", job);
    return ledger;
}

/* ---- I1 ---- */

typedef struct Candidate {
    char key[KEY_MAX]; /* the candidate's key; empty: no candidate */
    int64_t created;
    int controller;
} Candidate;

static Candidate candidates[CANDIDATES_MAX];
static int64_t last_term;

static const Candidate *first_candidate(void)
{
    const Candidate *first = NULL;
    for (size_t i = 0; i < CANDIDATES_MAX; i++)
        if (candidates[i].key[0] && (!first || candidates[i].created < first->created))
            first = &candidates[i];
    return first;
}

static void note_candidate(const Writing *w, const Entry *e)
{
    Candidate *at = NULL;
    for (size_t i = 0; i < CANDIDATES_MAX && !at; i++)
        if (strcmp(candidates[i].key, e->key) == 0)
            at = &candidates[i];
    for (size_t i = 0; i < CANDIDATES_MAX && !at; i++)
        if (!candidates[i].key[0])
            at = &candidates[i];
    assert(at);
    if (!e->after.there) {
        at->key[0] = '\0';
    } else if (e->after.version == 1) {
        (void)snprintf(at->key, sizeof(at->key), "%s", e->key);
        at->created = e->after.revision;
        at->controller = w->controller;
    }
}

/* Checks I1: only the first candidate writes, except that each candidate writes its own candidacy. */
static void check_term(const Writing *w)
{
    const Candidate *first = first_candidate();
    bool decides = false;
    for (size_t i = 0; i < w->h->n_changed; i++)
        decides |= w->h->changed[i]->kind != KEY_LEADER;
    if (!decides)
        return;
    if (!first || first->controller != w->controller)
        books_break("I1", "c%d writes %s, and c%d leads", w->controller, w->h->changed[0]->key,
                    first ? first->controller : -1);
    else
        counts.n_terms += first->created != last_term;
    last_term = first ? first->created : 0;
}

/* Checks that a leader comes to rest: decisions that change nothing would repeat endlessly. */
static void check_rest(const Writing *w)
{
    ControllerLedger *c = &controller_ledgers[w->controller];
    const uint64_t second = loops_now_usec() / USEC_PER_SEC;
    if (c->second != second)
        c->n_writes = 0;
    c->second = second;
    if (++c->n_writes > WRITES_MAX)
        books_break("rest", "c%d writes %d times within a second, %s again", w->controller,
                    c->n_writes, w->h->changed[0]->key);
}

/* ---- specs ---- */

static void note_spec(const Writing *w, const Entry *e)
{
    const SpecRecord *spec = entry_after(e);
    Ledger *job = ledger_of(e->name);
    if (!spec)
        return;
    /* a new submission; the same submission means that the spec was put back */
    if (strcmp(job->submission, spec->submission) != 0) {
        Ledger fresh = {.world_revision = job->world_revision};
        memcpy(fresh.name, job->name, sizeof(fresh.name));
        memcpy(fresh.submission, spec->submission, SUBMISSION_BYTES);
        *job = fresh;
    }
    _cleanup_json_ json_t *file = json_loads(spec->spec, 0, NULL);
    const json_t *train = json_object_get(file, "train"),
                 *recovery = json_object_get(file, "recovery");
    const json_t *exec = json_object_get(file, "exec"), *loss = json_object_get(file, "loss");
    const char *device = json_string_value(json_object_get(exec   ? exec
                                                           : loss ? loss
                                                                  : train,
                                                           "device"));
    job->n_grains = (int)json_integer_value(json_object_get(train, "global_batch"));
    job->per_node =
        (int)json_integer_value(json_object_get(json_object_get(file, "world"), "per_node"));
    job->max_failures =
        (int)json_integer_value(json_object_get(recovery, "max_failures_at_same_step"));
    job->patience_sec = (int)json_integer_value(json_object_get(recovery, "store_patience_s"));
    job->is_eval = json_object_get(file, "of") != NULL;
    job->needs_gpu = device && strcmp(device, "cuda") == 0;
    (void)w;
}

/* ---- worlds: I7 ---- */

/* Returns how many failures with pauses of 1, 2, 4, 8, 16, 30, 30, ... s do not count: those whose
 * pauses fit into the job's patience, and one more. */
static int forgiven_at_most(const Ledger *job)
{
    int n = 0;
    for (int sec = 0; sec < job->patience_sec; n++)
        sec += MIN(1 << MIN(n, 5), 30);
    return n;
}

/* How a lost world is counted: as one of at most max_failures failures, as lost to the store, or as lost to a
 * commit that is struck out while another commit still counts. */
enum { LOST_ONE, LOST_TO_STORE, LOST_TO_COMMIT };

static int cost_of_failure(const Writing *w, const char *job, const char *cause)
{
    const Entry *commits = history_find(w->h, KEY_CHECKPOINTS, job);
    if (strcmp(cause, "store-unreachable") == 0)
        return LOST_TO_STORE;
    const bool goes_back = strcmp(cause, "checkpoint-corrupt") == 0 &&
                           commits_go_back(entry_before(commits), entry_after(commits));
    counts.n_struck_out += goes_back;
    return goes_back ? LOST_TO_COMMIT : LOST_ONE;
}

/* Counts a failure. The ledger may know of more failures than the leader has read, so the check allows twice
 * max_failures. Between two counted failures, at most RECORD_COMMITS_MAX commits can be struck out. */
static void count_failure(const Writing *w, Ledger *job, int cost)
{
    const CheckpointsRecord *commits = entry_before(history_find(w->h, KEY_CHECKPOINTS, job->name));
    const CheckpointCommit *newest = commits ? checkpoints_latest(commits) : NULL;
    const bool commits_more = newest && newest->step > job->committed_before;
    const bool progressed = job->visible_step > job->visible_before || commits_more;
    job->committed_before = commits_more ? newest->step : job->committed_before;
    job->failures = progressed ? 0 : job->failures + (cost == LOST_ONE);
    job->lost = progressed ? 0 : job->lost + (cost == LOST_TO_STORE);
    job->struck_out = cost == LOST_TO_COMMIT ? job->struck_out + 1 : 0;
    job->visible_before = job->visible_step;
    const int excess = MAX(0, job->lost - 2 * forgiven_at_most(job) - 2);
    if (job->struck_out > RECORD_COMMITS_MAX)
        books_break("I7", "%d commits of %s in a row are struck out", job->struck_out, job->name);
    if (job->failures + excess > 2 * job->max_failures + 2)
        books_break("I7", "%d worlds of %s in a row did not pass step %lld, %d more for the store",
                    job->failures, job->name, (long long)job->visible_step, job->lost);
}

static void check_world(const Writing *w, const Entry *e)
{
    const WorldRecord *world = entry_after(e);
    const PhaseRecord *phase = record_of(w, KEY_PHASES, e->name);
    Ledger *job = ledger_of(e->name);
    if (!world || w->controller < 0)
        return;
    checks_follows_word(w, job, world);
    checks_slots(w, e);
    if (phase)
        checks_queue(w, job, phase);
    job->world_revision = w->h->revision;
    job->broken_world = job->broken_phase = false;
    const IncidentRecord *incident =
        world->incident[0] ? record_of(w, KEY_INCIDENTS, world->incident) : NULL;
    if (phase && phase->phase == PHASE_RECOVERING && incident &&
        strcmp(incident->cause, "node-left") != 0 && strcmp(incident->cause, "world-lost") != 0)
        count_failure(w, job, cost_of_failure(w, e->name, incident->cause));
}

/* ---- phases ---- */

/* Checks a resize: the number of ranks moves towards the wanted number, and not beyond that number,
 * even if the plan has changed since. If a leader puts a phase back, the phase may repeat a resize that
 * was decided when another size was wanted. */
static void check_resize(const Writing *w, Ledger *job, const PhaseRecord *phase)
{
    const DesiredRecord *desired = record_of(w, KEY_DESIRED, job->name);
    int from, to;
    if (!desired || sscanf(phase->reason, "resizes from %d to %d", &from, &to) != 2 ||
        (job->resized_generation == phase->generation && strcmp(job->resized, phase->reason) == 0))
        return;
    job->resized_generation = phase->generation;
    (void)snprintf(job->resized, sizeof(job->resized), "%s", phase->reason);
    int wanted = desired->target ? desired->target : desired->max;
    if (job->per_node > 0) /* a program: the wish counts in whole nodes */
        wanted = MAX(wanted - wanted % job->per_node, job->per_node);
    else
        wanted = MIN(wanted, job->n_grains);
    if (wanted == from || (wanted > from) != (to > from) || to < MIN(wanted, from))
        books_break("resize", "%s %s, and %d ranks are wanted", job->name, phase->reason, wanted);
}

static struct { /* the generations that were told to go or to leave */
    char submission[SUBMISSION_BYTES];
    int64_t generation;
    bool leaves;
} marks[MARKS_MAX];
static size_t n_marks;

static void note_mark(const char *submission, int64_t generation, bool leaves)
{
    const size_t at = n_marks++ % MARKS_MAX;
    memcpy(marks[at].submission, submission, SUBMISSION_BYTES);
    marks[at].generation = generation;
    marks[at].leaves = leaves;
}

static bool is_marked(const char *submission, int64_t generation, bool leaves)
{
    for (size_t i = 0; i < MIN(n_marks, (size_t)MARKS_MAX); i++)
        if (marks[i].generation == generation && marks[i].leaves == leaves &&
            strcmp(marks[i].submission, submission) == 0)
            return true;
    return n_marks > MARKS_MAX; /* the mark may have been overwritten */
}

void checks_goes(const char *job, const char *submission, int64_t generation)
{
    if (!is_marked(submission, generation, false))
        books_break("stale", "a rank of %s-%lld is told to go, and no phase of its job says so",
                    job, (long long)generation);
}

void checks_leaves(const char *job, const char *submission, int64_t generation)
{
    if (!is_marked(submission, generation, true))
        books_break("stale", "rank 0 of %s-%lld is told to leave, and no phase of its job says so",
                    job, (long long)generation);
}

static void check_phase(const Writing *w, const Entry *e)
{
    static const PhaseRecord none;
    const PhaseRecord *before = entry_before(e), *phase = entry_after(e);
    const PhaseRecord *old = before ? before : &none;
    Ledger *job = ledger_of(e->name);
    if (!phase || w->controller < 0)
        return;
    job->phase = phase->phase;
    if (phase->phase != PHASE_PENDING)
        job->pending_usec = 0;
    else if (job->pending_usec == 0)
        job->pending_usec = loops_now_usec();
    if (phase->go && (!old->go || old->generation != phase->generation))
        note_mark(phase->submission, phase->generation, false);
    if (phase->leave && (!old->leave || old->generation != phase->generation))
        note_mark(phase->submission, phase->generation, true);
    /* A leader that finds no readable phase only puts the phase back, and asks for nothing new. */
    const bool asked = phase->leave && !old->leave && before;
    if (before && phase->phase == PHASE_RUNNING && old->phase != PHASE_RUNNING)
        checks_first_step(w, job, old, phase);
    counts.n_leaves += asked;
    if (asked)
        check_resize(w, job, phase);
}

/* ---- incidents: I10 ---- */

static bool is_trouble(const IncidentRecord *incident)
{
    return strcmp(incident->cause, "store-trouble") == 0;
}

void checks_save_fails(const char *name, const char *submission)
{
    Ledger *job = ledger_of(name);
    if (job->failing_usec == 0 && strcmp(job->submission, submission) == 0)
        job->failing_usec = loops_now_usec();
}

/* Checks an incident of store trouble. A job has at most one such incident, and only if the store
 * is or was out. If nothing could be saved, the incident ends only when a checkpoint was saved, or
 * when the job ends. A world whose record was put once more by hand begins again, with nothing to
 * save. */
static void check_trouble(const Writing *w, const Entry *e)
{
    const IncidentRecord *old = entry_before(e), *incident = entry_after(e);
    Ledger *job = ledger_of((incident ? incident : old)->job);
    const PhaseRecord *phase = record_of(w, KEY_PHASES, job->name);
    const bool is_own = strcmp(job->trouble, e->name) == 0;
    if (incident && !old && (job->trouble[0] || !manifests_were_out()))
        books_break("I10", "trouble of %s opens %s", job->name,
                    job->trouble[0] ? "twice" : "although the store was never away");
    if (incident && !old) {
        (void)snprintf(job->trouble, sizeof(job->trouble), "%s", e->name);
        job->trouble_usec =
            strncmp(incident->evidence, "nothing was saved", 17) == 0 ? job->failing_usec : 0;
    }
    if (!is_own || (incident && incident->state == INCIDENT_OPEN))
        return;
    job->trouble[0] = '\0';
    if (incident && phase && phase_is_active(phase->phase) && job->trouble_usec &&
        job->committed_usec < job->trouble_usec && !books_job(job->name)->world_by_hand)
        books_break("I10", "trouble of %s is over, and nothing was saved", job->name);
}

/* Checks an incident of stuck growth: the job failed to grow twice in a row, and growth is still
 * wanted. */
static void check_stuck(const Writing *w, const IncidentRecord *incident)
{
    const PhaseRecord *phase = record_of(w, KEY_PHASES, incident->job);
    if (!phase || phase->growths_in_vain < 2 || phase->generation != incident->generation)
        books_break("I10", "%s is told to be stuck after %d growths in vain", incident->job,
                    phase ? phase->growths_in_vain : 0);
}

bool checks_knows_trouble(const char *job) { return ledger_of(job)->trouble[0] != '\0'; }
uint64_t checks_committed_usec(const char *job) { return ledger_of(job)->committed_usec; }

static void check_incident(const Writing *w, const Entry *e)
{
    const IncidentRecord *old = entry_before(e), *incident = entry_after(e);
    const IncidentRecord *either = incident ? incident : old;
    if (either && either->job[0] && is_trouble(either))
        check_trouble(w, e);
    if (!old && incident && strcmp(incident->cause, "growth-stuck") == 0)
        check_stuck(w, incident);
    if (!incident || w->controller < 0)
        return;
    const bool ends_world = !old && incident->job[0] && !is_trouble(incident) &&
                            strcmp(incident->cause, "growth-stuck") != 0 &&
                            strcmp(incident->cause, "record-lost") != 0;
    counts.n_failures += ends_world;
    if (!old && incident->job[0] && strcmp(incident->cause, "node-lost") == 0)
        checks_absence(w, incident);
    checks_loss(w, e);
    checks_hold(w, e);
    if (!old || old->state != incident->state)
        fleet_say("  incident %s %s: %s %s %s", e->name,
                  incident->state == INCIDENT_OPEN ? "open" : "resolved", incident->cause,
                  incident->node, incident->evidence);
}

/* ---- reports of nodes ---- */

static void note_visible(Ledger *job, int64_t step)
{
    job->visible_step = MAX(job->visible_step, step);
}

static void check_ranks(const Writing *w, const Entry *e)
{
    const RanksRecord *old = entry_before(e), *ranks = entry_after(e);
    Ledger *job = e->job ? ledger_of(e->job->spec->name) : NULL;
    if (!ranks || !job || !w->is_node)
        return;
    /* false: the report is about an earlier job of that name */
    const bool is_present = ranks->world_revision >= books_job(job->name)->born;
    note_visible(job, ranks->first_step);
    for (size_t i = 0; i < ranks->n_ranks; i++) {
        const RankReport *rank = &ranks->ranks[i];
        if (rank->stage > STAGE_JOINING)
            note_visible(job, rank->step - 1);
        if (rank->state == RANK_EXITED && is_present)
            trainers_check_exited(job->name, e->generation, ranks->world_revision,
                                  node_index(e->node), rank->slot);
    }
    if (is_present && ranks->killed_usec && (!old || !old->killed_usec))
        trainers_check_killed(job->name, e->generation, ranks->world_revision, node_index(e->node));
}

/* ---- transactions ---- */

/* Notes a change by hand with etcdctl, which need not keep any rule. After a change to a phase, the
 * job's failures count from 0. */
static void note_vandal(const Entry *e)
{
    if (e->kind != KEY_PHASES && e->kind != KEY_WORLDS && e->kind != KEY_CHECKPOINTS)
        return;
    Ledger *job = ledger_of(e->name);
    job->broken_commits |= e->kind == KEY_CHECKPOINTS;
    job->broken_world |= e->kind == KEY_WORLDS;
    job->broken_phase |= e->kind == KEY_PHASES;
    if (e->kind == KEY_PHASES)
        job->failures = job->lost = 0;
}

static void check_change(const Writing *w, const Entry *e)
{
    if (!w->is_person && e->after.there && e->before.foreign)
        books_break("foreign", "%s, of a later version, is written over", e->key);
    if (e->after.by_hand)
        note_vandal(e);
    checks_removal(w, e);
    /* Changes by hand are not checked, except of specs and of desired states, which count whoever wrote them. */
    if (e->after.by_hand && e->kind != KEY_SPECS && !(e->kind == KEY_DESIRED && entry_after(e)))
        return;
    switch (e->kind) {
    case KEY_SPECS:
        note_spec(w, e);
        break;
    case KEY_DESIRED:
        checks_word(w, e);
        break;
    case KEY_WORLDS:
        check_world(w, e);
        break;
    case KEY_PHASES:
        check_phase(w, e);
        break;
    case KEY_CHECKPOINTS:
        (w->controller >= 0 ? checks_rewrite : checks_commit)(w, e);
        break;
    case KEY_INCIDENTS:
        check_incident(w, e);
        break;
    case KEY_RANKS:
        check_ranks(w, e);
        break;
    case KEY_PROGRESS:
        if (entry_after(e))
            note_visible(ledger_of(e->name), ((const ProgressRecord *)entry_after(e))->step);
        break;
    case KEY_CORDONS:
        checks_cordon(w, e);
        break;
    default:
        break;
    }
}

void checks_witness(HistoryChecker *h)
{
    const size_t client = server_writer(fleet_server()), n = (size_t)checks_options.n_controllers;
    const Writing w = {.h = h,
                       .controller = client >= 1 && client <= n ? (int)client - 1 : -1,
                       .is_person = client == 0,
                       .is_node = client > n && client != SIZE_MAX};
    if (h->n_changed == 0)
        return;
    if (w.controller >= 0) {
        check_term(&w);
        check_rest(&w);
    }
    /* checks specs first, because the other records may be of a new job */
    for (size_t i = 0; i < h->n_changed; i++)
        if (h->changed[i]->kind == KEY_SPECS)
            check_change(&w, h->changed[i]);
    for (size_t i = 0; i < h->n_changed; i++)
        if (h->changed[i]->kind != KEY_SPECS)
            check_change(&w, h->changed[i]);
    for (size_t i = 0; i < h->n_changed; i++) {
        if (h->changed[i]->kind == KEY_LEADER)
            note_candidate(&w, h->changed[i]);
        if (h->changed[i]->kind == KEY_NODES)
            checks_node(&w, h->changed[i]);
    }
}

/* Checks that no report of an older world lists a rank as living that does not exist any more: the
 * next world would wait for that rank. */
static void check_report(HistoryChecker *h, const Entry *e)
{
    const RanksRecord *ranks = entry_before(e);
    const WorldRecord *world = e->job ? entry_before(e->job->world) : NULL;
    const NodeRecord *node = ranks ? entry_before(history_find(h, KEY_NODES, e->node)) : NULL;
    if (!ranks || !world || !node || ranks->generation >= world->generation ||
        ranks->incarnation != node->incarnation || !fleet_runs(node_index(e->node)))
        return;
    for (size_t i = 0; i < ranks->n_ranks; i++)
        if (ranks->ranks[i].state != RANK_EXITED &&
            !trainers_are_at(node_index(e->node), ranks->ranks[i].slot))
            books_break("reports", "%s: a rank of %s-%lld that is not there has not ended", e->node,
                        e->job->spec->name, (long long)ranks->generation);
}

void checks_end(HistoryChecker *h)
{
    for (size_t i = 0; i < h->n_buckets; i++)
        for (const Entry *e = h->buckets[i]; e; e = e->in_bucket)
            if (e->kind == KEY_RANKS)
                check_report(h, e);
}

/* ---- controllers ---- */

static void forget_controller(int controller)
{
    free(controller_ledgers[controller].cordons);
    free(controller_ledgers[controller].cordon_revisions);
    free(controller_ledgers[controller].cordon_usec);
    free(controller_ledgers[controller].node_revisions);
    free(controller_ledgers[controller].machines);
    controller_ledgers[controller] = (ControllerLedger){0};
}

void checks_controller_starts(int controller)
{
    const size_t n = (size_t)checks_options.n_nodes;
    forget_controller(controller);
    controller_ledgers[controller].cordons = memory_zeroed(n, sizeof(CordonRecord));
    controller_ledgers[controller].cordon_revisions = memory_zeroed(n, sizeof(int64_t));
    controller_ledgers[controller].cordon_usec = memory_zeroed(n, sizeof(uint64_t));
    controller_ledgers[controller].node_revisions = memory_zeroed(n, sizeof(int64_t));
    controller_ledgers[controller].machines = memory_zeroed(n, sizeof(NodeMachine));
}

void checks_controller_leads(int controller)
{
    controller_ledgers[controller].led_usec = loops_now_usec();
}

void checks_controller_stepped(int controller, const Event *event, const Cluster *cluster)
{
    if (event->more || checks_options.n_nodes > CHECKED_NODES_MAX)
        return;
    cluster_check(cluster);
    if (cluster_dropped(cluster) > 0 && !checks_options.has_small_tables)
        books_break("rest", "c%d: records did not fit the limits", controller);
}

/* ---- open, close, and the end ---- */

void checks_clock_steps(void) { checks_clocks_differ = true; }

ChecksCounts checks_counts(void) { return counts; }

void checks_open(const ChecksOptions *options)
{
    checks_options = *options;
    n_ledgers = n_marks = 0;
    checks_clocks_differ = false;
    last_term = 0;
    counts = (ChecksCounts){0};
    memset(candidates, 0, sizeof(candidates));
    memset(node_ledgers, 0, sizeof(node_ledgers));
}

void checks_close(void)
{
    for (int i = 0; i < FLEET_CONTROLLERS_MAX; i++)
        forget_controller(i);
}
