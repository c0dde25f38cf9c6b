/* SPDX-License-Identifier: Apache-2.0 */
/* lessor.c - leases as their leader counts them. An expired lease is revoked up to half a second
 * later, since etcd checks at that interval. A renewal between the expiry and the revocation finds
 * no lease. */
#include "tests/sim/server/server-internal.h"

#include <endian.h>
#include <string.h>

enum { LOOK_MSEC = 500 };

static const int64_t ttl_max_sec = INT64_C(9000000000);

static Bytes big_endian(uint64_t number, uint8_t *ret)
{
    for (int i = 0; i < 8; i++)
        ret[i] = (uint8_t)(number >> (56 - 8 * i));
    return (Bytes){.data = ret, .n = 8};
}

Lease *lessor_find(const Server *server, int64_t id)
{
    uint8_t bytes[8];
    return (Lease *)tree_find(&server->lessor.leases, big_endian((uint64_t)id, bytes));
}

bool server_has_lease(const Server *server, int64_t id) { return lessor_find(server, id); }

static Lease *of_expiry(TreeNode *node)
{
    return (Lease *)((char *)node - offsetof(Lease, by_expiry));
}

static void schedule(Server *server, Lease *lease, uint64_t expires_usec)
{
    uint64_t late_usec = server_draw(server) % (LOOK_MSEC * USEC_PER_MSEC);

    if (lease->by_expiry.begin.n > 0)
        tree_remove(&server->lessor.expiries, &lease->by_expiry);
    lease->expires_usec = expires_usec;
    lease->by_expiry.begin = big_endian(expires_usec + late_usec, lease->expiry_bytes);
    tree_insert(&server->lessor.expiries, &lease->by_expiry);
}

static uint64_t ttl_usec(const Lease *lease) { return (uint64_t)lease->ttl_sec * USEC_PER_SEC; }

Refusal lessor_grant(Server *server, int64_t id, int64_t ttl_sec, Lease **ret)
{
    int64_t least_sec = (int64_t)DIV_ROUND_UP(server->options.election_usec * 3 / 2, USEC_PER_SEC);

    while (id == 0) {
        id = (int64_t)((server_draw(server) ^ ++server->lessor.leases.n_inserted) & INT64_MAX);
        if (lessor_find(server, id))
            id = 0;
    }
    if (ttl_sec > ttl_max_sec)
        return (Refusal){SERVER_OUT_OF_RANGE, "etcdserver: too large lease TTL"};
    if (lessor_find(server, id))
        return (Refusal){SERVER_FAILED_PRECONDITION, "etcdserver: lease already exists"};
    Lease *lease = memory_new(Lease);
    lease->id = id;
    lease->ttl_sec = MAX(ttl_sec, least_sec);
    lease->by_id.begin = big_endian((uint64_t)id, lease->id_bytes);
    tree_insert(&server->lessor.leases, &lease->by_id);
    schedule(server, lease, server->now_usec + ttl_usec(lease));
    *ret = lease;
    return REFUSAL_NONE;
}

void lessor_attach(Key *key, Lease *lease)
{
    if (key->lease)
        LIST_REMOVE(key, of_lease);
    key->lease = lease;
    if (lease)
        LIST_INSERT_HEAD(&lease->keys, key, of_lease);
}

static int by_name(const void *a, const void *b)
{
    Key *const *x = a, *const *y = b;
    return bytes_compare((*x)->node.begin, (*y)->node.begin);
}

