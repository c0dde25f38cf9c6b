/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-server-model.c - tests behaviour of the model that a real etcd cannot show quickly or
 * at will: leases that expire, leaders that change, members that are cut off, frozen or late,
 * answers in fragments, a restored store. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/memory.h"
#include "tests/sim/server/server.h"

#include <string.h>

enum { CLIENTS_MAX = 16, MESSAGES_MAX = 64 };

/* One call and its answers so far. */
typedef struct Client {
    ServerCall *call;
    ProtobufCMessage *messages[MESSAGES_MAX];
    size_t n;
    bool ended;
    int code;
    char text[160];
} Client;

typedef struct World {
    Server *server;
    uint64_t now_usec, draw;
    int64_t committed;
    size_t n_changes;
    char last_key[32];
    Client clients[CLIENTS_MAX];
    size_t n_clients;
} World;

static uint64_t draw_constant(void *userdata) { return ((World *)userdata)->draw; }

static void on_commit(int64_t revision, const ServerChange *changes, size_t n, void *userdata)
{
    World *world = userdata;
    assert_int_equal(revision, world->committed + 1);
    world->committed = revision;
    world->n_changes = n;
    (void)snprintf(world->last_key, sizeof(world->last_key), "%s", changes[n - 1].key);
}

static void on_message(ServerCall *call _unused_, ProtobufCMessage *message, void *userdata)
{
    Client *client = userdata;
    assert_true(client->n < MESSAGES_MAX && !client->ended);
    client->messages[client->n++] = message;
}

static void on_ended(ServerCall *call, ServerCode code, const char *text, void *userdata)
{
    Client *client = userdata;
    assert_true(call == client->call && !client->ended);
    client->ended = true;
    client->call = NULL;
    client->code = (int)code;
    (void)snprintf(client->text, sizeof(client->text), "%s", text);
}

static const ServerEvents events = {.message = on_message, .ended = on_ended};

static World *world_new(size_t n_members)
{
    World *world = memory_new(World);
    ServerOptions options = {.n_members = n_members,
                             .cluster_id = 7,
                             .draw = draw_constant,
                             .on_commit = on_commit,
                             .userdata = world};

    world->committed = 1;
    assert_int_equal(server_new(&options, &world->server), 0);
    return world;
}

static World *world_free(World *world)
{
    for (size_t i = 0; i < world->n_clients; i++)
        for (size_t j = 0; j < world->clients[i].n; j++)
            protobuf_c_message_free_unpacked(world->clients[i].messages[j], NULL);
    (void)server_free(world->server);
    free(world);
    return NULL;
}
DEFINE_CLEANUP(World, world_free)

/* Advances from one due time to the next, as a simulator does. */
static void pass_msec(World *world, uint64_t msec)
{
    uint64_t until = world->now_usec + msec * USEC_PER_MSEC;

    for (uint64_t next; (next = server_next_usec(world->server)) <= until;) {
        assert_true(next >= world->now_usec);
        world->now_usec = next;
        server_advance(world->server, next);
    }
    world->now_usec = until;
    server_advance(world->server, until);
}

static Client *client_open(World *world, size_t member, const char *path, bool hasleader,
                           const char *token)
{
    ServerMetadata metadata = {.hasleader = hasleader, .token = token};
    assert_true(world->n_clients < CLIENTS_MAX);
    Client *client = &world->clients[world->n_clients++];
    client->call = server_open(world->server, member, path, &metadata, &events, client);
    return client;
}

static ProtobufCBinaryData bytes(const char *text)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
}

static Client *send_put(World *world, size_t member, const char *key, const char *value,
                        int64_t lease)
{
    Client *client = client_open(world, member, "/etcdserverpb.KV/Txn", false, NULL);
    Pb__TxnRequest request = PB__TXN_REQUEST__INIT;
    Pb__PutRequest put = PB__PUT_REQUEST__INIT;
    Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};

    put.key = bytes(key);
    put.value = bytes(value);
    put.lease = lease;
    op.request_case = PB__REQUEST_OP__REQUEST_PUT;
    op.put = &put;
    request.n_success = 1;
    request.success = ops;
    server_send(client->call, &request.base);
    return client;
}

static Client *send_get(World *world, size_t member, const char *key, bool hasleader)
{
    Client *client = client_open(world, member, "/etcdserverpb.KV/Range", hasleader, NULL);
    Pb__RangeRequest request = PB__RANGE_REQUEST__INIT;

    request.key = bytes(key);
    server_send(client->call, &request.base);
    return client;
}

