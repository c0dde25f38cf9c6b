/* SPDX-License-Identifier: Apache-2.0 */
/* shadow.h - for tests: a device on which code that waits for too little, or too late, fails on any machine.
 *
 * It computes with the CPU's kernels, to the same bits and under the same numerics, but behaves as a GPU
 * may: the host cannot read or write its memory (SIGSEGV), each lane is a queue with a thread of its own,
 * which is late by random times, and nothing is done when a call returns. How late is the machine's business,
 * too; where a test must not depend on that, a schedule says which work is done when. It ends the process, and says
 * why, where a call breaks what kernels.h asks for: an address that is not the device's, a source of
 * device_send() that was written before its fence, memory or an object that is released while queued work
 * uses it, a write behind an allocation. Memory that is read too early has 0xa5 or bytes of another time, or
 * ThreadSanitizer reports the read.
 *
 * Ownership: shadow_open() gives the caller a Device for device_free().
 * Units:     microseconds.
 * Errors:    as kernels.h. A breach of its contract aborts.
 * Threads:   as kernels.h; shadow_break() and shadow_hang() are any thread's.
 */
#pragma once

#include "kernels/backend.h"

/* Which calls a device ignores, as if the program had forgotten them: the tests' own test. */
typedef enum ShadowDrop {
    SHADOW_DROP_NOTHING,
    SHADOW_DROP_WAITS,   /* device_wait() */
    SHADOW_DROP_AWAITS,  /* device_await() */
    SHADOW_DROP_STAGING, /* device_await() for LANE_IN: staging is written again too early */
} ShadowDrop;

/* When queued work runs. */
typedef enum ShadowSchedule {
    SHADOW_TIMED, /* soon, but for delays: two lanes run beside each other */
    /* On a lane of `late`: when somebody waits for it, and no further than that; a look (device_reached()) moves
     * nothing. On the others: before the call that puts it returns, with what it waits for. */
    SHADOW_LATE,
    /* After each call that is put on a lane each lane goes on by a length that a draw gives it, often none. */
    SHADOW_DRAWN,
} ShadowSchedule;

enum { SHADOW_PLANS_MAX = 64 };

typedef struct ShadowOptions {
    uint64_t seed;       /* of the delays and the draws */
    uint64_t delay_usec; /* the longest delay */
    uint32_t
        each; /* one operation in so many is delayed; of copies and waits every second one is */
    /* Memory that device_allocate() did not give is taken as the device's, and a call is done when it
     * returns: for the kernels' own tests, which look at each result. */
    bool takes_host;
    ShadowDrop drop;
    ShadowSchedule schedule; /* but for SHADOW_TIMED nothing is delayed */
    uint32_t late;           /* bit 1 << lane; of SHADOW_LATE */
    /* "a/b/c": the algorithms that the device pretends to have for convolutions. It chooses the first one, so
     * that its plans are {"conv":"a"}, and can replay each; bits are the same. "": it has no plans. */
    char plans[SHADOW_PLANS_MAX];
} ShadowOptions;

/* "seed=7,delay=300,each=64,host,plans=a/b,drop=waits|awaits|staging", any of them, or "" or NULL for the usual ones;
 * "late" (all lanes are), "late=compute/in/out/comm" (some are), "late=none", "drawn" are schedules. -EINVAL. */
int shadow_options_parse(const char *text, ShadowOptions *ret, Error *err);
int shadow_open(const DeviceOptions *options, const ShadowOptions *shadow, Device **ret,
                Error *err);
/* Its open() takes ShadowOptions from SDTRAIN_SHADOW. */
extern const KernelsBackend shadow_backend;

/* From now on queued work is dropped, and device_await() and device_synchronise() return `error` (-EIO, -EFAULT). */
void shadow_break(Device *device, int error);
/* Hangs the lane: work that is put on it from now on does not run before device_free(), which also releases all that
 * this work uses. */
void shadow_hang(Device *device, Lane lane);
