/* SPDX-License-Identifier: Apache-2.0 */
/* client.c - see client.h. */
#include "tests/sim/client.h"

#include "tests/sim/universe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALL_TIMEOUT_MSEC = 5000, /* libetcd's */
    ANSWER_MIN_MSEC = 300,
    GRANT_AGAIN_MSEC = 200,
    BLOCKED_MSEC = 200,
    BLOCKED_MAX = 8, /* then the client finds its endpoint silent and leaves it */
    READ_KEYS_MAX = 4,
};

typedef enum CallKind { CALL_TXN, CALL_LIST, CALL_READ, CALL_GRANT, CALL_RENEW } CallKind;

struct ModelCall {
    ModelCall *next, *previous; /* of all calls */
    ModelClient *client;        /* NULL: nobody waits for the answer */
    uint32_t life;
    CallKind kind;
    bool late;
    Txn *txn;
    int list_kind, lease;
    int keys[READ_KEYS_MAX];
    size_t n_keys;
    ModelCallHandler handler;
    void *who;
    uint64_t token, sent_usec;
    CallResult result;
};

/* ---- calls: made and freed ---- */

static ModelCall *call_new(Universe *u, CallKind kind)
{
    ModelCall *call = sim_new(sizeof(*call));
    call->kind = kind;
    call->next = u->calls;
    if (call->next)
        call->next->previous = call;
    u->calls = call;
    return call;
}

static void call_free(Universe *u, ModelCall *call)
{
    if (call->previous)
        call->previous->next = call->next;
    else
        u->calls = call->next;
    if (call->next)
        call->next->previous = call->previous;
    if (call->txn)
        txn_clear(call->txn);
    free(call->txn);
    for (size_t i = 0; i < call->result.n_items; i++)
        (void)value_unref(call->result.items[i].value); /* NULL always */
    free(call->result.items);
    free(call);
}

void client_calls_free(Universe *u)
{
    while (u->calls)
        call_free(u, u->calls);
}

/* ---- calls: there and back ---- */

static uint64_t latency(const ModelClient *client)
{
    Universe *u = client->universe;
    uint64_t most = u->etcd_slow_usec + client->link.clog_usec;
    uint64_t usec = sim_between(&u->sim, 100, 1500);
    return most ? usec + sim_between(&u->sim, 0, most) : usec;
}

static void on_answer(Universe *u, void *who, _unused_ uint64_t token)
{
    ModelCall *call = who;
    call->handler(u, call->who, call->token, &call->result);
    call_free(u, call);
}

/* Nobody is told: the deadline passes, or the connection breaks before. */
static void lose(Universe *u, ModelCall *call)
{
    uint64_t deadline_usec = call->sent_usec + CALL_TIMEOUT_MSEC * USEC_PER_MSEC;
    uint64_t left = deadline_usec > u->sim.now_usec ? deadline_usec - u->sim.now_usec : 0;
    bool breaks = sim_chance(&u->sim, 400);
    call->result.r = breaks ? -EIO : -ETIMEDOUT;
    sim_timer(&u->sim, call->client->actor,
              breaks ? MIN(left, sim_between(&u->sim, 1000, 600000)) : left, on_answer, call, 0);
}

static void add_item(CallResult *result, const ModelEtcd *etcd, int n)
{
    const ModelKey *key = &etcd->keys[n];
    if (key->mod_revision == 0)
        return;
    if ((result->n_items & (result->n_items - 1)) == 0)
        result->items = sim_more(result->items, MAX(2 * result->n_items, (size_t)4) * sizeof(Item));
    result->items[result->n_items++] = (Item){.key = n,
                                              .create_revision = key->create_revision,
                                              .mod_revision = key->mod_revision,
                                              .value = value_ref(key->value)};
}