static Client *send_grant(World *world, size_t member, int64_t ttl_sec)
{
    Client *client = client_open(world, member, "/etcdserverpb.Lease/LeaseGrant", false, NULL);
    Pb__LeaseGrantRequest request = PB__LEASE_GRANT_REQUEST__INIT;

    request.ttl = ttl_sec;
    server_send(client->call, &request.base);
    return client;
}

static Client *keep_alive_open(World *world, size_t member)
{
    return client_open(world, member, "/etcdserverpb.Lease/LeaseKeepAlive", true, NULL);
}

static void keep_alive(Client *client, int64_t lease)
{
    Pb__LeaseKeepAliveRequest request = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
    request.id = lease;
    server_send(client->call, &request.base);
}

static Client *send_watch(World *world, size_t member, const char *key, int64_t from, bool fragment)
{
    Client *client = client_open(world, member, "/etcdserverpb.Watch/Watch", true, NULL);
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;

    create.key = bytes(key);
    create.range_end = (ProtobufCBinaryData){.data = (uint8_t *)"\0", .len = 1};
    create.start_revision = from;
    create.fragment = fragment;
    request.request_case = PB__WATCH_REQUEST__REQUEST_CREATE;
    request.create = &create;
    server_send(client->call, &request.base);
    return client;
}

static void expect_end(const Client *client, int code, const char *text)
{
    assert_true(client->ended);
    assert_string_equal(client->text, text);
    assert_int_equal(client->code, code);
}

static void put_now(World *world, const char *key, const char *value)
{
    Client *client = send_put(world, server_leader(world->server), key, value, 0);
    pass_msec(world, 0);
    expect_end(client, SERVER_OK, "");
    protobuf_c_message_free_unpacked(client->messages[0], NULL);
    world->n_clients--; /* the client was the last one in the array, so its place is free again */
    *client = (Client){0};
}

static int64_t grant_now(World *world, int64_t ttl_sec)
{
    Client *client = send_grant(world, server_leader(world->server), ttl_sec);
    pass_msec(world, 0);
    expect_end(client, SERVER_OK, "");
    return ((Pb__LeaseGrantResponse *)client->messages[0])->id;
}

static int64_t renewed_ttl(const Client *client, size_t i)
{
    assert_true(i < client->n);
    return ((const Pb__LeaseKeepAliveResponse *)client->messages[i])->ttl;
}

static const Pb__WatchResponse *watched(const Client *client, size_t i)
{
    assert_true(i < client->n);
    return (const Pb__WatchResponse *)client->messages[i];
}

/* ---- leases ---- */

static void a_lease_takes_its_keys_in_one_revision(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    int64_t lease = grant_now(world, 10);
    (void)send_put(world, 1, "b", "1", lease);
    (void)send_put(world, 0, "a", "1", lease);
    (void)send_put(world, 0, "c", "1", lease);
    (void)send_put(world, 0, "c", "of nobody", 0); /* detaches the key from the lease */
    Client *watch = send_watch(world, 2, "a", 0, false);
    pass_msec(world, 9999);
    assert_int_equal(server_revision(world->server), 5);
    pass_msec(world, 1);
    assert_int_equal(server_revision(world->server), 6);
    assert_int_equal(world->n_changes, 2);
    assert_string_equal(world->last_key, "b");
    assert_int_equal(watch->n, 2); /* "created", and both deletes in one answer */
    assert_int_equal(watched(watch, 1)->n_events, 2);
    assert_int_equal(watched(watch, 1)->events[0]->type, PB__EVENT__EVENT_TYPE__DELETE);
    assert_string_equal((char *)watched(watch, 1)->events[0]->kv->key.data, "a");
}

static void a_renewal_counts_from_when_it_came(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    world->draw = 499999; /* makes the model check for expired leases as late as possible */
    int64_t lease = grant_now(world, 10);
    (void)send_put(world, 0, "a", "1", lease);
    Client *stream = keep_alive_open(world, 1);
    pass_msec(world, 6000);
    keep_alive(stream, lease);
    pass_msec(world, 9999);
    assert_int_equal(renewed_ttl(stream, 0), 10);
    assert_int_equal(server_revision(world->server), 2);
    pass_msec(world, 1);
    keep_alive(stream, lease); /* the lease has expired, but the model has not checked yet */
    pass_msec(world, 0);
    assert_int_equal(renewed_ttl(stream, 1), 0);
    assert_int_equal(server_revision(world->server), 3);
    assert_int_equal(((Pb__LeaseKeepAliveResponse *)stream->messages[1])->header->revision, 2);
}

