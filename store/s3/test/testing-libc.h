/* SPDX-License-Identifier: Apache-2.0 */
/* testing-libc.h - what the objects that a test is linked from ask of libc (-Wl,--wrap): pauses that cost no time,
 * threads that cannot begin, and a count of what is not freed.
 *
 * Ownership: one a process.
 * Units:     microseconds.
 * Errors:    none.
 * Threads:   any.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

/* How long all have slept; clock_boottime_usec() is ahead by so much. */
extern atomic_uint_least64_t paused_usec;
/* How many more threads may begin; -1: any number. */
extern atomic_int threads_left;
/* The n-th calloc(), malloc() or open_memstream() from now on fails (1: the next); 0: none. */
extern atomic_int calloc_fails, malloc_fails, stream_fails;
/* The number of blocks from malloc() and such that were not freed. */
extern atomic_int n_allocated;
