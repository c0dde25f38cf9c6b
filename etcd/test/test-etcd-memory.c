/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-memory.c - the etcd in memory does what its header says, and each fault is as bad as it was asked for: a
 * fault that comes weaker would make tests of others pass. */
#include "etcd/test/testing-memory.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

static Etcd client, other;

static int begin(_unused_ void **state)
{
    client = other = (Etcd){0};
    memory_begin();
    return 0;
}

static int end(_unused_ void **state)
{
    memory_end();
    return 0;
}

/* ---- requests ---- */

typedef struct Heard {
    int n, r;
    bool has_result, succeeded;
    int64_t revision;
    char read[64]; /* values, each with a semicolon */
} Heard;

static void note_keys(Heard *heard, const EtcdKeyValue *kvs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)snprintf(heard->read + strlen(heard->read), sizeof(heard->read) - strlen(heard->read),
                       "%s;", kvs[i].value);
}

static void on_txn(int r, _unused_ const Error *err, const EtcdTxnResult *result, void *userdata)
{
    Heard *heard = userdata;
    *heard = (Heard){.n = heard->n + 1, .r = r, .has_result = result};
    if (!result)
        return;
    heard->succeeded = result->succeeded;
    heard->revision = result->revision;
    note_keys(heard, result->kvs, result->n_kvs);
}

static void on_range(int r, _unused_ const Error *err, const EtcdRange *range, void *userdata)
{
    Heard *heard = userdata;
    *heard = (Heard){.n = heard->n + 1, .r = r, .has_result = range};
    if (!range)
        return;
    heard->revision = range->revision;
    note_keys(heard, range->kvs, range->n_kvs);
}

static Heard heard;

/* Requests that "/a" becomes this value if its revision is still that. */
static EtcdCall *request_put(const char *value, int64_t if_modified)
{
    EtcdCall *call;
    const EtcdCompare guard = {.key = "/a", .target = ETCD_MOD_REVISION, .equals = if_modified};
    const EtcdOp ops[] = {{.kind = ETCD_GET, .key = "/a"},
                          {.kind = ETCD_PUT, .key = "/a", .value = value}};
    heard = (Heard){0};
    assert_int_equal(etcd_txn(&client, &guard, 1, ops, 2, on_txn, &heard, &call), 0);
    assert_int_equal(heard.n, 0);
    return call;
}

static void expect_stored(const char *value)
{
    const StoredKey *k = find("/a");
    assert_non_null(k);
    assert_string_equal(k->value, value);
}

static void an_answer_is_as_it_was_asked_for(_unused_ void **state)
{
    static const struct {
        AnswerKind kind;
        int r;
        bool is_done; /* when the answer comes */
    } all[] = {
        {GIVEN, 0, true},         {LOST_AFTER, -ETIMEDOUT, true}, {LOST_BEFORE, -ETIMEDOUT, false},
        {DENIED, -EACCES, false}, {LATE, -ETIMEDOUT, false},
    };
    for (size_t i = 0; i < ELEMENTSOF(all); i++) {
        const int64_t before = put("/a", "old", 0);
        answer(request_put("new", before), all[i].kind);
        assert_int_equal(heard.n, 1);
        assert_int_equal(heard.r, all[i].r);
        assert_int_equal(heard.has_result, all[i].r == 0);
        expect_stored(all[i].is_done ? "new" : "old");
        assert_int_equal(newest_revision, before + all[i].is_done);
        if (all[i].r == 0) {
            assert_true(heard.succeeded);
            assert_int_equal(heard.revision, before + 1);
            assert_string_equal(heard.read, "old;");
        }
    }
    come_late();
    expect_stored("new");
    assert_int_equal(heard.n, 1); /* nobody hears of it */
}

/* A request that comes late is judged by the store as it is then. */
static void guards_are_looked_at_when_the_request_arrives(_unused_ void **state)
{
    const int64_t before = put("/a", "old", 0);
    answer(request_put("new", before), LATE);
    (void)put("/a", "between", 0);
    come_late();
    expect_stored("between");
    EtcdCall *call = request_put("new", before);
    answer(call, GIVEN);
    assert_true(heard.r == 0 && heard.has_result && !heard.succeeded);
    assert_string_equal(heard.read, ""); /* nothing of it was done */
    expect_stored("between");
    answer(request_put("new", before), LOST_AFTER);
    expect_stored("between");
}

