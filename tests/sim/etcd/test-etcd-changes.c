/* SPDX-License-Identifier: Apache-2.0 */
/* test-etcd-changes.c - how elections and watches handle changes: terms that follow each other,
 * keys that appear and vanish between others, several changes at once; also after a member or the
 * client has ended. */
#include "base/clock.h"
#include "tests/sim/etcd/testing-answers.h"

#include <string.h>

static void on_lease(EtcdLeaseState is, int64_t id, _unused_ void *userdata)
{
    etcd_election_lease_changed(election, is, id);
}

/* ---- elections ---- */

/* the election's reports: "+KEY@TERM" leads, "-KEY@TERM" leads no more */
static char scenario[256];

static void on_election(bool leading, const char *key, int64_t term, _unused_ void *userdata)
{
    const size_t n = strlen(scenario);
    (void)snprintf(scenario + n, sizeof(scenario) - n, "%c%s@%lld ", leading ? '+' : '-', key,
                   (long long)term);
}

/* One of several changes in a message. If say_changes() gets `more`, further changes of the last revision may
 * follow. */
typedef struct Change {
    const char *key;
    int64_t created, revision; /* created 0: the key was deleted */
} Change;

static void say_changes(AskedCall *stream, const Change *changes, size_t n, bool more)
{
    enum { MOST = 4 };
    Pb__ResponseHeader header = header_of(changes[n - 1].revision, 2);
    Pb__KeyValue kvs[MOST];
    Pb__Event of[MOST], *events[MOST];
    Pb__WatchResponse part = PB__WATCH_RESPONSE__INIT;
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++) {
        kvs[i] = (Pb__KeyValue)PB__KEY_VALUE__INIT;
        of[i] = (Pb__Event)PB__EVENT__INIT;
        kvs[i].key =
            (ProtobufCBinaryData){.data = (uint8_t *)changes[i].key, .len = strlen(changes[i].key)};
        kvs[i].create_revision = changes[i].created;
        kvs[i].mod_revision = changes[i].revision;
        of[i].type =
            changes[i].created ? PB__EVENT__EVENT_TYPE__PUT : PB__EVENT__EVENT_TYPE__DELETE;
        of[i].kv = &kvs[i];
        events[i] = &of[i];
    }
    part.header = &header;
    part.fragment = more;
    part.n_events = n;
    part.events = events;
    stream->n_asked++; /* lets reply() send a message without a request */
    reply(stream, &part.base);
}

static void say_change(AskedCall *stream, const char *key, int64_t created, int64_t revision)
{
    say_changes(stream, &(Change){key, created, revision}, 1, false);
}

static AskedCall *stand_behind(const char *other, const char *third)
{
    scenario[0] = '\0';
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_lease_new(etcd, 1000, "/p/w", on_lease, NULL, &lease), 0);
    reply_grant_of(77, 1000);
    assert_int_equal(etcd_election_new(etcd, "/e/", "one", lease, on_election, NULL, &election), 0);
    reply_page(5, false, other, third); /* keys with create revision 2 */
    AskedCall *stream = await_asked("Watch");
    reply_created();
    reply_txn();
    return stream;
}

/* A candidate leads only after all earlier candidates have gone, in whatever order those go. */
static void the_eldest_candidate_leads(_unused_ void **state)
{
    AskedCall *stream = stand_behind("/e/1", "/e/2");
    say_change(stream, "/e/4d", 6, 6);
    assert_string_equal(scenario, "");
    say_change(stream, "/e/9", 7, 7); /* a later candidate */
    say_change(stream, "/e/none", 0, 8);
    say_change(stream, "/e/1", 0, 9);
    assert_string_equal(scenario, "");
    say_change(stream, "/e/2", 0, 10);
    assert_string_equal(scenario, "+/e/4d@6 ");
    say_change(stream, "/e/4d", 6, 11); /* another value, but the same term */
    say_change(stream, "/e/9", 0, 12);
    assert_string_equal(scenario, "+/e/4d@6 ");
    say_change(stream, "/e/4d", 0, 13);
    assert_string_equal(scenario, "+/e/4d@6 -/e/4d@6 ");
    reply_txn(); /* the candidate stands again */
    say_change(stream, "/e/4d", 14, 14);
    assert_string_equal(scenario, "+/e/4d@6 -/e/4d@6 +/e/4d@14 ");
}

