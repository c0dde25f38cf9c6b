/* SPDX-License-Identifier: Apache-2.0 */
/* testing-alloc.h - fails one allocation of a program's own code, chosen by its number.
 *
 * In a test that links `testing-alloc`, the linker (--wrap) replaces malloc(), calloc(), realloc(), reallocarray(),
 * strdup(), strndup(), asprintf() and vasprintf() of the project's objects by functions that count the calls. All of
 * jansson's memory is counted, too (base/json/json.c). Other libraries allocate as usual.
 *
 * Ownership: none.
 * Units:     allocations, counted from 1.
 * Errors:    the chosen allocation fails as the real function would: NULL, or -1 with ENOMEM.
 * Threads:   alloc_fail_at() affects only the calling thread, alloc_fail_at_anywhere() all threads. While
 *            alloc_sweep() runs, no other thread of the process may allocate: a child would inherit the allocator's
 *            locks in their state at the fork().
 */
#pragma once

#include "base/macro.h"

/* Makes the n-th allocation from now fail, once; 0: none. */
void alloc_fail_at(unsigned n);
void alloc_fail_at_anywhere(unsigned n);
/* Disarms the failure. Returns whether an allocation has failed. */
bool alloc_struck(void);

/* The ways in which one run of a tested function can end. */
typedef enum AllocLife {
    ALLOC_WHOLE,  /* no allocation failed, or the failure did no harm */
    ALLOC_FAILED, /* the run reported the failure, and left everything in a valid state */
    ALLOC_WRONG,
} AllocLife;

/* Runs life(n, arg) in a child process for n = 1, 2, ...; life() itself must call alloc_fail_at(n) or
 * alloc_fail_at_anywhere(n), and alloc_struck() at the end. The sweep ends at the first run in which no allocation
 * failed. A run may also end with abort(), as json.c does. Returns how many runs failed. Fails the test, and prints n,
 * if a run is wrong, leaks or crashes, or if n exceeds max. */
unsigned alloc_sweep(AllocLife (*life)(unsigned n, void *arg), void *arg, unsigned max);