Refusal lessor_revoke(Server *server, int64_t id)
{
    Lease *lease = lessor_find(server, id);
    Key *key, **keys = NULL;
    size_t n = 0, room = 0;

    if (!lease)
        return (Refusal){SERVER_NOT_FOUND, "etcdserver: requested lease not found"};
    LIST_FOREACH(key, &lease->keys, of_lease)
    {
        keys = memory_grow(keys, n, &room, sizeof(Key *));
        keys[n++] = key;
    }
    if (n > 0)
        qsort(keys, n, sizeof(Key *), by_name);
    tree_remove(&server->lessor.leases, &lease->by_id);
    tree_remove(&server->lessor.expiries, &lease->by_expiry);
    mvcc_begin(server);
    for (size_t i = 0; i < n; i++) {
        KeyRange range = {.begin = keys[i]->node.begin, .single = true};
        /* the range is one key, which exists because it has a lease */
        (void)mvcc_delete(server, &range);
    }
    assert(LIST_EMPTY(&lease->keys));
    free(lease);
    free(keys);
    mvcc_end(server);
    return REFUSAL_NONE;
}

int64_t lessor_renew(Server *server, int64_t id)
{
    Lease *lease = lessor_find(server, id);

    if (!lease)
        return 0;
    if (lease->expires_usec <= server->now_usec) {
        (void)lessor_revoke(server, id); /* cannot fail: the lease exists */
        return 0;
    }
    schedule(server, lease, server->now_usec + ttl_usec(lease));
    return lease->ttl_sec;
}

typedef struct Leases {
    Lease **leases;
    size_t n, room;
} Leases;

static bool collect(TreeNode *node, void *userdata)
{
    Leases *all = userdata;
    all->leases = memory_grow(all->leases, all->n, &all->room, sizeof(Lease *));
    all->leases[all->n++] = (Lease *)node;
    return true;
}

static Leases all_leases(const Server *server)
{
    Leases all = {0};
    tree_visit(&server->lessor.leases, (Bytes){0}, (Bytes){0}, true, collect, &all);
    return all;
}

void lessor_promote(Server *server)
{
    Leases all = all_leases(server);

    for (size_t i = 0; i < all.n; i++)
        schedule(server, all.leases[i],
                 server->now_usec + ttl_usec(all.leases[i]) + server->options.election_usec);
    free(all.leases);
}

void lessor_expire(Server *server)
{
    while (lessor_next_usec(server) <= server->now_usec)
        (void)lessor_revoke(server,
                            /* cannot fail: the lease exists */
                            of_expiry(tree_first(&server->lessor.expiries))->id);
}

uint64_t lessor_next_usec(const Server *server)
{
    const TreeNode *node = tree_first(&server->lessor.expiries);
    uint64_t usec;

    if (!node)
        return UINT64_MAX;
    memcpy(&usec, node->begin.data, sizeof(usec));
    return be64toh(usec);
}

size_t lessor_beliefs(const Server *server, Belief **ret)
{
    Leases all = all_leases(server);

    *ret = memory_zeroed(all.n, sizeof(**ret));
    for (size_t i = 0; i < all.n; i++)
        (*ret)[i] = (Belief){
            .id = all.leases[i]->id,
            .ttl_sec = all.leases[i]->ttl_sec,
            .expires_usec = all.leases[i]->expires_usec,
        };
    free(all.leases);
    return all.n;
}

void lessor_clear(Lessor *lessor)
{
    for (TreeNode *node; (node = tree_first(&lessor->leases));) {
        Lease *lease = (Lease *)node;
        while (!LIST_EMPTY(&lease->keys))
            lessor_attach(LIST_FIRST(&lease->keys), NULL);
        tree_remove(&lessor->leases, node);
        free(lease);
    }
    *lessor = (Lessor){0};
}

void lessor_copy(const Server *from, Server *to)
{
    Leases all = all_leases(from);

    for (size_t i = 0; i < all.n; i++) {
        Lease *lease = memory_new(Lease);
        Key *key;
        lease->id = all.leases[i]->id;
        lease->ttl_sec = all.leases[i]->ttl_sec;
        lease->by_id.begin = big_endian((uint64_t)lease->id, lease->id_bytes);
        tree_insert(&to->lessor.leases, &lease->by_id);
        schedule(to, lease, all.leases[i]->expires_usec);
        LIST_FOREACH(key, &all.leases[i]->keys, of_lease)
        lessor_attach((Key *)tree_find(&to->mvcc.keys, key->node.begin), lease);
    }
    free(all.leases);
}
