/* SPDX-License-Identifier: Apache-2.0 */
/* checks-time.c - see checks.h: checks when a leader may act upon the absence of a node, which of
 * two waiting jobs starts first, and that a request is obeyed before the first step. */
#include "tests/sim/fleet/checks-internal.h"

#include "cluster/cordon.h"
#include "tests/sim/seams/loop.h"

#include <stdlib.h>
#include <string.h>

/* ---- absence (docs/concepts/failure-and-blame.md) ---- */

enum { HOLD_NODES_MIN = 4, HOLD_SHARE = 4 };

void checks_node(const Writing *w, const Entry *e)
{
    const NodeRecord *record = entry_after(e);
    NodeLedger *node = &node_ledgers[node_index(e->name)];
    if (!e->after.there) {
        node->gone_revision = w->h->revision;
        node->gone_usec = loops_now_usec();
    } else if (record && record->state == NODE_LEFT) {
        node->left_revision = w->h->revision;
    } else {
        node->up_revision = w->h->revision;
        node->stay_revision = e->after.version == 1 ? w->h->revision : node->stay_revision;
    }
}

/* Returns whether the last report of the node that the leader has read was "left". */
static bool says_left(const NodeLedger *node, int64_t seen_revision)
{
    return node->left_revision && node->left_revision <= seen_revision &&
           (node->up_revision < node->left_revision || node->up_revision > seen_revision);
}

static bool is_on_the_list(const char *name)
{
    return admission_allows(checks_options.core.admit, name, "");
}

/* Checks that not too many nodes vanished within the last TTL, as far as the leader knew. A node
 * does not count if it appeared and vanished while the leader read nothing. */
static void check_hold(const Writing *w, int64_t seen_revision)
{
    int fresh = 0, present = 0;
    for (int i = 0; i < checks_options.n_nodes; i++) {
        const NodeLedger *node = &node_ledgers[i];
        const Entry *e = history_find(w->h, KEY_NODES, fleet_node_name(i));
        /* a node that reported "left" does not count as vanished */
        if (!e || says_left(node, seen_revision) || !is_on_the_list(fleet_node_name(i)))
            continue;
        const bool gone = !e->after.there && node->gone_revision <= seen_revision,
                   known =
                       controller_ledgers[w->controller].node_revisions[i] >= node->stay_revision;
        present += !gone;
        fresh += gone && known && loops_now_usec() < node->gone_usec + checks_options.core.ttl_usec;
    }
    if (fresh >= HOLD_NODES_MIN && fresh * HOLD_SHARE > present + fresh)
        books_break("hold", "%d of %d nodes vanished within one TTL, and one of them is replaced",
                    fresh, present + fresh);
}

void checks_absence(const Writing *w, const IncidentRecord *incident)
{
    const PhaseRecord *phase = record_of(w, KEY_PHASES, incident->job);
    const uint64_t led_usec = controller_ledgers[w->controller].led_usec;
    if (loops_now_usec() < led_usec + checks_options.core.ttl_usec)
        books_break("absence", "c%d acts on the absence of %s, and leads for less than one TTL",
                    w->controller, incident->node);
    if (phase)
        check_hold(w, phase->tried_revision);
}

static struct { /* the last hold that began */
    /* false: the hold began before its incident was opened, so that less than nine TTL of the hold are
     * left, and its end is not checked */
    bool is_whole;
    uint64_t usec;
    /* the leader's revision when the hold began; the incident's name contains this revision */
    int64_t revision;
} hold;

/* Checks that a hold is not ended too early. A hold continues with the next leader, even if that
 * leader has seen no node vanish. The hold's incident stays open for ten TTL (the check allows
 * nine) while most of the nodes that it counts have not been seen again. */
