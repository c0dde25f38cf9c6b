/* SPDX-License-Identifier: Apache-2.0 */
/* test-rendezvous.c - the rendezvous store and its client: good and bad callers, limits. */

#include "base/clock.h"
#include "base/number/philox.h"
#include "base/test/testing.h"
#include "trainer/comm/address.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/rendezvous-client.h"
#include "trainer/comm/rendezvous-wire.h"
#include "trainer/comm/test/testing-clock.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const uint8_t secret[COMM_SECRET_BYTES] = {1, 2, 3};
static const CommKey key = {.generation = 7, .secret = secret};

#define MINUTE (60 * USEC_PER_SEC) /* a far deadline, for calls that end at once */

static uint64_t in(uint64_t usec) { return clock_boottime_usec() + usec; }

static Rendezvous *open_store(int world_size)
{
    Error err = ERROR_INIT;
    Rendezvous *rendezvous = NULL;
    assert_int_equal(rendezvous_new("127.0.0.1", world_size, &key, &rendezvous, &err), 0);
    return rendezvous;
}

static void assert_store_works(Rendezvous *rendezvous, const char *name)
{
    Error err = ERROR_INIT;
    char value[16];
    size_t n = 0;
    assert_int_equal(rendezvous_set(rendezvous_address(rendezvous), &key, name, "abc", 3,
                                    in(MINUTE), &err),
                     0);
    assert_int_equal(rendezvous_get(rendezvous_address(rendezvous), &key, name, value,
                                    sizeof(value), &n, in(MINUTE), &err),
                     0);
    assert_int_equal(n, 3);
    assert_memory_equal(value, "abc", 3);
}

static void values_come_back(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(2);
    const char *address = rendezvous_address(store);
    assert_store_works(store, "a");

    Error err = ERROR_INIT;
    _cleanup_free_ char *big = malloc(RENDEZVOUS_VALUE_MAX);
    _cleanup_free_ char *back = malloc(RENDEZVOUS_VALUE_MAX);
    size_t n = 1;
    for (int i = 0; i < RENDEZVOUS_VALUE_MAX; i++)
        big[i] = (char)philox4x32(1, 2, (uint64_t)i).word[0];
    uint64_t deadline = in(MINUTE);
    assert_int_equal(rendezvous_set(address, &key, "big", big, RENDEZVOUS_VALUE_MAX, deadline,
                                    &err),
                     0);
    assert_int_equal(rendezvous_get(address, &key, "big", back, RENDEZVOUS_VALUE_MAX, &n, deadline,
                                    &err),
                     0);
    assert_int_equal(n, RENDEZVOUS_VALUE_MAX);
    assert_memory_equal(big, back, RENDEZVOUS_VALUE_MAX);
    assert_int_equal(rendezvous_set(address, &key, "empty", big, 0, deadline, &err), 0);
    assert_int_equal(rendezvous_get(address, &key, "empty", back, 1, &n, deadline, &err), 0);
    assert_int_equal(n, 0);

    /* The calls below fail: a value is too large for the caller's buffer, a key is set to a second
     * value, and a value is too large for the store. */
    assert_int_equal(rendezvous_get(address, &key, "big", back, 10, &n, deadline, &err), -EPROTO);
    assert_int_equal(rendezvous_set(address, &key, "big", big, RENDEZVOUS_VALUE_MAX, deadline,
                                    &err),
                     0);
    assert_int_equal(rendezvous_set(address, &key, "big", "x", 1, deadline, &err), -EEXIST);
    assert_non_null(strstr(err.text, "setting big: File exists"));
    assert_non_null(strstr(err.text, address));
    assert_int_equal(rendezvous_set(address, &key, "c", big, RENDEZVOUS_VALUE_MAX + 1, deadline,
                                    &err),
                     -EINVAL);
    assert_int_equal(rendezvous_set("nonsense", &key, "c", big, 1, deadline, &err), -EINVAL);
}

static void *set_later(void *arg)
{
    Error err = ERROR_INIT;
    usleep(30000); /* so that rendezvous_get() most likely waits; the test passes in any case */
    assert(rendezvous_set(arg, &key, "later", "x", 1, in(MINUTE), &err) == 0);
    return NULL;
}

static void a_get_waits_for_its_key_and_no_longer_than_it_may(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(2);
    const char *address = rendezvous_address(store);
    Error err = ERROR_INIT;
    char value[8];
    size_t n;
    uint64_t t = clock_boottime_usec();
    assert_int_equal(rendezvous_get(address, &key, "never", value, sizeof(value), &n, in(200000),
                                    &err),
                     -ETIMEDOUT);
    assert_in_range(clock_boottime_usec() - t, 190000, 20 * USEC_PER_SEC);
    assert_non_null(strstr(err.text, "waiting for never"));
    assert_int_equal(rendezvous_look(address, &key, "never", value, sizeof(value), &n, in(MINUTE),
                                     &err),
                     -ENOENT);

    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_later, (void *)address), 0);
    assert_int_equal(rendezvous_get(address, &key, "later", value, sizeof(value), &n, in(MINUTE),
                                    &err),
                     0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(n, 1);
}

