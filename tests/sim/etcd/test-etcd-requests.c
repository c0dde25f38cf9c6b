/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-requests.c - what libetcd asks for, field by field, and what it tells of the answers. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"

#include <string.h>

static sd_event *event;
static Etcd *etcd;
static EtcdLease *lease;
static EtcdWatch *watch;
static EtcdElection *election;

static int set_up(_unused_ void **state)
{
    const EtcdOptions options = {.endpoints = answers_endpoints, .timeout_usec = 5 * USEC_PER_SEC};
    answers_open(&event);
    assert_int_equal(etcd_new(event, &options, &etcd, NULL), 0);
    return 0;
}

static int tear_down(_unused_ void **state)
{
    election = etcd_election_free(election);
    lease = etcd_lease_free(lease);
    watch = etcd_watch_free(watch);
    etcd = etcd_free(etcd);
    answers_close(event);
    return 0;
}

static void assert_bytes(ProtobufCBinaryData bytes, const char *wanted, size_t n)
{
    assert_int_equal(bytes.len, n);
    assert_memory_equal(n ? (const char *)bytes.data : "", wanted, n);
}
#define ASSERT_BYTES(bytes, wanted) assert_bytes(bytes, wanted, sizeof(wanted) - 1)

/* ---- reads ---- */

typedef struct SeenRange {
    bool came;
    int r;
    size_t n;
    int64_t revision;
    char keys[8][16];
    EtcdKeyValue first;
} SeenRange;

static void on_range(int r, _unused_ const Error *err, const EtcdRange *range, void *userdata)
{
    SeenRange *seen = userdata;
    assert_false(seen->came);
    *seen = (SeenRange){.came = true, .r = r};
    if (r < 0)
        return;
    seen->n = range->n_kvs;
    seen->revision = range->revision;
    if (range->n_kvs > 0)
        seen->first = range->kvs[0];
    for (size_t i = 0; i < range->n_kvs; i++)
        (void)snprintf(seen->keys[i], sizeof(seen->keys[i]), "%s", range->kvs[i].key);
}

static Pb__RangeRequest *range_request(void)
{
    return (Pb__RangeRequest *)await_asked("Range")->request;
}

static void one_key_is_asked_for(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get(etcd, "", false, on_range, &seen, NULL), -EINVAL);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &seen, NULL), 0);
    ASSERT_BYTES(range_request()->key, "/p/a");
    ASSERT_BYTES(range_request()->range_end, "");
    assert_int_equal(range_request()->limit, 0);
    assert_int_equal(range_request()->revision, 0);
    assert_false(range_request()->count_only);
    reply_range(await_asked("Range"), 5, 2);
    assert_true(seen.came && seen.r == 0 && seen.n == 0);
    assert_int_equal(seen.revision, 5);
}

static void one_key_is_asked_for_as_it_was(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get_at(etcd, "/p/a", 3, on_range, &seen, NULL), 0);
    ASSERT_BYTES(range_request()->key, "/p/a");
    ASSERT_BYTES(range_request()->range_end, "");
    assert_int_equal(range_request()->revision, 3);
    refuse(await_asked("Range"), WIRE_OUT_OF_RANGE,
           "etcdserver: mvcc: required revision has been compacted");
    assert_int_equal(seen.r, -ESTALE); /* and is not asked for at another moment */
    assert_false(is_asked("Range"));
}

static void a_prefix_ends_behind_its_last_key(_unused_ void **state)
{
    static const struct {
        const char *prefix, *end;
        size_t n;
    } all[] = {{"/p/", "/p0", 3}, {"a\xff", "b", 1}, {"\xff\xff", "\0", 1}, {"", "\0", 1}};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        SeenRange seen = {0};
        assert_int_equal(etcd_get(etcd, all[i].prefix, true, on_range, &seen, NULL), 0);
        if (*all[i].prefix)
            assert_bytes(range_request()->key, all[i].prefix, strlen(all[i].prefix));
        else
            assert_bytes(range_request()->key, "\0", 1);
        assert_bytes(range_request()->range_end, all[i].end, all[i].n);
        assert_int_equal(range_request()->limit, 512);
        reply_range(await_asked("Range"), 5, 2);
        assert_int_equal(seen.r, 0);
    }
}

