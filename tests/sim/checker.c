/* SPDX-License-Identifier: Apache-2.0 */
/* checker.c - see checker.h. */
#include "tests/sim/checker.h"

#include "cluster/cordon.h"
#include "tests/sim/universe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BROKEN(u, invariant, ...) sim_fail(&(u)->sim, invariant, __VA_ARGS__)

void checker_breach(Universe *u, const Breach *breach)
{
    BROKEN(u, breach->invariant, "%s", breach->text);
}

static const void *record_in(Universe *u, KeyKind kind, int job)
{
    return etcd_record(&u->etcd, kind, universe_job_name(job));
}

/* What the transaction puts under a key of that kind, else what is there. */
static const void *record_after(Universe *u, const Txn *txn, KeyKind kind, const char *name)
{
    for (size_t i = 0; i < txn->n_ops; i++) {
        const ModelKey *key = &u->etcd.keys[txn->ops[i].key];
        if (txn->ops[i].kind == OP_PUT && key->kind == kind && strcmp(key->name, name) == 0)
            return value_record(txn->ops[i].value);
    }
    return etcd_record(&u->etcd, kind, name);
}

static bool is_put(const Universe *u, const Txn *txn, KeyKind kind, const char *name)
{
    for (size_t i = 0; i < txn->n_ops; i++) {
        const ModelKey *key = &u->etcd.keys[txn->ops[i].key];
        if (txn->ops[i].kind == OP_PUT && key->kind == kind && strcmp(key->name, name) == 0)
            return true;
    }
    return false;
}

/* The machine that has the name. */
static bool quarantines(const SimNode *node, const CordonRecord *cordon, const char *job)
{
    char machine[33];
    const CordonCause *cause =
        cordon ? cordon_strongest(cordon, node_machine(node, machine), job, 0) : NULL;
    return cause && cause->mode == CORDON_QUARANTINE;
}

/* ---- I1 ---- */

static void check_leader(Universe *u, const Txn *txn)
{
    int64_t lowest = INT64_MAX;
    ModelEtcd *etcd = &u->etcd;
    for (size_t i = 0; i < etcd->keys_of[KEY_LEADER].n; i++) {
        const ModelKey *key = &etcd->keys[etcd->keys_of[KEY_LEADER].at[i]];
        if (key->create_revision)
            lowest = MIN(lowest, key->create_revision);
    }
    if (txn->term != lowest)
        BROKEN(u, "I1", "%s writes in term %lld, but the term is %lld", txn->leader->name,
               (long long)txn->term, (long long)(lowest == INT64_MAX ? 0 : lowest));
    u->checker.n_terms += txn->term != u->checker.last_term;
    u->checker.last_term = txn->term;
}

/* ---- a new world: I2, I4, I5, I6, I7, and that a failure has its incident ---- */

static const CheckpointCommit *latest_commit(Universe *u, const Txn *txn, const char *job)
{
    const CheckpointsRecord *record = record_after(u, txn, KEY_CHECKPOINTS, job);
    return record ? checkpoints_latest(record) : NULL;
}

static void check_quarantine(Universe *u, const Txn *txn, const WorldRecord *world,
                             const PhaseRecord *phase, const char *job)
{
    for (size_t i = 0; i < world->n_runs; i++) {
        const char *name = world->runs[i].node;
        const ModelKey *key = etcd_find(&u->etcd, KEY_CORDONS, name);
        const SimNode *node = &u->nodes[strtol(name + 1, NULL, 10)]; /* "n5" */
        if (node->incarnation != world->runs[i].incarnation)
            continue; /* perhaps another machine, which is gone */
        /* what the leader could not know yet, it will obey soon */
        const CordonRecord *known = key && key->mod_revision <= phase->tried_revision
                                        ? checker_cordon_known(u, txn->leader, name)
                                        : NULL;
        if (is_put(u, txn, KEY_CORDONS, name))
            known = record_after(u, txn, KEY_CORDONS, name);
        char machine[33];
        Breach b;
        if (!rule_run_is_open(job, world, name, node_machine(node, machine), known, CORDON_CORDON,
                              &b))
            checker_breach(u, &b);
    }
}

