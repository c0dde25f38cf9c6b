/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-ends.c - after a call, a watch, a lease or an election is freed, in any state and even
 * within its own handler, no RPC, retry timer or callback of that object remains. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"

#include <string.h>

static EtcdCall *call;
static int n_heard;         /* the number of callbacks of the objects that a test frees */
static bool frees_itself;   /* the next callback frees its own object */
static EtcdLeaseState last; /* the lease's last reported state */

static void on_range(_unused_ int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                     _unused_ void *userdata)
{
    n_heard++;
    if (frees_itself)
        call = etcd_call_free(call);
    call = NULL;
}

static void on_txn(_unused_ int r, _unused_ const Error *err, _unused_ const EtcdTxnResult *result,
                   void *userdata)
{
    n_heard++;
    if (userdata)
        *(int *)userdata = r;
}

static void on_events(_unused_ const EtcdEvent *events, _unused_ size_t n,
                      _unused_ int64_t revision, _unused_ bool initial, _unused_ void *userdata)
{
    n_heard++;
    if (frees_itself)
        watch = etcd_watch_free(watch);
}

static void on_lease(EtcdLeaseState is, int64_t id, _unused_ void *userdata)
{
    n_heard++;
    last = is;
    etcd_election_lease_changed(election, is, id);
    if (frees_itself && !election)
        lease = etcd_lease_free(lease);
}

static void on_election(_unused_ bool leading, _unused_ const char *key, _unused_ int64_t term,
                        _unused_ void *userdata)
{
    n_heard++;
    if (frees_itself)
        election = etcd_election_free(election);
}

static void begin_of(const char *user)
{
    n_heard = 0;
    frees_itself = false;
    open_client(answers_endpoint, user);
}

static void begin(void) { begin_of(NULL); }

static void finish(void)
{
    call = etcd_call_free(call);
    close_client();
}

static int tear_down(void **state)
{
    finish();
    return answers_tear_down(state);
}

/* ---- the states of each object ---- */

static void reading(void)
{
    begin();
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, NULL, &call), 0);
    (void)await_asked("Range");
}

static void reading_and_pausing(void)
{
    reading();
    refuse(await_asked("Range"), WIRE_UNAVAILABLE, "etcdserver: no leader");
    assert_false(is_asked("Range"));
}

static void list(void)
{
    begin();
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    (void)await_asked("Range");
}

static void begin_watch(void)
{
    list();
    reply_range(await_asked("Range"), 5, 2);
    (void)await_asked("Watch");
}

static void watching(void)
{
    begin_watch();
    reply_created();
}

static void watching_and_asking(void)
{
    watching();
    (void)await_asked("Watch");
}

static void list_that_failed(void)
{
    list();
    refuse(await_asked("Range"), WIRE_UNKNOWN, "no");
}

static void begin_lease(void)
{
    begin();
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    (void)await_asked("LeaseGrant");
}

static void grant_that_failed(void)
{
    begin_lease();
    refuse(await_asked("LeaseGrant"), WIRE_UNKNOWN, "no");
}

static void holding(void)
{
    begin_lease();
    reply_grant_of(77, 10);
}

static void renewing(void)
{
    holding();
    (void)await_asked("LeaseKeepAlive");
    (void)await_asked("Range");
}

static void renewing_with_a_witness(void)
{
    renewing();
    reply_range(await_asked("Range"), 5, 2);
}

static void renewing_without_a_witness(void)
{
    renewing();
    reply_keep_alive(77, 10, 2);
}

static void held_and_renewed(void)
{
    renewing_with_a_witness();
    reply_keep_alive(77, 10, 2);
    assert_int_equal(last, ETCD_LEASE_RENEWED);
}

static void renewal_that_failed(void)
{
    renewing_with_a_witness();
    refuse(await_asked("LeaseKeepAlive"), WIRE_UNAVAILABLE, "no");
}

static void stand(void)
{
    begin_lease();
    reply_grant_of(77, 100);
    assert_int_equal(etcd_election_new(etcd, "/e/", "v", lease, on_election, NULL, &election), 0);
    (void)await_asked("Range");
    (void)await_asked("Txn");
}

static void say_candidate(int64_t revision)
{
    Pb__ResponseHeader header = header_of(revision, 2);
    Pb__KeyValue kv = PB__KEY_VALUE__INIT, *kvs[] = {&kv};
    Pb__RangeResponse range = PB__RANGE_RESPONSE__INIT;
    kv.key = (ProtobufCBinaryData){.data = (uint8_t *)"/e/4d", .len = 5};
    kv.create_revision = kv.mod_revision = revision;
    range.header = &header;
    range.n_kvs = 1;
    range.kvs = kvs;
    reply(await_asked("Range"), &range.base);
}

static void leading(void)
{
    stand();
    reply_txn();
    say_candidate(5);
    reply_created();
    assert_int_equal(n_heard, 2); /* the lease was granted, and the election won */
}

