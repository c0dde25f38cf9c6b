/* SPDX-License-Identifier: Apache-2.0 */
/* checks-lost.c - see checks.h: records that vanish, are damaged or return in an old state; and cordons.
 *
 * A leader never puts back a record older than the one that it has read since its start. A person's desired state
 * counts until there is a newer desired state. In a cordon, the leader does not change an operator's cause, ends a
 * quarantine without an end only if its job was deleted, and keeps a machine's strikes with that machine, adding one at
 * a time. If the record is damaged, these rules hold for the last cordon that the leader has read. A leader that has
 * read no cordon replaces a damaged record only by one that has a cordon, because the damaged record may have contained
 * a cordon.
 *
 * A leader removes a job only if a person has deleted it. If the job stays, the leader removes only those of the
 * job's records that are older than the job's last two generations. */
#include "tests/sim/fleet/checks-internal.h"

#include "cluster/cordon.h"
#include "tests/sim/seams/loop.h"

#include <stdlib.h>
#include <string.h>

/* ---- what a controller reads ---- */

static const char *submission_in(const Event *event, const Told *told)
{
    switch (event->kind) {
    case EVENT_SPEC:
        return event->spec->submission;
    case EVENT_PHASE:
        return event->phase->submission;
    case EVENT_WORLD:
        return event->world->submission;
    case EVENT_CHECKPOINTS:
        return event->checkpoints->submission;
    default:
        return told->submission;
    }
}

static void tell_cordon(ControllerLedger *c, const Event *event)
{
    const int node = node_index(event->name);
    if (event->revision < c->cordon_revisions[node])
        return; /* the event is an older copy, which arrives late */
    if (event->revision > c->cordon_revisions[node])
        c->cordon_usec[node] = loops_now_usec();
    c->cordon_revisions[node] = event->revision;
    if (event->cordon)
        c->cordons[node] = *event->cordon;
    else if (event->health == RECORD_READABLE)
        c->cordons[node] = (CordonRecord){0};
}

static void note_machine(NodeMachine *machine, const NodeRecord *record)
{
    if (strcmp(machine->id, record->machine_id) == 0)
        return;
    memcpy(machine->id, record->machine_id, sizeof(machine->id));
    machine->usec = loops_now_usec();
}

void checks_controller_reads(int controller, const Event *event)
{
    ControllerLedger *c = &controller_ledgers[controller];
    if (event->kind == EVENT_CORDON)
        tell_cordon(c, event);
    if (event->kind == EVENT_NODE && event->record) {
        c->node_revisions[node_index(event->name)] = event->revision;
        note_machine(&c->machines[node_index(event->name)], event->node_record);
    }
    if ((event->kind != EVENT_SPEC && event->kind != EVENT_DESIRED && event->kind != EVENT_WORLD &&
         event->kind != EVENT_PHASE && event->kind != EVENT_CHECKPOINTS) ||
        !event->record)
        return;
    const Ledger *job = ledger_of(event->name);
    Told *told = &c->told[job - ledgers];
    const char *submission = submission_in(event, told);
    if (event->kind == EVENT_WORLD && event->revision == job->world_revision)
        told->world_revision = event->revision;
    if (event->kind == EVENT_SPEC && strcmp(told->submission, submission) != 0) {
        *told = (Told){.world_revision = told->world_revision};
        memcpy(told->submission, submission, SUBMISSION_BYTES);
    }
    if (strcmp(told->submission, submission) != 0)
        return;
    if (event->kind == EVENT_WORLD)
        told->generation = MAX(told->generation, event->world->generation);
    if (event->kind == EVENT_CHECKPOINTS &&
        commit_mark_is_before(told->committed, checkpoints_mark(event->checkpoints)))
        told->committed = checkpoints_mark(event->checkpoints);
    if (event->kind == EVENT_DESIRED && event->revision == job->word_revision &&
        event->revision > told->word_revision) {
        told->word_revision = event->revision;
        told->word_usec = loops_now_usec();
    }
    if (event->kind == EVENT_PHASE && event->phase->go &&
        event->phase->generation > told->went_generation) {
        told->went_generation = event->phase->generation;
        told->went_usec = loops_now_usec();
    }
}