static void reply_page(int64_t revision, bool more, const char *a, const char *b)
{
    Pb__ResponseHeader header = header_of(revision, 2);
    Pb__KeyValue of[2], *kvs[2] = {&of[0], &of[1]};
    Pb__RangeResponse page = PB__RANGE_RESPONSE__INIT;
    const char *keys[] = {a, b};
    for (size_t i = 0; i < 2 && keys[i]; i++, page.n_kvs++) {
        of[i] = (Pb__KeyValue)PB__KEY_VALUE__INIT;
        of[i].key = (ProtobufCBinaryData){.data = (uint8_t *)keys[i], .len = strlen(keys[i])};
        of[i].value = (ProtobufCBinaryData){.data = (uint8_t *)"v", .len = 1};
        of[i].create_revision = 2;
        of[i].mod_revision = 3;
        of[i].version = 4;
        of[i].lease = 77;
    }
    page.header = &header;
    page.more = more;
    page.kvs = kvs;
    reply(await_asked("Range"), &page.base);
}

/* They are of one revision, though later ones have later headers; a page that is too large is asked for in halves. */
static void pages_follow_each_other(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &seen, NULL), 0);
    reply_page(5, true, "/p/a", "/p/b");
    assert_bytes(range_request()->key, "/p/b\0", 5);
    ASSERT_BYTES(range_request()->range_end, "/p0");
    assert_int_equal(range_request()->revision, 5);
    refuse(await_asked("Range"), WIRE_RESOURCE_EXHAUSTED,
           "Received message larger than max (5 vs. 4)");
    assert_bytes(range_request()->key, "/p/b\0", 5);
    assert_int_equal(range_request()->limit, 256);
    reply_page(6, true, "/p/c", NULL);
    assert_bytes(range_request()->key, "/p/c\0", 5);
    assert_int_equal(range_request()->revision, 5);
    reply_page(7, false, "/p/d", "/p/e");
    assert_true(seen.came && seen.r == 0);
    assert_int_equal(seen.n, 5);
    assert_int_equal(seen.revision, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(seen.keys[i], ((char[]){'/', 'p', '/', (char)('a' + i), 0}));
    assert_int_equal(seen.first.create_revision, 2);
    assert_int_equal(seen.first.mod_revision, 3);
    assert_int_equal(seen.first.version, 4);
    assert_int_equal(seen.first.lease, 77);
    assert_int_equal(seen.first.n_value, 1);
}

/* Half of one key is none: it is not asked for for ever. */
static void a_key_that_is_too_large_fails(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &seen, NULL), 0);
    for (int limit = 512; limit >= 1; limit /= 2) {
        assert_false(seen.came);
        assert_int_equal(range_request()->limit, limit);
        refuse(await_asked("Range"), WIRE_RESOURCE_EXHAUSTED,
               "Received message larger than max (5 vs. 4)");
    }
    assert_true(seen.came);
    assert_int_equal(seen.r, -EIO);
    assert_false(is_asked("Range"));
}

/* What the first pages had shown is not there twice. */
static void pages_that_begin_anew_tell_nothing_twice(_unused_ void **state)
{
    SeenRange seen = {0};
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &seen, NULL), 0);
    reply_page(5, true, "/p/a", "/p/b");
    refuse(await_asked("Range"), WIRE_OUT_OF_RANGE,
           "etcdserver: mvcc: required revision has been compacted");
    ASSERT_BYTES(range_request()->key, "/p/");
    assert_int_equal(range_request()->revision, 0);
    reply_page(9, false, "/p/a", NULL);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.revision, 9);
}

/* Each page has a deadline of its own. */
static void pages_may_take_longer_than_one_deadline(_unused_ void **state)
{
    SeenRange seen = {0};
    char keys[2][8] = {"/p/a", "/p/b"};
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &seen, NULL), 0);
    for (int i = 0; i < 6; i++) {
        pass_usec(1500 * USEC_PER_MSEC);
        reply_page(5, i < 5, keys[i % 2], NULL);
    }
    assert_true(seen.came && seen.r == 0);
    assert_int_equal(seen.n, 6);
}

/* ---- writes ---- */

