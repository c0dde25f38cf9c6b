/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - which launches were put on the compute lane since the last fence that was reached.
 *
 * A kernel that traps breaks the device some time after the call that put it there, and no later call tells which one
 * it was. The names of the newest launches, and where fences lie among them, say between which two it must be. A launch
 * is of one of the project's own kernels, or of an operation of a library, which may run several of its kernels.
 *
 * Ownership: the device's; names live as long as it does.
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
    _Atomic uint64_t n_put, reached; /* places */
    const char *_Atomic names[TRACE_NAMES];
} CudaTrace;

void cuda_trace_put(CudaTrace *trace, const char *name);
/* Returns the place that a fence keeps when it is made. */
uint64_t cuda_trace_place(const CudaTrace *trace);
/* A fence that kept `place` was reached. */
void cuda_trace_reached(CudaTrace *trace, uint64_t place);
/* Writes "after the last fence that was reached came pack_kernel<T>, the 1st of 12 launches". */
void cuda_trace_describe(const CudaTrace *trace, char *ret, size_t size);
