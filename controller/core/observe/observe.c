/* SPDX-License-Identifier: Apache-2.0 */
/* observe.c - applies records to the core's state.
 *
 * Entry points: observe(), observe_settle(). Guarantees: an older copy of a record never replaces a
 * newer one; records of unknown jobs and nodes get a place if there is one. Nothing is decided here. */
#include "controller/core/observe/observe.h"

#include "controller/core/facts/incidents.h"
#include "controller/core/facts/lost.h"
#include "controller/core/facts/presence.h"
#include "controller/core/observe/absences.h"
#include "controller/core/observe/commit-records.h"
#include "controller/core/observe/lists.h"
#include "controller/core/observe/records.h"
#include "controller/core/observe/strangers.h"
#include "controller/core/observe/tables.h"
#include "controller/core/state/text-buffer.h"
#include "protocol/exit-code.h"
#include "protocol/train-stage.h"

#include <string.h>

/* Notes the event's revision. Returns false if the event is older than what is known. */
static bool stamp(Stamp *s, const Event *ev)
{
    if (ev->revision < s->seen)
        return false;
    s->seen = ev->revision;
    s->mod = ev->record || ev->health ? ev->revision : 0;
    assert(s->mod <= s->seen);
    return true;
}

/* ---- nodes ---- */

static void believe_node(Cluster *c, CoreNode *node, const NodeRecord *record, int64_t lease,
                         int64_t revision)
{
    if (!node->present || node->record.incarnation != record->incarnation)
        node->changed_usec = c->now_usec;
    if (record->state == NODE_LEFT)
        node->left_incarnation = record->incarnation;
    if (record->verdict != NODE_DRAIN)
        node->drain_revision = 0;
    else if (node->drain_revision == 0)
        node->drain_revision = revision;
    char name[sizeof(node->record.name)];
    text_copy(name, sizeof(name), node->record.name); /* the key's name counts, not the record's */
    node->present = true;
    node->missed = false;
    node->lease = lease;
    node->record = *record;
    text_copy(node->record.name, sizeof(node->record.name), name);
    node_admit(c, node);
    node_price(c, node);
    for (int i = 0; node->admitted && record->n_runs > 0 && i < c->limits.jobs; i++)
        if (c->jobs[i].used)
            lost_observe_runs(job_at(c, i), record);
}

static void observe_node(Cluster *c, const Event *ev)
{
    int n = node_intern(c, ev->name);
    if (n < 0 || ev->health || !stamp(&node_at(c, n)->stamp, ev))
        return; /* the node's last readable record stays in force */
    CoreNode *node = node_at(c, n);
    const NodeRecord *record = ev->node_record;
    if (!record) {
        stranger_forget(c, node);
        if (node->present) {
            node->vanished_real_usec = c->real_usec;
            node_note_absence(c, node);
        }
        if (node->present || node->changed_usec == 0)
            node->changed_usec = c->now_usec;
        node->present = false;
        return;
    }
    if (!stranger_doubts(c, node, ev))
        believe_node(c, node, record, ev->lease, ev->revision);
}

static void believe_what_was_doubted(Cluster *c, Scratch *s)
{
    for (int i = 0; c->n_doubted > 0 && i < c->limits.nodes; i++) {
        CoreNode *node = node_at(c, i);
        const DoubtedRecord *doubted = node->used ? stranger_believed(c, s, node) : NULL;
        if (!doubted)
            continue;
        stranger_forget(c, node);
        believe_node(c, node, &doubted->record, doubted->lease, doubted->revision);
    }
}

/* Returns the revision at which the cause got its present mode and time: a write that changes only other causes does
 * not count. */
static int64_t revision_of_cause(const NodeCordons *old, const CordonCause *cause, int64_t revision)
{
    int at = cordon_find(&old->record, cause->owner, cause->job, cause->machine_id);
    bool same = at >= 0 && old->record.causes[at].mode == cause->mode &&
                old->record.causes[at].since_usec == cause->since_usec;
    return same ? old->revisions[at] : revision;
}

