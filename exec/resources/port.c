/* SPDX-License-Identifier: Apache-2.0 */
/* port.c - see port.h. */
#include "exec/resources/port.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

/* Binds any port of all addresses of the family. An IPv6 socket takes the port of IPv4, too. */
static int bind_any(int family, int *ret_fd, int *ret_port)
{
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    socklen_t n = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    const int yes = 1, no = 0;
    _cleanup_fd_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
        (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) < 0) ||
        bind(fd, (struct sockaddr *)&address, n) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) < 0)
        return -errno;
    *ret_port = ntohs(family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                         : ((struct sockaddr_in *)&address)->sin_port);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int exec_hold_port(int *ret_fd, int *ret_port, Error *err)
{
    int r = bind_any(AF_INET6, ret_fd, ret_port);
    if (r < 0) /* a machine without IPv6 */
        r = bind_any(AF_INET, ret_fd, ret_port);
    return r < 0 ? error_errno(err, r, "cannot hold a port for MASTER_PORT") : 0;
}

int exec_split_address(const char *address, char *ret_host, size_t size, int *ret_port)
{
    const char *colon = strrchr(address, ':');
    char *end;
    if (!colon || !isdigit((unsigned char)colon[1]))
        return -EINVAL;
    const long port = strtol(colon + 1, &end, 10);
    const char *host = address;
    size_t n = (size_t)(colon - address);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    }
    if (*end || port < 1 || port > 65535 || n == 0 || n >= size)
        return -EINVAL;
    memcpy(ret_host, host, n);
    ret_host[n] = '\0';
    *ret_port = (int)port;
    return 0;
}
