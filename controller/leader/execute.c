/* SPDX-License-Identifier: Apache-2.0 */
/* execute.c - see execute.h. No policy here: the decision names every guard and every write.
 */
#include "controller/leader/execute.h"

#include "base/fault.h"
#include "base/memory.h"
#include "base/number/hash.h"
#include "base/text/secret.h"
#include "cluster/keys.h"

#include <string.h>

enum { COMPARES_MAX = 10 + DECISION_CORDONS_MAX, OPS_MAX = 20 + DECISION_CORDONS_MAX };

/* A transaction under construction; owns its keys and values. */
typedef struct Draft {
    const Target *target;
    EtcdCompare compares[COMPARES_MAX];
    EtcdOp ops[OPS_MAX];
    size_t n_compares, n_ops;
    char keys[COMPARES_MAX + OPS_MAX][KEY_MAX];
    size_t n_keys;
    char *values[OPS_MAX];
    size_t n_values;
} Draft;

static Draft *draft_free(Draft *draft)
{
    if (!draft)
        return NULL;
    for (size_t i = 0; i < draft->n_values; i++)
        secret_free(draft->values[i]); /* a value may be a world's secret */
    free(draft);
    return NULL;
}
DEFINE_CLEANUP(Draft, draft_free)

static char *new_key(Draft *d)
{
    assert(d->n_keys < ELEMENTSOF(d->keys));
    return d->keys[d->n_keys++];
}

static const char *key_for(Draft *d, KeyKind kind, const char *name)
{
    return key_of(d->target->cluster, kind, name, new_key(d));
}

static void guard(Draft *d, KeyKind kind, const char *name, int64_t revision)
{
    if (revision == REVISION_ANY)
        return;
    assert(d->n_compares < COMPARES_MAX);
    d->compares[d->n_compares++] = (EtcdCompare){.key = key_for(d, kind, name),
                                                 .target = ETCD_MOD_REVISION,
                                                 .equals = revision};
}

static void add_op(Draft *d, EtcdOpKind kind, const char *key, const char *value)
{
    assert(d->n_ops < OPS_MAX);
    d->ops[d->n_ops++] = (EtcdOp){.kind = kind, .key = key, .value = value};
}

/* Adds a put to the draft, which then owns the value. */
static void put(Draft *d, const char *key, char *value)
{
    assert(d->n_values < OPS_MAX);
    d->values[d->n_values++] = value;
    add_op(d, ETCD_PUT, key, value);
}

static void put_cordons(Draft *draft, const Decision *d)
{
    for (int i = 0; i < d->n_cordons; i++) {
        const CordonRecord *cordon = &d->cordons[i];
        guard(draft, KEY_CORDONS, cordon->node, d->cordon_revisions[i]);
        const char *key = key_for(draft, KEY_CORDONS, cordon->node);
        if (cordon->n_causes == 0) {
            add_op(draft, ETCD_DELETE, key, NULL);
            continue;
        }
        put(draft, key, cordon_record_encode(cordon, feed_text(draft->target->feed, key)));
    }
}

static bool all_know_secrets(const Feed *feed, const WorldRecord *world)
{
    for (size_t i = 0; i < world->n_runs; i++)
        if (!feed_node_knows(feed, world->runs[i].node, FEATURE_SECRETS))
            return false;
    return true;
}

/* Draws the secret here and not in the core, because the core is pure and everything in a decision is recorded. A
 * world of one rank joins no other rank, and a node that does not know secrets could not join the others: such a
 * world gets no secret, and the secret of the world before is deleted. */
static int put_secret(Draft *draft, const Decision *d)
{
    const char *key = key_for(draft, KEY_SECRETS, d->job);
    if (d->world.size == 1 || !all_know_secrets(draft->target->feed, &d->world)) {
        add_op(draft, ETCD_DELETE, key, NULL);
        return 0;
    }
    SecretRecord record = {.generation = d->world.generation};
    uint8_t bytes[SECRET_BYTES];
    if (!draft->target->draw(bytes, sizeof(bytes)))
        return -EIO;
    (void)hash_format_bytes(bytes, sizeof(bytes), record.secret);
    explicit_bzero(bytes, sizeof(bytes));
    put(draft, key, secret_record_encode(&record, NULL));
    secret_record_clear(&record);
    return 0;
}

static int put_job(Draft *draft, const Decision *d)
{
    const Feed *feed = draft->target->feed;
    int r = 0;
    if (d->put_world) { /* the record is written without the fields of the old text */
        put(draft, key_for(draft, KEY_WORLDS, d->job), world_record_encode(&d->world, NULL));
        if (!rights_leave_out(draft->target->rights, KEY_SECRETS))
            r = put_secret(draft, d);
    }
    if (d->put_phase) {
        const char *key = key_for(draft, KEY_PHASES, d->job);
        put(draft, key, phase_record_encode(&d->phase, feed_last(feed, key)));
    }
    if (d->put_desired) {
        const char *key = key_for(draft, KEY_DESIRED, d->job);
        put(draft, key, desired_record_encode(&d->desired, feed_last(feed, key)));
    }
    if (d->put_spec) { /* the spec keeps its old text, byte by byte */
        const char *key = key_for(draft, KEY_SPECS, d->job), *text = feed_last(feed, key);
        if (!text)
            return -ENOENT;
        guard(draft, KEY_SPECS, d->job, d->spec_revision);
        put(draft, key, memory_text(text));
    }
    if (d->put_checkpoints) {
        const char *key = key_for(draft, KEY_CHECKPOINTS, d->job);
        put(draft, key, checkpoints_record_encode(&d->checkpoints, feed_last(feed, key)));
    }
    return r;
}