typedef struct SeenTxn {
    bool came, succeeded;
    int r;
    int64_t revision;
    size_t n_kvs;
} SeenTxn;

static void on_txn(int r, _unused_ const Error *err, const EtcdTxnResult *result, void *userdata)
{
    *(SeenTxn *)userdata = (SeenTxn){.came = true,
                                     .r = r,
                                     .succeeded = result && result->succeeded,
                                     .revision = result ? result->revision : 0,
                                     .n_kvs = result ? result->n_kvs : 0};
}

static Pb__TxnRequest *txn_request(void) { return (Pb__TxnRequest *)await_asked("Txn")->request; }

static void a_transaction_is_asked_for_as_it_is(_unused_ void **state)
{
    const EtcdCompare compares[] = {{.key = "/c", .target = ETCD_CREATE_REVISION, .equals = 11},
                                    {.key = "/m", .target = ETCD_MOD_REVISION, .equals = 12},
                                    {.key = "/v", .target = ETCD_VERSION, .equals = 13}};
    const EtcdOp ops[] = {{.kind = ETCD_PUT, .key = "/a", .value = "text", .lease = 77},
                          {.kind = ETCD_PUT, .key = "/b", .value = "a\0b", .n_value = 3},
                          {.kind = ETCD_PUT, .key = "/e"},
                          {.kind = ETCD_DELETE, .key = "/d"},
                          {.kind = ETCD_DELETE_PREFIX, .key = "/f/"},
                          {.kind = ETCD_GET, .key = "/g"}};
    SeenTxn seen = {0};
    assert_int_equal(etcd_txn(etcd, compares, 3, ops, ELEMENTSOF(ops), on_txn, &seen, NULL), 0);
    const Pb__TxnRequest *t = txn_request();
    assert_int_equal(t->n_compare, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(t->compare[i]->result, PB__COMPARE__RESULT__EQUAL);
    ASSERT_BYTES(t->compare[0]->key, "/c");
    assert_int_equal(t->compare[0]->target, PB__COMPARE__TARGET__CREATE);
    assert_int_equal(t->compare[0]->create_revision, 11);
    assert_int_equal(t->compare[1]->target, PB__COMPARE__TARGET__MOD);
    assert_int_equal(t->compare[1]->mod_revision, 12);
    assert_int_equal(t->compare[2]->target, PB__COMPARE__TARGET__VERSION);
    assert_int_equal(t->compare[2]->version, 13);
    assert_int_equal(t->n_success, 6);
    ASSERT_BYTES(t->success[0]->put->key, "/a");
    ASSERT_BYTES(t->success[0]->put->value, "text");
    assert_int_equal(t->success[0]->put->lease, 77);
    ASSERT_BYTES(t->success[1]->put->value, "a\0b");
    assert_int_equal(t->success[1]->put->lease, 0);
    ASSERT_BYTES(t->success[2]->put->value, "");
    ASSERT_BYTES(t->success[3]->delete_range->key, "/d");
    ASSERT_BYTES(t->success[3]->delete_range->range_end, "");
    ASSERT_BYTES(t->success[4]->delete_range->key, "/f/");
    ASSERT_BYTES(t->success[4]->delete_range->range_end, "/f0");
    ASSERT_BYTES(t->success[5]->range->key, "/g");
    ASSERT_BYTES(t->success[5]->range->range_end, "");
    reply_txn();
    assert_true(seen.came && seen.r == 0 && seen.succeeded);
    assert_int_equal(seen.revision, 5);
}

/* Its guard can never hold, whatever the key is. */
static void a_question_for_rights_writes_nothing(_unused_ void **state)
{
    SeenTxn seen = {0};
    assert_int_equal(etcd_ask_rights(etcd, "/k", on_txn, &seen, NULL), 0);
    const Pb__TxnRequest *t = txn_request();
    assert_int_equal(t->n_compare, 1);
    ASSERT_BYTES(t->compare[0]->key, "/k");
    assert_int_equal(t->compare[0]->target, PB__COMPARE__TARGET__VERSION);
    assert_int_equal(t->compare[0]->version, INT64_MAX);
    assert_int_equal(t->n_success, 2);
    ASSERT_BYTES(t->success[0]->range->key, "/k"); /* to read it, */
    ASSERT_BYTES(t->success[1]->put->key, "/k");   /* and to write it */
    refuse(await_asked("Txn"), WIRE_PERMISSION_DENIED, "etcdserver: permission denied");
    assert_int_equal(seen.r, -EACCES);
}

/* ---- watches ---- */

typedef struct SeenEvents {
    int n_calls, n_initial;
    size_t n;
    int64_t revision;
    EtcdEventKind kind; /* of the last */
    int64_t created, modified;
} SeenEvents;

static void on_events(const EtcdEvent *events, size_t n, int64_t revision, bool initial,
                      void *userdata)
{
    SeenEvents *seen = userdata;
    seen->n_calls++;
    seen->n_initial += initial;
    seen->n += n;
    seen->revision = revision;
    if (n > 0) {
        seen->kind = events[n - 1].kind;
        seen->created = events[n - 1].kv.create_revision;
        seen->modified = events[n - 1].kv.mod_revision;
    }
}

static const Pb__WatchCreateRequest *watch_request(void)
{
    const Pb__WatchRequest *request = (Pb__WatchRequest *)await_asked("Watch")->request;
    assert_int_equal(request->request_case, PB__WATCH_REQUEST__REQUEST_CREATE);
    return request->create;
}

static void a_watch_begins_with_what_its_list_has(_unused_ void **state)
{
    SeenEvents seen = {0};
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, &seen, &watch), 0);
    assert_int_equal(etcd_watch_lists(watch), 0);
    reply_page(9, false, "/p/a", NULL);
    assert_int_equal(etcd_watch_lists(watch), 1);
    assert_int_equal(seen.n_initial, 1);
    assert_int_equal(seen.revision, 9);
    ASSERT_BYTES(watch_request()->key, "/p/");
    ASSERT_BYTES(watch_request()->range_end, "/p0");
    assert_int_equal(watch_request()->start_revision, 9);
    assert_true(watch_request()->fragment);
    assert_false(etcd_watch_connected(watch));
    reply_created();
    assert_true(etcd_watch_connected(watch));
    assert_true(etcd_watch_knows(watch, "/p/a"));
    assert_false(etcd_watch_knows(watch, "/p/"));
}

