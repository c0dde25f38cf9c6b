/* SPDX-License-Identifier: Apache-2.0 */
/* etcd.c - see etcd.h. */
#include "tests/sim/etcd.h"

#include "tests/sim/checker.h"
#include "tests/sim/client.h"
#include "tests/sim/universe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEASE_LOOK_MSEC = 500 /* etcd looks for expired leases twice a second */ };

/* ---- values ---- */

static ModelValue *new_block(const void *record, size_t bytes, size_t part_bytes)
{
    ModelValue *value =
        sim_new(sizeof(ModelValue) + ROUND_UP(bytes, sizeof(max_align_t)) + part_bytes);
    value->references = 1;
    memcpy(value->record, record, bytes);
    return value;
}

static void *part_of(ModelValue *value, size_t bytes)
{
    return (char *)value->record + ROUND_UP(bytes, sizeof(max_align_t));
}

ModelValue *value_new(const void *record, size_t bytes) { return new_block(record, bytes, 0); }

ModelValue *value_new_world(const WorldRecord *world)
{
    size_t bytes = world->n_runs * sizeof(WorldRun);
    ModelValue *value = new_block(world, sizeof(*world), bytes);
    WorldRecord *copy = (WorldRecord *)value->record;
    copy->runs = memcpy(part_of(value, sizeof(*world)), world->runs, bytes);
    return value;
}

ModelValue *value_new_ranks(const RanksRecord *ranks)
{
    size_t bytes = ranks->n_ranks * sizeof(RankReport);
    ModelValue *value = new_block(ranks, sizeof(*ranks), bytes);
    RanksRecord *copy = (RanksRecord *)value->record;
    copy->ranks = memcpy(part_of(value, sizeof(*ranks)), ranks->ranks, bytes);
    return value;
}

ModelValue *value_new_broken(RecordHealth health)
{
    ModelValue *value = new_block("", 1, 0);
    value->health = health;
    return value;
}

ModelValue *value_ref(ModelValue *value)
{
    if (value)
        value->references++;
    return value;
}

ModelValue *value_unref(ModelValue *value)
{
    if (value && --value->references == 0)
        free(value);
    return NULL;
}

/* ---- keys ---- */

static void add_position(Positions *p, int at)
{
    if (p->n == p->size) {
        p->size = MAX(2 * p->size, (size_t)64);
        p->at = sim_more(p->at, p->size * sizeof(*p->at));
    }
    p->at[p->n++] = at;
}

static size_t hash_key(KeyKind kind, const char *name, int64_t generation, int node)
{
    uint64_t h = (uint64_t)kind * 31 + (uint64_t)generation * 1000003 + (uint64_t)(node + 1) * 8191;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001B3);
    return (size_t)(h ^ h >> 31);
}

static void grow_buckets(ModelEtcd *etcd)
{
    free(etcd->buckets);
    etcd->n_buckets = MAX(2 * etcd->n_buckets, 256);
    etcd->buckets = sim_new((size_t)etcd->n_buckets * sizeof(int));
    for (int i = 0; i < etcd->n_keys; i++) { /* 0: none; else the number + 1 */
        ModelKey *key = &etcd->keys[i];
        int *bucket = &etcd->buckets[hash_key(key->kind, key->name, key->generation, key->node) %
                                     (size_t)etcd->n_buckets];
        key->next_of_hash = *bucket;
        *bucket = i + 1;
    }
}

static int find_key(const ModelEtcd *etcd, KeyKind kind, const char *name, int64_t generation,
                    int node)
{
    int i = etcd->buckets[hash_key(kind, name, generation, node) % (size_t)etcd->n_buckets];
    for (; i; i = etcd->keys[i - 1].next_of_hash) {
        const ModelKey *key = &etcd->keys[i - 1];
        if (key->kind == kind && key->generation == generation && key->node == node &&
            strcmp(key->name, name) == 0)
            break;
    }
    return i - 1;
}