static uint64_t notified_of_end(const Cluster *c, const NodeCordons *old, const CordonCause *cause)
{
    int at = cordon_find(&old->record, cause->owner, cause->job, cause->machine_id);
    bool same = at >= 0 && old->record.causes[at].until_usec == cause->until_usec;
    return same ? old->told_usec[at] : c->now_usec;
}

/* Makes a cause in place of a cordon record that cannot be read: the record was written for some reason, so the node
 * is held back. */
static void hold_back(CordonCause *ret)
{
    *ret = (CordonCause){.owner = CORDON_OPERATOR, .mode = CORDON_CORDON};
    text_copy(ret->reason, sizeof(ret->reason),
              "its cordon record cannot be read; sdctl node uncordon --force removes it");
}

/* Updates the list of nodes that have a cordon record. Such nodes are few, so loops over pairs of nodes visit only
 * this list. */
static void note_cordoned(Cluster *c, int n)
{
    int at = 0;
    while (at < c->n_cordoned && c->cordoned[at] < n)
        at++;
    bool there = at < c->n_cordoned && c->cordoned[at] == n,
         wanted = c->nodes[n].cordon_stamp.mod != 0;
    assert(!wanted || there || c->n_cordoned < c->limits.nodes);
    if (wanted && !there) {
        memmove(&c->cordoned[at + 1], &c->cordoned[at], sizeof(int) * (size_t)(c->n_cordoned - at));
        c->cordoned[at] = n;
        c->n_cordoned++;
    } else if (!wanted && there) {
        c->n_cordoned--;
        memmove(&c->cordoned[at], &c->cordoned[at + 1], sizeof(int) * (size_t)(c->n_cordoned - at));
    }
}

static void observe_cordon(Cluster *c, const Event *ev)
{
    int n = node_intern(c, ev->name);
    if (n < 0 || !stamp(&node_at(c, n)->cordon_stamp, ev))
        return;
    note_cordoned(c, n);
    NodeCordons *cordons = cordons_at(c, n);
    node_at(c, n)->cordon_foreign = ev->health == RECORD_FOREIGN;
    if (!ev->cordon && !ev->health)
        memset(cordons, 0, sizeof(*cordons));
    if (!ev->cordon && ev->health && cordons->record.n_causes == 0) {
        hold_back(&cordons->record.causes[0]); /* no cause is known that could stay in force */
        cordons->record.n_causes = 1;
        cordons->revisions[0] = ev->revision;
    }
    if (!ev->cordon)
        return;
    int64_t revisions[RECORD_CAUSES_MAX] = {0};
    uint64_t told_usec[RECORD_CAUSES_MAX] = {0};
    for (size_t i = 0; i < ev->cordon->n_causes; i++) {
        revisions[i] = revision_of_cause(cordons, &ev->cordon->causes[i], ev->revision);
        told_usec[i] = notified_of_end(c, cordons, &ev->cordon->causes[i]);
    }
    memcpy(cordons->revisions, revisions, sizeof(revisions));
    memcpy(cordons->told_usec, told_usec, sizeof(told_usec));
    cordons->record = *ev->cordon;
}

/* ---- jobs ---- */

static void attach_report(const Cluster *c, const CoreJob *job, Run *run)
{
    assert(run->node >= 0 &&
           c->nodes[run->node].used); /* node_is_needed() keeps the node's place */
    run->report = -1;
    for (int k = c->nodes[run->node].first_report; k >= 0; k = c->reports[k].next_of_node) {
        const NodeRanks *report = &c->reports[k];
        assert(report->used && report->node == run->node);
        if (report->job == job_index(c, job) && report->generation == job->world.generation &&
            report->world_revision == job->world_stamp.mod)
            run->report = k;
    }
}

/* Links the runs of the present world to their nodes' reports; node -1: the runs on all nodes. */
static void attach_reports(Cluster *c, const CoreJob *job, int node)
{
    Run *runs = runs_at(c, job);
    for (int i = 0; i < job->n_runs; i++)
        if (node < 0 || runs[i].node == node)
            attach_report(c, job, &runs[i]);
}