static void a_new_leader_gives_leases_their_time_again(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    int64_t lease = grant_now(world, 10);
    (void)send_put(world, 0, "a", "1", lease);
    pass_msec(world, 9000);
    uint64_t term = server_term(world->server);
    server_elect(world->server, 2);
    assert_int_equal(server_term(world->server), term + 1);
    assert_int_equal(server_leader(world->server), 2);
    pass_msec(world, 10999); /* the lease expires at 11 s: its TTL and an election timeout */
    assert_int_equal(server_revision(world->server), 2);
    pass_msec(world, 1);
    assert_int_equal(server_revision(world->server), 3);
}

static void no_lease_runs_out_without_a_quorum(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    int64_t lease = grant_now(world, 2);
    (void)send_put(world, 0, "a", "1", lease);
    pass_msec(world, 0);
    server_stop(world->server, 1);
    server_stop(world->server, 2);
    pass_msec(world, 60000);
    assert_int_equal(server_revision(world->server), 2);
    assert_true(server_leader(world->server) == SIZE_MAX);
    server_start(world->server, 1);
    pass_msec(world, 3999); /* the lease expires at 4 s: two election timeouts and its TTL */
    assert_int_equal(server_revision(world->server), 2);
    pass_msec(world, 1);
    assert_int_equal(server_revision(world->server), 3);
}

static void a_leader_whose_disk_hangs_renews_what_is_gone(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    size_t old = server_leader(world->server);
    uint64_t term = server_term(world->server);
    int64_t lease = grant_now(world, 10);
    (void)send_put(world, 0, "a", "1", lease);
    Client *stream = keep_alive_open(world, old);
    pass_msec(world, 0);
    server_stop_disk(world->server, old);
    for (int i = 0; i < 6; i++) {
        pass_msec(world, 3000);
        keep_alive(stream, lease);
    }
    Client *witness = send_get(world, old, "a", true);
    pass_msec(world, 0);
    /* the other members have let the lease expire */
    assert_int_equal(server_revision(world->server), 3);
    assert_true(server_leader(world->server) != old && server_term(world->server) > term);
    assert_int_equal(renewed_ttl(stream, 5), 10);
    assert_int_equal(((Pb__LeaseKeepAliveResponse *)stream->messages[5])->header->raft_term, term);
    /* a leader whose disk hangs answers no read, so libetcd requests a read as a witness of each
     * renewal */
    assert_false(witness->ended);
    server_start_disk(world->server, old);
    keep_alive(stream, lease);
    pass_msec(world, 0);
    assert_int_equal(renewed_ttl(stream, 6), 0);
    expect_end(witness, SERVER_UNAVAILABLE, "etcdserver: leader changed");
}

/* ---- members ---- */

static void a_member_without_leader_says_so_to_those_who_ask(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    size_t alone = (server_leader(world->server) + 1) % 3;
    Client *watch = send_watch(world, alone, "a", 0, false);
    server_isolate(world->server, alone);
    /* the member does not know yet that it is cut off */
    Client *early = send_get(world, alone, "a", true);
    pass_msec(world, 1000);
    Client *late = send_get(world, alone, "a", true);
    Client *status = client_open(world, alone, "/etcdserverpb.Maintenance/Status", false, NULL);
    server_send(status->call, &((Pb__StatusRequest)PB__STATUS_REQUEST__INIT).base);
    pass_msec(world, 0);
    expect_end(late, SERVER_UNAVAILABLE, "etcdserver: no leader");
    assert_false(early->ended || watch->ended);
    expect_end(status, SERVER_OK, "");
    assert_string_equal(((Pb__StatusResponse *)status->messages[0])->errors[0],
                        "etcdserver: no leader");
    pass_msec(world, 3000);
    expect_end(watch, SERVER_UNAVAILABLE, "etcdserver: no leader");
    put_now(world, "a", "1"); /* the other members continue */
    Client *patient = send_get(world, alone, "a", false);
    pass_msec(world, 3000);
    expect_end(early, SERVER_UNAVAILABLE, "etcdserver: request timed out");
    server_join(world->server, alone);
    pass_msec(world, 2000);
    expect_end(patient, SERVER_UNAVAILABLE, "etcdserver: leader changed");
    assert_true(server_leader(world->server) != SIZE_MAX);
}