/* In the order of the kinds' names, as etcd lists keys. */
static const KeyKind in_order[] = {KEY_ALERTS,    KEY_CHECKPOINTS, KEY_CORDONS,    KEY_DESIRED,
                                   KEY_INCIDENTS, KEY_LEADER,      KEY_NODES,      KEY_PHASES,
                                   KEY_PROGRESS,  KEY_RANKS,       KEY_RENDEZVOUS, KEY_REQUESTS,
                                   KEY_SPECS,     KEY_WORLDS};

static void list(const ModelEtcd *etcd, int kind, CallResult *result)
{
    for (size_t k = 0; k < ELEMENTSOF(in_order); k++)
        if (kind == KEY_KINDS || kind == (int)in_order[k])
            for (size_t i = 0; i < etcd->keys_of[in_order[k]].n; i++)
                add_item(result, etcd, etcd->keys_of[in_order[k]].at[i]);
}

static void serve(Universe *u, ModelCall *call)
{
    ModelEtcd *etcd = &u->etcd;
    CallResult *result = &call->result;
    switch (call->kind) {
    case CALL_TXN:
        result->r = etcd_commit(etcd, call->txn, &result->succeeded);
        break;
    case CALL_LIST:
        list(etcd, call->list_kind, result);
        break;
    case CALL_READ:
        for (size_t i = 0; i < call->n_keys; i++)
            add_item(result, etcd, call->keys[i]);
        break;
    case CALL_GRANT:
        result->lease = etcd_lease_grant(etcd, call->client->ttl_usec, call->client->actor);
        break;
    case CALL_RENEW:
        result->succeeded = etcd_lease_renew(etcd, call->lease);
        break;
    }
    result->revision = etcd->revision;
}

/* A proposal that lies in the log of a leader without quorum: it counts once there is one again,
 * before anything newer, long after its client was told nothing. */
static void keep_for_later(Universe *u, ModelCall *call)
{
    ModelCall *late = call_new(u, CALL_TXN);
    late->txn = TAKE_PTR(call->txn);
    late->late = true;
}

void client_serve_late(Universe *u)
{
    ModelCall *oldest = NULL; /* the newest are at the head */
    for (ModelCall *call = u->calls; call; call = call->next)
        oldest = call;
    for (ModelCall *call = oldest, *newer; call; call = newer) {
        newer = call->previous;
        if (!call->late)
            continue;
        serve(u, call);
        call_free(u, call);
    }
}

static void on_arrival(Universe *u, void *who, _unused_ uint64_t token)
{
    ModelCall *call = who;
    ModelClient *client = call->client;
    bool waited_for = client->actor->life == call->life;
    if (!u->etcd.down)
        serve(u, call);
    else if (call->kind == CALL_TXN && sim_chance(&u->sim, 300))
        keep_for_later(u, call);
    if (!waited_for)
        call_free(u, call);
    else if (u->etcd.down || client->link.cut_down || sim_chance(&u->sim, u->lost_answer_permille))
        lose(u, call);
    else
        sim_after(&u->sim, client->actor, latency(client), on_answer, call, 0);
}

static void send_call(ModelClient *client, ModelCall *call, ModelCallHandler handler, void *who,
                      uint64_t token)
{
    Universe *u = client->universe;
    call->client = client;
    call->life = client->actor->life;
    call->handler = handler;
    call->who = who;
    call->token = token;
    call->sent_usec = u->sim.now_usec;
    if (client->link.cut_up || sim_chance(&u->sim, u->lost_request_permille))
        lose(u, call);
    else
        sim_after(&u->sim, NULL, latency(client), on_arrival, call, 0);
}

void client_txn(ModelClient *client, Txn *txn, ModelCallHandler handler, void *who, uint64_t token)
{
    ModelCall *call = call_new(client->universe, CALL_TXN);
    call->txn = sim_new(sizeof(Txn));
    *call->txn = *txn;
    send_call(client, call, handler, who, token);
}

void client_list(ModelClient *client, int kind, ModelCallHandler handler, void *who, uint64_t token)
{
    ModelCall *call = call_new(client->universe, CALL_LIST);
    call->list_kind = kind;
    send_call(client, call, handler, who, token);
}

