/* SPDX-License-Identifier: Apache-2.0 */
/* testing-far.h - for tests: a store that is not local, "far://" and a folder's path behind it. Its
 * reads take time, fail, come corrupted or not at all; what is deferred is read late and in another
 * order; listings and answers go wrong where a test says so; and what is asked is counted.
 *
 * Links with -Wl,--wrap=store_open, so that the code under test opens it like any other.
 *
 * Ownership: one Far for the program, shared with children that are forked after far_begin().
 * Units:     bytes, microseconds.
 * Errors:    those that the test asks for; -EHOSTUNREACH while it refuses; else those of file://. A
 *            store that is freed with a put that was not flushed, or a read that was not waited for,
 *            ends the process.
 * Threads:   any; each process has a thread of its own that lets reads arrive.
 */
#pragma once

#include "store/store.h"

#include <stdatomic.h>

enum { FAR_KEY_MAX = 128 };
#define FAR_HELD UINT64_MAX /* a delay until far->released */

/* A fault of the next `times` reads, gets or fetches of a key that contains `key`. */
typedef struct FarFault {
    char key[FAR_KEY_MAX]; /* "": every key contains it */
    atomic_int times;
    int error; /* with which they fail; 0: a byte in the middle is flipped, unless delay_usec is set */
    uint64_t delay_usec; /* by which they arrive late; 0: in time */
    bool wanders;        /* no two flips in a row are the same */
} FarFault;

typedef struct Far {
    _Atomic uint64_t delay_usec; /* of every read */
    atomic_bool away;            /* no read arrives */
    atomic_bool refuses;         /* every call fails with -EHOSTUNREACH */
    atomic_bool released;        /* reads that a fault of FAR_HELD holds may arrive */
    atomic_bool no_if_absent;    /* STORE_IF_ABSENT is not atomic */
    const char *hidden;          /* a literal: keys that contain it are not listed */
    FarFault fault;
    /* Numbers of calls. tables: reads from an object's beginning; bytes: of shards and index. */
    atomic_int reads, tables, heads, gets, fetches, versions, lists, cancels, under_way,
        most_under_way;
    _Atomic uint64_t bytes;
} Far;

extern Far *far;

/* Before anything is opened; everything is zero again. */
void far_begin(void);
void far_fault(const char *key, int times, int error, uint64_t delay_usec);
