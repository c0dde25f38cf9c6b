/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine.c - how far a node's own verdict is trusted, and how a quarantine ends.
 *
 * Entry points: health_update_trust(), decide_quarantine(). Guarantees: no more than half of the nodes
 * (and never fewer than three) are isolated on their own word at one time; a quarantine that was
 * given for a time ends only after the node has checked itself since. */
#include "controller/core/quarantine.h"

#include "controller/core/cluster-internal.h"
#include "controller/core/cordons.h"
#include "controller/core/presence.h"
#include "controller/core/recovery/strikes.h"
#include "controller/core/text.h"

#include <string.h>

enum { DISTRUST_NODES_MIN = 3, MACHINE_ID_BYTES = 32 };

/* ---- trust ---- */

void health_count(const Cluster *c, int *ret_unhealthy, int *ret_present)
{
    *ret_unhealthy = *ret_present = 0;
    for (int i = 0; i < c->limits.nodes; i++) {
        const CoreNode *node = &c->nodes[i];
        if (!node->used || !node->present || node->record.state == NODE_LEFT || !node->admitted)
            continue;
        *ret_present += 1;
        *ret_unhealthy += node->record.verdict == NODE_ISOLATE;
    }
    assert(*ret_unhealthy <= *ret_present);
}

/* Nodes that were isolated before count too: probes that fail on node after node must not take the cluster apart. */
void health_update_trust(Cluster *c)
{
    int unhealthy, present;
    health_count(c, &unhealthy, &present);
    c->probes_suspected = unhealthy >= DISTRUST_NODES_MIN && 2 * unhealthy > present;
}

bool node_is_unhealthy(const Cluster *c, const CoreNode *node)
{
    return node->record.verdict == NODE_ISOLATE && !c->probes_suspected;
}

/* ---- the machine behind the name ---- */

static bool is_machine_id(const char *text)
{
    size_t n = 0;
    while (text[n])
        n++;
    return n == MACHINE_ID_BYTES;
}

static bool is_elsewhere(const Cluster *c, const CoreNode *node, int other,
                         const CordonCause *cause)
{
    return &c->nodes[other] != node && cause->owner != CORDON_OPERATOR &&
           text_equal(cause->machine_id, node->record.machine_id);
}

const CordonCause *node_find_machine_cordon(const Cluster *c, const CoreNode *node,
                                            const CoreJob *job)
{
    if (!is_machine_id(node->record.machine_id))
        return NULL;
    for (int at = 0; at < c->n_cordoned; at++) {
        const int i = c->cordoned[at];
        assert(c->nodes[i].cordon_stamp.mod); /* it is in the list */
        const CordonRecord *record = &c->cordons[i].record;
        for (size_t k = 0; k < record->n_causes; k++)
            if (is_elsewhere(c, node, i, &record->causes[k]) &&
                record->causes[k].mode == CORDON_QUARANTINE &&
                cause_applies(&record->causes[k], node->record.machine_id, job ? job->name : NULL,
                              c->real_usec))
                return &record->causes[k];
    }
    return NULL;
}

void node_strikes_elsewhere(const Cluster *c, const CoreNode *node, const CoreJob *job,
                            int64_t *own, int64_t *others)
{
    for (int at = 0; at < c->n_cordoned && is_machine_id(node->record.machine_id); at++) {
        const int i = c->cordoned[at];
        assert(c->nodes[i].cordon_stamp.mod);
        const CordonRecord *record = &c->cordons[i].record;
        for (size_t k = 0; k < record->n_causes; k++) {
            const CordonCause *cause = &record->causes[k];
            const bool is_own = cause->owner == CORDON_JOB && text_equal(cause->job, job->name) &&
                                text_equal(cause->submission, job->facts.submission);
            if (is_elsewhere(c, node, i, cause) &&
                c->real_usec < cause->since_usec + c->config.strike_window_usec)
                *(is_own ? own : others) += cause->strikes;
        }
    }
}