static void check_slots(Universe *u, const ModelController *leader, int job,
                        const WorldRecord *world)
{
    Breach b;
    if (!rule_world_fits(universe_job_name(job), world, &b))
        checker_breach(u, &b);
    for (int other = 0; other < u->options.n_jobs; other++) {
        const WorldRecord *theirs = record_in(u, KEY_WORLDS, other);
        const PhaseRecord *phase = record_in(u, KEY_PHASES, other);
        if (other == job)
            continue;
        if (!theirs || !phase || !phase_is_active(phase->phase) ||
            u->checker.jobs[other].broken_world ||
            u->checker.jobs[other].broken_phase) /* it may be an old one */
            theirs = checker_lost_world(u, leader, other);
        if (theirs && !rule_worlds_are_apart(universe_job_name(job), world,
                                             universe_job_name(other), theirs, &b))
            checker_breach(u, &b);
    }
}

/* Pauses of 1, 2, 4, 8, 16, 30, ... s that fit into the patience, and the one that ends it. */
static int forgiven_at_most(const JobFacts *facts)
{
    int n = 0;
    for (uint64_t usec = 0; usec < facts->store_patience_usec; n++)
        usec += MIN(1 << MIN(n, 5), 30) * USEC_PER_SEC;
    return n;
}

/* The books know more than a leader may have seen, so they allow it twice the number. */
static void count_failure(Universe *u, int job, bool store)
{
    JobBooks *books = &u->checker.jobs[job];
    const JobFacts *facts = &u->options.jobs[job].facts;
    bool progressed = books->visible_step > books->visible_before;
    books->failures = progressed ? 0 : books->failures + !store;
    books->lost = progressed ? 0 : books->lost + store;
    books->visible_before = books->visible_step;
    int excess = MAX(0, books->lost - 2 * forgiven_at_most(facts) - 2);
    if (books->failures + excess > 2 * facts->max_failures + 2)
        BROKEN(u, "I7", "%d worlds of %s in a row did not pass step %lld, %d more for the store",
               books->failures, universe_job_name(job), (long long)books->visible_step,
               books->lost);
}

static void check_world(Universe *u, const Txn *txn, int job, const WorldRecord *world)
{
    const char *name = universe_job_name(job);
    JobBooks *books = &u->checker.jobs[job];
    const PhaseRecord *phase = record_after(u, txn, KEY_PHASES, name);
    const CheckpointCommit *latest = latest_commit(u, txn, name);
    bool unknown = books->broken_world && books->broken_phase; /* to whoever has not seen it */
    books->broken_world = books->broken_phase = false;
    Breach b;
    if (!unknown && !rule_world_follows(name, world, books->generation, &b))
        checker_breach(u, &b);
    books->generation = world->generation;
    books->world_revision = u->etcd.revision + 1;
    if (!rule_world_has_phase(name, world, phase, &b) ||
        !rule_world_resumes(name, world, latest, &b))
        checker_breach(u, &b);
    checker_follows_word(u, txn->leader, job, world);
    if (phase)
        checker_owner(u, job, phase, world);
    if (phase)
        check_quarantine(u, txn, world, phase, name);
    if (phase)
        checker_queue(u, txn, job, phase);
    check_slots(u, txn->leader, job, world);
    if (phase && phase->phase == PHASE_RECOVERING) {
        const IncidentRecord *incident =
            world->incident[0] ? record_after(u, txn, KEY_INCIDENTS, world->incident) : NULL;
        if (!rule_recovery_has_incident(name, world, phase, incident, &b))
            checker_breach(u, &b);
        else if (strcmp(incident->cause, "node-left") != 0 &&
                 strcmp(incident->cause, "world-lost") != 0)
            count_failure(u, job, strcmp(incident->cause, "store-unreachable") == 0);
    }
    u->checker.n_worlds++;
}

/* ---- go: I3 ---- */

/* What runs there may be of an older world only where nobody can reach it, for the grace at least,
 * or where it is shut out. */
