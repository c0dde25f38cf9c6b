/* SPDX-License-Identifier: Apache-2.0 */
/* channel-socket.c - see channel.h: sends and receives messages. These functions are in their own file, so that a
 * program whose trainers are not processes (the simulator) can define its own. */
#include "protocol/channel.h"

#include "base/packet.h"
#include "base/text/secret.h"

#include <sys/socket.h>

int channel_send(int fd, const ChannelMessage *message, Error *err)
{
    _cleanup_secret_ char *packet = NULL;
    size_t n;
    int r = channel_encode(message, &packet, &n, err);
    if (r < 0)
        return r;
    for (;;) {
        if (send(fd, packet, n, MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno == EINTR)
            continue;
        r = errno == ECONNRESET ? -EPIPE : -errno;
        return error_errno(err, r, "cannot send %s", channel_type_name(message->type));
    }
}

int channel_receive(int fd, ChannelMessage *ret, Error *err)
{
    _cleanup_secret_ char *packet = malloc(CHANNEL_PACKET_MAX);
    if (!packet)
        return error_set(err, -ENOMEM, "out of memory");

    const ssize_t n = packet_receive(fd, packet, CHANNEL_PACKET_MAX);
    if (n < 0)
        return error_errno(err, (int)n, "cannot receive");
    if (n == 0)
        return error_set(err, -EPIPE, "the other side closed the channel");
    if (n > CHANNEL_PACKET_MAX)
        return error_set(err, -EBADMSG, "a packet of %zd bytes is longer than %d", n,
                         CHANNEL_PACKET_MAX);
    return channel_decode(packet, (size_t)n, ret, err);
}