void checks_hold(const Writing *w, const Entry *e)
{
    enum { LEAST_TTLS = 9 };
    const IncidentRecord *old = entry_before(e), *incident = entry_after(e);
    const uint64_t now = loops_now_usec(), least_usec = LEAST_TTLS * checks_options.core.ttl_usec;
    int seen = 0;
    if (!incident || strcmp(incident->cause, "nodes-vanished") != 0)
        return;
    if (!old) {
        hold.usec = now;
        hold.revision = strtoll(e->name + strlen("cluster-"), NULL, 10);
        hold.is_whole = incident->hold_until_usec > incident->at_usec + least_usec;
    }
    if (!old || incident->state == INCIDENT_OPEN || checks_clocks_differ || !hold.is_whole ||
        now >= hold.usec + least_usec)
        return;
    for (int i = 0; i < checks_options.n_nodes; i++) {
        const NodeLedger *node = &node_ledgers[i];
        const Entry *record = history_find(w->h, KEY_NODES, fleet_node_name(i));
        seen +=
            record && (record->after.there || node->up_revision > hold.revision ||
                       node->left_revision > hold.revision || node->gone_revision > hold.revision);
    }
    const int gone = incident->hold_nodes - seen;
    if (gone >= HOLD_NODES_MIN && gone * HOLD_SHARE > incident->hold_nodes)
        books_break("hold", "%d of %d nodes are gone, and %s is over after %.1f s", gone,
                    incident->hold_nodes, e->name, (double)(now - hold.usec) / 1e6);
}

/* Checks the incident of a lost node: the incident ends when the node is back or cordoned, not
 * before. */
void checks_loss(const Writing *w, const Entry *e)
{
    const IncidentRecord *incident = entry_after(e);
    if (incident->job[0] || strcmp(incident->cause, "node-lost") != 0 || !entry_before(e) ||
        incident->state != INCIDENT_RESOLVED)
        return;
    const Entry *node = history_find(w->h, KEY_NODES, incident->node),
                *cordon = history_find(w->h, KEY_CORDONS, incident->node);
    const int64_t told = e->before.revision;
    if ((!node || (!node->after.there && node->after.revision < told)) &&
        (!cordon || (!cordon->after.there && cordon->after.revision < told)))
        books_break("loss", "%s is not told to be lost any more, and is not back", incident->node);
}

/* ---- the queue ---- */

/* A node tells that it runs programs once etcd has answered that it may read them, so a node that has just come back
 * is open to trainers first. */
static int slots_for(const Ledger *job, const NodeRecord *node)
{
    if (job->per_node > 0 && !node_knows(node, FEATURE_PROGRAMS))
        return 0;
    return job->needs_gpu ? MIN(node->n_slots, node->n_gpus) : node->n_slots;
}

static int usable(const Ledger *job, const NodeRecord *node)
{
    const int n = slots_for(job, node);
    const uint64_t bad = (node->lost_slots | node->bad_slots) & ((UINT64_C(1) << n) - 1);
    return n - __builtin_popcountll(bad);
}

/* Returns how many slots were open for the job in the records up to seen_revision. */
static int open_slots(const Writing *w, const Ledger *job, int64_t seen_revision)
{
    int slots = 0;
    for (int i = 0; i < checks_options.n_nodes; i++) {
        const char *name = fleet_node_name(i);
        const Entry *e = history_find(w->h, KEY_NODES, name);
        const Entry *cordon = history_find(w->h, KEY_CORDONS, name);
        const NodeRecord *node = entry_before(e);
        const bool is_free =
            !cordon || (!cordon->before.there && cordon->before.revision <= seen_revision);
        if (node && is_free && is_on_the_list(name) && e->before.revision <= seen_revision &&
            node->state == NODE_UP && node->verdict == NODE_HEALTHY && node->stranger_revision == 0)
            slots += usable(job, node);
    }
    return slots;
}

static bool goes_before(const Writing *w, const char *a, const char *b)
{
    const DesiredRecord *x = record_of(w, KEY_DESIRED, a), *y = record_of(w, KEY_DESIRED, b);
    return x && y && x->priority > y->priority;
}

/* Returns since when the leader could have started the job; 0: the leader could not start it. */
static uint64_t waits_since(const Writing *w, const Ledger *job, int64_t seen_revision)
{
    const Entry *desired = history_find(w->h, KEY_DESIRED, job->name),
                *phase = history_find(w->h, KEY_PHASES, job->name),
                *spec = history_find(w->h, KEY_SPECS, job->name),
                *checkpoints = history_find(w->h, KEY_CHECKPOINTS, job->name);
    const DesiredRecord *wants = entry_before(desired);
    if (!job->pending_usec || job->broken_phase || !record_of(w, KEY_SPECS, job->name) || !wants ||
        wants->state != DESIRED_RUNNING || !entry_before(phase) ||
        (checkpoints && checkpoints->before.there && !entry_before(checkpoints)) ||
        spec->before.revision > seen_revision || desired->before.revision > seen_revision ||
        phase->before.revision > seen_revision || wants->min > open_slots(w, job, seen_revision))
        return 0;
    return MAX(job->pending_usec, controller_ledgers[w->controller].led_usec);
}

