/* SPDX-License-Identifier: Apache-2.0 */
/* dead-man.c - see dead-man.h. */
#include "base/dead-man.h"

#include <errno.h>
#include <signal.h>

int dead_man_open(DeadMan *ret, Error *err)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    if (timer_create(CLOCK_BOOTTIME, &event, &ret->timer) < 0)
        return error_errno(err, -errno, "cannot create the dead-man timer");
    ret->is_open = true;
    return 0;
}

void dead_man_arm(DeadMan *dead_man, uint64_t usec)
{
    if (usec == 0 || !dead_man->is_open)
        return;
    struct itimerspec when = {.it_value = {.tv_sec = (time_t)(usec / USEC_PER_SEC),
                                           .tv_nsec = (long)(usec % USEC_PER_SEC * NSEC_PER_USEC)}};
    int r = timer_settime(dead_man->timer, 0, &when, NULL);
    assert(r == 0); /* the timer exists and the time is valid */
}

void dead_man_close(DeadMan *dead_man)
{
    if (dead_man->is_open)
        (void)timer_delete(dead_man->timer);
    dead_man->is_open = false;
}