/* The candidate's key was deleted and put again without an event of the deletion: a new term
 * begins. */
static void a_key_that_is_born_again_is_another_term(_unused_ void **state)
{
    AskedCall *stream = stand_behind("/e/4d", NULL); /* the candidate's key, created at 2 */
    assert_string_equal(scenario, "+/e/4d@2 ");
    say_change(stream, "/e/4d", 9, 9);
    assert_string_equal(scenario, "+/e/4d@2 -/e/4d@2 +/e/4d@9 ");
}

static void other_leases_change_nothing(_unused_ void **state)
{
    AskedCall *stream = stand_behind("/e/4d", NULL);
    const size_t n_txns = all_calls("Txn");
    etcd_election_lease_changed(election, ETCD_LEASE_RENEWED, 77);
    etcd_election_lease_changed(election, ETCD_LEASE_LOST, 76);
    /* a grant of the lease that the candidate has already */
    etcd_election_lease_changed(election, ETCD_LEASE_GRANTED, 77);
    etcd_election_lease_changed(NULL, ETCD_LEASE_LOST, 77);
    pass_usec(2 * USEC_PER_SEC);
    assert_int_equal(all_calls("Txn"), n_txns);
    assert_string_equal(scenario, "+/e/4d@2 ");
    etcd_election_lease_changed(election, ETCD_LEASE_LOST, 77);
    assert_string_equal(scenario, "+/e/4d@2 -/e/4d@2 ");
    etcd_election_lease_changed(election, ETCD_LEASE_LOST, 77);
    /* the old key is deleted: without a lease the candidate does not stand again */
    say_change(stream, "/e/4d", 0, 9);
    pass_usec(2 * USEC_PER_SEC);
    assert_int_equal(all_calls("Txn"), n_txns);
    assert_string_equal(scenario, "+/e/4d@2 -/e/4d@2 ");
}

/* Fails the awaited transaction. Returns how many milliseconds pass until the next transaction. */
static uint64_t fail_txn(void)
{
    AskedCall *call = await_asked("Txn");
    const uint64_t refused_usec = clock_boottime_usec();
    refuse(call, WIRE_UNKNOWN, "no");
    (void)await_asked("Txn");
    return (clock_boottime_usec() - refused_usec) / USEC_PER_MSEC;
}

/* Each successful write, whether of the first value or of a changed value, resets the backoff to the
 * shortest pause. */
static void a_write_that_succeeds_forgets_the_failures(_unused_ void **state)
{
    AskedCall *stream = stand_behind("/e/1", NULL);
    for (int i = 0; i < 3; i++) {
        for (uint64_t wanted = 50; wanted <= 400; wanted *= 2) {
            if (i > 0 && wanted == 50)
                etcd_election_change(election, i == 1 ? "two" : "three");
            else if (i == 0 && wanted == 50)
                (void)await_asked("Txn"); /* no event showed the key: the candidate stands again */
            assert_in_range(fail_txn(), wanted - 15, wanted + 15);
        }
        reply_txn();
        if (i == 0)
            say_change(stream, "/e/4d", 6, 6);
    }
    const size_t n_txns = all_calls("Txn");
    pass_usec(5 * USEC_PER_SEC);
    assert_int_equal(all_calls("Txn"), n_txns);
}

/* ---- watches ---- */

static int n_events;
static EtcdEvent last_event;
static char told_keys[128]; /* the keys of the watch's last report, each followed by a space */

static void on_events(const EtcdEvent *events, size_t n, _unused_ int64_t revision,
                      _unused_ bool initial, _unused_ void *userdata)
{
    n_events += (int)n;
    told_keys[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        const size_t used = strlen(told_keys);
        (void)snprintf(told_keys + used, sizeof(told_keys) - used, "%s ", events[i].kv.key);
    }
    if (n > 0) {
        last_event = events[n - 1];
        assert_string_equal(last_event.kv.value,
                            last_event.kind == ETCD_EVENT_PUT && last_event.kv.n_value ? "v" : "");
        /* the strings were valid only in the handler */
        last_event.kv.key = last_event.kv.value = NULL;
    }
}

