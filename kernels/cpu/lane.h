/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - an in-order queue of copies with a thread of its own: a CPU's LANE_OUT.
 *
 * The thread starts with the first copy, so that a device that saves nothing has none.
 *
 * Ownership: cpu_lane_new() gives the caller a CpuLane. The memory of a copy is borrowed until its serial is
 *            reached.
 * Units:     bytes; a serial is the number of copies that were put on the lane, so 0 is always reached.
 * Errors:    -ETIMEDOUT. Where no thread can be had, the copy is done when the call returns.
 * Threads:   copies are put there by one thread at a time; the rest is any thread's.
 */
#pragma once

#include "base/clock.h"
#include "base/error.h"

typedef struct CpuLane CpuLane;

CpuLane *cpu_lane_new(void);
/* Ends after the copies that were put there. */
CpuLane *cpu_lane_free(CpuLane *lane);
/* Waits while CPU_LANE_ROOM copies are in the queue. */
void cpu_lane_copy(CpuLane *lane, void *to, const void *from, size_t n_bytes);
uint64_t cpu_lane_serial(CpuLane *lane);
bool cpu_lane_reached(CpuLane *lane, uint64_t serial);
int cpu_lane_await(CpuLane *lane, uint64_t serial, uint64_t timeout_usec, Error *err);
