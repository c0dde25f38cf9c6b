/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-renewal.c - how a lease is renewed, in virtual time: when, by which member, on which
 * stream; which answers renew the lease, which answer alone means its loss, how long pauses may be,
 * and what an observer of requests is told. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    int n_granted, n_renewed, n_lost;
} seen;

static void on_lease(EtcdLeaseState is, _unused_ int64_t id, _unused_ void *userdata)
{
    seen.n_granted += is == ETCD_LEASE_GRANTED;
    seen.n_renewed += is == ETCD_LEASE_RENEWED;
    seen.n_lost += is == ETCD_LEASE_LOST;
}

static struct {
    int n, last;
} counted; /* the renewals that an observer was told of */

static void on_request(const char *method, int r, _unused_ uint64_t took_usec,
                       _unused_ void *userdata)
{
    if (strcmp(method, "LeaseKeepAlive") != 0)
        return;
    counted.n++;
    counted.last = r;
}

static void open_of(const char *endpoints, const char *user)
{
    memset(&seen, 0, sizeof(seen));
    memset(&counted, 0, sizeof(counted));
    open_client(endpoints, user);
    etcd_set_observer(etcd, on_request, NULL);
}

static void hold(int64_t ttl_sec)
{
    assert_int_equal(etcd_lease_new(etcd, ttl_sec, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, ttl_sec);
}

/* Asserts that the time is now wanted_usec, or later by at most the time that an answer takes. */
static void assert_now(uint64_t wanted_usec)
{
    assert_in_range(clock_boottime_usec() + 5 * USEC_PER_MSEC, wanted_usec,
                    wanted_usec + 20 * USEC_PER_MSEC);
}

/* Answers the keep-alive and the witness's read of the awaited renewal. Returns the time at which the
 * renewal was requested. */
static uint64_t renew(int64_t ttl_sec)
{
    (void)await_asked("LeaseKeepAlive");
    const uint64_t asked_usec = clock_boottime_usec();
    reply_range(await_asked("Range"), 5, 2);
    reply_keep_alive(77, ttl_sec, 2);
    return asked_usec;
}

/* ---- the time of renewals ---- */

/* A lease is renewed after each quarter of its TTL, for TTLs from a second to minutes. */
static void each_quarter_of_the_ttl_it_is_renewed(_unused_ void **state)
{
    static const int64_t ttls[] = {1, 2, 3, 10, 60, 200};
    for (size_t i = 0; i < ELEMENTSOF(ttls); i++) {
        const uint64_t quarter_usec = (uint64_t)ttls[i] * USEC_PER_SEC / 4;
        open_of(answers_endpoint, NULL);
        hold(ttls[i]);
        uint64_t last_usec = renew(ttls[i]);
        for (int n = 1; n < 12; n++) {
            const uint64_t asked_usec = renew(ttls[i]);
            assert_in_range(asked_usec - last_usec, quarter_usec - 10 * USEC_PER_MSEC,
                            quarter_usec + 10 * USEC_PER_MSEC);
            assert_in_range(etcd_lease_deadline_usec(lease),
                            asked_usec + 4 * quarter_usec - 10 * USEC_PER_MSEC,
                            asked_usec + 4 * quarter_usec);
            last_usec = asked_usec;
        }
        assert_int_equal(seen.n_renewed, 12);
        assert_int_equal(seen.n_lost, 0);
        assert_true(counted.n == 12 && counted.last == 0);
        assert_int_equal(all_calls("LeaseKeepAlive"), i + 1); /* all renewals use one stream */
        close_client();
    }
}

/* After a quarter of the TTL without an answer, the request goes to another member, but not before
 * 0.3 s. */
static void a_slow_member_is_left_for_another(_unused_ void **state)
{
    static const struct {
        int64_t ttl_sec;
        uint64_t msec;
    } all[] = {{1, 300}, {2, 500}, {3, 750}};
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        open_of(answers_endpoints, NULL);
        hold(all[i].ttl_sec);
        AskedCall *slow = await_asked("LeaseKeepAlive"), *witness = await_asked("Range");
        const uint64_t asked_usec = clock_boottime_usec();
        slow->n_answered++; /* the fixture gives no answer to this request yet */
        witness->n_answered++;
        AskedCall *other = await_asked("LeaseKeepAlive");
        assert_now(asked_usec + all[i].msec * USEC_PER_MSEC);
        assert_int_not_equal(other->member, slow->member);
        assert_null(slow->wire);
        assert_non_null(witness->wire); /* the member has not answered the witness yet */
        assert_int_equal(await_asked("Range")->member, other->member);
        assert_true(counted.n == 1 && counted.last == -ETIMEDOUT);
        assert_int_equal(seen.n_renewed, 0);
        const uint64_t again_usec = renew(all[i].ttl_sec);
        assert_int_equal(seen.n_renewed, 1);
        assert_in_range(etcd_lease_deadline_usec(lease),
                        again_usec + ((uint64_t)all[i].ttl_sec * 1000 - 20) * USEC_PER_MSEC,
                        again_usec + (uint64_t)all[i].ttl_sec * USEC_PER_SEC);
        witness->n_answered--;
        reply_range(witness, 5, 2); /* the witness's answer is too late to count */
        assert_int_equal(seen.n_renewed, 1);
        close_client();
    }
}