static void a_watch_of_one_key_asks_for_no_more(_unused_ void **state)
{
    SeenEvents seen = {0};
    assert_int_equal(etcd_watch_key(etcd, "/p/a", on_events, &seen, &watch), 0);
    ASSERT_BYTES(range_request()->key, "/p/a");
    ASSERT_BYTES(range_request()->range_end, "");
    reply_page(9, false, "/p/a", NULL);
    ASSERT_BYTES(watch_request()->key, "/p/a");
    ASSERT_BYTES(watch_request()->range_end, "");
}

static void begin_watch(SeenEvents *seen)
{
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, seen, &watch), 0);
    reply_page(9, false, "/p/a", NULL);
}

/* kind PUT or DELETE of a key; NULL: no event. */
static void say_part(AskedCall *call, const char *key, bool deleted, int64_t revision, bool more)
{
    Pb__ResponseHeader header = header_of(revision, 2);
    Pb__KeyValue kv = PB__KEY_VALUE__INIT;
    Pb__Event one = PB__EVENT__INIT, *events[] = {&one};
    Pb__WatchResponse part = PB__WATCH_RESPONSE__INIT;
    one.type = deleted ? PB__EVENT__EVENT_TYPE__DELETE : PB__EVENT__EVENT_TYPE__PUT;
    one.kv = &kv;
    if (key)
        kv.key = (ProtobufCBinaryData){.data = (uint8_t *)key, .len = strlen(key)};
    kv.mod_revision = revision;
    kv.create_revision = deleted ? 0 : revision;
    part.header = &header;
    part.fragment = more;
    part.n_events = key ? 1 : 0;
    part.events = events;
    call->n_asked++; /* it speaks without being asked */
    reply(call, &part.base);
}

