/* SPDX-License-Identifier: Apache-2.0 */
/* sdtrain-client.h - reports from a program to sdtrain, and requests of sdtrain to the program; for C and C++.
 *
 * A job of kind "exec" gives its program a socket, SDTRAIN_SOCKET. Without it every call does nothing and returns at
 * once. The header needs only the C library. Each source file that includes it has a connection of its own.
 *
 *     sdtrain_report("READY=1");
 *     for (step = first; step < last && sdtrain_leaving() < 0; step++) {
 *         ...
 *         sdtrain_reportf("STEP=%ld\nLOSS=%g", step + 1, loss);
 *     }
 *     save(...);
 *     sdtrain_checkpoint("/ckpt/step-400", 400, 60);
 *
 * Ownership: none. Units: steps; seconds.
 * Errors:    a report that is not received in time is dropped; a checkpoint is not.
 * Threads:   one at a time. A forked child must call sdtrain_forked() first.
 * Source:    docs/operating/programs.md, "What a program can report".
 */
#pragma once

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SDTRAIN_PACKET_MAX 4096
#define SDTRAIN_HELD_MAX 16

struct sdtrain_link {
    int is_tried, fd; /* fd -1: there is no connection */
    int polls;        /* sdtrain knows that the program calls sdtrain_leaving() */
    int saves;        /* requests to save that no call has returned yet */
    double leave_at;  /* CLOCK_MONOTONIC; 0: nobody asks the program to leave */
    long long answered_step;
    int answer;               /* 1: committed, 0: refused, -1: none yet */
    long long committed_step; /* -1: none yet */
    int is_told, n_held;      /* HOLD has come, and replaces SDTRAIN_HOLD */
    long long held[SDTRAIN_HELD_MAX];
};

static struct sdtrain_link sdtrain_link_ = {0, -1, 0, 0, 0, 0, -1, -1, 0, 0, {0}};

