/* SPDX-License-Identifier: Apache-2.0 */
/* testing-server.c - see testing-server.h. */
#include "tests/sim/seams/test/testing-server.h"
#include "base/memory.h"
#include "etcd.pb-c.h"

#include <string.h>
#include <sys/queue.h>

enum { KEYS = 16, LEASES = 16 };

typedef struct Key {
    char *key, *value;
    int64_t create_revision, mod_revision, version, lease;
} Key;

typedef struct Lease {
    int64_t id, ttl_sec;
    uint64_t until_usec;
} Lease;

typedef struct ServerCall {
    LIST_ENTRY(ServerCall) list;
    WireCall *call;
    size_t member;
    const char *path;
    ProtobufCMessage *request; /* the request that is not served yet */
    bool watching;
    char *from, *to;
} ServerCall;

static struct {
    uint64_t now_usec;
    bool stopped[TESTING_MEMBERS];
    LIST_HEAD(, ServerCall) calls;
    Key keys[KEYS];
    Lease leases[LEASES];
    const char *held; /* the method whose requests are held */
    bool garble;
    size_t n_keys, n_leases, n_writes, last;
    int64_t revision;
} server;

/* ---- messages ---- */

static ProtobufCMessage *copy(const ProtobufCMessage *message)
{
    size_t n = protobuf_c_message_get_packed_size(message);
    _cleanup_free_ uint8_t *bytes = memory_zeroed(n + 1, 1);
    (void)protobuf_c_message_pack(message, bytes); /* the return value is n */
    return message_unpack(message->descriptor, bytes, n);
}

static void answer(ServerCall *call, const ProtobufCMessage *message)
{
    network_answer(call->call, server.garble ? NULL : copy(message));
}

static void call_free(ServerCall *call)
{
    LIST_REMOVE(call, list);
    message_free(call->request);
    free(call->from);
    free(call->to);
    free(call);
}

static void finish(ServerCall *call, const ProtobufCMessage *message)
{
    answer(call, message);
    network_end(call->call, WIRE_OK, "");
    call_free(call);
}

static ProtobufCBinaryData bytes(const char *text)
{
    return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)text};
}

static bool within(const char *key, const char *from, const char *to)
{
    return *to ? strcmp(key, from) >= 0 && strcmp(key, to) < 0 : !strcmp(key, from);
}

static char *text_of(ProtobufCBinaryData b)
{
    return memory_bytes(b.data ? b.data : (uint8_t *)"", b.len);
}

static Pb__KeyValue kv_of(const Key *key)
{
    Pb__KeyValue kv = PB__KEY_VALUE__INIT;
    kv.key = bytes(key->key);
    kv.value = bytes(key->value);
    kv.create_revision = key->create_revision;
    kv.mod_revision = key->mod_revision;
    kv.version = key->version;
    kv.lease = key->lease;
    return kv;
}

static Pb__ResponseHeader header_now(void)
{
    Pb__ResponseHeader header = PB__RESPONSE_HEADER__INIT;
    header.cluster_id = 7;
    header.revision = server.revision;
    header.raft_term = 2;
    return header;
}

/* ---- keys ---- */

static Key *find(const char *key)
{
    for (size_t i = 0; i < server.n_keys; i++)
        if (!strcmp(server.keys[i].key, key))
            return &server.keys[i];
    return NULL;
}

static void tell_watches(Pb__KeyValue *kv, Pb__Event__EventType type)
{
    ServerCall *call;
    Pb__ResponseHeader header = header_now();
    Pb__Event event = PB__EVENT__INIT, *events[] = {&event};
    Pb__WatchResponse response = PB__WATCH_RESPONSE__INIT;
    _cleanup_free_ char *key = text_of(kv->key);

    event.type = type;
    event.kv = kv;
    response.header = &header;
    response.n_events = 1;
    response.events = events;
    LIST_FOREACH(call, &server.calls, list)
    if (call->watching && within(key, call->from, call->to))
        answer(call, &response.base);
}

static void put(const Pb__PutRequest *request)
{
    _cleanup_free_ char *name = text_of(request->key);
    Key *key = find(name);
    if (!key) {
        assert(server.n_keys < KEYS);
        key = &server.keys[server.n_keys++];
        *key = (Key){.key = TAKE_PTR(name), .create_revision = server.revision};
    }
    free(key->value);
    key->value = text_of(request->value);
    key->mod_revision = server.revision;
    key->version++;
    key->lease = request->lease;
    Pb__KeyValue kv = kv_of(key);
    tell_watches(&kv, PB__EVENT__EVENT_TYPE__PUT);
}

