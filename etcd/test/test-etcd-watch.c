/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-watch.c - events of a watch during restarts, leader changes, freezes, isolation and compaction. The events
 * are compared as text: "+key=value" is a put, "-key" a delete; each call of the handler makes one line, the first of
 * which begins with "*". */
#include "base/test/testing.h"

#include "base/clock.h"
#include "base/log.h"
#include "etcd/etcd-wait.h"
#include "etcd/test/testing-etcd.h"

#include <string.h>

typedef struct Told {
    char text[1 << 17];
    size_t n_empty; /* number of lists without a change */
    size_t n_calls, n_initial, n_events, n_bytes;
    int64_t revision; /* the revision of the handler's last call */
    EtcdWatch **free_in_handler;
} Told;

typedef struct Client {
    sd_event *event;
    Etcd *etcd;
    EtcdWatch *watch;
    Told told;
} Client;

static void on_events(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                      void *userdata)
{
    Told *told = userdata;
    size_t n = strlen(told->text);

    assert_true(initial == (told->n_calls == 0));
    if (n_events == 0 && !initial) { /* a list without a change */
        assert_true(revision >= told->revision);
        told->n_empty++;
        return;
    }
    assert_true(revision > told->revision || initial);
    told->revision = revision;
    told->n_calls++;
    told->n_initial += initial;
    n += (size_t)snprintf(told->text + n, sizeof(told->text) - n, "%s", initial ? "*" : "");
    for (size_t i = 0; i < n_events; i++) {
        const EtcdKeyValue *kv = &events[i].kv;
        told->n_events++;
        told->n_bytes += kv->n_value;
        assert_true(kv->mod_revision <= revision);
        if (events[i].kind == ETCD_EVENT_DELETE)
            n += (size_t)snprintf(told->text + n, sizeof(told->text) - n, "-%s ", kv->key);
        else
            n += (size_t)snprintf(told->text + n, sizeof(told->text) - n, "+%s=%.9s ", kv->key,
                                  kv->value);
        assert_true(n < sizeof(told->text));
    }
    (void)snprintf(told->text + n, sizeof(told->text) - n, "\n");
    if (told->free_in_handler)
        *told->free_in_handler = etcd_watch_free(*told->free_in_handler);
}

