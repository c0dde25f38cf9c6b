/* SPDX-License-Identifier: Apache-2.0 */
/* testing-dial.h - for tests of stores and connectors: the world's key, a deadline, and a plain connection.
 *
 * Units: microseconds. Errors: fail the test. Threads: any.
 * Ownership: dial() gives the caller a descriptor.
 */
#pragma once

#include "base/clock.h"
#include "base/test/testing.h"
#include "trainer/comm/address.h"
#include "trainer/comm/comm.h"

#include <netdb.h>
#include <sys/socket.h>

#define MINUTE (60 * USEC_PER_SEC)

static const uint8_t secret[COMM_SECRET_BYTES] = {1, 2, 3};
static const CommKey key = {.generation = 7, .secret = secret};

static inline uint64_t in(uint64_t usec) { return clock_boottime_usec() + usec; }

static inline int dial(const char *address)
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

static inline bool has_ended(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}