/* A lost or older world gets no reports, and keeps its slots until another world follows. */
static void observe_world(Cluster *c, CoreJob *job, const Event *ev)
{
    const WorldRecord *world = ev->world;
    job->failing_usec = job->left_usec = 0;
    job->world_usec = c->now_usec;
    if (!ev->health && !world && lost_with_its_job(job, job->world.submission)) {
        memset(&job->world, 0, sizeof(job->world));
        job->n_runs = 0;
    }
    job->world_lost =
        lost_by(ev, job->world.generation > 0, world && lost_is_older_world(job, world));
    attach_reports(c, job, -1); /* no report is about the new revision of the world */
    if (!world || job->world_lost)
        return;
    job->world = *world;
    job->world.runs = NULL;
    job->n_runs = 0;
    int rank = 0;
    for (size_t i = 0; i < world->n_runs && job->n_runs < c->limits.nodes; i++) {
        int n = node_intern(c, world->runs[i].node);
        if (n < 0)
            continue;
        runs_at(c, job)[job->n_runs++] = (Run){.node = n,
                                               .report = -1,
                                               .incarnation = world->runs[i].incarnation,
                                               .slots = world->runs[i].slots,
                                               .first_rank = rank};
        rank += slots_count(world->runs[i].slots);
    }
    assert(job->n_runs <= c->limits.nodes);
    attach_reports(c, job, -1);
}

static void note_generation(CoreJob *job, int64_t generation)
{
    if (job->oldest_generation == 0 || generation < job->oldest_generation)
        job->oldest_generation = generation;
    job->reported_generation = MAX(job->reported_generation, generation);
}

/* The id of an incident about trouble or divergence names the revision at which progress/<job> first reported it. So a
 * second try of a transaction whose answer was lost writes the same incident. */
static void observe_progress(CoreJob *job, const Event *ev)
{
    const ProgressRecord none = {0}, *p = ev->progress ? ev->progress : &none;
    const bool trouble = p->unsaved_since_usec || p->waits_since_usec;
    job->progress = *p;
    job->trouble_revision = !trouble                ? 0
                            : job->trouble_revision ? job->trouble_revision
                                                    : ev->revision;
    job->diverging_revision = p->diverging_since <= 0   ? 0
                              : job->diverging_revision ? job->diverging_revision
                                                        : ev->revision;
}

static void observe_job(Cluster *c, const Event *ev)
{
    CoreJob *job = job_intern(c, ev->name);
    if (!job)
        return;
    switch (ev->kind) {
    case EVENT_SPEC:
        if (!stamp(&job->spec_stamp, ev))
            return;
        lost_observe_spec(c, job, ev);
        jobs_sort(c);
        break;
    case EVENT_DESIRED:
        if (ev->revision == job->desired_stamp.seen || !stamp(&job->desired_stamp, ev))
            return;
        lost_observe_desired(job, ev);
        jobs_sort(c);
        break;
    case EVENT_WORLD:
        if (ev->revision == job->world_stamp.seen || !stamp(&job->world_stamp, ev))
            return; /* a second copy of the record must not restart the world's deadlines */
        observe_world(c, job, ev);
        break;
    case EVENT_PHASE:
        if (ev->revision == job->phase_stamp.seen || !stamp(&job->phase_stamp, ev))
            return;
        lost_observe_phase(c, job, ev);
        break;
    case EVENT_CHECKPOINTS:
        if (!stamp(&job->checkpoints_stamp, ev))
            return;
        checkpoints_observe(job, ev);
        break;
    case EVENT_PROGRESS:
        if (!stamp(&job->progress_stamp, ev))
            return;
        if (!ev->health)
            observe_progress(job, ev);
        break;
    case EVENT_RENDEZVOUS:
        if (ev->record)
            note_generation(job, ev->generation);
        break;
    default:
        assert(false);
    }
    if (!job->spec_stamp.mod && !job->desired_stamp.mod && !job->world_stamp.mod &&
        !job->phase_stamp.mod && !job->checkpoints_stamp.mod) {
        lost_forget(job, "");
        job->n_runs = 0;
        job->facts = (JobFacts){0};
        job->spec_lost = LOST_NOT;
    }
    job_forget_if_empty(c, job);
}

