/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-parts.c - libetcd does not take a missing answer for an answer. Each call to etcd is
 * refused, times out, or is answered with nothing, with garbage or with a part of an answer. The
 * caller is never told that a key is absent, a guard failed, a lease is lost, a write is done or a
 * leader is deposed, unless etcd says so. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"

#include <string.h>

/* ---- results passed to a caller ---- */

typedef struct Heard {
    int n, r;
    bool has_result, succeeded;
    size_t n_kvs;
    char text[256];
} Heard;

static void note(Heard *heard, int r, const Error *err, bool has_result)
{
    heard->n++;
    heard->r = r;
    heard->has_result = has_result;
    (void)snprintf(heard->text, sizeof(heard->text), "%s", err->text);
}

static void on_range(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    Heard *heard = userdata;
    note(heard, r, err, range);
    heard->n_kvs = range ? range->n_kvs : 0;
}

static void on_txn(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Heard *heard = userdata;
    note(heard, r, err, result);
    heard->succeeded = result && result->succeeded;
    heard->n_kvs = result ? result->n_kvs : 0;
}

static void on_status(int r, const Error *err, const EtcdStatus *status, void *userdata)
{
    note(userdata, r, err, status);
}

static struct {
    int n_granted, n_renewed, n_lost, n_events, n_deleted, n_won, n_deposed;
} seen;

static void on_lease(EtcdLeaseState is, int64_t id, _unused_ void *userdata)
{
    seen.n_granted += is == ETCD_LEASE_GRANTED;
    seen.n_renewed += is == ETCD_LEASE_RENEWED;
    seen.n_lost += is == ETCD_LEASE_LOST;
    etcd_election_lease_changed(election, is, id);
}

static void on_events(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                      _unused_ bool initial, _unused_ void *userdata)
{
    for (size_t i = 0; i < n; i++) {
        seen.n_events++;
        seen.n_deleted += events[i].kind == ETCD_EVENT_DELETE;
    }
}

static void on_election(bool leading, _unused_ const char *key, _unused_ int64_t term,
                        _unused_ void *userdata)
{
    seen.n_won += leading;
    seen.n_deposed += !leading;
}

static void hold_lease(int64_t ttl_sec)
{
    assert_int_equal(etcd_lease_new(etcd, ttl_sec, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, ttl_sec);
}

/* ---- messages that are not answers ---- */

typedef enum NoAnswer { ENDED_WELL, NOTHING, BYTES, RESET, REFUSED, SILENCE, NO_ANSWERS } NoAnswer;

/* Replies with an empty message: all its fields have the value 0. */
static void reply_nothing(AskedCall *call)
{
    static const struct {
        const char *method;
        const ProtobufCMessageDescriptor *response;
    } all[] = {{"Range", &pb__range_response__descriptor},
               {"Txn", &pb__txn_response__descriptor},
               {"LeaseGrant", &pb__lease_grant_response__descriptor},
               {"LeaseRevoke", &pb__lease_revoke_response__descriptor},
               {"LeaseKeepAlive", &pb__lease_keep_alive_response__descriptor},
               {"Watch", &pb__watch_response__descriptor},
               {"Status", &pb__status_response__descriptor},
               {"Authenticate", &pb__authenticate_response__descriptor}};
    for (size_t i = 0; i < ELEMENTSOF(all); i++)
        if (strcmp(all[i].method, call->method) == 0) {
            ProtobufCMessage *nothing = message_unpack(all[i].response, NULL, 0);
            reply(call, nothing);
            message_free(nothing);
            return;
        }
    fail_msg("what does %s answer?", call->method);
}

static void fail_to_answer(AskedCall *call, NoAnswer how)
{
    switch (how) {
    case ENDED_WELL:
        refuse(call, WIRE_OK, "");
        break;
    case NOTHING:
        reply_nothing(call);
        break;
    case BYTES:
        babble(call);
        break;
    case RESET:
        refuse(call, WIRE_UNAVAILABLE, "Socket closed");
        break;
    case REFUSED:
        refuse(call, WIRE_PERMISSION_DENIED, "etcdserver: permission denied");
        break;
    case SILENCE:
    case NO_ANSWERS:
        while (call->wire)
            pass_usec(USEC_PER_SEC / 10);
        break;
    }
}

/* Fails each request of the call in the way `how` until the caller gets a result. Stops shortly before the call's
 * deadline of 5 s, when the client itself may give up a request that the test is about to fail. */
static void fail_until_heard(const char *method, NoAnswer how, const Heard *heard)
{
    const uint64_t begun_usec = clock_boottime_usec();
    for (int i = 0; heard->n == 0; i++) {
        assert_true(i < 200);
        if (is_asked(method) && clock_boottime_usec() < begun_usec + 4900 * USEC_PER_MSEC)
            fail_to_answer(await_asked(method), how);
        else
            pass_usec(USEC_PER_SEC / 10);
    }
}

/* ---- calls ---- */

static const EtcdOp two_ops[] = {{.kind = ETCD_GET, .key = "/p/a"},
                                 {.kind = ETCD_GET, .key = "/p/b"}};

static void ask(const char *method, Heard *heard)
{
    *heard = (Heard){0};
    if (strcmp(method, "Range") == 0)
        assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, heard, NULL), 0);
    else if (strcmp(method, "Txn") == 0)
        assert_int_equal(etcd_txn(etcd, NULL, 0, two_ops, 2, on_txn, heard, NULL), 0);
    else if (strcmp(method, "LeaseRevoke") == 0)
        assert_int_equal(etcd_revoke(etcd, 5, on_txn, heard, NULL), 0);
    else
        assert_int_equal(etcd_status(etcd, on_status, heard, NULL), 0);
}