void client_read(ModelClient *client, const int *keys, size_t n_keys, ModelCallHandler handler,
                 void *who, uint64_t token)
{
    ModelCall *call = call_new(client->universe, CALL_READ);
    assert(n_keys <= READ_KEYS_MAX);
    memcpy(call->keys, keys, n_keys * sizeof(*keys));
    call->n_keys = n_keys;
    send_call(client, call, handler, who, token);
}

/* ---- the lease ---- */

static void on_lease_timer(Universe *u, void *who, uint64_t token);

static void set_lease_timer(ModelClient *client, uint64_t at_usec)
{
    Sim *sim = &client->universe->sim;
    client->lease_token = sim_serial(sim);
    sim_timer(sim, client->actor, at_usec > sim->now_usec ? at_usec - sim->now_usec : 0,
              on_lease_timer, client, client->lease_token);
}

static void on_granted(Universe *u, void *who, uint64_t token, const CallResult *result)
{
    ModelClient *client = who;
    if (token != client->lease_token)
        return;
    if (result->r < 0) {
        set_lease_timer(client, u->sim.now_usec + GRANT_AGAIN_MSEC * USEC_PER_MSEC);
        return;
    }
    client->lease = result->lease;
    set_lease_timer(client, client->sent_usec + client->ttl_usec / 4);
    client->on_lease(u, client->lease_who, LEASE_GRANTED);
}

static void on_renewed(Universe *u, void *who, uint64_t token, const CallResult *result)
{
    ModelClient *client = who;
    if (token != client->lease_token || result->r < 0)
        return; /* too late, or the timer tries again */
    if (result->succeeded) {
        set_lease_timer(client, client->sent_usec + client->ttl_usec / 4);
        client->on_lease(u, client->lease_who, LEASE_RENEWED);
        return;
    }
    client->lease = -1;
    set_lease_timer(client, u->sim.now_usec);
    client->on_lease(u, client->lease_who, LEASE_LOST);
}

static void on_lease_timer(Universe *u, void *who, uint64_t token)
{
    ModelClient *client = who;
    if (token != client->lease_token)
        return;
    bool renews = client->lease >= 0;
    ModelCall *call = call_new(u, renews ? CALL_RENEW : CALL_GRANT);
    call->lease = client->lease;
    client->sent_usec = u->sim.now_usec;
    if (renews) { /* one is outstanding at a time; without an answer the next follows */
        uint64_t wait = MAX(client->ttl_usec / 4, ANSWER_MIN_MSEC * USEC_PER_MSEC);
        set_lease_timer(client, u->sim.now_usec + wait);
    } else {
        client->lease_token = sim_serial(&u->sim);
    }
    send_call(client, call, renews ? on_renewed : on_granted, client, client->lease_token);
}

void client_lease(ModelClient *client, uint64_t ttl_usec, LeaseHandler handler, void *who)
{
    client->ttl_usec = ttl_usec;
    client->on_lease = handler;
    client->lease_who = who;
    client->lease = -1;
    set_lease_timer(client, client->universe->sim.now_usec);
}

/* ---- watches ---- */

static void watch_list(Watch *watch);

static Positions *positions_of(const Watch *watch)
{
    return &watch->client->universe->etcd.changes_of[watch->kind];
}

static size_t history_length(const Watch *watch)
{
    const ModelEtcd *etcd = &watch->client->universe->etcd;
    return watch->kind == KEY_KINDS ? etcd->n_history : positions_of(watch)->n;
}

static size_t history_index(const Watch *watch, size_t position)
{
    return watch->kind == KEY_KINDS ? position : (size_t)positions_of(watch)->at[position];
}

static ModelKnown *known_of(Watch *watch, int key)
{
    size_t at =
        (size_t)(watch->kind == KEY_KINDS ? key : watch->client->universe->etcd.keys[key].ordinal);
    if (at >= watch->n_known) {
        size_t n = MAX(2 * at, (size_t)8);
        watch->known = sim_more(watch->known, n * sizeof(ModelKnown));
        memset(watch->known + watch->n_known, 0, (n - watch->n_known) * sizeof(ModelKnown));
        watch->n_known = n;
    }
    return &watch->known[at];
}

