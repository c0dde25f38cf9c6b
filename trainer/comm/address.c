/* SPDX-License-Identifier: Apache-2.0 */
/* address.c - see address.h. */

#include "trainer/comm/address.h"

#include <string.h>
#include <sys/socket.h>

int address_listen(const char *host, int backlog, int *ret_fd, char ret[ADDRESS_MAX], Error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int e = getaddrinfo(host, "0", &hints, &list);
    if (e != 0)
        return error_set(err, -EINVAL, "listening at \"%s\": %s", host, gai_strerror(e));
    struct sockaddr_storage bound;
    socklen_t n = sizeof(bound);
    int r = 0;
    _cleanup_fd_ int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, list->ai_addr, list->ai_addrlen) < 0 || listen(fd, backlog) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &n) < 0)
        r = error_errno(err, -errno, "listening at %s", host);
    freeaddrinfo(list);
    if (r < 0)
        return r;

    char name[ADDRESS_MAX - NI_MAXSERV - 4], port[NI_MAXSERV];
    e = getnameinfo((struct sockaddr *)&bound, n, name, sizeof(name), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV);
    if (e != 0)
        return error_set(err, -EIO, "listening at %s: %s", host, gai_strerror(e));
    (void)snprintf(ret, ADDRESS_MAX, strchr(name, ':') ? "[%s]:%s" : "%s:%s", name, port);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int address_resolve(const char *address, bool numeric, struct addrinfo **ret, Error *err)
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
        return error_set(err, -EINVAL, "\"%.200s\" is not host:port", address);
    memcpy(host, begin, n);
    host[n] = '\0';

    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (numeric ? AI_NUMERICHOST : 0)};
    int e = getaddrinfo(host, colon + 1, &hints, ret);
    return e == 0 ? 0 : error_set(err, -EINVAL, "%.200s: %s", address, gai_strerror(e));
}

int address_dial(const struct addrinfo *to, int *ret_fd)
{
    _cleanup_fd_ int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, to->ai_addr, to->ai_addrlen) < 0 && errno != EINPROGRESS)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}
