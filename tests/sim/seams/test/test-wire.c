/* SPDX-License-Identifier: Apache-2.0 */
/* test-wire.c - the unchanged libetcd over the simulated network, in virtual time. */
#include "base/memory.h"
#include "tests/sim/seams/loop.h"
#include "tests/sim/seams/test/testing-server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const addresses[] = {"m0:2379", "m1:2379", "m2:2379"};

enum { MACHINES = 2 };

/* A process with a client of etcd. */
typedef struct Process {
    sd_event *loop;
    Etcd *etcd;
} Process;

static char *history; /* results of all processes, in order */

static void say(const char *format, ...) _printf_(1, 2);
static void say(const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    char *longer =
        memory_format("%s%llu %s\n", history, (unsigned long long)loops_now_usec(), line);
    free(history);
    history = longer;
}

static bool said(const char *text) { return strstr(history, text); }

static void world_open(uint64_t seed)
{
    history = memory_text("");
    loops_open(USEC_PER_SEC);
    network_open(&(NetworkOptions){.addresses = addresses,
                                   .n_members = TESTING_MEMBERS,
                                   .n_machines = MACHINES,
                                   .seed = seed,
                                   .server = testing_server_open()});
}

static void world_close(void)
{
    network_close();
    testing_server_close();
    loops_close();
    free(history);
}

static Process process_open(size_t machine, const char *endpoints, uint64_t timeout_usec)
{
    Process p = {0};
    Error err = ERROR_INIT;
    assert_int_equal(sd_event_new(&p.loop), 0);
    loop_set_machine(p.loop, machine);
    EtcdOptions options = {.endpoints = endpoints, .timeout_usec = timeout_usec};
    assert_int_equal(etcd_new(p.loop, &options, &p.etcd, &err), 0);
    return p;
}

static void process_close(Process *p)
{
    p->etcd = etcd_free(p->etcd);
    p->loop = sd_event_unref(p->loop);
}

static void run_for(uint64_t usec)
{
    uint64_t until = loops_now_usec() + usec;
    while (loops_run(until))
        ;
}

/* Runs until the history contains the text, for at most `sec` seconds of virtual time. */
static void run_until(const char *text, uint64_t sec)
{
    uint64_t until = loops_now_usec() + sec * USEC_PER_SEC;
    while (!said(text) && loops_run(until))
        ;
    if (!said(text))
        fail_msg("no \"%s\" in:\n%s", text, history);
}

static void on_txn(int r, const Error *err _unused_, const EtcdTxnResult *result, void *userdata)
{
    say("%s: txn %d %d", (const char *)userdata, r, result ? result->succeeded : -1);
}

static void on_get(int r, const Error *err _unused_, const EtcdRange *range, void *userdata)
{
    say("%s: get %d %s", (const char *)userdata, r,
        range && range->n_kvs ? range->kvs[0].value : "nothing");
}

static void put(Process *p, const char *key, const char *value, const char *name)
{
    EtcdOp op = {.kind = ETCD_PUT, .key = key, .value = value};
    assert_int_equal(etcd_txn(p->etcd, NULL, 0, &op, 1, on_txn, (void *)name, NULL), 0);
}

static void get(Process *p, const char *key, const char *name)
{
    assert_int_equal(etcd_get(p->etcd, key, false, on_get, (void *)name, NULL), 0);
}

static void a_request_takes_virtual_time(void **state _unused_)
{
    world_open(1);
    Process p = process_open(0, "m0:2379", 0);
    put(&p, "k", "v", "p");
    assert_string_equal(history, ""); /* callbacks never run within the call */
    run_until("p: txn 0 1", 1);
    get(&p, "k", "p");
    run_until("p: get 0 v", 1);
    /* the time includes the time to connect */
    assert_in_range(loops_now_usec() - USEC_PER_SEC, 6 * 200, 6 * 2000);
    /* A delay of ten seconds in each direction is longer than a call's deadline. */
    network_clog(0, 0, 10 * USEC_PER_SEC);
    get(&p, "k", "late");
    run_until("late: get -110", 6);
    process_close(&p);
    world_close();
}

static void a_lost_answer_ends_at_the_deadline(void **state _unused_)
{
    world_open(2);
    Process p = process_open(0, "m0:2379", USEC_PER_SEC);
    put(&p, "k", "first", "first");
    run_until("first: txn 0 1", 1);
    network_cut(0, 0, NETWORK_TO_CLIENT, true);
    uint64_t begun = loops_now_usec();
    put(&p, "k", "second", "second");
    run_until("second: txn -110 -1", 2);
    assert_int_equal(loops_now_usec(), begun + USEC_PER_SEC);
    /* the write was done although the call reported an error */
    assert_string_equal(testing_server_value("k"), "second");
    process_close(&p);
    world_close();
}

