/* SPDX-License-Identifier: Apache-2.0 */
/* test-connector.c - connecting ranks: of one world, of different worlds, strangers and impostors. */

#include "base/clock.h"
#include "base/test/testing.h"
#include "trainer/comm/connector.h"
#include "trainer/comm/test/testing-clock.h"
#include "trainer/comm/test/testing-world.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MINUTE (60 * USEC_PER_SEC)

static const uint8_t secret[COMM_SECRET_BYTES] = {1, 2, 3}, other[COMM_SECRET_BYTES] = {1, 2, 4};
static const CommKey key = {.generation = 7, .secret = secret};

static uint64_t in(uint64_t usec) { return clock_boottime_usec() + usec; }

static CommOptions options_of(int rank, int size, const CommKey *by)
{
    return (CommOptions){
        .rank = rank, .size = size, .prefix = "g7/test", .bind_address = "127.0.0.1", .key = *by};
}

static Connector *open_meeting(const CommOptions *options)
{
    Error err = ERROR_INIT;
    Connector *meeting = NULL;
    if (connector_open(options, &meeting, &err) < 0)
        fail_msg("%s", err.text);
    return meeting;
}

typedef struct Holder {
    Connector *meeting;
    uint64_t usec;
    int r, peer;
    Error err;
} Holder;

static void *hold(void *arg)
{
    Holder *holder = arg;
    holder->r = connector_hold(holder->meeting, in(holder->usec), &holder->peer, &holder->err);
    return NULL;
}

/* Connects ranks 0 and 1 of a world of two, each with its own options. Returns each rank's result,
 * and the rank that did not connect with it. */