static Client *client_free(Client *client)
{
    (void)etcd_watch_free(client->watch);
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

/* Returns a client that watches /w/ and has received the present state. */
static Client *watcher_new(const EtcdOptions *options)
{
    Client *client = client_new(options);

    assert_int_equal(etcd_watch_prefix(client->etcd, "/w/", on_events, &client->told,
                                       &client->watch),
                     0);
    assert_false(etcd_watch_connected(client->watch));
    TESTING_RUN_UNTIL(client->event, etcd_watch_connected(client->watch));
    return client;
}

static void forget(Told *told) { told->text[0] = 0; }

static void put(Client *client, const char *key, const char *value)
{
    Error err = ERROR_INIT;
    EtcdOp op = {.kind = ETCD_PUT, .key = key, .value = value};

    if (etcd_txn_wait(client->etcd, NULL, 0, &op, 1, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

/* ---- one member ---- */

static void test_state_then_changes(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *writer = client_new(&options);

    put(writer, "/w/b", "1");
    put(writer, "/w/a", "2");
    put(writer, "/x", "not watched");
    _cleanup_(client_freep) Client *client = watcher_new(&options);
    Told *told = &client->told;
    assert_string_equal(told->text, "*+/w/b=1 +/w/a=2 \n");

    /* All events of a revision arrive in one call. */
    forget(told);
    EtcdOp ops[] = {{.kind = ETCD_PUT, .key = "/w/c", .value = "3"},
                    {.kind = ETCD_DELETE, .key = "/w/a"},
                    {.kind = ETCD_PUT, .key = "/w/b", .value = "4"}};
    assert_int_equal(etcd_txn_wait(writer->etcd, NULL, 0, ops, 3, NULL, NULL), 0);
    TESTING_RUN_UNTIL(client->event, told->n_calls == 2);
    assert_string_equal(told->text, "+/w/c=3 -/w/a +/w/b=4 \n");

    /* Changes arrive in order, each once; on_events() checks the revisions. */
    char value[8], expected[sizeof(told->text)];
    size_t n = 0;
    forget(told);
    for (int i = 0; i < 200; i++) {
        (void)snprintf(value, sizeof(value), "%d", i);
        put(writer, "/w/n", value);
        n += (size_t)snprintf(expected + n, sizeof(expected) - n, "+/w/n=%d \n", i);
    }
    TESTING_RUN_UNTIL(client->event, told->n_calls == 202);
    assert_string_equal(told->text, expected);
}

static void test_one_key(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = client_new(&options);
    Told *told = &client->told;

    put(client, "/w/n1", "1");
    put(client, "/w/n10", "not watched");
    assert_int_equal(etcd_watch_key(client->etcd, "/w/n1", on_events, told, &client->watch), 0);
    TESTING_RUN_UNTIL(client->event, etcd_watch_connected(client->watch));
    assert_string_equal(told->text, "*+/w/n1=1 \n");
    forget(told);
    put(client, "/w/n10", "not watched either");
    put(client, "/w/n1", "2");
    TESTING_RUN_UNTIL(client->event, told->n_calls == 2);
    assert_string_equal(told->text, "+/w/n1=2 \n");
}

static void test_empty_then_freed_by_its_handler(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = watcher_new(&options);

    assert_string_equal(client->told.text, "*\n");
    client->told.free_in_handler = &client->watch;
    put(client, "/w/a", "1");
    TESTING_RUN_UNTIL(client->event, client->watch == NULL);
    put(client, "/w/a", "2");
    put(client, "/w/a", "3");
    assert_int_equal(client->told.n_calls, 2);

    /* The watch may also be freed within the first call. */
    client->told = (Told){.free_in_handler = &client->watch};
    assert_int_equal(etcd_watch_prefix(client->etcd, "/w/", on_events, &client->told,
                                       &client->watch),
                     0);
    TESTING_RUN_UNTIL(client->event, client->watch == NULL);
    assert_int_equal(client->told.n_calls, 1);
}

/* The loop does not run while megabytes are written. So the member must send most of them late, with many revisions in
 * one answer, and in fragments that end within a revision. */
static void test_large_backlog(void **state _unused_)
{
    enum { REVISIONS = 600, OPS = 6, VALUE_BYTES = 3000 };
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = watcher_new(&options);
    _cleanup_(client_freep) Client *writer = client_new(&options);
    static char value[VALUE_BYTES + 1];
    char keys[OPS][16];
    EtcdOp ops[OPS];

    memset(value, 'v', VALUE_BYTES);
    for (int i = 0; i < OPS; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "/w/%d", i);
        ops[i] = (EtcdOp){.kind = ETCD_PUT, .key = keys[i], .value = value};
    }
    for (int i = 0; i < REVISIONS; i++)
        assert_int_equal(etcd_txn_wait(writer->etcd, NULL, 0, ops, OPS, NULL, NULL), 0);
    TESTING_RUN_UNTIL(client->event, client->told.n_calls >= 1 + REVISIONS);
    assert_int_equal(client->told.n_calls, 1 + REVISIONS);
    assert_int_equal(client->told.n_events, REVISIONS * OPS);
    assert_int_equal(client->told.n_bytes, (size_t)REVISIONS * OPS * VALUE_BYTES);
}

static void test_member_restarts(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = watcher_new(&options);

    put(client, "/w/a", "1");
    TESTING_RUN_UNTIL(client->event, client->told.n_calls == 2);
    for (int i = 0; i < 3; i++) {
        testing_etcd_kill(server, 0);
        TESTING_RUN_UNTIL(client->event, !etcd_watch_connected(client->watch));
        testing_etcd_restart(server, 0);
        testing_etcd_wait_healthy(server, 0);
        TESTING_RUN_UNTIL(client->event, etcd_watch_connected(client->watch));
        /* Nothing has changed, but the handler is called for each list. */
        assert_true(etcd_watch_lists(client->watch) > client->told.n_empty);
        assert_true(client->told.n_empty > (size_t)i);
        assert_true(etcd_watch_knows(client->watch, "/w/a"));
        assert_false(etcd_watch_knows(client->watch, "/w/b"));
    }
    put(client, "/w/a", "2");
    TESTING_RUN_UNTIL(client->event, client->told.n_calls == 3);
    assert_string_equal(client->told.text, "*\n+/w/a=1 \n+/w/a=2 \n");
}

/* Another store replaces the first one at the same address, with lower revisions and other keys: the watch reports the
 * deletes. */
static void test_store_starts_over(void **state _unused_)
{
    TestingEtcd *server = testing_etcd_start(1, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = watcher_new(&options);
    char command[256];

    put(client, "/w/a", "1");
    put(client, "/w/b", "1");
    TESTING_RUN_UNTIL(client->event, client->told.n_calls == 3);
    testing_etcd_kill(server, 0);
    (void)snprintf(command, sizeof(command), "rm -r %s/data0", testing_etcd_folder(server));
    assert_int_equal(system(command), 0);
    testing_etcd_restart(server, 0);
    testing_etcd_wait_healthy(server, 0);
    forget(&client->told);
    client->told.revision = 0;
    TESTING_RUN_UNTIL(client->event, *client->told.text);
    assert_string_equal(client->told.text, "-/w/a -/w/b \n");
    (void)testing_etcd_stop(server);
}

/* ---- three members ---- */

/* Changes while the watch is disconnected are compacted before it reconnects: the watch generates the deletes, and
 * reports a key that was deleted and put again as both a delete and a put. */
static void test_compaction_while_disconnected(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, 0);
    EtcdOptions options = testing_etcd_options(server);
    EtcdOptions one = options;
    one.endpoints = testing_etcd_endpoint(server, 0);
    _cleanup_(client_freep) Client *client = watcher_new(&one);
    Told *told = &client->told;

    put(client, "/w/deleted", "1");
    put(client, "/w/reborn", "1");
    put(client, "/w/changed", "1");
    put(client, "/w/same", "1");
    TESTING_RUN_UNTIL(client->event, told->n_calls == 5);
    testing_etcd_compact(server); /* the compaction has no effect on a connected watch */
    put(client, "/w/same", "2");
    TESTING_RUN_UNTIL(client->event, told->n_calls == 6);

    forget(told);
    testing_etcd_kill(server, 0);
    TESTING_RUN_UNTIL(client->event, !etcd_watch_connected(client->watch));
    testing_etcd_leader(server);
    testing_etcd_ctl(server, "del", "/w/deleted", NULL);
    testing_etcd_ctl(server, "del", "/w/reborn", NULL);
    testing_etcd_ctl(server, "put", "/w/changed", "2", NULL);
    testing_etcd_ctl(server, "put", "/w/reborn", "2", NULL);
    testing_etcd_ctl(server, "put", "/w/new", "1", NULL);
    testing_etcd_ctl(server, "put", "/w/passing", "1", NULL);
    testing_etcd_ctl(server, "del", "/w/passing", NULL);
    testing_etcd_compact(server);
    testing_etcd_restart(server, 0);
    TESTING_RUN_UNTIL(client->event, etcd_watch_connected(client->watch));
    assert_string_equal(told->text,
                        "-/w/deleted -/w/reborn +/w/changed=2 +/w/reborn=2 +/w/new=1 \n");
    put(client, "/w/after", "1");
    TESTING_RUN_UNTIL(client->event, strstr(told->text, "+/w/after=1 \n"));
    assert_int_equal(told->n_initial, 1);
}

static void test_leader_dies(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = watcher_new(&options);
    char expected[256] = "*\n", value[8];

    for (int i = 0; i < 3; i++) {
        size_t leader = testing_etcd_leader(server);
        testing_etcd_kill(server, leader);
        (void)testing_etcd_leader(server);
        (void)snprintf(value, sizeof(value), "%d", i);
        testing_etcd_ctl(server, "put", "/w/a", value, NULL);
        size_t n = strlen(expected);
        (void)snprintf(expected + n, sizeof(expected) - n, "+/w/a=%d \n", i);
        TESTING_RUN_UNTIL(client->event, strstr(client->told.text, expected + n));
        testing_etcd_restart(server, leader);
        testing_etcd_wait_healthy(server, leader);
    }
    assert_string_equal(client->told.text, expected);
}

/* Each of the three members freezes in turn, also the member that the client uses and etcd's leader. Reads and the
 * watch continue within seconds. */
static void test_each_member_freezes(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = watcher_new(&options);
    char expected[256] = "*\n", value[8];

    for (size_t i = 0; i < 3; i++) {
        EtcdAnswer *answer = NULL;
        Error err = ERROR_INIT;

        testing_etcd_freeze(server, i);
        uint64_t frozen_usec = clock_boottime_usec();
        if (etcd_get_wait(client->etcd, "/w/", true, &answer, &err) < 0)
            fail_msg("%s", err.text);
        (void)etcd_answer_free(answer);
        assert_true(clock_boottime_usec() - frozen_usec < 20 * USEC_PER_SEC);
        (void)testing_etcd_leader(server);
        (void)snprintf(value, sizeof(value), "%zu", i);
        testing_etcd_ctl(server, "put", "/w/a", value, NULL);
        size_t n = strlen(expected);
        (void)snprintf(expected + n, sizeof(expected) - n, "+/w/a=%zu \n", i);
        TESTING_RUN_UNTIL(client->event, strstr(client->told.text, expected + n));
        print_message("member %zu frozen: watch and read went on within %.1f s\n", i,
                      (double)(clock_boottime_usec() - frozen_usec) / 1e6);
        testing_etcd_thaw(server, i);
        testing_etcd_wait_healthy(server, i);
    }
    assert_string_equal(client->told.text, expected);
}

/* A watch must notice a silent member even if the client has no other request in flight. */
static void test_silent_stream(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, 0);
    EtcdOptions options = testing_etcd_options(server);
    _cleanup_(client_freep) Client *client = watcher_new(&options);

    for (size_t i = 0; i < 3 && client->told.n_calls < 4; i++) {
        testing_etcd_freeze(server, i);
        (void)testing_etcd_leader(server);
        uint64_t frozen_usec = clock_boottime_usec();
        size_t n = client->told.n_calls;
        testing_etcd_ctl(server, "put", "/w/a", "1", NULL);
        TESTING_RUN_UNTIL(client->event, client->told.n_calls == n + 1);
        uint64_t took_usec = clock_boottime_usec() - frozen_usec;
        print_message("member %zu frozen: the event came after %.1f s\n", i,
                      (double)took_usec / 1e6);
        assert_true(took_usec < 20 * USEC_PER_SEC);
        testing_etcd_thaw(server, i);
        testing_etcd_wait_healthy(server, i);
    }
}

/* The peers of the only endpoint freeze, so the endpoint has no leader: the watch disconnects, and reads time out. The
 * watch and reads work again after the thaw. */
static void test_without_quorum(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, 0);
    EtcdOptions options = testing_etcd_options(server);
    options.endpoints = testing_etcd_endpoint(server, 1);
    options.timeout_usec = 2 * USEC_PER_SEC;
    _cleanup_(client_freep) Client *client = watcher_new(&options);
    EtcdAnswer *answer = NULL;
    Error err = ERROR_INIT;

    testing_etcd_freeze(server, 0);
    testing_etcd_freeze(server, 2);
    TESTING_RUN_UNTIL(client->event, !etcd_watch_connected(client->watch));
    uint64_t asked_usec = clock_boottime_usec();
    assert_int_equal(etcd_get_wait(client->etcd, "/w/a", false, &answer, &err), -ETIMEDOUT);
    assert_in_range(clock_boottime_usec() - asked_usec, 0, 20 * USEC_PER_SEC);
    assert_non_null(strstr(err.text, "no leader"));
    EtcdOp op = {.kind = ETCD_PUT, .key = "/w/a", .value = "lost"};
    assert_int_equal(etcd_txn_wait(client->etcd, NULL, 0, &op, 1, NULL, &err), -ETIMEDOUT);

    testing_etcd_thaw(server, 0);
    testing_etcd_thaw(server, 2);
    TESTING_RUN_UNTIL(client->event, etcd_watch_connected(client->watch));
    put(client, "/w/b", "1");
    TESTING_RUN_UNTIL(client->event, strstr(client->told.text, "+/w/b=1"));
}

/* Two of three members work: a client works at once, whichever member it begins with. */
static void test_isolated_member(void **state _unused_)
{
    _cleanup_(testing_etcd_stopp) TestingEtcd *server = testing_etcd_start(3, TESTING_ETCD_TLS);
    EtcdOptions options = testing_etcd_options(server);
    size_t leader = testing_etcd_leader(server);

    testing_etcd_isolate(server, leader);
    for (int i = 0; i < 6; i++) {
        _cleanup_(client_freep) Client *client = watcher_new(&options);
        size_t n = client->told.n_calls;
        put(client, "/w/a", "1");
        TESTING_RUN_UNTIL(client->event, client->told.n_calls == n + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_then_changes),
        cmocka_unit_test(test_one_key),
        cmocka_unit_test(test_empty_then_freed_by_its_handler),
        cmocka_unit_test(test_large_backlog),
        cmocka_unit_test(test_member_restarts),
        cmocka_unit_test(test_store_starts_over),
        cmocka_unit_test(test_compaction_while_disconnected),
        cmocka_unit_test(test_leader_dies),
        cmocka_unit_test(test_each_member_freezes),
        cmocka_unit_test(test_silent_stream),
        cmocka_unit_test(test_without_quorum),
        cmocka_unit_test(test_isolated_member),
    };
    log_open("test-etcd-watch");
    return cmocka_run_group_tests_name("etcd-watch", tests, NULL, NULL);
}
