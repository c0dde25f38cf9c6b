/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-client.c - the client's connection: TLS, users, deadlines, an etcd that is down or frozen, and etcd_free()
 * with calls in flight. */
#include "base/test/testing.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <string.h>

typedef struct Client {
    sd_event *event;
    Etcd *etcd;
} Client;

static Client *client_free(Client *client)
{
    (void)etcd_free(client->etcd);
    sd_event_unref(client->event);
    free(client);
    return NULL;
}
DEFINE_CLEANUP(Client, client_free)

static Client *client_new(const EtcdOptions *options)
{
    Client *client = calloc(1, sizeof(*client));
    Error err = ERROR_INIT;

    assert_non_null(client);
    assert_true(sd_event_new(&client->event) >= 0);
    if (etcd_new(client->event, options, &client->etcd, &err) < 0)
        fail_msg("%s", err.text);
    return client;
}

static int get(Client *client, Error *err)
{
    EtcdAnswer *answer = NULL;
    int r = etcd_get_wait(client->etcd, "/a", false, &answer, err);

    (void)etcd_answer_free(answer);
    return r;
}

static int put(Client *client, Error *err)
{
    EtcdOp op = {.kind = ETCD_PUT, .key = "/a", .value = "1"};
    return etcd_txn_wait(client->etcd, NULL, 0, &op, 1, NULL, err);
}

/* ---- an etcd that does not run ---- */

static void test_down(void **state _unused_)
{
    EtcdOptions options = {.endpoints = "127.0.0.1:1,localhost:1", .timeout_usec = 700000};
    _cleanup_(client_freep) Client *client = client_new(&options);
    Error err = ERROR_INIT;

    for (int i = 0; i < 2; i++) {
        uint64_t begun_usec = clock_boottime_usec();
        int r = i ? put(client, &err) : get(client, &err);
        uint64_t took_usec = clock_boottime_usec() - begun_usec;
        assert_int_equal(r, -ECONNREFUSED);
        assert_int_equal(err.code, r);
        assert_in_range(took_usec, 600000, 20 * USEC_PER_SEC);
        if (!strstr(err.text, "127.0.0.1:1,localhost:1") || !strstr(err.text, "refused"))
            fail_msg("%s", err.text);
    }
}

static void test_unknown_host(void **state _unused_)
{
    EtcdOptions options = {.endpoints = "no-such-host.invalid:2379", .timeout_usec = 700000};
    _cleanup_(client_freep) Client *client = client_new(&options);
    Error err = ERROR_INIT;

    int r = get(client, &err);
    assert_true(r == -ECONNREFUSED || r == -ETIMEDOUT);
    assert_non_null(strstr(err.text, "no-such-host.invalid:2379"));
}

/* The only member is frozen: calls time out. After the thaw, the same client works again. */
static void test_frozen(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    options.timeout_usec = 2 * USEC_PER_SEC;
    _cleanup_(client_freep) Client *client = client_new(&options);
    Error err = ERROR_INIT;

    assert_int_equal(get(client, &err), 0);
    testing_etcd_freeze(server, 0);
    for (int i = 0; i < 2; i++) {
        uint64_t begun_usec = clock_boottime_usec();
        assert_int_equal(i ? put(client, &err) : get(client, &err), -ETIMEDOUT);
        assert_in_range(clock_boottime_usec() - begun_usec, 1900000, 20 * USEC_PER_SEC);
        assert_non_null(
            strstr(err.text, i ? "no transaction within 2.0 s" : "no read within 2.0 s"));
    }
    testing_etcd_thaw(server, 0);
    TESTING_RUN_UNTIL(client->event, get(client, &err) == 0);
}

/* A server that starts within the deadline causes no error. */
static void test_comes_up_late(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    options.timeout_usec = 30 * USEC_PER_SEC;
    _cleanup_(client_freep) Client *client = client_new(&options);
    Error err = ERROR_INIT;

    testing_etcd_kill(server, 0);
    testing_etcd_restart(server, 0);
    if (put(client, &err) < 0) /* the client repeats the put, as it was never sent */
        fail_msg("%s", err.text);
}

static void test_two_of_three_down(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    char endpoints[128];
    (void)snprintf(endpoints, sizeof(endpoints), "127.0.0.1:1,http://%s/, 127.0.0.1:2",
                   testing_etcd_endpoint(server, 0));
    EtcdOptions options = {.endpoints = endpoints};
    Error err = ERROR_INIT;

    for (int i = 0; i < 6; i++) { /* each client begins with a random endpoint: try several */
        _cleanup_(client_freep) Client *client = client_new(&options);
        if (put(client, &err) < 0 || get(client, &err) < 0)
            fail_msg("%s", err.text);
    }
}

