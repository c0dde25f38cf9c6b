/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - the shadow device's queues: each has a thread that runs calls late and in order.
 *
 * There is no lock between a lane and the thread that fills the lane: a lock would order their memory accesses, and
 * hide from ThreadSanitizer that the program did not wait. The filling thread publishes a call; a thread that waits for
 * a serial sees all work up to that serial; nothing else is ordered.
 *
 * Ownership: shadow_lane_put() takes the call and frees it. A call's memory is borrowed until the call ran.
 * Units:     a serial is the number of calls that were queued on the lane, so 0 is always reached.
 * Errors:    shadow_lane_await(): -ETIMEDOUT.
 * Threads:   one thread at a time queues calls; any thread may call the other functions.
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
    void (*begin)(const void *arguments); /* runs before the delay; NULL: nothing runs */
    const char *name;                     /* the name of the function of kernels.h */
    bool is_operation;                    /* the call is neither a copy nor a wait */
    bool is_copy;                         /* the call is device_send() or device_fetch() */
    bool runs_broken; /* a broken device runs the call, too, because the call is a wait */
    int n_uses;
    atomic_int *uses[SHADOW_USES_MAX]; /* the use counts that the call has raised by one */
    alignas(16) char arguments[SHADOW_ARGUMENT_BYTES];
} ShadowCall;

/* The state that the lanes of one device share. */
typedef struct ShadowLanes {
    ShadowOptions options;
    atomic_int broken; /* 0, or the -errno of a permanent failure */
    atomic_bool ending, hung;
} ShadowLanes;

struct ShadowLane {
    ShadowLanes *lanes;
    int number;
    pthread_t thread;
    bool thread_runs;
    bool dropped; /* the filling thread dropped a call, because the lane was hung and full */
    _Atomic(uint64_t) put, done;
    _Atomic(uint64_t) wanted; /* with a schedule, only calls below this serial may run */
    _Atomic(ShadowCall *) calls[SHADOW_LANE_ROOM];
};

/* Queues a call. Waits while the queue has SHADOW_LANE_ROOM calls. If the lane hangs, the function waits at most a
 * second, then drops this call and all later calls. */
void shadow_lane_put(ShadowLane *lane, ShadowCall *call);
/* Waits until the thread has run all calls, and ends the thread. */
void shadow_lane_end(ShadowLane *lane);
/* Allows the lane to run the calls below the serial. */
void shadow_lane_want(ShadowLane *lane, uint64_t serial);
bool shadow_lane_reached(const ShadowLane *lane, uint64_t serial);
/* Waits for the serial. timeout_usec: USEC_INFINITY waits without limit. */
int shadow_lane_await(ShadowLane *lane, uint64_t serial, uint64_t timeout_usec);
/* Must be called in the child of a fork, where no lane has a thread. */
void shadow_lane_forked(ShadowLane *lane);
