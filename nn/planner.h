/* SPDX-License-Identifier: Apache-2.0 */
/* planner.h - gives every buffer of a schedule its place in one arena.
 *
 * A buffer is alive from the first to the last step that uses it. Two buffers that are alive at one time never overlap;
 * all other buffers may. The largest buffers are placed first, each into the lowest gap that holds it. That packs well
 * in practice, and the result is the same on every machine.
 *
 * Ownership: the caller's array. Errors: -ENOMEM.
 * Units:     time is the index of a step of the schedule, inclusive at both ends; bytes.
 * Threads:   any; the only side effect is malloc.
 */
#pragma once

#include "kernels/kernels.h"

enum { PLANNER_ALIGNMENT = DEVICE_ALIGNMENT };

typedef struct PlannedBuffer {
    size_t bytes;
    int first, last; /* first > last: no step uses the buffer, and it gets no memory */
    size_t offset;   /* set by planner_place(); a multiple of PLANNER_ALIGNMENT */
} PlannedBuffer;

/* Extends the buffer's life to the step `time`. Before the first call the buffer is {.first = INT_MAX, .last = -1}. */
void planner_touch(PlannedBuffer *buffer, int time);
/* Sets every offset; *ret_bytes is the size of the arena. */
int planner_place(PlannedBuffer *buffers, size_t n_buffers, size_t *ret_bytes);