/* The watch knows which keys exist when keys appear and vanish before, between and after the other keys. */
static void a_watch_knows_what_is_there(_unused_ void **state)
{
    static const char *const keys[] = {"/p/a", "/p/b", "/p/c", "/p/d", "/p/e", "/p/f", "/p/g"};
    static const int order[] = {0, 6, 2, 4, 5}; /* the keys other than b and d */
    bool there[ELEMENTSOF(keys)] = {[1] = true, [3] = true};
    int64_t revision = 10;
    n_events = 0;
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_page(9, false, "/p/b", "/p/d");
    AskedCall *stream = await_asked("Watch");
    reply_created();
    for (int gone = 0; gone < 2; gone++)
        for (size_t i = 0; i < ELEMENTSOF(order); i++) {
            const int at = gone ? order[ELEMENTSOF(order) - 1 - i] : order[i];
            say_change(stream, keys[at], gone ? 0 : revision, revision);
            revision++;
            there[at] = !gone;
            for (size_t k = 0; k < ELEMENTSOF(keys); k++)
                assert_int_equal(etcd_watch_knows(watch, keys[k]), there[k]);
            assert_false(etcd_watch_knows(watch, "/p"));
            assert_false(etcd_watch_knows(watch, "/p/z"));
        }
    assert_int_equal(n_events, 12);
    refuse(stream, WIRE_UNAVAILABLE, "Socket closed");
    reply_page(40, false, "/p/d", NULL); /* b is deleted, and d is unchanged */
    assert_int_equal(n_events, 13);
    assert_int_equal(last_event.kind, ETCD_EVENT_DELETE);
    assert_int_equal(last_event.kv.mod_revision, 40);
    assert_int_equal(last_event.kv.create_revision, 0);
    assert_int_equal(last_event.kv.n_value, 0);
    assert_false(etcd_watch_knows(watch, "/p/b"));
    assert_true(etcd_watch_knows(watch, "/p/d"));
}

