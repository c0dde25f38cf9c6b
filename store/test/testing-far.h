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

/* Strikes the next `times` reads (or gets, fetches) of a key that contains `key`. */
typedef struct FarFault {
    char key[FAR_KEY_MAX]; /* "": any */
    atomic_int times;
    int error;           /* 0: the bytes are flipped in the middle, unless they are only late */
    uint64_t delay_usec; /* late by so much */
    bool wanders;        /* no two flips in a row are the same */
} FarFault;

typedef struct Far {
    _Atomic uint64_t delay_usec; /* of every read */
    atomic_bool away;            /* no read arrives */
    atomic_bool refuses;         /* nothing is answered */
    atomic_bool released;        /* what a fault of FAR_HELD holds may arrive */
    atomic_bool no_if_absent;    /* puts if absent keep no promise */
    const char *hidden;          /* keys that hold this text are not listed; a literal */
    FarFault fault;
    /* counts; tables are reads from an object's beginning, bytes those of shards and index */
    atomic_int reads, tables, heads, gets, fetches, versions, lists, cancels, under_way,
        most_under_way;
    _Atomic uint64_t bytes;
} Far;

extern Far *far;

/* Before anything is opened; everything is zero again. */
void far_begin(void);
void far_fault(const char *key, int times, int error, uint64_t delay_usec);
