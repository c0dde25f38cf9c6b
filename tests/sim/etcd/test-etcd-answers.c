/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-answers.c - libetcd receives answers in an order, with a raft term or at a moment that
 * a real etcd cannot be made to give. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"

#include <string.h>

/* ---- leases ---- */

typedef struct SeenLease {
    int n_granted, n_renewed, n_lost;
} SeenLease;

static void on_lease(EtcdLeaseState is, _unused_ int64_t id, void *userdata)
{
    SeenLease *seen = userdata;
    seen->n_granted += is == ETCD_LEASE_GRANTED;
    seen->n_renewed += is == ETCD_LEASE_RENEWED;
    seen->n_lost += is == ETCD_LEASE_LOST;
}

static void reply_grant(int64_t id) { reply_grant_of(id, 10); }

/* The member that answered the keep-alive may have been deposed before the read is answered: two
 * answers of different terms do not renew the lease. */
static void a_renewal_of_two_terms_is_none(_unused_ void **state)
{
    SeenLease seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, &seen, &lease), 0);
    reply_grant(77);
    const uint64_t deadline_usec = etcd_lease_deadline_usec(lease);
    reply_keep_alive(77, 10, 2);
    reply_range(await_asked("Range"), 5, 3);
    assert_int_equal(seen.n_renewed, 0);
    assert_int_equal(etcd_lease_deadline_usec(lease), deadline_usec);
    reply_range(await_asked("Range"), 5, 3); /* the renewal is requested again soon */
    assert_int_equal(seen.n_renewed, 0);
    reply_keep_alive(77, 10, 3);
    assert_int_equal(seen.n_renewed, 1);
    assert_true(etcd_lease_deadline_usec(lease) > deadline_usec);
    assert_int_equal(seen.n_granted, 1);
}

static void assert_near(uint64_t usec, uint64_t wanted_usec)
{
    assert_true(usec < wanted_usec + USEC_PER_SEC / 10 && usec + USEC_PER_SEC / 10 > wanted_usec);
}

static void a_deadline_counts_from_the_send(_unused_ void **state)
{
    SeenLease seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, &seen, &lease), 0);
    AskedCall *grant = await_asked("LeaseGrant");
    const uint64_t granted_usec = clock_boottime_usec();
    pass_usec(USEC_PER_SEC);
    assert_true(grant->wire != NULL);
    reply_grant(77);
    assert_true(etcd_lease_deadline_usec(lease) <= granted_usec + 10 * USEC_PER_SEC);
    assert_true(etcd_lease_deadline_usec(lease) > granted_usec + 9 * USEC_PER_SEC);
    (void)await_asked("LeaseKeepAlive");
    const uint64_t sent_usec = clock_boottime_usec();
    assert_near(sent_usec, granted_usec + 10 * USEC_PER_SEC / 4);
    reply_range(await_asked("Range"), 5, 2);
    pass_usec(2 * USEC_PER_SEC);
    reply_keep_alive(77, 10, 2);
    assert_int_equal(seen.n_renewed, 1);
    assert_true(etcd_lease_deadline_usec(lease) <= sent_usec + 10 * USEC_PER_SEC);
    /* the time of the next renewal is counted from sent_usec, too */
    (void)await_asked("LeaseKeepAlive");
    assert_near(clock_boottime_usec(), sent_usec + 10 * USEC_PER_SEC / 4);
}

static void a_lost_lease_is_asked_for_anew_at_once(_unused_ void **state)
{
    SeenLease seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, &seen, &lease), 0);
    reply_grant(77);
    reply_keep_alive(77, 0, 2); /* TTL 0 means that the lease does not exist */
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(seen.n_lost, 1);
    assert_int_equal(etcd_lease_id(lease), 0);
    assert_true(is_asked("LeaseGrant"));
    reply_grant(78);
    assert_int_equal(seen.n_granted, 2);
    assert_int_equal(etcd_lease_id(lease), 78);
}

/* The only member may be slow: the request is sent again before the lease runs out. */
static void a_renewal_without_an_answer_is_asked_again(_unused_ void **state)
{
    SeenLease seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, &seen, &lease), 0);
    reply_grant(77);
    AskedCall *first = await_asked("LeaseKeepAlive");
    pass_usec(3 * USEC_PER_SEC);
    assert_null(first->wire); /* the first request was given up */
    reply_keep_alive(77, 10, 2);
    reply_range(await_asked("Range"), 5, 2);
    if (seen.n_renewed == 0) /* reply_range() has answered the first request's witness */
        reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(seen.n_renewed, 1);
    assert_true(clock_boottime_usec() < etcd_lease_deadline_usec(lease));
}