static AskedCall *begin_watch(const char *a, const char *b)
{
    n_events = 0;
    open_client(answers_endpoint, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_page(9, false, a, b);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    return stream;
}

/* One transaction has changed several keys: the watch knows the new state of each. */
static void a_revision_of_many_keys_is_known(_unused_ void **state)
{
    static const Change changes[] = {{"/p/0", 12, 12}, {"/p/b", 0, 12}, {"/p/c", 12, 12}};
    AskedCall *stream = begin_watch("/p/a", "/p/b");
    /* the list reports both keys at once, in the order of keys */
    assert_string_equal(told_keys, "/p/a /p/b ");
    say_changes(stream, changes, 3, false);
    assert_int_equal(n_events, 5);
    assert_string_equal(told_keys, "/p/0 /p/b /p/c ");
    assert_true(etcd_watch_knows(watch, "/p/0") && etcd_watch_knows(watch, "/p/c"));
    assert_false(etcd_watch_knows(watch, "/p/b"));
    refuse(stream, WIRE_UNAVAILABLE, "Socket closed");
    reply_page(40, false, "/p/a", NULL);
    assert_int_equal(n_events, 7); /* two keys are deleted */
    assert_false(etcd_watch_knows(watch, "/p/0") || etcd_watch_knows(watch, "/p/c"));
}

/* The deletion of a key that the watch never showed does not make the key known. */
static void the_end_of_an_unknown_key_makes_none(_unused_ void **state)
{
    AskedCall *stream = begin_watch("/p/b", NULL);
    say_change(stream, "/p/a", 0, 10);
    say_change(stream, "/p/c", 0, 11);
    assert_false(etcd_watch_knows(watch, "/p/a") || etcd_watch_knows(watch, "/p/c"));
    assert_true(etcd_watch_knows(watch, "/p/b"));
    const int before = n_events;
    refuse(stream, WIRE_UNAVAILABLE, "Socket closed");
    reply_page(40, false, "/p/b", NULL);
    assert_int_equal(n_events, before); /* a further deletion is not reported */
}

/* The stream ends before its last revision is complete: the changes that were not reported yet are
 * dropped. */
static void half_a_message_is_forgotten_with_its_stream(_unused_ void **state)
{
    static const Change parts[] = {{"/p/b", 10, 10}, {"/p/c", 11, 11}, {"/p/d", 12, 12}};
    static const Change after[] = {{"/p/e", 41, 41}, {"/p/f", 42, 42}, {"/p/g", 42, 42}};
    AskedCall *stream = begin_watch("/p/a", NULL);
    say_changes(stream, parts, 3, true);
    /* revision 12 may be incomplete, so its event is not reported yet */
    assert_int_equal(n_events, 3);
    refuse(stream, WIRE_UNAVAILABLE, "Socket closed");
    reply_page(40, false, "/p/a", "/p/b");
    const int before = n_events;
    stream = await_asked("Watch");
    reply_created();
    say_changes(stream, after, 1, false);
    assert_int_equal(n_events, before + 1);
    say_changes(stream, after + 1, 1, true);
    assert_int_equal(n_events, before + 1);
    say_changes(stream, after + 2, 1, false);
    assert_int_equal(n_events, before + 3);
}

/* ---- the client ---- */

static void on_range(int r, _unused_ const Error *err, _unused_ const EtcdRange *range,
                     void *userdata)
{
    assert_int_equal(r, 0);
    ++*(int *)userdata;
}

static void on_txn(_unused_ int r, _unused_ const Error *err, _unused_ const EtcdTxnResult *result,
                   _unused_ void *userdata)
{
    fail_msg("nobody has been asked");
}

/* Only the request that the silent member has not answered is sent to another member; a watch that
 * gets events stays with its member. */
static void who_speaks_is_not_left_with_the_silent_one(_unused_ void **state)
{
    int n_read = 0;
    open_client(answers_endpoints, NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_page(9, false, NULL, NULL);
    AskedCall *stream = await_asked("Watch");
    reply_created();
    assert_int_equal(etcd_get(etcd, "/p/a", false, on_range, &n_read, NULL), 0);
    refuse(await_asked("Range"), WIRE_UNAVAILABLE, "etcdserver: no leader");
    /* the watch's member is silent */
    assert_int_not_equal(await_asked("Range")->member, stream->member);
    const size_t n_lists = all_calls("Range");
    pass_usec(2200 * USEC_PER_MSEC);
    /* only the read was sent again; the watch did not list again */
    assert_int_equal(all_calls("Range"), n_lists + 1);
    assert_int_equal(await_asked("Range")->member, stream->member);
    assert_non_null(stream->wire);
    assert_true(etcd_watch_connected(watch));
    reply_range(await_asked("Range"), 9, 2);
    assert_int_equal(n_read, 1);
}

/* The objects of a client that was freed may exist longer, but send no requests. */
static void a_client_that_is_gone_asks_nothing(_unused_ void **state)
{
    (void)stand_behind("/e/4d", NULL);
    assert_int_equal(etcd_watch_prefix(etcd, "/p/", on_events, NULL, &watch), 0);
    reply_page(9, false, NULL, NULL);
    const size_t n_asked = all_calls("Range") + all_calls("Txn") + all_calls("LeaseRevoke");
    etcd = etcd_free(etcd);
    etcd_lease_check(lease);
    etcd_election_change(election, "two");
    etcd_election_lease_changed(election, ETCD_LEASE_LOST, 77);
    etcd_election_lease_changed(election, ETCD_LEASE_GRANTED, 78);
    assert_int_equal(etcd_lease_revoke(lease, on_txn, NULL, NULL), -ESHUTDOWN);
    assert_false(etcd_watch_connected(watch));
    pass_usec(60 * USEC_PER_SEC);
    assert_int_equal(all_calls("Range") + all_calls("Txn") + all_calls("LeaseRevoke"), n_asked);
    assert_string_equal(scenario, "+/e/4d@2 ");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, answers_set_up, answers_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(the_eldest_candidate_leads),
        CASE(a_key_that_is_born_again_is_another_term),
        CASE(other_leases_change_nothing),
        CASE(a_write_that_succeeds_forgets_the_failures),
        CASE(a_watch_knows_what_is_there),
        CASE(a_revision_of_many_keys_is_known),
        CASE(the_end_of_an_unknown_key_makes_none),
        CASE(half_a_message_is_forgotten_with_its_stream),
        CASE(who_speaks_is_not_left_with_the_silent_one),
        CASE(a_client_that_is_gone_asks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