static bool may_still_run(Universe *u, const Process *p)
{
    const CordonRecord *cordon = etcd_record(&u->etcd, KEY_CORDONS, p->node->name);
    const ModelKey *key = &u->etcd.keys[etcd_key(&u->etcd, KEY_NODES, p->node->name, 0, -1)];
    bool gone =
        key->mod_revision == 0 && u->sim.now_usec >= key->deleted_usec + u->options.core.grace_usec;
    return p->lost || p->killing || gone || quarantines(p->node, cordon, NULL);
}

static void check_go(Universe *u, int job, const PhaseRecord *phase)
{
    for (int n = 0; n < u->options.n_nodes; n++)
        for (int slot = 0; slot < u->options.n_slots; slot++) {
            const Process *p = &u->nodes[n].slots[slot];
            if (p->alive && p->job == job && p->generation < phase->generation &&
                !may_still_run(u, p))
                BROKEN(u, "I3", "%s-%lld may go, but a rank of %lld runs on %s",
                       universe_job_name(job), (long long)phase->generation,
                       (long long)p->generation, p->node->name);
        }
}

/* A word about the size acts in its own direction, however the plan has changed since. */
static void check_resize(Universe *u, int job, const PhaseRecord *phase)
{
    const DesiredRecord *desired = record_in(u, KEY_DESIRED, job);
    int from, to;
    if (!desired || sscanf(phase->reason, "resizes from %d to %d", &from, &to) != 2)
        return;
    int64_t wanted =
        MIN(desired->target ? desired->target : desired->max, u->options.jobs[job].facts.n_grains);
    if (wanted == from || (wanted > from) != (to > from))
        BROKEN(u, "resize", "%s %s, and %lld ranks are wanted", universe_job_name(job),
               phase->reason, (long long)wanted);
}

static void check_phase(Universe *u, int job, const PhaseRecord *phase)
{
    const PhaseRecord *old = record_in(u, KEY_PHASES, job);
    const PhaseRecord none = {0};
    old = old ? old : &none;
    if (phase->phase != old->phase || phase->go != old->go || phase->leave != old->leave ||
        phase->generation != old->generation)
        sim_say(&u->sim, "  %s %s %lld%s%s failures %d \"%s\"", universe_job_name(job),
                job_phase_name(phase->phase), (long long)phase->generation, phase->go ? " go" : "",
                phase->leave ? " leave" : "", phase->failures_without_progress, phase->reason);
    Breach b;
    if (!rule_phase_follows(universe_job_name(job), old, phase, &b))
        checker_breach(u, &b);
    JobBooks *books = &u->checker.jobs[job];
    books->phase = phase->phase;
    if (phase->phase != PHASE_PENDING)
        books->pending_usec = 0;
    else if (books->pending_usec == 0)
        books->pending_usec = u->sim.now_usec;
    bool asked = phase->leave && !old->leave && old != &none; /* else it was put back */
    u->checker.n_leaves += asked;
    if (asked)
        check_resize(u, job, phase);
    if (phase->phase == PHASE_SUCCEEDED)
        checker_success(u, job);
    /* ranks go by their world's record: a phase that is put back while that is an older one lets nobody go */
    const WorldRecord *world = record_in(u, KEY_WORLDS, job);
    if (phase->go && (!old->go || old->generation != phase->generation) && world &&
        world->generation == phase->generation)
        check_go(u, job, phase);
}

/* ---- absence, and whom a failure costs what (docs/concepts/failure-and-blame.md) ---- */

enum { HOLD_NODES_MIN = 4, HOLD_SHARE = 4 };

static void note_node(const Universe *u, SimNode *node, const NodeRecord *record)
{
    if (record->state == NODE_LEFT)
        node->said_left_revision = u->etcd.revision + 1;
    else
        node->said_up_revision = u->etcd.revision + 1;
}

/* The last that the leader has seen of it. */
static bool says_left(const SimNode *node, int64_t seen_revision)
{
    return node->said_left_revision && node->said_left_revision <= seen_revision &&
           (node->said_up_revision < node->said_left_revision ||
            node->said_up_revision > seen_revision);
}

