/* SPDX-License-Identifier: Apache-2.0 */
/* lane.c - see lane.h.
 *
 * Fault points: device.copy (before each copy; slow, stall). */
#include "kernels/cpu/lane.h"

#include "base/fault.h"
#include "base/memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CPU_LANE_ROOM = 1024 }; /* the largest number of copies in the queue */

typedef struct LaneCopy {
    void *to;
    const void *from;
    size_t n_bytes;
} LaneCopy;

struct CpuLane {
    pthread_t thread;
    bool thread_runs;
    pid_t process; /* the process that `thread` belongs to */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool quit;          /* guarded by lock */
    uint64_t put, done; /* guarded by lock: copies ever queued, and copies ever done */
    LaneCopy copies[CPU_LANE_ROOM];
};

static void lane_lock(CpuLane *lane)
{
    int r = pthread_mutex_lock(&lane->lock);
    assert(r == 0);
}

static void lane_unlock(CpuLane *lane)
{
    int r = pthread_mutex_unlock(&lane->lock);
    assert(r == 0);
}

static void lane_change(CpuLane *lane)
{
    int r = pthread_cond_broadcast(&lane->changed);
    assert(r == 0);
}

/* Waits until another thread changes the lane. The caller holds the lock. */
static void lane_sleep(CpuLane *lane)
{
    int r = pthread_cond_wait(&lane->changed, &lane->lock);
    assert(r == 0);
}

static void *lane_run(void *argument)
{
    CpuLane *lane = argument;
    lane_lock(lane);
    for (;;) {
        while (lane->done == lane->put && !lane->quit)
            lane_sleep(lane);
        if (lane->done == lane->put)
            break;
        const LaneCopy copy = lane->copies[lane->done % CPU_LANE_ROOM];
        lane_unlock(lane);
        (void)fault("device.copy"); /* an error is ignored: a copy of memory cannot fail */
        memcpy(copy.to, copy.from, copy.n_bytes);
        lane_lock(lane);
        lane->done++;
        lane_change(lane);
    }
    lane_unlock(lane);
    return NULL;
}

static void lane_prepare(CpuLane *lane)
{
    pthread_condattr_t attributes;
    lane->process = getpid();
    lane->thread_runs = false;
    (void)pthread_mutex_init(&lane->lock, NULL); /* default attributes cannot fail */
    (void)pthread_condattr_init(&attributes);    /* initialising attributes cannot fail */
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a valid clock cannot fail */
    (void)pthread_cond_init(&lane->changed, &attributes); /* valid attributes cannot fail */
    (void)pthread_condattr_destroy(&attributes); /* cannot fail: the attributes are initialised */
}

CpuLane *cpu_lane_new(void)
{
    CpuLane *lane = memory_new(CpuLane);
    lane_prepare(lane);
    return lane;
}

/* Starts the lane's thread with all signals blocked: the main thread handles signals. */
static bool lane_start(CpuLane *lane)
{
    sigset_t all, before;
    (void)sigfillset(&all); /* cannot fail */
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    lane->thread_runs = pthread_create(&lane->thread, NULL, lane_run, lane) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* cannot fail: `before` is a valid mask */
    return lane->thread_runs;
}

/* A child of fork() has the queue but not the thread. In a child the function prepares the lane again, and starts a
 * thread for the queued copies; while no thread can be started, the caller makes the copies. */
static void lane_adopt(CpuLane *lane)
{
    if (lane->process == getpid())
        return;
    lane_prepare(lane);
    while (lane->done < lane->put && !lane->thread_runs && !lane_start(lane)) {
        const LaneCopy copy = lane->copies[lane->done++ % CPU_LANE_ROOM];
        memcpy(copy.to, copy.from, copy.n_bytes);
    }
}

CpuLane *cpu_lane_free(CpuLane *lane)
{
    if (!lane)
        return NULL;
    lane_adopt(lane);
    if (lane->thread_runs) {
        lane_lock(lane);
        lane->quit = true;
        lane_change(lane);
        lane_unlock(lane);
        int r = pthread_join(lane->thread, NULL);
        assert(r == 0);
    }
    (void)pthread_cond_destroy(&lane->changed); /* no thread waits */
    (void)pthread_mutex_destroy(&lane->lock);   /* no thread holds the lock */
    free(lane);
    return NULL;
}

void cpu_lane_copy(CpuLane *lane, void *to, const void *from, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    lane_adopt(lane);
    if (!lane->thread_runs && !lane_start(lane)) {
        memcpy(to, from, n_bytes);
        return;
    }
    lane_lock(lane);
    while (lane->put - lane->done == CPU_LANE_ROOM)
        lane_sleep(lane);
    lane->copies[lane->put++ % CPU_LANE_ROOM] =
        (LaneCopy){.to = to, .from = from, .n_bytes = n_bytes};
    lane_change(lane);
    lane_unlock(lane);
}

uint64_t cpu_lane_serial(CpuLane *lane)
{
    lane_adopt(lane);
    lane_lock(lane);
    uint64_t serial = lane->put;
    lane_unlock(lane);
    return serial;
}

bool cpu_lane_reached(CpuLane *lane, uint64_t serial)
{
    lane_adopt(lane);
    lane_lock(lane);
    bool reached = lane->done >= serial;
    lane_unlock(lane);
    return reached;
}

int cpu_lane_await(CpuLane *lane, uint64_t serial, uint64_t timeout_usec, Error *err)
{
    const uint64_t now = clock_monotonic_usec();
    const uint64_t deadline =
        timeout_usec < USEC_INFINITY - now ? now + timeout_usec : USEC_INFINITY;
    const struct timespec until = {.tv_sec = (time_t)(deadline / USEC_PER_SEC),
                                   .tv_nsec = (long)(deadline % USEC_PER_SEC * 1000)};
    int r = 0;

    lane_adopt(lane);
    lane_lock(lane);
    assert(serial <= lane->put);
    while (lane->done < serial && r != ETIMEDOUT) {
        if (deadline == USEC_INFINITY)
            lane_sleep(lane);
        else
            r = pthread_cond_timedwait(&lane->changed, &lane->lock, &until);
    }
    const bool reached = lane->done >= serial;
    lane_unlock(lane);
    if (!reached)
        return error_set(err, -ETIMEDOUT, "a copy out of device memory is not done after %.3f s",
                         (double)timeout_usec * 1e-6);
    return 0;
}