static void a_cut_path_holds_what_is_sent(void **state _unused_)
{
    world_open(3);
    Process p = process_open(1, "m0:2379", 0), other = process_open(0, "m0:2379", 0);
    put(&p, "k", "first", "first");
    run_until("first: txn 0 1", 1);
    network_cut(1, 0, NETWORK_TO_MEMBER, true);
    put(&p, "k", "second", "second");
    put(&other, "j", "other", "other"); /* the client `other` is on another machine */
    run_until("other: txn 0 1", 1);
    run_for(USEC_PER_SEC);
    assert_false(said("second"));
    assert_string_equal(testing_server_value("k"), "first");
    network_cut(1, 0, NETWORK_TO_MEMBER, false);
    run_until("second: txn 0 1", 1);
    process_close(&p);
    process_close(&other);
    world_close();
}

static void on_watch(const EtcdEvent *events, size_t n_events, int64_t revision, bool initial,
                     void *userdata);

/* Newer messages do not overtake held messages: a watch skips events that are older than an event
 * that it has seen, so it would miss the held event for good. */
static void what_is_held_is_not_overtaken(void **state _unused_)
{
    /* the second event is in flight when the path is restored */
    for (unsigned i = 0; i < 30; i++) {
        world_open(100 + i);
        Process p = process_open(1, "m0:2379", 0), other = process_open(0, "m0:2379", 0);
        EtcdWatch *watch;
        assert_int_equal(etcd_watch_prefix(p.etcd, "a/", on_watch, NULL, &watch), 0);
        run_until("watch: initial 0", 1);
        put(&other, "a/0", "up", "0"); /* so that the connection of `other` is established */
        run_until("watch: put a/0", 1);
        network_cut(1, 0, NETWORK_TO_CLIENT, true);
        put(&other, "a/1", "held", "1");
        run_until("1: txn 0 1", 1);
        run_for(10 * USEC_PER_MSEC);
        put(&other, "a/2", "late", "2");
        run_for(100 * i);
        network_cut(1, 0, NETWORK_TO_CLIENT, false);
        run_until("watch: put a/2", 1);
        assert_true(said("watch: put a/1"));
        watch = etcd_watch_free(watch);
        process_close(&p);
        process_close(&other);
        world_close();
    }
}

static void pings_give_a_cut_connection_up(void **state _unused_)
{
    world_open(4);
    Process p = process_open(0, "m0:2379", 20 * USEC_PER_SEC);
    put(&p, "k", "first", "first");
    run_until("first: txn 0 1", 1);
    network_cut(0, 0, NETWORK_TO_MEMBER, true);
    put(&p, "k", "second", "second");
    run_until("second: txn -111 -1", 9); /* the write may have been done, so it is not sent again */
    network_cut(0, 0, NETWORK_TO_MEMBER, false);
    run_for(20 * USEC_PER_SEC);
    assert_string_equal(testing_server_value("k"), "first"); /* the held request is lost */
    put(&p, "k", "third", "third");
    run_until("third: txn 0 1", 1);
    process_close(&p);
    world_close();
}

static void a_silent_endpoint_is_left(void **state _unused_)
{
    world_open(5);
    Process p = process_open(0, "m0:2379,m1:2379,m2:2379", 0);
    put(&p, "k", "v", "p");
    run_until("p: txn 0 1", 1);
    size_t used = testing_server_last();
    network_freeze(used, true);
    get(&p, "k", "p");
    run_until("p: get 0 v", 4); /* the read ends within its deadline of 5 s, on another member */
    assert_int_not_equal(testing_server_last(), used);
    process_close(&p);
    world_close();
}

static void one_that_answers_others_is_not_silent(void **state _unused_)
{
    world_open(11);
    Process p = process_open(0, "m0:2379,m1:2379,m2:2379", 0);
    testing_server_hold("Txn");
    put(&p, "k", "v", "slow");
    /* a read every half second, so the member is never silent for a third of the 5 s */
    for (size_t i = 0; i < 8; i++) {
        get(&p, "k", "p");
        run_for(USEC_PER_SEC / 2);
    }
    testing_server_hold(NULL);
    run_until("slow: txn 0 1", 1);
    process_close(&p);
    world_close();
}

