/* SPDX-License-Identifier: Apache-2.0 */
/* history.h - judges the history of a cluster's records in etcd: every change, in the order of revisions.
 *
 * The checker knows only keys and values, as etcd holds them. It needs no process, clock or network, and must be given
 * the history from its first revision on, without a hole. Rules that the simulator has, too, are in rules.h.
 *
 * A change by hand (etcdctl) that no program makes is judged like any other: such a history is broken. Where the caller
 * says that a change was made by hand, the history is not broken, and from then on the rules demand less of the records
 * that the change was about.
 *
 * Ownership: history_checker_new() gives the caller a HistoryChecker; history_checker_free() accepts NULL. Keys and
 *            values are copied.
 * Units:     revisions.
 * Errors:    what is broken goes to the handler, and the checker goes on. -EINVAL: the changes are not a history.
 * Threads:   one at a time.
 */
#pragma once

#include "tests/history/rules.h"

typedef struct HistoryChecker HistoryChecker;

/* key: of the record that broke a rule. */
typedef void (*HistoryHandler)(int64_t revision, const char *key, const Breach *breach,
                               void *userdata);

typedef struct HistoryChange {
    const char *key;   /* "/sdtrain/<cluster>/<kind>/<...>" */
    const char *value; /* NULL: the key is removed */
    size_t n_value;
    int64_t lease; /* 0: none */
    int64_t
        version; /* how many times the key was written since it was made: tells a hole in the history */
    bool by_hand;
} HistoryChange;

typedef struct HistoryCounts {
    uint64_t n_changes, n_revisions, n_worlds, n_commits, n_incidents, n_breaches;
    int64_t revision; /* the newest one */
} HistoryCounts;

HistoryChecker *history_checker_new(const char *cluster, HistoryHandler handler, void *userdata);
HistoryChecker *history_checker_free(HistoryChecker *h);
DEFINE_CLEANUP(HistoryChecker, history_checker_free)

/* One revision's changes, all of them. -EINVAL when the revision is not newer than the last. */
int history_checker_apply(HistoryChecker *h, int64_t revision, const HistoryChange *changes,
                          size_t n_changes, Error *err);
/* Judges what is left over when nothing follows any more. */
void history_checker_end(HistoryChecker *h);
HistoryCounts history_checker_counts(const HistoryChecker *h);