int node_strikes(const Cluster *c, const CoreNode *node)
{
    const CordonRecord *record = &node_cordons(c, node)->record;
    int64_t strikes = 0;
    for (size_t i = 0; node->cordon_stamp.mod && i < record->n_causes; i++)
        if (text_equal(record->causes[i].machine_id, node->record.machine_id))
            strikes += record->causes[i].strikes;
    return (int)MIN(strikes, INT32_MAX);
}

/* ---- the end of a quarantine ---- */

static const Request *find_request(const Cluster *c, const char *id, bool *ret_room)
{
    *ret_room = false;
    for (int i = 0; i < c->limits.requests; i++) {
        if (c->requests[i].used && text_equal(c->requests[i].record.id, id))
            return &c->requests[i];
        *ret_room |= !c->requests[i].used;
    }
    return NULL;
}

static bool begins_with(const char *words, const char *with)
{
    for (; *with; words++, with++)
        if (*words != *with)
            return false;
    return true;
}

static void ask(const Cluster *c, const CoreNode *node, const char *id, Decision *d)
{
    assert(node->present && !d->put_request && !d->remove_request);
    memset(&d->request, 0, sizeof(d->request));
    text_copy(d->request.id, sizeof(d->request.id), id);
    text_copy(d->request.kind, sizeof(d->request.kind), "check");
    text_copy(d->request.target, sizeof(d->request.target), node->record.name);
    text_copy(d->request.machine_id, sizeof(d->request.machine_id), node->record.machine_id);
    d->request.at_usec = c->real_usec;
    d->request_revision = 0;
    d->put_request = true;
}

/* Returns the node that is the cause's machine, whatever its name is now; NULL: the machine is not here. */
static const CoreNode *find_machine(const Cluster *c, const CoreNode *node,
                                    const CordonCause *cause)
{
    if (node->present && node->record.state != NODE_LEFT &&
        cause_is_of(cause, node->record.machine_id))
        return node;
    for (int i = 0; i < c->limits.nodes && is_machine_id(cause->machine_id); i++)
        if (c->nodes[i].used && c->nodes[i].present && c->nodes[i].record.state != NODE_LEFT &&
            text_equal(c->nodes[i].record.machine_id, cause->machine_id))
            return &c->nodes[i];
    return NULL;
}

/* The request's id follows from the quarantine, so that a new leader finds the request of its predecessor. */
bool decide_quarantine(const Cluster *c, const CoreNode *node, const CordonCause *cause,
                       Decision *d)
{
    assert(node->cordon_stamp.mod && cause->mode == CORDON_QUARANTINE);
    char id[sizeof(d->request.id)];
    bool room;
    Text t = text_begin(id, sizeof(id));
    text_add(&t, "check-");
    text_add_int(&t, node->cordon_stamp.mod);
    const Request *request = find_request(c, id, &room);
    const CoreNode *machine = find_machine(c, node, cause);
    if (!machine)
        return false; /* nobody to ask */
    if (!request) {
        if (room)
            ask(c, machine, id, d);
        return room;
    }
    const char *answer = request->record.answer;
    if (!answer[0] || !text_equal(request->record.machine_id, machine->record.machine_id))
        return false; /* not answered, or of another machine's quarantine under this name */
    bool well = begins_with(answer, "healthy") || begins_with(answer, "suspect");
    if (well && machine->record.verdict >= NODE_DRAIN)
        return false; /* the node's record is on the way, or its verdict has become worse since */

    if (well) {
        strikes_forget(c, node, cause->machine_id, d);
        cordon_end_cause(c, node, cause, d);
    } else {
        CordonCause longer = *cause;
        longer.until_usec = c->real_usec + c->config.quarantine_usec;
        Text why = text_begin(longer.reason, sizeof(longer.reason));
        text_add(&why, "checked when its time was over: ");
        text_add(&why, answer);
        (void)cordon_put_cause(c, node, &longer, d); /* replaces the cause: there is room */
    }
    d->request = request->record;
    d->request_revision = request->stamp.mod;
    d->remove_request = true;
    return true;
}
