/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-moments.c - libetcd against the model of etcd, at moments that a test cannot choose
 * with a real etcd, such as between two pages, between a write and its answer, or while a watch is
 * disconnected. */
#include "base/clock.h"
#include "base/test/testing.h"
#include "etcd/etcd.h"
#include "tests/sim/fleet/members.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/wire.h"

#include <string.h>

enum { READER, WRITER, N_KEYS = 700 };

static Server *server;
static sd_event *loops[2];
static Etcd *clients[2];
static EtcdLease *lease;
static EtcdWatch *watch;
static EtcdElection *election;

static int set_up(_unused_ void **state)
{
    loops_open(USEC_PER_SEC);
    server = members_open(&(MembersOptions){.n_members = 1, .n_machines = 2, .seed = 1});
    for (size_t i = 0; i < 2; i++) {
        const EtcdOptions options = {.endpoints = members_endpoints(),
                                     .timeout_usec = 30 * USEC_PER_SEC};
        assert_int_equal(sd_event_new(&loops[i]), 0);
        loop_set_machine(loops[i], i);
        assert_int_equal(etcd_new(loops[i], &options, &clients[i], NULL), 0);
    }
    return 0;
}

static int tear_down(_unused_ void **state)
{
    election = etcd_election_free(election);
    lease = etcd_lease_free(lease);
    watch = etcd_watch_free(watch);
    for (size_t i = 0; i < 2; i++) {
        clients[i] = etcd_free(clients[i]);
        loops[i] = sd_event_unref(loops[i]);
    }
    members_close();
    loops_close();
    return 0;
}

static void run_for_msec(uint64_t msec)
{
    const uint64_t until_usec = loops_now_usec() + msec * USEC_PER_MSEC;
    while (loops_run(until_usec))
        ;
}

typedef struct SeenTxn {
    bool came, succeeded;
    int r;
    int64_t revision;
} SeenTxn;

static void on_txn(int r, _unused_ const Error *err, const EtcdTxnResult *result, void *userdata)
{
    *(SeenTxn *)userdata = (SeenTxn){.came = true,
                                     .r = r,
                                     .succeeded = result && result->succeeded,
                                     .revision = result ? result->revision : 0};
}

static void await_txn(const SeenTxn *seen)
{
    const uint64_t until_usec = loops_now_usec() + 60 * USEC_PER_SEC;
    while (!seen->came)
        assert_true(loops_run(until_usec));
}

/* Changes a key. Returns the revision. */
static int64_t change(EtcdOpKind kind, const char *key)
{
    const EtcdOp op = {.kind = kind, .key = key, .value = "v"};
    SeenTxn seen = {0};
    assert_int_equal(etcd_txn(clients[WRITER], NULL, 0, &op, 1, on_txn, &seen, NULL), 0);
    await_txn(&seen);
    assert_true(seen.r == 0 && seen.succeeded);
    return seen.revision;
}

/* ---- pages ---- */

static void put_many(void)
{
    for (int i = 0; i < N_KEYS; i += 100) {
        EtcdOp ops[100];
        char keys[100][32];
        SeenTxn seen = {0};
        for (int k = 0; k < 100; k++) {
            (void)snprintf(keys[k], sizeof(keys[k]), "/p/%04d", i + k);
            ops[k] = (EtcdOp){.kind = ETCD_PUT, .key = keys[k], .value = "v"};
        }
        assert_int_equal(etcd_txn(clients[WRITER], NULL, 0, ops, 100, on_txn, &seen, NULL), 0);
        await_txn(&seen);
        assert_int_equal(seen.r, 0);
    }
}

typedef struct SeenRange {
    bool came;
    int r;
    size_t n;
    int64_t revision, newest;
    char last[32];
} SeenRange;

static void on_range(int r, _unused_ const Error *err, const EtcdRange *range, void *userdata)
{
    SeenRange *seen = userdata;
    seen->came = true;
    seen->r = r;
    if (r < 0)
        return;
    seen->n = range->n_kvs;
    seen->revision = range->revision;
    for (size_t i = 0; i < range->n_kvs; i++)
        seen->newest = MAX(seen->newest, range->kvs[i].mod_revision);
    (void)snprintf(seen->last, sizeof(seen->last), "%s", range->kvs[range->n_kvs - 1].key);
}

static void end_read(const SeenRange *seen)
{
    const uint64_t until_usec = loops_now_usec() + 60 * USEC_PER_SEC;
    while (!seen->came)
        assert_true(loops_run(until_usec));
    assert_int_equal(seen->r, 0);
}

/* Begins a read in pages. Its first page is answered, but not received yet: from now on, each
 * message of the reader takes a second. */
