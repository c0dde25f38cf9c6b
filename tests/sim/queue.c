/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c - see checker.h: who starts before whom. */
#include "tests/sim/checker.h"
#include "tests/sim/universe.h"

#include <string.h>

static int usable(const Universe *u, int job, const NodeRecord *node)
{
    int n = u->options.jobs[job].facts.needs_gpu ? MIN(node->n_slots, node->n_gpus) : node->n_slots;
    uint64_t bad = (node->lost_slots | node->bad_slots) & ((UINT64_C(1) << n) - 1);
    return n - __builtin_popcountll(bad);
}

/* Slots for the job that the leader knows to be there and open: what it had seen when it decided. */
static int open_slots(Universe *u, const ModelController *leader, int job, int64_t seen_revision)
{
    int slots = 0;
    for (int i = 0; i < u->options.n_nodes; i++) {
        const ModelKey *key = etcd_find(&u->etcd, KEY_NODES, u->nodes[i].name);
        const NodeRecord *node = key ? value_record(key->value) : NULL;
        const ModelKey *cordon =
            &u->etcd.keys[etcd_key(&u->etcd, KEY_CORDONS, u->nodes[i].name, 0, -1)];
        key = etcd_find(&u->etcd, KEY_NODES, u->nodes[i].name);
        if (node && admission_allows(leader->config.admit, u->nodes[i].name, "") &&
            key->mod_revision <= seen_revision && node->state == NODE_UP &&
            node->verdict == NODE_HEALTHY && cordon->mod_revision == 0 &&
            cordon->deleted_revision <= seen_revision)
            slots += usable(u, job, node);
    }
    return slots;
}

static bool goes_before(Universe *u, int a, int b)
{
    const DesiredRecord *x = etcd_record(&u->etcd, KEY_DESIRED, universe_job_name(a)),
                        *y = etcd_record(&u->etcd, KEY_DESIRED, universe_job_name(b));
    return x && y && x->priority > y->priority;
}

/* Nothing starts before a job that has waited long, comes first and could run. */
void checker_queue(Universe *u, const Txn *txn, int job, const PhaseRecord *phase)
{
    const PhaseRecord *old = etcd_record(&u->etcd, KEY_PHASES, universe_job_name(job));
    const uint64_t slack = USEC_PER_SEC;
    if (!old || old->phase != PHASE_PENDING)
        return;
    for (int i = 0; i < u->options.n_jobs; i++) {
        const char *name = universe_job_name(i);
        const JobBooks *books = &u->checker.jobs[i];
        const ModelKey *desired = etcd_find(&u->etcd, KEY_DESIRED, name);
        const ModelKey *waits = etcd_find(&u->etcd, KEY_PHASES, name);
        const DesiredRecord *wants = desired ? value_record(desired->value) : NULL;
        uint64_t since = MAX(books->pending_usec, txn->leader->led_usec);
        if (i != job && books->pending_usec && !books->broken_phase &&
            etcd_record(&u->etcd, KEY_SPECS, name) && wants && wants->state == DESIRED_RUNNING &&
            waits && desired->mod_revision <= phase->tried_revision &&
            waits->mod_revision <= phase->tried_revision && goes_before(u, i, job) &&
            u->sim.now_usec > since + u->options.core.queue_patience_usec + slack &&
            wants->min <= open_slots(u, txn->leader, i, phase->tried_revision))
            sim_fail(&u->sim, "queue", "%s starts before %s, which has waited for %.1f s: %s",
                     universe_job_name(job), name, (double)(u->sim.now_usec - since) / 1e6,
                     ((const PhaseRecord *)value_record(waits->value))->reason);
    }
}
