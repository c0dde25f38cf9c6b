/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - the launches that were queued on the compute lane since the last fence that was reached.
 *
 * A kernel that traps breaks the device some time after the call that queued the kernel, and no later call reports
 * which kernel it was. The names of the newest launches, and the positions of fences among them, limit the search to
 * the launches between two fences. A launch is one of the project's own kernels, or an operation of a library, which
 * may run several kernels of the library.
 *
 * Ownership: the device's; names exist as long as the device.
 * Units:     a place is a number of launches, counted from the device's start.
 * Errors:    none.
 * Threads:   cuda_trace_put() LANE_COMPUTE's; the others any.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACE_NAMES = 8192 }; /* a grain of sd2-base has about 1,900 launches */

typedef struct CudaTrace {
    /* The number of launches so far, and the number of launches before the last fence that was reached. */
    _Atomic uint64_t n_put, reached;
    const char *_Atomic names[TRACE_NAMES];
} CudaTrace;

void cuda_trace_put(CudaTrace *trace, const char *name);
/* Returns the place that is stored with a new fence. */
uint64_t cuda_trace_place(const CudaTrace *trace);
/* Records that a fence with this place was reached. */
void cuda_trace_reached(CudaTrace *trace, uint64_t place);
/* Writes "after the last fence that was reached came pack_kernel<T>, the 1st of 12 launches". */
void cuda_trace_describe(const CudaTrace *trace, char *ret, size_t size);