static void begin_read(SeenRange *seen)
{
    SeenRange connected = {0};
    assert_int_equal(etcd_get(clients[READER], "/p/0001", false, on_range, &connected, NULL), 0);
    end_read(&connected);
    network_clog(READER, 0, USEC_PER_SEC);
    assert_int_equal(etcd_get(clients[READER], "/p/", true, on_range, seen, NULL), 0);
    run_for_msec(1500);
    assert_false(seen->came);
}

static void all_pages_are_of_one_moment(_unused_ void **state)
{
    SeenRange seen = {0};
    put_many();
    const int64_t before = server_revision(server);
    begin_read(&seen);
    (void)change(ETCD_DELETE, "/p/0699");
    (void)change(ETCD_PUT, "/p/0650");
    (void)change(ETCD_PUT, "/p/9999");
    end_read(&seen);
    assert_int_equal(seen.n, N_KEYS);
    assert_int_equal(seen.revision, before);
    assert_int_equal(seen.newest, before);
    assert_string_equal(seen.last, "/p/0699");
}

static void a_read_whose_moment_was_compacted_begins_anew(_unused_ void **state)
{
    const char *text;
    SeenRange seen = {0};
    put_many();
    begin_read(&seen);
    (void)change(ETCD_DELETE, "/p/0001");
    const int64_t now = change(ETCD_PUT, "/p/9999");
    assert_int_equal(server_compact(server, now, &text), SERVER_OK);
    network_server_changed();
    end_read(&seen);
    assert_int_equal(seen.n, N_KEYS);
    assert_int_equal(seen.revision, now);
    assert_string_equal(seen.last, "/p/9999");
}

/* ---- writes ---- */

static void a_delete_takes_no_longer_name(_unused_ void **state)
{
    SeenRange seen = {0};
    (void)change(ETCD_PUT, "/p/a");
    (void)change(ETCD_PUT, "/p/ab");
    (void)change(ETCD_PUT, "/p/a/b");
    (void)change(ETCD_DELETE, "/p/a");
    assert_int_equal(etcd_get(clients[READER], "/p/", true, on_range, &seen, NULL), 0);
    end_read(&seen);
    assert_int_equal(seen.n, 2);
    assert_string_equal(seen.last, "/p/ab");
}

/* The client does not send a write again whose answer was lost: the second attempt would fail
 * because of the first, as if another client had written first. */
static void a_write_whose_answer_is_lost_is_neither_done_nor_not(_unused_ void **state)
{
    const EtcdCompare absent = {.key = "/p/a", .target = ETCD_CREATE_REVISION, .equals = 0};
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/p/a", .value = "v"};
    SeenTxn seen = {0};
    const int64_t before = change(ETCD_PUT, "/p/b");
    network_cut(WRITER, 0, NETWORK_TO_CLIENT, true);
    assert_int_equal(etcd_txn(clients[WRITER], &absent, 1, &op, 1, on_txn, &seen, NULL), 0);
    run_for_msec(1000);
    assert_int_equal(server_revision(server), before + 1);
    assert_false(seen.came);
    network_reset(WRITER, 0);
    network_cut(WRITER, 0, NETWORK_TO_CLIENT, false);
    await_txn(&seen);
    assert_true(seen.r == -ECONNREFUSED || seen.r == -ETIMEDOUT || seen.r == -EIO);
    assert_int_equal(server_revision(server), before + 1);
}

static void on_failed(int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                      void *userdata)
{
    *(int *)userdata = r;
}

/* A read without etcd ends at its deadline, and pauses between its attempts. */
static void a_read_without_an_etcd_ends_in_time(_unused_ void **state)
{
    int r = 0, n_turns = 0;
    server_stop(server, 0);
    network_server_changed();
    const uint64_t begun_usec = loops_now_usec();
    assert_int_equal(etcd_get(clients[READER], "/p/a", false, on_failed, &r, NULL), 0);
    while (r == 0 && ++n_turns < 10000)
        assert_true(loops_run(begun_usec + 60 * USEC_PER_SEC));
    assert_int_equal(r, -ECONNREFUSED);
    assert_true(n_turns < 5000);
    assert_true(loops_now_usec() <= begun_usec + 30 * USEC_PER_SEC);
}

/* ---- watches ---- */

typedef struct SeenEvents {
    size_t n, n_calls;
    struct {
        EtcdEventKind kind;
        char key[32];
        int64_t revision;
    } of[32];
} SeenEvents;

static void on_events(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                      _unused_ bool initial, void *userdata)
{
    SeenEvents *seen = userdata;
    seen->n_calls++;
    for (size_t i = 0; i < n; i++, seen->n++) {
        assert_true(seen->n < ELEMENTSOF(seen->of));
        seen->of[seen->n].kind = events[i].kind;
        seen->of[seen->n].revision = events[i].kv.mod_revision;
        (void)snprintf(seen->of[seen->n].key, sizeof(seen->of[0].key), "%s", events[i].kv.key);
    }
}