/* Whether it counts in a hold is its leader's business: here it does nowhere. */
static bool is_on_all_lists(const Universe *u, const SimNode *node)
{
    bool all = true;
    for (int i = 0; i < u->options.n_controllers; i++)
        all &= admission_allows(u->controllers[i].config.admit, node->name, "");
    return all;
}

/* Nodes that vanished within the last TTL, as far as the leader knew. */
static void check_hold(Universe *u, int64_t seen_revision)
{
    int fresh = 0, present = 0;
    for (int i = 0; i < u->options.n_nodes; i++) {
        const SimNode *node = &u->nodes[i];
        int n = etcd_key(&u->etcd, KEY_NODES, node->name, 0, -1);
        const ModelKey *key = &u->etcd.keys[n];
        bool gone = key->mod_revision == 0 && key->deleted_revision <= seen_revision;
        /* one that left has said so; one that starts anew has not come yet */
        if (says_left(node, seen_revision) || !node->registered || !is_on_all_lists(u, node) ||
            (gone && key->deleted_revision == 0))
            continue;
        present += !gone;
        fresh += gone && u->sim.now_usec < key->deleted_usec + u->options.ttl_usec;
    }
    if (fresh >= HOLD_NODES_MIN && fresh * HOLD_SHARE > present + fresh)
        BROKEN(u, "hold", "%d of %d nodes vanished within one TTL, and one of them is replaced",
               fresh, present + fresh);
}

static void check_absence(Universe *u, const Txn *txn, const IncidentRecord *incident)
{
    const PhaseRecord *phase = record_after(u, txn, KEY_PHASES, incident->job);
    if (u->sim.now_usec < txn->leader->led_usec + u->options.ttl_usec)
        BROKEN(u, "absence", "%s acts on the absence of %s, and leads for less than one TTL",
               txn->leader->name, incident->node);
    if (phase)
        check_hold(u, phase->tried_revision);
}

static void check_blame(Universe *u, const Txn *txn, const IncidentRecord *incident)
{
    const CordonRecord *cordon = record_after(u, txn, KEY_CORDONS, incident->node);
    const PhaseRecord *phase = record_after(u, txn, KEY_PHASES, incident->job);
    int n = etcd_key(&u->etcd, KEY_CORDONS, incident->node, 0, -1);
    if (phase && u->etcd.keys[n].deleted_revision > phase->tried_revision)
        return; /* somebody took it away just then */
    Breach b;
    if (!rule_incident_is_blamed(incident, cordon, &b))
        checker_breach(u, &b);
}

/* ---- incidents: I10 ---- */

void checker_save_fails(Universe *u, int job)
{
    JobBooks *books = &u->checker.jobs[job];
    if (books->failing_usec == 0)
        books->failing_usec = u->sim.now_usec;
}

static bool is_trouble(const IncidentRecord *incident)
{
    return strcmp(incident->cause, "store-trouble") == 0;
}

/* The open one of the job that ended no world. */
static const ModelKey *find_trouble(Universe *u, const char *job)
{
    ModelEtcd *etcd = &u->etcd;
    for (size_t i = 0; i < etcd->keys_of[KEY_INCIDENTS].n; i++) {
        const ModelKey *key = &etcd->keys[etcd->keys_of[KEY_INCIDENTS].at[i]];
        const IncidentRecord *incident = value_record(key->value);
        if (incident && incident->state == INCIDENT_OPEN && is_trouble(incident) &&
            strcmp(incident->job, job) == 0)
            return key;
    }
    return NULL;
}

bool checker_knows_trouble(Universe *u, int job)
{
    return find_trouble(u, universe_job_name(job)) != NULL;
}

/* One of a job at a time, only while a store is, or was, away; and where nothing could be saved it is over
 * when something was, or when the job has ended. */
