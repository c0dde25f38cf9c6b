/* SPDX-License-Identifier: Apache-2.0 */
/* lane.c - see lane.h. */
#include "kernels/test/shadow/lane.h"

#include "base/fault.h"
#include "base/number/philox.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A caller that waits for room in a lane pauses for NAP_USEC each time, and at most NAPS_HUNG times if
 * the lane hangs. */
enum { NAP_USEC = 1000, NAPS_HUNG = 1000 };

/* ---- waiting for a counter ---- */

/* For ThreadSanitizer the system call orders no memory: only the loads and stores of the counters do. The call compares
 * the lower half of the counter, which is its first half in memory. The caller checks the counter after each return. */
static void counter_wait(const _Atomic(uint64_t) *counter, uint64_t while_it_is,
                         uint64_t at_most_usec)
{
    const struct timespec t = {.tv_sec = (time_t)(at_most_usec / USEC_PER_SEC),
                               .tv_nsec = (long)(at_most_usec % USEC_PER_SEC * 1000)};
    (void)syscall(SYS_futex, counter, FUTEX_WAIT_PRIVATE, (uint32_t)while_it_is,
                  at_most_usec == USEC_INFINITY ? NULL : &t, NULL, 0); /* the caller looks again */
}

static void counter_wake(const _Atomic(uint64_t) *counter)
{
    (void)syscall(SYS_futex, counter, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); /* cannot fail */
}

/* ---- the lane's thread ---- */

static const char *const break_point[] = {"shadow.break.compute", "shadow.break.in",
                                          "shadow.break.out", "shadow.break.comm"};
static_assert(ELEMENTSOF(break_point) == N_LANES, "each lane has a point");

static void delay(const ShadowLane *lane, const ShadowCall *call, uint64_t serial)
{
    const ShadowOptions *o = &lane->lanes->options;
    const Philox random = philox4x32(o->seed, (uint64_t)lane->number, serial);
    const uint32_t each = call->is_operation ? o->each : 2;
    if (o->schedule != SHADOW_TIMED || o->delay_usec == 0 || each == 0 ||
        random.word[0] % each != 0)
        return;
    (void)usleep((useconds_t)(random.word[1] % (o->delay_usec + 1))); /* signals are blocked here */
}

static void run(const ShadowLane *lane, const ShadowCall *call)
{
    ShadowLanes *lanes = lane->lanes;
    const int error = call->is_operation ? fault("shadow.break")
                      : call->is_copy    ? fault(break_point[lane->number])
                                         : 0;
    if (error < 0)
        atomic_store_explicit(&lanes->broken, error, memory_order_relaxed);
    if (call->runs_broken || !atomic_load_explicit(&lanes->broken, memory_order_relaxed))
        call->run(call->arguments);
}

/* Waits until the schedule lets the call run. */
static void await_turn(const ShadowLane *lane, uint64_t serial)
{
    if (lane->lanes->options.schedule == SHADOW_TIMED)
        return;
    for (;;) {
        const uint64_t wanted = atomic_load_explicit(&lane->wanted, memory_order_relaxed);
        if (serial < wanted)
            return;
        counter_wait(&lane->wanted, wanted, USEC_INFINITY);
    }
}

static void *lane_thread(void *argument)
{
    ShadowLane *lane = argument;
    for (uint64_t n = lane->done;;) {
        _Atomic(ShadowCall *) *slot = &lane->calls[n % SHADOW_LANE_ROOM];
        ShadowCall *call = atomic_load_explicit(slot, memory_order_acquire);
        if (!call) {
            counter_wait(&lane->put, n, USEC_INFINITY);
            continue;
        }
        await_turn(lane, n);
        atomic_store_explicit(slot, NULL, memory_order_relaxed);
        const bool ends = !call->run;
        if (!ends) {
            if (call->begin)
                call->begin(call->arguments);
            delay(lane, call, n);
            run(lane, call);
        }
        for (int i = 0; i < call->n_uses; i++)
            atomic_fetch_sub_explicit(call->uses[i], 1, memory_order_release);
        free(call);
        atomic_store_explicit(&lane->done, ++n, memory_order_release);
        counter_wake(&lane->done);
        if (ends)
            return NULL;
    }
}