static void hand_over(Watch *watch, const WatchEvent *events, size_t n, bool initial)
{
    for (size_t i = 0; i < n; i++) {
        ModelKnown *known = known_of(watch, events[i].key);
        known->create_revision = events[i].value ? events[i].create_revision : 0;
        known->mod_revision = events[i].value ? events[i].revision : 0;
    }
    watch->handler(watch->client->universe, watch->who, events, n, initial);
}

static void on_list_again(_unused_ Universe *u, void *who, uint64_t token)
{
    Watch *watch = who;
    if (watch->open && token == watch->token)
        watch_list(watch);
}

void watch_cut(Watch *watch)
{
    Sim *sim = &watch->client->universe->sim;
    watch->streaming = watch->waking = false;
    watch->token = sim_serial(sim);
    sim_timer(sim, watch->client->actor, sim_between(sim, 1000, 500000), on_list_again, watch,
              watch->token);
}

/* Everything that the stream has for the client by now, a revision at a time. */
static void stream(Watch *watch)
{
    ModelEtcd *etcd = &watch->client->universe->etcd;
    size_t end = history_length(watch), size = 16;
    WatchEvent *events = sim_more(NULL, size * sizeof(*events));
    while (watch->position < end) {
        size_t n = 0;
        int64_t revision = etcd->history[history_index(watch, watch->position)].revision;
        for (; watch->position < end; watch->position++) {
            const Change *change = &etcd->history[history_index(watch, watch->position)];
            if (change->revision != revision)
                break;
            if (n == size)
                events = sim_more(events, (size *= 2) * sizeof(*events));
            events[n++] = (WatchEvent){.key = change->key,
                                       .revision = change->revision,
                                       .create_revision = change->create_revision,
                                       .value = change->value};
        }
        hand_over(watch, events, n, false);
    }
    free(events);
}

static void on_deliver(Universe *u, void *who, uint64_t token)
{
    Watch *watch = who;
    if (!watch->open || token != watch->token)
        return;
    watch->waking = false;
    if (u->etcd.down || watch->position >= history_length(watch))
        return; /* a new leader wakes it */
    if (watch->client->link.cut_down) {
        if (++watch->blocked > BLOCKED_MAX) {
            watch_cut(watch);
            return;
        }
        watch->waking = true;
        sim_after(&u->sim, watch->client->actor, BLOCKED_MSEC * USEC_PER_MSEC, on_deliver, watch,
                  token);
        return;
    }
    watch->blocked = 0;
    if (history_index(watch, watch->position) < u->etcd.n_compacted) {
        sim_say(&u->sim, "etcd: a watch has been compacted away");
        watch_cut(watch);
        return;
    }
    stream(watch);
}

void watch_wake(Watch *watch)
{
    if (!watch->open || !watch->streaming || watch->waking)
        return;
    watch->waking = true;
    sim_after(&watch->client->universe->sim, watch->client->actor, latency(watch->client),
              on_deliver, watch, watch->token);
}

static int by_revision(const void *a, const void *b)
{
    const WatchEvent *x = a, *y = b;
    if (x->revision != y->revision)
        return x->revision < y->revision ? -1 : 1;
    return x->key < y->key ? -1 : 1;
}

/* The difference between what was delivered and what there is: deletes, made up, also of a key that
 * died and was born again, then puts by revision. As libetcd does it. */
