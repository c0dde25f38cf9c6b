/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-refusals.c - how libetcd handles a refusal: whether it retries, on which member, with
 * which token, after which pause, and what it reports to its caller. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"
#include "tests/sim/seams/wire.h"

#include <string.h>

typedef struct Seen {
    bool came;
    int r;
    char text[256];
} Seen;

static void on_range(int r, const Error *err, _unused_ const EtcdRange *range, void *userdata)
{
    Seen *seen = userdata;
    assert_false(seen->came);
    *seen = (Seen){.came = true, .r = r};
    (void)snprintf(seen->text, sizeof(seen->text), "%s", err->text);
}

static void on_txn(int r, const Error *err, _unused_ const EtcdTxnResult *result, void *userdata)
{
    on_range(r, err, NULL, userdata);
}

static void get(Seen *seen)
{
    *seen = (Seen){0};
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, seen, NULL), 0);
}

static void put(Seen *seen)
{
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/p/a", .value = "v"};
    *seen = (Seen){0};
    assert_int_equal(etcd_txn(etcd, NULL, 0, &op, 1, on_txn, seen, NULL), 0);
}

static void on_events(_unused_ const EtcdEvent *events, _unused_ size_t n,
                      _unused_ int64_t revision, _unused_ bool initial, _unused_ void *userdata)
{
}

static void on_lease(_unused_ EtcdLeaseState is, _unused_ int64_t id, void *userdata)
{
    if (userdata && election)
        etcd_election_lease_changed(election, is, id);
}

static void on_election(_unused_ bool leading, _unused_ const char *key, _unused_ int64_t term,
                        _unused_ void *userdata)
{
}

/* ---- tokens ---- */

/* etcd's texts for a token that is not valid any more: the token has expired, users have changed,
 * or the member was restarted later. */
static const struct {
    WireCode code;
    const char *text;
} stale[] = {
    {WIRE_UNAUTHENTICATED, "etcdserver: invalid auth token"},
    {WIRE_INVALID_ARGUMENT, "etcdserver: revision of auth store is old"},
    {WIRE_INVALID_ARGUMENT, "etcdserver: user name is empty"},
};

static void a_token_that_is_no_good_any_more_is_replaced(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(stale); i++) {
        Seen read, written;
        open_client(answers_endpoint, "node");
        get(&read);
        reply_token("first");
        refuse(await_asked("Range"), stale[i].code, stale[i].text);
        assert_false(read.came);
        reply_token("second");
        assert_string_equal(await_asked("Range")->token, "second");
        reply_range(await_asked("Range"), 5, 2);
        assert_true(read.came && read.r == 0);
        put(&written); /* the write was not processed, so it may be sent again */
        refuse(await_asked("Txn"), stale[i].code, stale[i].text);
        assert_false(written.came);
        reply_token("third");
        assert_string_equal(await_asked("Txn")->token, "third");
        reply_txn();
        assert_true(written.came && written.r == 0);
        etcd = etcd_free(etcd);
    }
}

static void a_stream_whose_token_is_no_good_gets_another(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(stale); i++) {
        open_client(answers_endpoint, "node");
        assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
        reply_token("first");
        reply_range(await_asked("Range"), 5, 2);
        refuse(await_asked("Watch"), stale[i].code, stale[i].text);
        reply_token("second");
        assert_string_equal(await_asked("Range")->token, "second");
        watch = etcd_watch_free(watch);
        assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
        reply_grant_of(77, 10);
        refuse(await_asked("LeaseKeepAlive"), stale[i].code, stale[i].text);
        reply_token("third");
        assert_string_equal(await_asked("LeaseKeepAlive")->token, "third");
        lease = etcd_lease_free(lease);
        etcd = etcd_free(etcd);
    }
}