/* A call that gets no answer ends with an error and without a result, in whichever way the answer
 * is missing. */
static void no_call_makes_an_answer_of_none(_unused_ void **state)
{
    static const char *const methods[] = {"Range", "Txn", "LeaseRevoke", "Status"};
    for (size_t i = 0; i < ELEMENTSOF(methods); i++)
        for (NoAnswer how = 0; how < NO_ANSWERS; how++) {
            Heard heard;
            const uint64_t begun_usec = clock_boottime_usec();
            open_client(answers_endpoint, NULL);
            ask(methods[i], &heard);
            fail_until_heard(methods[i], how, &heard);
            assert_int_equal(heard.n, 1);
            assert_true(heard.r < 0);
            assert_false(heard.has_result);
            assert_true(*heard.text);
            assert_true(clock_boottime_usec() < begun_usec + 6 * USEC_PER_SEC);
            close_client();
        }
}

/* A request that may be done twice is sent again, and the complete answer counts. A transaction may
 * have been done, so its failure is reported to the caller. */
static void what_may_be_asked_again_is(_unused_ void **state)
{
    static const char *const methods[] = {"Range", "Txn", "LeaseRevoke", "Status"};
    static const NoAnswer hows[] = {NOTHING, BYTES, RESET};
    for (size_t i = 0; i < ELEMENTSOF(methods); i++)
        for (size_t k = 0; k < ELEMENTSOF(hows); k++) {
            Heard heard;
            open_client(answers_endpoint, NULL);
            ask(methods[i], &heard);
            fail_to_answer(await_asked(methods[i]), hows[k]);
            const bool is_reported = strcmp(methods[i], "Txn") == 0;
            assert_int_equal(heard.n, is_reported);
            pass_usec(USEC_PER_SEC / 2);
            assert_int_equal(is_asked(methods[i]), !is_reported);
            close_client();
        }
}

/* The answer was sent, but the call did not end with OK: a member that loses its leadership may
 * have sent a result that no other member knows. */
static void an_answer_that_ends_badly_is_none(_unused_ void **state)
{
    Pb__ResponseHeader header = header_of(21, 2);
    Pb__RangeResponse none = PB__RANGE_RESPONSE__INIT;
    Pb__TxnResponse refused = PB__TXN_RESPONSE__INIT;
    Heard heard;
    none.header = refused.header = &header;
    open_client(answers_endpoint, NULL);
    ask("Range", &heard);
    reply_and_refuse(await_asked("Range"), &none.base, WIRE_UNKNOWN, "no");
    assert_true(heard.n == 1 && heard.r == -EIO && !heard.has_result);
    ask("Txn", &heard);
    reply_and_refuse(await_asked("Txn"), &refused.base, WIRE_UNAVAILABLE, "Socket closed");
    assert_true(heard.n == 1 && heard.r == -ECONNREFUSED && !heard.has_result);
    ask("Range", &heard); /* the read is sent again, and the second answer counts */
    reply_and_refuse(await_asked("Range"), &none.base, WIRE_UNAVAILABLE, "Socket closed");
    assert_int_equal(heard.n, 0);
    reply_page(22, false, "/p/a", NULL);
    assert_true(heard.n == 1 && heard.r == 0 && heard.n_kvs == 1);
}

