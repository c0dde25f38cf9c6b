/* SPDX-License-Identifier: Apache-2.0 */
/* test-late.c - ranks and stores that are delayed beyond a deadline: messages that arrived in time still count.
 *
 * Each case defines where a thread is delayed, and what arrives meanwhile: testing-clock.h. */

#include "base/clock.h"
#include "base/test/testing.h"
#include "trainer/comm/connector.h"
#include "trainer/comm/rendezvous-client.h"
#include "trainer/comm/rendezvous-wire.h"
#include "trainer/comm/test/testing-clock.h"
#include "trainer/comm/test/testing-world.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/socket.h>

#define MINUTE (60 * USEC_PER_SEC)

static const uint8_t secret[COMM_SECRET_BYTES] = {1, 2, 3}, other[COMM_SECRET_BYTES] = {1, 2, 4};
static const CommKey key = {.generation = 7, .secret = secret};
static const CommKey wrong = {.generation = 7, .secret = other};

static uint64_t in(uint64_t usec) { return clock_boottime_usec() + usec; }

static Rendezvous *open_store(void)
{
    Error err = ERROR_INIT;
    Rendezvous *store = NULL;
    if (rendezvous_new("127.0.0.1", 2, &key, &store, &err) < 0)
        fail_msg("%s", err.text);
    return store;
}

static int set(const Rendezvous *store, const CommKey *by, const char *name)
{
    Error err = ERROR_INIT;
    return rendezvous_set(rendezvous_address(store), by, name, "v", 1, in(MINUTE), &err);
}

static int get(const Rendezvous *store, const CommKey *by, const char *name)
{
    Error err = ERROR_INIT;
    char value[8];
    size_t n;
    return rendezvous_get(rendezvous_address(store), by, name, value, sizeof(value), &n, in(MINUTE),
                          &err);
}

/* ---- clients of a store ---- */

static void what_the_store_said_counts_however_late_it_is_read(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store();
    assert_int_equal(set(store, &key, "k"), 0);
    stand_still_before_words();
    int found = get(store, &key, "k");
    clock_be_in_time();
    stand_still_before_words();
    int dropped = get(store, &wrong, "k");
    clock_be_in_time();
    assert_int_equal(found, 0);
    assert_int_equal(dropped, -ECONNRESET);
}

static void who_was_dropped_says_so_when_the_pause_outlasts_its_time(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store();
    be_late_after_a_pause();
    int r = get(store, &wrong, "k");
    clock_be_in_time();
    assert_int_equal(r, -ECONNRESET);
}

/* Greets two connections: drops the first one, and answers the second one, with a proof, that no
 * rank has set the key in time. */
static void *drop_and_answer(void *arg)
{
    const int *listener = arg;
    struct pollfd p = {.fd = *listener, .events = POLLIN};
    for (int turn = 0; turn < 2; turn++) {
        (void)poll(&p, 1, -1);
        int fd = accept(*listener, NULL, NULL);
        assert(fd >= 0);
        const RendezvousGreeting greeting = {.magic = htole32(RENDEZVOUS_MAGIC)};
        RendezvousRequest request;
        char body;
        (void)!send(fd, &greeting, sizeof(greeting), MSG_NOSIGNAL);
        ssize_t n = recv(fd, &request, sizeof(request), MSG_WAITALL);
        assert(n == sizeof(request) && recv(fd, &body, 1, 0) == 1);
        RendezvousAnswer answer = {.status = htole32(ETIMEDOUT)};
        const RendezvousProvenRequest asked = rendezvous_proven_request(&greeting, &request);
        const RendezvousProvenAnswer told = rendezvous_proven_answer(&asked, &answer, "");
        proof_make(&key, "tell", &told, sizeof(told), answer.proof);
        if (turn == 1)
            (void)!send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
        (void)close(fd);
    }
    return NULL;
}

static void what_the_store_tells_says_more_than_an_earlier_drop(void **state)
{
    (void)state;
    char address[ADDRESS_MAX], value[8];
    Error err = ERROR_INIT;
    pthread_t thread;
    size_t n;
    int listener;
    assert_int_equal(address_listen("127.0.0.1", 2, &listener, address, &err), 0);
    assert_int_equal(pthread_create(&thread, NULL, drop_and_answer, &listener), 0);
    assert_int_equal(rendezvous_get(address, &key, "k", value, sizeof(value), &n, in(MINUTE), &err),
                     -ETIMEDOUT);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)close(listener);
}

/* ---- a store ---- */

/* The place where the store's thread is delayed: the thread posts `stands`, waits for `go`, and
 * then continues with a late clock. */
static struct {
    pthread_t tests; /* the test's thread, not the store's */
    atomic_bool closed;
    sem_t stands, go;
} door;

