/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine.c - how a quarantine ends.
 *
 * Guarantees: a quarantine of limited time ends only after the machine has checked itself at the end of that time. */
#include "controller/core/decide/quarantine.h"

#include "controller/core/facts/machines.h"
#include "controller/core/state/text-buffer.h"
#include "controller/core/write/cordons.h"
#include "controller/core/write/strikes.h"

#include <string.h>

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

static void request_check(const Cluster *c, const CoreNode *node, const char *id, Decision *d)
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

/* Returns the node that is the cause's machine, whatever its name is now; NULL: the machine is not present. */
static const CoreNode *find_machine(const Cluster *c, const CoreNode *node,
                                    const CordonCause *cause)
{
    if (node->present && node->record.state != NODE_LEFT &&
        cause_is_of(cause, node->record.machine_id))
        return node;
    for (int i = 0; i < c->limits.nodes && machine_id_is_known(cause->machine_id); i++)
        if (c->nodes[i].used && c->nodes[i].present && c->nodes[i].record.state != NODE_LEFT &&
            text_equal(c->nodes[i].record.machine_id, cause->machine_id))
            return &c->nodes[i];
    return NULL;
}

/* The request's id is derived from the quarantine, so that a new leader finds the request of its predecessor. */
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
        return false; /* no node can run the check */
    if (!request) {
        if (room)
            request_check(c, machine, id, d);
        return room;
    }
    const char *answer = request->record.answer;
    if (!answer[0] || !text_equal(request->record.machine_id, machine->record.machine_id))
        return false; /* no answer yet, or the request was for another machine of this name */
    bool well = begins_with(answer, "healthy") || begins_with(answer, "suspect");
    if (well && machine->record.verdict >= NODE_DRAIN)
        return false; /* the new record has not arrived yet, or the verdict has become worse since */

    if (well) {
        strikes_forget(c, node, cause->machine_id, d);
        cordon_end_cause(c, node, cause, d);
    } else {
        CordonCause longer = *cause;
        longer.until_usec = c->real_usec + c->config.quarantine_usec;
        Text why = text_begin(longer.reason, sizeof(longer.reason));
        text_add(&why, "checked when its time was over: ");
        text_add(&why, answer);
        (void)cordon_put_cause(c, node, &longer,
                               d); /* cannot fail: the new cause takes the place of *cause */
    }
    d->request = request->record;
    d->request_revision = request->stamp.mod;
    d->remove_request = true;
    return true;
}