/* Members may refuse each new token: then the call ends instead of retrying for ever. */
static void tokens_that_are_all_refused_end_the_call(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoint, "node");
    const uint64_t begun_usec = clock_boottime_usec();
    get(&seen);
    while (!seen.came) {
        reply_token("again");
        refuse(await_asked("Range"), stale[0].code, stale[0].text);
    }
    assert_int_equal(seen.r, -EACCES);
    assert_int_equal(all_calls("Range"), 4);
    assert_true(clock_boottime_usec() < begun_usec + 2 * USEC_PER_SEC);
}

/* Another token would not give the user the missing right, so the refusal is reported at once. */
static void what_a_user_may_not_do_is_told_at_once(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoint, "node");
    get(&seen);
    reply_token("first");
    refuse(await_asked("Range"), WIRE_PERMISSION_DENIED, "etcdserver: permission denied");
    assert_true(seen.came);
    assert_int_equal(seen.r, -EACCES);
    assert_non_null(strstr(seen.text, "permission denied"));
    get(&seen);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(seen.r, 0);
    assert_int_equal(all_calls("Authenticate"), 1);
}

/* All waiting calls get the error, and the next call requests a token again. */
static void a_wrong_password_is_told_to_all_who_wait(_unused_ void **state)
{
    Seen seen[3];
    open_client(answers_endpoint, "node");
    for (size_t i = 0; i < ELEMENTSOF(seen); i++)
        get(&seen[i]);
    refuse(await_asked("Authenticate"), WIRE_INVALID_ARGUMENT,
           "etcdserver: authentication failed, invalid user ID or password");
    for (size_t i = 0; i < ELEMENTSOF(seen); i++) {
        assert_true(seen[i].came);
        assert_int_equal(seen[i].r, -EACCES);
    }
    assert_int_equal(all_calls("Authenticate"), 1);
    get(&seen[0]);
    reply_token("first");
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(seen[0].r, 0);
}

static int n_asked_at_once;

static void on_refused(int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                       _unused_ void *userdata)
{
    if (r == 0)
        return;
    assert_true(++n_asked_at_once < 10);
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_refused, NULL, NULL), 0);
}

/* A call that begins in the handler of a refused call waits for the next token request. */
static void who_asks_again_when_refused_waits_for_the_next_token(_unused_ void **state)
{
    open_client(answers_endpoint, "node");
    n_asked_at_once = 0;
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_refused, NULL, NULL), 0);
    refuse(await_asked("Authenticate"), WIRE_INVALID_ARGUMENT,
           "etcdserver: authentication failed, invalid user ID or password");
    assert_int_equal(n_asked_at_once, 1);
    reply_token("first");
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(n_asked_at_once, 1);
}

static void a_server_without_users_needs_no_token(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoint, "node");
    for (int i = 0; i < 2; i++) {
        get(&seen);
        if (i == 0)
            refuse(await_asked("Authenticate"), WIRE_FAILED_PRECONDITION,
                   "etcdserver: authentication is not enabled");
        assert_string_equal(await_asked("Range")->token, "");
        reply_range(await_asked("Range"), 5, 2);
        assert_int_equal(seen.r, 0);
    }
    assert_int_equal(all_calls("Authenticate"), 1);
}

/* One request for a token serves all waiting calls. */
static void a_token_is_asked_for_once(_unused_ void **state)
{
    Seen seen[3];
    open_client(answers_endpoint, "node");
    for (size_t i = 0; i < ELEMENTSOF(seen); i++)
        get(&seen[i]);
    reply_token("first");
    assert_int_equal(open_calls("Range"), 3);
    for (size_t i = 0; i < ELEMENTSOF(seen); i++)
        reply_range(await_asked("Range"), 5, 2);
    for (size_t i = 0; i < ELEMENTSOF(seen); i++)
        assert_int_equal(seen[i].r, 0);
    assert_int_equal(all_calls("Authenticate"), 1);
}

/* ---- which refusals are reported, and which are retried ---- */

/* The result of a read and the result of a write for each refusal; AGAIN: the client sends the
 * request again. */