/* ---- reads ---- */

/* A page says that there are more keys, but contains no key after which the next page would
 * begin. */
static void pages_without_a_key_are_not_the_end(_unused_ void **state)
{
    for (int n_before = 0; n_before < 2; n_before++) {
        Heard heard = {0};
        open_client(answers_endpoint, NULL);
        assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &heard, NULL), 0);
        if (n_before)
            reply_page(5, true, "/p/a", "/p/b");
        reply_page(5, true, NULL, NULL);
        assert_int_equal(heard.n, 1);
        assert_int_equal(heard.r, -EIO);
        assert_false(heard.has_result);
        assert_non_null(strstr(heard.text, "read: a part of the answer is missing"));
        close_client();
    }
}

/* If a later page of a read fails, the read returns none of the earlier pages. */
static void pages_that_fail_give_nothing(_unused_ void **state)
{
    for (NoAnswer how = 0; how < NO_ANSWERS; how++) {
        Heard heard = {0};
        open_client(answers_endpoint, NULL);
        assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &heard, NULL), 0);
        reply_page(5, true, "/p/a", "/p/b");
        fail_until_heard("Range", how, &heard);
        assert_true(heard.n == 1 && heard.r < 0 && !heard.has_result);
        close_client();
    }
}

/* ---- transactions ---- */

static void reply_results(size_t n, bool succeeded)
{
    Pb__ResponseHeader header = header_of(21, 2);
    Pb__ResponseOp empty = PB__RESPONSE_OP__INIT, *results[] = {&empty, &empty, &empty};
    Pb__TxnResponse done = PB__TXN_RESPONSE__INIT;
    done.header = &header;
    done.succeeded = succeeded;
    done.n_responses = n;
    done.responses = results;
    reply(await_asked("Txn"), &done.base);
}

/* A key that a transaction reads is reported as absent only if the transaction's results for all
 * its reads have arrived. */
static void a_transaction_without_all_its_results_is_not_known(_unused_ void **state)
{
    open_client(answers_endpoint, NULL);
    for (size_t n = 0; n <= 3; n++) {
        Heard heard;
        ask("Txn", &heard);
        reply_results(n, true);
        assert_int_equal(heard.n, 1);
        assert_int_equal(heard.r, n == 2 ? 0 : -EIO);
        assert_int_equal(heard.has_result, n == 2);
        assert_int_equal(heard.succeeded, n == 2);
        if (n != 2)
            assert_non_null(strstr(heard.text, "transaction: a part of the answer is missing"));
        assert_false(is_asked("Txn"));
    }
    Heard heard; /* a transaction whose guard failed has no results */
    ask("Txn", &heard);
    reply_results(0, false);
    assert_true(heard.r == 0 && heard.has_result && !heard.succeeded);
}

/* The first answer is lost. A caller that sends the transaction again gets only the result of the
 * second attempt, whose guard fails because of the first attempt. */
static void a_transaction_that_is_sent_again_is_another_one(_unused_ void **state)
{
    Heard first, second;
    open_client(answers_endpoint, NULL);
    ask("Txn", &first);
    fail_to_answer(await_asked("Txn"), SILENCE);
    assert_int_equal(first.r, -ETIMEDOUT);
    assert_false(first.has_result);
    ask("Txn", &second);
    reply_results(0, false);
    assert_true(second.r == 0 && second.has_result && !second.succeeded);
    assert_int_equal(first.n, 1);
    assert_int_equal(all_calls("Txn"), 2);
}

/* ---- watches ---- */

/* A list without a complete answer deletes none of the known keys. */
static void a_list_without_an_answer_deletes_nothing(_unused_ void **state)
{
    for (NoAnswer how = 0; how < NO_ANSWERS; how++) {
        memset(&seen, 0, sizeof(seen));
        open_client(answers_endpoint, NULL);
        assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
        reply_page(5, false, "/p/a", "/p/b");
        assert_int_equal(seen.n_events, 2);
        refuse(await_asked("Watch"), WIRE_UNAVAILABLE, "Socket closed");
        fail_to_answer(await_asked("Range"), how);
        reply_page(6, true, "/p/a", NULL);
        reply_page(6, true, NULL, NULL); /* an incomplete list */
        assert_int_equal(seen.n_deleted, 0);
        assert_true(etcd_watch_knows(watch, "/p/b"));
        reply_page(7, false, "/p/a", NULL);
        assert_int_equal(seen.n_deleted, 1);
        close_client();
    }
}