static void a_write_without_quorum_is_done_later_or_never(void **state)
{
    (void)state;
    for (uint64_t lost = 0; lost < 2; lost++) {
        _cleanup_(world_freep) World *world = world_new(3);
        size_t leader = server_leader(world->server);
        world->draw = lost;
        server_stop(world->server, (leader + 1) % 3);
        server_stop(world->server, (leader + 2) % 3);
        Client *put = send_put(world, leader, "a", "1", 0),
               *gone = send_put(world, leader, "b", "1", 0);
        gone->call = server_cancel(gone->call); /* the call's request may still be carried out */
        pass_msec(world, 500);
        server_start(world->server, (leader + 1) % 3);
        /* the leader stays the same, because it was out of contact only briefly */
        pass_msec(world, 100);
        expect_end(put, SERVER_OK, "");
        assert_int_equal(server_revision(world->server), 3);

        server_stop(world->server, (leader + 1) % 3);
        put = send_put(world, leader, "c", "1", 0);
        pass_msec(world, 1500);
        server_start(world->server, (leader + 1) % 3);
        pass_msec(world, 2000);
        assert_int_equal(server_revision(world->server), lost ? 3 : 4);
        assert_int_equal(put->ended, !lost);
        pass_msec(world, 4000);
        expect_end(put, lost ? SERVER_UNAVAILABLE : SERVER_OK,
                   lost ? "etcdserver: request timed out, possibly due to previous leader failure"
                        : "");
    }
}

static void a_frozen_member_answers_when_it_thaws(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    size_t leader = server_leader(world->server), cold = (leader + 1) % 3;
    Client *watch = send_watch(world, cold, "a", 0, false);
    pass_msec(world, 0);
    server_freeze(world->server, cold);
    Client *get = send_get(world, cold, "a", true), *put = send_put(world, cold, "b", "1", 0);
    put_now(world, "a", "1");
    put_now(world, "a", "2");
    pass_msec(world, 20000);
    assert_int_equal(watch->n, 1);
    assert_false(get->ended || put->ended);
    server_thaw(world->server, cold);
    pass_msec(world, 0);
    expect_end(get, SERVER_OK, "");
    expect_end(put, SERVER_OK, "");
    assert_int_equal(((Pb__RangeResponse *)get->messages[0])->kvs[0]->version, 2);
    assert_int_equal(watch->n, 3); /* "created", the missed changes in one answer, then the put */
    assert_int_equal(watched(watch, 1)->n_events, 2);
}

static void a_member_that_lags_shows_it(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    size_t leader = server_leader(world->server), slow = (leader + 1) % 3;
    server_lag(world->server, slow, 700 * USEC_PER_MSEC);
    Client *watch = send_watch(world, slow, "a", 0, false);
    Client *put = send_put(world, slow, "a", "1", 0), *get = send_get(world, slow, "a", false);
    pass_msec(world, 699);
    assert_int_equal(server_revision(world->server), 2); /* the write is done */
    assert_false(put->ended || get->ended);
    assert_int_equal(watch->n, 1);
    pass_msec(world, 1);
    expect_end(put, SERVER_OK, "");
    expect_end(get, SERVER_OK, "");
    assert_int_equal(((Pb__RangeResponse *)get->messages[0])->n_kvs, 1);
    assert_int_equal(watch->n, 2);
    server_lag(world->server, slow, 0);
    put_now(world, "a", "2");
    assert_int_equal(watch->n, 3);
}

/* A member applies the log in order: first the revisions that it lags behind, then the
 * compaction. */
static void a_member_that_lags_applies_before_it_compacts(void **state)
{
    (void)state;
    const char *text;
    _cleanup_(world_freep) World *world = world_new(1);
    send_put(world, 0, "a", "1", grant_now(world, 2));
    Client *watch = send_watch(world, 0, "a", 0, false);
    pass_msec(world, 1000);
    const int64_t before = server_revision(world->server);
    server_lag(world->server, 0, 700 * USEC_PER_MSEC);
    pass_msec(world, 1500); /* the lease has expired, but the member does not show it yet */
    assert_int_equal(server_revision(world->server), before + 1);
    assert_int_equal(watch->n, 1);
    assert_int_equal(server_compact(world->server, before + 1, &text), SERVER_OK);
    pass_msec(world, 700);
    assert_int_equal(watch->n, 2);
    assert_int_equal(watched(watch, 1)->events[0]->type, PB__EVENT__EVENT_TYPE__DELETE);
}

/* A returning member cancels a watch if the watch has not shown a delete that was compacted. The
 * watch's client must list the keys again. */
