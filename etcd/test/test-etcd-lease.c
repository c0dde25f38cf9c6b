/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-lease.c - grant, renewal, expiry, revocation, loss, and members that freeze. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "base/log.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

typedef struct Client {
    sd_event *event;
    Etcd *etcd;
    EtcdLease *lease;
    unsigned n_granted, n_renewed, n_lost, n_revoked;
    int64_t id;             /* the lease's id, as last reported */
    uint64_t deadline_usec; /* the lease's deadline at the last report */
    int revoke_result;
    bool free_in_handler;
} Client;

static void on_lease(EtcdLeaseState state, int64_t lease, void *userdata)
{
    Client *client = userdata;

    switch (state) {
    case ETCD_LEASE_GRANTED:
        client->n_granted++;
        assert_true(lease != client->id); /* each grant has a new id */
        break;
    case ETCD_LEASE_RENEWED:
        client->n_renewed++;
        assert_true(lease == client->id);
        assert_true(etcd_lease_deadline_usec(client->lease) > client->deadline_usec);
        break;
    case ETCD_LEASE_LOST:
        client->n_lost++;
        assert_true(lease == client->id);
        assert_true(etcd_lease_id(client->lease) == 0);
        break;
    }
    client->id = lease;
    client->deadline_usec = etcd_lease_deadline_usec(client->lease);
    if (client->free_in_handler)
        client->lease = etcd_lease_free(client->lease);
}

static Client *client_free(Client *client)
{
    (void)etcd_lease_free(client->lease);
    (void)etcd_free(client->etcd);
    sd_event_unref(client->event);
    free(client);
    return NULL;
}
DEFINE_CLEANUP(Client, client_free)

