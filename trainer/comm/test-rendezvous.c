/* test-rendezvous.c - the rendezvous store and its client, good and bad callers, limits. */

#include "base/clock.h"
#include "base/philox.h"
#include "base/testing.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/rendezvous_client.h"
#include "trainer/comm/rendezvous_wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MINUTE (60 * USEC_PER_SEC) /* for what takes no time */

static uint64_t in(uint64_t usec) { return clock_boottime_usec() + usec; }

static Rendezvous *open_store(int world_size)
{
    Error err = ERROR_INIT;
    Rendezvous *rendezvous = NULL;
    assert_int_equal(rendezvous_new("127.0.0.1", world_size, &rendezvous, &err), 0);
    return rendezvous;
}

static void assert_store_works(Rendezvous *rendezvous, const char *key)
{
    Error err = ERROR_INIT;
    char value[16];
    size_t n = 0;
    assert_int_equal(rendezvous_set(rendezvous_address(rendezvous), key, "abc", 3, in(MINUTE),
                                    &err),
                     0);
    assert_int_equal(rendezvous_get(rendezvous_address(rendezvous), key, value, sizeof(value), &n,
                                    in(MINUTE), &err),
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
    assert_int_equal(rendezvous_set(address, "big", big, RENDEZVOUS_VALUE_MAX, deadline, &err), 0);
    assert_int_equal(rendezvous_get(address, "big", back, RENDEZVOUS_VALUE_MAX, &n, deadline, &err),
                     0);
    assert_int_equal(n, RENDEZVOUS_VALUE_MAX);
    assert_memory_equal(big, back, RENDEZVOUS_VALUE_MAX);
    assert_int_equal(rendezvous_set(address, "empty", big, 0, deadline, &err), 0);
    assert_int_equal(rendezvous_get(address, "empty", back, 1, &n, deadline, &err), 0);
    assert_int_equal(n, 0);

    /* Too large for the asker; set once; too large for the store. */
    assert_int_equal(rendezvous_get(address, "big", back, 10, &n, deadline, &err), -EPROTO);
    assert_int_equal(rendezvous_set(address, "big", big, RENDEZVOUS_VALUE_MAX, deadline, &err), 0);
    assert_int_equal(rendezvous_set(address, "big", "x", 1, deadline, &err), -EEXIST);
    assert_non_null(strstr(err.text, "setting big: File exists"));
    assert_non_null(strstr(err.text, address));
    assert_int_equal(rendezvous_set(address, "c", big, RENDEZVOUS_VALUE_MAX + 1, deadline, &err),
                     -EINVAL);
    assert_int_equal(rendezvous_set("nonsense", "c", big, 1, deadline, &err), -EINVAL);
}

static void *set_later(void *arg)
{
    Error err = ERROR_INIT;
    usleep(30000); /* so that the get most likely waits; the test holds either way */
    assert(rendezvous_set(arg, "later", "x", 1, in(MINUTE), &err) == 0);
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
    assert_int_equal(rendezvous_get(address, "never", value, sizeof(value), &n, in(200000), &err),
                     -ETIMEDOUT);
    assert_in_range(clock_boottime_usec() - t, 190000, 20 * USEC_PER_SEC);
    assert_non_null(strstr(err.text, "waiting for never"));

    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_later, (void *)address), 0);
    assert_int_equal(rendezvous_get(address, "later", value, sizeof(value), &n, in(MINUTE), &err),
                     0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(n, 1);
}

static int dial(const Rendezvous *store)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)atoi(strrchr(rendezvous_address(store), ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

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

static void malformed_requests_are_dropped(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(2);
    const uint32_t magic = RENDEZVOUS_MAGIC;
    const RendezvousRequest bad[] = {
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
    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        int fd = dial(store);
        assert_int_equal(send(fd, &bad[i], sizeof(bad[i]), MSG_NOSIGNAL), sizeof(bad[i]));
        RendezvousAnswer answer;
        assert_int_equal(recv(fd, &answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
        assert_int_equal(answer.status, EINVAL);
        assert_closed(fd, 60000);
        (void)close(fd);
    }
    for (int i = 0; i < 200; i++) { /* noise of any length, abandoned */
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

static void idle_connections_neither_block_nor_stay(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(1);
    enum { IDLE = 4 * 1 + 64 }; /* all that the store takes at a time */
    int fds[IDLE];
    for (size_t i = 0; i < IDLE; i++)
        fds[i] = dial(store);
    /* The next caller waits in the backlog until the idle ones are thrown out, after 5 s. */
    Error err = ERROR_INIT;
    uint64_t t = clock_boottime_usec();
    assert_int_equal(rendezvous_set(rendezvous_address(store), "a", "b", 1, in(MINUTE), &err), 0);
    assert_true(clock_boottime_usec() - t < 30 * USEC_PER_SEC);
    for (size_t i = 0; i < IDLE; i++) {
        assert_closed(fds[i], 60000);
        (void)close(fds[i]);
    }
    assert_store_works(store, "c");
}

static void the_store_is_bounded(void **state)
{
    (void)state;
    _cleanup_(rendezvous_freep) Rendezvous *store = open_store(1);
    Error err = ERROR_INIT;
    int r = 0, n = 0;
    for (; n < 5000 && r == 0; n++) {
        char key[32];
        (void)snprintf(key, sizeof(key), "key/%d", n);
        r = rendezvous_set(rendezvous_address(store), key, "v", 1, in(MINUTE), &err);
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
    assert_int_equal(rendezvous_set(address, "a", "b", 1, in(MINUTE), &err), -ECONNREFUSED);
    assert_null(store);

    Rendezvous *nowhere = NULL;
    assert_true(rendezvous_new("192.0.2.1", 1, &nowhere, &err) < 0); /* not our address */
    assert_non_null(strstr(err.text, "192.0.2.1"));
    assert_null(nowhere);
}

static void *bring_up_later(void *arg)
{
    (void)arg;
    usleep(300000); /* so that the first try most likely fails; the test holds either way */
    assert(system("ip address add 198.51.100.1/32 dev lo") == 0);
    return NULL;
}

/* In a network of the test's own: there is no way to the address at first. */
static void a_host_that_cannot_be_reached_yet_is_waited_for(void **state)
{
    (void)state;
    _cleanup_fd_ int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    assert_true(home >= 0);
    if (unshare(CLONE_NEWNET) < 0)
        skip(); /* only root may */
    assert_int_equal(system("ip link set lo up"), 0);
    Error err = ERROR_INIT;
    Rendezvous *store = NULL;
    char address[64];
    assert_int_equal(rendezvous_new("0.0.0.0", 1, &store, &err), 0);
    (void)snprintf(address, sizeof(address), "198.51.100.1%s",
                   strrchr(rendezvous_address(store), ':'));
    assert_int_equal(rendezvous_set(address, "a", "b", 1, in(300000), &err), -ENETUNREACH);

    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, bring_up_later, NULL), 0);
    if (rendezvous_set(address, "a", "b", 1, in(MINUTE), &err) < 0)
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
        cmocka_unit_test(idle_connections_neither_block_nor_stay),
        cmocka_unit_test(the_store_is_bounded),
        cmocka_unit_test(nobody_at_the_address_is_an_error_at_once),
        cmocka_unit_test(a_host_that_cannot_be_reached_yet_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