static void meet_two(const CommOptions options[2], uint64_t usec, int ret_r[2], int ret_peer[2])
{
    Error err = ERROR_INIT;
    Holder holders[2] = {{.usec = usec}, {.usec = usec}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        holders[i].meeting = open_meeting(&options[i]);
    assert_int_equal(connector_call(holders[1].meeting, 0, connector_address(holders[0].meeting),
                                    &err),
                     0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hold, &holders[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    /* closes the ports only now, because a call to a closed port would be refused */
    for (int i = 0; i < 2; i++) {
        ret_r[i] = holders[i].r;
        ret_peer[i] = holders[i].peer;
        if (holders[i].r == 0) {
            int fd = connector_take(holders[i].meeting, 1 - i);
            assert_true(fd >= 0);
            (void)close(fd);
        }
        (void)connector_free(holders[i].meeting);
    }
}

static void those_of_one_world_meet_and_no_others(void **state)
{
    (void)state;
    int r[2], peer[2];
    const CommKey none = {.generation = 7};
    CommOptions same[2] = {options_of(0, 2, &key), options_of(1, 2, &key)};
    meet_two(same, MINUTE, r, peer);
    assert_true(r[0] == 0 && r[1] == 0);
    CommOptions bare[2] = {options_of(0, 2, &none), options_of(1, 2, &none)};
    meet_two(bare, MINUTE, r, peer);
    assert_true(r[0] == 0 && r[1] == 0);

    const CommKey wrong[] = {{7, other}, {7, NULL}, {8, secret}};
    for (size_t i = 0; i < 2 * ELEMENTSOF(wrong); i++) {
        const CommKey *by = &wrong[i / 2];
        CommOptions two[2] = {options_of(0, 2, i % 2 ? by : &key),
                              options_of(1, 2, i % 2 ? &key : by)};
        meet_two(two, 200000, r, peer);
        assert_true(r[0] == -ETIMEDOUT && r[1] == -ETIMEDOUT);
        assert_true(peer[0] == 1 && peer[1] == 0);
    }
    CommOptions apart[2] = {options_of(0, 2, &key), options_of(1, 2, &key)};
    apart[1].prefix = "g7/reports"; /* the prefix of another comm of the same world */
    meet_two(apart, 200000, r, peer);
    assert_true(r[0] == -ETIMEDOUT && r[1] == -ETIMEDOUT);
}

static int call_as_stranger(const char *address)
{
    Error err = ERROR_INIT;
    struct addrinfo *to = NULL;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(address_resolve(address, true, &to, &err), 0);
    assert_int_equal(connect(fd, to->ai_addr, to->ai_addrlen), 0);
    freeaddrinfo(to);
    return fd;
}

/* Strangers call rank 0 before rank 1 does, but none of them gets the place of rank 1. */
static void strangers_come_first_and_get_nothing(void **state)
{
    (void)state;
    enum { MANY = 600 };
    static int fds[MANY];
    Error err = ERROR_INIT;
    CommOptions zero = options_of(0, 2, &key), one = options_of(1, 2, &key);
    Holder holder = {.meeting = open_meeting(&zero), .usec = MINUTE};
    _cleanup_(connector_freep) Connector *caller = open_meeting(&one);
    pthread_t thread;
    int peer;
    /* the strangers wait in the backlog until rank 0 accepts */
    for (size_t i = 0; i < MANY / 2; i++)
        fds[i] = call_as_stranger(connector_address(holder.meeting));
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    for (size_t i = MANY / 2; i < MANY; i++) {
        /* a call as rank 1 sends it, but with a proof of zeros */
        const uint32_t call[16] = {0x3174656d, 1, 0};
        fds[i] = call_as_stranger(connector_address(holder.meeting));
        (void)!send(fds[i], i % 3 ? (const char *)call : "GET / HTTP/1.1\r\n\r\n", i % 3 ? 64 : 18,
                    MSG_NOSIGNAL);
    }
    assert_int_equal(connector_call(caller, 0, connector_address(holder.meeting), &err), 0);
    const uint64_t begun = clock_boottime_usec();
    if (connector_hold(caller, in(MINUTE), &peer, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(holder.r, 0);
    print_message("among %d strangers two ranks meet in %d ms\n", MANY,
                  (int)((clock_boottime_usec() - begun) / 1000));

    int a = connector_take(holder.meeting, 1), b = connector_take(caller, 0);
    char word[4] = "";
    assert_int_equal(fcntl(b, F_SETFL, 0), 0);
    assert_int_equal(send(a, "abc", 4, MSG_NOSIGNAL), 4);
    assert_int_equal(recv(b, word, 4, MSG_WAITALL), 4);
    assert_string_equal(word, "abc");
    (void)close(a);
    (void)close(b);
    (void)connector_free(holder.meeting);
    for (size_t i = 0; i < MANY; i++)
        (void)close(fds[i]);
}

/* Greets as a rank does, and answers every call with a wrong proof. */
static void *play_rank(void *arg)
{
    const int *listener = arg;
    for (;;) {
        int fd = accept(*listener, NULL, NULL);
        if (fd < 0)
            return NULL; /* the test has shut the listener down */
        uint32_t greeting[6] = {0x3174656d};
        char call[64], reply[32] = "";
        (void)!send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL);
        (void)!recv(fd, call, sizeof(call), MSG_WAITALL);
        (void)!send(fd, reply, sizeof(reply), MSG_NOSIGNAL);
        (void)close(fd);
    }
}

static void an_impostor_is_not_taken_for_a_rank(void **state)
{
    (void)state;
    char address[ADDRESS_MAX];
    Error err = ERROR_INIT;
    CommOptions one = options_of(1, 2, &key);
    _cleanup_(connector_freep) Connector *caller = open_meeting(&one);
    pthread_t thread;
    int listener, peer = -1;
    assert_int_equal(address_listen("127.0.0.1", 8, &listener, address, &err), 0);
    assert_int_equal(fcntl(listener, F_SETFL, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, play_rank, &listener), 0);
    assert_int_equal(connector_call(caller, 0, address, &err), 0);
    assert_int_equal(connector_hold(caller, in(500000), &peer, &err), -ETIMEDOUT);
    assert_int_equal(peer, 0);
    caller = connector_free(caller); /* the listener's thread may wait for the words of a call */
    (void)shutdown(listener, SHUT_RDWR); /* ends the listener's thread */
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(listener);
}

static void what_is_no_address_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",          ":",           "host",   "localhost:1",
                                      "127.0.0.1", "127.0.0.1:x", "[::1:1", "127.0.0.1:1\n"};
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        Error err = ERROR_INIT;
        CommOptions one = options_of(1, 2, &key);
        _cleanup_(connector_freep) Connector *caller = open_meeting(&one);
        if (connector_call(caller, 0, bad[i], &err) != -EPROTO)
            fail_msg("\"%s\" is taken for an address", bad[i]);
        assert_non_null(strstr(err.text, "rank 0 says where it listens"));
    }
}

static int reduce_once(World *world, Comm *comm, void *arg)
{
    (void)arg;
    int32_t ranks = world->rank;
    Error err = ERROR_INIT;
    world_check(comm_all_reduce(comm, COMM_I32, COMM_SUM, &ranks, 1, &err) == 0, "%s", err.text);
    world_check(ranks == 6, "%d", ranks);
    return 0;
}

static void a_world_with_a_secret_works(void **state)
{
    (void)state;
    World world = {.size = 4, .run = reduce_once, .key = key};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

typedef struct Apart {
    ClockGate gate;
    atomic_int codes[3];
} Apart;

static Apart *apart;
static int apart_rank;

/* Passes the gate once in this process: in rank 1 when rank 1 has connected with rank 0, in rank 2
 * when rank 2 pauses because the store has dropped its connection. */
static void note_what_was_seen(const struct pollfd *fds, nfds_t n)
{
    static bool seen;
    if (seen || !(apart_rank == 1 ? polls_a_listener_only(fds, n) : n == 0))
        return;
    seen = true;
    clock_gate_pass(&apart->gate);
}

/* Rank 2 has another secret. Its error says that the store drops its connections; the errors of
 * ranks 0 and 1 name rank 2 as missing. */
static int open_apart(World *world, Comm *comm, void *arg)
{
    (void)comm;
    apart = arg;
    apart_rank = world->rank;
    if (apart_rank > 0)
        clock_hooks.before_poll = note_what_was_seen;
    clock_hold(&apart->gate);
    Comm *mine = NULL;
    Error err = ERROR_INIT;
    if (world->rank == 2)
        world->key.secret = other;
    int code = world_open(world, "g1/apart", &mine, &err);
    world_check(!mine, "it opened");
    atomic_store(&apart->codes[world->rank], code + (strstr(err.text, "g1/apart/2") ? 0 : -10000));
    while (world->rank == 0 && (apart->codes[1] == 0 || apart->codes[2] == 0))
        usleep(1000); /* rank 0 must keep the store; world_wait() limits the wait */
    return 0;
}

static void a_rank_of_another_world_is_missed_by_name(void **state)
{
    (void)state;
    Apart *shared = world_share(sizeof(*shared));
    World world = {.size = 3,
                   .run = open_apart,
                   .arg = shared,
                   .key = key,
                   .without_comm = true,
                   .connect_usec = 200 * USEC_PER_MSEC};
    shared->gate.awaited = 2;
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
    assert_int_equal(shared->codes[0], -ETIMEDOUT);
    assert_int_equal(shared->codes[1], -ETIMEDOUT);
    assert_int_equal(shared->codes[2], -ECONNRESET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_world_with_a_secret_works),
        cmocka_unit_test(a_rank_of_another_world_is_missed_by_name),
        cmocka_unit_test(those_of_one_world_meet_and_no_others),
        cmocka_unit_test(strangers_come_first_and_get_nothing),
        cmocka_unit_test(an_impostor_is_not_taken_for_a_rank),
        cmocka_unit_test(what_is_no_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