const Told *told_of(const Writing *w, const Ledger *job)
{
    const Told *told =
        w->controller >= 0 ? &controller_ledgers[w->controller].told[job - ledgers] : NULL;
    return told && strcmp(told->submission, job->submission) == 0 ? told : NULL;
}

/* ---- desired states (words) ---- */

void checks_word(const Writing *w, const Entry *e)
{
    const DesiredRecord *desired = entry_after(e);
    Ledger *job = ledger_of(e->name);
    const Told *told = told_of(w, job);
    if (!desired)
        return;
    job->failures = job->lost = 0;
    if (w->is_person) {
        job->word = *desired;
        job->word_revision = w->h->revision;
        return;
    }
    if (told && told->word_revision == job->word_revision &&
        (desired->state != job->word.state || desired->target != job->word.target))
        books_break("lost", "c%d puts back another word about %s than it has heard", w->controller,
                    job->name);
}

void checks_follows_word(const Writing *w, const Ledger *job, const WorldRecord *world)
{
    const Told *told = told_of(w, job);
    if (told && world->generation <= told->generation)
        books_break("lost", "world %lld of %s follows world %lld", (long long)world->generation,
                    job->name, (long long)told->generation);
    if (told && told->word_revision == job->word_revision && job->word.state != DESIRED_RUNNING)
        books_break("lost", "%s is to be %s, and gets world %lld", job->name,
                    job->word.state == DESIRED_STOPPED ? "stopped" : "deleted",
                    (long long)world->generation);
    if (world->resume.find == FIND_MUST && job->n_booked == 0)
        books_break("lost", "%s looks for a checkpoint, and none was committed", job->name);
}

/* Returns whether the writing leader must keep off the slots of the other job's world, although the
 * world's record was changed by hand. A leader that has read a world keeps off its slots until a
 * newer world follows. The leader cannot know that the other job is at rest while that job's phase
 * is unchanged or unreadable. */
static bool holds_a_lost_world(const Writing *w, const Ledger *other, const Entry *phase)
{
    const Told *told = &controller_ledgers[w->controller].told[other - ledgers];
    return phase_is_active(other->phase) && phase && phase->before.there &&
           !(other->broken_phase && entry_before(phase)) &&
           told->world_revision == other->world_revision;
}

/* Checks that the world shares no slot with worlds whose records were changed by hand. rules.h has
 * the check for all other worlds. */
void checks_slots(const Writing *w, const Entry *e)
{
    const WorldRecord *world = entry_after(e);
    for (const Ledger *other = ledgers; other < ledgers + FLEET_JOBS_MAX && other->name[0];
         other++) {
        const Entry *phase = history_find(w->h, KEY_PHASES, other->name);
        if (strcmp(other->name, e->name) == 0 || !(other->broken_world || other->broken_phase) ||
            !holds_a_lost_world(w, other, phase))
            continue;
        const BookedWorld *lost =
            history_find_world(history_find(w->h, KEY_SPECS, other->name)->job,
                               other->world_revision);
        const WorldRecord theirs = {.runs = lost ? lost->runs : NULL,
                                    .n_runs = lost ? lost->n_runs : 0};
        Breach b;
        if (!rule_worlds_are_apart(e->name, world, other->name, &theirs, &b))
            books_break(b.invariant, "%s", b.text);
    }
}

/* ---- cordons ---- */

/* Returns the cordon that the writer must keep: the present cordon or, if its record is damaged,
 * the last cordon that the writer has read. */
static const CordonRecord *known_cordon(const Writing *w, const Entry *e)
{
    static const CordonRecord unknown = {.causes = {{.owner = CORDON_OPERATOR,
                                                     .mode = CORDON_CORDON}},
                                         .n_causes = 1};
    const CordonRecord *told = &controller_ledgers[w->controller].cordons[node_index(e->name)];
    if (!e->before.there || entry_before(e))
        return entry_before(e);
    return told->n_causes > 0 ? told : &unknown;
}

static const CordonCause *same_cause(const CordonRecord *record, const CordonCause *cause)
{
    const int at = record ? cordon_find(record, cause->owner, cause->job, cause->machine_id) : -1;
    return at < 0 ? NULL : &record->causes[at];
}