static void an_answer_that_is_no_message_is_an_error(void **state _unused_)
{
    world_open(16);
    Process p = process_open(0, "m0:2379", 0);
    testing_server_garble(true);
    put(&p, "k", "v", "p");
    run_until("p: txn -5 -1", 1); /* the transaction may have been done */
    get(&p, "k", "p");
    run_for(USEC_PER_SEC);
    assert_false(said("get")); /* the client tries the read again and again */
    testing_server_garble(false);
    run_until("p: get 0 v", 1);
    process_close(&p);
    world_close();
}

static void clients_spread_over_the_members(void **state _unused_)
{
    bool used[TESTING_MEMBERS] = {false};
    world_open(12);
    for (size_t i = 0; i < 20; i++) {
        Process p = process_open(0, "m0:2379,m1:2379,m2:2379", 0);
        get(&p, "k", "p");
        run_for(USEC_PER_SEC);
        used[testing_server_last()] = true;
        process_close(&p);
    }
    for (size_t i = 0; i < TESTING_MEMBERS; i++)
        assert_true(used[i]);
    world_close();
}

static void a_member_that_is_down_has_seen_nothing(void **state _unused_)
{
    world_open(6);
    Process p = process_open(0, "m0:2379,m1:2379,m2:2379", 0);
    for (size_t i = 0; i < TESTING_MEMBERS; i++)
        testing_server_stop(i, i != 2);
    put(&p, "k", "v", "p");
    run_until("p: txn 0 1", 4); /* the transaction was never sent, so it is sent again */
    assert_int_equal(testing_server_writes(), 1);
    assert_int_equal(testing_server_last(), 2);
    testing_server_stop(2, true);
    testing_server_stop(0, false);
    put(&p, "k", "w", "again"); /* the client loses its connection */
    run_until("again: txn 0 1", 4);
    assert_string_equal(testing_server_value("k"), "w");
    process_close(&p);
    world_close();
}

/* ---- watch ---- */

static void on_watch(const EtcdEvent *events, size_t n_events, int64_t revision _unused_,
                     bool initial, void *userdata _unused_)
{
    if (initial)
        say("watch: initial %zu", n_events);
    for (size_t i = 0; i < n_events; i++)
        say("watch: %s %s=%s", events[i].kind == ETCD_EVENT_PUT ? "put" : "delete",
            events[i].kv.key, events[i].kv.value);
}

static void a_cancelled_watch_lists_again(void **state _unused_)
{
    world_open(7);
    Process p = process_open(0, "m0:2379", 0);
    EtcdWatch *watch;
    put(&p, "a/1", "one", "1");
    run_until("1: txn 0", 1);
    assert_int_equal(etcd_watch_prefix(p.etcd, "a/", on_watch, NULL, &watch), 0);
    run_until("watch: initial 1", 1);
    put(&p, "a/2", "two", "2");
    run_until("watch: put a/2=two", 1);
    testing_server_delete("a/1", false); /* the client misses this delete */
    testing_server_cancel_watches();
    run_until("watch: delete a/1=", 2);
    assert_int_equal(etcd_watch_lists(watch), 2);

    /* A reset connection has the same effect. */
    run_for(USEC_PER_SEC);
    assert_int_equal(testing_server_streams(), 1);
    testing_server_delete("a/2", false);
    network_reset(0, 0);
    run_until("watch: delete a/2=", 2);
    assert_int_equal(etcd_watch_lists(watch), 3);
    run_for(USEC_PER_SEC);
    /* the member has noticed the ends of the old streams */
    assert_int_equal(testing_server_streams(), 1);
    watch = etcd_watch_free(watch);
    run_for(USEC_PER_SEC);
    assert_int_equal(testing_server_streams(), 0);
    process_close(&p);
    world_close();
}

static void an_idle_watch_owes_nothing(void **state _unused_)
{
    world_open(13);
    Process p = process_open(0, "m0:2379,m1:2379,m2:2379", 0);
    EtcdWatch *watch;
    assert_int_equal(etcd_watch_prefix(p.etcd, "a/", on_watch, NULL, &watch), 0);
    run_for(60 * USEC_PER_SEC);
    assert_int_equal(etcd_watch_lists(watch), 1);
    watch = etcd_watch_free(watch);
    process_close(&p);
    world_close();
}