static int dial_port(const char *at)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)atoi(strrchr(at, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static int dial(const Rendezvous *store) { return dial_port(rendezvous_address(store)); }

/* Waits for the store to close this connection. */
static void assert_closed(int fd, int within_msec)
{
    char sink[256];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, within_msec), 1);
        if (recv(fd, sink, sizeof(sink), 0) <= 0)
            return;
    }
}

/* Reads the greeting, which the store sends first. */
static RendezvousGreeting greeted(int fd)
{
    RendezvousGreeting greeting;
    assert_int_equal(recv(fd, &greeting, sizeof(greeting), MSG_WAITALL), sizeof(greeting));
    assert_int_equal(le32toh(greeting.magic), RENDEZVOUS_MAGIC);
    return greeting;
}

/* Makes a request that sets "k" to "v", with a proof by the given key. */
static RendezvousRequest make_request(const RendezvousGreeting *greeting, const CommKey *by)
{
    RendezvousRequest request = {.magic = htole32(RENDEZVOUS_MAGIC),
                                 .operation = htole32(RENDEZVOUS_SET),
                                 .key_bytes = htole32(1),
                                 .argument = htole32(1)};
    proof_digest("kv", 2, request.digest);
    RendezvousProvenRequest asked = rendezvous_proven_request(greeting, &request);
    proof_make(by, "ask", &asked, sizeof(asked), request.proof);
    return request;
}

static void assert_dropped(const RendezvousRequest *request, int fd)
{
    char sink;
    /* the store may have closed the connection */
    (void)!send(fd, request, sizeof(*request), MSG_NOSIGNAL);
    (void)!send(fd, "kv", 2, MSG_NOSIGNAL);
    assert_true(recv(fd, &sink, 1, 0) <= 0); /* closed without an answer */
    (void)close(fd);
}

static void malformed_requests_are_dropped(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(2);
    const uint32_t magic = RENDEZVOUS_MAGIC;
    const uint32_t bad[][4] = {
        {0x47455420, RENDEZVOUS_SET, 1, 1}, /* another protocol's first word */
        {magic, 0, 1, 1},
        {magic, 3, 1, 1},
        {magic, RENDEZVOUS_SET, 0, 1},
        {magic, RENDEZVOUS_SET, RENDEZVOUS_KEY_MAX + 1, 1},
        {magic, RENDEZVOUS_SET, UINT32_MAX, 1},
        {magic, RENDEZVOUS_SET, 1, RENDEZVOUS_VALUE_MAX + 1},
        {magic, RENDEZVOUS_SET, 1, UINT32_MAX},
        {magic, RENDEZVOUS_GET, 1, RENDEZVOUS_WAIT_MSEC_MAX + 1},
    };
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) { /* a good proof, but a malformed request */
        int fd = dial(store);
        RendezvousGreeting greeting = greeted(fd);
        RendezvousRequest request = {.magic = htole32(bad[i][0]),
                                     .operation = htole32(bad[i][1]),
                                     .key_bytes = htole32(bad[i][2]),
                                     .argument = htole32(bad[i][3])};
        RendezvousProvenRequest asked = rendezvous_proven_request(&greeting, &request);
        proof_make(&key, "ask", &asked, sizeof(asked), request.proof);
        assert_dropped(&request, fd);
    }
    for (int i = 0; i < 200; i++) { /* random bytes of any length, then a close */
        int fd = dial(store);
        Philox noise[8];
        for (size_t k = 0; k < ELEMENTSOF(noise); k++)
            noise[k] = philox4x32(9, (uint64_t)i, k);
        size_t n = (size_t)i * 7 % (sizeof(noise) + 1);
        (void)!send(fd, noise, n, MSG_NOSIGNAL); /* the store may have closed already */
        (void)close(fd);
    }
    assert_store_works(store, "after the noise");
}

