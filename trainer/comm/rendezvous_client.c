/* rendezvous_client.c - see rendezvous_client.h. */

#include "trainer/comm/rendezvous_client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "trainer/comm/rendezvous_wire.h"

#include <endian.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { AGAIN_MSEC = 100 };

/* "host:port" or "[host]:port". */
static int address_resolve(const char *address, struct addrinfo **ret, Error *err)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    const char *begin = address;
    if (n >= 2 && address[0] == '[' && address[n - 1] == ']') {
        begin++;
        n -= 2;
    }
    if (n == 0 || n >= sizeof(host))
        return error_set(err, -EINVAL, "rendezvous store \"%s\": not host:port", address);
    memcpy(host, begin, n);
    host[n] = '\0';

    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int e = getaddrinfo(host, colon + 1, &hints, ret);
    if (e != 0)
        return error_set(err, -EINVAL, "rendezvous store %s: %s", address, gai_strerror(e));
    return 0;
}

static int wait_for(int fd, short events, uint64_t deadline_usec)
{
    for (;;) {
        uint64_t now = clock_boottime_usec();
        if (now >= deadline_usec)
            return -ETIMEDOUT;
        uint64_t msec = MIN((deadline_usec - now) / USEC_PER_MSEC + 1, UINT64_C(60000));
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, (int)msec);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
    }
}

static int dial(const struct addrinfo *address, uint64_t deadline_usec, int *ret)
{
    _cleanup_fd_ int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        int r = wait_for(fd, POLLOUT, deadline_usec);
        if (r < 0)
            return r;
        int e = 0;
        socklen_t n = sizeof(e);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
            return -errno;
        if (e != 0)
            return -e;
    }
    *ret = TAKE_FD(fd);
    return 0;
}

/* A host or link that has just come back is unreachable for some seconds, as long as the kernel waits for an answer
 * to what it asked before: that is waited for. */
static int dial_any(const struct addrinfo *list, uint64_t deadline_usec, int *ret)
{
    for (;;) {
        int r = -EADDRNOTAVAIL;
        for (const struct addrinfo *a = list; a && r < 0 && r != -ETIMEDOUT; a = a->ai_next)
            r = dial(a, deadline_usec, ret);
        bool may_come = r == -EHOSTUNREACH || r == -ENETUNREACH;
        if (!may_come || clock_boottime_usec() + AGAIN_MSEC * USEC_PER_MSEC >= deadline_usec)
            return r;
        (void)poll(NULL, 0, AGAIN_MSEC); /* an early end only tries again */
    }
}

static int send_all(int fd, const void *data, size_t n_bytes, uint64_t deadline_usec)
{
    const char *p = data;
    while (n_bytes > 0) {
        ssize_t n = send(fd, p, n_bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            int r = wait_for(fd, POLLOUT, deadline_usec);
            if (r < 0)
                return r;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

static int receive_all(int fd, void *data, size_t n_bytes, uint64_t deadline_usec)
{
    char *p = data;
    while (n_bytes > 0) {
        ssize_t n = recv(fd, p, n_bytes, 0);
        if (n < 0 && errno == EAGAIN) {
            int r = wait_for(fd, POLLIN, deadline_usec);
            if (r < 0)
                return r;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ECONNRESET;
        p += n;
        n_bytes -= (size_t)n;
    }
    return 0;
}

/* One request and its answer. value: what SET gives, or where GET's goes. */
static int ask(int fd, uint32_t operation, uint32_t argument, const char *key, void *value,
               size_t value_bytes, size_t *ret_bytes, uint64_t deadline_usec)
{
    size_t key_bytes = strlen(key);
    RendezvousRequest request = {
        .magic = htole32(RENDEZVOUS_MAGIC),
        .operation = htole32(operation),
        .key_bytes = htole32((uint32_t)key_bytes),
        .argument = htole32(argument),
    };
    int r = send_all(fd, &request, sizeof(request), deadline_usec);
    if (r >= 0)
        r = send_all(fd, key, key_bytes, deadline_usec);
    if (r >= 0 && operation == RENDEZVOUS_SET)
        r = send_all(fd, value, value_bytes, deadline_usec);
    RendezvousAnswer answer;
    if (r >= 0)
        r = receive_all(fd, &answer, sizeof(answer), deadline_usec);
    if (r < 0)
        return r;

    uint32_t status = le32toh(answer.status), n = le32toh(answer.value_bytes);
    if (status > 4095 || n > (operation == RENDEZVOUS_GET ? value_bytes : 0))
        return -EPROTO;
    if (status != 0)
        return -(int)status;
    if (operation == RENDEZVOUS_GET) {
        r = receive_all(fd, value, n, deadline_usec);
        if (r < 0)
            return r;
        *ret_bytes = n;
    }
    return 0;
}

static int dial_and_ask(const char *address, uint32_t operation, uint32_t argument, const char *key,
                        void *value, size_t value_bytes, size_t *ret_bytes, uint64_t deadline_usec,
                        Error *err)
{
    const char *verb = operation == RENDEZVOUS_SET ? "setting" : "waiting for";
    size_t key_bytes = strlen(key);
    if (key_bytes == 0 || key_bytes > RENDEZVOUS_KEY_MAX)
        return error_set(err, -EINVAL, "rendezvous store %s: key of %zu bytes", address, key_bytes);
    if (operation == RENDEZVOUS_SET && value_bytes > RENDEZVOUS_VALUE_MAX)
        return error_set(err, -EINVAL, "rendezvous store %s: %s %s: value of %zu bytes", address,
                         verb, key, value_bytes);

    struct addrinfo *list = NULL;
    int r = address_resolve(address, &list, err);
    if (r < 0)
        return r;
    _cleanup_fd_ int fd = -EBADF;
    r = dial_any(list, deadline_usec, &fd);
    freeaddrinfo(list);
    if (r >= 0)
        r = ask(fd, operation, argument, key, value, value_bytes, ret_bytes, deadline_usec);
    if (r < 0)
        return error_errno(err, r, "rendezvous store %s: %s %s", address, verb, key);
    return 0;
}

int rendezvous_set(const char *address, const char *key, const void *value, size_t n_bytes,
                   uint64_t deadline_usec, Error *err)
{
    return dial_and_ask(address, RENDEZVOUS_SET, (uint32_t)n_bytes, key, (void *)value, n_bytes,
                        NULL, deadline_usec, err);
}

int rendezvous_get(const char *address, const char *key, void *ret, size_t max_bytes,
                   size_t *ret_bytes, uint64_t deadline_usec, Error *err)
{
    uint64_t now = clock_boottime_usec();
    uint64_t msec = now < deadline_usec ? (deadline_usec - now) / USEC_PER_MSEC : 0;
    return dial_and_ask(address, RENDEZVOUS_GET,
                        (uint32_t)MIN(msec, (uint64_t)RENDEZVOUS_WAIT_MSEC_MAX), key, ret,
                        max_bytes, ret_bytes, deadline_usec, err);
}
