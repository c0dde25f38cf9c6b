/* SPDX-License-Identifier: Apache-2.0 */
/* logs-lines.h - assembles and prints the log lines of ranks, from files of this machine or from bytes that the caller
 * passes.
 *
 * Units: bytes. Threads: the main thread.
 * Ownership: log_lines_clear() frees the ranks of a LogLines and accepts a zeroed LogLines.
 * Errors:    none: a file that cannot be read has no lines.
 */
#pragma once

#include "cluster/records.h"

enum { LOG_LINES_RANKS_MAX = 256, LOG_LINES_LINE_BYTES = 4096 };

typedef struct RankLines {
    char path[800]; /* path of the log file; empty: the caller passes the bytes */
    int rank;
    int fd;
    char line[LOG_LINES_LINE_BYTES]; /* the incomplete last line */
    size_t n_line;
} RankLines;

typedef struct LogLines {
    RankLines *of[LOG_LINES_RANKS_MAX]; /* allocated one by one, because most jobs have few ranks */
    size_t n;
    bool prefixed; /* each line begins with its rank */
} LogLines;

/* Prints incomplete lines and removes all ranks. */
void log_lines_clear(LogLines *lines);
/* Adds a rank; path may be "". Returns NULL when there are too many ranks. */
RankLines *log_lines_add(LogLines *lines, int rank, const char *path);
/* Takes bytes that the rank has printed. An unknown rank is added. */
void log_lines_take(LogLines *lines, int rank, const char *text, size_t n);
/* Prints the contents of each file's predecessor, <path>.1. */
void log_lines_show_old(LogLines *lines);
/* Prints the new parts of all files; with last set, also incomplete lines. */
void log_lines_show(LogLines *lines, bool last);