/* When a stream ends, no known key counts as deleted, whatever the stream's last message is. */
static void a_stream_that_ends_deletes_nothing(_unused_ void **state)
{
    for (NoAnswer how = 0; how < NO_ANSWERS; how++) {
        memset(&seen, 0, sizeof(seen));
        open_client(answers_endpoint, NULL);
        assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
        reply_page(5, false, "/p/a", "/p/b");
        fail_to_answer(await_asked("Watch"), how);
        if (how != NOTHING) {
            reply_page(6, false, "/p/a", "/p/b");
            (void)await_asked("Watch");
        }
        assert_int_equal(seen.n_events, 2);
        assert_int_equal(seen.n_deleted, 0);
        close_client();
    }
}

/* ---- leases ---- */

static void no_answer_grants_a_lease(_unused_ void **state)
{
    for (NoAnswer how = 0; how < NO_ANSWERS; how++) {
        memset(&seen, 0, sizeof(seen));
        open_client(answers_endpoint, NULL);
        assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
        for (int i = 0; i < 3; i++)
            fail_to_answer(await_asked("LeaseGrant"), how);
        assert_int_equal(etcd_lease_id(lease), 0);
        assert_int_equal(seen.n_granted, 0);
        reply_grant_of(77, 10);
        assert_int_equal(seen.n_granted, 1);
        close_client();
    }
}

/* If one of the two answers that a renewal needs is missing, however often, the lease stays held,
 * and its deadline does not move. */
static void no_answer_renews_or_loses_a_lease(_unused_ void **state)
{
    for (int of_witness = 0; of_witness < 2; of_witness++)
        for (NoAnswer how = 0; how < NO_ANSWERS; how++) {
            memset(&seen, 0, sizeof(seen));
            open_client(answers_endpoint, NULL);
            hold_lease(10);
            const uint64_t deadline_usec = etcd_lease_deadline_usec(lease);
            for (int i = 0; i < 4; i++) {
                AskedCall *alive = await_asked("LeaseKeepAlive"), *witness = await_asked("Range");
                if (of_witness) {
                    reply_keep_alive(77, 10, 2);
                    fail_to_answer(witness, how);
                } else {
                    reply_range(witness, 5, 2);
                    fail_to_answer(alive, how);
                }
                pass_usec(3 * USEC_PER_SEC);
            }
            assert_int_equal(etcd_lease_id(lease), 77);
            assert_int_equal(etcd_lease_deadline_usec(lease), deadline_usec);
            assert_int_equal(seen.n_renewed, 0);
            assert_int_equal(seen.n_lost, 0);
            assert_int_equal(seen.n_granted, 1);
            close_client();
        }
}

/* ---- elections ---- */

/* A leader keeps leading, whatever happens to its list, its stream and the renewals of its lease. */
static void no_answer_deposes_a_leader(_unused_ void **state)
{
    for (NoAnswer how = 0; how < NO_ANSWERS; how++) {
        memset(&seen, 0, sizeof(seen));
        open_client(answers_endpoint, NULL);
        hold_lease(1000);
        assert_int_equal(etcd_election_new(etcd, "/e/", "v", lease, on_election, NULL, &election),
                         0);
        reply_txn();
        reply_page(5, false, "/e/4d", NULL);
        assert_int_equal(seen.n_won, 1);
        etcd_election_change(election, "w");
        fail_to_answer(await_asked("Txn"), how);
        if (how != SILENCE) /* SILENCE has ended the stream already */
            refuse(await_asked("Watch"), WIRE_UNAVAILABLE, "Socket closed");
        fail_to_answer(await_asked("Range"), how);
        assert_int_equal(seen.n_deposed, 0);
        reply_page(6, false, "/e/4d", NULL);
        assert_int_equal(seen.n_deposed, 0);
        assert_int_equal(seen.n_won, 1);
        ASSERT_BYTES(txn_request()->success[0]->put->value, "w"); /* the value is written again */
        close_client();
    }
}