/* One member accepts no connection, and two members were slow once each: the first slow member is
 * tried again before the lease runs out. */
static void who_was_slow_is_asked_before_who_is_dead(_unused_ void **state)
{
    open_of(answers_all_endpoints, NULL);
    hold(3);
    const uint64_t deadline_usec = etcd_lease_deadline_usec(lease);
    AskedCall *first = await_asked("LeaseKeepAlive");
    await_asked("Range")->n_answered++;
    first->n_answered++;
    AskedCall *second = await_asked("LeaseKeepAlive");
    await_asked("Range")->n_answered++;
    second->n_answered++;
    assert_int_not_equal(first->member, second->member);
    answers_down = 3 - first->member - second->member;
    AskedCall *third = await_asked("LeaseKeepAlive");
    assert_int_equal(third->member, first->member);
    assert_in_range(counted.n, 2, 3); /* two slow requests, and perhaps one refused */
    reply_range(await_asked("Range"), 5, 2);
    reply_keep_alive(77, 3, 2);
    assert_int_equal(seen.n_renewed, 1);
    assert_true(clock_boottime_usec() < deadline_usec);
}

/* The time in which a renewal waits for a token counts, too: the client checks sixteen times per
 * TTL whether the renewal is late. */
static void a_renewal_waits_for_a_token_briefly(_unused_ void **state)
{
    open_of(answers_endpoint, "node");
    assert_int_equal(etcd_lease_new(etcd, 16, "/p/w", on_lease, NULL, &lease), 0);
    reply_token("first");
    reply_grant_of(77, 16);
    refuse(await_asked("LeaseKeepAlive"), WIRE_UNAUTHENTICATED, "etcdserver: invalid auth token");
    (void)await_asked("Authenticate");
    pass_usec(1500 * USEC_PER_MSEC);
    assert_false(is_asked("LeaseKeepAlive"));
    reply_token("second");
    const uint64_t known_usec = clock_boottime_usec();
    assert_string_equal(await_asked("LeaseKeepAlive")->token, "second");
    assert_in_range(clock_boottime_usec(), known_usec, known_usec + USEC_PER_SEC);
}

/* ---- which answers renew a lease, and which mean its loss ---- */

/* A member whose answer is of another term does not count as slow: the client stays on the same
 * stream of the same member. Only an observer is told of the failed renewal. */
static void another_term_is_no_slowness(_unused_ void **state)
{
    open_of(answers_endpoints, NULL);
    hold(10);
    AskedCall *stream = await_asked("LeaseKeepAlive");
    for (int i = 1; i <= 4; i++) {
        reply_range(await_asked("Range"), 5, 3);
        reply_keep_alive(77, i % 2 ? 10 : 0, 2); /* TTL 0 of another term is not a loss */
        assert_true(counted.n == i && counted.last == -EAGAIN);
        assert_ptr_equal(await_asked("LeaseKeepAlive"), stream);
    }
    assert_int_equal(seen.n_renewed + seen.n_lost, 0);
    assert_int_equal(all_calls("LeaseKeepAlive"), 1);
}