static void each_change_is_told_once(_unused_ void **state)
{
    SeenEvents seen = {0};
    (void)change(ETCD_PUT, "/p/a");
    assert_int_equal(etcd_watch_prefix(clients[READER], "/p/", on_events, &seen, &watch), 0);
    run_for_msec(1000);
    assert_int_equal(seen.n, 1);
    (void)change(ETCD_PUT, "/p/b");
    run_for_msec(1000);
    network_reset(READER, 0);
    run_for_msec(5000);
    assert_true(etcd_watch_connected(watch));
    assert_int_equal(seen.n, 2);
    (void)change(ETCD_PUT, "/p/c");
    run_for_msec(1000);
    assert_int_equal(seen.n, 3);
}

static void a_deleted_key_is_not_known(_unused_ void **state)
{
    SeenEvents seen = {0};
    (void)change(ETCD_PUT, "/p/a");
    (void)change(ETCD_PUT, "/p/b");
    assert_int_equal(etcd_watch_prefix(clients[READER], "/p/", on_events, &seen, &watch), 0);
    run_for_msec(1000);
    (void)change(ETCD_DELETE, "/p/a");
    run_for_msec(1000);
    assert_false(etcd_watch_knows(watch, "/p/a"));
    assert_true(etcd_watch_knows(watch, "/p/b"));
    network_reset(READER, 0);
    run_for_msec(5000);
    assert_int_equal(seen.n, 3); /* puts of a and b, and one delete of a */
}

/* Both events come in one call of the handler: first the delete, with its own revision, then the
 * put. */
static void
a_key_that_died_and_was_reborn_while_nobody_watched_is_told_as_both(_unused_ void **state)
{
    SeenEvents seen = {0};
    (void)change(ETCD_PUT, "/p/a");
    assert_int_equal(etcd_watch_prefix(clients[READER], "/p/", on_events, &seen, &watch), 0);
    run_for_msec(1000);
    const size_t n_before = seen.n, n_calls = seen.n_calls;
    network_cut(READER, 0, NETWORK_TO_CLIENT, true);
    network_cut(READER, 0, NETWORK_TO_MEMBER, true);
    (void)change(ETCD_DELETE, "/p/a");
    const int64_t reborn = change(ETCD_PUT, "/p/a");
    network_reset(READER, 0);
    network_cut(READER, 0, NETWORK_TO_CLIENT, false);
    network_cut(READER, 0, NETWORK_TO_MEMBER, false);
    run_for_msec(20000);
    assert_int_equal(seen.n, n_before + 2);
    assert_int_equal(seen.n_calls, n_calls + 1);
    assert_int_equal(seen.of[n_before].kind, ETCD_EVENT_DELETE);
    assert_int_equal(seen.of[n_before].revision, reborn - 1);
    assert_int_equal(seen.of[n_before + 1].kind, ETCD_EVENT_PUT);
    assert_int_equal(seen.of[n_before + 1].revision, reborn);
}

/* A watch of one key never reports a key with a longer name, neither as a change nor in a list. */
static void a_watch_of_one_key_tells_of_no_longer_name(_unused_ void **state)
{
    SeenEvents seen = {0};
    (void)change(ETCD_PUT, "/p/a");
    (void)change(ETCD_PUT, "/p/ab");
    assert_int_equal(etcd_watch_key(clients[READER], "/p/a", on_events, &seen, &watch), 0);
    run_for_msec(1000);
    assert_int_equal(seen.n, 1);
    network_reset(READER, 0);
    run_for_msec(5000);
    (void)change(ETCD_PUT, "/p/ab");
    run_for_msec(1000);
    assert_int_equal(etcd_watch_lists(watch), 2);
    assert_int_equal(seen.n, 1);
}

/* ---- an election ---- */

typedef struct SeenTerm {
    int n_won, n_lost;
    bool leading;
} SeenTerm;

static void on_election(bool leading, _unused_ const char *key, _unused_ int64_t term,
                        void *userdata)
{
    SeenTerm *seen = userdata;
    seen->leading = leading;
    seen->n_won += leading;
    seen->n_lost += !leading;
}

static void on_lease(EtcdLeaseState is, int64_t id, _unused_ void *userdata)
{
    if (election)
        etcd_election_lease_changed(election, is, id);
}

static void win(SeenTerm *seen)
{
    assert_int_equal(etcd_lease_new(clients[READER], 10, "/p/w", on_lease, NULL, &lease), 0);
    run_for_msec(1000);
    assert_int_equal(etcd_election_new(clients[READER], "/e/", "one", lease, on_election, seen,
                                       &election),
                     0);
    run_for_msec(1000);
    assert_true(seen->leading);
}

