/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-streams.c - watches, leases and elections: their requests, field by field, and the
 * events and states that they report. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"

#include <string.h>

static int set_up_of(const char *endpoints)
{
    int r = answers_set_up(NULL);
    open_client(endpoints, NULL);
    return r;
}

static int set_up(_unused_ void **state) { return set_up_of(answers_endpoints); }
/* Opens a client of one member, which the client cannot leave when that member is silent. */
static int set_up_one(_unused_ void **state) { return set_up_of(answers_endpoint); }

/* ---- watches ---- */

typedef struct SeenEvents {
    int n_calls, n_initial;
    size_t n;
    int64_t revision;
    EtcdEventKind kind; /* the kind of the last event */
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

/* Sends a PUT or DELETE of a key; key NULL: no event. */
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
    call->n_asked++; /* lets reply() send a message without a request */
    reply(call, &part.base);
}

/* The last fragment of a revision may contain no event: it only shows that the revision is complete. */
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

/* Each list after the first is reported as changes, and the watch continues from the list's revision. */
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
    reply_page(20, false, "/p/a", NULL); /* b was deleted */
    assert_int_equal(etcd_watch_lists(watch), 2);
    assert_int_equal(seen.n_initial, 1);
    assert_int_equal(seen.n, 3);
    assert_int_equal(seen.kind, ETCD_EVENT_DELETE);
    assert_int_equal(seen.modified, 20);
    assert_int_equal(watch_request()->start_revision, 20);
    reply_created();
    stream = await_asked("Watch"); /* after some time without events */
    const Pb__WatchRequest *request = (Pb__WatchRequest *)stream->request;
    assert_int_equal(request->request_case, PB__WATCH_REQUEST__REQUEST_PROGRESS);
    /* an event that is not newer than the list is not reported */
    say_part(stream, "/p/b", false, 20, false);
    assert_int_equal(seen.n, 3);
    const int n_calls = seen.n_calls;
    refuse(stream, WIRE_UNAVAILABLE, "Socket closed");
    reply_page(20, false, "/p/a", NULL); /* an unchanged list is reported, too */
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
    assert_int_equal(open_calls("Watch"), 0); /* the stream is closed */
    reply_page(30, false, "/p/a", "/p/b");
    assert_int_equal(seen.n, 2);
    assert_int_equal(watch_request()->start_revision, 30);
}

static void on_range(int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                     _unused_ void *userdata)
{
    assert_int_equal(r, 0);
}

static void on_history(const EtcdHistory *was, const EtcdHistory *now, void *userdata)
{
    assert_int_equal(was->revision, 30);
    assert_int_equal(now->revision, 20);
    ++*(int *)userdata;
}

/* If a watch has shown a revision and a later answer has a lower revision, that answer is of
 * another history. */
static void what_a_watch_shows_is_history(_unused_ void **state)
{
    SeenEvents seen = {0};
    int n = 0;
    etcd_set_history(etcd, (EtcdHistory){0}, on_history, &n);
    begin_watch(&seen);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    say_part(stream, "/p/b", false, 30, false);
    assert_int_equal(etcd_history(etcd).revision, 30);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, NULL, NULL), 0);
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

/* etcd may grant a longer TTL than requested, and change it at a renewal. */
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
    assert_int_equal(all_calls("LeaseKeepAlive"), 1); /* one stream for all renewals */
}

/* A grant without an id or a TTL is not a grant. */
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
    reply_page(5, false, "/e/4d", NULL); /* create revision 2 */
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
    /* the candidate stands with the newest value */
    etcd_election_lease_changed(election, ETCD_LEASE_GRANTED, 78);
    t = txn_request();
    ASSERT_BYTES(t->compare[0]->key, "/e/4e");
    ASSERT_BYTES(t->success[0]->put->value, "two");
    assert_int_equal(t->success[0]->put->lease, 78);
}

/* The watch shows the key before the first write's answer comes. So the client writes the new value
 * when the answer comes, without waiting for an event. */
static void a_value_that_changes_during_the_first_write_is_written(_unused_ void **state)
{
    begin_lease(1000);
    assert_int_equal(etcd_election_new(etcd, "/e/", "one", lease, on_election, NULL, &election), 0);
    (void)await_asked("Txn");
    etcd_election_change(election, "two");
    reply_page(5, false, "/e/4d", NULL);
    ASSERT_BYTES(txn_request()->success[0]->put->value, "one");
    reply_txn();
    ASSERT_BYTES(txn_request()->success[0]->put->value, "two");
    assert_int_equal(txn_request()->compare[0]->create_revision, 2);
}

/* Each renewal is tried again on a new stream, and no old stream stays open. */
static void a_witness_that_is_denied_leaves_no_stream(_unused_ void **state)
{
    assert_int_equal(etcd_lease_new(etcd, 100, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, 100);
    for (int i = 0; i < 5; i++) {
        (void)await_asked("LeaseKeepAlive");
        refuse(await_asked("Range"), WIRE_PERMISSION_DENIED, "etcdserver: permission denied");
        assert_int_equal(open_calls("LeaseKeepAlive"), 0);
    }
}

static void a_lease_that_is_looked_at_is_renewed_at_once(_unused_ void **state)
{
    assert_int_equal(etcd_lease_new(etcd, 100, "/p/w", on_lease, NULL, &lease), 0);
    etcd_lease_check(lease); /* there is no lease yet */
    reply_grant_of(77, 100);
    assert_false(is_asked("LeaseKeepAlive"));
    etcd_lease_check(lease);
    pass_usec(20 * USEC_PER_MSEC);
    AskedCall *stream = await_asked("LeaseKeepAlive");
    etcd_lease_check(lease); /* a renewal is in progress */
    pass_usec(20 * USEC_PER_MSEC);
    assert_non_null(stream->wire);
    assert_int_equal(stream->n_asked, 1);
    reply_keep_alive(77, 100, 2);
    reply_range(await_asked("Range"), 5, 2);
    etcd_lease_check(lease); /* uses the same stream */
    pass_usec(20 * USEC_PER_MSEC);
    assert_int_equal(stream->n_asked, 2);
}

/* The requests of witnesses end at their own deadline, even if no answer ever comes. */
static void witnesses_without_an_answer_do_not_pile_up(_unused_ void **state)
{
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, 10);
    for (int i = 0; i < 20; i++) {
        reply_keep_alive(77, 10, 2);
        pass_usec(2 * USEC_PER_SEC);
        assert_true(open_calls("Range") <= 4);
    }
    assert_true(all_calls("Range") >= 10);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, answers_tear_down)
#define CASE_OF_ONE(name)                                                                          \
    cmocka_unit_test_setup_teardown(name, set_up_one, answers_tear_down) /* etcd has one member */
    const struct CMUnitTest tests[] = {
        CASE(a_watch_begins_with_what_its_list_has),
        CASE(a_watch_of_one_key_asks_for_no_more),
        CASE(the_last_fragment_may_be_empty),
        CASE(a_watch_that_breaks_lists_again),
        CASE(a_compacted_watch_lists_again),
        CASE(what_a_watch_shows_is_history),
        CASE(a_value_that_changes_during_the_first_write_is_written),
        CASE(a_lease_lives_as_long_as_etcd_says),
        CASE(a_grant_without_an_id_is_asked_for_again),
        CASE(a_candidate_puts_its_key_on_its_lease),
        CASE(a_lease_that_is_looked_at_is_renewed_at_once),
        CASE_OF_ONE(a_witness_that_is_denied_leaves_no_stream),
        CASE_OF_ONE(witnesses_without_an_answer_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
