/* SPDX-License-Identifier: Apache-2.0 */
/* host-messages.h - messages between sdtraind and the host of a slot: a process of another user, which systemd starts
 * in a unit of its own for each connection, and which starts the slot's program there.
 *
 *     sdtraind                                  host (host.h)
 *       request: environment, descriptors ──────► starts the program
 *       ◄────────────────────────────── started   its pid, and the host's cgroup
 *       kill ───────────────────────────────────► SIGKILL to all processes of the program
 *       ◄──────────────────────────────── ended   how the program ended
 *       ◄──────────────────────────────── clear   none of its processes lives
 *
 * The end of the connection ends the program, whichever side has ended.
 *
 * Ownership: the caller owns descriptors; host_request_clear() closes and frees what host_receive_request() filled in.
 * Units:     none.
 * Errors:    -EAGAIN: there is no message now; -EPIPE: the other side has ended; -EBADMSG: a message that this version
 *            does not send; -errno of a system call.
 * Threads:   any; no call waits.
 */
#pragma once

#include "base/error.h"

#include <sys/types.h>

enum { HOST_ENVIRONMENT_MAX = 256, HOST_CGROUP_MAX = 400 };

typedef struct HostRequest {
    char *text; /* holds the strings of `environment` */
    char *environment[HOST_ENVIRONMENT_MAX + 1];
    int channel, output; /* descriptors */
    int program; /* open fd of the program, so that an upgrade does not change it; negative: none */
} HostRequest;

typedef enum HostMessageType {
    HOST_STARTED, /* pid, cgroup */
    HOST_ENDED,   /* code and status, as in siginfo_t */
    HOST_CLEAR,
    HOST_KILL,
} HostMessageType;

typedef struct HostMessage {
    HostMessageType type;
    int pid, code, status;
    char cgroup[HOST_CGROUP_MAX]; /* as in /proc/self/cgroup: "/system.slice/..."; "": not known */
} HostMessage;

/* Connects to the socket of the unit. *ret_fd does not block, and receives the sender's user with each message. */
int host_connect(const char *path, int *ret_fd, Error *err);

/* Sends the environment and the descriptors. program: 0 or negative: none. -E2BIG: more than HOST_ENVIRONMENT_MAX
 * variables, or 64 KiB. */
int host_send_request(int fd, char *const *environment, int channel, int output, int program);
int host_receive_request(int fd, HostRequest *ret);
void host_request_clear(HostRequest *request); /* accepts a zeroed one */

int host_send(int fd, const HostMessage *message);
/* *ret_user: the user whose process has sent the message; (uid_t)-1: not known. */
int host_receive(int fd, HostMessage *ret, uid_t *ret_user);