/* ---- the callers' threads ---- */

/* Starts the lane's thread with all signals blocked, because the main thread handles signals. */
static void lane_start(ShadowLane *lane)
{
    sigset_t all, before;
    (void)sigfillset(&all);                            /* cannot fail */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* valid arguments cannot fail */
    int r = pthread_create(&lane->thread, NULL, lane_thread, lane);
    assert(r == 0);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* valid arguments cannot fail */
    lane->thread_runs = true;
}

void shadow_lane_put(ShadowLane *lane, ShadowCall *call)
{
    if (!lane->thread_runs)
        lane_start(lane);
    const uint64_t n = atomic_load_explicit(&lane->put, memory_order_relaxed);
    _Atomic(ShadowCall *) *slot = &lane->calls[n % SHADOW_LANE_ROOM];
    for (int naps = 0; atomic_load_explicit(slot, memory_order_relaxed); naps++) {
        if (naps >= (lane->dropped ? 0 : NAPS_HUNG) && lane->lanes->hung && !lane->lanes->ending) {
            lane->dropped = true;
            free(call); /* the call's memory stays in use: no call behind the hang is ever done */
            return;
        }
        if (lane->lanes->options.schedule != SHADOW_TIMED && !lane->lanes->hung)
            (void)shadow_lane_await(lane, n - SHADOW_LANE_ROOM + 1,
                                    USEC_INFINITY); /* cannot fail */
        else
            (void)usleep(NAP_USEC); /* a signal may shorten the pause */
    }
    atomic_store_explicit(slot, call, memory_order_release);
    atomic_store_explicit(&lane->put, n + 1, memory_order_release);
    counter_wake(&lane->put);
}

void shadow_lane_end(ShadowLane *lane)
{
    if (!lane->thread_runs)
        return;
    ShadowCall *call = calloc(1, sizeof(*call));
    assert(call);
    shadow_lane_put(lane, call);
    shadow_lane_want(lane, lane->put);
    int r = pthread_join(lane->thread, NULL);
    assert(r == 0);
    lane->thread_runs = false;
}

void shadow_lane_want(ShadowLane *lane, uint64_t serial)
{
    uint64_t wanted = atomic_load_explicit(&lane->wanted, memory_order_relaxed);
    while (wanted < serial &&
           !atomic_compare_exchange_weak_explicit(&lane->wanted, &wanted, serial,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    counter_wake(&lane->wanted);
}

bool shadow_lane_reached(const ShadowLane *lane, uint64_t serial)
{
    return atomic_load_explicit(&lane->done, memory_order_relaxed) >= serial &&
           atomic_load_explicit(&lane->done, memory_order_acquire) >= serial;
}

int shadow_lane_await(ShadowLane *lane, uint64_t serial, uint64_t timeout_usec)
{
    const uint64_t now = clock_monotonic_usec();
    const uint64_t deadline =
        timeout_usec < USEC_INFINITY - now ? now + timeout_usec : USEC_INFINITY;
    assert(serial <= atomic_load_explicit(&lane->put, memory_order_relaxed));
    shadow_lane_want(lane, serial);
    for (;;) {
        const uint64_t done = atomic_load_explicit(&lane->done, memory_order_relaxed);
        if (done >= serial)
            break;
        const uint64_t at = clock_monotonic_usec();
        if (at >= deadline)
            return -ETIMEDOUT;
        counter_wait(&lane->done, done, deadline == USEC_INFINITY ? USEC_INFINITY : deadline - at);
    }
    (void)shadow_lane_reached(lane, serial); /* makes the work of the calls visible to the caller */
    return 0;
}

void shadow_lane_forked(ShadowLane *lane)
{
    assert(atomic_load_explicit(&lane->put, memory_order_relaxed) ==
           atomic_load_explicit(&lane->done, memory_order_relaxed)); /* else work would be lost */
    lane->thread_runs = false;
}