static void an_event_that_is_no_message_is_not_lost(void **state _unused_)
{
    world_open(17);
    Process p = process_open(0, "m0:2379", 0), other = process_open(1, "m1:2379", 0);
    EtcdWatch *watch;
    assert_int_equal(etcd_watch_prefix(p.etcd, "a/", on_watch, NULL, &watch), 0);
    run_for(USEC_PER_SEC);
    testing_server_garble(true);
    put(&other, "a/1", "one", "other");
    run_until("other: txn -5", 1);
    testing_server_garble(false);
    run_until("watch: put a/1=one", 3);
    assert_int_equal(etcd_watch_lists(watch), 2);
    watch = etcd_watch_free(watch);
    process_close(&p);
    process_close(&other);
    world_close();
}

static void no_connection_comes_up_on_a_cut_path(void **state _unused_)
{
    world_open(18);
    Process p = process_open(0, "m0:2379", USEC_PER_SEC);
    network_cut(0, 0, NETWORK_TO_CLIENT, true);
    put(&p, "k", "v", "p");
    run_until("p: txn -110", 2); /* gRPC tries to connect for two seconds */
    assert_int_equal(loops_now_usec(), 2 * USEC_PER_SEC);
    network_cut(0, 0, NETWORK_TO_CLIENT, false);
    run_for(20 * USEC_PER_SEC);
    assert_int_equal(testing_server_writes(), 0);
    process_close(&p);
    world_close();
}

static void free_watch(int r _unused_, const Error *err _unused_, const EtcdRange *range _unused_,
                       void *userdata)
{
    EtcdWatch **watch = userdata;
    *watch = etcd_watch_free(*watch);
}

static void a_callback_ends_another_stream(void **state _unused_)
{
    world_open(14);
    Process p = process_open(0, "m0:2379", 0);
    EtcdWatch *watch;
    assert_int_equal(etcd_watch_prefix(p.etcd, "a/", on_watch, NULL, &watch), 0);
    run_for(USEC_PER_SEC);
    assert_int_equal(testing_server_streams(), 1);
    assert_int_equal(etcd_get(p.etcd, "k", false, free_watch, &watch, NULL), 0);
    run_for(USEC_PER_SEC);
    assert_null(watch);
    assert_int_equal(testing_server_streams(), 0);
    process_close(&p);
    world_close();
}

/* ---- lease and election ---- */

typedef struct Candidate {
    Process p;
    const char *name;
    EtcdLease *lease;
    EtcdElection *election;
} Candidate;

static void on_lease(EtcdLeaseState state, int64_t id, void *userdata)
{
    static const char *const words[] = {"granted", "renewed", "lost"};
    Candidate *c = userdata;
    say("%s: lease %s", c->name, words[state]);
    etcd_election_lease_changed(c->election, state, id);
}

static void on_election(bool leading, const char *key _unused_, int64_t term, void *userdata)
{
    Candidate *c = userdata;
    say("%s: %s %d", c->name, leading ? "leads" : "has lost", (int)term);
}

static void candidate_open(Candidate *c, const char *name, size_t machine)
{
    *c = (Candidate){.name = name};
    c->p = process_open(machine, "m0:2379,m1:2379,m2:2379", 0);
    assert_int_equal(etcd_lease_new(c->p.etcd, 4, "witness", on_lease, c, &c->lease), 0);
    assert_int_equal(etcd_election_new(c->p.etcd, "leader/", name, c->lease, on_election, c,
                                       &c->election),
                     0);
}

static void candidate_close(Candidate *c)
{
    (void)etcd_election_free(c->election);
    (void)etcd_lease_free(c->lease);
    process_close(&c->p);
}

static void a_lease_lives_while_its_process_runs(void **state _unused_)
{
    world_open(8);
    Candidate c;
    candidate_open(&c, "a", 0);
    run_until("a: leads", 2);
    run_for(20 * USEC_PER_SEC);
    assert_true(said("a: lease renewed") && !said("lost"));
    assert_true(etcd_lease_deadline_usec(c.lease) > loops_now_usec() + 2 * USEC_PER_SEC);

    loop_freeze(c.p.loop, true);
    run_for(10 * USEC_PER_SEC);
    assert_null(strstr(history, "lost")); /* the frozen process has not noticed the loss */
    loop_freeze(c.p.loop, false);
    run_until("a: lease lost", 2);
    assert_true(said("a: has lost"));
    candidate_close(&c);
    world_close();
}

static void a_killed_leader_has_a_successor(void **state _unused_)
{
    world_open(9);
    Candidate a, b;
    candidate_open(&a, "a", 0);
    run_until("a: leads", 2);
    candidate_open(&b, "b", 1);
    run_for(3 * USEC_PER_SEC);
    assert_false(said("b: leads"));

    loop_kill(a.p.loop);
    size_t n_writes = testing_server_writes();
    put(&a.p, "late", "x", "a"); /* a killed process sends nothing */
    candidate_close(&a);
    run_until("b: leads", 6);
    run_for(USEC_PER_SEC);
    assert_null(testing_server_value("late"));
    assert_int_equal(testing_server_writes(), n_writes);
    candidate_close(&b);
    world_close();
}

