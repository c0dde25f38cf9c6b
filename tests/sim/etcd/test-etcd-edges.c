/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-edges.c - cases at the limits of calls and leases: which call requests a token and with
 * which credentials, results without a message, limits, and which member gets a request. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"
#include "tests/sim/seams/loop.h"

#include <string.h>

/* The result passed to the handler of a call. */
typedef struct Heard {
    int n, r;
    bool has_result, succeeded;
    int64_t revision;
    size_t n_kvs;
    char keys[4][8], text[256];
} Heard;

static void note(Heard *heard, int r, const Error *err)
{
    heard->n++;
    heard->r = r;
    (void)snprintf(heard->text, sizeof(heard->text), "%s", err->text);
}

static void on_range(int r, const Error *err, const EtcdRange *range, void *userdata)
{
    note(userdata, r, err);
    ((Heard *)userdata)->has_result = range;
}

static void on_txn(int r, const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Heard *heard = userdata;
    note(heard, r, err);
    heard->has_result = result;
    heard->succeeded = result && result->succeeded;
    heard->revision = result ? result->revision : -1;
    heard->n_kvs = result ? result->n_kvs : 0;
    for (size_t i = 0; i < heard->n_kvs; i++)
        (void)snprintf(heard->keys[i], sizeof(heard->keys[i]), "%s", result->kvs[i].key);
}

static void get(Heard *heard)
{
    *heard = (Heard){0};
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, heard, NULL), 0);
}

static int n_lost;

static void on_lease(EtcdLeaseState is, _unused_ int64_t id, _unused_ void *userdata)
{
    n_lost += is == ETCD_LEASE_LOST;
}

