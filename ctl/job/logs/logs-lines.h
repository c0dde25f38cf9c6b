/* SPDX-License-Identifier: Apache-2.0 */
/* logs-lines.h - the lines of ranks, put together and shown; from files of this machine, or handed in.
 *
 * Ownership: a LogLines frees its ranks with log_lines_clear(), which takes a zeroed one.
 * Units:     bytes.
 * Errors:    none: a file that cannot be read has no lines.
 * Threads:   the main thread.
 */
#pragma once

#include "cluster/records.h"

enum { LOG_LINES_RANKS_MAX = 256, LOG_LINES_LINE_BYTES = 4096 };

typedef struct RankLines {
    char path[800]; /* of the file; empty: its lines are handed in */
    int rank;
    int fd;
    char line[LOG_LINES_LINE_BYTES]; /* begun */
    size_t n_line;
} RankLines;

typedef struct LogLines {
    RankLines *of[LOG_LINES_RANKS_MAX]; /* allocated: most jobs have few */
    size_t n;
    bool prefixed; /* lines carry their rank */
} LogLines;

/* Shows what of a line has come, and forgets all ranks. */
void log_lines_clear(LogLines *lines);
/* path may be "". NULL: there are too many. */
RankLines *log_lines_add(LogLines *lines, int rank, const char *path);
/* Bytes that rank has printed; a rank that is new is added. */
void log_lines_take(LogLines *lines, int rank, const char *text, size_t n);
/* Shows what is in <path>.1 of each file. */
void log_lines_show_old(LogLines *lines);
/* Shows what is new in the files; last: also lines that have no end. */
void log_lines_show(LogLines *lines, bool last);