static void check_kept(const Writing *w, const char *name, const CordonCause *was,
                       const CordonRecord *after)
{
    const CordonCause *is = same_cause(after, was);
    if (was->owner == CORDON_OPERATOR &&
        (!is || is->mode != was->mode || is->since_usec != was->since_usec))
        books_break("cordon", "a leader takes the operator's %s away from %s",
                    was->mode == CORDON_DRAIN ? "drain" : "cordon", name);
    const SpecRecord *spec = was->job[0] ? record_of(w, KEY_SPECS, was->job) : NULL;
    const bool over =
        was->owner == CORDON_JOB && (!spec || strcmp(spec->submission, was->submission) != 0);
    if (was->mode == CORDON_QUARANTINE && was->until_usec == 0 && !over &&
        (!is || is->mode != CORDON_QUARANTINE))
        books_break("cordon",
                    "a leader ends the quarantine of machine %s under %s, which nobody has checked",
                    was->machine_id, name);
}

/* Checks a cause that the leader adds or changes. The cause's machine must be the machine that has
 * the node's name, if the leader can have known that machine: it doubts the record of another
 * machine for a TTL at most (controller/core/observe/strangers.c). */
static void check_cause(const Writing *w, const char *name, const CordonCause *is,
                        const CordonCause *was)
{
    const NodeRecord *node = record_of(w, KEY_NODES, name);
    const NodeLedger *ledger = &node_ledgers[node_index(name)];
    const uint64_t machine_usec = controller_ledgers[w->controller].machines[node_index(name)].usec;
    const bool is_believed = loops_now_usec() >= machine_usec + checks_options.core.ttl_usec;
    if (was && is->mode == was->mode && is->strikes == was->strikes)
        return;
    fleet_say("  cordon %s machine %s mode %d strikes %d", name, is->machine_id, (int)is->mode,
              is->strikes);
    if (is->owner == CORDON_OPERATOR)
        books_break("cordon", "a leader cordons %s in the operator's name", name);
    for (size_t i = 0; node && i < w->h->n_changed; i++) {
        const Entry *e = w->h->changed[i];
        const PhaseRecord *phase = e->kind == KEY_PHASES ? entry_after(e) : NULL;
        if (phase && is_believed && ledger->up_revision <= phase->tried_revision &&
            !cause_is_of(is, node->machine_id))
            books_break("cordon",
                        "machine %s is blamed for what another one does that is called %s now",
                        is->machine_id, name);
    }
}

void checks_cordon(const Writing *w, const Entry *e)
{
    if (w->controller < 0)
        return;
    const CordonRecord *before = known_cordon(w, e), *after = entry_after(e);
    Breach b;
    if (!rule_strikes_grow_by_one(e->name, before, after, &b))
        books_break(b.invariant, "%s", b.text);
    for (size_t i = 0; before && i < before->n_causes; i++)
        check_kept(w, e->name, &before->causes[i], after);
    for (size_t i = 0; after && i < after->n_causes; i++)
        check_cause(w, e->name, &after->causes[i], same_cause(before, &after->causes[i]));
}

/* ---- what a leader removes ---- */

void checks_removal(const Writing *w, const Entry *e)
{
    if (w->controller < 0 || e->after.there || !e->before.there || !e->job)
        return;
    const DesiredRecord *desired = entry_before(e->job->desired);
    /* the generation of the newest world that a leader wrote */
    const int64_t newest = e->job->generation;
    /* results go with their verdict, or when the followed job was submitted again */
    if (e->kind == KEY_EVALS && is_written(w, KEY_PHASES, e->job->spec->name))
        return;
    if (e->kind != KEY_RANKS && e->kind != KEY_RENDEZVOUS) {
        if (desired && desired->state != DESIRED_DELETED)
            books_break("removes", "c%d removes %s, and nobody has deleted the job", w->controller,
                        e->key);
    } else if (e->job->spec->after.there && newest > 0 && e->generation >= newest - 1) {
        books_break("removes", "c%d removes %s, and the job is in generation %lld", w->controller,
                    e->key, (long long)newest);
    }
}
