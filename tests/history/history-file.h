/* SPDX-License-Identifier: Apache-2.0 */
/* history-file.h - reads a history as etcdctl writes it, and checks it:
 *
 *     etcdctl watch --prefix --rev 1 -w json /sdtrain/<cluster>/ >FILE
 *
 * A line is one answer of the watch: {"Header": {...}, "Events": [{"type": 1, "kv": {...}}]}. tests/system/history.py
 * records such files, and adds a line at the end: {"history": "complete"}, or {"history": "broken", "why": "..."}.
 *
 * Units: revisions. Threads: any.
 * Ownership: *ret_checker is the caller's, also on failure, when it contains the changes that could be read; NULL: no
 *            change could be read.
 * Errors:    -EINVAL with "<file>:<line>: <what is wrong>"; -ESTALE: etcd no longer had the history (compacted), or had
 *            another history (restored): the file ends there.
 */
#pragma once

#include "tests/history/history.h"

#include <stdio.h>

enum { HISTORY_LINE_MAX = 64 << 20 };

typedef enum HistoryEnd {
    HISTORY_OPEN,     /* no line says whether the history is complete */
    HISTORY_COMPLETE, /* the recorder received all changes up to its end */
} HistoryEnd;

/* Checks a file. If cluster is NULL, the cluster is that of the first key. name is the file's name
 * for errors. */
int history_file_check(FILE *file, const char *name, const char *cluster, HistoryHandler handler,
                       void *userdata, HistoryChecker **ret_checker, HistoryEnd *ret_end,
                       Error *err);