/* It may be a part without an event that says that a revision is whole. */
static void the_last_fragment_may_be_empty(_unused_ void **state)
{
    SeenEvents seen = {0};
    begin_watch(&seen);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    say_part(stream, "/p/b", false, 10, true);
    assert_int_equal(seen.revision, 9);
    say_part(stream, NULL, false, 10, false);
    assert_int_equal(seen.revision, 10);
    assert_int_equal(seen.n, 2);
    say_part(stream, "/p/b", true, 11, false);
    assert_int_equal(seen.kind, ETCD_EVENT_DELETE);
    assert_int_equal(seen.modified, 11);
    assert_false(etcd_watch_knows(watch, "/p/b"));
}

/* Each list after the first is told as what has changed, and again begins where it is. */
static void a_watch_that_breaks_lists_again(_unused_ void **state)
{
    SeenEvents seen = {0};
    begin_watch(&seen);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    say_part(stream, "/p/b", false, 12, false);
    refuse(stream, WIRE_UNAVAILABLE, "Socket closed");
    assert_false(etcd_watch_connected(watch));
    assert_true(etcd_watch_knows(watch, "/p/a"));
    reply_page(20, false, "/p/a", NULL); /* b is gone */
    assert_int_equal(etcd_watch_lists(watch), 2);
    assert_int_equal(seen.n_initial, 1);
    assert_int_equal(seen.n, 3);
    assert_int_equal(seen.kind, ETCD_EVENT_DELETE);
    assert_int_equal(seen.modified, 20);
    assert_int_equal(watch_request()->start_revision, 20);
    reply_created();
    stream = await_asked("Watch"); /* nothing happens for a while */
    const Pb__WatchRequest *request = (Pb__WatchRequest *)stream->request;
    assert_int_equal(request->request_case, PB__WATCH_REQUEST__REQUEST_PROGRESS);
    say_part(stream, "/p/b", false, 20, false); /* as old as the list */
    assert_int_equal(seen.n, 3);
    const int n_calls = seen.n_calls;
    refuse(stream, WIRE_UNAVAILABLE, "Socket closed");
    reply_page(20, false, "/p/a", NULL); /* nothing has changed, and that is told */
    assert_int_equal(seen.n_calls, n_calls + 1);
    assert_int_equal(seen.n, 3);
}

static void a_compacted_watch_lists_again(_unused_ void **state)
{
    SeenEvents seen = {0};
    begin_watch(&seen);
    Pb__ResponseHeader header = header_of(30, 2);
    Pb__WatchResponse gone = PB__WATCH_RESPONSE__INIT;
    gone.header = &header;
    gone.canceled = true;
    gone.compact_revision = 25;
    reply(await_asked("Watch"), &gone.base);
    assert_int_equal(open_calls("Watch"), 0); /* nobody needs the stream */
    reply_page(30, false, "/p/a", "/p/b");
    assert_int_equal(seen.n, 2);
    assert_int_equal(watch_request()->start_revision, 30);
}

static void on_history(const EtcdHistory *was, const EtcdHistory *now, void *userdata)
{
    assert_int_equal(was->revision, 30);
    assert_int_equal(now->revision, 20);
    ++*(int *)userdata;
}

/* What a watch has shown was there: an answer that is older is of another history. */
static void what_a_watch_shows_is_history(_unused_ void **state)
{
    SeenEvents seen = {0};
    SeenRange read = {0};
    int n = 0;
    etcd_set_history(etcd, (EtcdHistory){0}, on_history, &n);
    begin_watch(&seen);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    say_part(stream, "/p/b", false, 30, false);
    assert_int_equal(etcd_history(etcd).revision, 30);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &read, NULL), 0);
    reply_range(await_asked("Range"), 20, 2);
    assert_int_equal(n, 1);
    assert_int_equal(etcd_history(etcd).revision, 20);
    assert_int_equal(etcd_history(etcd).cluster, 7);
}

/* ---- leases ---- */

static int n_granted;

static void on_lease(EtcdLeaseState is, int64_t id, _unused_ void *userdata)
{
    n_granted += is == ETCD_LEASE_GRANTED;
    etcd_election_lease_changed(election, is, id);
}

