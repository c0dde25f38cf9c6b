/* SPDX-License-Identifier: Apache-2.0 */
/* log-records.h - the records by which sdctl reads the logs of other nodes; records.h has all others.
 *
 * Ownership: as records.h: *_decode() fills allocated parts that *_clear() frees.
 * Units:     *_usec is microseconds; bytes.
 * Errors:    as records.h.
 * Source:    docs/internals/etcd.md, "Logs".
 */
#pragma once

#include "cluster/records.h"

/* ---- asks/<node>/<id>: a request to read a node's logs; written by sdctl under a lease of its own ----
 *
 * The record names a position for each rank from which to continue reading, so the node need not remember the reader's
 * position. When sdctl has shown an answer, it writes the record again with the next seq. So etcd has at most one
 * answer to each request. The request and its answer are deleted when the reader ends. */

enum {
    LOG_TEXT_MAX = 16384,  /* bytes of log in one answer */
    LOG_REQUESTS_MAX = 16, /* log requests that a node serves at the same time */
    LOG_ID_MAX = 39,
};

typedef struct LogPlace {
    int rank;
    int64_t file;   /* the node's number for the log file; 0: the file in which the tail begins */
    int64_t offset; /* position in the file, in bytes */
} LogPlace;

typedef struct LogRequestRecord {
    char job[RECORD_JOB_MAX + 1];
    int64_t generation;
    int64_t seq; /* number of this request, from 1; the answer repeats it */
    bool follow; /* true: the node waits for new lines; false: it sets `end` when all is read */
    int64_t tail_bytes; /* for each rank: how many bytes before the end of its log reading starts */
    /* Minimum time between two answers of the node, unless more text is ready at once. */
    int64_t pause_usec;
    LogPlace *places; /* the ranks to read; none: all ranks of the generation on this node */
    size_t n_places;
} LogRequestRecord;

/* ---- lines/<node>/<id>: the node's answer to asks/<node>/<id>, under the node's lease ---- */

typedef struct LogPart {
    LogPlace next;   /* position from which to continue */
    int64_t bytes;   /* size of this part within the answer's text */
    int64_t skipped; /* bytes omitted before this part: they were too old, too many or deleted */
    bool missing;    /* the node has no log file for this rank */
} LogPart;

typedef struct LogLinesRecord {
    int64_t seq;
    LogPart *parts;
    size_t n_parts;
    /* the texts of all parts, joined; UTF-8 without control characters except line ends and tabs */
    char *text;
    bool more; /* more text is ready now */
    bool end;  /* everything is read, and the node has dropped the request */
    char refused[RECORD_TEXT_MAX + 1]; /* why the node refuses the request; empty: no refusal */
} LogLinesRecord;

DECLARE_RECORD(LogRequestRecord, log_request_record)
DECLARE_RECORD(LogLinesRecord, log_lines_record)