static void delete (Key *key, bool tell)
{
    Pb__KeyValue kv = PB__KEY_VALUE__INIT;
    kv.key = bytes(key->key);
    kv.mod_revision = server.revision;
    if (tell)
        tell_watches(&kv, PB__EVENT__EVENT_TYPE__DELETE);
    free(key->key);
    free(key->value);
    *key = server.keys[--server.n_keys];
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const Key *)a)->key, ((const Key *)b)->key);
}

static void range(ServerCall *call, const Pb__RangeRequest *request)
{
    Pb__ResponseHeader header = header_now();
    Pb__RangeResponse response = PB__RANGE_RESPONSE__INIT;
    Pb__KeyValue kvs[KEYS], *list[KEYS];
    _cleanup_free_ char *from = text_of(request->key), *to = text_of(request->range_end);

    qsort(server.keys, server.n_keys, sizeof(Key), by_key);
    response.header = &header;
    response.kvs = list;
    for (size_t i = 0; i < server.n_keys; i++) {
        if (!within(server.keys[i].key, from, to))
            continue;
        kvs[response.n_kvs] = kv_of(&server.keys[i]);
        list[response.n_kvs] = &kvs[response.n_kvs];
        response.n_kvs++;
    }
    finish(call, &response.base);
}

static bool holds(const Pb__Compare *compare)
{
    _cleanup_free_ char *name = text_of(compare->key);
    const Key *key = find(name);
    switch (compare->target) {
    case PB__COMPARE__TARGET__CREATE:
        return compare->create_revision == (key ? key->create_revision : 0);
    case PB__COMPARE__TARGET__MOD:
        return compare->mod_revision == (key ? key->mod_revision : 0);
    default:
        return compare->version == (key ? key->version : 0);
    }
}

static bool txn_do(const Pb__TxnRequest *request)
{
    for (size_t i = 0; i < request->n_compare; i++)
        if (!holds(request->compare[i]))
            return false;
    server.revision++;
    server.n_writes++;
    for (size_t i = 0; i < request->n_success; i++) {
        assert(request->success[i]->request_case == PB__REQUEST_OP__REQUEST_PUT);
        put(request->success[i]->put);
    }
    return true;
}

static void txn(ServerCall *call, const Pb__TxnRequest *request)
{
    Pb__TxnResponse response = PB__TXN_RESPONSE__INIT;
    Pb__ResponseOp done = PB__RESPONSE_OP__INIT;
    _cleanup_free_ Pb__ResponseOp **results = memory_zeroed(request->n_success, sizeof(*results));
    for (size_t i = 0; i < request->n_success; i++)
        results[i] = &done;
    response.succeeded = txn_do(request);
    response.n_responses = response.succeeded ? request->n_success : 0;
    response.responses = results;
    Pb__ResponseHeader header = header_now();
    response.header = &header;
    finish(call, &response.base);
}

/* ---- leases ---- */

static Lease *lease_of(int64_t id)
{
    for (size_t i = 0; i < server.n_leases; i++)
        if (server.leases[i].id == id && server.leases[i].until_usec > server.now_usec)
            return &server.leases[i];
    return NULL;
}

static void grant(ServerCall *call, const Pb__LeaseGrantRequest *request)
{
    assert(server.n_leases < LEASES);
    Lease *lease = &server.leases[server.n_leases++];
    *lease = (Lease){.id = (int64_t)server.n_leases + 1000,
                     .ttl_sec = request->ttl,
                     .until_usec = server.now_usec + (uint64_t)request->ttl * USEC_PER_SEC};
    Pb__ResponseHeader header = header_now();
    Pb__LeaseGrantResponse response = PB__LEASE_GRANT_RESPONSE__INIT;
    response.header = &header;
    response.id = lease->id;
    response.ttl = lease->ttl_sec;
    finish(call, &response.base);
}

static void keep_alive(ServerCall *call, const Pb__LeaseKeepAliveRequest *request)
{
    Lease *lease = lease_of(request->id);
    Pb__ResponseHeader header = header_now();
    Pb__LeaseKeepAliveResponse response = PB__LEASE_KEEP_ALIVE_RESPONSE__INIT;
    response.header = &header;
    response.id = request->id;
    response.ttl = lease ? lease->ttl_sec : 0;
    if (lease)
        lease->until_usec = server.now_usec + (uint64_t)lease->ttl_sec * USEC_PER_SEC;
    answer(call, &response.base);
}

static void watch(ServerCall *call, const Pb__WatchRequest *request)
{
    Pb__ResponseHeader header = header_now();
    Pb__WatchResponse response = PB__WATCH_RESPONSE__INIT;
    response.header = &header;
    const Pb__WatchCreateRequest *create = request->create;
    /* the model keeps no history, so it refuses a watch from the past */
    if (request->request_case == PB__WATCH_REQUEST__REQUEST_CREATE &&
        create->start_revision < server.revision) {
        response.canceled = true;
        response.compact_revision = server.revision + 1;
    } else if (request->request_case == PB__WATCH_REQUEST__REQUEST_CREATE) {
        call->from = text_of(create->key);
        call->to = text_of(create->range_end);
        call->watching = true;
        response.created = true;
    }
    answer(call, &response.base);
}

