/* SPDX-License-Identifier: Apache-2.0 */
/* node-report.h - what a node found when `sdctl doctor` asked it, as its record in health/<node> carries it.
 *
 * Ownership: the caller's, without pointers.
 * Units:     *_usec are microseconds, *_bytes bytes.
 * Errors:    none: a text that is not a report is one whose error says so.
 * Threads:   any.
 */
#pragma once

#include "cluster/records.h"

enum { REPORT_TEXT_MAX = 200 };

typedef struct StoreReport {
    int64_t r; /* -errno */
    char error[REPORT_TEXT_MAX];
    bool lacks_marker;
} StoreReport;

typedef struct NodeReport {
    char error[REPORT_TEXT_MAX]; /* of the whole; empty: the rest is there */
    char version[32], user[64], cgroup[REPORT_TEXT_MAX];
    int64_t uid, at_usec, shm_bytes, memlock_bytes, nofile; /* -1: no limit */
    bool synchronised;
    StoreReport stores[RECORD_URIS_MAX];
    size_t n_stores;
    int64_t peers[RECORD_PEERS_MAX]; /* microseconds, or -errno */
    size_t n_peers;
} NodeReport;

/* Reads any text: a node may say anything. */
void node_report_read(const char *text, NodeReport *ret);
