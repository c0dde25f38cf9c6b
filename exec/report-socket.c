/* SPDX-License-Identifier: Apache-2.0 */
/* report-socket.c - see report-socket.h. */
#include "exec/report-socket.h"

#include "base/cleanup.h"
#include "base/packet.h"
#include "exec/words.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { PACKETS_A_CALL = 64 };

int report_socket_open(const char *path, ReportSocket *ret, Error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *ret = (ReportSocket){.listener = -EBADF};
    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, -ENAMETOOLONG, "%s: a socket's path has at most %zu bytes", path,
                         sizeof(address.sun_path) - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    memcpy(ret->path, path, strlen(path) + 1);
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_errno(err, -errno, "cannot make a socket");
    (void)unlink(path); /* of an earlier runner */
    const mode_t mask = umask(0077);
    int r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
    (void)umask(mask);
    if (r == 0 && listen(fd, REPORTERS_MAX) < 0)
        r = -errno;
    if (r < 0)
        return error_errno(err, r, "%s", path);
    ret->listener = TAKE_FD(fd);
    ret->is_open = true;
    return 0;
}

static void drop(ReportSocket *s, size_t i)
{
    assert(i < s->n);
    (void)fd_close(s->of[i]);
    memmove(&s->of[i], &s->of[i + 1], (s->n - i - 1) * sizeof(s->of[0]));
    s->n--;
}

void report_socket_close(ReportSocket *s)
{
    if (!s->is_open)
        return;
    while (s->n > 0)
        drop(s, s->n - 1);
    s->listener = fd_close(s->listener);
    (void)unlink(s->path);
    s->is_open = false;
}

size_t report_socket_poll(const ReportSocket *s, struct pollfd *ret)
{
    if (!s->is_open)
        return 0;
    ret[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    for (size_t i = 0; i < s->n; i++)
        ret[i + 1] = (struct pollfd){.fd = s->of[i], .events = POLLIN};
    return s->n + 1;
}

static void accept_all(ReportSocket *s)
{
    for (;;) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return; /* there is none, or no descriptor is free: the next call tries again */
        if (s->n == REPORTERS_MAX)
            drop(s, 0);
        s->of[s->n++] = fd;
        s->n_accepted++;
    }
}

bool report_socket_serve(ReportSocket *s,
                         void (*take)(void *userdata, const char *packet, size_t n), void *userdata)
{
    char packet[EXEC_PACKET_MAX + 1];
    bool has_more = false;
    if (!s->is_open)
        return false;
    accept_all(s);
    for (size_t i = 0; i < s->n;) {
        ssize_t n = 1;
        int left = PACKETS_A_CALL;
        while (left > 0 && (n = packet_receive(s->of[i], packet, sizeof(packet))) > 0) {
            s->serving = s->of[i];
            take(userdata, packet, (size_t)n);
            left--;
        }
        has_more |= left == 0;
        if (n > 0 || n == -EAGAIN)
            i++;
        else
            drop(s, i); /* the other end has closed it */
    }
    return has_more;
}

pid_t report_socket_peer(const ReportSocket *s)
{
    struct ucred peer = {0};
    socklen_t size = sizeof(peer);
    return getsockopt(s->serving, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

/* A connection that fails is shut down here, and dropped once all that it had sent has been received. */
void report_socket_send(ReportSocket *s, const char *text)
{
    for (size_t i = 0; i < s->n; i++)
        if (send(s->of[i], text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            (void)shutdown(s->of[i], SHUT_RDWR);
}
