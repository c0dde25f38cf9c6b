/* SPDX-License-Identifier: Apache-2.0 */
/* test-packet.c - a peer's last packets are received, however it ended. */
#include "base/test/testing.h"

#include "base/cleanup.h"
#include "base/packet.h"

#include <string.h>
#include <sys/socket.h>

static int pair[2];
static char packet[16];

static int begin(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int end(void **state)
{
    (void)state;
    pair[0] = fd_close(pair[0]);
    pair[1] = fd_close(pair[1]);
    return 0;
}

static void put(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

static void get(const char *text)
{
    assert_int_equal(packet_receive(pair[0], packet, sizeof(packet)), (ssize_t)strlen(text));
    assert_memory_equal(packet, text, strlen(text));
}

static void packets_come_in_order(void **state)
{
    (void)state;
    assert_int_equal(packet_receive(pair[0], packet, sizeof(packet)), -EAGAIN);
    put(pair[1], "one");
    put(pair[1], "two");
    get("one");
    get("two");
    assert_int_equal(packet_receive(pair[0], packet, sizeof(packet)), -EAGAIN);
    put(pair[1], "a packet of 23 letters..");
    assert_int_equal(packet_receive(pair[0], packet, sizeof(packet)), 24);
    pair[1] = fd_close(pair[1]);
    assert_int_equal(packet_receive(pair[0], packet, sizeof(packet)), 0);
    assert_int_equal(packet_receive(pair[0], packet, sizeof(packet)), 0);
}

/* The kernel then reports a reset connection before the packets. */
static void a_peer_that_leaves_packets_unread_is_heard_to_the_end(void **state)
{
    (void)state;
    put(pair[0], "never read");
    put(pair[1], "one");
    put(pair[1], "two");
    pair[1] = fd_close(pair[1]);
    get("one");
    get("two");
    assert_int_equal(packet_receive(pair[0], packet, sizeof(packet)), 0);
}

static void only_a_reset_is_an_end(void **state)
{
    (void)state;
    put(pair[0], "never read");
    pair[1] = fd_close(pair[1]);
    assert_int_equal(packet_receive(pair[0], packet, sizeof(packet)), 0);
    assert_int_equal(packet_receive(-1, packet, sizeof(packet)), -EBADF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(packets_come_in_order, begin, end),
        cmocka_unit_test_setup_teardown(a_peer_that_leaves_packets_unread_is_heard_to_the_end,
                                        begin, end),
        cmocka_unit_test_setup_teardown(only_a_reset_is_an_end, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