int etcd_key(ModelEtcd *etcd, KeyKind kind, const char *name, int64_t generation, int node)
{
    int n = find_key(etcd, kind, name, generation, node);
    if (n >= 0)
        return n;
    if (etcd->n_keys >= etcd->n_buckets)
        grow_buckets(etcd);
    int *bucket = &etcd->buckets[hash_key(kind, name, generation, node) % (size_t)etcd->n_buckets];
    if (etcd->n_keys == etcd->keys_size) {
        etcd->keys_size = MAX(2 * etcd->keys_size, 256);
        etcd->keys = sim_more(etcd->keys, (size_t)etcd->keys_size * sizeof(ModelKey));
    }
    n = etcd->n_keys++;
    etcd->keys[n] = (ModelKey){.kind = kind,
                               .node = node,
                               .generation = generation,
                               .ordinal = (int)etcd->keys_of[kind].n,
                               .next_of_hash = *bucket,
                               .lease = -1,
                               .next_of_lease = -1,
                               .previous_of_lease = -1};
    (void)snprintf(etcd->keys[n].name, sizeof(etcd->keys[n].name), "%s", name);
    *bucket = n + 1;
    add_position(&etcd->keys_of[kind], n);
    return n;
}

const ModelKey *etcd_find(ModelEtcd *etcd, KeyKind kind, const char *name)
{
    int n = find_key(etcd, kind, name, 0, -1);
    return n >= 0 && etcd->keys[n].mod_revision ? &etcd->keys[n] : NULL;
}

const void *etcd_record(ModelEtcd *etcd, KeyKind kind, const char *name)
{
    const ModelKey *key = etcd_find(etcd, kind, name);
    return key ? value_record(key->value) : NULL;
}

/* ---- the history ---- */

static void note_change(ModelEtcd *etcd, int n)
{
    ModelKey *key = &etcd->keys[n];
    if (etcd->n_history == etcd->history_size) {
        etcd->history_size = MAX(2 * etcd->history_size, (size_t)512);
        etcd->history = sim_more(etcd->history, etcd->history_size * sizeof(Change));
    }
    add_position(&etcd->changes_of[key->kind], (int)etcd->n_history);
    etcd->history[etcd->n_history++] = (Change){.revision = etcd->revision,
                                                .create_revision = key->create_revision,
                                                .key = n,
                                                .value = value_ref(key->value)};
}

static void tell_watches(ModelEtcd *etcd, size_t first_change)
{
    uint32_t kinds = 0;
    for (size_t i = first_change; i < etcd->n_history; i++)
        kinds |= 1u << etcd->keys[etcd->history[i].key].kind;
    for (int kind = 0; kind <= KEY_KINDS; kind++) {
        bool concerned = kind == KEY_KINDS ? kinds != 0 : kinds >> kind & 1;
        for (size_t i = 0; concerned && i < etcd->n_watches[kind]; i++)
            watch_wake(etcd->watches[kind][i]);
    }
}

void etcd_compact(ModelEtcd *etcd)
{
    for (; etcd->n_compacted < etcd->n_history; etcd->n_compacted++)
        etcd->history[etcd->n_compacted].value =
            value_unref(etcd->history[etcd->n_compacted].value);
    etcd->compacted_revision = etcd->revision;
}

/* ---- leases and keys ---- */

static void detach(ModelEtcd *etcd, int n)
{
    ModelKey *key = &etcd->keys[n];
    if (key->lease < 0)
        return;
    if (key->previous_of_lease >= 0)
        etcd->keys[key->previous_of_lease].next_of_lease = key->next_of_lease;
    else
        etcd->leases[key->lease].first_key = key->next_of_lease;
    if (key->next_of_lease >= 0)
        etcd->keys[key->next_of_lease].previous_of_lease = key->previous_of_lease;
    key->lease = key->next_of_lease = key->previous_of_lease = -1;
}

static void attach(ModelEtcd *etcd, int n, int lease)
{
    ModelKey *key = &etcd->keys[n];
    detach(etcd, n);
    if (lease < 0)
        return;
    key->lease = lease;
    key->next_of_lease = etcd->leases[lease].first_key;
    if (key->next_of_lease >= 0)
        etcd->keys[key->next_of_lease].previous_of_lease = n;
    etcd->leases[lease].first_key = n;
}

