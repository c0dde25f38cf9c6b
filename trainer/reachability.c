/* SPDX-License-Identifier: Apache-2.0 */
/* reachability.c - see reachability.h. */
#include "trainer/reachability.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

/* The probed ports are among Linux's ephemeral ports. */
enum { WAIT_MSEC = 1000, NAMES_MSEC = 2000, PORT_FIRST = 32768, N_PORTS = 28000 };

/* Begins to connect to a random port of the address. Returns the connection's descriptor, or -errno. */
static int begin(const char *address)
{
    uint16_t port = 0;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    (void)getrandom(&port, sizeof(port), 0); /* any port is good */
    if (getaddrinfo(address, NULL, &hints, &found) != 0)
        return -EADDRNOTAVAIL;
    port = htons((uint16_t)(PORT_FIRST + port % N_PORTS));
    if (found->ai_family == AF_INET)
        ((struct sockaddr_in *)(void *)found->ai_addr)->sin_port = port;
    else
        ((struct sockaddr_in6 *)(void *)found->ai_addr)->sin6_port = port;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r = fd;
    if (fd < 0 || (connect(fd, found->ai_addr, found->ai_addrlen) < 0 && errno != EINPROGRESS))
        r = -errno;
    freeaddrinfo(found);
    if (r < 0 && fd >= 0)
        (void)fd_close(fd);
    return r;
}

static void end(Reach *peer, struct pollfd *p, int r, uint64_t began)
{
    peer->r = r == -ECONNREFUSED ? 0 : r;
    peer->took_usec = clock_boottime_usec() - began;
    p->fd = fd_close(p->fd);
}

static int error_of(int fd)
{
    int error = 0;
    socklen_t n = sizeof(error);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 ? -errno : -error;
}

void reachability_check(Reach *peers, size_t n)
{
    struct pollfd fds[REACH_MAX];
    uint64_t began[REACH_MAX];
    const uint64_t names_until = clock_boottime_usec() + NAMES_MSEC * USEC_PER_MSEC;
    assert(n <= REACH_MAX);
    /* The resolver's default timeouts are too long. */
    (void)setenv("RES_OPTIONS", "timeout:1 attempts:1", 1);
    for (size_t i = 0; i < n; i++) {
        began[i] = clock_boottime_usec();
        const int fd = began[i] < names_until ? begin(peers[i].address) : -EADDRNOTAVAIL;
        fds[i] = (struct pollfd){.fd = fd, .events = POLLOUT};
        if (fds[i].fd < 0)
            end(&peers[i], &fds[i], fds[i].fd, began[i]);
    }
    const uint64_t until = clock_boottime_usec() + WAIT_MSEC * USEC_PER_MSEC;
    for (size_t n_left = n; n_left > 0;) {
        const uint64_t now = clock_boottime_usec();
        if (now >= until || poll(fds, n, (int)((until - now) / USEC_PER_MSEC) + 1) < 0)
            break;
        n_left = 0;
        for (size_t i = 0; i < n; i++) {
            if (fds[i].fd >= 0 && fds[i].revents)
                end(&peers[i], &fds[i], error_of(fds[i].fd), began[i]);
            n_left += fds[i].fd >= 0;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (fds[i].fd >= 0)
            end(&peers[i], &fds[i], -ETIMEDOUT, began[i]);
}