static void a_member_that_comes_back_tells_no_half_revision(void **state)
{
    (void)state;
    const char *text;
    _cleanup_(world_freep) World *world = world_new(3);
    const size_t away = (server_leader(world->server) + 1) % 3;
    send_put(world, away, "a", "1", grant_now(world, 2));
    Client *watch = send_watch(world, away, "a", 0, false);
    pass_msec(world, 1000);
    server_isolate(world->server, away);
    pass_msec(world, 1500);
    assert_int_equal(server_compact(world->server, server_revision(world->server), &text),
                     SERVER_OK);
    server_join(world->server, away);
    pass_msec(world, 500);
    assert_int_equal(watch->n, 2);
    assert_true(watched(watch, 1)->canceled);
}

static void a_member_that_stops_ends_its_calls(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(1);
    Client *watch = send_watch(world, 0, "a", 0, false);
    pass_msec(world, 0);
    uint64_t term = server_term(world->server);
    server_stop(world->server, 0);
    assert_false(server_is_up(world->server, 0));
    pass_msec(world, 0);
    expect_end(watch, SERVER_UNAVAILABLE, "Socket closed");
    server_start(world->server, 0);
    Client *put = send_put(world, 0, "a", "1", 0);
    pass_msec(world, 1000);
    expect_end(put, SERVER_OK, "");
    assert_int_equal(server_term(world->server), term + 1);
}

/* ---- watches ---- */

static void a_large_answer_comes_in_fragments(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(1);
    char *value = memory_zeroed((900 << 10) + 1, 1);
    memset(value, 'x', 900 << 10);
    for (int i = 0; i < 5; i++)
        put_now(world, "a", value);
    free(value);
    Client *whole = send_watch(world, 0, "a", 2, false),
           *parts = send_watch(world, 0, "a", 2, true);
    pass_msec(world, 100);
    assert_int_equal(whole->n, 2);
    assert_int_equal(watched(whole, 1)->n_events, 5);
    /* "created", then fragments of two, two and one events: etcd's limit is 2 MiB */
    assert_int_equal(parts->n, 4);
    assert_int_equal(watched(parts, 1)->n_events, 2);
    assert_true(watched(parts, 1)->fragment && watched(parts, 2)->fragment);
    assert_int_equal(watched(parts, 3)->n_events, 1);
    assert_false(watched(parts, 3)->fragment);
}

static void what_is_compacted_ends_a_watch(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(1);
    const char *text;
    for (int i = 0; i < 4; i++)
        put_now(world, "a", "1");
    assert_int_equal(server_compact(world->server, 4, &text), SERVER_OK);
    assert_int_equal(server_compact(world->server, 4, &text), SERVER_OUT_OF_RANGE);
    Client *early = send_watch(world, 0, "a", 3, false),
           *just = send_watch(world, 0, "a", 4, false);
    pass_msec(world, 100);
    assert_true(watched(early, 1)->canceled);
    assert_int_equal(watched(early, 1)->compact_revision, 4);
    assert_int_equal(watched(just, 1)->n_events, 2);
}

static void progress_tells_the_revision(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(1);
    Client *watch = send_watch(world, 0, "b", 0, false);
    Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
    Pb__WatchProgressRequest progress = PB__WATCH_PROGRESS_REQUEST__INIT;
    put_now(world, "a", "1");
    request.request_case = PB__WATCH_REQUEST__REQUEST_PROGRESS;
    request.progress = &progress;
    server_send(watch->call, &request.base);
    pass_msec(world, 0);
    assert_int_equal(watched(watch, 1)->watch_id, -1);
    assert_int_equal(watched(watch, 1)->header->revision, 2);
}

/* ---- the store ---- */

static void a_snapshot_brings_the_old_store_back(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    int64_t lease = grant_now(world, 10);
    (void)send_put(world, 0, "a", "old", lease);
    pass_msec(world, 0);
    ServerSnapshot *snapshot = server_snapshot(world->server);
    put_now(world, "a", "new");
    Client *watch = send_watch(world, 0, "a", 0, false);
    pass_msec(world, 0);
    server_restore(world->server, snapshot, 8);
    (void)server_snapshot_free(snapshot);
    world->committed = server_revision(world->server);
    Client *get = send_get(world, 0, "a", false);
    pass_msec(world, 0);
    expect_end(watch, SERVER_UNAVAILABLE, "Socket closed");
    const Pb__RangeResponse *answer = (Pb__RangeResponse *)get->messages[0];
    assert_string_equal((char *)answer->kvs[0]->value.data, "old");
    assert_int_equal(answer->header->revision, 2);
    assert_int_equal(answer->header->cluster_id, 8);
    pass_msec(world, 11000); /* the restored lease has its whole TTL again */
    assert_int_equal(server_revision(world->server), 3);
}