static void put_key(ModelEtcd *etcd, int n, ModelValue *value, int lease)
{
    ModelKey *key = &etcd->keys[n];
    (void)value_ref(value);
    (void)value_unref(key->value); /* NULL always */
    key->value = value;
    if (key->mod_revision == 0)
        key->create_revision = etcd->revision;
    key->mod_revision = etcd->revision;
    attach(etcd, n, lease);
    note_change(etcd, n);
}

static void delete_key(ModelEtcd *etcd, int n)
{
    ModelKey *key = &etcd->keys[n];
    if (key->mod_revision == 0)
        return;
    key->value = value_unref(key->value);
    key->create_revision = key->mod_revision = 0;
    key->deleted_revision = etcd->revision;
    key->deleted_usec = etcd->universe->sim.now_usec;
    detach(etcd, n);
    note_change(etcd, n);
}

static void end_lease(ModelEtcd *etcd, int n)
{
    Lease *lease = &etcd->leases[n];
    if (!lease->alive)
        return;
    lease->alive = false;
    if (lease->first_key < 0)
        return;
    size_t first_change = etcd->n_history;
    etcd->revision++;
    while (lease->first_key >= 0)
        delete_key(etcd, lease->first_key);
    tell_watches(etcd, first_change);
}

static void on_expiry(Universe *u, _unused_ void *who, uint64_t token)
{
    ModelEtcd *etcd = &u->etcd;
    Lease *lease = &etcd->leases[token];
    if (!lease->alive)
        return;
    if (etcd->down || lease->expires_usec > u->sim.now_usec) {
        uint64_t left = lease->expires_usec > u->sim.now_usec
                            ? lease->expires_usec - u->sim.now_usec
                            : LEASE_LOOK_MSEC * USEC_PER_MSEC;
        sim_after(&u->sim, NULL, left, on_expiry, NULL, token);
        return;
    }
    sim_say(&u->sim, "etcd: lease %d runs out", (int)token);
    end_lease(etcd, (int)token);
}

int etcd_lease_grant(ModelEtcd *etcd, uint64_t ttl_usec, const Actor *owner)
{
    Sim *sim = &etcd->universe->sim;
    if (etcd->n_leases == etcd->leases_size) {
        etcd->leases_size = MAX(2 * etcd->leases_size, 64);
        etcd->leases = sim_more(etcd->leases, (size_t)etcd->leases_size * sizeof(Lease));
    }
    int n = etcd->n_leases++;
    etcd->leases[n] = (Lease){.alive = true,
                              .ttl_usec = ttl_usec,
                              .expires_usec = sim->now_usec + ttl_usec,
                              .first_key = -1,
                              .owner = owner};
    sim_after(sim, NULL, ttl_usec + sim_between(sim, 0, LEASE_LOOK_MSEC * USEC_PER_MSEC), on_expiry,
              NULL, (uint64_t)n);
    return n;
}

bool etcd_lease_renew(ModelEtcd *etcd, int n)
{
    Lease *lease = &etcd->leases[n];
    if (lease->alive)
        lease->expires_usec = etcd->universe->sim.now_usec + lease->ttl_usec;
    return lease->alive;
}

void etcd_lease_revoke(ModelEtcd *etcd, int lease) { end_lease(etcd, lease); }

void etcd_revoke_all(ModelEtcd *etcd)
{
    for (int i = 0; i < etcd->n_leases; i++)
        end_lease(etcd, i);
}

void etcd_lose_quorum(ModelEtcd *etcd)
{
    etcd->down = true;
    etcd->n_downs++;
}

void etcd_regain_quorum(ModelEtcd *etcd)
{
    etcd->down = false;
    client_serve_late(etcd->universe);
    for (int i = 0; i < etcd->n_leases; i++)
        etcd->leases[i].expires_usec = etcd->universe->sim.now_usec + etcd->leases[i].ttl_usec;
    for (int kind = 0; kind <= KEY_KINDS; kind++)
        for (size_t i = 0; i < etcd->n_watches[kind]; i++)
            watch_wake(etcd->watches[kind][i]);
}

/* ---- transactions ---- */

void txn_compare(Txn *txn, CompareTarget target, int key, int64_t equals)
{
    assert(txn->n_compares < TXN_COMPARES_MAX);
    txn->compares[txn->n_compares++] = (Compare){.target = target, .key = key, .equals = equals};
}