static void what_was_sent_before_the_end_arrives(void **state _unused_)
{
    world_open(10);
    Process p = process_open(0, "m0:2379", 0);
    get(&p, "k", "p");
    run_until("p: get 0 nothing", 1);
    put(&p, "k", "v", "p");
    loop_kill(p.loop);
    process_close(&p);
    run_for(USEC_PER_SEC);
    assert_false(said("txn"));
    assert_string_equal(testing_server_value("k"), "v");
    world_close();
}

static void kill_in_callback(int r _unused_, const Error *err _unused_,
                             const EtcdTxnResult *result _unused_, void *userdata)
{
    say("killed");
    loop_kill(((Process *)userdata)->loop);
}

static void the_dead_hear_nothing(void **state _unused_)
{
    world_open(15);
    Process p = process_open(0, "m0:2379", 0);
    EtcdOp op = {.kind = ETCD_PUT, .key = "k", .value = "v"};
    get(&p, "k", "p");
    run_until("p: get", 1);
    assert_int_equal(etcd_txn(p.etcd, NULL, 0, &op, 1, kill_in_callback, &p, NULL), 0);
    put(&p, "k", "w", "p");
    loop_freeze(p.loop, true); /* frozen, so that both answers arrive at once */
    run_for(USEC_PER_SEC);
    loop_freeze(p.loop, false);
    run_for(USEC_PER_SEC);
    assert_true(said("killed") && !said("txn"));
    assert_string_equal(testing_server_value("k"), "w");
    process_close(&p);
    world_close();
}

/* ---- the same seed gives the same history ---- */

static char *scenario(uint64_t seed)
{
    world_open(seed);
    Candidate a, b;
    candidate_open(&a, "a", 0);
    candidate_open(&b, "b", 1);
    for (size_t i = 0; i < 30; i++) {
        size_t machine = network_draw(MACHINES), member = network_draw(TESTING_MEMBERS);
        NetworkWay way = (NetworkWay)network_draw(NETWORK_WAYS);
        network_cut(machine, member, way, true);
        put(i % 2 ? &a.p : &b.p, "k", "v", i % 2 ? "a" : "b");
        run_for(network_draw(3 * USEC_PER_SEC));
        network_freeze(member, true);
        run_for(network_draw(9 * USEC_PER_SEC));
        network_freeze(member, false);
        network_cut(machine, member, way, false);
    }
    candidate_close(&a);
    candidate_close(&b);
    char *ret = memory_text(history);
    world_close();
    return ret;
}

static void the_same_seed_is_the_same_history(void **state _unused_)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        _cleanup_free_ char *first = scenario(seed), *second = scenario(seed),
                            *other = scenario(seed + 20);
        assert_string_equal(first, second);
        assert_string_not_equal(first, other);
        assert_non_null(strstr(first, "leads"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_takes_virtual_time),
        cmocka_unit_test(a_lost_answer_ends_at_the_deadline),
        cmocka_unit_test(a_cut_path_holds_what_is_sent),
        cmocka_unit_test(what_is_held_is_not_overtaken),
        cmocka_unit_test(pings_give_a_cut_connection_up),
        cmocka_unit_test(a_silent_endpoint_is_left),
        cmocka_unit_test(one_that_answers_others_is_not_silent),
        cmocka_unit_test(an_answer_that_is_no_message_is_an_error),
        cmocka_unit_test(clients_spread_over_the_members),
        cmocka_unit_test(a_member_that_is_down_has_seen_nothing),
        cmocka_unit_test(a_cancelled_watch_lists_again),
        cmocka_unit_test(an_idle_watch_owes_nothing),
        cmocka_unit_test(an_event_that_is_no_message_is_not_lost),
        cmocka_unit_test(no_connection_comes_up_on_a_cut_path),
        cmocka_unit_test(a_callback_ends_another_stream),
        cmocka_unit_test(a_lease_lives_while_its_process_runs),
        cmocka_unit_test(a_killed_leader_has_a_successor),
        cmocka_unit_test(what_was_sent_before_the_end_arrives),
        cmocka_unit_test(the_dead_hear_nothing),
        cmocka_unit_test(the_same_seed_is_the_same_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
