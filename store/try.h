/* SPDX-License-Identifier: Apache-2.0 */
/* try.h - whether stores can be used from here: several at once, none for longer than a deadline.
 *
 * A file system that hangs takes along the thread that asks it. So each store is tried by a thread of its own, and one
 * that does not come back is left to itself: the program is to end soon after.
 *
 * Ownership: the caller's StoreTry; what a thread works on is a copy, which outlives the call where it hangs.
 * Units:     *_usec is microseconds.
 * Errors:    in StoreTry.r, with text; -ETIMEDOUT: no answer until the deadline.
 * Threads:   any; starts one a store.
 */
#pragma once

#include "base/error.h"
#include "base/macro.h"

enum { STORE_TRIES_MAX = 8, STORE_TRY_URI_MAX = 512, STORE_TRY_MARKER_MAX = 64 };

typedef enum StoreTryKind {
    STORE_TRY_READ,  /* an index.json must be there */
    STORE_TRY_WRITE, /* an object is put, read back and deleted */
    STORE_TRY_MARK, /* as STORE_TRY_WRITE, and then the marker is put; -ENOENT: its folder is not there yet */
    STORE_TRY_UNMARK, /* the marker is deleted, and nothing else is tried */
} StoreTryKind;

typedef struct StoreTry {
    char uri[STORE_TRY_URI_MAX];
    StoreTryKind kind;
    char marker[STORE_TRY_MARKER_MAX]; /* an object by which others know the store; empty: none */

    int r; /* 0: it can be used so */
    Error error;
    uint64_t took_usec;
    bool lacks_marker; /* STORE_TRY_WRITE: the marker is not there */
} StoreTry;

void store_try_all(StoreTry *tries, size_t n, uint64_t timeout_usec);
/* Ends the program, with what it wrote: by exit(), but where a thread hangs that would use what exit() takes down, at
 * once. */
_noreturn_ void store_try_exit(int code);
