/* testing-far.h - for tests: a store that is not local, "far://" and a folder's path behind it, whose
 * reads take time, fail, come corrupted or not at all, and are counted.
 *
 * Links with -Wl,--wrap=store_open, so that the code under test opens it like any other.
 *
 * Ownership: one Far for the program, shared with children that are forked after far_begin().
 * Units:     bytes, microseconds.
 * Errors:    those that the test asks for; else those of file://.
 * Threads:   any; each process has a thread of its own that lets reads arrive.
 */
#pragma once

#include "store/store.h"

#include <stdatomic.h>

enum { FAR_KEY_MAX = 64 };
#define FAR_HELD UINT64_MAX /* a delay until far->released */

/* Strikes the next `times` reads (or gets, heads, fetches) of a key that contains `key`. */
typedef struct FarFault {
    char key[FAR_KEY_MAX]; /* "": any */
    atomic_int times;
    int error;           /* 0: the bytes are flipped in the middle, unless they are only late */
    uint64_t delay_usec; /* late by so much */
} FarFault;

typedef struct Far {
    _Atomic uint64_t delay_usec; /* of every read */
    atomic_bool away;            /* nothing arrives */
    atomic_bool released;        /* what a fault of FAR_HELD holds may arrive */
    FarFault fault;
    /* counts; tables are reads from an object's beginning, bytes those of shards and index */
    atomic_int reads, tables, heads, gets, fetches, versions, cancels, under_way, most_under_way;
    _Atomic uint64_t bytes;
} Far;

extern Far *far;

/* Before anything is opened; everything is zero again. */
void far_begin(void);
void far_fault(const char *key, int times, int error, uint64_t delay_usec);