static void tokens_are_forgotten(void **state)
{
    (void)state;
    _cleanup_(world_freep) World *world = world_new(3);
    server_add_user(world->server, "root", "secret");
    server_enable_auth(world->server, true);
    Client *login = client_open(world, 0, "/etcdserverpb.Auth/Authenticate", false, NULL);
    Pb__AuthenticateRequest request = PB__AUTHENTICATE_REQUEST__INIT;
    Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;
    request.name = "root";
    request.password = "secret";
    range.key = bytes("a");
    server_send(login->call, &request.base);
    pass_msec(world, 0);
    const char *token = ((Pb__AuthenticateResponse *)login->messages[0])->token;
    server_stop(world->server, 2);
    server_start(world->server, 2);
    static const int wait_sec[] = {200, 200, 301};
    /* a token stays valid on a member where it is used */
    for (size_t i = 0; i < ELEMENTSOF(wait_sec); i++) {
        pass_msec(world, (uint64_t)wait_sec[i] * 1000);
        for (size_t member = 0; member < 3; member++) {
            Client *get = client_open(world, member, "/etcdserverpb.KV/Range", false, token);
            server_send(get->call, &range.base);
            pass_msec(world, 0);
            if (i == 2 || member == 2)
                expect_end(get, SERVER_UNAUTHENTICATED, "etcdserver: invalid auth token");
            else
                expect_end(get, SERVER_OK, "");
        }
    }
}

/* A write takes no longer with many keys and watches, because it does not walk over all of them. */
static void many_keys_and_watches_are_cheap(void **state)
{
    (void)state;
    enum { KEYS = 20000 };
    _cleanup_(world_freep) World *world = world_new(3);
    ServerCall **calls = memory_zeroed(KEYS, sizeof(*calls));
    Client *sink = &world->clients[world->n_clients++];
    char key[32];
    for (int i = 0; i < KEYS; i++) {
        Pb__WatchRequest request = PB__WATCH_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        (void)snprintf(key, sizeof(key), "nodes/%05d", i);
        create.key = bytes(key);
        request.request_case = PB__WATCH_REQUEST__REQUEST_CREATE;
        request.create = &create;
        calls[i] = server_open(world->server, 0, "/etcdserverpb.Watch/Watch", NULL, &events, sink);
        server_send(calls[i], &request.base);
        pass_msec(world, 0);
        protobuf_c_message_free_unpacked(sink->messages[--sink->n], NULL);
    }
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(key, sizeof(key), "nodes/%05d", i);
        put_now(world, key, "alive");
        assert_int_equal(sink->n, 1);
        assert_string_equal((char *)watched(sink, 0)->events[0]->kv->key.data, key);
        protobuf_c_message_free_unpacked(sink->messages[--sink->n], NULL);
    }
    for (int i = 0; i < KEYS; i++)
        (void)server_cancel(calls[i]);
    free(calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_takes_its_keys_in_one_revision),
        cmocka_unit_test(a_renewal_counts_from_when_it_came),
        cmocka_unit_test(a_new_leader_gives_leases_their_time_again),
        cmocka_unit_test(no_lease_runs_out_without_a_quorum),
        cmocka_unit_test(a_leader_whose_disk_hangs_renews_what_is_gone),
        cmocka_unit_test(a_member_without_leader_says_so_to_those_who_ask),
        cmocka_unit_test(a_write_without_quorum_is_done_later_or_never),
        cmocka_unit_test(a_frozen_member_answers_when_it_thaws),
        cmocka_unit_test(a_member_that_lags_shows_it),
        cmocka_unit_test(a_member_that_lags_applies_before_it_compacts),
        cmocka_unit_test(a_member_that_comes_back_tells_no_half_revision),
        cmocka_unit_test(a_member_that_stops_ends_its_calls),
        cmocka_unit_test(a_large_answer_comes_in_fragments),
        cmocka_unit_test(what_is_compacted_ends_a_watch),
        cmocka_unit_test(progress_tells_the_revision),
        cmocka_unit_test(a_snapshot_brings_the_old_store_back),
        cmocka_unit_test(tokens_are_forgotten),
        cmocka_unit_test(many_keys_and_watches_are_cheap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