enum { AGAIN = 1 };
static const struct {
    WireCode code;
    const char *text;
    int read, written;
} answers[] = {
    /* no leader has processed the request */
    {WIRE_UNAVAILABLE, "etcdserver: no leader", AGAIN, AGAIN},
    {WIRE_UNAVAILABLE, "etcdserver: request timed out", AGAIN, -ETIMEDOUT},
    {WIRE_UNAVAILABLE, "etcdserver: leader changed", AGAIN, -ETIMEDOUT},
    {WIRE_UNAVAILABLE, "Socket closed", AGAIN, -ECONNREFUSED},
    {WIRE_INTERNAL, "stream error", AGAIN, -EIO},
    {WIRE_ABORTED, "aborted", AGAIN, -EIO},
    {WIRE_OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted", -ESTALE, -ESTALE},
    {WIRE_NOT_FOUND, "etcdserver: requested lease not found", -ESTALE, -ESTALE},
    {WIRE_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", -EIO, -EIO},
    {WIRE_INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request", -EIO, -EIO},
    {WIRE_UNKNOWN, "what", -EIO, -EIO},
};

static void check_answer(const Seen *seen, const char *method, int wanted, const char *text)
{
    if (wanted == AGAIN) {
        assert_false(seen->came);
        if (strcmp(method, "Txn") == 0)
            reply_txn();
        else
            reply_range(await_asked(method), 5, 2);
        assert_true(seen->came && seen->r == 0);
        return;
    }
    pass_usec(USEC_PER_SEC);
    assert_true(seen->came);
    assert_int_equal(seen->r, wanted);
    assert_false(is_asked(method));
    assert_non_null(strstr(seen->text, text)); /* people should read etcd's own text */
}

static void each_answer_has_its_meaning(_unused_ void **state)
{
    for (size_t i = 0; i < ELEMENTSOF(answers); i++) {
        Seen seen;
        open_client(answers_endpoint, NULL);
        get(&seen);
        refuse(await_asked("Range"), answers[i].code, answers[i].text);
        check_answer(&seen, "Range", answers[i].read, answers[i].text);
        put(&seen);
        refuse(await_asked("Txn"), answers[i].code, answers[i].text);
        check_answer(&seen, "Txn", answers[i].written, answers[i].text);
        etcd = etcd_free(etcd);
    }
}

/* A call reports its last refusal when its deadline passes. */
static void a_call_that_is_refused_until_its_deadline_says_why(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoint, NULL);
    const uint64_t begun_usec = clock_boottime_usec();
    get(&seen);
    while (!seen.came) {
        if (is_asked("Range"))
            refuse(await_asked("Range"), WIRE_UNAVAILABLE, "etcdserver: no leader");
        pass_usec(10 * USEC_PER_MSEC);
    }
    assert_int_equal(seen.r, -ETIMEDOUT);
    assert_non_null(strstr(seen.text, "lastly: "));
    assert_non_null(strstr(seen.text, "no leader"));
    const uint64_t took_usec = clock_boottime_usec() - begun_usec;
    assert_in_range(took_usec, 4900 * USEC_PER_MSEC, 5100 * USEC_PER_MSEC);
    assert_in_range(all_calls("Range"), 10, 60); /* pauses of 100 ms and more */
}

/* After an answer of bytes that are not a message, a read is sent again, a write fails (it may have
 * been done), and a stream ends. */
static void bytes_that_are_no_message_end_what_they_answer(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoint, NULL);
    get(&seen);
    babble(await_asked("Range"));
    assert_false(seen.came);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(seen.r, 0);
    put(&seen);
    babble(await_asked("Txn"));
    assert_int_equal(seen.r, -EIO);
    assert_non_null(strstr(seen.text, "not an etcd message"));
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    babble(await_asked("Watch"));
    assert_int_equal(open_calls("Watch"), 0);
    reply_range(await_asked("Range"), 5, 2);
    watch = etcd_watch_free(watch);
    assert_int_equal(etcd_lease_new(etcd, 100, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, 100);
    AskedCall *stream = await_asked("LeaseKeepAlive");
    babble(stream);
    assert_null(stream->wire);
    (void)await_asked("LeaseKeepAlive");
    assert_int_equal(open_calls("LeaseKeepAlive"), 1);
}

/* ---- members ---- */

/* The member answers other calls, so it does not count as silent. But one read gets no answer until
 * its deadline: the next read goes to another member. */
static void a_member_that_kept_a_call_waiting_is_left(_unused_ void **state)
{
    Seen slow, other;
    open_client(answers_endpoints, NULL);
    get(&slow);
    const size_t member = await_asked("Range")->member;
    while (!slow.came) {
        put(&other);
        assert_int_equal(await_asked("Txn")->member, member);
        reply_txn();
        pass_usec(USEC_PER_SEC / 2);
    }
    assert_int_equal(slow.r, -ETIMEDOUT);
    assert_non_null(strstr(slow.text, "no read within 5.0 s"));
    assert_int_equal(all_calls("Range"), 1);
    get(&slow);
    assert_int_not_equal(await_asked("Range")->member, member);
}

static size_t refuse_one(const char *method, const char *text)
{
    AskedCall *call = await_asked(method);
    const size_t member = call->member;
    refuse(call, WIRE_UNAVAILABLE, text);
    return member;
}

/* A member without a leader gets neither the refused call again nor the calls of the next second. */
static void a_member_without_a_leader_is_left_for_a_while(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoints, NULL);
    get(&seen);
    const size_t lost = refuse_one("Range", "etcdserver: no leader");
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(await_asked("Range")->member, lost);
        reply_range(await_asked("Range"), 5, 2);
        assert_true(seen.came && seen.r == 0);
        get(&seen);
        pass_usec(200 * USEC_PER_MSEC);
    }
}