static void a_read_sees_the_store_at_its_snapshot(_unused_ void **state)
{
    EtcdCall *read;
    client.range = "/";
    (void)put("/a", "1", 0);
    (void)put("/b", "2", 0);
    assert_int_equal(etcd_get(&client, "/", true, on_range, &heard, &read), 0);
    take_snapshot(read);
    const int64_t then = newest_revision;
    (void)put("/a", "3", 0);
    (void)delete_key("/b");
    answer(read, GIVEN);
    assert_string_equal(heard.read, "1;2;");
    assert_int_equal(heard.revision, then);
    assert_int_equal(etcd_get(&client, "/", true, on_range, &heard, &read), 0);
    answer(read, GIVEN);
    assert_string_equal(heard.read, "3;");
    assert_int_equal(etcd_get(&client, "/", true, on_range, &heard, &read), 0);
    answer(read, LOST_AFTER);
    assert_true(heard.r == -ETIMEDOUT && !heard.has_result);
}

static void what_cannot_begin_begins_nothing(_unused_ void **state)
{
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/a", .value = "x"};
    EtcdCall *call = NULL;
    client.fails = -ENOMEM;
    assert_int_equal(etcd_txn(&client, NULL, 0, &op, 1, on_txn, &heard, &call), -ENOMEM);
    assert_int_equal(etcd_revoke(&client, FIRST_LEASE, on_txn, &heard, &call), -ENOMEM);
    assert_int_equal(etcd_request_rights(&client, "/a", on_txn, &heard, &call), -ENOMEM);
    assert_null(call);
    assert_int_equal(client.n_failed, 3);
    assert_int_equal(n_under_way(&client), 0);
    assert_int_equal(client.n_begun[CALL_TXN], 0);
}

static void who_is_cut_off_gets_nothing(_unused_ void **state)
{
    const EtcdOp op = {.kind = ETCD_PUT, .key = "/a", .value = "x"};
    Heard of_other = {0};
    (void)request_put("mine", 0);
    assert_int_equal(etcd_txn(&other, NULL, 0, &op, 1, on_txn, &of_other, NULL), 0);
    client.is_cut = true;
    settle();
    assert_int_equal(heard.n, 0);
    assert_int_equal(of_other.n, 1);
    expect_stored("x");
    client.is_cut = false;
    settle();
    assert_true(heard.n == 1 && !heard.succeeded); /* the key has changed meanwhile */
}

/* ---- watches ---- */

static char seen[256];

static void on_events(const EtcdEvent *events, size_t n, int64_t revision, bool initial,
                      _unused_ void *userdata)
{
    size_t at = strlen(seen);
    at += (size_t)snprintf(seen + at, sizeof(seen) - at, "%s", initial ? "list " : "");
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(seen + at, sizeof(seen) - at, "%s%s=%s ",
                               events[i].kind == ETCD_EVENT_DELETE ? "-" : "", events[i].kv.key,
                               events[i].kv.value);
    (void)snprintf(seen + at, sizeof(seen) - at, "@%d;", (int)(revision - 100));
}

static void expect_seen(const char *text)
{
    assert_string_equal(seen, text);
    *seen = '\0';
}

static void a_watch_shows_each_revision_until_it_lists_again(_unused_ void **state)
{
    EtcdWatch *watch;
    *seen = '\0';
    (void)put("/w/a", "1", 0);
    assert_int_equal(etcd_watch_prefix(&client, "/w/", on_events, NULL, &watch), 0);
    assert_false(etcd_watch_connected(watch));
    assert_true(show_one(&client, NULL));
    expect_seen("list /w/a=1 @1;");
    assert_true(etcd_watch_connected(watch) && etcd_watch_knows(watch, "/w/a"));
    (void)put("/w/a", "2", 0);
    (void)put("/elsewhere", "x", 0);
    (void)put("/w/a", "3", 0);
    assert_true(show_one(&client, "/w/"));
    expect_seen("/w/a=2 @2;");
    assert_false(show_one(&client, "/other/"));
    show(&client);
    expect_seen("/w/a=3 @4;");
    (void)put("/w/b", "short", 0);
    (void)delete_key("/w/b"); /* nobody sees it */
    (void)delete_key("/w/a");
    (void)put("/w/a", "4", 0);
    list_again(&client);
    expect_seen("-/w/a= /w/a=4 @8;");
    assert_int_equal(etcd_watch_lists(watch), 2);
    (void)put("/w/a", "5", 0);
    list_until(&client, newest_revision - 1); /* a member that lags */
    expect_seen("@8;");
    show(&client);
    expect_seen("/w/a=5 @9;");
    watch = etcd_watch_free(watch);
}

