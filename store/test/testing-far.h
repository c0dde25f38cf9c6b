/* SPDX-License-Identifier: Apache-2.0 */
/* testing-far.h - for tests: a store that is not local: "far://" followed by a folder's path. Its
 * reads take time, fail, or return corrupted bytes or nothing; deferred puts are done late and in another
 * order; listings and answers are wrong if a test requires it; and all calls are counted.
 *
 * Link with -Wl,--wrap=store_open, so that the code under test opens it like any other store.
 *
 * Ownership: one Far for the program, shared with children that are forked after far_begin().
 * Units:     bytes, microseconds.
 * Errors:    those that the test requests; -EHOSTUNREACH while `refuses` is set; otherwise those of file://. If a
 *            store is freed with a put that was not flushed, or a read that was not waited for,
 *            the process ends.
 * Threads:   any; each process has its own thread, which ends the reads.
 */
#pragma once

#include "store/store.h"

#include <stdatomic.h>

enum { FAR_KEY_MAX = 128 };
#define FAR_HELD UINT64_MAX /* a delay until far->released is set */

/* A fault of the next `times` reads, gets or fetches of a key that contains `key`. */
typedef struct FarFault {
    char key[FAR_KEY_MAX]; /* text that the key contains; "": the fault hits every key */
    atomic_int times;
    int error; /* the reads' error; 0: a byte in the middle is flipped, unless delay_usec is set */
    uint64_t delay_usec; /* how late the reads arrive; 0: in time */
    bool wanders;        /* each read has another bit flipped; false: always the same bit */
} FarFault;

typedef struct Far {
    _Atomic uint64_t delay_usec; /* delay of every read */
    atomic_bool away;            /* no read arrives */
    atomic_bool refuses;         /* every call fails with -EHOSTUNREACH */
    atomic_bool released;        /* reads that a fault of FAR_HELD holds may arrive */
    atomic_bool no_if_absent;    /* STORE_IF_ABSENT is not atomic */
    const char *hidden;          /* a literal: keys that contain it are omitted from lists */
    FarFault fault;
    /* Numbers of calls. tables: reads from an object's beginning; bytes: requested bytes of ranges and fetches. */
    atomic_int reads, tables, heads, gets, fetches, versions, lists, cancels, under_way,
        most_under_way;
    _Atomic uint64_t bytes;
} Far;

extern Far *far;

/* Sets all fields of *far to zero. To be called before any store is opened. */
void far_begin(void);
void far_fault(const char *key, int times, int error, uint64_t delay_usec);
