/* SPDX-License-Identifier: Apache-2.0 */
/* testing-alloc.h - fails one allocation of a program's own code, chosen by its number.
 *
 * A test that links `testing-alloc` has malloc(), calloc(), realloc(), reallocarray(), strdup(), strndup(),
 * asprintf() and vasprintf() of the project's objects run through a counter (the linker's --wrap), and so
 * does all of jansson's memory (base/json/json.c). Other libraries allocate as ever.
 *
 * Ownership: none.
 * Units:     allocations, counted from 1.
 * Errors:    the chosen one fails as the real function would: NULL, or -1 with ENOMEM.
 * Threads:   alloc_fail_at() arms only the calling thread, alloc_fail_at_anywhere() all of them. While
 *            alloc_sweep() runs, no other thread of the process may allocate: a child would find the allocator's
 *            locks as they were at its fork().
 */
#pragma once

#include "base/macro.h"

/* The n-th from now fails, once; 0: none. */
void alloc_fail_at(unsigned n);
void alloc_fail_at_anywhere(unsigned n);
/* Disarms; whether the allocation has failed. */
bool alloc_struck(void);

/* The result that a life reports of itself. */
typedef enum AllocLife {
    ALLOC_WHOLE,  /* nothing failed, or what failed did no harm */
    ALLOC_FAILED, /* the life reported the failure, and left everything as it must be */
    ALLOC_WRONG,
} AllocLife;

/* Runs life(n, arg) in a child process for n = 1, 2, ...; life() arms the fuse with n itself, and ends with
 * alloc_struck(). The first life that was not struck ends the sweep. A life may also end by abort(), as json.c does.
 * Returns how many lives failed; ends the test, naming n, at a life that is wrong, leaks or crashes, or at max. */
unsigned alloc_sweep(AllocLife (*life)(unsigned n, void *arg), void *arg, unsigned max);