static void stand_at_the_door(const struct pollfd *fds, nfds_t n)
{
    (void)fds;
    (void)n;
    if (pthread_equal(pthread_self(), door.tests) || !atomic_load(&door.closed))
        return;
    (void)sem_post(&door.stands);
    while (sem_wait(&door.go) < 0)
        assert(errno == EINTR);
    clock_be_late();
}

static void close_the_door(void) { atomic_store(&door.closed, true); }

static void await_at_the_door(void)
{
    while (sem_wait(&door.stands) < 0)
        assert(errno == EINTR);
}

static void open_the_door(bool for_good)
{
    if (for_good)
        atomic_store(&door.closed, false);
    (void)sem_post(&door.go);
}

static int dial(const Rendezvous *store)
{
    Error err = ERROR_INIT;
    struct addrinfo *to = NULL;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(address_resolve(rendezvous_address(store), true, &to, &err), 0);
    assert_int_equal(connect(fd, to->ai_addr, to->ai_addrlen), 0);
    freeaddrinfo(to);
    return fd;
}

/* A connection that has been greeted, and the request about "k" that it will send. */
typedef struct Asker {
    int fd;
    RendezvousRequest request;
} Asker;

static Asker come_to(const Rendezvous *store, uint32_t operation, uint32_t argument)
{
    Asker a = {.fd = dial(store)};
    RendezvousGreeting greeting;
    assert_int_equal(recv(a.fd, &greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    a.request = (RendezvousRequest){.magic = htole32(RENDEZVOUS_MAGIC),
                                    .operation = htole32(operation),
                                    .key_bytes = htole32(1),
                                    .argument = htole32(argument)};
    proof_digest("kv", operation == RENDEZVOUS_SET ? 2 : 1, a.request.digest);
    const RendezvousProvenRequest asked = rendezvous_proven_request(&greeting, &a.request);
    proof_make(&key, "ask", &asked, sizeof(asked), a.request.proof);
    return a;
}

static void say(const Asker *a)
{
    char words[sizeof(a->request) + 2] = "";
    size_t n = sizeof(a->request) + rendezvous_body_bytes(&a->request);
    memcpy(words, &a->request, sizeof(a->request));
    memcpy(words + sizeof(a->request), "kv", 2);
    assert_int_equal(send(a->fd, words, n, MSG_NOSIGNAL), n);
}

static uint32_t answered(Asker *a)
{
    RendezvousAnswer answer;
    assert_int_equal(recv(a->fd, &answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
    (void)close(a->fd);
    return le32toh(answer.status);
}

/* A rank waits for a key. Another rank sets the key while the store is delayed, and then the first
 * rank's time has passed. */
static void set_while_it_stands_still(bool before_the_look)
{
    _cleanup_(rendezvous_freep) Rendezvous *store = NULL;
    door.tests = pthread_self();
    assert_int_equal(sem_init(&door.stands, 0, 0) | sem_init(&door.go, 0, 0), 0);
    *(before_the_look ? &clock_hooks.before_poll : &clock_hooks.after_poll) = stand_at_the_door;
    store = open_store();
    Asker waits = come_to(store, RENDEZVOUS_GET, RENDEZVOUS_WAIT_MSEC_MAX);
    say(&waits);
    Asker sets = come_to(store, RENDEZVOUS_SET, 1);
    assert_int_equal(set(store, &key, "so that the first waits by now"), 0);
    close_the_door();
    int stranger = dial(store); /* ends the store's poll */
    await_at_the_door();
    /* the store's next turn reads a late clock and is delayed before its poll */
    if (before_the_look) {
        int another = dial(store);
        open_the_door(false);
        await_at_the_door();
        (void)close(another);
    }
    say(&sets);
    open_the_door(true);
    const uint32_t get_status = answered(&waits), set_status = answered(&sets);
    (void)close(stranger);
    store = rendezvous_free(store);
    clock_hooks = (ClockHooks){0};
    (void)sem_destroy(&door.stands); /* cannot fail: no thread waits on this semaphore */
    (void)sem_destroy(&door.go);
    assert_int_equal(get_status, 0);
    assert_int_equal(set_status, 0);
}

static void a_key_that_came_while_the_store_stood_still_is_handed_out(void **state)
{
    (void)state;
    set_while_it_stands_still(false);
    set_while_it_stands_still(true);
}

/* ---- connecting ranks ---- */

static Connector *open_meeting(const CommOptions *options)
{
    Error err = ERROR_INIT;
    Connector *meeting = NULL;
    if (connector_open(options, &meeting, &err) < 0)
        fail_msg("%s", err.text);
    return meeting;
}

static void *hold(void *arg)
{
    Error err = ERROR_INIT;
    int peer;
    return connector_hold(arg, in(MINUTE), &peer, &err) == 0 ? arg : NULL;
}

static CommOptions options_of(int rank)
{
    return (CommOptions){
        .rank = rank, .size = 2, .prefix = "g7/test", .bind_address = "127.0.0.1", .key = key};
}

static void a_rank_that_has_come_is_met_however_late_we_look(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    const CommOptions zero = options_of(0), one = options_of(1);
    _cleanup_(connector_freep) Connector *called = open_meeting(&zero);
    _cleanup_(connector_freep) Connector *caller = open_meeting(&one);
    pthread_t thread;
    void *met;
    int peer;
    assert_int_equal(pthread_create(&thread, NULL, hold, called), 0);
    assert_int_equal(connector_call(caller, 0, connector_address(called), &err), 0);
    stand_still_after_word();
    int r = connector_hold(caller, in(MINUTE), &peer, &err);
    clock_be_in_time();
    assert_int_equal(pthread_join(thread, &met), 0);
    assert_non_null(met);
    assert_int_equal(r, 0);
}

static void nobody_at_an_address_is_told_apart_from_who_is_late(void **state)
{
    (void)state;
    Error err = ERROR_INIT;
    const CommOptions zero = options_of(0), one = options_of(1);
    _cleanup_(connector_freep) Connector *called = open_meeting(&zero);
    _cleanup_(connector_freep) Connector *caller = open_meeting(&one);
    char address[ADDRESS_MAX];
    int peer;
    (void)snprintf(address, sizeof(address), "%s", connector_address(called));
    called = connector_free(called);
    assert_int_equal(connector_call(caller, 0, address, &err), 0);
    const uint64_t deadline = in(MINUTE);
    clock_be_late();
    int r = connector_hold(caller, deadline, &peer, &err);
    clock_be_in_time();
    assert_int_equal(r, -ECONNREFUSED);
}

/* ---- a collective call ---- */

enum { ROWS = 8, PIECE = 1024, ALL = 2 * ROWS * PIECE };
static char *gathered;
static bool stood_still;
static int n_readings;

/* The first reading of the clock sets the call's deadline. The second reading is for the first row:
 * there, rank 1 is delayed until the last row begins to arrive, when all earlier rows have
 * arrived. */
static void stand_still_until_the_last_row(void)
{
    if (++n_readings != 2)
        return;
    while (__atomic_load_n(&gathered[ALL - 2 * PIECE], __ATOMIC_ACQUIRE) != 1)
        usleep(1000); /* world_wait() limits the wait */
    usleep(50000);    /* so that a tick most likely falls here; the test passes in any case */
    stood_still = true;
}

/* Before the second reading of the clock, waits until the last row begins to arrive. Only that reading is late. */
static void be_late_once(void)
{
    clock_be_in_time();
    if (!gathered)
        return;
    stand_still_until_the_last_row();
    if (n_readings == 2)
        clock_be_late();
}

static int gather_late(World *world, Comm *comm, void *arg)
{
    (void)arg;
    static char data[ALL];
    Error err = ERROR_INIT;
    for (size_t i = 0; i < ALL; i++)
        data[i] = (int)(i / PIECE % 2) == world->rank ? (char)(1 + world->rank) : 0;
    if (world->rank == 1) {
        gathered = data;
        clock_hooks.before_reading = be_late_once;
    }
    int r = comm_all_gather_dealt(comm, data, ALL, PIECE, &err);
    gathered = NULL; /* from here on be_late_once() does nothing */
    world_check(r == 0, "%s", err.text);
    for (size_t i = 0; i < ALL; i++)
        world_check(data[i] == (char)(1 + i / PIECE % 2), "byte %zu is %d", i, data[i]);
    world_check(world->rank == 0 || stood_still, "it read the clock %d times", n_readings);
    r = world_barrier(comm, &err);
    world_check(r == 0, "%s", err.text);
    return 0;
}

static void a_message_that_is_through_counts_however_late_we_look(void **state)
{
    (void)state;
    World world = {.size = 2, .run = gather_late, .key = key};
    assert_int_equal(world_run(&world, WORLD_SEC), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* this test forks, so it runs first */
        cmocka_unit_test(a_message_that_is_through_counts_however_late_we_look),
        cmocka_unit_test(what_the_store_said_counts_however_late_it_is_read),
        cmocka_unit_test(who_was_dropped_says_so_when_the_pause_outlasts_its_time),
        cmocka_unit_test(what_the_store_tells_says_more_than_an_earlier_drop),
        cmocka_unit_test(a_key_that_came_while_the_store_stood_still_is_handed_out),
        cmocka_unit_test(a_rank_that_has_come_is_met_however_late_we_look),
        cmocka_unit_test(nobody_at_an_address_is_told_apart_from_who_is_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