static void test_host_name(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    char endpoint[64];
    (void)snprintf(endpoint, sizeof(endpoint), "localhost%s",
                   strchr(testing_etcd_endpoint(server, 0), ':'));
    EtcdOptions options = {.endpoints = endpoint};
    _cleanup_(client_freep) Client *client = client_new(&options);
    Error err = ERROR_INIT;

    if (put(client, &err) < 0)
        fail_msg("%s", err.text);
}

/* ---- TLS ---- */

static void test_tls(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, TESTING_ETCD_TLS);
    EtcdOptions good = testing_etcd_options(server);
    Error err = ERROR_INIT;
    char stranger[256], stranger_key[256];
    (void)snprintf(stranger, sizeof(stranger), "%s/stranger.pem", testing_etcd_folder(server));
    (void)snprintf(stranger_key, sizeof(stranger_key), "%s/stranger.key",
                   testing_etcd_folder(server));

    good.timeout_usec = 10 * USEC_PER_SEC; /* a busy machine needs long for a handshake */
    EtcdOptions by_name = good;
    by_name.tls_name = "localhost"; /* the certificates contain this name and the address */
    const EtcdOptions *right[] = {&good, &by_name};
    for (size_t i = 0; i < ELEMENTSOF(right); i++) {
        _cleanup_(client_freep) Client *client = client_new(right[i]);
        if (put(client, &err) < 0)
            fail_msg("%s", err.text);
    }

    EtcdOptions wrong[] = {good, good, good, good};
    const char *texts[] = {"certificate verify failed", NULL, NULL, "another.example"};
    wrong[0].ca_file = stranger;
    wrong[1].cert_file = wrong[1].key_file = NULL;
    wrong[2].cert_file = stranger;
    wrong[2].key_file = stranger_key;
    wrong[3].tls_name = "another.example";
    for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
        bool is_logged = false;
        /* On a busy machine, the first timeouts may be too short for a handshake: then the error lacks the reason. */
        for (uint64_t usec = 700000; !is_logged && usec < 30 * USEC_PER_SEC; usec *= 2) {
            wrong[i].timeout_usec = usec;
            _cleanup_(client_freep) Client *client = client_new(&wrong[i]);
            int r = put(client, &err);
            if (r != -ECONNREFUSED && r != -ETIMEDOUT)
                fail_msg("case %zu: %d %s", i, r, err.text);
            is_logged = !texts[i] || strstr(err.text, texts[i]);
        }
        if (!is_logged)
            fail_msg("\"%s\" is not in \"%s\"", texts[i], err.text);
    }
}

/* ---- users ---- */

static void test_users(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, TESTING_ETCD_AUTH);
    EtcdOptions options = testing_etcd_options(server);
    Error err = ERROR_INIT;
    _cleanup_(client_freep) Client *client = client_new(&options);

    if (put(client, &err) < 0 || get(client, &err) < 0)
        fail_msg("%s", err.text);

    EtcdOptions wrong = options, nobody = options;
    wrong.password = "guess";
    _cleanup_(client_freep) Client *guesser = client_new(&wrong);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(i ? put(guesser, &err) : get(guesser, &err), -EACCES);
        assert_non_null(strstr(err.text, "invalid user ID or password"));
    }
    nobody.user = nobody.password = NULL;
    _cleanup_(client_freep) Client *stranger = client_new(&nobody);
    assert_int_equal(put(stranger, &err), -EACCES);
    assert_non_null(strstr(err.text, "user name is empty"));

    /* A restart of the member invalidates tokens, and so does a change of the users. */
    testing_etcd_kill(server, 0);
    testing_etcd_restart(server, 0);
    testing_etcd_wait_healthy(server, 0);
    if (put(client, &err) < 0)
        fail_msg("%s", err.text);
    testing_etcd_ctl(server, "user", "add", "other:word", NULL);
    if (get(client, &err) < 0 || put(client, &err) < 0)
        fail_msg("%s", err.text);

    /* A user without rights. */
    EtcdOptions other = options;
    other.user = "other";
    other.password = "word";
    _cleanup_(client_freep) Client *limited = client_new(&other);
    assert_int_equal(put(limited, &err), -EACCES);
    assert_non_null(strstr(err.text, "permission denied"));
}

static void on_rights(int r, const Error *err, const EtcdTxnResult *result _unused_, void *userdata)
{
    if (r == -EACCES && !strstr(err->text, "permission denied"))
        r = -EIO;
    *(int *)userdata = r;
}

static int may_write(Client *client, const char *key)
{
    int r = 1;
    EtcdCall *call;
    assert_int_equal(etcd_request_rights(client->etcd, key, on_rights, &r, &call), 0);
    TESTING_RUN_UNTIL(client->event, r <= 0);
    return r;
}

