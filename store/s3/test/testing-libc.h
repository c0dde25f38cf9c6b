/* SPDX-License-Identifier: Apache-2.0 */
/* testing-libc.h - replacements of libc functions for the objects of a test (-Wl,--wrap): pauses that take no time,
 * limits on new threads, failing allocations, and a count of blocks that are not freed.
 *
 * Ownership: one per process. Units: microseconds. Errors: none. Threads: any.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* Sum of all pauses so far; clock_boottime_usec() is ahead by this time. */
extern atomic_uint_least64_t paused_usec;
/* How many more threads may start; -1: any number. */
extern atomic_int threads_left;
/* The n-th calloc(), malloc() or open_memstream() from now on fails (1: the next); 0: none. */
extern atomic_int calloc_fails, malloc_fails, stream_fails;
/* The number of blocks from malloc() and similar functions that were not freed. */
extern atomic_int n_allocated;
