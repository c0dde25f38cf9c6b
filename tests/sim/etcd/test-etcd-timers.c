/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-timers.c - the client's timers: a loop that refuses a timer, and the time after which the
 * client leaves a silent member. Also tests a handler that frees the client, which is forbidden, and
 * that a call does not report the error of an earlier request. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"
#include "tests/sim/seams/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    int n, r;
    char text[256];
} heard; /* results passed to the handlers below */

static void note(int r, const Error *err)
{
    heard.n++;
    heard.r = r;
    (void)snprintf(heard.text, sizeof(heard.text), "%s", err->text);
}

static void on_range(int r, const Error *err, _unused_ const EtcdRange *range,
                     _unused_ void *userdata)
{
    note(r, err);
}

static void on_txn(int r, const Error *err, _unused_ const EtcdTxnResult *result,
                   _unused_ void *userdata)
{
    note(r, err);
}

static void on_events(_unused_ const EtcdEvent *events, _unused_ size_t n,
                      _unused_ int64_t revision, _unused_ bool listed, _unused_ void *userdata)
{
}

static void on_election(_unused_ bool leading, _unused_ const char *key, _unused_ int64_t term,
                        _unused_ void *userdata)
{
}

/* When the lease is lost, makes the loop refuse the next timer, which is that of the new grant. */
static void on_lease(EtcdLeaseState is, _unused_ int64_t id, _unused_ void *userdata)
{
    if (is == ETCD_LEASE_LOST)
        loop_refuse_timer(event, 1);
}

static void begin(const char *endpoints, const char *user)
{
    memset(&heard, 0, sizeof(heard));
    open_client(endpoints, user);
}

static const EtcdOp get_a = {.kind = ETCD_GET, .key = "/p/a"};

/* ---- a loop without memory ---- */

/* If an object gets no timer, its creation fails: no callback runs, and nothing of the object
 * remains. */
static void what_has_no_timer_is_not_begun(_unused_ void **state)
{
    const EtcdOptions options = {.endpoints = answers_endpoint};
    Error err = ERROR_INIT;
    loop_refuse_timer(event, 1);
    assert_int_equal(etcd_new(event, &options, &etcd, &err), -ENOMEM);
    assert_non_null(strstr(err.text, "cannot arm a timer"));
    begin(answers_endpoint, NULL);
    loop_refuse_timer(event, 1);
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, NULL, NULL), -ENOMEM);
    loop_refuse_timer(event, 1);
    assert_int_equal(etcd_txn(etcd, NULL, 0, &get_a, 1, on_txn, NULL, NULL), -ENOMEM);
    loop_refuse_timer(event, 1);
    assert_int_equal(etcd_revoke(etcd, 77, on_txn, NULL, NULL), -ENOMEM);
    /* timer 1 is the lease's own, timer 2 is the timer of the lease's first request */
    for (unsigned n = 1; n <= 2; n++) {
        loop_refuse_timer(event, n);
        assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), -ENOMEM);
        loop_refuse_timer(event, n);
        assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), -ENOMEM);
    }
    pass_usec(10 * USEC_PER_SEC);
    assert_int_equal(all_calls("Range") + all_calls("Txn") + all_calls("LeaseGrant") +
                         all_calls("LeaseRevoke"),
                     0);
    assert_int_equal(heard.n, 0);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    loop_refuse_timer(event, 1);
    assert_int_equal(etcd_election_new(etcd, "/e/", "me", lease, on_election, NULL, &election),
                     -ENOMEM);
}

/* A grant that gets no timer is retried, like a grant that etcd has refused. */
static void a_grant_without_a_timer_is_tried_again(_unused_ void **state)
{
    begin(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 10, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, 10);
    (void)await_asked("LeaseKeepAlive");
    reply_range(await_asked("Range"), 5, 2);
    reply_keep_alive(77, 0, 2);
    const uint64_t lost_usec = clock_boottime_usec();
    assert_false(is_asked("LeaseGrant"));
    (void)await_asked("LeaseGrant");
    assert_in_range(clock_boottime_usec() - lost_usec, 30 * USEC_PER_MSEC, 60 * USEC_PER_MSEC);
}

/* ---- silence ---- */

/* A silent member is left after a third of the deadline, not before. The client checks four times
 * in that third. */