static void who_proves_nothing_is_dropped(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(2);
    static const uint8_t other[COMM_SECRET_BYTES] = {1, 2, 4};
    const CommKey wrong[] = {{7, other}, {7, NULL}, {8, secret}};
    Error err = ERROR_INIT;
    size_t n;
    char value[8];
    for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
        be_late_after_a_pause(); /* the store drops the client at least once */
        int set =
            rendezvous_set(rendezvous_address(store), &wrong[i], "k", "v", 1, in(MINUTE), &err);
        clock_be_in_time();
        be_late_after_a_pause();
        int get = rendezvous_get(rendezvous_address(store), &wrong[i], "k", value, sizeof(value),
                                 &n, in(MINUTE), &err);
        clock_be_in_time();
        assert_int_equal(set, -ECONNRESET);
        assert_int_equal(get, -ECONNRESET);
    }
    /* A request that is good on one connection is refused on another connection, and with another body. */
    int first = dial(store), second = dial(store), third = dial(store);
    RendezvousGreeting greetings[] = {greeted(first), greeted(second), greeted(third)};
    assert_memory_not_equal(greetings[0].nonce, greetings[1].nonce, NONCE_BYTES);
    RendezvousRequest good = make_request(&greetings[0], &key);
    assert_dropped(&good, second);
    RendezvousRequest changed = make_request(&greetings[2], &key);
    assert_int_equal(send(third, &changed, sizeof(changed), MSG_NOSIGNAL), sizeof(changed));
    assert_int_equal(send(third, "kw", 2, MSG_NOSIGNAL), 2);
    assert_closed(third, 60000);
    (void)close(third);
    assert_int_equal(send(first, &good, sizeof(good), MSG_NOSIGNAL), sizeof(good));
    assert_int_equal(send(first, "kv", 2, MSG_NOSIGNAL), 2);
    RendezvousAnswer answer;
    assert_int_equal(recv(first, &answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
    assert_int_equal(answer.status, 0);
    (void)close(first);
    assert_int_equal(rendezvous_get(rendezvous_address(store), &key, "k", value, sizeof(value), &n,
                                    in(MINUTE), &err),
                     0);
    assert_true(n == 1 && value[0] == 'v');

    /* A client does not accept the answer of a store that has another secret or none. */
    _cleanup_(rendezvous_freep) Rendezvous *foreign = NULL;
    assert_int_equal(rendezvous_new("127.0.0.1", 2, &wrong[1], &foreign, &err), 0);
    assert_true(rendezvous_get(rendezvous_address(foreign), &key, "k", value, sizeof(value), &n,
                               in(300000), &err) < 0);
}

typedef struct Impostor {
    int listener;
    uint32_t status;
} Impostor;

/* Greets, reads any request, and answers without a proof. */
static void *play_store(void *arg)
{
    const Impostor *impostor = arg;
    int fd = accept(impostor->listener, NULL, NULL);
    assert(fd >= 0);
    RendezvousGreeting greeting = {.magic = htole32(RENDEZVOUS_MAGIC)};
    RendezvousAnswer answer = {.status = impostor->status, .value_bytes = htole32(1)};
    char sink[256];
    (void)!send(fd, &greeting, sizeof(greeting), MSG_NOSIGNAL);
    (void)!recv(fd, sink, sizeof(RendezvousRequest) + 1, MSG_WAITALL);
    (void)!send(fd, &answer, sizeof(answer), MSG_NOSIGNAL);
    (void)!send(fd, "x", 1, MSG_NOSIGNAL);
    (void)close(fd);
    return NULL;
}

static void an_answer_that_proves_nothing_is_no_answer(void **state)
{
    (void)state;
    for (uint32_t status = 0; status <= EEXIST; status += EEXIST) {
        Impostor impostor = {.status = status};
        char address[ADDRESS_MAX], value[8];
        Error err = ERROR_INIT;
        pthread_t thread;
        size_t n;
        assert_int_equal(address_listen("127.0.0.1", 1, &impostor.listener, address, &err), 0);
        assert_int_equal(fcntl(impostor.listener, F_SETFL, 0), 0); /* accept() blocks */
        assert_int_equal(pthread_create(&thread, NULL, play_store, &impostor), 0);
        assert_int_equal(rendezvous_get(address, &key, "k", value, sizeof(value), &n, in(MINUTE),
                                        &err),
                         -EPROTO);
        assert_int_equal(pthread_join(thread, NULL), 0);
        (void)close(impostor.listener);
    }
}

static void strangers_take_nobodys_place(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(1);
    enum { MANY = 600 }; /* more than the store's places for strangers */
    static int fds[MANY];
    for (size_t i = 0; i < MANY; i++)
        fds[i] = dial(store);
    Error err = ERROR_INIT;
    uint64_t t = clock_boottime_usec();
    assert_int_equal(rendezvous_set(rendezvous_address(store), &key, "a", "b", 1, in(MINUTE), &err),
                     0);
    print_message("among %d strangers a rank is served in %d ms\n", MANY,
                  (int)((clock_boottime_usec() - t) / 1000));
    for (size_t i = 0; i < MANY; i++) {
        assert_closed(fds[i], 60000);
        (void)close(fds[i]);
    }
    /* the last strangers had about 2 s to prove themselves */
    assert_true(clock_boottime_usec() - t > USEC_PER_SEC);
    assert_store_works(store, "c");
}

static void the_store_is_bounded(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(1);
    Error err = ERROR_INIT;
    int r = 0, n = 0;
    for (; n < 5000 && r == 0; n++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "key/%d", n);
        r = rendezvous_set(rendezvous_address(store), &key, name, "v", 1, in(MINUTE), &err);
    }
    assert_int_equal(r, -ENOSPC);
    assert_int_equal(n, 4 * 1 + 1024 + 1);
}