static void who_is_blind_sees_nothing(_unused_ void **state)
{
    EtcdWatch *watch;
    *seen = '\0';
    assert_int_equal(etcd_watch_key(&client, "/a", on_events, NULL, &watch), 0);
    settle();
    expect_seen("list @0;");
    client.is_blind = true;
    (void)request_put("new", 0);
    settle();
    assert_int_equal(heard.n, 1); /* answers arrive */
    expect_seen("");
    assert_false(etcd_watch_knows(watch, "/a"));
    client.is_blind = false;
    client.is_cut = true;
    settle();
    expect_seen("");
    assert_false(etcd_watch_connected(watch));
    client.is_cut = false;
    settle();
    expect_seen("/a=new @1;");
    watch = etcd_watch_free(watch);
}

/* ---- leases ---- */

static EtcdLeaseState lease_state;
static int n_told;

static void on_lease(EtcdLeaseState is, _unused_ int64_t id, _unused_ void *userdata)
{
    lease_state = is;
    n_told++;
}

static void the_end_of_a_lease_deletes_its_keys_and_tells_nobody(_unused_ void **state)
{
    EtcdLease *lease;
    n_told = 0;
    assert_int_equal(etcd_lease_new(&client, 10, "/w", on_lease, NULL, &lease), 0);
    grant(&client);
    assert_true(n_told == 1 && lease_state == ETCD_LEASE_GRANTED);
    const int64_t id = lease_of(&client), foreign = foreign_lease();
    assert_true(id > FIRST_LEASE && foreign > id && lease_lives(id) && lease_lives(foreign));
    (void)put("/mine", "1", id);
    (void)put("/theirs", "1", foreign);
    (void)put("/was-mine", "1", id);
    (void)put("/was-mine", "2", 0);
    const int64_t before = newest_revision;
    expire(&client);
    assert_int_equal(newest_revision, before + 1);
    assert_true(!find("/mine") && find("/theirs") && find("/was-mine"));
    assert_true(!lease_lives(id) && !end_lease(id));
    assert_int_equal(n_told, 1);
    assert_int_equal(lease_of(&client), id); /* the client does not know it */

    Heard revoked = {0};
    assert_int_equal(etcd_lease_revoke(lease, on_txn, &revoked, NULL), 0);
    answer(under_way(&client, "lease"), GIVEN);
    assert_int_equal(revoked.r, -ESTALE);
    notify_lost(&client);
    assert_true(n_told == 2 && lease_state == ETCD_LEASE_LOST && lease_of(&client) == 0);
    lease = etcd_lease_free(lease);
}

/* ---- time ---- */

static uint64_t fired_usec;

static int on_time(_unused_ sd_event_source *source, _unused_ uint64_t usec,
                   _unused_ void *userdata)
{
    fired_usec = clock_boottime_usec();
    return 0;
}

static void timers_fire_at_their_time_unless_the_loop_stands(_unused_ void **state)
{
    const uint64_t begun_usec = clock_boottime_usec();
    for (int stands = 0; stands < 2; stands++) {
        sd_event_source *timer;
        const uint64_t due_usec = clock_boottime_usec() + 3 * USEC_PER_SEC;
        fired_usec = 0;
        assert_int_equal(sd_event_add_time(memory_loop, &timer, CLOCK_BOOTTIME, due_usec, 0,
                                           on_time, NULL),
                         0);
        (stands ? stall : pass)(5 * USEC_PER_SEC);
        assert_int_equal(fired_usec, stands ? 0 : due_usec);
        pass(0);
        assert_int_equal(fired_usec, stands ? due_usec + 2 * USEC_PER_SEC : due_usec);
        timer = sd_event_source_disable_unref(timer);
    }
    ahead_usec = 7;
    assert_int_equal(clock_boottime_usec(), begun_usec + 10 * USEC_PER_SEC);
    assert_int_equal(clock_realtime_usec(), clock_boottime_usec() + 7);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(an_answer_is_as_it_was_asked_for),
        CASE(guards_are_looked_at_when_the_request_arrives),
        CASE(a_read_sees_the_store_at_its_snapshot),
        CASE(what_cannot_begin_begins_nothing),
        CASE(who_is_cut_off_gets_nothing),
        CASE(a_watch_shows_each_revision_until_it_lists_again),
        CASE(who_is_blind_sees_nothing),
        CASE(the_end_of_a_lease_deletes_its_keys_and_tells_nobody),
        CASE(timers_fire_at_their_time_unless_the_loop_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