/* ---- ranks ---- */

/* Returns how useful the last output of a rank is; 0: not at all. A report keeps the text of one failed rank,
 * preferably of a rank that exited with an error of its own. */
static int worth_quoting(const RankReport *rank)
{
    if (rank->state != RANK_EXITED || rank->exit_code == 0 || !rank->text[0])
        return 0;
    if (rank->exit_code == EXIT_NON_FINITE && rank->stage == STAGE_LEAVING)
        return 3; /* only this rank knows what made its grain non-finite */
    return rank->exit_code == EXIT_PEER_LOST || rank->killed ? 1 : 2;
}

static void fill_report(NodeRanks *report, const RanksRecord *record)
{
    report->world_revision = record->world_revision;
    report->incarnation = record->incarnation;
    report->killed_usec = record->killed_usec;
    report->first_step = record->first_step;
    report->first_step_usec = record->first_step_usec;
    report->left = record->left;
    report->finished = record->finished;
    report->n_ranks = MIN((int)record->n_ranks, RECORD_SLOTS_MAX);
    report->started_usec = report->ready_usec = 0;
    report->worst = -1;
    report->text[0] = '\0';
    int best = 0;
    for (int i = 0; i < report->n_ranks; i++) {
        const RankReport *r = &record->ranks[i];
        report->ranks[i] = (CoreRank){.slot = (uint8_t)r->slot,
                                      .rank = r->rank,
                                      .exit_code = (int16_t)r->exit_code,
                                      .stage = (uint8_t)(r->unnamed ? STAGE_RUNNING : r->stage),
                                      .unreachable_rank = r->unmet - 1,
                                      .state = (uint8_t)r->state,
                                      .hung = r->hung,
                                      .killed = r->killed,
                                      .stuck = r->stuck,
                                      .step = r->step,
                                      .at_usec = r->at_usec};
        report->started_usec = MAX(report->started_usec, r->started_usec);
        report->ready_usec = MAX(report->ready_usec, r->ready_usec);
        if (worth_quoting(r) > best) {
            best = worth_quoting(r);
            report->worst = r->rank;
            text_copy(report->text, sizeof(report->text), r->text);
        }
    }
}

static void observe_ranks(Cluster *c, Scratch *s, const Event *ev)
{
    CoreJob *job = job_intern(c, ev->name);
    int node = job ? node_intern(c, ev->node) : -1;
    if (node < 0)
        return;
    NodeRanks *report = report_find(c, job, node, ev->generation);
    if (!report && ev->ranks)
        report = report_new(c, s, job, node, ev->generation);
    if (!report || ev->health || !stamp(&report->stamp, ev))
        return;
    report_set_gone(c, report, !ev->ranks);
    if (!ev->ranks) {
        report->gone_usec = c->now_usec;
        return;
    }
    note_generation(job, ev->generation);
    fill_report(report, ev->ranks);
    report->lease = ev->lease;
    assert(report->used && report->node == node && report->job == job_index(c, job));
    assert(!report->gone);
    attach_reports(c, job, node);
}

static bool gone_report_is_over(const Cluster *c, Scratch *s, const NodeRanks *report)
{
    const CoreNode *node = &c->nodes[report->node];
    if (report_has_end(&c->jobs[report->job], report))
        return false; /* the node may reboot before rank 0 has reported how the world ended */
    if (!report_is_alive(c, s, report))
        return true;
    if (!node->present)
        return node_is_lost(c, s, node);
    if (node->doubt_usec)
        return false; /* the report went with the lease; soon the kept record counts */
    /* The node is present. If the node was away and has not put this report back yet, the node's record shows whether
     * it still runs the generation. If the node never was away, the report's key was removed on purpose. */
    if (node->stamp.mod < report->stamp.seen)
        return true;
    return node->record.world_revision != report->world_revision;
}

void observe_settle(Cluster *c, Scratch *s)
{
    believe_what_was_doubted(c, s);
    for (int i = 0; c->n_gone > 0 && i < c->n_reports; i++) {
        NodeRanks *report = report_at(c, i);
        if (!report->used || !report->gone || !gone_report_is_over(c, s, report))
            continue;
        CoreJob *job = job_at(c, report->job);
        assert(job->used); /* the job has a report */
        report_forget(c, report);
        attach_reports(c, job, report->node);
        job_forget_if_empty(c, job);
    }
}

