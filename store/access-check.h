/* SPDX-License-Identifier: Apache-2.0 */
/* access-check.h - whether stores can be used from here: several at once, none for longer than a deadline.
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

enum {
    STORE_TRIES_MAX = 8,
    STORE_TRY_URI_MAX = 512,
    STORE_TRY_MARKER_MAX = 64,
    /* For all that is tried in a store, and for one request of it: a store that is away is asked three times before a
     * try ends, the first time for two seconds. */
    STORE_TRY_SEC = 8,
    STORE_TRY_REQUEST_SEC = 4,
};

typedef enum StoreTryKind {
    STORE_TRY_READ,   /* an index.json must be there, and can be read */
    STORE_TRY_WRITE,  /* an object is put, read back and deleted */
    STORE_TRY_MARK,   /* as STORE_TRY_WRITE, and then the marker is put */
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
    bool is_missing;   /* STORE_TRY_MARK, -ENOENT: a folder that the first to write makes */
    bool may_read; /* STORE_TRY_MARK, -EACCES or -EROFS: what cannot be written here can be read */
} StoreTry;

/* Bounds the requests of stores that are opened from now on: before the first thread. */
void store_try_begin(void);
/* The same, unless SDTRAIN_S3_DEADLINE_SEC says how long. */
void store_requests_within(int sec);
void store_try_all(StoreTry *tries, size_t n, uint64_t timeout_usec);
/* Returns max bytes of the error's text at most: of a longer one those from the server's answer on, or else the last.
 * ret: max + 1 bytes. */
const char *store_try_words(const StoreTry *t, size_t max, char *ret);
/* Ends the program, with what it wrote: by exit(), but where a thread hangs that would use what exit() takes down, at
 * once. */
_noreturn_ void store_try_exit(int code);
