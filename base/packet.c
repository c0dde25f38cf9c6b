/* SPDX-License-Identifier: Apache-2.0 */
/* packet.c - see packet.h. */
#include "base/packet.h"

#include <errno.h>
#include <stdbool.h>

ssize_t packet_receive_message(int fd, struct msghdr *head)
{
    const struct msghdr asked = *head; /* recvmsg() changes it */
    for (bool ended = false;;) {
        *head = asked;
        const ssize_t n = recvmsg(fd, head, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
        if (n > 0 || (n == 0 && ended))
            return n;
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || (errno == ECONNRESET && !ended))
            ended = true;
        else if (errno == EAGAIN && ended)
            return 0;
        else
            return -errno;
    }
}

ssize_t packet_receive(int fd, void *packet, size_t n_bytes)
{
    struct iovec part = {.iov_base = packet, .iov_len = n_bytes};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    return packet_receive_message(fd, &head);
}
