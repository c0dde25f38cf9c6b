/* SPDX-License-Identifier: Apache-2.0 */
/* checker-cordons.c - see checker.h: what a leader may do to cordons/<node>.
 *
 * It leaves an operator's cause as it is, ends no quarantine (nobody answers checks here) but that of a
 * job that is gone, and holds what a machine has done against that machine: one strike at a time.
 * Where the record is damaged, that is what it has been told in its life before; who has been told nothing
 * writes nothing in its place but beside a cordon, which somebody may have meant. */
#include "tests/sim/checker.h"

#include "cluster/cordon.h"
#include "tests/sim/universe.h"

#include <stdlib.h>
#include <string.h>

#define BROKEN(u, ...) sim_fail(&(u)->sim, "cordon", __VA_ARGS__)

/* ---- what a leader was told ---- */

static SeenCordon *seen_cordon(const ModelController *c, const char *name)
{
    return &c->seen_cordons[strtol(name + 1, NULL, 10)]; /* "n5" */
}

void checker_cordon_fed(ModelController *c, const char *name, const ModelValue *value,
                        int64_t revision)
{
    SeenCordon *seen = seen_cordon(c, name);
    if (revision < seen->revision)
        return; /* a late copy */
    seen->revision = revision;
    if (!value)
        seen->record = (CordonRecord){0};
    else if (value_record(value))
        seen->record = *(const CordonRecord *)value_record(value);
}

const CordonRecord *checker_cordon_known(Universe *u, const ModelController *leader,
                                         const char *name)
{
    static const CordonRecord unknown = {.causes = {{.owner = CORDON_OPERATOR,
                                                     .mode = CORDON_CORDON}},
                                         .n_causes = 1};
    const ModelKey *key = etcd_find(&u->etcd, KEY_CORDONS, name);
    if (!key || value_record(key->value))
        return key ? value_record(key->value) : NULL;
    const SeenCordon *seen = seen_cordon(leader, name);
    return seen->record.n_causes > 0 ? &seen->record : &unknown;
}

/* ---- what it writes ---- */

static const CordonCause *same_cause(const CordonRecord *record, const CordonCause *cause)
{
    int at = record ? cordon_find(record, cause->owner, cause->job, cause->machine_id) : -1;
    return at < 0 ? NULL : &record->causes[at];
}

static void check_kept(Universe *u, const char *name, const CordonCause *was,
                       const CordonRecord *after)
{
    const CordonCause *is = same_cause(after, was);
    if (was->owner == CORDON_OPERATOR &&
        (!is || is->mode != was->mode || is->since_usec != was->since_usec))
        BROKEN(u, "a leader takes the operator's %s away from %s",
               was->mode == CORDON_DRAIN ? "drain" : "cordon", name);
    const JobFacts *job = etcd_record(&u->etcd, KEY_SPECS, was->job);
    bool over = was->owner == CORDON_JOB && (!job || strcmp(job->submission, was->submission) != 0);
    if (was->mode == CORDON_QUARANTINE && !over && (!is || is->mode != CORDON_QUARANTINE))
        BROKEN(u, "a leader ends the quarantine of machine %s under %s, which nobody has checked",
               was->machine_id, name);
}

/* The machine must be the one that has the name, if the leader can have known of it. */
static void check_put(Universe *u, const Txn *txn, const char *name, const CordonCause *is,
                      const CordonCause *was)
{
    Breach b;
    if (was && is->mode == was->mode && is->strikes == was->strikes)
        return;
    sim_say(&u->sim, "  cordon %s machine %s mode %d strikes %d", name, is->machine_id,
            (int)is->mode, is->strikes);
    if (is->owner == CORDON_OPERATOR)
        BROKEN(u, "a leader cordons %s in the operator's name", name);
    if (!rule_strikes_grow_by_one(name, was, is, &b))
        checker_breach(u, &b);
    const ModelKey *key = etcd_find(&u->etcd, KEY_NODES, name);
    for (size_t i = 0; key && i < txn->n_ops; i++) {
        const PhaseRecord *phase = value_record(txn->ops[i].value);
        if (txn->ops[i].kind == OP_PUT && u->etcd.keys[txn->ops[i].key].kind == KEY_PHASES &&
            key->create_revision <= phase->tried_revision &&
            !cause_is_of(is, ((const NodeRecord *)value_record(key->value))->machine_id))
            BROKEN(u, "machine %s is blamed for what another one does that is called %s now",
                   is->machine_id, name);
    }
}

void checker_cordon(Universe *u, const Txn *txn, const char *name, const CordonRecord *after)
{
    if (!txn->leader)
        return;
    const CordonRecord *before = checker_cordon_known(u, txn->leader, name);
    for (size_t i = 0; before && i < before->n_causes; i++)
        check_kept(u, name, &before->causes[i], after);
    for (size_t i = 0; after && i < after->n_causes; i++)
        check_put(u, txn, name, &after->causes[i], same_cause(before, &after->causes[i]));
}