static void check_trouble(Universe *u, const Txn *txn, const char *id,
                          const IncidentRecord *incident)
{
    const ModelKey *open = find_trouble(u, incident->job),
                   *own = etcd_find(&u->etcd, KEY_INCIDENTS, id);
    const PhaseRecord *phase = record_after(u, txn, KEY_PHASES, incident->job);
    JobBooks *books = &u->checker.jobs[universe_job_index(incident->job)];
    if (!own && (open || u->store.n_outs == 0))
        BROKEN(u, "I10", "trouble of %s opens %s", incident->job,
               open ? "twice" : "although the store was never away");
    if (!own)
        books->trouble_usec =
            strncmp(incident->evidence, "nothing was saved", 17) == 0 ? books->failing_usec : 0;
    if (!own || incident->state == INCIDENT_OPEN || !phase || !phase_is_active(phase->phase))
        return;
    if (books->trouble_usec && books->committed_usec < books->trouble_usec)
        BROKEN(u, "I10", "trouble of %s is over, and nothing was saved", incident->job);
}

/* The page of a lost node: over when it is back, or cordoned, and not before anything has become of it. */
static void check_loss(Universe *u, const char *id, const IncidentRecord *incident)
{
    const ModelKey *own = etcd_find(&u->etcd, KEY_INCIDENTS, id);
    if (incident->job[0] || strcmp(incident->cause, "node-lost") != 0 || !own ||
        incident->state != INCIDENT_RESOLVED)
        return;
    const ModelKey *node = &u->etcd.keys[etcd_key(&u->etcd, KEY_NODES, incident->node, 0, -1)];
    const ModelKey *cordon = &u->etcd.keys[etcd_key(&u->etcd, KEY_CORDONS, incident->node, 0, -1)];
    if (!node->mod_revision && !cordon->mod_revision &&
        MAX(node->deleted_revision, cordon->deleted_revision) < own->mod_revision)
        BROKEN(u, "loss", "%s is not told to be lost any more, and is not back", incident->node);
}

static void check_incident(Universe *u, const Txn *txn, const char *id,
                           const IncidentRecord *incident)
{
    const IncidentRecord *old = etcd_record(&u->etcd, KEY_INCIDENTS, id);
    if (is_trouble(incident))
        check_trouble(u, txn, id, incident);
    else
        u->checker.n_failures +=
            !old && incident->job[0] && strcmp(incident->cause, "record-lost") != 0;
    if (!old && incident->job[0]) {
        if (strcmp(incident->cause, "node-lost") == 0)
            check_absence(u, txn, incident);
        check_blame(u, txn, incident);
    }
    check_loss(u, id, incident);
    if (!old || old->state != incident->state)
        sim_say(&u->sim, "  incident %s %s: %s %s", id,
                incident->state == INCIDENT_OPEN ? "open" : "resolved", incident->cause,
                incident->node);
    Breach b;
    if (!rule_incident_follows(id, old, incident, &b))
        checker_breach(u, &b);
    u->checker.n_incidents += !old;
}

/* ---- what nodes say ---- */

static void note_visible(Universe *u, int job, int64_t step)
{
    JobBooks *books = &u->checker.jobs[job];
    books->visible_step = MAX(books->visible_step, step);
}

static void note_ranks(Universe *u, int job, const RanksRecord *ranks)
{
    note_visible(u, job, ranks->first_step);
    for (size_t i = 0; i < ranks->n_ranks; i++)
        if (ranks->ranks[i].stage > STAGE_JOINING)
            note_visible(u, job, ranks->ranks[i].step - 1);
}

static void check_progress(Universe *u, int job, const ProgressRecord *progress)
{
    const WorldRecord *world = record_in(u, KEY_WORLDS, job);
    Breach b;
    if (!rule_progress_is_of_world(universe_job_name(job), progress, world, &b))
        checker_breach(u, &b);
    note_visible(u, job, progress->step);
}

/* ---- transactions ---- */

/* Somebody's etcdctl: what it writes has to keep nothing. What it did to a phase forgets the failures. */
static void note_vandal(Universe *u, const ModelKey *key)
{
    if (key->kind != KEY_PHASES && key->kind != KEY_WORLDS)
        return;
    JobBooks *books = &u->checker.jobs[universe_job_index(key->name)];
    books->broken_world |= key->kind == KEY_WORLDS;
    books->broken_phase |= key->kind == KEY_PHASES;
    if (key->kind == KEY_PHASES)
        books->failures = books->lost = 0;
}

