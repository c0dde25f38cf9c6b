/* SPDX-License-Identifier: Apache-2.0 */
/* shadow.h - for tests: a device on which code that waits for too little, or too late, fails on any machine.
 *
 * The device computes with the CPU's kernels, to the same bits and under the same numerics, but behaves as a GPU may:
 * the host cannot read or write its memory (SIGSEGV), each lane is a queue with its own thread and random delays, and
 * no work is done when a call returns. Delays also depend on the machine; for tests that must not depend on it, a
 * schedule says which work is done when. If a call breaks a rule of kernels.h, the device ends the process with the
 * reason: an address that is not the device's, a source of device_send() that was written before its fence, memory or
 * an object that is released while queued work uses it, a write behind an allocation. Memory that is read too early
 * contains 0xa5 or older bytes, or ThreadSanitizer reports the read.
 *
 * Ownership: shadow_open() gives the caller a Device for device_free().
 * Units:     microseconds.
 * Errors:    as kernels.h. A breach of the contract of kernels.h aborts.
 * Threads:   as kernels.h; shadow_break() and shadow_hang() may be called from any thread.
 */
#pragma once

#include "kernels/backend.h"

/* The calls that a device ignores, as if the program had not made them. They serve to test the tests. */
typedef enum ShadowDrop {
    SHADOW_DROP_NOTHING,
    SHADOW_DROP_WAITS,  /* device_wait() */
    SHADOW_DROP_AWAITS, /* device_await() */
    SHADOW_DROP_STAGING, /* device_await() for LANE_IN, so that staging memory is overwritten too early */
} ShadowDrop;

/* When queued work runs. */
typedef enum ShadowSchedule {
    SHADOW_TIMED, /* work runs soon, except for delays, and two lanes run concurrently */
    /* A lane in `late` runs a call only when a wait needs the call; device_reached() makes nothing run. The other lanes
     * run a call, and the calls that it waits for, before the function that queues the call returns. */
    SHADOW_LATE,
    /* After each queued call, each lane runs a random number of its calls, often none. */
    SHADOW_DRAWN,
} ShadowSchedule;

enum { SHADOW_PLANS_MAX = 64 };

typedef struct ShadowOptions {
    uint64_t seed;       /* the seed of the delays and of the random schedule */
    uint64_t delay_usec; /* the longest delay */
    /* one of `each` operations is delayed, and one of two copies and waits */
    uint32_t each;
    /* Memory that does not come from device_allocate() is accepted as device memory, and a call is done when it
     * returns. This is for the kernels' own tests, which read each result at once. */
    bool takes_host;
    ShadowDrop drop;
    ShadowSchedule schedule; /* delays exist only with SHADOW_TIMED */
    uint32_t late;           /* for SHADOW_LATE: the bit 1 << lane for each late lane */
    /* "a/b/c": the algorithms that the device claims to have for convolutions. The device chooses the first one, so
     * that its plans are {"conv":"a"}, and can replay each of them; the bits are the same. "": the device has no
     * plans. */
    char plans[SHADOW_PLANS_MAX];
} ShadowOptions;

/* Parses "seed=7,delay=300,each=64,host,plans=a/b,drop=waits|awaits|staging", with any of these options; "" or NULL
 * gives the defaults. Schedules are "late" (all lanes are late), "late=compute/in/out/comm" (some lanes), "late=none"
 * and "drawn". -EINVAL: a wrong text. */
int shadow_options_parse(const char *text, ShadowOptions *ret, Error *err);
int shadow_open(const DeviceOptions *options, const ShadowOptions *shadow, Device **ret,
                Error *err);
/* A table whose open() reads ShadowOptions from SDTRAIN_SHADOW. */
extern const KernelsBackend shadow_backend;

/* Drops queued work from now on, and makes device_await() and device_synchronise() return `error` (-EIO, -EFAULT). */
void shadow_break(Device *device, int error);
/* Hangs the lane: work that is queued on it from now on does not run before device_free(), which also releases
 * everything that this work uses. */
void shadow_hang(Device *device, Lane lane);
