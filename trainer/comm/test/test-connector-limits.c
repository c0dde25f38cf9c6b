/* SPDX-License-Identifier: Apache-2.0 */
/* test-connector-limits.c - connects the ranks of worlds of 257 and 1,025 ranks. Also tests callers that
 * claim a rank beyond the world, a rank that connects twice, a missing rank, and repeated calls. */

#include "base/clock.h"
#include "base/test/testing.h"
#include "trainer/comm/connector.h"
#include "trainer/comm/proof.h"
#include "trainer/comm/test/testing-clock.h"
#include "trainer/comm/test/testing-dial.h"

#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

static CommOptions options_of(int rank, int size)
{
    return (CommOptions){
        .rank = rank, .size = size, .prefix = "g7/test", .bind_address = "127.0.0.1", .key = key};
}

static Connector *open_meeting(const CommOptions *options)
{
    Error err = ERROR_INIT;
    Connector *meeting = NULL;
    if (connector_open(options, &meeting, &err) < 0)
        fail_msg("%s", err.text);
    return meeting;
}

/* Calls rank 0 of a world of any size as the given rank, which connects with no other rank. Returns
 * the connection. */
static int call_rank_0(int rank, const char *address)
{
    Error err = ERROR_INIT;
    int peer;
    const CommOptions options = options_of(rank, 2);
    _cleanup_(connector_freep) Connector *meeting = open_meeting(&options);
    assert_int_equal(connector_call(meeting, 0, address, &err), 0);
    if (connector_hold(meeting, in(MINUTE), &peer, &err) < 0)
        fail_msg("rank %d: %s", rank, err.text);
    return connector_take(meeting, 0);
}

typedef struct Said {
    char prefix[64];
    uint8_t greeting[24];
    uint32_t from, to;
    uint8_t nonce[NONCE_BYTES];
} Said;

typedef struct Call {
    uint32_t magic, from, to, zero;
    uint8_t nonce[NONCE_BYTES], proof[PROOF_BYTES];
} Call;

