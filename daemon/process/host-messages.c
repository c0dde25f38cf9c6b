/* SPDX-License-Identifier: Apache-2.0 */
/* host-messages.c - see host-messages.h. */
#include "daemon/process/host-messages.h"

#include "base/cleanup.h"
#include "base/packet.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { REQUEST_MAX = 65536, MESSAGE_MAX = 512, FDS_MAX = 8 };

static const char request_word[] = "request 1"; /* the version of these messages */

static const char *const words[] = {[HOST_STARTED] = "started",
                                    [HOST_ENDED] = "ended",
                                    [HOST_CLEAR] = "clear",
                                    [HOST_KILL] = "kill"};

int host_connect(const char *path, int *ret_fd, Error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int on = 1;
    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(err, -ENAMETOOLONG, "%s: too long", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    _cleanup_fd_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return error_errno(err, -errno, "%s", path);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* ---- packets ---- */

typedef struct Packet {
    char *bytes;
    size_t n_max, n; /* n may be greater than n_max: the packet was cut */
    int fds[FDS_MAX];
    size_t n_fds;
    uid_t user;
} Packet;

static void take_control(struct msghdr *head, Packet *ret)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(head); c; c = CMSG_NXTHDR(head, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_RIGHTS) {
            const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < n; i++) {
                int fd;
                memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
                if (ret->n_fds < FDS_MAX)
                    ret->fds[ret->n_fds++] = fd;
                else
                    (void)fd_close(fd);
            }
        } else if (c->cmsg_type == SCM_CREDENTIALS) {
            struct ucred from;
            memcpy(&from, CMSG_DATA(c), sizeof(from));
            ret->user = from.uid;
        }
    }
}

static int receive(int fd, Packet *ret)
{
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = ret->bytes, .iov_len = ret->n_max};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = sizeof(control.bytes)};
    ret->n_fds = 0;
    ret->user = (uid_t)-1;
    const ssize_t n = packet_receive_message(fd, &head);
    if (n <= 0)
        return n == 0 ? -EPIPE : (int)n;
    take_control(&head, ret);
    ret->n = (size_t)n;
    return 0;
}

static void close_all(Packet *packet)
{
    while (packet->n_fds > 0)
        (void)fd_close(packet->fds[--packet->n_fds]);
}

/* ---- the request ---- */

int host_send_request(int fd, char *const *environment, int channel, int output, int program)
{
    _cleanup_free_ char *text = malloc(REQUEST_MAX);
    size_t n = 0, n_variables = 0;
    if (!text)
        return -ENOMEM;
    assert(channel >= 0 && output >= 0);
    const char *word = request_word;
    for (char *const *next = environment; word; word = *next++) {
        const size_t size = strlen(word) + 1;
        if (size > REQUEST_MAX - n || n_variables++ > HOST_ENVIRONMENT_MAX)
            return -E2BIG;
        memcpy(text + n, word, size);
        n += size;
    }
    const int fds[] = {channel, output, program};
    const size_t n_bytes = sizeof(int) * (program > 0 ? 3 : 2);
    union {
        char bytes[CMSG_SPACE(sizeof(fds))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = text, .iov_len = n};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = control.bytes,
                          .msg_controllen = CMSG_SPACE(n_bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&head);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(n_bytes);
    memcpy(CMSG_DATA(c), fds, n_bytes);
    return sendmsg(fd, &head, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

/* Splits the strings that a request holds, each with its NUL. */
static int split(HostRequest *request, size_t n)
{
    size_t n_variables = 0;
    if (n == 0 || request->text[n - 1] != '\0' || strcmp(request->text, request_word) != 0)
        return -EBADMSG;
    for (size_t at = sizeof(request_word); at < n; at += strlen(request->text + at) + 1) {
        if (n_variables == HOST_ENVIRONMENT_MAX)
            return -EBADMSG;
        request->environment[n_variables++] = request->text + at;
    }
    request->environment[n_variables] = NULL;
    return 0;
}

int host_receive_request(int fd, HostRequest *ret)
{
    *ret = (HostRequest){.channel = -EBADF,
                         .output = -EBADF,
                         .program = -EBADF,
                         .text = malloc(REQUEST_MAX)};
    if (!ret->text)
        return -ENOMEM;
    Packet packet = {.bytes = ret->text, .n_max = REQUEST_MAX};
    int r = receive(fd, &packet);
    if (r == 0)
        r = packet.n > REQUEST_MAX || packet.n_fds < 2 || packet.n_fds > 3 ? -EBADMSG
                                                                           : split(ret, packet.n);
    if (r < 0) {
        close_all(&packet);
        host_request_clear(ret);
        return r;
    }
    ret->channel = packet.fds[0];
    ret->output = packet.fds[1];
    ret->program = packet.n_fds == 3 ? packet.fds[2] : -EBADF;
    return 0;
}

void host_request_clear(HostRequest *request)
{
    if (!request->text)
        return;
    request->channel = fd_close(request->channel);
    request->output = fd_close(request->output);
    request->program = fd_close(request->program);
    free(request->text);
    request->text = NULL;
}

/* ---- the other messages ---- */

int host_send(int fd, const HostMessage *message)
{
    char text[MESSAGE_MAX];
    const int n = snprintf(text, sizeof(text), "%s %d %d %d %s", words[message->type], message->pid,
                           message->code, message->status, message->cgroup);
    return send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int parse(const char *text, HostMessage *ret)
{
    char word[16];
    int at = 0;
    *ret = (HostMessage){0};
    if (sscanf(text, "%15s %d %d %d %n", word, &ret->pid, &ret->code, &ret->status, &at) < 4 ||
        at == 0)
        return -EBADMSG;
    (void)snprintf(ret->cgroup, sizeof(ret->cgroup), "%s", text + at);
    for (size_t i = 0; i < ELEMENTSOF(words); i++)
        if (strcmp(word, words[i]) == 0) {
            ret->type = (HostMessageType)i;
            return 0;
        }
    return -EBADMSG;
}

int host_receive(int fd, HostMessage *ret, uid_t *ret_user)
{
    char text[MESSAGE_MAX + 1];
    Packet packet = {.bytes = text, .n_max = MESSAGE_MAX};
    const int r = receive(fd, &packet);
    if (r < 0)
        return r;
    close_all(&packet); /* no message but a request has any */
    *ret_user = packet.user;
    if (packet.n > MESSAGE_MAX)
        return -EBADMSG;
    text[packet.n] = '\0';
    return strlen(text) == packet.n ? parse(text, ret) : -EBADMSG;
}
