/* SPDX-License-Identifier: Apache-2.0 */
/* host-look.c - see host-look.h. */
#include "daemon/process/host-look.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/process/host-messages.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

typedef struct HostLook {
    const char *path;
    uid_t user;
    int host, output;
    size_t n;
    bool host_ended;
} HostLook;

static int receive_messages(HostLook *look, Error *err)
{
    HostMessage m;
    uid_t user;
    int r;
    while ((r = host_receive(look->host, &m, &user)) == 0)
        if (user != look->user)
            return error_set(err, -EPERM, "%s: its units run as user %lld instead of %lld",
                             look->path, (long long)user, (long long)look->user);
    look->host_ended = r != -EAGAIN;
    return 0;
}

/* Returns 1 at the end of the output. */
static int read_output(HostLook *look, char ret[HOST_LOOK_MAX], Error *err)
{
    for (;;) {
        char rest[256];
        assert(look->n < HOST_LOOK_MAX);
        const size_t room = HOST_LOOK_MAX - 1 - look->n;
        const ssize_t n = read(look->output, room > 0 ? ret + look->n : rest,
                               room > 0 ? room : sizeof(rest)); /* what has no room is dropped */
        if (n == 0)
            return 1;
        if (n < 0)
            return errno == EAGAIN ? 0 : error_errno(err, -errno, "%s", look->path);
        look->n += room > 0 ? (size_t)n : 0;
    }
}

static int receive_all(HostLook *look, char ret[HOST_LOOK_MAX], Error *err)
{
    const uint64_t end_usec = clock_boottime_usec() + HOST_LOOK_MSEC * USEC_PER_MSEC;
    for (;;) {
        int r = receive_messages(look, err);
        r = r < 0 ? r : read_output(look, ret, err);
        if (r != 0)
            return MIN(r, 0);
        const uint64_t now_usec = clock_boottime_usec();
        if (now_usec >= end_usec)
            return error_set(err, -ETIMEDOUT, "%s: the unit has not answered within %d s",
                             look->path, HOST_LOOK_MSEC / 1000);
        struct pollfd fds[] = {{.fd = look->output, .events = POLLIN},
                               {.fd = look->host_ended ? -1 : look->host, .events = POLLIN}};
        (void)poll(fds, 2, (int)((end_usec - now_usec) / USEC_PER_MSEC) + 1);
    }
}

int host_look(const char *path, uid_t user, char *const *environment, char ret[HOST_LOOK_MAX],
              Error *err)
{
    HostLook look = {.path = path, .user = user};
    int pair[2], out[2];
    _cleanup_fd_ int host = -EBADF;
    int r = host_connect(path, &host, err);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_errno(err, -errno, "cannot make a channel");
    _cleanup_fd_ int channel = pair[0];
    _cleanup_fd_ int other_end = pair[1];
    (void)channel; /* open until the unit has answered */
    if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0)
        return error_errno(err, -errno, "cannot make a pipe");
    _cleanup_fd_ int output = out[0];
    r = host_send_request(host, environment, other_end, out[1], 0);
    (void)fd_close(out[1]);
    if (r < 0)
        return error_errno(err, r, "%s: cannot send a request", path);
    look.host = host;
    look.output = output;
    r = receive_all(&look, ret, err);
    ret[r < 0 ? 0 : look.n] = '\0';
    if (r == 0 && look.n == 0)
        return error_set(err, -ENODATA,
                         "%s: the unit has ended without an answer: journalctl -u 'sdtrain-exec@*'",
                         path);
    return r;
}
