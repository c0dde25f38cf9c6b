/* SPDX-License-Identifier: Apache-2.0 */
/* history-ranks.c - see history.h: checks the nodes' reports of their ranks. */
#include "tests/history/history-internal.h"

#include "cluster/cordon.h"

#include <string.h>

const BookedWorld *history_find_world(const HistoryJob *job, int64_t revision)
{
    for (uint64_t i = 0; i < MIN(job->n_worlds, (uint64_t)BOOKED_WORLDS_MAX); i++)
        if (job->worlds[i].revision == revision)
            return &job->worlds[i];
    return NULL;
}

/* ---- the report's world and slots ---- */

static uint64_t slots_in(const BookedWorld *world, const char *node)
{
    uint64_t slots = 0;
    for (size_t i = 0; i < world->n_runs; i++)
        if (strcmp(world->runs[i].node, node) == 0)
            slots |= world->runs[i].slots;
    return slots;
}

static void judge_world(HistoryChecker *h, const Entry *e, const RanksRecord *ranks)
{
    const BookedWorld *world = history_find_world(e->job, ranks->world_revision);
    if (!world && e->job->n_worlds > BOOKED_WORLDS_MAX)
        return; /* the books no longer contain that world */
    if (!world || world->generation != ranks->generation) {
        HISTORY_BROKEN(h, e, "I3", "%s reports ranks of a world of revision %lld that never was",
                       e->node, (long long)ranks->world_revision);
        return;
    }
    uint64_t slots = slots_in(world, e->node), told = 0;
    for (size_t i = 0; i < ranks->n_ranks; i++)
        told |= UINT64_C(1) << ranks->ranks[i].slot;
    if (told & ~slots)
        HISTORY_BROKEN(h, e, "I6", "%s reports ranks in slots that world %lld does not give it",
                       e->node, (long long)ranks->generation);
}

/* ---- the order of reports ---- */

static const RankReport *in_slot(const RanksRecord *ranks, int slot)
{
    for (size_t i = 0; i < ranks->n_ranks; i++)
        if (ranks->ranks[i].slot == slot)
            return &ranks->ranks[i];
    return NULL;
}

/* Checks two successive reports of one process: a rank of one world, reported by one daemon. */
static void judge_rank(HistoryChecker *h, const Entry *e, const RankReport *was,
                       const RankReport *is)
{
    if (was->state == RANK_EXITED ? is->state != RANK_EXITED : is->state < was->state)
        HISTORY_BROKEN(h, e, "I3", "rank %d is %s, and was %s", is->rank,
                       rank_state_names[is->state], rank_state_names[was->state]);
    if (was->state == RANK_EXITED && is->state == RANK_EXITED && was->exit_code != is->exit_code)
        HISTORY_BROKEN(h, e, "I3", "rank %d has ended with %d, and with %d", is->rank,
                       was->exit_code, is->exit_code);
    if (was->pid && is->pid && was->pid != is->pid)
        HISTORY_BROKEN(h, e, "I3", "rank %d has two processes, %d and %d", is->rank, was->pid,
                       is->pid);
    if (was->rank != is->rank)
        HISTORY_BROKEN(h, e, "I6", "slot %d has rank %d, and rank %d", is->slot, was->rank,
                       is->rank);
}

static void judge_flow(HistoryChecker *h, const Entry *e, const RanksRecord *old,
                       const RanksRecord *ranks)
{
    for (size_t i = 0; i < ranks->n_ranks; i++) {
        const RankReport *was = in_slot(old, ranks->ranks[i].slot);
        if (was)
            judge_rank(h, e, was, &ranks->ranks[i]);
    }
    if (old->first_step && ranks->first_step != old->first_step)
        HISTORY_BROKEN(h, e, "progress", "%s says that the first step is %lld, and was %lld",
                       e->node, (long long)ranks->first_step, (long long)old->first_step);
    if ((old->left && !ranks->left) || (old->finished && !ranks->finished))
        HISTORY_BROKEN(h, e, "I3", "%s takes back that its ranks have %s", e->node,
                       old->left ? "left" : "finished");
}

/* ---- dead ranks ---- */