static void nobody_at_the_address_is_an_error_at_once(void **state)
{
    (void)state;
    Rendezvous *store = open_store(1);
    char address[64];
    (void)snprintf(address, sizeof(address), "%s", rendezvous_address(store));
    store = rendezvous_free(store);
    Error err = ERROR_INIT;
    assert_int_equal(rendezvous_set(address, &key, "a", "b", 1, in(MINUTE), &err), -ECONNREFUSED);
    assert_null(store);

    Rendezvous *nowhere = NULL;
    /* not an address of this host */
    assert_true(rendezvous_new("192.0.2.1", 1, &key, &nowhere, &err) < 0);
    assert_non_null(strstr(err.text, "192.0.2.1"));
    assert_null(nowhere);
}

static bool bring_up(void) { return system("ip address add 198.51.100.1/32 dev lo") == 0; }

static void *bring_up_later(void *arg)
{
    (void)arg;
    usleep(300000); /* so that the first try most likely fails; the test passes in any case */
    assert(bring_up());
    return NULL;
}

static void bring_up_in_the_pause(const struct pollfd *fds, nfds_t n)
{
    (void)fds;
    if (n == 0)
        (void)bring_up(); /* the second try finds the address */
}

/* At first there is no route; later there is a route, but no answer before the deadline: the error
 * reports the missing route. */
static void no_way_until_it_is_too_late_is_said(void)
{
    Error err = ERROR_INIT;
    char address[ADDRESS_MAX], far[ADDRESS_MAX];
    int listener;
    assert_int_equal(address_listen("0.0.0.0", 0, &listener, address, &err), 0);
    int only = dial_port(address); /* the listener's backlog has room only for this connection */
    (void)snprintf(far, sizeof(far), "198.51.100.1%s", strrchr(address, ':'));
    clock_hooks.before_poll = bring_up_in_the_pause;
    be_late_after_a_pause();
    int r = rendezvous_set(far, &key, "a", "b", 1, in(MINUTE), &err);
    clock_be_in_time();
    clock_hooks.before_poll = NULL;
    assert_int_equal(system("ip address del 198.51.100.1/32 dev lo"), 0);
    assert_int_equal(r, -ENETUNREACH);
    (void)close(only);
    (void)close(listener);
}

/* The client retries while there is no route to the address. The test has its own network namespace. */
static void a_host_that_cannot_be_reached_yet_is_waited_for(void **state)
{
    (void)state;
    _cleanup_fd_ int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    assert_true(home >= 0);
    if (unshare(CLONE_NEWNET) < 0)
        skip(); /* only root may call unshare() */
    assert_int_equal(system("ip link set lo up"), 0);
    no_way_until_it_is_too_late_is_said();
    Error err = ERROR_INIT;
    Rendezvous *store = NULL;
    char address[64];
    assert_int_equal(rendezvous_new("0.0.0.0", 1, &key, &store, &err), 0);
    (void)snprintf(address, sizeof(address), "198.51.100.1%s",
                   strrchr(rendezvous_address(store), ':'));
    assert_int_equal(rendezvous_set(address, &key, "a", "b", 1, in(300000), &err), -ENETUNREACH);

    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, bring_up_later, NULL), 0);
    if (rendezvous_set(address, &key, "a", "b", 1, in(MINUTE), &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_join(thread, NULL), 0);
    store = rendezvous_free(store);
    assert_int_equal(setns(home, CLONE_NEWNET), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(a_get_waits_for_its_key_and_no_longer_than_it_may),
        cmocka_unit_test(malformed_requests_are_dropped),
        cmocka_unit_test(who_proves_nothing_is_dropped),
        cmocka_unit_test(an_answer_that_proves_nothing_is_no_answer),
        cmocka_unit_test(strangers_take_nobodys_place),
        cmocka_unit_test(the_store_is_bounded),
        cmocka_unit_test(nobody_at_the_address_is_an_error_at_once),
        cmocka_unit_test(a_host_that_cannot_be_reached_yet_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