static void check_put(Universe *u, const Txn *txn, const Op *op)
{
    const ModelKey key = u->etcd.keys[op->key];
    const void *record = value_record(op->value);
    bool person = !txn->leader && !txn->node;
    if (!person && key.value && key.value->health == RECORD_FOREIGN)
        BROKEN(u, "foreign", "a record of %s, of a later version, is written over", key.name);
    if (person && (!record || (key.kind != KEY_DESIRED && key.kind != KEY_SPECS))) {
        note_vandal(u, &key);
        return;
    }
    switch (key.kind) {
    case KEY_WORLDS:
        check_world(u, txn, universe_job_index(key.name), record);
        break;
    case KEY_PHASES:
        check_phase(u, universe_job_index(key.name), record);
        checker_phase_is_newest(u, txn->leader, universe_job_index(key.name), record);
        break;
    case KEY_CHECKPOINTS:
        if (txn->node)
            checker_commit(u, universe_job_index(key.name), record);
        else
            checker_rewrite(u, txn->leader, universe_job_index(key.name), record);
        break;
    case KEY_INCIDENTS:
        check_incident(u, txn, key.name, record);
        break;
    case KEY_NODES:
        note_node(u, &u->nodes[txn->node->index], record);
        break;
    case KEY_RANKS:
        note_ranks(u, universe_job_index(key.name), record);
        break;
    case KEY_PROGRESS:
        check_progress(u, universe_job_index(key.name), record);
        break;
    case KEY_CORDONS:
        checker_cordon(u, txn, key.name, record);
        break;
    case KEY_DESIRED:
        u->checker.jobs[universe_job_index(key.name)].failures = 0;
        u->checker.jobs[universe_job_index(key.name)].lost = 0;
        checker_word(u, txn, universe_job_index(key.name), record);
        break;
    case KEY_SPECS:
        checker_spec(u, txn, universe_job_index(key.name), record);
        break;
    default:
        break;
    }
}

void checker_before(Universe *u, const Txn *txn)
{
    if (txn->leader)
        check_leader(u, txn);
    for (size_t i = 0; i < txn->n_ops; i++) {
        const ModelKey *key = &u->etcd.keys[txn->ops[i].key];
        if (txn->ops[i].kind == OP_PUT)
            check_put(u, txn, &txn->ops[i]);
        else if (txn->ops[i].kind == OP_DELETE && key->kind == KEY_CORDONS)
            checker_cordon(u, txn, key->name, NULL);
        else if (txn->ops[i].kind == OP_DELETE && !txn->leader)
            note_vandal(u, key);
        else if (txn->ops[i].kind == OP_DELETE && key->kind == KEY_SPECS)
            checker_job_goes(u, universe_job_index(key->name));
    }
}

/* ---- processes ---- */

/* By its world, whatever the records say of themselves: that was of the job that the phase is of. */
void checker_phase_acts(Universe *u, const Team *team, const PhaseRecord *phase)
{
    const JobBooks *books = &u->checker.jobs[team->job];
    bool team_is_present = team->world_revision >= books->born;
    if (team_is_present != (strcmp(phase->submission, books->submission) == 0))
        BROKEN(u, "stale", "the phase of another job %s moves ranks of its generation %lld",
               universe_job_name(team->job), (long long)team->generation);
}

void checker_process_starts(Universe *u, const Process *p)
{
    if (p->alive)
        BROKEN(u, "I3", "slot %d of %s runs two processes", p->slot, p->node->name);
    if (u->options.jobs[p->job].facts.needs_gpu && p->slot >= p->node->n_gpus)
        BROKEN(u, "gpu", "a rank of %s starts in slot %d of %s, which has %d GPUs",
               universe_job_name(p->job), p->slot, p->node->name, p->node->n_gpus);
}

void checker_ring_begins(Universe *u, const Ring *ring)
{
    for (int rank = 0; rank < ring->size; rank++) {
        const Process *p = ring->members[rank];
        if (p->generation != ring->generation || p->resume != ring->members[0]->resume)
            BROKEN(u, "I4", "rank %d of %s-%lld has restored another checkpoint than rank 0", rank,
                   universe_job_name(ring->job), (long long)ring->generation);
    }
    checker_resumes(u, ring);
}