static size_t compare(Watch *watch, const CallResult *result, WatchEvent *events, uint64_t mark)
{
    const ModelEtcd *etcd = &watch->client->universe->etcd;
    size_t n = 0;
    for (size_t i = 0; i < result->n_items; i++) {
        const Item *item = &result->items[i];
        ModelKnown *known = known_of(watch, item->key);
        known->listed = mark;
        if (known->mod_revision && known->create_revision != item->create_revision)
            events[n++] = (WatchEvent){.key = item->key, .revision = item->create_revision - 1};
    }
    for (size_t i = 0; i < watch->n_known; i++)
        if (watch->known[i].mod_revision && watch->known[i].listed != mark) {
            int key = watch->kind == KEY_KINDS ? (int)i : etcd->keys_of[watch->kind].at[i];
            events[n++] = (WatchEvent){.key = key, .revision = result->revision};
        }
    size_t first_put = n;
    for (size_t i = 0; i < result->n_items; i++) {
        const Item *item = &result->items[i];
        if (known_of(watch, item->key)->mod_revision != item->mod_revision)
            events[n++] = (WatchEvent){.key = item->key,
                                       .revision = item->mod_revision,
                                       .create_revision = item->create_revision,
                                       .value = item->value};
    }
    qsort(events + first_put, n - first_put, sizeof(*events), by_revision);
    return n;
}

static void on_listed(Universe *u, void *who, uint64_t token, const CallResult *result)
{
    Watch *watch = who;
    if (!watch->open || token != watch->token)
        return;
    if (result->r < 0) {
        watch_cut(watch);
        return;
    }
    /* what came after the list is what the stream begins with */
    size_t end = history_length(watch);
    while (end > 0 && u->etcd.history[history_index(watch, end - 1)].revision > result->revision)
        end--;
    watch->position = end;
    size_t most = 2 * result->n_items + watch->n_known;
    WatchEvent *events = sim_more(NULL, MAX(most, (size_t)1) * sizeof(*events));
    size_t n = compare(watch, result, events, token);
    bool initial = !watch->initial_done;
    watch->initial_done = watch->streaming = true;
    watch->n_lists++;
    watch->list_revision = result->revision;
    hand_over(watch, events, n, initial);
    free(events);
    if (watch->position < history_length(watch))
        watch_wake(watch);
}

bool client_watch_knows(Watch *watch, int key) { return known_of(watch, key)->mod_revision != 0; }

static void watch_list(Watch *watch)
{
    watch->streaming = watch->waking = false;
    watch->blocked = 0;
    watch->token = sim_serial(&watch->client->universe->sim);
    client_list(watch->client, watch->kind, on_listed, watch, watch->token);
}

void client_watch(ModelClient *client, int kind, WatchHandler handler, void *who)
{
    ModelEtcd *etcd = &client->universe->etcd;
    assert(client->n_watches < CLIENT_WATCHES_MAX);
    Watch *watch = &client->watches[client->n_watches++];
    *watch = (Watch){.client = client, .kind = kind, .handler = handler, .who = who, .open = true};
    size_t n = etcd->n_watches[kind]++;
    if ((n & (n - 1)) == 0)
        etcd->watches[kind] =
            sim_more(etcd->watches[kind], MAX(2 * n, (size_t)2) * sizeof(Watch *));
    etcd->watches[kind][n] = watch;
    watch_list(watch);
}

static void watch_close(Watch *watch)
{
    ModelEtcd *etcd = &watch->client->universe->etcd;
    size_t kept = 0;
    for (size_t i = 0; i < etcd->n_watches[watch->kind]; i++)
        if (etcd->watches[watch->kind][i] != watch)
            etcd->watches[watch->kind][kept++] = etcd->watches[watch->kind][i];
    etcd->n_watches[watch->kind] = kept;
    watch->open = false;
    free(watch->known);
    watch->known = NULL;
}

/* ---- life ---- */

void client_init(ModelClient *client, Universe *u, Actor *actor)
{
    Link link = client->link; /* the network outlives the process */
    *client = (ModelClient){.universe = u, .actor = actor, .link = link, .lease = -1};
}

void client_close(ModelClient *client)
{
    for (size_t i = 0; i < client->n_watches; i++)
        watch_close(&client->watches[i]);
    client->n_watches = 0;
    client->lease = -1;
    client->lease_token = 0;
}

void client_clear(ModelClient *client)
{
    if (client->universe)
        client_close(client);
}
