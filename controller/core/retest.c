/* retest.c - what a node's own verdict is worth, and how a quarantine ends.
 *
 * Entry points: health_update_trust(), decide_retest(). Guarantees: no more than half of the nodes
 * (and never fewer than three) are isolated on their own word at one time; a quarantine that was
 * given for a time ends only after the node has checked itself since. */
#include "controller/core/state.h"
#include "controller/core/text.h"

#include <string.h>

enum { DISTRUST_NODES_MIN = 3, MACHINE_ID_BYTES = 32 };

/* ---- trust ---- */

void health_count(const Cluster *c, int *ret_unhealthy, int *ret_present)
{
    *ret_unhealthy = *ret_present = 0;
    for (int i = 0; i < c->limits.nodes; i++) {
        const Node *node = &c->nodes[i];
        if (!node->used || !node->present || node->record.state == NODE_LEFT)
            continue;
        *ret_present += 1;
        *ret_unhealthy += node->record.verdict == NODE_ISOLATE;
    }
}

/* Those that were isolated before count too: node after node must not add up to a cluster that its
 * probes have taken apart. */
void health_update_trust(Cluster *c)
{
    int unhealthy, present;
    health_count(c, &unhealthy, &present);
    c->distrusts_probes = unhealthy >= DISTRUST_NODES_MIN && 2 * unhealthy > present;
}

bool node_is_unhealthy(const Cluster *c, const Node *node)
{
    return node->record.verdict == NODE_ISOLATE && !c->distrusts_probes;
}

/* ---- the machine behind the name ---- */

static bool is_machine_id(const char *text)
{
    size_t n = 0;
    while (text[n])
        n++;
    return n == MACHINE_ID_BYTES;
}

const CordonRecord *node_find_machine_cordon(const Cluster *c, const Node *node)
{
    if (!is_machine_id(node->record.machine_id))
        return NULL;
    for (int i = 0; i < c->limits.nodes; i++) {
        const CordonRecord *cordon = &c->nodes[i].cordon;
        if (c->nodes[i].used && &c->nodes[i] != node && cordon->mode == CORDON_QUARANTINE &&
            !cordon->job[0] && text_equal(cordon->machine_id, node->record.machine_id))
            return cordon;
    }
    return NULL;
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

static void ask(Cluster *c, const Node *node, const char *id, Decision *d)
{
    memset(&d->request, 0, sizeof(d->request));
    text_copy(d->request.id, sizeof(d->request.id), id);
    text_copy(d->request.kind, sizeof(d->request.kind), "check");
    text_copy(d->request.target, sizeof(d->request.target), node->record.name);
    d->request.at_usec = c->real_usec;
    d->request_revision = 0;
    d->put_request = true;
}

/* Its id follows from the quarantine, so that a new leader finds what its predecessor asked. */
bool decide_retest(Cluster *c, const Node *node, Decision *d)
{
    char id[sizeof(d->request.id)];
    bool room;
    Text t = text_begin(id, sizeof(id));
    text_add(&t, "check-");
    text_add_int(&t, node->cordon_stamp.mod);
    const Request *request = find_request(c, id, &room);
    if (!node->present || node->record.state == NODE_LEFT)
        return false; /* nobody to ask */
    if (!request) {
        if (room)
            ask(c, node, id, d);
        return room;
    }
    const char *answer = request->record.answer;
    if (!answer[0])
        return false;
    bool well = begins_with(answer, "healthy") || begins_with(answer, "suspect");
    if (well && node->record.verdict >= NODE_DRAIN)
        return false; /* its record is on the way, or it has become worse since */

    CordonRecord cordon = {.since_usec = c->real_usec};
    if (!well) {
        cordon = node->cordon;
        cordon.until_usec = c->real_usec + c->config.quarantine_usec;
        Text why = text_begin(cordon.reason, sizeof(cordon.reason));
        text_add(&why, "checked when its time was over: ");
        text_add(&why, answer);
    }
    text_copy(cordon.node, sizeof(cordon.node), node->record.name);
    d->cordons[0] = cordon;
    d->cordon_revisions[0] = node->cordon_stamp.mod;
    d->n_cordons = 1;
    d->request = request->record;
    d->request_revision = request->stamp.mod;
    d->remove_request = true;
    return true;
}