/* Requests for rights write nothing, and their answers change with each grant and revocation. */
static void test_rights(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, TESTING_ETCD_AUTH);
    EtcdOptions root = testing_etcd_options(server), some = root;
    Error err = ERROR_INIT;
    testing_etcd_ctl(server, "role", "add", "some", NULL);
    testing_etcd_ctl(server, "role", "grant-permission", "--prefix", "some", "readwrite", "/mine/",
                     NULL);
    testing_etcd_ctl(server, "role", "grant-permission", "--prefix", "some", "read", "/read/",
                     NULL);
    testing_etcd_ctl(server, "role", "grant-permission", "--prefix", "some", "write", "/write/",
                     NULL);
    testing_etcd_ctl(server, "user", "add", "some:word", NULL);
    testing_etcd_ctl(server, "user", "grant-role", "some", "some", NULL);
    some.user = "some";
    some.password = "word";
    _cleanup_(client_freep) Client *client = client_new(&some);
    _cleanup_(client_freep) Client *all = client_new(&root);
    assert_int_equal(may_write(client, "/mine/a"), 0);
    assert_int_equal(may_write(client, "/read/a"), -EACCES);
    assert_int_equal(may_write(client, "/write/a"),
                     -EACCES); /* without read access, guards cannot be compared */
    assert_int_equal(may_write(client, "/other/a"), -EACCES);
    assert_int_equal(may_write(all, "/other/a"), 0);
    testing_etcd_ctl(server, "role", "grant-permission", "--prefix", "some", "readwrite", "/other/",
                     NULL);
    assert_int_equal(may_write(client, "/other/a"), 0);
    testing_etcd_ctl(server, "role", "revoke-permission", "--prefix", "some", "/mine/", NULL);
    assert_int_equal(may_write(client, "/mine/a"), -EACCES);

    _cleanup_(etcd_answer_freep) EtcdAnswer *answer = NULL;
    assert_int_equal(etcd_get_wait(all->etcd, "/", true, &answer, &err), 0);
    assert_int_equal(answer->n_kvs, 0);
}

static void on_watch(const EtcdEvent *events _unused_, size_t n_events, int64_t revision _unused_,
                     bool initial _unused_, void *userdata)
{
    *(size_t *)userdata += n_events;
}

static void on_lease(EtcdLeaseState state, int64_t lease _unused_, void *userdata)
{
    ((unsigned *)userdata)[state]++;
}

static void test_streams_with_users(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server =
        testing_etcd_start(1, TESTING_ETCD_AUTH | TESTING_ETCD_TLS);
    EtcdOptions options = testing_etcd_options(server);
    options.timeout_usec = 10 * USEC_PER_SEC;
    _cleanup_(client_freep) Client *client = client_new(&options);
    _cleanup_(etcd_watch_freep) EtcdWatch *watch = NULL;
    _cleanup_(etcd_lease_freep) EtcdLease *lease = NULL;
    size_t n_events = 0;
    unsigned n_states[3] = {0};
    Error err = ERROR_INIT;

    assert_int_equal(etcd_watch_prefix(client->etcd, "/", on_watch, &n_events, &watch), 0);
    assert_int_equal(etcd_lease_new(client->etcd, 2, "/witness", on_lease, n_states, &lease), 0);
    for (int i = 0; i < 2; i++) {
        unsigned n_renewed = n_states[ETCD_LEASE_RENEWED];
        size_t n_before = n_events;
        TESTING_RUN_UNTIL(client->event, etcd_watch_connected(watch));
        TESTING_RUN_UNTIL(client->event, n_states[ETCD_LEASE_RENEWED] > n_renewed + 1);
        if (put(client, &err) < 0)
            fail_msg("%s", err.text);
        TESTING_RUN_UNTIL(client->event, n_events > n_before);
        if (i == 0) {
            testing_etcd_kill(server, 0);
            TESTING_RUN_UNTIL(client->event, !etcd_watch_connected(watch));
            testing_etcd_restart(server, 0);
        }
    }
    assert_int_equal(n_states[ETCD_LEASE_LOST], 0);
}

/* A user and password for a server without users have no effect, and cause no error. */
static void test_users_not_enabled(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    options.user = "root";
    options.password = "secret";
    _cleanup_(client_freep) Client *client = client_new(&options);
    Error err = ERROR_INIT;

    if (put(client, &err) < 0)
        fail_msg("%s", err.text);
}

/* ---- the end ---- */

static void never_range(int r _unused_, const Error *err _unused_, const EtcdRange *range _unused_,
                        void *userdata _unused_)
{
    fail_msg("a callback after etcd_free()");
}