/* A daemon that runs and hears nothing kills its ranks after fence_sec. */
static void check_fences(Universe *u, const Ring *ring)
{
    for (int rank = 0; rank < ring->size; rank++) {
        const SimNode *node = ring->members[rank]->node;
        uint64_t now = u->sim.now_usec, slack = 2 * USEC_PER_SEC;
        if (!ring->members[rank]->killing && now > node->actor.frozen_until_usec + slack &&
            now > node->contact_usec + u->options.fence_usec + slack)
            BROKEN(u, "fence", "%s trains on and has heard nothing for %.1f s", node->name,
                   (double)(now - node->contact_usec) / 1e6);
    }
}

void checker_step(Universe *u, const Ring *ring)
{
    check_fences(u, ring);
    JobBooks *books = &u->checker.jobs[ring->job];
    if (ring->world_revision < books->trained_revision)
        return; /* a world that nobody reaches, of this job or its predecessor; it cannot commit */
    books->trained_revision = ring->world_revision;
    books->trained_generation = ring->generation;
    books->trained_step = ring->step;
    books->trained_usec = u->sim.now_usec;
}

/* ---- the end ---- */

static void check_orphans(Universe *u)
{
    for (int n = 0; n < u->options.n_nodes; n++)
        for (int slot = 0; slot < u->options.n_slots; slot++) {
            const Process *p = &u->nodes[n].slots[slot];
            const WorldRecord *world = p->alive ? record_in(u, KEY_WORLDS, p->job) : NULL;
            if (p->alive && (!world || p->generation < world->generation))
                BROKEN(u, "I12", "a rank of %s-%lld still runs on %s", universe_job_name(p->job),
                       (long long)p->generation, p->node->name);
        }
}

static void check_incidents(Universe *u)
{
    ModelEtcd *etcd = &u->etcd;
    for (size_t i = 0; i < etcd->keys_of[KEY_INCIDENTS].n; i++) {
        const ModelKey *key = &etcd->keys[etcd->keys_of[KEY_INCIDENTS].at[i]];
        const IncidentRecord *incident = value_record(key->value);
        if (!incident || incident->state == INCIDENT_RESOLVED || !incident->job[0] ||
            is_trouble(incident)) /* of that: outage.c */
            continue;
        const PhaseRecord *phase = etcd_record(etcd, KEY_PHASES, incident->job);
        if (phase && (phase->phase == PHASE_RUNNING || phase->phase == PHASE_SUCCEEDED))
            BROKEN(u, "I10", "incident %s is still open although %s runs", key->name,
                   incident->job);
    }
}

static bool is_there(const SimNode *node, int slot, int job, int64_t generation)
{
    const Process *p = &node->slots[slot];
    return p->used && p->job == job && p->generation == generation;
}

/* A report of an older world has no rank that lives and is not there: the next world would wait for its end. */
static void check_reports(Universe *u)
{
    ModelEtcd *etcd = &u->etcd;
    for (size_t i = 0; i < etcd->keys_of[KEY_RANKS].n; i++) {
        const ModelKey *key = &etcd->keys[etcd->keys_of[KEY_RANKS].at[i]];
        const RanksRecord *ranks = value_record(key->value);
        int job = ranks ? universe_job_index(key->name) : -1;
        const WorldRecord *world = ranks ? record_in(u, KEY_WORLDS, job) : NULL;
        const SimNode *node = &u->nodes[key->node];
        if (!world || ranks->generation >= world->generation || !node->actor.alive ||
            ranks->incarnation != node->incarnation)
            continue;
        for (size_t k = 0; k < ranks->n_ranks; k++)
            if (ranks->ranks[k].state != RANK_EXITED &&
                !is_there(node, ranks->ranks[k].slot, job, ranks->generation))
                BROKEN(u, "reports", "%s: a rank of %s-%lld that is not there has not ended",
                       node->name, key->name, (long long)ranks->generation);
    }
}

void checker_end(Universe *u)
{
    check_orphans(u);
    check_reports(u);
    check_incidents(u);
}