/* ---- incidents, alerts and requests ---- */

/* True when a table's row, which was found by the event's name or is free, stores the event's record. A record that
 * cannot be read leaves the row unchanged: the next decision about it overwrites the record. */
static bool row_takes(bool *used, Stamp *row_stamp, const Event *ev)
{
    if (!*used && !ev->record)
        return false;
    if (!*used)
        *row_stamp = (Stamp){0};
    if (!stamp(row_stamp, ev) || ev->health)
        return false;
    *used = ev->record != NULL;
    return *used;
}

static void observe_incident(Cluster *c, const Event *ev)
{
    Incident *place = NULL;
    for (int i = 0; i < c->limits.incidents; i++) {
        Incident *incident = incident_at(c, i);
        if (incident->used && text_equal(incident->record.id, ev->name)) {
            place = incident;
            break;
        }
        if (!incident->used && !place)
            place = incident;
    }
    if (!place && ev->incident)
        table_drop(c, TABLE_INCIDENTS);
    const bool was_open = place && place->used && place->record.state == INCIDENT_OPEN;
    if (!place || !row_takes(&place->used, &place->stamp, ev))
        return;
    place->record = *ev->incident;
    text_copy(place->record.id, sizeof(place->record.id), ev->name);
    c->hold_is_told |= !was_open && text_equal(place->record.cause, hold_cause);
}

static void observe_alert(Cluster *c, const Event *ev)
{
    Alert *place = NULL;
    for (int i = 0; i < c->limits.incidents; i++) {
        Alert *alert = alert_at(c, i);
        if (alert->used && text_equal(alert->id, ev->name)) {
            place = alert;
            break;
        }
        if (!alert->used && !place)
            place = alert;
    }
    if (!place && ev->alert)
        table_drop(c, TABLE_ALERTS);
    if (!place || !row_takes(&place->used, &place->stamp, ev))
        return;
    place->settled = ev->alert->settled;
    place->incident_usec = ev->alert->incident_usec;
    text_copy(place->id, sizeof(place->id), ev->name);
}

/* Applies a request "forget": every controller forgets the node, so that the next leader does not count it as
 * lost again. */
static void forget_missed(Cluster *c, const RequestRecord *request)
{
    int at = node_place_of_name(c, request->target);
    if (text_equal(request->kind, "forget") && at < c->n_by_name &&
        text_equal(c->nodes[c->by_name[at]].record.name, request->target))
        node_at(c, c->by_name[at])->missed = false;
}

static void observe_request(Cluster *c, const Event *ev)
{
    Request *place = NULL;
    for (int i = 0; i < c->limits.requests; i++) {
        Request *request = request_at(c, i);
        if (request->used && text_equal(request->record.id, ev->name)) {
            place = request;
            break;
        }
        if (!request->used && !place)
            place = request;
    }
    if (!place && ev->request)
        table_drop(c, TABLE_REQUESTS);
    if (place && !place->used)
        place->seen_usec = c->now_usec;
    if (!place || !row_takes(&place->used, &place->stamp, ev))
        return;
    place->record = *ev->request;
    forget_missed(c, ev->request);
    text_copy(place->record.id, sizeof(place->record.id), ev->name);
}

void observe(Cluster *c, Scratch *s, const Event *ev)
{
    c->seen_revision = MAX(c->seen_revision, ev->revision);
    switch (ev->kind) {
    case EVENT_NODE:
        observe_node(c, ev);
        break;
    case EVENT_CORDON:
        observe_cordon(c, ev);
        break;
    case EVENT_RANKS:
        observe_ranks(c, s, ev);
        break;
    case EVENT_INCIDENT:
        observe_incident(c, ev);
        break;
    case EVENT_ALERT:
        observe_alert(c, ev);
        break;
    case EVENT_REQUEST:
        observe_request(c, ev);
        break;
    default:
        observe_job(c, ev);
    }
}
