/* testing-store.h - for tests: a store in front of another one that behaves as a network would: what
 * is deferred is read late and in another order, reads that run together end when they are waited
 * for, and bytes, listings and answers go wrong where a test says so.
 *
 * Ownership: testing_store_new() takes over the store behind it; store_free() frees both.
 * Units:     reads, bytes.
 * Errors:    those of the store behind; -EHOSTUNREACH while it is away.
 * Threads:   the trouble is the test's to change while nobody uses the store; else as store.h.
 */
#pragma once

#include "store/store.h"

typedef struct StoreTrouble {
    const char *key;    /* reads of keys that hold this text... */
    int flips;          /* ...have a wrong byte, so many times */
    int misses;         /* ...and find nothing, so many times */
    const char *hidden; /* keys that hold this text are not listed */
    bool away;          /* nothing is answered */
    bool no_if_absent;  /* puts if absent keep no promise */
    /* what was seen */
    size_t reads, reads_together, heads, lists;
} StoreTrouble;

/* trouble is shared with the caller and must stay. */
Store *testing_store_new(Store *behind, StoreTrouble *trouble);
