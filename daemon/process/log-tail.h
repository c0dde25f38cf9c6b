/* SPDX-License-Identifier: Apache-2.0 */
/* log-tail.h - reads the log of one rank from a place that the reader keeps.
 *
 * A rank's log is two files, rank<r>.log.1 and rank<r>.log (logs.h). A place names one file by a number that does
 * not change when the file is renamed. So a reader that waits while the log turns over goes on in the right file.
 * Only the requested bytes are read, however large or sparse a file is.
 *
 * Units: bytes. Threads: any.
 * Ownership: the caller's buffer is filled.
 * Errors:    -ENOENT: there is no log of that rank, or its name is a link, a pipe or a folder; -errno.
 */
#pragma once

#include "cluster/log-records.h"

enum {
    LOG_TAIL_LINE_MAX = 4096,         /* a longer line is handed out in pieces */
    LOG_TAIL_BEHIND_MAX = 256 * 1024, /* a reader that lags by more bytes skips to the tail */
};

/* The log of a rank, and how its end is read. */
typedef struct LogTail {
    const char *log_dir, *job;
    int64_t generation;
    int64_t tail_bytes; /* bytes before the end at which a new or a late reader begins */
    bool follow;        /* a last line without a line end is held back until it ends */
} LogTail;

typedef struct LogTailPiece {
    size_t n; /* bytes in the buffer: UTF-8 without control characters except line ends and tabs */
    int64_t skipped; /* number of bytes skipped before the n bytes, as far as known */
    bool more;       /* more can be read at once */
} LogTailPiece;

/* Reads at most size bytes from *place, whole lines if possible, and moves *place. size is at least
 * LOG_TAIL_LINE_MAX. */
int log_tail_read(const LogTail *tail, LogPlace *place, char *buffer, size_t size,
                  LogTailPiece *ret);
/* Lists, in rising order, the ranks that have a log of the generation: all of them, or the lowest `most`. Returns the
 * number of listed ranks. */
size_t log_tail_ranks(const LogTail *tail, int *ranks, size_t most);