static Client *client_new(const EtcdOptions *options, int64_t ttl_sec)
{
    Client *client = calloc(1, sizeof(*client));
    Error err = ERROR_INIT;

    assert_non_null(client);
    assert_true(sd_event_new(&client->event) >= 0);
    if (etcd_new(client->event, options, &client->etcd, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(etcd_lease_new(client->etcd, ttl_sec, "/witness", on_lease, client,
                                    &client->lease),
                     0);
    TESTING_RUN_UNTIL(client->event, client->n_granted == 1);
    return client;
}

static void put_under_lease(Client *client, const char *key)
{
    Error err = ERROR_INIT;
    EtcdOp op = {.kind = ETCD_PUT,
                 .key = key,
                 .value = "alive",
                 .lease = etcd_lease_id(client->lease)};

    if (etcd_txn_wait(client->etcd, NULL, 0, &op, 1, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static bool key_is_there(Client *client, const char *key)
{
    Error err = ERROR_INIT;
    EtcdAnswer *answer = NULL;

    if (etcd_get_wait(client->etcd, key, false, &answer, &err) < 0)
        fail_msg("%s", err.text);
    bool there = answer->n_kvs > 0;
    (void)etcd_answer_free(answer);
    return there;
}

static void on_revoked(int r, const Error *err _unused_, const EtcdTxnResult *result _unused_,
                       void *userdata)
{
    Client *client = userdata;

    client->n_revoked++;
    client->revoke_result = r;
}

static void test_renewed_then_expires(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options, 2);

    assert_true(etcd_lease_id(client->lease) != 0);
    assert_int_equal(etcd_lease_ttl_sec(client->lease), 2);
    put_under_lease(client, "/alive");
    uint64_t begun_usec = clock_boottime_usec();
    TESTING_RUN_UNTIL(client->event, client->n_renewed == 12);
    assert_in_range(clock_boottime_usec() - begun_usec, 5 * USEC_PER_SEC,
                    40 * USEC_PER_SEC); /* a renewal every quarter of the TTL */
    assert_true(etcd_lease_deadline_usec(client->lease) > clock_boottime_usec());
    assert_true(key_is_there(client, "/alive")); /* the key still exists after three TTLs */
    assert_int_equal(client->n_lost, 0);

    client->lease = etcd_lease_free(client->lease); /* nobody renews the lease now */
    TESTING_RUN_UNTIL(client->event, !key_is_there(client, "/alive"));
    assert_true(clock_boottime_usec() > client->deadline_usec - 50000);
}

static void test_revoke(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options, 60);

    put_under_lease(client, "/alive");
    assert_int_equal(etcd_lease_revoke(client->lease, on_revoked, client, NULL), 0);
    assert_int_equal(etcd_lease_id(client->lease), 0);
    client->lease = etcd_lease_free(client->lease); /* freed before the answer arrives */
    TESTING_RUN_UNTIL(client->event, client->n_revoked == 1);
    assert_int_equal(client->revoke_result, 0);
    assert_false(key_is_there(client, "/alive"));
    assert_int_equal(client->n_lost, 0); /* a revoked lease is not reported as lost */
}

/* A lease of which only the id is known can be revoked. */
static void test_revoke_by_its_id(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options, 60);

    put_under_lease(client, "/alive");
    const int64_t id = client->id;
    client->lease = etcd_lease_free(client->lease); /* the lease remains, as after a crash */
    assert_true(key_is_there(client, "/alive"));
    assert_int_equal(etcd_revoke(client->etcd, id, on_revoked, client, NULL), 0);
    TESTING_RUN_UNTIL(client->event, client->n_revoked == 1);
    assert_int_equal(client->revoke_result, 0);
    assert_false(key_is_there(client, "/alive"));
    assert_int_equal(etcd_revoke(client->etcd, id, on_revoked, client, NULL), 0);
    TESTING_RUN_UNTIL(client->event, client->n_revoked == 2);
    assert_int_equal(client->revoke_result, -ESTALE);
}

static void test_lost_then_granted_anew(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options, 2);
    char id[32];

    for (unsigned i = 1; i <= 3; i++) {
        put_under_lease(client, "/alive");
        (void)snprintf(id, sizeof(id), "%" PRIx64, (uint64_t)client->id);
        testing_etcd_ctl(server, "lease", "revoke", id, NULL);
        TESTING_RUN_UNTIL(client->event, client->n_granted == 1 + i);
        assert_int_equal(client->n_lost, i);
        assert_false(key_is_there(client, "/alive"));
    }
    /* Revoking a lease that was revoked already gives -ESTALE. */
    (void)snprintf(id, sizeof(id), "%" PRIx64, (uint64_t)client->id);
    testing_etcd_ctl(server, "lease", "revoke", id, NULL);
    assert_int_equal(etcd_lease_revoke(client->lease, on_revoked, client, NULL), 0);
    TESTING_RUN_UNTIL(client->event, client->n_revoked == 1);
    assert_int_equal(client->revoke_result, -ESTALE);
    assert_int_equal(etcd_lease_revoke(client->lease, on_revoked, client, NULL), -ESTALE);
}

static void test_freed_by_its_handler(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options, 1);

    client->free_in_handler = true;
    TESTING_RUN_UNTIL(client->event, client->lease == NULL);
    assert_int_equal(etcd_lease_new(client->etcd, 0, "/witness", on_lease, client, &client->lease),
                     -EINVAL);
    assert_int_equal(etcd_lease_new(client->etcd, 1, "/witness", on_lease, client, &client->lease),
                     0);
    TESTING_RUN_UNTIL(client->event, client->lease == NULL);
    assert_int_equal(client->n_granted, 2);
}

/* Silence is not a loss: a member that was down for longer than the TTL still renews the lease. */
static void test_member_restarts(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options, 2);

    put_under_lease(client, "/alive");
    testing_etcd_kill(server, 0);
    TESTING_RUN_UNTIL(client->event, clock_boottime_usec() > client->deadline_usec);
    assert_int_equal(client->n_lost, 0);
    assert_true(etcd_lease_id(client->lease) == client->id);
    unsigned n_renewed = client->n_renewed;
    testing_etcd_restart(server, 0);
    TESTING_RUN_UNTIL(client->event, client->n_renewed > n_renewed);
    /* A restarted member gives every lease its full TTL. */
    assert_int_equal(client->n_lost, 0);
    assert_true(key_is_there(client, "/alive"));
}

