/* SPDX-License-Identifier: Apache-2.0 */
/* clock-step.c - a library to preload into a program. It shifts the program's realtime clock by the
 * number of seconds in the file that CHAOS_CLOCK names. The file is read at each reading of the
 * clock. The kernel has no namespace for this clock. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t step_sec(void)
{
    const char *path = getenv("CHAOS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    char text[32] = "";
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd); /* the file was only read */
    return n > 0 ? (time_t)strtol(text, NULL, 10) : 0;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
    if (syscall(SYS_clock_gettime, id, ret) != 0)
        return -1;
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
        ret->tv_sec += step_sec();
    return 0;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    (void)zone; /* the argument is obsolete */
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
        return -1;
    *ret = (struct timeval){.tv_sec = ts.tv_sec, .tv_usec = (suseconds_t)(ts.tv_nsec / 1000)};
    return 0;
}

time_t time(time_t *ret)
{
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
        return -1;
    if (ret)
        *ret = ts.tv_sec;
    return ts.tv_sec;
}