static void renewals_that_fail_are_tried_before_it_runs_out(_unused_ void **state)
{
    SeenLease seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 2, "/p/w", on_lease, &seen, &lease), 0);
    reply_grant_of(77, 2);
    for (int i = 0; i < 8; i++) {
        reply_keep_alive(77, 2, 2);
        const uint64_t failed_usec = clock_boottime_usec();
        reply_range(await_asked("Range"), 5, 3); /* an answer of another term */
        (void)await_asked("LeaseKeepAlive");
        assert_true(clock_boottime_usec() < failed_usec + 2 * USEC_PER_SEC / 6);
        assert_int_equal(seen.n_renewed, 0);
    }
}

/* After a success, a new failure is retried as soon as the first failure was. */
static void a_renewal_that_succeeds_forgets_the_failures(_unused_ void **state)
{
    SeenLease seen = {0};
    uint64_t failed_usec = 0;
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 100, "/p/w", on_lease, &seen, &lease), 0);
    reply_grant_of(77, 100);
    for (int i = 0; i < 9; i++) {
        const uint64_t term = i == 7 ? 2 : 3; /* only turn 7 has both answers of the same term */
        reply_keep_alive(77, 100, 2);
        failed_usec = clock_boottime_usec();
        reply_range(await_asked("Range"), 5, term);
        (void)await_asked("LeaseKeepAlive");
    }
    assert_int_equal(seen.n_renewed, 1);
    assert_true(clock_boottime_usec() < failed_usec + USEC_PER_SEC / 2);
}

static void an_answer_to_another_lease_is_none(_unused_ void **state)
{
    SeenLease seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, &seen, &lease), 0);
    reply_grant(77);
    AskedCall *stream = await_asked("LeaseKeepAlive");
    reply_range(await_asked("Range"), 5, 2);
    reply_keep_alive(76, 10, 2);
    assert_int_equal(seen.n_renewed, 0);
    stream->n_asked++; /* lets reply_keep_alive() answer the same renewal again */
    reply_keep_alive(77, 10, 2);
    assert_int_equal(seen.n_renewed, 1);
}

static void each_renewal_has_a_witness_of_its_own(_unused_ void **state)
{
    SeenLease seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, &seen, &lease), 0);
    reply_grant(77);
    for (int i = 1; i <= 3; i++) {
        reply_keep_alive(77, 10, 2);
        assert_int_equal(seen.n_renewed, i - 1);
        reply_range(await_asked("Range"), 5, 2);
        assert_int_equal(seen.n_renewed, i);
    }
}

/* ---- elections ---- */

static void on_election(_unused_ bool leading, _unused_ const char *key, _unused_ int64_t term,
                        _unused_ void *userdata)
{
}

/* A candidate's key was written and deleted before the watch began, so no event shows the key: the
 * candidate stands again. */
static void a_candidate_whose_key_nobody_shows_stands_again(_unused_ void **state)
{
    SeenLease seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 1000, "/p/w", on_lease, &seen, &lease), 0);
    reply_grant_of(77, 1000);
    assert_int_equal(etcd_election_new(etcd, "/e/", "v", lease, on_election, NULL, &election), 0);
    reply_range(await_asked("Range"), 5, 2);
    reply_created();
    reply_txn();
    assert_false(is_asked("Txn"));
    pass_usec(USEC_PER_SEC);
    assert_true(is_asked("Txn"));
}

/* ---- watches ---- */

typedef struct SeenEvents {
    int n_calls, n_events;
    size_t n_last;
} SeenEvents;

static void on_events(_unused_ const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                      bool initial, void *userdata)
{
    SeenEvents *seen = userdata;
    if (initial)
        return;
    seen->n_calls++;
    seen->n_events += (int)n;
    seen->n_last = n;
}

static void on_txn(_unused_ int r, _unused_ const Error *err, _unused_ const EtcdTxnResult *result,
                   _unused_ void *userdata)
{
}

/* The member answers all other requests, so only the watch itself can show that the watch is silent. */
static void a_watch_that_says_nothing_is_begun_anew(_unused_ void **state)
{
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/q", .value = "v"};
    SeenEvents seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, &seen, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    reply_created();
    for (int i = 0; i < 12 && !is_asked("Range"); i++) {
        assert_int_equal(etcd_txn(etcd, NULL, 0, &op, 1, on_txn, NULL, NULL), 0);
        reply_txn();
        pass_usec(USEC_PER_SEC);
    }
    assert_true(is_asked("Range"));
    assert_false(etcd_watch_connected(watch));
}