/* The lease of 3 s is renewed whichever member freezes, even the leader or the member that the client uses. A frozen
 * leader that thaws may then revoke the lease, though it was renewed elsewhere meanwhile (etcd#15247); the client is
 * notified and gets a new lease. */
static void test_each_member_freezes(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options, 3);

    for (size_t i = 0; i < 3; i++) {
        unsigned n_renewed = client->n_renewed, n_lost = client->n_lost;
        testing_etcd_freeze(server, i);
        uint64_t frozen_usec = clock_boottime_usec();
        TESTING_RUN_UNTIL(client->event, client->n_renewed > n_renewed + 2);
        print_message("member %zu frozen: three renewals after %.1f s\n", i,
                      (double)(clock_boottime_usec() - frozen_usec) / 1e6);
        assert_int_equal(client->n_lost, n_lost);
        testing_etcd_thaw(server, i);
        testing_etcd_wait_healthy(server, i);
        n_renewed = client->n_renewed; /* wait a whole TTL: the late revocation may still arrive */
        TESTING_RUN_UNTIL(client->event, client->n_renewed > n_renewed + 4);
    }
    assert_int_equal(client->n_granted, client->n_lost + 1);
    put_under_lease(client, "/alive");
    assert_true(key_is_there(client, "/alive"));
}

typedef struct Attempts {
    unsigned n_slow, n_refused, n_renewals;
} Attempts;

static void count_attempt(const char *method, int r, uint64_t took_usec _unused_, void *userdata)
{
    Attempts *attempts = userdata;
    if (strcmp(method, "LeaseKeepAlive") != 0)
        return;
    attempts->n_slow += r == -ETIMEDOUT;
    attempts->n_refused += r == -ECONNREFUSED;
    attempts->n_renewals += r == 0;
}

/* One member is dead, and the two others are slow once each: the lease is then renewed by the slow members, and
 * little time is wasted on the dead member, which refuses at once. */
static void test_a_dead_member_is_not_tried_for_slow_ones(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, 0);
    EtcdOptions options = testing_etcd_options(server);
    const size_t dead = (testing_etcd_leader(server) + 1) % 3;
    testing_etcd_kill(server, dead);
    _cleanup_(client_freep) Client *client = client_new(&options, 3);
    Attempts attempts = {0};
    etcd_set_observer(client->etcd, count_attempt, &attempts);
    TESTING_RUN_UNTIL(client->event, attempts.n_renewals > 0);
    for (size_t i = 0; i < 3; i++)
        if (i != dead)
            testing_etcd_freeze(server, i);
    TESTING_RUN_UNTIL(client->event, attempts.n_slow == 2);
    for (size_t i = 0; i < 3; i++)
        if (i != dead)
            testing_etcd_thaw(server, i);
    attempts = (Attempts){0};
    TESTING_RUN_UNTIL(client->event, attempts.n_renewals > 0 || client->n_lost > 0);
    print_message("%u attempts were refused, %u were slow\n", attempts.n_refused, attempts.n_slow);
    assert_in_range(attempts.n_refused, 0, 1);
}

static void on_watched(_unused_ const EtcdEvent *events, size_t n_events, _unused_ int64_t revision,
                       bool initial, void *userdata)
{
    unsigned *n_seen = userdata;
    *n_seen += initial ? 1 : (unsigned)n_events;
}

/* A leader whose disk hangs is replaced, but does not notice: it continues to acknowledge keep-alives of leases that
 * expire on the other members, and sends no events to watches. The client leaves this member. */
