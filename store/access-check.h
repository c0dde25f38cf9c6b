/* SPDX-License-Identifier: Apache-2.0 */
/* access-check.h - checks whether stores can be used from here: several at the same time, all within one deadline.
 *
 * A file system that hangs blocks the thread that uses it. So a thread of its own tries each store, and a
 * thread that hangs is left alone: the program must end soon afterwards.
 *
 * Ownership: the caller's StoreTry; a thread works on its own copy, which outlives the call if the thread hangs.
 * Units:     *_usec is microseconds.
 * Errors:    in StoreTry.r, with text; -ETIMEDOUT: no answer until the deadline.
 * Threads:   any; starts one thread per store.
 */
#pragma once

#include "base/error.h"
#include "base/macro.h"

enum {
    STORE_TRIES_MAX = 8,
    STORE_TRY_URI_MAX = 512,
    STORE_TRY_MARKER_MAX = 64,
    /* STORE_TRY_SEC: time for all requests to one store. STORE_TRY_REQUEST_SEC: time for one request. An unreachable
     * store gets more than one request within STORE_TRY_SEC, since the first request of a probe (store/s3/probe.c) has
     * only two seconds. */
    STORE_TRY_SEC = 8,
    STORE_TRY_REQUEST_SEC = 4,
};

typedef enum StoreTryKind {
    STORE_TRY_READ,   /* checks that index.json can be read */
    STORE_TRY_WRITE,  /* an object is put, read back and deleted */
    STORE_TRY_MARK,   /* like STORE_TRY_WRITE, and then the marker is put */
    STORE_TRY_UNMARK, /* only deletes the marker */
} StoreTryKind;

typedef struct StoreTry {
    char uri[STORE_TRY_URI_MAX];
    StoreTryKind kind;
    /* Key of an object by which other machines recognize the store; "": none. */
    char marker[STORE_TRY_MARKER_MAX];

    int r; /* 0: the store can be used as `kind` requires; else -errno */
    Error error;
    uint64_t took_usec;
    bool lacks_marker; /* STORE_TRY_WRITE found no marker in the store */
    /* STORE_TRY_MARK failed with -ENOENT: the store's folder does not exist until the first write. */
    bool is_missing;
    /* STORE_TRY_MARK failed with -EACCES or -EROFS, but the store can be read. */
    bool may_read;
} StoreTry;

/* Sets STORE_TRY_REQUEST_SEC as the deadline of requests of stores that are opened later. To be called before any
 * thread starts. */
void store_try_begin(void);
/* Sets sec as the deadline of requests, unless SDTRAIN_S3_DEADLINE_SEC is set. To be called before any
 * thread starts. */
void store_requests_within(int sec);
void store_try_all(StoreTry *tries, size_t n, uint64_t timeout_usec);
/* Returns at most max bytes of the error's text. A longer text is cut to the server's answer, or else to its last
 * bytes. ret has max + 1 bytes. */
const char *store_try_words(const StoreTry *t, size_t max, char *ret);
/* Flushes the output and ends the program: with exit(), but with _exit() if a thread hangs that might use what exit()
 * destroys. */
_noreturn_ void store_try_exit(int code);
