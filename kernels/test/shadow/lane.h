/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - the shadow device's queues: a thread each, which runs what it is given late and in order.
 *
 * Between the thread that fills a lane and the lane there is no lock: one would order what the two do,
 * and hide from ThreadSanitizer that nobody waited. The filler publishes a call; who awaits a serial
 * sees what was done up to there; nothing else is ordered.
 *
 * Ownership: shadow_lane_put() takes the call over and frees it. A call's memory is borrowed until it ran.
 * Units:     a serial is the number of calls that were put on the lane, so 0 is always reached.
 * Errors:    shadow_lane_await(): -ETIMEDOUT.
 * Threads:   calls are put there by one thread at a time; the rest is any thread's.
 */
#pragma once

#include "base/clock.h"
#include "kernels/test/shadow/shadow.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

enum { SHADOW_LANE_ROOM = 1024, SHADOW_USES_MAX = 16, SHADOW_ARGUMENT_BYTES = 320 };

typedef struct ShadowLane ShadowLane;

typedef struct ShadowCall {
    void (*run)(const void *arguments);   /* NULL: ends the lane */
    void (*begin)(const void *arguments); /* before it is late; or NULL */
    const char *name;                     /* of the function of kernels.h */
    bool is_operation;                    /* not a copy or a wait */
    bool is_copy;                         /* of device_send() or device_fetch() */
    bool runs_broken;                     /* also on a broken device: a wait */
    int n_uses;
    atomic_int *uses[SHADOW_USES_MAX]; /* of memory and objects; each was raised by one */
    alignas(16) char arguments[SHADOW_ARGUMENT_BYTES];
} ShadowCall;

/* The state that the lanes of one device share. */
typedef struct ShadowLanes {
    ShadowOptions options;
    atomic_int broken; /* 0, or the -errno for ever */
    atomic_bool ending, hung;
} ShadowLanes;

struct ShadowLane {
    ShadowLanes *lanes;
    int number;
    pthread_t thread;
    bool thread_runs;
    bool dropped; /* a call, for want of room behind one that hangs; the filler's */
    _Atomic(uint64_t) put, done;
    _Atomic(uint64_t) wanted; /* with a schedule no call from this serial on runs */
    _Atomic(ShadowCall *) calls[SHADOW_LANE_ROOM];
};

/* Waits while SHADOW_LANE_ROOM calls are in the queue; where one hangs, a second at most, and drops that call
 * and those after it. */
void shadow_lane_put(ShadowLane *lane, ShadowCall *call);
/* Waits until a thread has run all, and ends it. */
void shadow_lane_end(ShadowLane *lane);
/* Calls below the serial may run. */
void shadow_lane_want(ShadowLane *lane, uint64_t serial);
bool shadow_lane_reached(const ShadowLane *lane, uint64_t serial);
/* timeout_usec: USEC_INFINITY waits for ever. */
int shadow_lane_await(ShadowLane *lane, uint64_t serial, uint64_t timeout_usec);
/* To be called in the child of a fork, where no lane has its thread. */
void shadow_lane_forked(ShadowLane *lane);