static void put_incident(Draft *draft, const Decision *d)
{
    if (d->remove_incident[0]) {
        add_op(draft, ETCD_DELETE, key_for(draft, KEY_INCIDENTS, d->remove_incident), NULL);
        if (!rights_leave_out(draft->target->rights, KEY_ALERTS))
            add_op(draft, ETCD_DELETE, key_for(draft, KEY_ALERTS, d->remove_incident), NULL);
    }
    if (!d->put_incident)
        return;
    guard(draft, KEY_INCIDENTS, d->incident.id, d->incident_revision);
    const char *key = key_for(draft, KEY_INCIDENTS, d->incident.id);
    put(draft, key, incident_record_encode(&d->incident, feed_text(draft->target->feed, key)));
}

static void put_request(Draft *draft, const Decision *d)
{
    if (!d->put_request && !d->remove_request)
        return;
    guard(draft, KEY_REQUESTS, d->request.id, d->request_revision);
    const char *key = key_for(draft, KEY_REQUESTS, d->request.id);
    if (d->remove_request) {
        add_op(draft, ETCD_DELETE, key, NULL);
        return;
    }
    put(draft, key, request_record_encode(&d->request, feed_text(draft->target->feed, key)));
}

static void remove_generation(Draft *draft, const char *job, int64_t generation)
{
    char *key = new_key(draft);
    /* "ranks/<job>/<generation>/": the prefix of every node's record */
    (void)key_ranks(draft->target->cluster, job, generation, "", key);
    add_op(draft, ETCD_DELETE_PREFIX, key, NULL);
    key = new_key(draft);
    add_op(draft, ETCD_DELETE, key_rendezvous(draft->target->cluster, job, generation, key), NULL);
}

/* Removes the record of one evaluation, or of all (step 0). */
static void remove_evals(Draft *draft, const char *job, int64_t step)
{
    char *key = new_key(draft);
    if (rights_leave_out(draft->target->rights, KEY_EVALS))
        return; /* they stay, and are written over */
    if (step > 0)
        add_op(draft, ETCD_DELETE, key_eval(draft->target->cluster, job, step, key), NULL);
    else
        add_op(draft, ETCD_DELETE_PREFIX, key_evals(draft->target->cluster, job, key), NULL);
}

static void remove_job(Draft *draft, const char *job)
{
    static const KeyKind single[] = {KEY_SPECS,  KEY_DESIRED,     KEY_WORLDS,
                                     KEY_PHASES, KEY_CHECKPOINTS, KEY_PROGRESS};
    static const KeyKind many[] = {KEY_RANKS, KEY_RENDEZVOUS};
    char folder[RECORD_JOB_MAX + 2];
    (void)snprintf(folder, sizeof(folder), "%s/", job);
    for (size_t i = 0; i < ELEMENTSOF(single); i++)
        add_op(draft, ETCD_DELETE, key_for(draft, single[i], job), NULL);
    if (!rights_leave_out(draft->target->rights, KEY_SECRETS))
        add_op(draft, ETCD_DELETE, key_for(draft, KEY_SECRETS, job), NULL);
    for (size_t i = 0; i < ELEMENTSOF(many); i++)
        add_op(draft, ETCD_DELETE_PREFIX, key_for(draft, many[i], folder), NULL);
    remove_evals(draft, job, 0);
}

int execute(const Target *target, const Decision *d, EtcdTxnHandler handler, void *userdata,
            EtcdCall **ret, Error *err)
{
    assert(d->id && d->term > 0 && target->leader_key[0]);
    assert(d->job[0] || !(d->put_world || d->put_phase || d->put_desired || d->put_spec ||
                          d->put_checkpoints || d->remove_generation || d->remove_job));
    assert(d->n_cordons >= 0 && d->n_cordons <= DECISION_CORDONS_MAX);
    _cleanup_(draft_freep) Draft *draft = memory_new(Draft);
    draft->target = target;
    draft->compares[draft->n_compares++] = (EtcdCompare){.key = target->leader_key,
                                                         .target = ETCD_CREATE_REVISION,
                                                         .equals = d->term}; /* I1 */
    if (d->job[0]) {
        guard(draft, KEY_WORLDS, d->job, d->world_revision);
        guard(draft, KEY_PHASES, d->job, d->phase_revision);
        guard(draft, KEY_CHECKPOINTS, d->job, d->checkpoints_revision);
        guard(draft, KEY_DESIRED, d->job, d->desired_revision);
    }
    if (d->followed[0])
        guard(draft, KEY_CHECKPOINTS, d->followed, d->followed_revision);
    int r = put_job(draft, d);
    if (r < 0)
        return error_set(err, r, "cannot write the records of a decision");
    put_incident(draft, d);
    put_cordons(draft, d);
    put_request(draft, d);
    if (d->remove_generation)
        remove_generation(draft, d->job, d->remove_generation);
    if (d->remove_eval || d->remove_evals)
        remove_evals(draft, d->job, d->remove_evals ? 0 : d->remove_eval);
    if (d->remove_job)
        remove_job(draft, d->job);
    r = etcd_txn(target->etcd, draft->compares, draft->n_compares, draft->ops, draft->n_ops,
                 handler, userdata, ret);
    return r < 0 ? error_errno(err, r, "cannot begin a transaction") : 0;
}

int execute_fault(const Decision *decision, const char *when)
{
    char point[64];
    const char *what = decision->put_world ? "world" : decision->put_phase ? "phase" : "other";
    (void)snprintf(point, sizeof(point), "decide.%s.%s", what, when);
    return fault(point);
}