static void a_stream_that_its_member_ends_goes_to_another(_unused_ void **state)
{
    open_client(answers_endpoints, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    const size_t lost = refuse_one("Watch", "etcdserver: no leader");
    assert_int_not_equal(await_asked("Range")->member, lost);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_not_equal(await_asked("Watch")->member, lost);
}

/* The member has refused a request, but works: the client stays with the member. */
static void an_answer_that_says_no_leaves_no_member(_unused_ void **state)
{
    static const struct {
        WireCode code;
        const char *text;
    } no[] = {{WIRE_PERMISSION_DENIED, "etcdserver: permission denied"},
              {WIRE_OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"},
              {WIRE_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"}};
    Seen seen;
    open_client(answers_endpoints, NULL);
    get(&seen);
    const size_t member = await_asked("Range")->member;
    for (size_t i = 0; i < ELEMENTSOF(no); i++) {
        refuse(await_asked("Range"), no[i].code, no[i].text);
        assert_true(seen.came && seen.r < 0);
        get(&seen);
        assert_int_equal(await_asked("Range")->member, member);
    }
    reply_range(await_asked("Range"), 5, 2);
}

/* A member that was down may work again after half a second. So the client tries that member before
 * the member that has no leader. */
static void a_member_that_was_down_is_tried_before_one_without_a_leader(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoints, NULL);
    get(&seen);
    const size_t down = await_asked("Range")->member;
    answers_down = down;
    refuse(await_asked("Range"), WIRE_UNKNOWN, "no");
    network_reset(0, down);
    get(&seen);
    AskedCall *other = await_asked("Range");
    assert_int_not_equal(other->member, down);
    answers_down = SIZE_MAX;
    refuse(other, WIRE_UNAVAILABLE, "etcdserver: no leader");
    assert_int_equal(await_asked("Range")->member, down);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(seen.r, 0);
}

/* One member was silent, and is avoided for five seconds; the other has no leader, and is avoided
 * for one second. */
static void of_members_that_are_left_the_next_to_be_back_is_asked(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoints, NULL);
    get(&seen);
    AskedCall *first = await_asked("Range");
    const size_t silent = first->member;
    while (first->wire)
        pass_usec(100 * USEC_PER_MSEC);
    for (int i = 0; i < 5; i++) {
        assert_int_not_equal(await_asked("Range")->member, silent);
        (void)refuse_one("Range", "etcdserver: no leader");
    }
    assert_false(seen.came);
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(seen.r, 0);
}

static void reply_progress(void)
{
    Pb__ResponseHeader header = header_of(5, 2);
    Pb__WatchResponse progress = PB__WATCH_RESPONSE__INIT;
    progress.header = &header;
    reply(await_asked("Watch"), &progress.base);
}

/* The client keeps a member that reports no changes, as long as the member answers each request for
 * progress. */
static void a_quiet_member_is_kept(_unused_ void **state)
{
    open_client(answers_endpoints, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    for (int i = 0; i < 4; i++) {
        pass_usec(4500 * USEC_PER_MSEC);
        assert_non_null(stream->wire);
        (void)await_asked("Watch");
        reply_progress();
        assert_true(etcd_watch_connected(watch));
    }
    assert_int_equal(all_calls("Watch"), 1);
    assert_int_equal(all_calls("Range"), 1);
}

/* If etcd does not even answer that the watch has begun, the client begins the watch again. */
static void a_watch_that_never_begins_is_begun_anew(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    AskedCall *stream = await_asked("Watch");
    const uint64_t begun_usec = clock_boottime_usec();
    while (!is_asked("Range")) {
        put(&seen);
        reply_txn();
        pass_usec(USEC_PER_SEC / 4);
    }
    assert_null(stream->wire);
    assert_true(clock_boottime_usec() < begun_usec + 5 * USEC_PER_SEC);
}

/* The member answers all other requests, but the watch is silent: the watch moves to another member. */
static void a_watch_that_is_silent_goes_to_another_member(_unused_ void **state)
{
    Seen seen;
    open_client(answers_endpoints, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    const size_t silent = await_asked("Watch")->member;
    reply_created();
    for (int i = 0; i < 24 && !is_asked("Range"); i++) {
        put(&seen);
        reply_txn();
        pass_usec(USEC_PER_SEC / 2);
    }
    assert_int_not_equal(await_asked("Range")->member, silent);
}

/* ---- pauses ---- */

/* Checks the pause before the n-th retry: 50, 100, 200, 400, 800, 1000, 1000 ms. */
static void expect_pause(int n, uint64_t refused_usec)
{
    static const uint64_t msec[] = {50, 100, 200, 400, 800, 1000, 1000, 1000};
    const uint64_t paused = (clock_boottime_usec() - refused_usec) / USEC_PER_MSEC;
    assert_in_range(paused, msec[n] - 15, msec[n] + 15);
}

static void refuse_and_expect_pauses(const char *method, WireCode code)
{
    for (int i = 0; i < 8; i++) {
        AskedCall *call = await_asked(method);
        const uint64_t refused_usec = clock_boottime_usec();
        refuse(call, code, "no");
        (void)await_asked(method);
        expect_pause(i, refused_usec);
    }
}

static void a_list_that_fails_is_tried_ever_later(_unused_ void **state)
{
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    refuse_and_expect_pauses("Range", WIRE_UNKNOWN);
}

static void a_grant_that_fails_is_tried_ever_later(_unused_ void **state)
{
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    refuse_and_expect_pauses("LeaseGrant", WIRE_UNKNOWN);
    reply_grant_of(77, 10);
    reply_keep_alive(77, 0, 2);
    reply_range(await_asked("Range"), 5, 2);
    /* the pauses start again at the shortest pause */
    refuse_and_expect_pauses("LeaseGrant", WIRE_UNKNOWN);
}

static void begin_election(void)
{
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 1000, "/p/w", on_lease, &event, &lease), 0);
    reply_grant_of(77, 1000);
    assert_int_equal(etcd_election_new(etcd, "/e/", "v", lease, on_election, NULL, &election), 0);
    reply_range(await_asked("Range"), 5, 2);
    reply_created();
}

static void a_candidate_that_is_refused_tries_ever_later(_unused_ void **state)
{
    begin_election();
    refuse_and_expect_pauses("Txn", WIRE_UNKNOWN);
    /* with another lease the pauses start again at the shortest pause */
    etcd_election_lease_changed(election, ETCD_LEASE_GRANTED, 78);
    pass_usec(10 * USEC_PER_MSEC);
    refuse_and_expect_pauses("Txn", WIRE_UNKNOWN);
}

/* ---- renewals ---- */

static void a_renewal_whose_stream_ends_is_tried_again_soon(_unused_ void **state)
{
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 100, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, 100);
    AskedCall *stream = await_asked("LeaseKeepAlive");
    const uint64_t ended_usec = clock_boottime_usec();
    refuse(stream, WIRE_UNKNOWN, "no");
    (void)await_asked("LeaseKeepAlive");
    expect_pause(0, ended_usec);
}

/* A candidate that has lost its lease stands again only with the next lease. */
static void a_candidate_without_a_lease_does_not_stand(_unused_ void **state)
{
    for (int refused = 0; refused < 2; refused++) {
        begin_election();
        if (refused)
            refuse(await_asked("Txn"), WIRE_UNKNOWN, "no");
        etcd_election_lease_changed(election, ETCD_LEASE_LOST, 77);
        etcd_election_change(election, "w");
        pass_usec(20 * USEC_PER_MSEC);
        assert_int_equal(open_calls("Txn"), 0);
        const size_t n_before = all_calls("Txn");
        pass_usec(20 * USEC_PER_SEC);
        assert_int_equal(all_calls("Txn"), n_before);
        etcd_election_lease_changed(election, ETCD_LEASE_GRANTED, 78);
        reply_txn();
        election = etcd_election_free(election);
        lease = etcd_lease_free(lease);
        etcd = etcd_free(etcd);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, answers_set_up, answers_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_token_that_is_no_good_any_more_is_replaced),
        CASE(a_stream_whose_token_is_no_good_gets_another),
        CASE(tokens_that_are_all_refused_end_the_call),
        CASE(what_a_user_may_not_do_is_told_at_once),
        CASE(a_wrong_password_is_told_to_all_who_wait),
        CASE(who_asks_again_when_refused_waits_for_the_next_token),
        CASE(a_server_without_users_needs_no_token),
        CASE(a_token_is_asked_for_once),
        CASE(each_answer_has_its_meaning),
        CASE(a_call_that_is_refused_until_its_deadline_says_why),
        CASE(bytes_that_are_no_message_end_what_they_answer),
        CASE(a_member_that_kept_a_call_waiting_is_left),
        CASE(a_candidate_without_a_lease_does_not_stand),
        CASE(a_member_without_a_leader_is_left_for_a_while),
        CASE(a_stream_that_its_member_ends_goes_to_another),
        CASE(an_answer_that_says_no_leaves_no_member),
        CASE(a_member_that_was_down_is_tried_before_one_without_a_leader),
        CASE(a_watch_that_never_begins_is_begun_anew),
        CASE(a_renewal_whose_stream_ends_is_tried_again_soon),
        CASE(of_members_that_are_left_the_next_to_be_back_is_asked),
        CASE(a_quiet_member_is_kept),
        CASE(a_watch_that_is_silent_goes_to_another_member),
        CASE(a_list_that_fails_is_tried_ever_later),
        CASE(a_grant_that_fails_is_tried_ever_later),
        CASE(a_candidate_that_is_refused_tries_ever_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