/* Calls with a good proof of the given words, whatever they are. */
static int call_as(const char *address, uint32_t magic, uint32_t from, uint32_t to)
{
    Said said = {.prefix = "g7/test", .from = htole32(from), .to = htole32(to), .nonce = {9, 8, 7}};
    Call call = {.magic = htole32(magic), .from = said.from, .to = said.to, .nonce = {9, 8, 7}};
    int fd = dial(address);
    assert_int_equal(recv(fd, said.greeting, sizeof(said.greeting), MSG_WAITALL),
                     sizeof(said.greeting));
    proof_make(&key, "call", &said, sizeof(said), call.proof);
    assert_int_equal(send(fd, &call, sizeof(call), MSG_NOSIGNAL), sizeof(call));
    return fd;
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

#define CONNECTOR_MAGIC 0x3174656dU

static void assert_refused(const char *address, uint32_t magic, uint32_t from, uint32_t to)
{
    int fd = call_as(address, magic, from, to);
    if (!has_ended(fd))
        fail_msg("rank %u that calls rank %u is answered", from, to);
    (void)close(fd);
}

/* Rank 0 connects with all other ranks. A caller that claims to be a rank of a larger world, or
 * rank 0, is refused. */
static void meet_all(int size)
{
    const CommOptions zero = options_of(0, size);
    Holder holder = {.meeting = open_meeting(&zero), .usec = MINUTE};
    const char *address = connector_address(holder.meeting);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    for (int rank = 1; rank < size; rank++) {
        if (rank == size - 1) { /* only this last rank is missing */
            assert_refused(address, CONNECTOR_MAGIC, (uint32_t)size, 0);
            assert_refused(address, CONNECTOR_MAGIC, (uint32_t)size + 1, 0);
            assert_refused(address, CONNECTOR_MAGIC, UINT32_MAX, 0);
            assert_refused(address, CONNECTOR_MAGIC, 0, 0);
            assert_refused(address, CONNECTOR_MAGIC, (uint32_t)rank, 1);
            assert_refused(address, CONNECTOR_MAGIC + 1, (uint32_t)rank, 0);
        }
        (void)close(call_rank_0(rank, address));
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (holder.r < 0)
        fail_msg("%s", holder.err.text);
    for (int rank = 1; rank < size; rank++) {
        int fd = connector_take(holder.meeting, rank);
        assert_true(fd >= 0);
        (void)close(fd);
    }
    (void)connector_free(holder.meeting);
}

static void rank_0_meets_257_and_1025_ranks(void **state)
{
    (void)state;
    struct rlimit files;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = MAX(files.rlim_cur, MIN(files.rlim_max, (rlim_t)4096));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
    meet_all(2);
    meet_all(257);
    if (files.rlim_cur >= 2048)
        meet_all(1025);
}

/* A rank may connect twice, because its first connection broke or its process was started twice:
 * the last connection counts, and the rank counts once. */
static void a_rank_that_comes_twice_is_one_rank(void **state)
{
    (void)state;
    const CommOptions zero = options_of(0, 3);
    Holder holder = {.meeting = open_meeting(&zero), .usec = MINUTE};
    const char *address = connector_address(holder.meeting);
    pthread_t thread;
    char byte = 0;
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    int first = call_rank_0(1, address), second = call_rank_0(1, address);
    assert_int_equal(fcntl(first, F_SETFL, 0), 0);
    assert_true(has_ended(first));
    int other = call_rank_0(2, address);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(holder.r, 0);
    int fd = connector_take(holder.meeting, 1);
    assert_int_equal(fcntl(second, F_SETFL, 0), 0);
    assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(recv(second, &byte, 1, 0), 1);
    (void)close(fd);
    (void)close(first);
    (void)close(second);
    (void)close(other);
    (void)connector_free(holder.meeting);
}

/* Two connections of one rank do not count as a connection of another rank. */
static void a_rank_that_is_missing_is_named(void **state)
{
    (void)state;
    static const struct {
        int rank, size, comes, missing;
    } cases[] = {{0, 4, 1, 2}, {0, 4, 2, 1}, {1, 4, 2, 0}, {0, 2, 0, 1}, {2, 4, 3, 0}};
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const CommOptions options = options_of(cases[i].rank, cases[i].size);
        Holder holder = {.meeting = open_meeting(&options)};
        int fds[2] = {-EBADF, -EBADF};
        pthread_t thread;
        char text[64];
        /* no time passes before both connections are made */
        static ClockGate gates[ELEMENTSOF(cases)];
        gates[i].awaited = 1;
        clock_hold(&gates[i]);
        holder.usec = 1000;
        assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
        for (size_t k = 0; k < 2 && cases[i].comes; k++) {
            char reply[PROOF_BYTES];
            fds[k] = call_as(connector_address(holder.meeting), CONNECTOR_MAGIC,
                             (uint32_t)cases[i].comes, (uint32_t)cases[i].rank);
            assert_int_equal(recv(fds[k], reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
        }
        clock_gate_pass(&gates[i]);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(holder.r, -ETIMEDOUT);
        assert_int_equal(holder.peer, cases[i].missing);
        (void)snprintf(text, sizeof(text), "rank %d (g7/test/%d) did not come in time",
                       cases[i].missing, cases[i].missing);
        assert_non_null(strstr(holder.err.text, text));
        for (size_t k = 0; k < 2; k++)
            (void)fd_close(fds[k]);
        (void)connector_free(holder.meeting);
    }
}

/* Plays a called process. In successive turns it sends nothing; a greeting with a wrong magic;
 * nothing after the call; a wrong proof; and then everything that a rank sends. */
static void answer_call(int fd, int turn)
{
    Said said = {.prefix = "g7/test"};
    Call call;
    char reply[PROOF_BYTES];
    const uint32_t magic = htole32(turn == 1 ? CONNECTOR_MAGIC + 1 : CONNECTOR_MAGIC);
    memcpy(said.greeting, &magic, sizeof(magic));
    said.greeting[8] = (uint8_t)turn;
    if (turn > 0)
        assert_int_equal(send(fd, said.greeting, sizeof(said.greeting), MSG_NOSIGNAL), 24);
    if (turn < 2)
        return;
    assert_int_equal(recv(fd, &call, sizeof(call), MSG_WAITALL), sizeof(call));
    assert_true(le32toh(call.magic) == CONNECTOR_MAGIC && le32toh(call.from) == 1 && call.to == 0);
    said.from = call.from;
    said.to = call.to;
    memcpy(said.nonce, call.nonce, NONCE_BYTES);
    assert_true(proof_good(&key, "call", &said, sizeof(said), call.proof));
    proof_make(&key, turn == 3 ? "call" : "reply", &said, sizeof(said), (uint8_t *)reply);
    if (turn > 2)
        assert_int_equal(send(fd, reply, sizeof(reply), MSG_NOSIGNAL), sizeof(reply));
}

static short waited_for[16];
static size_t n_waits;

static void note_wait(const struct pollfd *fds, nfds_t n)
{
    if (n == 2 && n_waits < ELEMENTSOF(waited_for))
        waited_for[n_waits++] = fds[1].events;
}

/* A caller waits until it is connected, and then for what the called process sends. A caller that also woke because it
 * may send would not sleep while the called process is busy. */
static void a_caller_sleeps_until_it_is_answered(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    char address[ADDRESS_MAX];
    const CommOptions one = options_of(1, 2);
    Holder holder = {.meeting = open_meeting(&one), .usec = MINUTE};
    pthread_t thread;
    int listener;
    assert_int_equal(address_listen("127.0.0.1", 8, &listener, address, &err), 0);
    assert_int_equal(fcntl(listener, F_SETFL, 0), 0);
    assert_int_equal(connector_call(holder.meeting, 0, address, &err), 0);
    clock_hooks.before_poll = note_wait;
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    answer_call(fd, 4);
    assert_int_equal(pthread_join(thread, NULL), 0);
    clock_hooks.before_poll = NULL;
    assert_int_equal(holder.r, 0);
    assert_true(n_waits >= 2);
    for (size_t i = 0; i < n_waits; i++)
        assert_int_equal(waited_for[i], i == 0 ? POLLOUT : POLLIN);
    (void)close(fd);
    (void)close(listener);
    (void)connector_free(holder.meeting);
}

static void a_call_is_made_again_until_it_is_answered(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    char address[ADDRESS_MAX];
    const CommOptions one = options_of(1, 2);
    Holder holder = {.meeting = open_meeting(&one), .usec = MINUTE};
    const struct timeval minute = {.tv_sec = 60};
    pthread_t thread;
    int listener, fds[5];
    assert_int_equal(address_listen("127.0.0.1", 8, &listener, address, &err), 0);
    assert_int_equal(fcntl(listener, F_SETFL, 0), 0);
    assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof(minute)), 0);
    assert_int_equal(connector_call(holder.meeting, 0, address, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    for (int turn = 0; turn < 5; turn++) {
        fds[turn] = accept(listener, NULL, NULL);
        assert_true(fds[turn] >= 0);
        answer_call(fds[turn], turn);
        if (turn == 0 || turn == 2)
            (void)shutdown(fds[turn], SHUT_RDWR); /* the called process drops the caller */
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(holder.r, 0);
    int fd = connector_take(holder.meeting, 0);
    char byte = 0;
    assert_int_equal(send(fds[4], "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    assert_true(recv(fd, &byte, 1, 0) == 1 && byte == 'x');
    (void)close(fd);
    (void)close(listener);
    for (int turn = 0; turn < 5; turn++)
        (void)close(fds[turn]);
    (void)connector_free(holder.meeting);
}

/* Two ranks are called: the lower one does not answer yet, the higher one has ended. The ended rank
 * is named. */
static void a_rank_that_has_gone_is_named(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    int peer = -1;
    char gone[ADDRESS_MAX];
    const CommOptions zero = options_of(0, 3), one = options_of(1, 3), two = options_of(2, 3);
    _cleanup_(connector_freep) Connector *silent = open_meeting(&zero);
    _cleanup_(connector_freep) Connector *caller = open_meeting(&two);
    Connector *other = open_meeting(&one);
    (void)snprintf(gone, sizeof(gone), "%s", connector_address(other));
    other = connector_free(other);
    assert_int_equal(connector_call(caller, 0, connector_address(silent), &err), 0);
    assert_int_equal(connector_call(caller, 1, gone, &err), 0);
    assert_int_equal(connector_hold(caller, in(MINUTE), &peer, &err), -ECONNREFUSED);
    assert_int_equal(peer, 1);
    assert_non_null(strstr(err.text, "connecting to rank 1 (g7/test/1)"));
}

static pthread_t tests_thread;
static atomic_bool others_are_late;
static atomic_int n_polls; /* the number of polls by threads other than the test's */

static void be_late_if_told(void)
{
    if (!pthread_equal(pthread_self(), tests_thread) && atomic_load(&others_are_late))
        clock_be_late();
}

static void count_polls(const struct pollfd *fds, nfds_t n)
{
    (void)fds;
    (void)n;
    if (!pthread_equal(pthread_self(), tests_thread))
        (void)atomic_fetch_add(&n_polls, 1);
}

/* An hour passes for the waiting rank. After it has dropped a stranger, it does not poll in a busy
 * loop. */
static void strangers_that_are_left_cost_nothing(void **state)
{
    (void)state;
    const CommOptions zero = options_of(0, 2);
    Holder holder = {.meeting = open_meeting(&zero), .usec = 600 * MINUTE};
    const char *address = connector_address(holder.meeting);
    pthread_t thread;
    tests_thread = pthread_self();
    clock_hooks = (ClockHooks){.before_reading = be_late_if_told, .before_poll = count_polls};
    int silent = dial(address);
    uint8_t greeting[24];
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    assert_int_equal(recv(silent, greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    assert_refused(address, CONNECTOR_MAGIC, 2, 0);
    assert_true(recv(silent, greeting, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    atomic_store(&others_are_late, true);
    (void)close(dial(address)); /* ends the rank's poll */
    assert_true(has_ended(silent));
    atomic_store(&n_polls, 0);
    usleep(20000); /* long enough for many polls; the test passes in any case */
    assert_in_range(atomic_load(&n_polls), 0, 20);
    (void)close(silent);
    (void)close(call_rank_0(1, address));
    assert_int_equal(pthread_join(thread, NULL), 0);
    clock_hooks = (ClockHooks){0};
    assert_int_equal(holder.r, 0);
    (void)connector_free(holder.meeting);
}

/* A rank keeps 256 strangers. Each further stranger replaces the oldest. */
static void the_oldest_stranger_makes_way(void **state)
{
    (void)state;
    enum { MOST = 256 };
    const CommOptions zero = options_of(0, 2);
    Holder holder = {.meeting = open_meeting(&zero), .usec = MINUTE};
    const char *address = connector_address(holder.meeting);
    pthread_t thread;
    int fds[MOST + 2];
    uint8_t greeting[24];
    /* the calls wait in the backlog, because the rank accepts none yet */
    for (size_t i = 0; i < ELEMENTSOF(fds); i++)
        fds[i] = dial(address);
    assert_int_equal(pthread_create(&thread, NULL, hold, &holder), 0);
    for (size_t i = 0; i < ELEMENTSOF(fds); i++)
        assert_int_equal(recv(fds[i], greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    assert_true(has_ended(fds[0]));
    assert_true(has_ended(fds[1]));
    (void)close(call_rank_0(1, address));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(holder.r, 0);
    (void)connector_free(holder.meeting);
    for (size_t i = 0; i < ELEMENTSOF(fds); i++)
        (void)close(fds[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_meets_257_and_1025_ranks),
        cmocka_unit_test(a_rank_that_comes_twice_is_one_rank),
        cmocka_unit_test(a_rank_that_is_missing_is_named),
        cmocka_unit_test(a_caller_sleeps_until_it_is_answered),
        cmocka_unit_test(a_call_is_made_again_until_it_is_answered),
        cmocka_unit_test(a_rank_that_has_gone_is_named),
        cmocka_unit_test(strangers_that_are_left_cost_nothing),
        cmocka_unit_test(the_oldest_stranger_makes_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
