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

/* The user, limits and devices of programs of jobs of kind "exec". */
typedef struct ProgramsReport {
    bool has;                    /* the node runs such programs */
    char error[REPORT_TEXT_MAX]; /* empty: the other fields are valid */
    char user[64], closed_secrets[REPORT_TEXT_MAX],
        closed_device[64]; /* the first that cannot be opened */
    int64_t uid, memlock_bytes, nofile, n_closed_devices;
} ProgramsReport;

typedef struct NodeReport {
    char
        error[REPORT_TEXT_MAX]; /* reason for a missing report; empty: the other fields are valid */
    char version[32], user[64], cgroup[REPORT_TEXT_MAX];
    int64_t uid, at_usec, shm_bytes, memlock_bytes, nofile; /* memlock, nofile -1: no limit */
    bool synchronised;
    StoreReport stores[RECORD_URIS_MAX];
    size_t n_stores;
    ProgramsReport programs;
    int64_t peers[RECORD_PEERS_MAX]; /* time to connect in microseconds, or -errno */
    size_t n_peers;
} NodeReport;

/* Parses the report. Any text is safe, because a node may write any text. */
void node_report_read(const char *text, NodeReport *ret);