static void never_txn(int r _unused_, const Error *err _unused_,
                      const EtcdTxnResult *result _unused_, void *userdata _unused_)
{
    fail_msg("a callback after etcd_free()");
}

static void never_election(bool leading _unused_, const char *key _unused_, int64_t term _unused_,
                           void *userdata _unused_)
{
    fail_msg("a callback after etcd_free()");
}

/* Calls etcd_free() while all kinds of requests are in flight: before and after the requests' handles are freed, and
 * with a server that runs or is frozen. */
static void test_free_in_flight(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    size_t n_events = 0;
    unsigned n_states[3] = {0};
    EtcdOp op = {.kind = ETCD_PUT, .key = "/a", .value = "1"};

    for (int round = 0; round < 6; round++) {
        Client *client = client_new(&options);
        EtcdWatch *watch = NULL;
        EtcdLease *lease = NULL;
        EtcdElection *election = NULL;
        Error err = ERROR_INIT;

        if (round < 2) /* rounds 0 and 1 are connected, later rounds are still connecting */
            assert_int_equal(get(client, &err), 0);
        if (round == 4)
            testing_etcd_freeze(server, 0);
        assert_int_equal(etcd_watch_prefix(client->etcd, "/", on_watch, &n_events, &watch), 0);
        assert_int_equal(etcd_lease_new(client->etcd, 2, "/witness", on_lease, n_states, &lease),
                         0);
        if (round == 1)
            TESTING_RUN_UNTIL(client->event,
                              etcd_watch_connected(watch) && n_states[ETCD_LEASE_RENEWED] > 0);
        assert_int_equal(etcd_election_new(client->etcd, "/e/", "x", lease, never_election, NULL,
                                           &election),
                         0);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(etcd_get(client->etcd, "/", true, never_range, NULL, NULL), 0);
            assert_int_equal(etcd_txn(client->etcd, NULL, 0, &op, 1, never_txn, NULL, NULL), 0);
        }
        if (round % 2 == 0)
            client->etcd = etcd_free(client->etcd);
        (void)etcd_election_free(election);
        (void)etcd_lease_free(lease);
        (void)etcd_watch_free(watch);
        client = client_free(client);
    }
}

static void exits(int r _unused_, const Error *err _unused_, const EtcdRange *range _unused_,
                  void *userdata)
{
    assert_true(sd_event_exit(((Client *)userdata)->event, 7) >= 0);
}

static void test_loop_exits(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options);
    _cleanup_(etcd_watch_freep) EtcdWatch *watch = NULL;
    size_t n_events = 0;
    EtcdAnswer *answer = NULL;
    Error err = ERROR_INIT;

    assert_int_equal(etcd_watch_prefix(client->etcd, "/", on_watch, &n_events, &watch), 0);
    assert_int_equal(etcd_get(client->etcd, "/", true, exits, client, NULL), 0);
    assert_int_equal(sd_event_loop(client->event), 7);
    assert_int_equal(etcd_get(client->etcd, "/", true, never_range, NULL, NULL), -ESTALE);
    assert_true(etcd_get_wait(client->etcd, "/", true, &answer, &err) < 0);
}

static void test_memory(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, TESTING_ETCD_TLS);
    EtcdOptions options = testing_etcd_options(server);
    options.timeout_usec = 10 * USEC_PER_SEC;
    _cleanup_(client_freep) Client *client = client_new(&options);
    Error err = ERROR_INIT;

    if (put(client, &err) < 0)
        fail_msg("%s", err.text);
    _cleanup_file_ FILE *file = fopen("/proc/self/statm", "re");
    char line[128] = "";
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    long resident = strtol(line + strcspn(line, " "), NULL, 10); /* the second number, in pages */
    assert_true(resident > 0);
    print_message("resident with a TLS connection: %.1f MB\n",
                  (double)(resident * sysconf(_SC_PAGESIZE)) / 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory), /* first, as the memory of earlier tests would count */
        cmocka_unit_test(test_down),
        cmocka_unit_test(test_unknown_host),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_comes_up_late),
        cmocka_unit_test(test_two_of_three_down),
        cmocka_unit_test(test_host_name),
        cmocka_unit_test(test_tls),
        cmocka_unit_test(test_users),
        cmocka_unit_test(test_rights),
        cmocka_unit_test(test_streams_with_users),
        cmocka_unit_test(test_users_not_enabled),
        cmocka_unit_test(test_free_in_flight),
        cmocka_unit_test(test_loop_exits),
    };
    log_open("test-etcd-client");
    return cmocka_run_group_tests_name("etcd-client", tests, NULL, NULL);
}