static void refused_candidate(void)
{
    stand();
    refuse(await_asked("Txn"), WIRE_UNKNOWN, "no");
}

static void leading_and_writing(void)
{
    leading();
    etcd_election_change(election, "w");
    (void)await_asked("Txn");
}

static void leading_and_writing_later(void)
{
    leading_and_writing();
    refuse(await_asked("Txn"), WIRE_UNKNOWN, "no");
}

static void (*const doing[])(void) = {
    reading,
    reading_and_pausing,
    list,
    begin_watch,
    watching,
    watching_and_asking,
    list_that_failed,
    begin_lease,
    grant_that_failed,
    holding,
    renewing,
    renewing_with_a_witness,
    renewing_without_a_witness,
    held_and_renewed,
    renewal_that_failed,
    stand,
    leading,
    refused_candidate,
    leading_and_writing,
    leading_and_writing_later,
};

static size_t asked(void)
{
    static const char *const methods[] = {"Range", "Txn", "Watch", "LeaseGrant", "LeaseKeepAlive"};
    size_t n = 0;
    for (size_t i = 0; i < ELEMENTSOF(methods); i++)
        n += all_calls(methods[i]);
    return n;
}

/* After an object is freed, no request of it is open, and no callback runs. Witnesses of an earlier
 * renewal end at their deadlines. */
static void what_is_freed_asks_for_nothing_and_hears_nothing(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(doing); i++) {
        doing[i]();
        call = etcd_call_free(call);
        election = etcd_election_free(election);
        lease = etcd_lease_free(lease);
        watch = etcd_watch_free(watch);
        const int n_before = n_heard;
        pass_usec(20 * USEC_PER_MSEC);
        assert_int_equal(open_calls(NULL), 0);
        const size_t n_asked = asked();
        pass_usec(120 * USEC_PER_SEC);
        assert_int_equal(asked(), n_asked);
        assert_int_equal(n_heard, n_before);
        etcd = etcd_free(etcd);
    }
}

/* Objects may be freed after their client; without the client they send nothing. */
static void what_is_left_without_its_client_is_quiet(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(doing); i++) {
        doing[i]();
        const int n_before = n_heard;
        etcd = etcd_free(etcd);
        call = NULL; /* the client has freed its calls */
        const size_t n_asked = asked();
        pass_usec(120 * USEC_PER_SEC);
        assert_int_equal(open_calls(NULL), 0);
        assert_int_equal(asked(), n_asked);
        if (watch)
            assert_false(etcd_watch_connected(watch));
        etcd_election_lease_changed(election, ETCD_LEASE_GRANTED, 78);
        etcd_election_lease_changed(election, ETCD_LEASE_LOST, 78);
        assert_int_equal(n_heard, n_before);
        election = etcd_election_free(election);
        lease = etcd_lease_free(lease);
        watch = etcd_watch_free(watch);
    }
}

static void a_call_that_waits_for_a_token_may_be_freed(_unused_ void **state)
{
    begin_of("node");
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, NULL, &call), 0);
    (void)await_asked("Authenticate");
    call = etcd_call_free(call);
    reply_token("first");
    pass_usec(20 * USEC_PER_SEC);
    assert_int_equal(all_calls("Range"), 0);
    assert_int_equal(n_heard, 0);
}

/* ---- freed within its own handler ---- */

static void expect_quiet(int n_wanted)
{
    assert_int_equal(n_heard, n_wanted);
    pass_usec(20 * USEC_PER_MSEC);
    assert_int_equal(open_calls("Watch") + open_calls("LeaseKeepAlive"), 0);
    const size_t n_asked = asked();
    pass_usec(120 * USEC_PER_SEC);
    assert_int_equal(asked(), n_asked);
    assert_int_equal(n_heard, n_wanted);
}

static void a_call_may_be_freed_in_its_handler(_unused_ void **state)
{
    reading();
    frees_itself = true;
    reply_range(await_asked("Range"), 5, 2);
    expect_quiet(1);
}

static Pb__Event put_of(Pb__KeyValue *kv, int64_t revision)
{
    Pb__Event put = PB__EVENT__INIT;
    *kv = (Pb__KeyValue)PB__KEY_VALUE__INIT;
    kv->key = (ProtobufCBinaryData){.data = (uint8_t *)"/p/a", .len = 4};
    kv->create_revision = kv->mod_revision = revision;
    put.kv = kv;
    return put;
}

/* A watch may be freed in its handler: when it reports its list, and when it reports the first of
 * three revisions that arrived together. */