/* Neither the answer of the keep-alive alone nor the answer of the witness's read alone renews the lease. */
static void one_answer_of_two_renews_nothing(_unused_ void **state)
{
    open_of(answers_endpoint, NULL);
    hold(10);
    const uint64_t deadline_usec = etcd_lease_deadline_usec(lease);
    for (int i = 0; i < 4; i++) {
        AskedCall *alive = await_asked("LeaseKeepAlive"), *witness = await_asked("Range");
        if (i % 2) {
            reply_keep_alive(77, 10, 2);
            witness->n_answered++;
        } else {
            reply_range(witness, 5, 2);
            alive->n_answered++;
        }
        assert_int_equal(seen.n_renewed, 0);
        pass_usec(2400 * USEC_PER_MSEC);
    }
    assert_int_equal(etcd_lease_deadline_usec(lease), deadline_usec);
    assert_int_equal(etcd_lease_id(lease),
                     /* the lease stays held even after its deadline, because etcd has not reported
                      * its loss */
                     77);
    assert_int_equal(seen.n_lost, 0);
}

/* An answer that comes again counts only for the renewal that it answered first. */
static void an_answer_counts_once(_unused_ void **state)
{
    open_of(answers_endpoint, NULL);
    hold(10);
    AskedCall *stream = await_asked("LeaseKeepAlive");
    reply_keep_alive(77, 10, 2);
    stream->n_asked++;
    reply_keep_alive(77, 0, 3); /* ignored: the first answer counts */
    reply_range(await_asked("Range"), 5, 2);
    assert_int_equal(seen.n_renewed, 1);
    stream->n_asked++;
    reply_keep_alive(77, 0, 2); /* an answer without a request */
    assert_int_equal(seen.n_lost, 0);
    assert_int_equal(etcd_lease_ttl_sec(lease), 10);
}

/* etcd answers that there is no such lease: the lease is lost. The stream is closed, and the next
 * lease is requested at once, with the first TTL. */
static void only_a_ttl_of_nothing_is_a_loss(_unused_ void **state)
{
    static const int64_t none[] = {0, -1};
    for (size_t i = 0; i < ELEMENTSOF(none); i++) {
        open_of(answers_endpoint, NULL);
        hold(10);
        (void)renew(40);
        (void)renew(none[i]);
        const uint64_t lost_usec = clock_boottime_usec();
        assert_int_equal(seen.n_lost, 1);
        assert_int_equal(etcd_lease_id(lease), 0);
        assert_true(counted.n == 2 && counted.last == -ESTALE);
        assert_int_equal(open_calls("LeaseKeepAlive"), 0);
        etcd_lease_check(lease); /* there is no lease to check */
        assert_int_equal(((Pb__LeaseGrantRequest *)await_asked("LeaseGrant")->request)->ttl, 10);
        assert_now(lost_usec);
        reply_grant_of(78, 10);
        assert_int_equal(seen.n_granted, 2);
        assert_int_equal(seen.n_lost, 1);
        assert_int_equal(((Pb__LeaseKeepAliveRequest *)await_asked("LeaseKeepAlive")->request)->id,
                         78);
        close_client();
    }
}

/* A member may refuse the witness's read: one log line reports the refusal, without the secret that
 * the client sent. */
static void a_right_that_is_missing_is_told_once(_unused_ void **state)
{
    char text[4096] = "";
    const int said = memfd_create("stderr", MFD_CLOEXEC), old = dup(STDERR_FILENO);
    assert_true(said >= 0 && old >= 0);
    open_of(answers_endpoint, "node");
    assert_int_equal(etcd_lease_new(etcd, 100, "/p/w", on_lease, NULL, &lease), 0);
    reply_token("token");
    reply_grant_of(77, 100);
    assert_true(dup2(said, STDERR_FILENO) >= 0);
    /* this error is not about a right */
    refuse(await_asked("Range"), WIRE_UNAVAILABLE, "Socket closed");
    refuse(await_asked("Range"), WIRE_PERMISSION_DENIED, "permission denied: node, secret");
    refuse(await_asked("Range"), WIRE_PERMISSION_DENIED, "permission denied: node, secret");
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    assert_true(pread(said, text, sizeof(text) - 1, 0) > 0);
    assert_true(close(said) == 0 && close(old) == 0);
    const char *first = strstr(text, "a lease is not renewed because /p/w can't be read: "
                                     "permission denied: node, ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "a lease is not renewed"));
    assert_null(strstr(text, "secret"));
    assert_null(strstr(text, "Socket closed"));
}

/* ---- pauses ---- */

/* The pauses are 50, 100, 200, 400, 800, 1000, 1000 ms, and start again at the shortest after a
 * grant. */
static void grants_that_fail_have_growing_pauses(_unused_ void **state)
{
    static const uint64_t msec[] = {50, 100, 200, 400, 800, 1000, 1000};
    open_of(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < ELEMENTSOF(msec); i++) {
            const uint64_t refused_usec = clock_boottime_usec();
            refuse(await_asked("LeaseGrant"), WIRE_RESOURCE_EXHAUSTED, "etcdserver: no space");
            assert_false(is_asked("LeaseGrant"));
            (void)await_asked("LeaseGrant");
            assert_now(refused_usec + msec[i] * USEC_PER_MSEC);
        }
        reply_grant_of(77, 10);
        if (round == 0)
            (void)renew(0); /* the lease is lost */
    }
}

