/* SPDX-License-Identifier: Apache-2.0 */
/* report-socket.h - SDTRAIN_SOCKET: the socket at which a program reports to its runner, and receives requests.
 *
 * The processes of a program may connect, REPORTERS_MAX at a time; of more, the oldest connection is closed. A
 * connection that does not receive what it is sent is closed.
 *
 * Ownership: report_socket_open() fills a ReportSocket, a value; report_socket_close() accepts a zeroed one.
 * Units:     none.
 * Errors:    -errno of socket() and bind().
 * Threads:   one.
 */
#pragma once

#include "base/error.h"

#include <poll.h>
#include <sys/types.h>

enum { REPORTERS_MAX = 16 };

typedef struct ReportSocket {
    bool is_open;
    char path[108]; /* the longest name of a socket, with its NUL */
    int listener;
    int of[REPORTERS_MAX]; /* connections, the oldest first */
    size_t n;
    uint64_t n_accepted; /* connections so far */
    int serving;         /* the connection of the packet that `take` has */
} ReportSocket;

/* Makes the socket, which only this user may connect to. */
int report_socket_open(const char *path, ReportSocket *ret, Error *err);
void report_socket_close(ReportSocket *s);

/* Fills in what to wait for: at most 1 + REPORTERS_MAX entries. Returns their number. */
size_t report_socket_poll(const ReportSocket *s, struct pollfd *ret);
/* Accepts new connections and receives packets, at most PACKETS_A_CALL of each connection. `take` gets each packet.
 * Returns whether a connection may have more. */
bool report_socket_serve(ReportSocket *s,
                         void (*take)(void *userdata, const char *packet, size_t n),
                         void *userdata);
/* Returns the process that made the connection of the packet that `take` has; 0: unknown. */
pid_t report_socket_peer(const ReportSocket *s);
/* Sends a text to all connections. */
void report_socket_send(ReportSocket *s, const char *text);