static void serve(ServerCall *call)
{
    _cleanup_free_ char *method = memory_text(strrchr(call->path, '/') + 1);
    ProtobufCMessage *request = TAKE_PTR(call->request);
    server.last = call->member;
    if (!strcmp(method, "Range"))
        range(call, (const Pb__RangeRequest *)request);
    else if (!strcmp(method, "Txn"))
        txn(call, (const Pb__TxnRequest *)request);
    else if (!strcmp(method, "LeaseGrant"))
        grant(call, (const Pb__LeaseGrantRequest *)request);
    else if (!strcmp(method, "LeaseKeepAlive"))
        keep_alive(call, (const Pb__LeaseKeepAliveRequest *)request);
    else if (!strcmp(method, "Watch"))
        watch(call, (const Pb__WatchRequest *)request);
    else
        assert(false);
    message_free(request);
}

/* ---- functions for the network ---- */

static void *server_open(void *userdata _unused_, size_t member, const char *path, bool hasleader,
                         const char *token, WireCall *wire_call)
{
    assert(!server.stopped[member] && hasleader && !token);
    ServerCall *call = memory_new(ServerCall);
    *call = (ServerCall){.call = wire_call, .member = member, .path = path};
    LIST_INSERT_HEAD(&server.calls, call, list);
    return call;
}

static void server_send(void *userdata _unused_, void *server_call, const ProtobufCMessage *request)
{
    ServerCall *call = server_call;
    assert(!call->request); /* each request is served before the next arrives */
    call->request = copy(request);
}

static void server_cancel(void *userdata _unused_, void *server_call)
{
    ServerCall *call = server_call;
    /* a write may still be done after its client has ended */
    if (call->request && !strcmp(call->path, "/etcdserverpb.KV/Txn"))
        (void)txn_do((const Pb__TxnRequest *)call->request);
    call_free(call);
}

static bool server_is_up(void *userdata _unused_, size_t member) { return !server.stopped[member]; }

static void expire(void)
{
    for (size_t i = 0; i < server.n_keys; i++) {
        if (!server.keys[i].lease || lease_of(server.keys[i].lease))
            continue;
        server.revision++;
        delete (&server.keys[i--], true);
    }
}

static void server_advance(void *userdata _unused_, uint64_t now_usec)
{
    ServerCall *call;
    assert(now_usec >= server.now_usec);
    server.now_usec = now_usec;
    expire();
    do {
        LIST_FOREACH(call, &server.calls, list)
        if (call->request && !(server.held && strstr(call->path, server.held)))
            break;
        if (call)
            serve(call);
    } while (call);
}

static uint64_t server_next_usec(void *userdata _unused_)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < server.n_leases; i++)
        if (server.leases[i].until_usec > server.now_usec)
            next = MIN(next, server.leases[i].until_usec);
    return next;
}

NetworkServer testing_server_open(void)
{
    memset(&server, 0, sizeof(server));
    server.revision = 1;
    return (NetworkServer){.open = server_open,
                           .send = server_send,
                           .cancel = server_cancel,
                           .is_up = server_is_up,
                           .advance = server_advance,
                           .next_usec = server_next_usec};
}

void testing_server_close(void)
{
    while (!LIST_EMPTY(&server.calls))
        call_free(LIST_FIRST(&server.calls));
    for (size_t i = 0; i < server.n_keys; i++) {
        free(server.keys[i].key);
        free(server.keys[i].value);
    }
}

void testing_server_stop(size_t member, bool stop) { server.stopped[member] = stop; }

const char *testing_server_value(const char *key)
{
    const Key *found = find(key);
    return found ? found->value : NULL;
}

size_t testing_server_writes(void) { return server.n_writes; }

size_t testing_server_streams(void)
{
    size_t n = 0;
    ServerCall *call;
    LIST_FOREACH(call, &server.calls, list)
    n++;
    return n;
}

void testing_server_hold(const char *method)
{
    server.held = method;
    network_server_changed();
}

void testing_server_garble(bool garble) { server.garble = garble; }

size_t testing_server_last(void) { return server.last; }

void testing_server_delete(const char *key, bool tell)
{
    server.revision++;
    delete (find(key), tell);
}

void testing_server_cancel_watches(void)
{
    ServerCall *call;
    Pb__WatchResponse response = PB__WATCH_RESPONSE__INIT;
    response.canceled = true;
    response.compact_revision = server.revision;
    LIST_FOREACH(call, &server.calls, list)
    if (call->watching)
        answer(call, &response.base);
}