/* After each grant, the pause after the first failed renewal is the shortest pause. No pause is
 * longer than an eighth of the TTL. */
static void renewals_that_fail_have_growing_pauses(_unused_ void **state)
{
    static const uint64_t msec[] = {50, 100, 200, 400, 500, 500, 500};
    open_of(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 4, "/p/w", on_lease, NULL, &lease), 0);
    for (int i = 0; i < 5; i++)
        refuse(await_asked("LeaseGrant"), WIRE_RESOURCE_EXHAUSTED, "etcdserver: no space");
    reply_grant_of(77, 4);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < ELEMENTSOF(msec); i++) {
            reply_range(await_asked("Range"), 5, 2);
            const uint64_t failed_usec = clock_boottime_usec();
            refuse(await_asked("LeaseKeepAlive"), WIRE_UNAVAILABLE, "Socket closed");
            assert_int_equal(counted.last, -ECONNREFUSED);
            (void)await_asked("LeaseKeepAlive");
            assert_now(failed_usec + msec[i] * USEC_PER_MSEC);
        }
        (void)renew(4);
    }
}

/* ---- the end of a lease ---- */

static void on_txn(int r, _unused_ const Error *err, _unused_ const EtcdTxnResult *result,
                   void *userdata)
{
    *(int *)userdata = r;
}

/* A lease may be revoked while a renewal is in progress, and between two renewals. After that the
 * client sends no request for the lease, and requests no other lease. */
static void what_is_given_up_is_renewed_no_more(_unused_ void **state)
{
    for (int is_waiting = 0; is_waiting < 2; is_waiting++) {
        int r = 1;
        open_of(answers_endpoint, NULL);
        hold(10);
        (void)renew(10);
        if (is_waiting)
            (void)await_asked("LeaseKeepAlive");
        assert_int_equal(etcd_lease_revoke(lease, on_txn, &r, NULL), 0);
        pass_usec(20 * USEC_PER_MSEC);
        assert_int_equal(open_calls("LeaseKeepAlive") + open_calls("Range"), 0);
        refuse(await_asked("LeaseRevoke"), WIRE_NOT_FOUND, "etcdserver: requested lease not found");
        assert_int_equal(r, -ESTALE);
        pass_usec(60 * USEC_PER_SEC);
        assert_int_equal(open_calls(NULL), 0);
        assert_int_equal(seen.n_granted, 1);
        assert_int_equal(seen.n_lost, 0); /* a revoked lease is not reported as lost */
        close_client();
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, answers_set_up, answers_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(each_quarter_of_the_ttl_it_is_renewed),
        CASE(a_slow_member_is_left_for_another),
        CASE(who_was_slow_is_asked_before_who_is_dead),
        CASE(a_renewal_waits_for_a_token_briefly),
        CASE(another_term_is_no_slowness),
        CASE(one_answer_of_two_renews_nothing),
        CASE(an_answer_counts_once),
        CASE(only_a_ttl_of_nothing_is_a_loss),
        CASE(a_right_that_is_missing_is_told_once),
        CASE(grants_that_fail_have_growing_pauses),
        CASE(renewals_that_fail_have_growing_pauses),
        CASE(what_is_given_up_is_renewed_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