static void begin_lease(int64_t granted_ttl)
{
    n_granted = 0;
    assert_int_equal(etcd_lease_new(etcd, 10, "", on_lease, NULL, &lease), -EINVAL);
    assert_int_equal(etcd_lease_new(etcd, 0, "/p/w", on_lease, NULL, &lease), -EINVAL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    assert_int_equal(((Pb__LeaseGrantRequest *)await_asked("LeaseGrant")->request)->ttl, 10);
    assert_int_equal(((Pb__LeaseGrantRequest *)await_asked("LeaseGrant")->request)->id, 0);
    reply_grant_of(77, granted_ttl);
}

/* etcd may grant a longer one than was asked for, and change it at a renewal. */
static void a_lease_lives_as_long_as_etcd_says(_unused_ void **state)
{
    begin_lease(20);
    const uint64_t granted_usec = clock_boottime_usec();
    assert_int_equal(n_granted, 1);
    assert_int_equal(etcd_lease_ttl_sec(lease), 20);
    assert_in_range(etcd_lease_deadline_usec(lease), granted_usec + 19 * USEC_PER_SEC,
                    granted_usec + 20 * USEC_PER_SEC);
    AskedCall *renewal = await_asked("LeaseKeepAlive");
    assert_in_range(clock_boottime_usec(), granted_usec + 4900 * USEC_PER_MSEC,
                    granted_usec + 5100 * USEC_PER_MSEC);
    const uint64_t sent_usec = clock_boottime_usec();
    assert_int_equal(((Pb__LeaseKeepAliveRequest *)renewal->request)->id, 77);
    ASSERT_BYTES(range_request()->key, "/p/w");
    assert_true(range_request()->count_only);
    assert_int_equal(await_asked("Range")->member, renewal->member);
    reply_range(await_asked("Range"), 5, 2);
    reply_keep_alive(77, 40, 2);
    assert_int_equal(etcd_lease_ttl_sec(lease), 40);
    assert_in_range(etcd_lease_deadline_usec(lease), sent_usec + 39 * USEC_PER_SEC,
                    sent_usec + 40 * USEC_PER_SEC);
    (void)await_asked("LeaseKeepAlive");
    assert_in_range(clock_boottime_usec(), sent_usec + 9900 * USEC_PER_MSEC,
                    sent_usec + 10100 * USEC_PER_MSEC);
    assert_int_equal(all_calls("LeaseKeepAlive"), 1); /* one stream for all */
}

/* A grant of nothing is none. */
static void a_grant_without_an_id_is_asked_for_again(_unused_ void **state)
{
    static const int64_t bad[][2] = {{0, 10}, {77, 0}};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
        n_granted = 0;
        reply_grant_of(bad[i][0], bad[i][1]);
        assert_int_equal(n_granted, 0);
        assert_int_equal(etcd_lease_id(lease), 0);
        reply_grant_of(78, 10);
        assert_int_equal(n_granted, 1);
        assert_int_equal(etcd_lease_id(lease), 78);
        lease = etcd_lease_free(lease);
    }
}

/* ---- elections ---- */

static int64_t term;
static char leader_key[64];

static void on_election(bool leading, const char *key, int64_t of, _unused_ void *userdata)
{
    term = leading ? of : -of;
    (void)snprintf(leader_key, sizeof(leader_key), "%s", key);
}

static void a_candidate_puts_its_key_on_its_lease(_unused_ void **state)
{
    term = 0;
    begin_lease(1000);
    assert_int_equal(etcd_election_new(etcd, "/e/", "one", lease, on_election, NULL, &election), 0);
    const Pb__TxnRequest *t = txn_request();
    assert_int_equal(t->n_compare, 1);
    ASSERT_BYTES(t->compare[0]->key, "/e/4d");
    assert_int_equal(t->compare[0]->target, PB__COMPARE__TARGET__CREATE);
    assert_int_equal(t->compare[0]->create_revision, 0);
    ASSERT_BYTES(t->success[0]->put->key, "/e/4d");
    ASSERT_BYTES(t->success[0]->put->value, "one");
    assert_int_equal(t->success[0]->put->lease, 77);
    reply_txn();
    reply_page(5, false, "/e/4d", NULL); /* created at 2 */
    assert_int_equal(term, 2);
    assert_string_equal(leader_key, "/e/4d");
    etcd_election_change(election, "two");
    t = txn_request();
    ASSERT_BYTES(t->compare[0]->key, "/e/4d");
    assert_int_equal(t->compare[0]->target, PB__COMPARE__TARGET__CREATE);
    assert_int_equal(t->compare[0]->create_revision, 2);
    ASSERT_BYTES(t->success[0]->put->value, "two");
    assert_int_equal(t->success[0]->put->lease, 77);
    reply_txn();
    etcd_election_lease_changed(election, ETCD_LEASE_LOST, 77);
    assert_int_equal(term, -2);
    assert_string_equal(leader_key, "/e/4d");
    etcd_election_lease_changed(election, ETCD_LEASE_GRANTED, 78); /* with the newest value */
    t = txn_request();
    ASSERT_BYTES(t->compare[0]->key, "/e/4e");
    ASSERT_BYTES(t->success[0]->put->value, "two");
    assert_int_equal(t->success[0]->put->lease, 78);
}

