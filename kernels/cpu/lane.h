/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h - an in-order queue of copies with its own thread: LANE_OUT of a CPU device.
 *
 * The thread starts with the first copy, so a device that saves nothing has no such thread.
 *
 * Ownership: cpu_lane_new() gives the caller a CpuLane. The memory of a copy is borrowed until its serial is reached.
 * Units:     bytes; a serial is the number of copies that were queued on the lane, so serial 0 is always reached.
 * Errors:    -ETIMEDOUT. If the thread cannot be started, cpu_lane_copy() copies before it returns.
 * Threads:   one thread at a time queues copies; any thread may call the other functions.
 */
#pragma once

#include "base/clock.h"
#include "base/error.h"

typedef struct CpuLane CpuLane;

CpuLane *cpu_lane_new(void);
/* Waits for the queued copies, then ends the thread. Returns NULL. */
CpuLane *cpu_lane_free(CpuLane *lane);
/* Queues a copy. Waits while the queue contains CPU_LANE_ROOM copies. */
void cpu_lane_copy(CpuLane *lane, void *to, const void *from, size_t n_bytes);
uint64_t cpu_lane_serial(CpuLane *lane);
bool cpu_lane_reached(CpuLane *lane, uint64_t serial);
int cpu_lane_await(CpuLane *lane, uint64_t serial, uint64_t timeout_usec, Error *err);