/* A candidate whose lease is lost stops leading at once, not only when the watch shows that its key
 * was deleted. */
static void who_loses_the_lease_leads_no_more(_unused_ void **state)
{
    SeenTerm seen = {0};
    win(&seen);
    etcd_election_lease_changed(election, ETCD_LEASE_LOST, etcd_lease_id(lease) + 1);
    assert_true(seen.leading); /* the lost lease is not the candidate's */
    etcd_election_lease_changed(election, ETCD_LEASE_RENEWED, etcd_lease_id(lease));
    assert_true(seen.leading);
    etcd_election_lease_changed(election, ETCD_LEASE_LOST, etcd_lease_id(lease));
    assert_false(seen.leading);
    assert_int_equal(seen.n_lost, 1);
}

/* The deletion and the new key come in one call of the watch: a new term begins. */
static void a_key_that_was_born_again_is_another_term(_unused_ void **state)
{
    char key[32];
    SeenTerm seen = {0};
    win(&seen);
    (void)snprintf(key, sizeof(key), "/e/%llx", (unsigned long long)etcd_lease_id(lease));
    for (NetworkWay way = 0; way < NETWORK_WAYS; way++)
        network_cut(READER, 0, way, true);
    (void)change(ETCD_DELETE, key);
    (void)change(ETCD_PUT, key);
    network_reset(READER, 0);
    for (NetworkWay way = 0; way < NETWORK_WAYS; way++)
        network_cut(READER, 0, way, false);
    run_for_msec(5000);
    assert_int_equal(seen.n_lost, 1);
    assert_int_equal(seen.n_won, 2);
    assert_true(seen.leading);
}

static void on_value(int r, _unused_ const Error *err, const EtcdRange *range, void *userdata)
{
    assert_int_equal(r, 0);
    assert_int_equal(range->n_kvs, 1);
    (void)snprintf(userdata, 32, "%s", range->kvs[0].value);
}

static void a_value_that_changes_while_another_is_written_is_written(_unused_ void **state)
{
    SeenTerm seen = {0};
    char value[32] = "";
    win(&seen);
    network_clog(READER, 0, USEC_PER_SEC / 5);
    etcd_election_change(election, "two");
    run_for_msec(250); /* the write is on its way, or is done but not answered yet */
    etcd_election_change(election, "three");
    run_for_msec(3000);
    assert_int_equal(etcd_get(clients[WRITER], "/e/", true, on_value, value, NULL), 0);
    run_for_msec(1000);
    assert_string_equal(value, "three");
    assert_int_equal(seen.n_won, 1); /* the candidate leads in the same term as before */
}

/* Loses the requests that are on the way to the member, and resets the reader's connection. */
static void lose_requests(void)
{
    network_cut(READER, 0, NETWORK_TO_MEMBER, true);
    run_for_msec(500);
    network_reset(READER, 0);
    network_cut(READER, 0, NETWORK_TO_MEMBER, false);
}

static void what_an_election_could_not_write_is_written_again(_unused_ void **state)
{
    SeenTerm seen = {0};
    char value[32] = "";
    assert_int_equal(etcd_lease_new(clients[READER], 10, "/p/w", on_lease, NULL, &lease), 0);
    run_for_msec(1000);
    assert_int_equal(etcd_election_new(clients[READER], "/e/", "one", lease, on_election, &seen,
                                       &election),
                     0);
    lose_requests();
    run_for_msec(5000);
    assert_true(seen.leading);
    etcd_election_change(election, "two");
    lose_requests();
    run_for_msec(5000);
    assert_int_equal(etcd_get(clients[WRITER], "/e/", true, on_value, value, NULL), 0);
    run_for_msec(1000);
    assert_string_equal(value, "two");
    assert_int_equal(seen.n_won, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(all_pages_are_of_one_moment),
        CASE(a_read_whose_moment_was_compacted_begins_anew),
        CASE(a_delete_takes_no_longer_name),
        CASE(a_write_whose_answer_is_lost_is_neither_done_nor_not),
        CASE(a_read_without_an_etcd_ends_in_time),
        CASE(each_change_is_told_once),
        CASE(a_key_that_was_born_again_is_another_term),
        CASE(a_deleted_key_is_not_known),
        CASE(a_key_that_died_and_was_reborn_while_nobody_watched_is_told_as_both),
        CASE(a_watch_of_one_key_tells_of_no_longer_name),
        CASE(what_an_election_could_not_write_is_written_again),
        CASE(who_loses_the_lease_leads_no_more),
        CASE(a_value_that_changes_while_another_is_written_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