/* ---- whoever counts requests ---- */

typedef struct Counted {
    int n;
    char method[32];
    int r;
    uint64_t took_usec;
} Counted;

static void on_request(const char *method, int r, uint64_t took_usec, void *userdata)
{
    Counted *counted = userdata;
    counted->n++;
    counted->r = r;
    counted->took_usec = took_usec;
    (void)snprintf(counted->method, sizeof(counted->method), "%s", method);
}

static void each_request_is_counted_once(_unused_ void **state)
{
    SeenRange seen = {0};
    SeenTxn txn = {0};
    Counted counted = {0};
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/a", .value = "v"};
    etcd_set_observer(etcd, on_request, &counted);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &seen, NULL), 0);
    pass_usec(USEC_PER_SEC);
    refuse(await_asked("Range"), WIRE_UNAVAILABLE, "etcdserver: no leader");
    assert_int_equal(counted.n, 0); /* it goes on elsewhere */
    pass_usec(USEC_PER_SEC);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(counted.n, 1);
    assert_string_equal(counted.method, "Range");
    assert_int_equal(counted.r, 0);
    assert_in_range(counted.took_usec, 2 * USEC_PER_SEC, 2200 * USEC_PER_MSEC);
    assert_int_equal(etcd_txn(etcd, NULL, 0, &op, 1, on_txn, &txn, NULL), 0);
    refuse(await_asked("Txn"), WIRE_UNKNOWN, "no");
    assert_int_equal(counted.n, 2);
    assert_string_equal(counted.method, "Txn");
    assert_int_equal(counted.r, -EIO);
    begin_lease(10);
    assert_int_equal(counted.n, 3);
    assert_string_equal(counted.method, "LeaseGrant");
    (void)await_asked("LeaseKeepAlive");
    pass_usec(USEC_PER_SEC);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(counted.n, 3); /* the witness is a part of the renewal */
    reply_keep_alive(77, 10, 2);
    assert_int_equal(counted.n, 4);
    assert_string_equal(counted.method, "LeaseKeepAlive");
    assert_in_range(counted.took_usec, USEC_PER_SEC, 1100 * USEC_PER_MSEC);
    (void)await_asked("LeaseKeepAlive");
    refuse(await_asked("LeaseKeepAlive"), WIRE_UNAVAILABLE, "no");
    assert_int_equal(counted.n, 5);
    assert_int_equal(counted.r, -ECONNREFUSED);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(one_key_is_asked_for),
        CASE(one_key_is_asked_for_as_it_was),
        CASE(a_prefix_ends_behind_its_last_key),
        CASE(pages_follow_each_other),
        CASE(a_key_that_is_too_large_fails),
        CASE(pages_that_begin_anew_tell_nothing_twice),
        CASE(pages_may_take_longer_than_one_deadline),
        CASE(a_transaction_is_asked_for_as_it_is),
        CASE(a_question_for_rights_writes_nothing),
        CASE(a_watch_begins_with_what_its_list_has),
        CASE(a_watch_of_one_key_asks_for_no_more),
        CASE(the_last_fragment_may_be_empty),
        CASE(a_watch_that_breaks_lists_again),
        CASE(a_compacted_watch_lists_again),
        CASE(what_a_watch_shows_is_history),
        CASE(a_lease_lives_as_long_as_etcd_says),
        CASE(a_grant_without_an_id_is_asked_for_again),
        CASE(a_candidate_puts_its_key_on_its_lease),
        CASE(each_request_is_counted_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