/* ---- deadlines and members ---- */

/* The call's deadline includes the time in which it waited for a token. */
static void a_call_that_waited_for_a_token_ends_in_time(_unused_ void **state)
{
    Heard heard;
    open_client(answers_endpoint, "node");
    const uint64_t begun_usec = clock_boottime_usec();
    ask("Range", &heard);
    (void)await_asked("Authenticate");
    pass_usec(2 * USEC_PER_SEC);
    reply_token("first");
    (void)await_asked("Range");
    pass_usec(2500 * USEC_PER_MSEC);
    assert_int_equal(heard.n, 0);
    pass_usec(USEC_PER_SEC);
    assert_int_equal(heard.n, 1);
    assert_int_equal(heard.r, -ETIMEDOUT);
    assert_in_range(clock_boottime_usec() - begun_usec, 5 * USEC_PER_SEC, 6 * USEC_PER_SEC);
}

/* One page was refused and then answered. The refusal is not reported as the reason why the next
 * page fails. */
static void each_page_has_its_own_reason(_unused_ void **state)
{
    Heard heard = {0};
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, &heard, NULL), 0);
    refuse(await_asked("Range"), WIRE_UNAVAILABLE, "etcdserver: no leader");
    reply_page(5, true, "/p/a", NULL);
    fail_to_answer(await_asked("Range"), SILENCE);
    pass_usec(USEC_PER_SEC);
    assert_int_equal(heard.r, -ETIMEDOUT);
    assert_string_equal(heard.text, "etcd at m0:2379: no read within 5.0 s");
}

/* The client does not return to a member that it has left, even when that member may be used again. */
static void a_client_stays_with_the_member_that_it_went_to(_unused_ void **state)
{
    Heard heard;
    open_client(answers_endpoints, NULL);
    ask("Range", &heard);
    AskedCall *first = await_asked("Range");
    const size_t left = first->member;
    refuse(first, WIRE_UNAVAILABLE, "etcdserver: no leader");
    reply_range(await_asked("Range"), 5, 2);
    for (int i = 0; i < 3; i++) {
        pass_usec(2 * USEC_PER_SEC);
        ask("Range", &heard);
        assert_int_not_equal(await_asked("Range")->member, left);
        reply_range(await_asked("Range"), 5, 2);
    }
}

/* The client leaves a silent member after a third of the deadline (plus the interval between two
 * checks), however many requests it sends to the member meanwhile. */
static void who_is_silent_is_left_while_it_is_asked(_unused_ void **state)
{
    enum { READS = 25 };
    Heard heard[READS];
    open_client(answers_endpoints, NULL);
    for (int i = 0; i < READS; i++) {
        ask("Range", &heard[i]);
        pass_usec(USEC_PER_SEC / 10);
    }
    assert_true(all_calls("Range") > READS);
}

/* A caller that cancels a revocation gets no result. */
static void a_revocation_can_be_taken_back(_unused_ void **state)
{
    Heard heard = {0};
    EtcdCall *call = NULL;
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_revoke(etcd, 5, on_txn, &heard, &call), 0);
    (void)await_asked("LeaseRevoke");
    assert_non_null(call);
    call = etcd_call_free(call);
    pass_usec(10 * USEC_PER_SEC);
    assert_int_equal(open_calls(NULL), 0);
    assert_int_equal(heard.n, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, answers_set_up, answers_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(no_call_makes_an_answer_of_none),
        CASE(what_may_be_asked_again_is),
        CASE(an_answer_that_ends_badly_is_none),
        CASE(pages_without_a_key_are_not_the_end),
        CASE(pages_that_fail_give_nothing),
        CASE(a_transaction_without_all_its_results_is_not_known),
        CASE(a_transaction_that_is_sent_again_is_another_one),
        CASE(a_list_without_an_answer_deletes_nothing),
        CASE(a_stream_that_ends_deletes_nothing),
        CASE(no_answer_grants_a_lease),
        CASE(no_answer_renews_or_loses_a_lease),
        CASE(no_answer_deposes_a_leader),
        CASE(a_call_that_waited_for_a_token_ends_in_time),
        CASE(each_page_has_its_own_reason),
        CASE(a_client_stays_with_the_member_that_it_went_to),
        CASE(who_is_silent_is_left_while_it_is_asked),
        CASE(a_revocation_can_be_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
