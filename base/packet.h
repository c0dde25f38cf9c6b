/* SPDX-License-Identifier: Apache-2.0 */
/* packet.h - receives packets from a Unix socket (SOCK_SEQPACKET) whose peer may end at any time.
 *
 * recv() may report that the peer has ended although packets of the peer are still unread. It fails with one ECONNRESET
 * if the peer left packets unread. It returns an end of file if the last packet and the end arrive between the kernel's
 * check for packets and its check for the end. Nothing can be sent after the end, so a second recv() gives the true
 * result. A receiver that stops at the first sign of the end loses the peer's last words.
 *
 * Ownership: the caller's buffer. Units: bytes. Threads: any.
 * Errors:    -errno.
 */
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

/* Returns the packet's length, which is greater than n_bytes if the packet was cut; 0: the peer has ended, and all its
 * packets were received; -EAGAIN: no packet waits. The call does not wait. Packets must not be empty. */
ssize_t packet_receive(int fd, void *packet, size_t n_bytes);
/* As packet_receive(), into the parts of `head` and with what was sent beside the packet; descriptors are CLOEXEC. */
ssize_t packet_receive_message(int fd, struct msghdr *head);
