/* SPDX-License-Identifier: Apache-2.0 */
/* testing-clock.c - see testing-clock.h. */

#include "trainer/comm/test/testing-clock.h"

#include "base/clock.h"

#include <errno.h>
#include <sys/socket.h>

#define HOUR_USEC (3600 * USEC_PER_SEC)

uint64_t __real_clock_boottime_usec(void);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
ssize_t __real_recv(int fd, void *data, size_t n_bytes, int flags);
ssize_t __real_send(int fd, const void *data, size_t n_bytes, int flags);
uint64_t __wrap_clock_boottime_usec(void);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
ssize_t __wrap_recv(int fd, void *data, size_t n_bytes, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t n_bytes, int flags);

ClockHooks clock_hooks;
static ClockGate *_Atomic held_by;
static uint64_t held_usec; /* time at which the clock was stopped; written before held_by */
static _Thread_local bool is_late, before_words, found_nothing, after_word, after_pause;

void clock_hold(ClockGate *gate)
{
    held_usec = __real_clock_boottime_usec();
    atomic_store(&held_by, gate);
}

void clock_gate_pass(ClockGate *gate)
{
    if (atomic_fetch_sub(&gate->awaited, 1) == 1)
        atomic_store(&gate->opened_usec, __real_clock_boottime_usec());
}

void clock_be_late(void) { is_late = true; }

void clock_be_in_time(void)
{
    is_late = before_words = found_nothing = after_word = after_pause = false;
}

void be_late_after_a_pause(void) { after_pause = true; }

void stand_still_before_words(void) { before_words = true; }

void stand_still_after_word(void) { after_word = true; }

uint64_t __wrap_clock_boottime_usec(void)
{
    if (clock_hooks.before_reading)
        clock_hooks.before_reading();
    uint64_t now = __real_clock_boottime_usec();
    ClockGate *gate = atomic_load(&held_by);
    if (gate) {
        const uint64_t opened = atomic_load(&gate->opened_usec);
        now = held_usec + (opened && now > opened ? now - MAX(opened, held_usec) : 0);
    }
    return now + (is_late ? HOUR_USEC : 0);
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    if (clock_hooks.before_poll)
        clock_hooks.before_poll(fds, n);
    const int r = __real_poll(fds, n, timeout);
    const int e = errno;
    is_late = is_late || (n == 0 && after_pause);
    if (clock_hooks.after_poll)
        clock_hooks.after_poll(fds, n);
    errno = e;
    return r;
}

static void stand_still_until_words(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (__real_poll(&p, 1, -1) < 0)
        assert(errno == EINTR);
    is_late = true;
}

ssize_t __wrap_recv(int fd, void *data, size_t n_bytes, int flags)
{
    if (before_words && !found_nothing) {
        stand_still_until_words(fd);
        found_nothing = true;
        errno = EAGAIN;
        return -1;
    }
    found_nothing = false;
    return __real_recv(fd, data, n_bytes, flags);
}

ssize_t __wrap_send(int fd, const void *data, size_t n_bytes, int flags)
{
    const ssize_t n = __real_send(fd, data, n_bytes, flags);
    if (after_word && n > 0) {
        after_word = false;
        stand_still_until_words(fd);
    }
    return n;
}

bool polls_a_listener_only(const struct pollfd *fds, nfds_t n)
{
    int listens = 0;
    socklen_t size = sizeof(listens);
    return n == 1 && getsockopt(fds[0].fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 &&
           listens;
}