void txn_put(Txn *txn, int key, ModelValue *value, int lease)
{
    assert(txn->n_ops < TXN_OPS_MAX);
    txn->ops[txn->n_ops++] = (Op){.kind = OP_PUT, .key = key, .value = value, .lease = lease};
}

void txn_delete(Txn *txn, int key)
{
    assert(txn->n_ops < TXN_OPS_MAX);
    txn->ops[txn->n_ops++] = (Op){.kind = OP_DELETE, .key = key, .lease = -1};
}

void txn_clear(Txn *txn)
{
    for (size_t i = 0; i < txn->n_ops; i++)
        (void)value_unref(txn->ops[i].value); /* NULL always */
}

/* "ranks/<job>/<generation>/" and "rendezvous/<job>/<generation>", or of every generation. */
static void delete_ranks(ModelEtcd *etcd, const Op *op)
{
    static const KeyKind kinds[] = {KEY_RANKS, KEY_RENDEZVOUS};
    for (size_t k = 0; k < ELEMENTSOF(kinds); k++)
        for (size_t i = 0; i < etcd->keys_of[kinds[k]].n; i++) {
            int n = etcd->keys_of[kinds[k]].at[i];
            if ((op->generation == 0 || etcd->keys[n].generation == op->generation) &&
                strcmp(etcd->keys[n].name, etcd->keys[op->key].name) == 0)
                delete_key(etcd, n);
        }
}

static bool compares_hold(const ModelEtcd *etcd, const Txn *txn)
{
    for (size_t i = 0; i < txn->n_compares; i++) {
        const Compare *c = &txn->compares[i];
        const ModelKey *key = &etcd->keys[c->key];
        if (c->equals != (c->target == COMPARE_MOD ? key->mod_revision : key->create_revision))
            return false;
    }
    return true;
}

int etcd_commit(ModelEtcd *etcd, const Txn *txn, bool *ret_succeeded)
{
    for (size_t i = 0; i < txn->n_ops; i++)
        if (txn->ops[i].lease >= 0 && !etcd->leases[txn->ops[i].lease].alive)
            return -ESTALE;
    *ret_succeeded = compares_hold(etcd, txn);
    if (!*ret_succeeded || txn->n_ops == 0)
        return 0;

    checker_before(etcd->universe, txn);
    size_t first_change = etcd->n_history;
    etcd->revision++;
    for (size_t i = 0; i < txn->n_ops; i++) {
        const Op *op = &txn->ops[i];
        if (op->kind == OP_PUT)
            put_key(etcd, op->key, op->value, op->lease);
        else if (op->kind == OP_DELETE)
            delete_key(etcd, op->key);
        else
            delete_ranks(etcd, op);
    }
    if (etcd->n_history == first_change)
        etcd->revision--; /* it deleted what was not there */
    tell_watches(etcd, first_change);
    return 0;
}

void etcd_put(ModelEtcd *etcd, KeyKind kind, const char *name, ModelValue *value)
{
    Txn txn = {0};
    bool succeeded;
    int key = etcd_key(etcd, kind, name, 0, -1);
    if (value)
        txn_put(&txn, key, value, -1);
    else
        txn_delete(&txn, key);
    int r = etcd_commit(etcd, &txn, &succeeded);
    assert(r == 0 && succeeded); /* no lease, no compare */
    txn_clear(&txn);
}

/* ---- life ---- */

void etcd_init(ModelEtcd *etcd, Universe *u)
{
    *etcd = (ModelEtcd){.universe = u, .revision = 1};
    grow_buckets(etcd);
}

void etcd_clear(ModelEtcd *etcd)
{
    etcd_compact(etcd);
    for (int i = 0; i < etcd->n_keys; i++)
        (void)value_unref(etcd->keys[i].value); /* NULL always */
    for (int i = 0; i <= KEY_KINDS; i++) {
        free(etcd->watches[i]);
        if (i < KEY_KINDS) {
            free(etcd->keys_of[i].at);
            free(etcd->changes_of[i].at);
        }
    }
    free(etcd->keys);
    free(etcd->buckets);
    free(etcd->history);
    free(etcd->leases);
}