static bool lives(const RanksRecord *ranks, const NodeRecord *node)
{
    for (size_t i = 0; i < ranks->n_ranks; i++)
        if (ranks->ranks[i].state != RANK_EXITED &&
            !(node && node->lost_slots & UINT64_C(1) << ranks->ranks[i].slot))
            return true;
    return false;
}

/* Returns the node's report on a newer world in which the node says that all earlier ranks are dead; NULL: there is no
 * such report. */
static const RanksRecord *find_killed(const Entry *e, const RanksRecord *ranks)
{
    for (const Entry *r = e->job->reports; r; r = r->older_report) {
        const RanksRecord *newer = entry_before(r);
        if (newer && strcmp(r->node, e->node) == 0 && newer->killed_usec &&
            newer->world_revision > ranks->world_revision &&
            newer->incarnation == ranks->incarnation)
            return newer;
    }
    return NULL;
}

void history_judge_ranks(HistoryChecker *h, const Entry *e)
{
    const RanksRecord *old = entry_before(e), *ranks = entry_after(e);
    const PhaseRecord *phase = entry_after(e->job->phase);
    if (!ranks)
        return;
    if (ranks->generation != e->generation || strcmp(ranks->node, e->node) != 0)
        HISTORY_BROKEN(h, e, "key", "is of generation %lld of %s", (long long)ranks->generation,
                       ranks->node);
    judge_world(h, e, ranks);
    const BookedWorld *world = history_find_world(e->job, ranks->world_revision);
    bool same = old && old->incarnation == ranks->incarnation &&
                old->world_revision == ranks->world_revision;
    if (same)
        judge_flow(h, e, old, ranks);
    bool present = phase && !e->job->touched && e->job->world->after.there && world &&
                   world->revision == e->job->world->after.revision;
    for (size_t i = 0; present && i < ranks->n_ranks; i++)
        if (ranks->ranks[i].state == RANK_RUNNING && e->job->went < ranks->generation)
            HISTORY_BROKEN(h, e, "I3", "rank %d runs, and generation %lld was not told to go",
                           ranks->ranks[i].rank, (long long)ranks->generation);
    const RanksRecord *killed = find_killed(e, ranks);
    const NodeRecord *node = entry_after(history_find(h, KEY_NODES, e->node));
    /* lives() leaves out ranks on slots that the restarted node reported as lost */
    if (killed && node && lives(ranks, node))
        HISTORY_BROKEN(h, e, "I3",
                       "ranks of generation %lld live on %s, which has told in "
                       "generation %lld that they are dead",
                       (long long)ranks->generation, e->node, (long long)killed->generation);
}

void history_judge_rendezvous(HistoryChecker *h, const Entry *e)
{
    if (!e->after.there || e->job->n_worlds > BOOKED_WORLDS_MAX)
        return;
    for (uint64_t i = 0; i < e->job->n_worlds; i++)
        if (e->job->worlds[i].generation == e->generation)
            return;
    HISTORY_BROKEN(h, e, "I3", "a rendezvous of generation %lld, which never was",
                   (long long)e->generation);
}

/* ---- go ---- */

static bool is_excluded(HistoryChecker *h, const Entry *e, const NodeRecord *node)
{
    const CordonRecord *cordon = entry_after(history_find(h, KEY_CORDONS, e->node));
    const CordonCause *cause = cordon ? cordon_strongest(cordon, node->machine_id, NULL, 0) : NULL;
    return cause && cause->mode == CORDON_QUARANTINE;
}

void history_judge_go(HistoryChecker *h, const Entry *phase)
{
    const HistoryJob *job = phase->job;
    if (!job->world->after.there)
        return;
    for (const Entry *r = job->reports; r; r = r->older_report) {
        const RanksRecord *ranks = entry_after(r);
        const NodeRecord *node = entry_after(history_find(h, KEY_NODES, r->node));
        if (ranks && node && ranks->world_revision < job->world->after.revision &&
            node->incarnation == ranks->incarnation && lives(ranks, node) &&
            !find_killed(r, ranks) && !is_excluded(h, r, node))
            HISTORY_BROKEN(h, phase, "I3",
                           "generation %lld goes while ranks of generation %lld "
                           "live on %s",
                           (long long)((const PhaseRecord *)entry_after(phase))->generation,
                           (long long)ranks->generation, r->node);
    }
}
