/* SPDX-License-Identifier: Apache-2.0 */
/* node-report.h - a node's report for `sdctl doctor`, as stored in its record health/<node>.
 *
 * Ownership: the caller owns NodeReport, which has no pointers.
 * Units:     *_usec are microseconds, *_bytes bytes.
 * Errors:    none: for a text that is not a report, NodeReport.error has the reason.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

enum { REPORT_TEXT_MAX = 200 };

typedef struct StoreReport {
    int64_t r; /* 0: the node can use the store; else -errno */
    char error[REPORT_TEXT_MAX];
    bool lacks_marker;
} StoreReport;

typedef struct NodeReport {
    char error[REPORT_TEXT_MAX]; /* why there is no report; empty: the other fields are valid */
    char version[32], user[64], cgroup[REPORT_TEXT_MAX];
    int64_t uid, at_usec, shm_bytes, memlock_bytes, nofile; /* memlock, nofile -1: no limit */
    bool synchronised;
    StoreReport stores[RECORD_URIS_MAX];
    size_t n_stores;
    int64_t peers[RECORD_PEERS_MAX]; /* time to connect in microseconds, or -errno */
    size_t n_peers;
} NodeReport;

/* Parses the report. Any text is safe, because a node may write any text. */
void node_report_read(const char *text, NodeReport *ret);