/* Returns whether the world takes a slot that the other job could use, on a node without a cordon, as the leader knew
 * the node. */
static bool takes_of(const Writing *w, const Ledger *other, const WorldRecord *world,
                     int64_t seen_revision)
{
    for (size_t i = 0; i < world->n_runs; i++) {
        const Entry *e = history_find(w->h, KEY_NODES, world->runs[i].node);
        const Entry *cordon = history_find(w->h, KEY_CORDONS, world->runs[i].node);
        const NodeRecord *node = entry_before(e);
        const int n = node && e->before.revision <= seen_revision ? slots_for(other, node) : 0;
        if (n > 0 && (!cordon || !cordon->before.there) &&
            (int)__builtin_ctzll(world->runs[i].slots) < n)
            return true;
    }
    return false;
}

/* Checks that `job` does not start before another job that has waited long, has precedence and could
 * run on one of the slots that `job` gets. */
void checks_queue(const Writing *w, const Ledger *job, const PhaseRecord *phase)
{
    const WorldRecord *world = record_of(w, KEY_WORLDS, job->name);
    const PhaseRecord *old = entry_before(history_find(w->h, KEY_PHASES, job->name));
    const uint64_t patience = checks_options.core.queue_patience_usec + seconds(1);
    if (!old || old->phase != PHASE_PENDING)
        return;
    for (const Ledger *other = ledgers; other < ledgers + FLEET_JOBS_MAX && other->name[0];
         other++) {
        if (other == job || other->is_eval || !goes_before(w, other->name, job->name))
            continue; /* an evaluation is last in the queue */
        const uint64_t since = waits_since(w, other, phase->tried_revision);
        if (since && loops_now_usec() > since + patience && world &&
            takes_of(w, other, world, phase->tried_revision))
            books_break("queue", "%s starts before %s, which has waited for %.1f s", job->name,
                        other->name, (double)(loops_now_usec() - since) / 1e6);
    }
}

/* ---- requests before the first step ---- */

/* A leader may wait 5 s for the answer to its previous write, and then 5 s for a new read. */
enum { HEARD_SEC = 12 };

static bool is_old(uint64_t told_usec, uint64_t went_usec)
{
    return loops_now_usec() > MAX(told_usec, went_usec) + seconds(HEARD_SEC);
}

/* Checks that a world which has been told to go, but has not made its first step, does not keep
 * running after its leader has read of a stop or a drain: such a world has nothing to save. */
void checks_first_step(const Writing *w, const Ledger *job, const PhaseRecord *old,
                       const PhaseRecord *phase)
{
    const Told *told = told_of(w, job);
    const WorldRecord *world = record_of(w, KEY_WORLDS, job->name);
    const ControllerLedger *c = &controller_ledgers[w->controller];
    if (!told || !world || !old->go || old->generation != phase->generation ||
        told->went_generation != phase->generation || job->broken_phase || job->broken_world ||
        books_job(job->name)->spec_by_hand ||
        (old->phase != PHASE_STARTING && old->phase != PHASE_RECOVERING))
        return;
    const uint64_t went_usec = MAX(told->went_usec, c->led_usec);
    if (told->word_revision == job->word_revision && job->word.state == DESIRED_STOPPED &&
        is_old(told->word_usec, went_usec))
        books_break("heard", "%s is to stop, and runs %lld", job->name,
                    (long long)phase->generation);
    for (size_t i = 0; i < world->n_runs; i++) {
        const int node = node_index(world->runs[i].node);
        const int at = cordon_find(&c->cordons[node], CORDON_OPERATOR, "", "");
        if (at >= 0 && c->cordons[node].causes[at].mode == CORDON_DRAIN &&
            c->cordon_revisions[node] > old->tried_revision &&
            is_old(c->cordon_usec[node], went_usec))
            books_break("heard", "%s is drained, and %s-%lld makes its first step there",
                        world->runs[i].node, job->name, (long long)phase->generation);
    }
}
