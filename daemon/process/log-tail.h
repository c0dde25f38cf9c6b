/* SPDX-License-Identifier: Apache-2.0 */
/* log-tail.h - reads on in what one rank printed, from a place that the reader keeps.
 *
 * A rank's log is two files, rank<r>.log.1 and rank<r>.log (logs.h). A place names one of them by a number that does
 * not change when it is renamed. So a reader that waits while the log turns over goes on in the right file. Only what
 * is asked for is read, however large or sparse a file is.
 *
 * Ownership: the caller's buffer is filled.
 * Units:     bytes.
 * Errors:    -ENOENT: there is no log of that rank; -errno. A name that is a link, a pipe or a folder is -ENOENT.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

enum {
    LOG_TAIL_LINE_MAX = 4096,         /* a longer line is handed out in pieces */
    LOG_TAIL_BEHIND_MAX = 256 * 1024, /* a reader that is further behind is set to the tail */
};

/* The log of a rank, and how its end is read. */
typedef struct LogTail {
    const char *log_dir, *job;
    int64_t generation;
    int64_t tail_bytes; /* where a new reader begins, and one that was too far behind goes on */
    bool follow;        /* a line that is only begun waits for its end */
} LogTail;

typedef struct LogTailPiece {
    size_t n; /* bytes in the buffer: UTF-8, without control characters but line ends and tabs */
    int64_t skipped; /* bytes that were left out before them, as far as it is known */
    bool more;       /* there is more to read at once */
} LogTailPiece;

/* Reads at most size bytes (at least LOG_TAIL_LINE_MAX), whole lines where it can, and moves *place. */
int log_tail_read(const LogTail *tail, LogPlace *place, char *buffer, size_t size,
                  LogTailPiece *ret);
/* Fills the lowest `most` ranks that have a log of that generation, in rising order; returns how many. */
size_t log_tail_ranks(const LogTail *tail, int *ranks, size_t most);