static void say_event(AskedCall *call, const char *key, int64_t revision, bool more)
{
    Pb__ResponseHeader header = header_of(revision, 2);
    Pb__KeyValue kv = PB__KEY_VALUE__INIT;
    Pb__Event put = PB__EVENT__INIT, *puts[] = {&put};
    Pb__WatchResponse part = PB__WATCH_RESPONSE__INIT;
    kv.key = (ProtobufCBinaryData){.data = (uint8_t *)key, .len = strlen(key)};
    kv.create_revision = kv.mod_revision = revision;
    kv.version = 1;
    put.kv = &kv;
    part.header = &header;
    part.fragment = more;
    part.n_events = 1;
    part.events = puts;
    call->n_asked++; /* lets reply() send a message without a request */
    reply(call, &part.base);
}

/* The client asks a watch for progress IDLE_SEC after the watch's last event. */
static void a_watch_that_spoke_is_looked_at_again(_unused_ void **state)
{
    SeenEvents seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, &seen, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    pass_usec(3 * USEC_PER_SEC);
    say_event(stream, "/p/a", 6, false);
    pass_usec(4 * USEC_PER_SEC);
    assert_false(is_asked("Watch"));
    pass_usec(2 * USEC_PER_SEC);
    assert_true(is_asked("Watch"));
}

/* A revision is reported as a whole, in however many fragments it came. */
static void fragments_of_a_revision_are_told_at_once(_unused_ void **state)
{
    SeenEvents seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, &seen, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    say_event(stream, "/p/a", 6, true);
    assert_int_equal(seen.n_calls, 0);
    /* an event of revision 7 shows that revision 6 is complete */
    say_event(stream, "/p/a", 7, true);
    assert_int_equal(seen.n_calls, 1);
    say_event(stream, "/p/b", 7, true);
    say_event(stream, "/p/c", 7, false);
    assert_int_equal(seen.n_calls, 2);
    assert_int_equal(seen.n_last, 3);
    say_event(stream, "/p/a", 7, false); /* revision 7 was reported before */
    assert_int_equal(seen.n_calls, 2);
    assert_int_equal(seen.n_events, 4);
}

static void refuse_watch(void)
{
    Pb__WatchResponse refused = PB__WATCH_RESPONSE__INIT;
    refused.canceled = true;
    refused.cancel_reason = (char *)"because";
    reply(await_asked("Watch"), &refused.base);
}

/* The changes of an incomplete message are dropped; the next list brings them. */
static void fragments_of_a_stream_that_ends_are_dropped(_unused_ void **state)
{
    SeenEvents seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, &seen, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    say_event(stream, "/p/a", 6, true);
    stream->n_asked++; /* lets refuse_watch() end the stream without a request */
    refuse_watch();
    reply_range(await_asked("Range"), 7, 2);
    stream = await_asked("Watch");
    reply_created();
    say_event(stream, "/p/b", 8, false);
    assert_int_equal(seen.n_events, 1);
}

static void a_watch_that_was_up_does_not_wait_long(_unused_ void **state)
{
    SeenEvents seen = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, &seen, &watch), 0);
    for (int i = 0; i < 8; i++) {
        reply_range(await_asked("Range"), 5, 2);
        refuse_watch();
    }
    reply_range(await_asked("Range"), 5, 2);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    stream->n_asked++;
    refuse_watch();
    const uint64_t ended_usec = clock_boottime_usec();
    (void)await_asked("Range");
    assert_true(clock_boottime_usec() < ended_usec + USEC_PER_SEC / 2);
}

/* The token expires after the list. etcd then refuses the watch as if the user had no right, and the
 * watch gets a new token. */
static void a_watch_that_is_refused_gets_another_token(_unused_ void **state)
{
    SeenEvents seen = {0};
    open_client(answers_endpoint, "node");
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, &seen, &watch), 0);
    reply_token("first");
    AskedCall *list = await_asked("Range");
    assert_string_equal(list->token, "first");
    reply_range(list, 5, 2);
    Pb__WatchResponse refused = PB__WATCH_RESPONSE__INIT;
    refused.created = refused.canceled = true;
    refused.cancel_reason = (char *)"etcdserver: permission denied";
    reply(await_asked("Watch"), &refused.base);
    reply_token("second");
    list = await_asked("Range");
    assert_string_equal(list->token, "second");
    reply_range(list, 5, 2);
    assert_string_equal(await_asked("Watch")->token, "second");
}

/* ---- the history ---- */

static void on_range(int r, _unused_ const Error *err, const EtcdRange *range, void *userdata)
{
    assert_int_equal(r, 0);
    *(int64_t *)userdata = range->revision;
}

static void on_other_history(_unused_ const EtcdHistory *was, _unused_ const EtcdHistory *now,
                             _unused_ void *userdata)
{
    fail_msg("it is the same history");
}