static void a_watch_may_be_freed_in_its_handler(_unused_ void **state)
{
    list();
    frees_itself = true;
    reply_range(await_asked("Range"), 5, 2);
    expect_quiet(1);
    etcd = etcd_free(etcd);

    begin_watch();
    AskedCall *stream = await_asked("Watch");
    reply_created();
    frees_itself = true;
    Pb__ResponseHeader header = header_of(8, 2);
    Pb__KeyValue kvs[3];
    Pb__Event of[3] = {put_of(&kvs[0], 6), put_of(&kvs[1], 7), put_of(&kvs[2], 8)};
    Pb__Event *puts[] = {&of[0], &of[1], &of[2]};
    Pb__WatchResponse news = PB__WATCH_RESPONSE__INIT;
    news.header = &header;
    news.n_events = ELEMENTSOF(puts);
    news.events = puts;
    stream->n_asked++;
    reply(stream, &news.base);
    expect_quiet(2);
}

static void a_lease_may_be_freed_in_its_handler(_unused_ void **state)
{
    begin_lease();
    frees_itself = true;
    reply_grant_of(77, 10);
    expect_quiet(1);
    etcd = etcd_free(etcd);

    renewing_with_a_witness();
    frees_itself = true;
    reply_keep_alive(77, 10, 2);
    expect_quiet(2);
    etcd = etcd_free(etcd);

    renewing_with_a_witness();
    frees_itself = true;
    reply_keep_alive(77, 0, 2); /* the lease is lost */
    expect_quiet(2);
    assert_int_equal(last, ETCD_LEASE_LOST);
}

static void expect_quiet_election(int n_wanted)
{
    assert_null(election);
    lease = etcd_lease_free(lease);
    expect_quiet(n_wanted);
    etcd = etcd_free(etcd);
}

static void an_election_may_be_freed_in_its_handler(_unused_ void **state)
{
    stand();
    reply_txn();
    frees_itself = true;
    say_candidate(5);
    expect_quiet_election(2);

    leading();
    frees_itself = true;
    etcd_election_lease_changed(election, ETCD_LEASE_LOST, 77);
    expect_quiet_election(3);

    /* the key has a new create revision by now, so the list shows another term */
    leading();
    AskedCall *stream = await_asked("Watch"); /* a request for progress */
    frees_itself = true;
    refuse(stream, WIRE_UNAVAILABLE, "no");
    say_candidate(9);
    expect_quiet_election(3);
}

/* ---- a revoked lease ---- */

static void a_revocation_outlives_its_lease(_unused_ void **state)
{
    static void (*const held[])(void) = {holding, renewing, renewing_with_a_witness,
                                         held_and_renewed, renewal_that_failed};
    for (size_t i = 0; i < ELEMENTSOF(held); i++) {
        int r = 1;
        held[i]();
        assert_int_equal(etcd_lease_revoke(lease, on_txn, &r, NULL), 0);
        assert_int_equal(etcd_lease_id(lease), 0);
        const int n_before = n_heard;
        (void)await_asked("LeaseRevoke");
        pass_usec(20 * USEC_PER_MSEC);
        assert_int_equal(open_calls(NULL), 1);
        etcd_lease_check(lease); /* the lease does not exist any more */
        if (i % 2 == 0)
            lease = etcd_lease_free(lease);
        Pb__ResponseHeader header = header_of(6, 2);
        Pb__LeaseRevokeResponse done = PB__LEASE_REVOKE_RESPONSE__INIT;
        done.header = &header;
        reply(await_asked("LeaseRevoke"), &done.base);
        assert_int_equal(r, 0);
        const size_t n_asked = asked();
        pass_usec(60 * USEC_PER_SEC);
        assert_int_equal(n_heard, n_before + 1);
        assert_int_equal(asked(), n_asked); /* no other lease is requested */
        lease = etcd_lease_free(lease);
        etcd = etcd_free(etcd);
    }
}

static void without_a_lease_there_is_nothing_to_revoke(_unused_ void **state)
{
    static void (*const without[])(void) = {begin_lease, grant_that_failed};
    for (size_t i = 0; i < ELEMENTSOF(without); i++) {
        without[i]();
        assert_int_equal(etcd_lease_revoke(lease, on_txn, NULL, NULL), -ESTALE);
        pass_usec(20 * USEC_PER_MSEC);
        const size_t n_asked = asked();
        pass_usec(60 * USEC_PER_SEC);
        assert_int_equal(open_calls(NULL), 0);
        assert_int_equal(asked(), n_asked);
        assert_int_equal(n_heard, 0);
        finish();
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, answers_set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(what_is_freed_asks_for_nothing_and_hears_nothing),
        CASE(what_is_left_without_its_client_is_quiet),
        CASE(a_call_that_waits_for_a_token_may_be_freed),
        CASE(a_call_may_be_freed_in_its_handler),
        CASE(a_watch_may_be_freed_in_its_handler),
        CASE(a_lease_may_be_freed_in_its_handler),
        CASE(an_election_may_be_freed_in_its_handler),
        CASE(a_revocation_outlives_its_lease),
        CASE(without_a_lease_there_is_nothing_to_revoke),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