static void a_silent_member_is_left_after_its_time(_unused_ void **state)
{
    const EtcdOptions options = {.endpoints = answers_endpoints, .timeout_usec = 6 * USEC_PER_SEC};
    memset(&heard, 0, sizeof(heard));
    assert_int_equal(etcd_new(event, &options, &etcd, NULL), 0);
    const uint64_t asked_usec = clock_boottime_usec();
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, NULL, NULL), 0);
    AskedCall *silent = await_asked("Range");
    silent->n_answered++;
    pass_usec(asked_usec + 2490 * USEC_PER_MSEC - clock_boottime_usec());
    assert_non_null(silent->wire);
    pass_usec(20 * USEC_PER_MSEC);
    assert_null(silent->wire);
    assert_int_not_equal(await_asked("Range")->member, silent->member);
}

/* A request for progress on a stream must be answered, too: otherwise the client leaves the member
 * long before the watch's own timeout. */
static void a_question_on_a_stream_is_owed_an_answer(_unused_ void **state)
{
    begin(answers_endpoints, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_range(await_asked("Range"), 5, 2);
    reply_created();
    AskedCall *stream = await_asked("Watch"); /* a request for progress */
    stream->n_answered++;
    pass_usec(1600 * USEC_PER_MSEC);
    assert_non_null(stream->wire);
    pass_usec(900 * USEC_PER_MSEC);
    assert_null(stream->wire);
    assert_int_not_equal(await_asked("Range")->member, stream->member);
}

/* ---- handlers ---- */

static void free_client(_unused_ int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                        _unused_ void *userdata)
{
    etcd = etcd_free(etcd);
}

static void free_client_too(EtcdLeaseState is, _unused_ int64_t id, _unused_ void *userdata)
{
    if (is == ETCD_LEASE_RENEWED)
        etcd = etcd_free(etcd);
}

/* A handler that frees its own client ends the program at once, in that handler. */
static void a_handler_that_frees_the_client_ends_the_program(_unused_ void **state)
{
    for (int is_message = 0; is_message < 2; is_message++) {
        (void)fflush(NULL);
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
            (void)close(STDERR_FILENO);
            begin(answers_endpoint, NULL);
            if (is_message) {
                (void)etcd_lease_new(etcd, 10, "/p/w", free_client_too, NULL, &lease);
                reply_grant_of(77, 10);
                reply_range(await_asked("Range"), 5, 2);
                reply_keep_alive(77, 10, 2);
            } else {
                (void)etcd_get(etcd, "/p/a", false, free_client, NULL, NULL);
                reply_range(await_asked("Range"), 5, 2);
            }
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

/* ---- errors of earlier requests ---- */

/* The reason for the delay of the first page is not reported as the reason why the second page
 * failed. */
static void the_next_page_has_its_own_error(_unused_ void **state)
{
    begin(answers_endpoint, "node");
    assert_int_equal(etcd_get(etcd, "/p/", true, on_range, NULL, NULL), 0);
    reply_token("first");
    refuse(await_asked("Range"), WIRE_UNAVAILABLE, "Socket closed");
    (void)await_asked("Range");
    assert_int_equal(etcd_txn(etcd, NULL, 0, &get_a, 1, on_txn, NULL, NULL), 0);
    refuse(await_asked("Txn"), WIRE_UNAUTHENTICATED, "etcdserver: invalid auth token");
    (void)await_asked("Authenticate"); /* the second page waits for a token */
    reply_page(5, true, "/p/a", NULL);
    pass_usec(5 * USEC_PER_SEC);
    assert_int_equal(heard.n, 2);
    assert_int_equal(heard.r, -ETIMEDOUT);
    assert_null(strstr(heard.text, "lastly"));
}

static int n_histories;

static void on_history(_unused_ const EtcdHistory *was, _unused_ const EtcdHistory *is,
                       _unused_ void *userdata)
{
    n_histories++;
}

/* The cluster id in the answer to a transaction counts like the cluster id in the answer to a
 * read. */
static void a_transaction_tells_of_another_history(_unused_ void **state)
{
    Pb__ResponseHeader header = header_of(6, 2);
    Pb__TxnResponse done = PB__TXN_RESPONSE__INIT;
    header.cluster_id = 8;
    done.header = &header;
    n_histories = 0;
    begin(answers_endpoint, NULL);
    etcd_set_history(etcd, (EtcdHistory){0}, on_history, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(etcd_txn(etcd, NULL, 0, &get_a, 1, on_txn, NULL, NULL), 0);
        if (i == 0)
            reply_txn();
        else
            reply(await_asked("Txn"), &done.base);
        assert_int_equal(n_histories, i);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, answers_set_up, answers_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(what_has_no_timer_is_not_begun),
        CASE(a_grant_without_a_timer_is_tried_again),
        CASE(a_silent_member_is_left_after_its_time),
        CASE(a_question_on_a_stream_is_owed_an_answer),
        CASE(a_handler_that_frees_the_client_ends_the_program),
        CASE(the_next_page_has_its_own_error),
        CASE(a_transaction_tells_of_another_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
