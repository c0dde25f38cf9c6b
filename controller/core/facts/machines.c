/* SPDX-License-Identifier: Apache-2.0 */
/* machines.c - see machines.h. */
#include "controller/core/facts/machines.h"

#include "controller/core/state/text-buffer.h"

enum { MACHINE_ID_BYTES = 32 };

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

bool node_is_unhealthy(const Cluster *c, const CoreNode *node)
{
    return node->record.verdict == NODE_ISOLATE && !c->probes_suspected;
}

bool machine_id_is_known(const char *text)
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
    if (!machine_id_is_known(node->record.machine_id))
        return NULL;
    for (int at = 0; at < c->n_cordoned; at++) {
        const int i = c->cordoned[at];
        assert(c->nodes[i].cordon_stamp.mod); /* every node in the list has a cordon record */
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
    for (int at = 0; at < c->n_cordoned && machine_id_is_known(node->record.machine_id); at++) {
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

bool strikes_refuse(const CordonCause *cause)
{
    return cause->owner == CORDON_JOB && cause->mode == CORDON_QUARANTINE && cause->until_usec != 0;
}