static void hold_lease(int64_t ttl_sec)
{
    assert_int_equal(etcd_lease_new(etcd, ttl_sec, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, ttl_sec);
}

/* ---- tokens ---- */

static void a_token_is_asked_for_with_name_and_password(_unused_ void **state)
{
    Heard heard;
    open_client(answers_endpoint, "node");
    get(&heard);
    const AskedCall *asked = await_asked("Authenticate");
    const Pb__AuthenticateRequest *request = (Pb__AuthenticateRequest *)asked->request;
    assert_string_equal(request->name, "node");
    assert_string_equal(request->password, "secret");
    assert_string_equal(asked->token, "");
    reply_token("first");
    assert_string_equal(await_asked("Range")->token, "first");
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(heard.r, 0);
}

/* A request for a token changes nothing, so it is repeated on another member if a member accepts no
 * connection or has no leader. */
static void a_token_is_asked_for_on_another_member(_unused_ void **state)
{
    Heard heard;
    open_client(answers_endpoints, "node");
    get(&heard);
    AskedCall *first = await_asked("Authenticate");
    const size_t member = first->member;
    refuse(first, WIRE_UNAVAILABLE, "etcdserver: request timed out");
    assert_int_equal(heard.n, 0);
    assert_int_not_equal(await_asked("Authenticate")->member, member);
    reply_token("first");
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(heard.r, 0);
}

/* A call stops waiting for a token at its own deadline; a call with a later deadline continues. */
static void a_call_does_not_wait_for_a_token_for_ever(_unused_ void **state)
{
    Heard first, second;
    open_client(answers_endpoint, "node");
    get(&first);
    pass_usec(2 * USEC_PER_SEC);
    get(&second);
    pass_usec(3500 * USEC_PER_MSEC);
    assert_int_equal(first.n, 1);
    assert_int_equal(first.r, -ETIMEDOUT);
    assert_int_equal(all_calls("Range"), 0);
    if (second.n == 0) { /* false if the member's silence has ended this call, too */
        reply_token("first");
        reply_range(await_asked("Range"), 5, 2);
        assert_int_equal(second.r, 0);
    } else
        assert_int_equal(second.r, -ETIMEDOUT);
}

/* Each refusal is tested on a client without a user, and on a client that gets a new token each
 * time. Two of these refusals make the client request another token. A refusal that stays is
 * reported. */
static void a_refusal_that_stays_is_told(_unused_ void **state)
{
    static const struct {
        WireCode code;
        const char *text;
        int r;
        size_t n_tries;
    } all[] = {
        {WIRE_UNAUTHENTICATED, "etcdserver: invalid auth token", -EACCES, 4},
        {WIRE_INVALID_ARGUMENT, "etcdserver: user name is empty", -EACCES, 4},
        {WIRE_INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password",
         -EACCES, 1},
        {WIRE_PERMISSION_DENIED, "etcdserver: permission denied", -EACCES, 1},
        {WIRE_UNAUTHENTICATED, "who are you", -EACCES, 1},
    };
    for (size_t i = 0; i < 2 * ELEMENTSOF(all); i++) {
        Heard heard;
        const bool has_user = i % 2;
        const size_t n_before = all_calls("Range");
        open_client(answers_endpoint, has_user ? "node" : NULL);
        get(&heard);
        for (int n = 0; heard.n == 0; n++) {
            assert_true(n < 5);
            if (has_user && (n == 0 || all[i / 2].n_tries > 1))
                reply_token("again");
            refuse(await_asked("Range"), all[i / 2].code, all[i / 2].text);
            pass_usec(200 * USEC_PER_MSEC);
        }
        assert_int_equal(heard.r, all[i / 2].r);
        assert_int_equal(all_calls("Range") - n_before, all[i / 2].n_tries);
        assert_non_null(strstr(heard.text, all[i / 2].text));
        etcd = etcd_free(etcd);
    }
}

static void on_status(int r, const Error *err, const EtcdStatus *status, void *userdata)
{
    note(userdata, r, err);
    ((Heard *)userdata)->has_result = status;
    ((Heard *)userdata)->revision = status ? (int64_t)status->member : -1;
}

/* A status request needs no token, because a member without a quorum cannot give a token. */
static void a_status_needs_no_token(_unused_ void **state)
{
    Heard heard = {0};
    Pb__ResponseHeader header = header_of(5, 2);
    Pb__StatusResponse status = PB__STATUS_RESPONSE__INIT;
    status.header = &header;
    open_client(answers_endpoint, "node");
    assert_int_equal(etcd_status(etcd, on_status, &heard, NULL), 0);
    assert_string_equal(await_asked("Status")->token, "");
    assert_int_equal(all_calls("Authenticate"), 0);
    refuse(await_asked("Status"), WIRE_UNAVAILABLE, "Socket closed");
    assert_int_equal(heard.n, 0);
    reply(await_asked("Status"), &status.base);
    assert_int_equal(heard.n, 1);
    assert_true(heard.r == 0 && heard.has_result && heard.revision == 0);
    assert_int_equal(etcd_status(etcd, on_status, &heard, NULL), 0);
    refuse(await_asked("Status"), WIRE_UNAUTHENTICATED, "etcdserver: invalid auth token");
    assert_int_equal(heard.n, 2); /* there was no token to replace */
    assert_true(heard.r == -EACCES && !heard.has_result);
}

/* ---- transactions ---- */

static void what_is_too_large_or_without_a_key_is_not_asked(_unused_ void **state)
{
    EtcdCompare compares[121];
    EtcdOp ops[121];
    Heard heard = {0};
    open_client(answers_endpoint, NULL);
    for (size_t i = 0; i < 121; i++) {
        compares[i] = (EtcdCompare){.key = "/k", .target = ETCD_VERSION};
        ops[i] = (EtcdOp){.kind = ETCD_GET, .key = "/k"};
    }
    assert_int_equal(etcd_txn(etcd, compares, 121, ops, 1, on_txn, &heard, NULL), -E2BIG);
    assert_int_equal(etcd_txn(etcd, compares, 1, ops, 121, on_txn, &heard, NULL), -E2BIG);
    for (size_t at = 0; at < 3; at++) {
        compares[at].key = "";
        assert_int_equal(etcd_txn(etcd, compares, 3, ops, 3, on_txn, &heard, NULL), -EINVAL);
        compares[at].key = "/k";
        ops[at].key = "";
        assert_int_equal(etcd_txn(etcd, compares, 3, ops, 3, on_txn, &heard, NULL), -EINVAL);
        /* an empty prefix would delete all keys */
        ops[at] = (EtcdOp){.kind = ETCD_DELETE_PREFIX, .key = ""};
        assert_int_equal(etcd_txn(etcd, compares, 3, ops, 3, on_txn, &heard, NULL), -EINVAL);
        ops[at] = (EtcdOp){.kind = ETCD_GET, .key = "/k"};
    }
    assert_int_equal(all_calls("Txn"), 0);
    assert_int_equal(heard.n, 0);
    assert_int_equal(etcd_txn(etcd, compares, 120, ops, 120, on_txn, &heard, NULL), 0);
    assert_int_equal(txn_request()->n_compare, 120);
    assert_int_equal(txn_request()->n_success, 120);
    reply_txn();
    assert_int_equal(heard.r, 0);
}

/* The result contains the keys that each read of the transaction found, in the order of the reads;
 * the other operations add nothing. */
static void a_transaction_hands_out_what_it_read(_unused_ void **state)
{
    const EtcdOp ops[] = {{.kind = ETCD_GET, .key = "/a"},
                          {.kind = ETCD_PUT, .key = "/p"},
                          {.kind = ETCD_GET, .key = "/n"},
                          {.kind = ETCD_GET, .key = "/c"}};
    Heard heard = {0};
    Pb__ResponseHeader header = header_of(21, 2);
    Pb__KeyValue of[3], *kvs[] = {&of[0], &of[1], &of[2]};
    Pb__RangeResponse two = PB__RANGE_RESPONSE__INIT, none = two, one = two;
    Pb__PutResponse put = PB__PUT_RESPONSE__INIT;
    Pb__ResponseOp made[4], *list[] = {&made[0], &made[1], &made[2], &made[3]};
    Pb__TxnResponse done = PB__TXN_RESPONSE__INIT;
    static const char *const keys[] = {"/a", "/b", "/c"};
    for (size_t i = 0; i < 3; i++) {
        of[i] = (Pb__KeyValue)PB__KEY_VALUE__INIT;
        of[i].key = (ProtobufCBinaryData){.data = (uint8_t *)keys[i], .len = 2};
    }
    two.n_kvs = 2;
    two.kvs = kvs;
    one.n_kvs = 1;
    one.kvs = &kvs[2];
    for (size_t i = 0; i < 4; i++) {
        made[i] = (Pb__ResponseOp)PB__RESPONSE_OP__INIT;
        made[i].response_case = PB__RESPONSE_OP__RESPONSE_RANGE;
    }
    made[0].range = &two;
    made[1].response_case = PB__RESPONSE_OP__RESPONSE_PUT;
    made[1].put = &put;
    made[2].range = &none;
    made[3].range = &one;
    done.n_responses = 4;
    done.responses = list;
    open_client(answers_endpoint, NULL);
    done.header = &header;
    for (int i = 0; i < 2; i++) {
        done.succeeded = i == 1;
        assert_int_equal(etcd_txn(etcd, NULL, 0, ops, 4, on_txn, &heard, NULL), 0);
        reply(await_asked("Txn"), &done.base);
        assert_int_equal(heard.n, i + 1);
        assert_int_equal(heard.succeeded, i == 1);
        assert_int_equal(heard.revision, 21);
        assert_int_equal(heard.n_kvs, 3);
        for (size_t k = 0; k < 3; k++)
            assert_string_equal(heard.keys[k], keys[k]);
    }
    assert_int_equal(etcd_txn(etcd, NULL, 0, ops, 4, on_txn, &heard, NULL), 0);
    refuse(await_asked("Txn"), WIRE_UNKNOWN, "no");
    assert_true(heard.r == -EIO && !heard.has_result);
}

/* A member that ends a request with OK, but without a message, has not answered it. */
static void no_answer_is_none(_unused_ void **state)
{
    static const char *const methods[] = {"Range", "Txn", "LeaseRevoke", "Status"};
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/a"};
    for (size_t i = 0; i < ELEMENTSOF(methods); i++) {
        Heard heard = {0};
        open_client(answers_endpoint, NULL);
        hold_lease(1000);
        if (i == 0)
            get(&heard);
        else if (i == 1)
            assert_int_equal(etcd_txn(etcd, NULL, 0, &op, 1, on_txn, &heard, NULL), 0);
        else if (i == 2)
            assert_int_equal(etcd_lease_revoke(lease, on_txn, &heard, NULL), 0);
        else
            assert_int_equal(etcd_status(etcd, on_status, &heard, NULL), 0);
        refuse(await_asked(methods[i]), WIRE_OK, "");
        assert_int_equal(heard.n, 1);
        assert_int_equal(heard.r, -EIO);
        assert_false(heard.has_result);
        assert_non_null(strstr(heard.text, "no answer"));
        close_client();
    }
    Heard heard;
    open_client(answers_endpoint, "node");
    get(&heard);
    refuse(await_asked("Authenticate"), WIRE_OK, "");
    assert_int_equal(heard.r, -EIO); /* an empty answer is not a token */
    get(&heard);
    reply_token("first");
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(heard.r, 0);
}

/* ---- members ---- */

/* The error text says what was requested of which member, and for how long. */
static void a_call_that_nobody_answers_ends_at_its_deadline(_unused_ void **state)
{
    const EtcdOp op = {.kind = ETCD_GET, .key = "/a"};
    Heard heard = {0};
    open_client(answers_endpoint, NULL);
    for (int i = 0; i < 2; i++) {
        const uint64_t begun_usec = clock_boottime_usec();
        if (i == 0)
            get(&heard);
        else
            assert_int_equal(etcd_txn(etcd, NULL, 0, &op, 1, on_txn, &heard, NULL), 0);
        while (heard.n <= i && clock_boottime_usec() < begun_usec + 20 * USEC_PER_SEC)
            pass_usec(10 * USEC_PER_MSEC);
        assert_int_equal(heard.n, i + 1);
        assert_int_equal(heard.r, -ETIMEDOUT);
        assert_string_equal(heard.text, i ? "etcd at m0:2379: no transaction within 5.0 s"
                                          : "etcd at m0:2379: no read within 5.0 s");
        assert_in_range(clock_boottime_usec() - begun_usec, 4900 * USEC_PER_MSEC,
                        5200 * USEC_PER_MSEC);
    }
}

/* The client leaves a member that is silent for a third of the deadline, however many other requests
 * begin meanwhile. */
static void a_busy_client_leaves_a_silent_member(_unused_ void **state)
{
    enum { READS = 18 };
    Heard heard[READS];
    open_client(answers_endpoints, NULL);
    for (int i = 0; i < READS; i++) {
        get(&heard[i]);
        pass_usec(100 * USEC_PER_MSEC);
    }
    pass_usec(400 * USEC_PER_MSEC);
    assert_true(all_calls("Range") > READS); /* all reads are sent again, to the other member */
    assert_int_equal(open_calls("Range"), READS);
    for (int i = 0; i < READS; i++)
        reply_range(await_asked("Range"), 5, 2);
    for (int i = 0; i < READS; i++)
        assert_true(heard[i].n == 1 && heard[i].r == 0);
}

/* Clients with the same list of members do not all begin with the same member. */
static void clients_begin_with_different_members(_unused_ void **state)
{
    int n[2] = {0};
    for (int i = 0; i < 20; i++) {
        Heard heard;
        open_client(answers_endpoints, NULL);
        get(&heard);
        n[await_asked("Range")->member]++;
        reply_range(await_asked("Range"), 5, 2);
        etcd = etcd_free(etcd);
    }
    assert_true(n[0] > 2 && n[1] > 2);
}

static void a_client_that_waits_for_nothing_sleeps(_unused_ void **state)
{
    Heard heard;
    int n = 0;
    open_client(answers_endpoints, NULL);
    get(&heard);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(heard.r, 0);
    const uint64_t until_usec = loops_now_usec() + 60 * USEC_PER_SEC;
    while (loops_run(until_usec))
        n++;
    assert_in_range(n, 0,
                    3); /* the client may still check a few times whether the member is silent */
}

/* ---- leases ---- */

static void a_revocation_tells_what_came_of_it(_unused_ void **state)
{
    Pb__ResponseHeader header = header_of(33, 2);
    for (int i = 0; i < 4; i++) {
        Heard heard = {0};
        Pb__LeaseRevokeResponse done = PB__LEASE_REVOKE_RESPONSE__INIT;
        open_client(answers_endpoint, NULL);
        hold_lease(1000);
        assert_int_equal(etcd_lease_revoke(lease, i == 3 ? NULL : on_txn, &heard, NULL), 0);
        assert_int_equal(((Pb__LeaseRevokeRequest *)await_asked("LeaseRevoke")->request)->id, 77);
        refuse(await_asked("LeaseRevoke"), WIRE_UNAVAILABLE,
               "Socket closed"); /* a second revocation does no harm */
        assert_int_equal(heard.n, 0);
        done.header = &header;
        if (i == 2)
            refuse(await_asked("LeaseRevoke"), WIRE_NOT_FOUND,
                   "etcdserver: requested lease not found");
        else
            reply(await_asked("LeaseRevoke"), &done.base);
        assert_int_equal(heard.n, i < 3);
        assert_int_equal(heard.r, i == 2 ? -ESTALE : 0);
        assert_int_equal(heard.has_result, i < 2);
        assert_int_equal(heard.succeeded, i < 2);
        assert_int_equal(heard.revision, i == 2 ? -1 : i == 3 ? 0 : 33);
        close_client();
    }
}

static void on_request(_unused_ const char *method, int r, _unused_ uint64_t took_usec,
                       void *userdata)
{
    assert_int_equal(r, 0);
    ++*(int *)userdata;
}

/* A grant is requested twice, and either try may be answered: the TTL counts from the try that was answered. */
static void a_grant_counts_from_its_own_try(_unused_ void **state)
{
    int n_requests = 0;
    open_client(answers_endpoints, NULL);
    etcd_set_observer(etcd, on_request, &n_requests);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    (void)await_asked("LeaseGrant");
    pass_usec(USEC_PER_SEC);
    refuse(await_asked("LeaseGrant"), WIRE_UNAVAILABLE, "etcdserver: request timed out");
    (void)await_asked("LeaseGrant");
    const uint64_t now_usec = clock_boottime_usec();
    pass_usec(USEC_PER_SEC);
    reply_grant_of(77, 10);
    assert_int_equal(n_requests, 1); /* both tries count as one request */
    assert_in_range(etcd_lease_deadline_usec(lease), now_usec + 9900 * USEC_PER_MSEC,
                    now_usec + 10 * USEC_PER_SEC);
    (void)await_asked("LeaseKeepAlive");
    assert_in_range(clock_boottime_usec(), now_usec + 2400 * USEC_PER_MSEC,
                    now_usec + 2600 * USEC_PER_MSEC);
}

/* A loss is reported once, and there is no lease until another lease is granted. */
static void a_lost_lease_is_none(_unused_ void **state)
{
    open_client(answers_endpoint, NULL);
    n_lost = 0;
    hold_lease(100);
    assert_int_equal(etcd_lease_id(lease), 77);
    reply_keep_alive(77, 0, 2);
    assert_int_equal(n_lost, 0); /* the witness has not answered yet */
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(n_lost, 1);
    assert_int_equal(etcd_lease_id(lease), 0);
    refuse(await_asked("LeaseGrant"), WIRE_UNKNOWN, "no");
    assert_int_equal(etcd_lease_id(lease), 0);
    reply_grant_of(78, 50);
    assert_int_equal(etcd_lease_id(lease), 78);
    assert_int_equal(etcd_lease_ttl_sec(lease), 50);
    assert_int_equal(((Pb__LeaseKeepAliveRequest *)await_asked("LeaseKeepAlive")->request)->id, 78);
    assert_int_equal(n_lost, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, answers_set_up, answers_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_token_is_asked_for_with_name_and_password),
        CASE(a_token_is_asked_for_on_another_member),
        CASE(a_call_does_not_wait_for_a_token_for_ever),
        CASE(a_refusal_that_stays_is_told),
        CASE(a_status_needs_no_token),
        CASE(what_is_too_large_or_without_a_key_is_not_asked),
        CASE(a_transaction_hands_out_what_it_read),
        CASE(no_answer_is_none),
        CASE(a_call_that_nobody_answers_ends_at_its_deadline),
        CASE(a_busy_client_leaves_a_silent_member),
        CASE(clients_begin_with_different_members),
        CASE(a_revocation_tells_what_came_of_it),
        CASE(a_grant_counts_from_its_own_try),
        CASE(a_lost_lease_is_none),
        CASE(a_client_that_waits_for_nothing_sleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