static inline double sdtrain_now_(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline void sdtrain_close_(void)
{
    if (sdtrain_link_.fd >= 0)
        (void)close(sdtrain_link_.fd);
    sdtrain_link_.fd = -1;
}

/* Returns the connection, or -1: there is none. */
static inline int sdtrain_open_(void)
{
    struct sockaddr_un address;
    const char *path = getenv("SDTRAIN_SOCKET");
    if (sdtrain_link_.is_tried)
        return sdtrain_link_.fd;
    sdtrain_link_.is_tried = 1;
    memset(&address, 0, sizeof(address));
    address.sun_family = AF_UNIX;
    if (!path || !*path || strlen(path) >= sizeof(address.sun_path))
        return -1;
    memcpy(address.sun_path, path, strlen(path) + 1);
    sdtrain_link_.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sdtrain_link_.fd >= 0 &&
        connect(sdtrain_link_.fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        sdtrain_link_.is_tried =
            errno != EAGAIN; /* sdtrain accepts nobody at the moment: try again */
        sdtrain_close_();
    }
    return sdtrain_link_.fd;
}

/* In a forked child: the parent's connection stays the parent's. */
static inline void sdtrain_forked(void)
{
    sdtrain_close_();
    sdtrain_link_.is_tried = 0;
}

/* Tells whether sdtrain runs this program. */
static inline int sdtrain_active(void) { return sdtrain_open_() >= 0; }

/* Sends a packet, and waits at most timeout_sec until it can be sent. Returns 1: sent, 0: dropped. */
static inline int sdtrain_send_(const char *packet, double timeout_sec)
{
    const double end = sdtrain_now_() + timeout_sec;
    for (;;) {
        struct pollfd p = {sdtrain_open_(), POLLOUT, 0};
        double left = end - sdtrain_now_();
        if (p.fd < 0 && sdtrain_link_.is_tried)
            return 0;
        if (p.fd >= 0 && send(p.fd, packet, strlen(packet), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 1;
        if (p.fd >= 0 && errno != EAGAIN && errno != EINTR) {
            sdtrain_close_();
            return 0;
        }
        if (left <= 0)
            return 0;
        if (p.fd >= 0)
            (void)poll(&p, 1, (int)(left * 1000) + 1);
        else
            (void)poll(NULL, 0, left < 0.05 ? (int)(left * 1000) + 1 : 50);
    }
}

static inline void sdtrain_take_held_(const char *text)
{
    sdtrain_link_.is_told = 1;
    sdtrain_link_.n_held = 0;
    while (text && *text && sdtrain_link_.n_held < SDTRAIN_HELD_MAX) {
        sdtrain_link_.held[sdtrain_link_.n_held++] = atoll(text);
        text = strchr(text, ',');
        text = text ? text + 1 : text;
    }
}

static inline void sdtrain_take_(char *line)
{
    char *value = strchr(line, '=');
    if (!value)
        return;
    *value++ = '\0';
    if (strcmp(line, "LEAVE") == 0) {
        sdtrain_link_.leave_at = sdtrain_now_() + atof(value);
    } else if (strcmp(line, "SAVE") == 0) {
        sdtrain_link_.saves++;
    } else if (strcmp(line, "HOLD") == 0) {
        sdtrain_take_held_(value);
    } else if (strcmp(line, "COMMITTED") == 0 || strcmp(line, "REFUSED") == 0) {
        sdtrain_link_.answered_step = atoll(value);
        sdtrain_link_.answer = *line == 'C';
        if (*line == 'C' && sdtrain_link_.answered_step > sdtrain_link_.committed_step)
            sdtrain_link_.committed_step = sdtrain_link_.answered_step;
    }
}

/* Takes what sdtrain has sent; waits at most timeout_sec for the first packet. */
static inline void sdtrain_receive_(double timeout_sec)
{
    char packet[SDTRAIN_PACKET_MAX + 1];
    struct pollfd p = {sdtrain_open_(), POLLIN, 0};
    if (p.fd >= 0 && timeout_sec > 0)
        (void)poll(&p, 1, (int)(timeout_sec * 1000) + 1);
    while (sdtrain_link_.fd >= 0) {
        char *line, *rest = NULL;
        ssize_t n = recv(sdtrain_link_.fd, packet, sizeof(packet) - 1, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0 && errno == ECONNRESET)
            continue; /* reported once, before what sdtrain has sent last */
        if (n <= 0) {
            sdtrain_close_();
            return;
        }
        packet[n] = '\0';
        for (line = strtok_r(packet, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            sdtrain_take_(line);
    }
}

/* Reports lines KEY=VALUE. Returns 1: sent; 0: dropped, or there is no sdtrain. */
static inline int sdtrain_report(const char *lines) { return sdtrain_send_(lines, 0); }

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
static inline int
sdtrain_reportf(const char *format, ...)
{
    char packet[SDTRAIN_PACKET_MAX + 1];
    va_list list;
    int n;
    va_start(list, format);
    n = vsnprintf(packet, sizeof(packet), format, list);
    va_end(list);
    return n > 0 && n < (int)sizeof(packet) ? sdtrain_report(packet) : 0;
}

/* Returns the seconds that are left to save and end; negative: nobody asks the program to leave. A program that has
 * called this function once gets no exec.leave_signal any more. */
static inline double sdtrain_leaving(void)
{
    double left;
    if (!sdtrain_link_.polls)
        sdtrain_link_.polls = sdtrain_send_("POLLS=1", 0);
    sdtrain_receive_(0);
    if (sdtrain_link_.leave_at == 0)
        return -1;
    left = sdtrain_link_.leave_at - sdtrain_now_();
    return left > 0 ? left : 0;
}

/* Tells whether a person has asked for a checkpoint since the last call that returned 1. */
static inline int sdtrain_save_requested(void)
{
    int saves;
    sdtrain_receive_(0);
    saves = sdtrain_link_.saves;
    sdtrain_link_.saves = 0;
    return saves > 0;
}

/* Registers a checkpoint of which everything is durable, and does not wait for the answer; rank 0 only. Returns 1 if
 * it was sent, and without sdtrain; 0 if it could not be sent within timeout_sec. */
static inline int sdtrain_register(const char *uri, long long step, double timeout_sec)
{
    char packet[SDTRAIN_PACKET_MAX + 1];
    if (!sdtrain_active() && sdtrain_link_.is_tried)
        return 1;
    sdtrain_link_.answer = -1;
    (void)snprintf(packet, sizeof(packet), "CHECKPOINT=%s\nSTEP=%lld", uri, step);
    return sdtrain_send_(packet, timeout_sec);
}

/* Returns the newest step whose checkpoint was committed since this program began; -1: none. */
static inline long long sdtrain_committed(void)
{
    sdtrain_receive_(0);
    return sdtrain_link_.committed_step;
}

/* Tells whether an evaluation reads the checkpoint of this step, so that it must not be removed. */
static inline int sdtrain_is_held(long long step)
{
    int i;
    sdtrain_receive_(0);
    if (!sdtrain_link_.is_told)
        sdtrain_take_held_(getenv("SDTRAIN_HOLD"));
    for (i = 0; i < sdtrain_link_.n_held; i++)
        if (sdtrain_link_.held[i] == step)
            return 1;
    return 0;
}

/* Registers a checkpoint, and waits for the answer. Returns 1 if it was committed, and without sdtrain; 0 if it was
 * refused, or not answered within timeout_sec. */
static inline int sdtrain_checkpoint(const char *uri, long long step, double timeout_sec)
{
    const double end = sdtrain_now_() + timeout_sec;
    if (!sdtrain_register(uri, step, timeout_sec))
        return 0;
    if (!sdtrain_active() && sdtrain_link_.is_tried)
        return 1;
    while (sdtrain_link_.answer < 0 || sdtrain_link_.answered_step != step) {
        double left = end - sdtrain_now_();
        if (left <= 0 || sdtrain_link_.fd < 0)
            return 0;
        sdtrain_receive_(left);
    }
    return sdtrain_link_.answer;
}