/* An older answer that arrives late, as from a member that lags, does not set the history's
 * revision back. */
static void an_older_answer_takes_no_revision_back(_unused_ void **state)
{
    int64_t first = 0, second = 0;
    open_client(answers_endpoint, NULL);
    etcd_set_history(etcd, (EtcdHistory){.cluster = 7, .revision = 5}, on_other_history, NULL);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &first, NULL), 0);
    AskedCall *older = await_asked("Range");
    older->n_answered++; /* the fixture gives no answer to this request yet */
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &second, NULL), 0);
    reply_range(await_asked("Range"), 20, 2);
    assert_int_equal(second, 20);
    older->n_answered--;
    reply_range(older, 10, 2);
    assert_int_equal(first, 10);
    assert_int_equal(etcd_history(etcd).revision, 20);
}

static void on_each_history(_unused_ const EtcdHistory *was, _unused_ const EtcdHistory *now,
                            void *userdata)
{
    ++*(int *)userdata;
}

/* Two reads sent before etcd was restored return another history: the client reports that only
 * once. */
static void one_other_history_is_told_once(_unused_ void **state)
{
    int64_t first = 0, second = 0;
    int n = 0;
    open_client(answers_endpoint, NULL);
    etcd_set_history(etcd, (EtcdHistory){.cluster = 7, .revision = 50}, on_each_history, &n);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &first, NULL), 0);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &second, NULL), 0);
    reply_range(await_asked("Range"), 10, 2);
    assert_int_equal(n, 1);
    reply_range(await_asked("Range"), 10, 2);
    assert_int_equal(n, 1);
    assert_int_equal(etcd_history(etcd).revision, 10);
}

/* ---- members ---- */

/* A client leaves a member that is down, whichever of the two members the client begins with. */
static void a_member_that_is_down_is_left(_unused_ void **state)
{
    for (size_t down = 0; down < 2; down++) {
        int64_t revision = 0;
        answers_down = down;
        open_client(answers_endpoints, NULL);
        assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &revision, NULL), 0);
        AskedCall *call = await_asked("Range");
        assert_int_equal(call->member, 1 - down);
        reply_range(call, 5, 2);
        assert_int_equal(revision, 5);
        etcd = etcd_free(etcd);
    }
}

static void a_silent_member_is_left(_unused_ void **state)
{
    int64_t revision = 0;
    open_client(answers_endpoints, NULL);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &revision, NULL), 0);
    AskedCall *first = await_asked("Range");
    const size_t silent = first->member;
    while (first->wire)
        pass_usec(USEC_PER_SEC / 10);
    AskedCall *other = await_asked("Range");
    assert_int_not_equal(other->member, silent);
    reply_range(other, 5, 2);
    assert_int_equal(revision, 5);
}

/* One slow answer does not count against a member that gives other answers. */
static void a_member_that_answers_is_kept(_unused_ void **state)
{
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/q", .value = "v"};
    int64_t revision = 0;
    open_client(answers_endpoints, NULL);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &revision, NULL), 0);
    AskedCall *slow = await_asked("Range");
    for (int i = 0; i < 8; i++) {
        assert_int_equal(etcd_txn(etcd, NULL, 0, &op, 1, on_txn, NULL, NULL), 0);
        reply_txn();
        pass_usec(USEC_PER_SEC / 2);
    }
    assert_non_null(slow->wire);
    reply_range(slow, 5, 2);
    assert_int_equal(revision, 5);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, answers_set_up, answers_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_renewal_of_two_terms_is_none),
        CASE(a_deadline_counts_from_the_send),
        CASE(a_lost_lease_is_asked_for_anew_at_once),
        CASE(a_renewal_without_an_answer_is_asked_again),
        CASE(renewals_that_fail_are_tried_before_it_runs_out),
        CASE(a_renewal_that_succeeds_forgets_the_failures),
        CASE(a_watch_that_spoke_is_looked_at_again),
        CASE(an_answer_to_another_lease_is_none),
        CASE(each_renewal_has_a_witness_of_its_own),
        CASE(a_candidate_whose_key_nobody_shows_stands_again),
        CASE(fragments_of_a_stream_that_ends_are_dropped),
        CASE(a_watch_that_was_up_does_not_wait_long),
        CASE(one_other_history_is_told_once),
        CASE(a_member_that_is_down_is_left),
        CASE(a_silent_member_is_left),
        CASE(a_member_that_answers_is_kept),
        CASE(a_watch_that_says_nothing_is_begun_anew),
        CASE(fragments_of_a_revision_are_told_at_once),
        CASE(a_watch_that_is_refused_gets_another_token),
        CASE(an_older_answer_takes_no_revision_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