static void test_disk_of_the_leader_hangs(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, TESTING_ETCD_DISKS);
    if (!testing_etcd_has_disks(server))
        skip();
    size_t leader = testing_etcd_leader(server), other = (leader + 1) % 3;
    EtcdOptions options = testing_etcd_options(server), elsewhere = options;
    _cleanup_free_ char *two = NULL;
    _cleanup_(etcd_watch_freep) EtcdWatch *watch = NULL;
    unsigned n_seen = 0;

    testing_etcd_kill(server, other); /* so that the client certainly uses the leader */
    assert_true(asprintf(&two, "%s,%s", testing_etcd_endpoint(server, leader),
                         testing_etcd_endpoint(server, other)) > 0);
    options.endpoints = two;
    _cleanup_(client_freep) Client *client = client_new(&options, 3);
    assert_int_equal(etcd_watch_prefix(client->etcd, "/seen", on_watched, &n_seen, &watch), 0);
    put_under_lease(client, "/alive");
    testing_etcd_restart(server, other);
    testing_etcd_wait_healthy(server, other);
    unsigned n_renewed = client->n_renewed;
    TESTING_RUN_UNTIL(client->event, n_seen == 1 && client->n_renewed > n_renewed + 2);

    testing_etcd_stop_disk(server, leader);
    elsewhere.endpoints = testing_etcd_endpoint(server, other);
    _cleanup_(client_freep) Client *observer = client_new(&elsewhere, 60);
    n_renewed = client->n_renewed;
    uint64_t until_usec = clock_boottime_usec() + 9 * USEC_PER_SEC;
    TESTING_RUN_UNTIL(client->event, clock_boottime_usec() > until_usec); /* three TTLs pass */
    assert_int_equal(client->n_lost, 0);
    assert_true(client->n_renewed > n_renewed);
    assert_true(key_is_there(observer, "/alive"));
    put_under_lease(observer, "/seen");
    TESTING_RUN_UNTIL(client->event, n_seen == 2);

    testing_etcd_start_disk(server, leader); /* the old leader may revoke all leases now */
    testing_etcd_wait_healthy(server, leader);
    n_renewed = client->n_renewed;
    TESTING_RUN_UNTIL(client->event, client->n_renewed > n_renewed + 4);
    assert_int_equal(client->n_granted, client->n_lost + 1);
    put_under_lease(client, "/alive");
    watch = etcd_watch_free(watch);
}

/* The holder's process is stopped for longer than the TTL: it learns from the server that the lease was lost. */
static void test_holder_freezes(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    pid_t self = getpid(), pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) { /* the child can use gRPC, which the parent has not started yet */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != self)
            _exit(1);
        Client *client = client_new(&options, 1);
        put_under_lease(client, "/holder");
        TESTING_RUN_UNTIL(client->event, client->n_lost == 1 && client->n_granted == 2);
        put_under_lease(client, "/holder/again");
        _exit(0);
    }
    _cleanup_(client_freep) Client *observer = client_new(&options, 60);
    TESTING_RUN_UNTIL(observer->event, key_is_there(observer, "/holder"));
    assert_int_equal(kill(pid, SIGSTOP), 0);
    TESTING_RUN_UNTIL(observer->event, !key_is_there(observer, "/holder"));
    assert_int_equal(kill(pid, SIGCONT), 0);
    TESTING_RUN_UNTIL(observer->event, key_is_there(observer, "/holder/again"));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holder_freezes), /* first, as it must fork before gRPC starts */
        cmocka_unit_test(test_renewed_then_expires),
        cmocka_unit_test(test_revoke),
        cmocka_unit_test(test_revoke_by_its_id),
        cmocka_unit_test(test_lost_then_granted_anew),
        cmocka_unit_test(test_freed_by_its_handler),
        cmocka_unit_test(test_member_restarts),
        cmocka_unit_test(test_each_member_freezes),
        cmocka_unit_test(test_a_dead_member_is_not_tried_for_slow_ones),
        cmocka_unit_test(test_disk_of_the_leader_hangs),
    };
    log_open("test-etcd-lease");
    return cmocka_run_group_tests_name("etcd-lease", tests, NULL, NULL);
}
